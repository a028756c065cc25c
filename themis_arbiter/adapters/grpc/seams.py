"""What the services need of the rest of the arbiter, as plain protocols and callables, so that tests use small fakes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from themis_arbiter.core.events import Event
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import AppId, JobId, Millis
from themis_arbiter.core.views import AppView, NodeView, StatusView

ArbiterT = TypeVar("ArbiterT")
ArbiterT_co = TypeVar("ArbiterT_co", covariant=True)
T = TypeVar("T")


class Engine(Protocol[ArbiterT_co]):
    """The engine's loop as the services see it; both calls may come from any thread but the engine's own."""

    def submit(self, make: Callable[[Millis], Event]) -> None:
        """Take in the event that `make` builds for the time at which it is taken in."""
        ...

    def call(self, fn: Callable[[ArbiterT_co], T]) -> T:
        """What `fn` says of the arbiter, asked between two steps."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Views(Generic[ArbiterT]):
    """How to look at an arbiter; each is called between two steps, in the engine's thread."""

    apps: Callable[[ArbiterT, Millis, bool], tuple[AppView, ...]]  # (arbiter, now, with the ended ones)
    leases: Callable[[ArbiterT], tuple[tuple[Lease, bool], ...]]  # the bool: it is its GPU's `next` lease
    nodes: Callable[[ArbiterT], tuple[NodeView, ...]]
    status: Callable[[ArbiterT, Millis], StatusView]
    explain: Callable[[ArbiterT, AppId, Millis], tuple[str, ...] | None]  # None: unknown app
    rounds: Callable[[ArbiterT, int], tuple[Mapping[str, Any], ...]]  # newest first
    is_stored: Callable[[ArbiterT], bool]  # what was decided so far would survive a restart
    has_job: Callable[[ArbiterT, AppId, JobId], bool]  # alive, and of this app
