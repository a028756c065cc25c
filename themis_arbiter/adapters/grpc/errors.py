"""How a call that cannot be answered says so: the right status, and text that survives any client."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import grpc

from themis_arbiter.adapters.grpc.faults import quoted, why_bad_name
from themis_arbiter.adapters.grpc.seams import Engine
from themis_arbiter.engine.loop import EngineError, QueueFull

T = TypeVar("T")


def abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    """End the call with `code`."""
    context.abort(code, text)
    raise AssertionError("abort returned")


@contextmanager
def engine_errors(context: grpc.ServicerContext) -> Iterator[None]:
    """What the engine refuses becomes a status: RESOURCE_EXHAUSTED where trying again helps, else UNAVAILABLE."""
    try:
        yield
    except QueueFull as err:
        abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(err))
    except EngineError as err:
        abort(context, grpc.StatusCode.UNAVAILABLE, str(err))


def ask(context: grpc.ServicerContext, engine: Engine[Any], look: Callable[[Any], T]) -> T:
    """What `look` says of the arbiter, or the call's end with a status."""
    with engine_errors(context):
        return engine.call(look)


def check_name(context: grpc.ServicerContext, what: str, name: str) -> None:
    """End the call with INVALID_ARGUMENT where `name` cannot be a name."""
    if why := why_bad_name(name):
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{what} {quoted(name)}: {why}")
