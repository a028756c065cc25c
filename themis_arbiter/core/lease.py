"""The lease of one GPU, and everything that moves its state.

    PENDING --PERSISTED--> WAITING   (its GPU is still under another lease: a `next` lease)
    PENDING --PERSISTED--> GRANTED   (the gate may let a container in)
    WAITING --GPU_FREED--> PENDING again (now as `current`; persisted as such, then GRANTED)
    PENDING --GPU_FREED--> PENDING   (likewise, where the store has not taken the promise yet)
    GRANTED --USE_SEEN--> ACTIVE --RENEWED--> ACTIVE with a later end
    GRANTED | ACTIVE --DRAIN_REQUESTED--> DRAINING --RELEASE_CONFIRMED--> ENDED
    any --LOST | CANCELLED--> ENDED  (the node is gone; nobody was ever told)

Nothing else writes `.state`. The law of a lease's end is contracts.md, "A lease's end".
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from themis_arbiter.core.types import (
    AppId,
    CoreError,
    Epoch,
    GpuId,
    GrantId,
    JobId,
    LeaseId,
    Millis,
    NodeName,
    RoundNo,
    node_of,
)
from themis_arbiter.core.value import changed, value


class LeaseState(StrEnum):
    """Where a lease is in its life."""

    PENDING = "pending"
    WAITING = "waiting"
    GRANTED = "granted"
    ACTIVE = "active"
    DRAINING = "draining"
    ENDED = "ended"


# The states by name, for code that looks at every lease in every step: reading a member off its class is a call of Python's
# metaclass, ten times as long as reading a name.
PENDING: Final = LeaseState.PENDING
WAITING: Final = LeaseState.WAITING
GRANTED: Final = LeaseState.GRANTED
ACTIVE: Final = LeaseState.ACTIVE
DRAINING: Final = LeaseState.DRAINING
ENDED: Final = LeaseState.ENDED


class LeaseInput(StrEnum):
    """What may happen to a lease."""

    PERSISTED = "persisted"
    PERSISTED_AS_NEXT = "persisted_as_next"
    GPU_FREED = "gpu_freed"
    USE_SEEN = "use_seen"
    RENEWED = "renewed"
    DRAIN_REQUESTED = "drain_requested"
    RELEASE_CONFIRMED = "release_confirmed"
    LOST = "lost"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """Why a lease moved; labels of `themis_lease_transitions_total`, so an enum and nothing from users."""

    AUCTION = "auction"
    LEFTOVER = "leftover"
    RENEWAL = "renewal"
    LEASE_END = "lease_end"
    RECALL = "recall"  # ended early, with notice, for an urgent job that waited
    UNWANTED = "unwanted"  # its job asks for fewer GPUs than it holds
    APP_ENDED = "app_ended"
    GANG_BROKEN = "gang_broken"  # its gang did not become whole in time
    NODE_LOST = "node_lost"
    NODE_DRAINED = "node_drained"  # an admin or YARN takes the node out of service: its leases are not renewed
    NO_SHOW = "no_show"  # granted, and never used though asked for
    REVOKED = "revoked"  # by an admin
    PROTECTED = "protected"  # renewed without an auction: on_lease_end=never, or inside the protected minimum runtime
    ADOPTED = "adopted"  # ran already when the arbiter came to know of it
    OBSERVING = "observing"  # the arbiter was told to look on only
    RECOVERY = "recovery"
    STARTED = "started"
    RELEASED = "released"


_S, _I = LeaseState, LeaseInput
TRANSITIONS: Final[dict[tuple[LeaseState, LeaseInput], LeaseState]] = {
    (_S.PENDING, _I.PERSISTED): _S.GRANTED,
    (_S.PENDING, _I.PERSISTED_AS_NEXT): _S.WAITING,
    (_S.WAITING, _I.GPU_FREED): _S.PENDING,
    (_S.PENDING, _I.GPU_FREED): _S.PENDING,
    (_S.GRANTED, _I.USE_SEEN): _S.ACTIVE,
    (_S.GRANTED, _I.RENEWED): _S.GRANTED,
    (_S.ACTIVE, _I.RENEWED): _S.ACTIVE,
    (_S.GRANTED, _I.DRAIN_REQUESTED): _S.DRAINING,
    (_S.ACTIVE, _I.DRAIN_REQUESTED): _S.DRAINING,
    (_S.DRAINING, _I.RELEASE_CONFIRMED): _S.ENDED,
    (_S.PENDING, _I.CANCELLED): _S.ENDED,
    (_S.WAITING, _I.CANCELLED): _S.ENDED,
    **{(s, _I.LOST): _S.ENDED for s in LeaseState if s is not _S.ENDED},
}


@value(frozen=True, slots=True, kw_only=True)
class Lease:
    """Time-limited ownership of one GPU by one job. `end_ms` lies on the common grid."""

    lease_id: LeaseId
    grant_id: GrantId
    gpu: GpuId
    app_id: AppId
    job_id: JobId
    epoch: Epoch
    round_no: RoundNo
    start_ms: Millis
    end_ms: Millis
    state: LeaseState = LeaseState.PENDING
    cause: Cause = Cause.AUCTION

    def __post_init__(self) -> None:
        if self.end_ms <= self.start_ms:
            raise CoreError(f"{self.lease_id}: ends at {self.end_ms}, not after its start {self.start_ms}")

    @property
    def node_of_gpu(self) -> NodeName:
        """The node that its GPU is on."""
        return node_of(self.gpu)


@value(frozen=True, slots=True)
class Step:
    """One line of a lease's story."""

    at_ms: Millis
    state_from: LeaseState
    happened: LeaseInput
    state_to: LeaseState
    cause: Cause


