"""What every lease store must do. A new store joins by an entry in STORES; nothing below may ask which one it is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.simulation.faults.schedule import Schedule
from tests.simulation.faults.zookeeper import SimZooKeeper
from tests.simulation.faults.zookeeper_client import SimClient, Wire
from tests.support.zookeeper_server import ZooKeeper
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.adapters.zookeeper import session as zookeeper_session
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.core.events import Batch, JobReport, Meter
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.ports import LeaseStore, StaleEpochError, StoredState, StoreError

pytest_plugins = ["tests.support.zookeeper"]

LEASES_MANY: Final = 5_000


class Place(Protocol):
    """Where leases are kept; every `open` is another arbiter's store on the same leases."""

    def open(self) -> LeaseStore: ...


class MemoryPlace:
    def __init__(self, _folder: Path) -> None:
        self._disk = MemoryDisk()

    def open(self) -> LeaseStore:
        return MemoryStore(self._disk)


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "leases.db"

    def open(self) -> LeaseStore:
        return SqliteStore(self._path)


class ZooKeeperPlace:
    def __init__(self, hosts: str, chroot: str) -> None:
        self._place = zookeeper_session.Place(hosts=hosts, chroot=chroot, session_s=2.0)
        self._opened: list[ZooKeeperStore] = []

    def open(self) -> LeaseStore:
        self._opened.append(ZooKeeperStore(self._place))
        return self._opened[-1]

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


class SimulatedZooKeeperPlace:
    def __init__(self, _folder: Path) -> None:
        self._schedule = Schedule()
        self._servers = SimZooKeeper(lambda: self._schedule.now_ms)
        self._place = zookeeper_session.Place(hosts="simulated", chroot="/contract/stores")

    def open(self) -> LeaseStore:
        wire = Wire(delay_ms=lambda: 1, wait=self._wait)
        client = partial(SimClient, self._servers, self._schedule, wire, granted_ms=2_000)
        return ZooKeeperStore(self._place, connect=partial(zookeeper_session.Session, client=client))

    def _wait(self, is_done: Callable[[], bool], for_ms: int) -> bool:
        return self._schedule.wait(is_done, self._schedule.now_ms + for_ms)


STORES: Final[dict[str, Callable[[Path], Place]]] = {
    "memory": MemoryPlace,
    "simulated-zookeeper": SimulatedZooKeeperPlace,
    "sqlite": SqlitePlace,
}


