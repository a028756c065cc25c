"""A lease store in memory: for simulations, and for a live arbiter that may forget (`memory:`)."""

from dataclasses import dataclass, field

from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import Epoch, JobId, LeaseId, RoundNo
from themis_arbiter.ports import StaleEpochError, StoredState, StoreError


@dataclass(slots=True)
class MemoryDisk:
    """What outlives a `MemoryStore`: several stores on one disk are arbiters that contend for the same leases."""

    epoch: Epoch = 0
    start_id: str = ""
    last_round: RoundNo = 0
    last_serial: int = 0
    admin: str = ""
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    meters: dict[JobId, Meter] = field(default_factory=dict)


class MemoryStore:
    """A `LeaseStore` on `disk`. One thread at a time."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self._disk = disk if disk is not None else MemoryDisk()
        self._is_closed = False

    def acquire_epoch(self) -> Epoch:
        """Raise the epoch by one and return it. Errors: StoreError once closed."""
        self._check_open()
        self._disk.epoch += 1
        return self._disk.epoch

    def epoch(self) -> Epoch:
        """The highest epoch taken. Errors: StoreError once closed."""
        self._check_open()
        return self._disk.epoch

    def load(self) -> StoredState:
        """Everything stored. Errors: StoreError once closed."""
        self._check_open()
        disk = self._disk
        return StoredState(
            epoch=disk.epoch,
            start_id=disk.start_id,
            leases=tuple(disk.leases[i] for i in sorted(disk.leases)),
            meters=tuple(sorted(disk.meters.items())),
            last_round=disk.last_round,
            last_serial=disk.last_serial,
            admin=disk.admin,
        )

    def commit(self, batch: Batch) -> None:
        """Write `batch`. Errors: StaleEpochError, StoreError; then nothing is changed."""
        self._check_open()
        disk = self._disk
        if batch.epoch != disk.epoch:
            raise StaleEpochError(f"the batch is of epoch {batch.epoch}, the store is at {disk.epoch}")
        for lease in batch.puts:
            disk.leases[lease.lease_id] = lease
        for lease_id in batch.deletes:
            disk.leases.pop(lease_id, None)
        for job_id, meter in batch.meters:
            if meter is None:
                disk.meters.pop(job_id, None)
            else:
                disk.meters[job_id] = meter
        disk.start_id, disk.last_round, disk.last_serial = batch.start_id, batch.last_round, batch.last_serial
        disk.admin = batch.admin

    def close(self) -> None:
        """Later calls raise StoreError."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("the store is closed")
