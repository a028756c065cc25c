"""What a scrape shows of the arbiter's state, taken between two engine steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from themis_arbiter.core.lease import LeaseState
from themis_arbiter.core.types import Epoch
from themis_arbiter.core.views import AppView, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Plain frozen values; `apps` are the live ones."""

    epoch: Epoch
    is_leader: bool
    is_bridge_connected: bool
    apps: tuple[AppView, ...]
    lease_counts: Mapping[LeaseState, int]
    max_rho: float
    gpus_leased: int
    gpus_free: int
    gpus_lost: int
    gpus_oversubscribed: int  # leased or used on nodes that do not have them (any more)
    node_counts: Mapping[NodeState, int]
    is_paused: bool
    is_observing: bool


class SnapshotUnavailableError(Exception):
    """The engine did not answer in time, or has stopped."""


TakeSnapshot: TypeAlias = Callable[[], Snapshot]