@pytest.fixture(params=[*sorted(STORES), pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param != "zookeeper":
        yield STORES[request.param](tmp_path)
        return
    zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
    made = ZooKeeperPlace(zookeeper.hosts, f"/contract/stores/{tmp_path.name}")
    yield made
    made.close()


@pytest.fixture
def store(place: Place) -> Iterator[LeaseStore]:
    opened = place.open()
    yield opened
    opened.close()


def lease(name: str, *, state: LeaseState = LeaseState.GRANTED, job: str = "j1", epoch: int = 1) -> Lease:
    return Lease(
        lease_id=name,
        grant_id="g1",
        gpu=f"{name}-node:0",
        app_id="a1",
        job_id=job,
        epoch=epoch,
        round_no=3,
        start_ms=1_700_000_000_123,
        end_ms=1_700_000_300_123,
        state=state,
        cause=Cause.LEFTOVER,
    )


def meter(attained: float) -> Meter:
    ended = JobReport(app_id="a", job_id="j", arrival_ms=3, is_finished=True, loss_curve=None, work=4.5)
    return Meter(attained=attained, done=attained / 3, metered_ms=7, app_id="a", arrival_ms=3, gpus=2, rate=1.5, ended=ended)


def batch(epoch: int, **changes: object) -> Batch:
    made = Batch(batch_no=1, epoch=epoch, start_id="s1", last_round=4, last_serial=9, admin="")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_new_store_is_empty(store: LeaseStore) -> None:
    assert store.load() == StoredState(epoch=0, start_id="", leases=(), meters=(), last_round=0, last_serial=0, admin="")


def test_epochs_rise_by_one_and_outlive_the_opener(place: Place) -> None:
    taken = []
    for _ in range(3):
        opened = place.open()
        taken += [opened.acquire_epoch(), opened.acquire_epoch()]
        assert opened.load().epoch == taken[-1]
        opened.close()
    assert taken == [1, 2, 3, 4, 5, 6]


def test_the_highest_epoch_can_be_asked_for_without_taking_one(place: Place) -> None:
    first = place.open()
    assert first.epoch() == 0
    first.acquire_epoch()
    second = place.open()
    second.acquire_epoch()
    assert first.epoch() == second.epoch() == 2


def test_what_was_committed_is_there_for_the_next_opener(place: Place) -> None:
    first = place.open()
    epoch = first.acquire_epoch()
    puts = (lease("l2", state=LeaseState.DRAINING), lease("l10"), lease("é1"), lease("l1"))
    first.commit(
        batch(epoch, puts=puts, meters=(("j2", meter(0.1 + 0.2)), ("j1", meter(12_345_678_901.5))), admin='{"is_paused":true}')
    )
    first.close()
    assert place.open().load() == StoredState(
        epoch=epoch,
        start_id="s1",
        leases=(puts[3], puts[1], puts[0], puts[2]),
        meters=(("j1", meter(12_345_678_901.5)), ("j2", meter(0.1 + 0.2))),
        last_round=4,
        last_serial=9,
        admin='{"is_paused":true}',
    )


def test_later_batches_replace_and_delete(store: LeaseStore) -> None:
    epoch = store.acquire_epoch()
    store.commit(batch(epoch, puts=(lease("l1"), lease("l2"), lease("l3")), meters=(("j1", meter(1.0)), ("j2", meter(2.0)))))
    changed = lease("l1", state=LeaseState.ACTIVE)
    later = batch(epoch, puts=(changed,), deletes=("l3",), meters=(("j1", None), ("j2", meter(5.0))))
    store.commit(replace(later, batch_no=2, start_id="s2", last_round=7, last_serial=11, admin=""))
    assert store.load() == StoredState(
        epoch=epoch,
        start_id="s2",
        leases=(changed, lease("l2")),
        meters=(("j2", meter(5.0)),),
        last_round=7,
        last_serial=11,
        admin="",
    )


def test_a_batch_may_come_twice(store: LeaseStore) -> None:
    # An arbiter that did not hear whether a commit went through sends it again.
    epoch = store.acquire_epoch()
    store.commit(batch(epoch, puts=(lease("l1"),)))
    again = batch(epoch, puts=(lease("l2"),), deletes=("l1", "never-there"), meters=(("j1", meter(1.0)), ("j9", None)))
    store.commit(again)
    once = store.load()
    store.commit(again)
    assert store.load() == once


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_a_batch_of_another_epoch_changes_nothing(store: LeaseStore, epoch: int) -> None:
    store.acquire_epoch()
    store.acquire_epoch()
    store.commit(batch(2, puts=(lease("l1"),), meters=(("j1", meter(1.0)),)))
    before = store.load()
    with pytest.raises(StaleEpochError, match=f"epoch {epoch}.* 2"):
        store.commit(batch(epoch, puts=(lease("l2"),), deletes=("l1",), meters=(("j1", None),), last_round=99))
    assert store.load() == before


def test_who_takes_a_higher_epoch_fences_the_one_before(place: Place) -> None:
    old, new = place.open(), place.open()
    old_epoch = old.acquire_epoch()
    old.commit(batch(old_epoch, puts=(lease("l1"),)))
    new_epoch = new.acquire_epoch()
    assert new.load().leases == (lease("l1"),)
    with pytest.raises(StaleEpochError):
        old.commit(batch(old_epoch, deletes=("l1",)))
    new.commit(batch(new_epoch, puts=(lease("l2"),)))
    assert [x.lease_id for x in old.load().leases] == ["l1", "l2"]


def test_many_leases_in_one_batch_come_back(place: Place) -> None:
    opened = place.open()
    epoch = opened.acquire_epoch()
    puts = tuple(lease(f"l{k:05d}", job=f"j{k % 700}") for k in range(LEASES_MANY))
    opened.commit(batch(epoch, puts=puts, meters=tuple((f"j{k:03d}", meter(k / 3)) for k in range(700))))
    opened.close()
    state = place.open().load()
    assert state.leases == puts
    assert state.meters[699] == ("j699", meter(233.0))


def test_a_closed_store_says_so(store: LeaseStore) -> None:
    epoch = store.acquire_epoch()
    store.close()
    for use in (store.acquire_epoch, store.load, lambda: store.commit(batch(epoch))):
        with pytest.raises(StoreError):
            use()
    store.close()
