"""How a call that cannot be answered says so: the right status, and text that survives any client."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import grpc

from themis_arbiter.adapters.grpc.faults import quoted, why_bad_name
from themis_arbiter.adapters.grpc.seams import Engine
from themis_arbiter.engine.loop import EngineError, NotLeading, QueueFull

T = TypeVar("T")

LEADER_KEY: Final = "themis-leader"  # of the trailing metadata in which a standby says who leads


def abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    """End the call with `code`."""
    context.abort(code, text)
    raise AssertionError("abort returned")


@contextmanager
def engine_errors(context: grpc.ServicerContext) -> Iterator[None]:
    """What the engine refuses becomes a status: RESOURCE_EXHAUSTED where trying again helps, else UNAVAILABLE."""
    try:
        yield
    except EngineError as err:
        refuse(context, err)


def refuse(context: grpc.ServicerContext, err: EngineError) -> NoReturn:
    """End the call with the status of `err`; a standby's says who leads."""
    if isinstance(err, NotLeading) and err.leader:
        context.set_trailing_metadata(((LEADER_KEY, err.leader),))
    abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(err, QueueFull) else grpc.StatusCode.UNAVAILABLE, str(err))


def ask(context: grpc.ServicerContext, engine: Engine[Any], look: Callable[[Any], T]) -> T:
    """What `look` says of the arbiter, or the call's end with a status."""
    with engine_errors(context):
        return engine.call(look)


def check_name(context: grpc.ServicerContext, what: str, name: str) -> None:
    """End the call with INVALID_ARGUMENT where `name` cannot be a name."""
    if why := why_bad_name(name):
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{what} {quoted(name)}: {why}")
