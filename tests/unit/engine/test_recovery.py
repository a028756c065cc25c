"""Taking over: the epoch is taken before anything is read, and a rival in between is noticed."""

from dataclasses import replace

import pytest

from themis_arbiter.adapters.clock import ManualClock
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.core.events import Batch, EpochAcquired, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.ports import StaleEpochError, StoredState

METER = Meter(attained=4.5, done=4.0, metered_ms=3)
LEASE = Lease(lease_id="l", grant_id="g", gpu="n:0", app_id="a", job_id="j", epoch=1, round_no=2, start_ms=0, end_ms=5)


def test_a_new_term_inherits_everything() -> None:
    disk = MemoryDisk()
    before = MemoryStore(disk)
    before.commit(
        Batch(
            batch_no=1,
            epoch=before.acquire_epoch(),
            start_id="s",
            last_round=2,
            last_serial=8,
            puts=(LEASE,),
            meters=(("j", METER),),
        )
    )
    assert take_over(MemoryStore(disk), ManualClock(77)) == EpochAcquired(
        at_ms=77, epoch=2, leases=(LEASE,), meters=(("j", METER),), last_round=2, last_serial=8, start_id="s"
    )


def test_a_rival_between_the_epoch_and_the_reading_is_noticed() -> None:
    class Raced(MemoryStore):
        def load(self) -> StoredState:
            return replace(super().load(), epoch=2)

    with pytest.raises(StaleEpochError, match="took epoch 1, but the store is at 2"):
        take_over(Raced(), ManualClock())
