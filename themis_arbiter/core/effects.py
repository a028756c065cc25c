"""Everything the arbiter can want done. The driver performs effects in order and journals them.

Effects that change what the ResourceManager's gate admits (`Sync`, `Grant`, `Withdraw`, `Drain`) are numbered by `seq`, which
rises for as long as this arbiter leads, whoever listens; they are only ever emitted in answer to `LeasesPersisted` (persist
before act).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from themis_arbiter.core.events import AdminVerb, Batch, EndCause, Timer
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.types import AppId, Epoch, JobId, LeaseId, Millis, NodeName, RoundNo
from themis_arbiter.core.value import value


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistLeases:
    """Commit `batch`; answer with LeasesPersisted or StoreFailed."""

    batch: Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLeases:
    """Tell the gate all leases it shall honour; those in DRAINING admit nothing new. Numbers go on from it."""

    epoch: Epoch
    start_id: str
    seq: int
    leases: tuple[Lease, ...]
    drains: tuple[tuple[LeaseId, Millis], ...]  # lease, deadline
    is_observing: bool = False  # the gate stays open: YARN places as if there were no leases


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantGpus:
    """Tell the gate of leases that it may let containers in for."""

    epoch: Epoch
    start_id: str
    seq: int
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDrain:
    """Have the holders give these leases' GPUs up now; what still runs at `deadline_ms` is killed."""

    epoch: Epoch
    start_id: str
    seq: int
    lease_ids: tuple[LeaseId, ...]
    deadline_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawLeases:
    """Tell the gate that these leases are over; their GPUs have been released."""

    epoch: Epoch
    start_id: str
    seq: int
    lease_ids: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TellJob:
    """Show a line on the job's page in YARN: why it waits. Replaces the line before it."""

    start_id: str
    job_id: JobId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAnswered:
    """What came of an admin's request; an audit record, whoever asked."""

    request_id: str
    actor: str
    verb: AdminVerb
    target: str
    value: float
    is_done: bool
    text: str


@value(frozen=True, slots=True, kw_only=True)
class ContainerLost:
    """For observers: a container ended. `was_due` where its lease was being drained."""

    job_id: JobId
    node: NodeName
    gpus: int
    cause: EndCause
    was_due: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StandDown:
    """Stop leading: somebody with a higher epoch leads, or has led before the store was lost."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `Woke(timer)` at `at_ms`; replaces what was set for this timer before."""

    timer: Timer
    at_ms: Millis


@value(frozen=True, slots=True, kw_only=True)
class LeaseMoved:
    """A lease changed its state: one of `LeasesMoved`, as the journal has it."""

    lease: Lease
    state_from: LeaseState | None  # None: it is new
    cause: Cause


@value(frozen=True, slots=True, kw_only=True)
class LeasesMoved:
    """For observers: the same has happened to these leases, one after the other, at least one."""

    leases: tuple[Lease, ...]
    state_from: LeaseState | None  # None: they are new
    cause: Cause

    @property
    def state(self) -> LeaseState:
        """The state that all of them are in now."""
        return self.leases[0].state

    def singly(self) -> list[LeaseMoved]:
        """Lease by lease."""
        return [LeaseMoved(lease=x, state_from=self.state_from, cause=self.cause) for x in self.leases]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed:
    """For observers and `themis rounds`: the decision record (docs/reference/decision-record.md), plain JSON values."""

    round_no: RoundNo
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppEnded:
    """For observers: an app is over."""

    app_id: AppId
    arrival_ms: Millis
    finish_ms: Millis
    t_independent_ms: float
    rho: float
    final_status: str


Effect: TypeAlias = (
    PersistLeases
    | SyncLeases
    | GrantGpus
    | RequestDrain
    | WithdrawLeases
    | StandDown
    | TellJob
    | AdminAnswered
    | ContainerLost
    | WakeAt
    | LeasesMoved
    | RoundClosed
    | AppEnded
)

# As the journal names them.
EFFECT_TYPES: tuple[type, ...] = (
    PersistLeases,
    SyncLeases,
    GrantGpus,
    RequestDrain,
    WithdrawLeases,
    StandDown,
    TellJob,
    AdminAnswered,
    ContainerLost,
    WakeAt,
    LeaseMoved,
    RoundClosed,
    AppEnded,
)
