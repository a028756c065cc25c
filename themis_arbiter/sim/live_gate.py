"""The gate of the simulated ResourceManager: which lease updates it takes, and what they admit.

The law is docs/reference/plugin-protocol.md, "The gate" and "Fencing", with the fall-back `closed` from the start: without
a full update nothing new is admitted. A new start (`restart`) forgets everything, the highest epoch too, as the plugin does
whose memory goes with its ResourceManager.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.types import Epoch, JobId, LeaseId, Millis, NodeName

LeaseUpdate: TypeAlias = SyncLeases | GrantGpus | RequestDrain | WithdrawLeases
Place: TypeAlias = tuple[JobId, NodeName]


class Refusal(StrEnum):
    """Why an update was not taken."""

    WRONG_START = "WRONG_START"
    OLD_EPOCH = "OLD_EPOCH"
    GAP = "GAP"


@dataclass(slots=True)
class _GateLease:
    place: Place
    is_draining: bool


class Gate:
    """Leases by place (job and node), and the numbering of the updates that brought them."""

    def __init__(self, start_id: str) -> None:
        self._leases: dict[LeaseId, _GateLease] = {}
        self._allowed: dict[Place, int] = {}  # GPUs of leases that do not drain; no zeros
        self.start_id = start_id
        self.epoch: Epoch = 0  # of the last update that was taken
        self.seq = 0  # its number

    def restart(self, start_id: str) -> None:
        """A new scheduler object: nothing is known, so nothing new is admitted."""
        self._leases.clear()
        self._allowed.clear()
        self.start_id, self.epoch, self.seq = start_id, 0, 0

    def refusal(self, update: LeaseUpdate) -> Refusal | None:
        """Why `update` cannot be taken; None: take it."""
        if update.start_id != self.start_id:
            return Refusal.WRONG_START
        if update.epoch < self.epoch:
            return Refusal.OLD_EPOCH
        is_next = update.epoch == self.epoch and update.seq == self.seq + 1
        return None if is_next or isinstance(update, SyncLeases) else Refusal.GAP

    def take(self, update: LeaseUpdate) -> tuple[tuple[LeaseId, Millis], ...]:
        """Apply an update that is not refused. Returns the drains that it orders, by deadline: `begin_drain` each."""
        self.epoch, self.seq = update.epoch, update.seq
        match update:
            case SyncLeases():
                self._leases.clear()
                self._allowed.clear()
                ordered = {lease_id for lease_id, _ in update.drains}
                for lease in update.leases:
                    self._put(lease, is_draining=lease.state is LeaseState.DRAINING and lease.lease_id not in ordered)
                return tuple(sorted(update.drains, key=lambda d: (d[1], d[0])))
            case GrantGpus():
                for lease in update.leases:
                    known = self._leases.get(lease.lease_id)
                    self._put(lease, is_draining=known is not None and known.is_draining)
            case RequestDrain():
                return tuple((lease_id, update.deadline_ms) for lease_id in update.lease_ids)
            case WithdrawLeases():
                for lease_id in update.lease_ids:
                    self._remove(lease_id)
            case _:
                assert_never(update)
        return ()

    def begin_drain(self, lease_id: LeaseId) -> Place | None:
        """The lease admits nothing from now on. Returns its place; None where the lease is not known or drains already."""
        lease = self._leases.get(lease_id)
        if lease is None or lease.is_draining:
            return None
        lease.is_draining = True
        self._count(lease.place, -1)
        return lease.place

    def allowed(self, place: Place) -> int:
        """GPUs that the job's containers may hold on the node; who holds more is not touched but by a drain."""
        return self._allowed.get(place, 0)

    def leased(self, place: Place) -> int:
        """GPUs of all leases there, draining ones too."""
        return sum(lease.place == place for lease in self._leases.values())

    def open_places(self) -> tuple[Place, ...]:
        """Where anything is allowed, in order of the updates that allowed it."""
        return tuple(self._allowed)

    def _put(self, lease: Lease, *, is_draining: bool) -> None:
        self._remove(lease.lease_id)
        place = (lease.job_id, lease.node_of_gpu)
        self._leases[lease.lease_id] = _GateLease(place, is_draining)
        if not is_draining:
            self._count(place, 1)

    def _remove(self, lease_id: LeaseId) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None and not lease.is_draining:
            self._count(lease.place, -1)

    def _count(self, place: Place, change: int) -> None:
        count = self._allowed.get(place, 0) + change
        assert count >= 0, f"{place}: more leases left than came"
        if count:
            self._allowed[place] = count
        else:
            del self._allowed[place]