class IllegalTransition(CoreError):
    """Something happened to a lease that cannot happen in its state; carries the lease's story."""

    def __init__(self, lease: Lease, happened: LeaseInput, at_ms: Millis, story: tuple[Step, ...]) -> None:
        lines = [f"  {s.at_ms}: {s.state_from} --{s.happened}--> {s.state_to} ({s.cause})" for s in story]
        super().__init__(
            f"{lease.lease_id} of {lease.job_id} on {lease.gpu}: {happened} at {at_ms} is not possible in state "
            f"{lease.state}; its story:\n" + "\n".join(lines or ["  (nothing yet)"])
        )
        self.lease, self.happened, self.story = lease, happened, story


def ids_of(leases: Iterable[Lease]) -> list[LeaseId]:
    """Their ids, in their order."""
    return [x.lease_id for x in leases]


def state_after(lease: Lease, happened: LeaseInput, at_ms: Millis, story: tuple[Step, ...] = ()) -> LeaseState:
    """Where `happened` takes the lease. Errors: IllegalTransition."""
    state = TRANSITIONS.get((lease.state, happened))
    if state is None:
        raise IllegalTransition(lease, happened, at_ms, story)
    return state


# A lease in another state: for the ledger, which asks `state_after`, and for the store, to which it will have happened.
with_state: Final[Callable[[Lease, LeaseState], Lease]] = changed(Lease, "state")
with_cause: Final[Callable[[Lease, LeaseState, Cause], Lease]] = changed(Lease, "state", "cause")
_with_time = changed(Lease, "start_ms", "end_ms", "state")


def with_times(leases: Iterable[Lease], state: LeaseState, start_ms: Millis | None, end_ms: Millis) -> list[Lease]:
    """The same with another end, and another start unless that is None. Errors: CoreError where one would not last."""
    found = [_with_time(x, x.start_ms if start_ms is None else start_ms, end_ms, state) for x in leases]
    for lease in found:
        if end_ms <= lease.start_ms:
            raise CoreError(f"{lease.lease_id}: would end at {end_ms}, not after its start {lease.start_ms}")
    return found
