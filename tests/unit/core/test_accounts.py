"""What jobs had used is kept over a kill of the arbiter: the store has it soon, and the gap is metered."""

import math
from dataclasses import replace

import pytest

from tests.support.bench import NODES, Bench, container, job, of_type
from tests.support.world import SHORT
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.core.effects import Effect, PersistLeases
from themis_arbiter.core.events import EpochAcquired, Event, JobReport, ProgressReported, RmAttached, RmReported, Timer
from themis_arbiter.core.explain import explain
from themis_arbiter.core.state import METERS_STORED_MS
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.core.views import AppState
from themis_arbiter.core.views_of import apps, listed, stored_app

CONTAINERS = tuple(container(k, "a", "n0" if k < 4 else "n1") for k in range(8))
SETTINGS = replace(SHORT, is_first_start_free=True)
RUNS = replace(job("a", 0), on_lease_end=OnLeaseEnd.RESTART)


class Kept(Bench):
    """A bench whose batches go to a store, and whose arbiter can be killed."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self.disk = MemoryDisk()
        MemoryStore(self.disk).acquire_epoch()

    def at(self, now: int, event: Event) -> list[Effect]:
        """One event; its batches are kept."""
        effects = super().at(now, event)
        for effect in effects:
            if isinstance(effect, PersistLeases):
                MemoryStore(self.disk).commit(effect.batch)
        return effects

    def restarted(self, now: int, *, start_id: str = "s1") -> "Kept":
        """Another arbiter on the store; the first one is gone."""
        other = Kept()
        other.disk = self.disk
        store = MemoryStore(self.disk)
        epoch, found = store.acquire_epoch(), store.load()
        acquired = EpochAcquired(
            at_ms=now,
            epoch=epoch,
            leases=found.leases,
            meters=found.meters,
            last_serial=found.last_serial,
            start_id=found.start_id,
        )
        other.at(now, acquired)
        other.at(now, RmAttached(at_ms=now, start_id=start_id))
        return other

    def full(self, now: int, jobs: tuple[JobReport, ...], count: int, *, start_id: str = "s1") -> None:
        """The ResourceManager names everything: these jobs, and the first so many containers."""
        found = CONTAINERS[:count]
        self.at(now, RmReported(at_ms=now, start_id=start_id, is_full=True, nodes=NODES, jobs=jobs, containers=found))

    def attained(self, now: int, job_id: str = "a") -> float:
        """As metered up to `now`."""
        return self.arbiter.state.jobs[job_id].at(now).attained


def started() -> Kept:
    """`a` runs on all eight GPUs from 1 s on; no batch has been written since then."""
    bench = Kept()
    bench.up(replace(RUNS, gpus_asked=8))
    bench.wake(500, Timer.ROUND)
    bench.report(1_000, RUNS, containers=CONTAINERS)
    return bench


def test_what_changed_is_in_the_store_after_some_seconds() -> None:
    bench = started()
    (write,) = of_type(bench.wake(1_000 + METERS_STORED_MS, Timer.METERS), PersistLeases)
    assert isinstance(write, PersistLeases)
    ((job_id, meter),) = write.batch.meters
    assert meter is not None
    assert (job_id, meter.gpus, meter.attained) == ("a", 8, 8.0 * METERS_STORED_MS)
    assert bench.wake(60_000, Timer.METERS) == [], "it runs on as it did, so there is nothing to store"


def test_a_store_that_does_not_answer_is_not_sent_more_and_more() -> None:
    bench = started()
    bench.is_store_held = True
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    for k in range(2, 9):
        bench.report(k * METERS_STORED_MS, containers=(container(1, "a", "n0", ended=k % 2 == 0),))
        bench.wake((k + 1) * METERS_STORED_MS, Timer.METERS)
    assert len(bench.arbiter.state.pending) == 1


@pytest.mark.parametrize("is_rm_new", [False, True])
def test_what_ran_throughout_is_metered_throughout_and_starts_nothing(is_rm_new: bool) -> None:
    bench = started()
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    start_id = "s2" if is_rm_new else "s1"
    after = bench.restarted(90_000, start_id=start_id)
    after.full(91_000, (RUNS,), 8, start_id=start_id)
    assert after.attained(100_000) == bench.attained(100_000) == 8.0 * 99_000
    state = after.arbiter.state
    assert (state.jobs["a"].running_since_ms, state.jobs["a"].begun_at) == (1_000, 0.0)


def test_containers_that_a_new_resource_manager_names_later_are_no_starts() -> None:
    bench = started()
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    after = bench.restarted(90_000, start_id="s2")
    after.full(91_000, (RUNS,), 4, start_id="s2")
    at_first = after.attained(92_000)
    after.at(92_000, RmReported(at_ms=92_000, start_id="s2", containers=CONTAINERS[4:]))
    assert after.attained(92_000) == at_first
    # Those that were not there at first count up to the latest account and from when they were named.
    assert after.attained(93_000) == 4.0 * 92_000 + 4.0 * (METERS_STORED_MS + 1_000)
    after.report(200_000)
    after.at(200_000, RmReported(at_ms=200_000, start_id="s2", containers=(replace(CONTAINERS[0], container_id="new"),)))
    assert after.attained(200_000) == 4.0 * 199_000 + 4.0 * (METERS_STORED_MS + 108_000) - SETTINGS.restart_cost_ms


def test_containers_that_went_meanwhile_count_up_to_the_latest_account() -> None:
    bench = started()
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    after = bench.restarted(90_000)
    after.full(91_000, (RUNS,), 2)
    assert after.attained(91_000) == 2.0 * 90_000 + 6.0 * METERS_STORED_MS


def test_what_an_agent_said_is_left_is_kept() -> None:
    bench = started()
    bench.at(2_000, ProgressReported(at_ms=2_000, app_id="a", job_id="a", remaining=5e6))
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    after = bench.restarted(90_000)
    after.full(91_000, (RUNS,), 8)
    assert after.arbiter.state.jobs["a"].declared_later == 5e6 + 8.0 * 1_000


def tuning(name: str, at: int, *, asked: int = 0) -> JobReport:
    return replace(job(name, asked, at=at), app_id="app", max_gpus=4)


def two_jobs() -> Kept:
    """An app whose first job ran on four GPUs for 9 s and is over, and whose second one waits."""
    bench = Kept()
    bench.up(tuning("j1", 0, asked=4))
    bench.wake(500, Timer.ROUND)
    ran = tuple(container(k, "j1", "n0") for k in range(4))
    bench.report(1_000, tuning("j1", 0), containers=ran)
    bench.report(5_000, tuning("j2", 5_000, asked=4))
    return bench


def test_an_app_keeps_its_arrival_and_its_jobs_that_are_over() -> None:
    bench = two_jobs()
    over = replace(tuning("j1", 0), is_finished=True, finish_ms=10_000, final_status="SUCCEEDED")
    bench.report(10_000, over, containers=tuple(container(k, "j1", "n0", ended=True) for k in range(4)))
    bench.wake(20_000, Timer.METERS)
    before = bench.arbiter.state
    after = bench.restarted(90_000)
    after.full(91_000, (tuning("j2", 5_000, asked=4),), 0)
    state = after.arbiter.state
    assert state.apps["app"].arrival_ms == 0
    assert state.apps["app"].ended_service == before.apps["app"].ended_service == 4.0 * 9_000
    assert state.apps["app"].told_work == before.apps["app"].told_work
    assert state.jobs["j1"] == before.jobs["j1"]
    after.report(95_000, replace(tuning("j2", 5_000), is_finished=True, finish_ms=95_000, final_status="SUCCEEDED"))
    after.wake(101_000, Timer.METERS)
    assert after.disk.meters == {}, "an app that is over is over in the store too"


def test_a_job_that_ended_while_nobody_looked_stays_in_its_apps_account() -> None:
    bench = two_jobs()
    bench.wake(10_000, Timer.METERS)
    after = bench.restarted(90_000)
    after.full(91_000, (tuning("j2", 5_000, asked=4),), 0)
    assert after.arbiter.state.apps["app"].ended_service == 4.0 * 9_000
    assert after.arbiter.state.jobs["j1"].report.final_status == "UNKNOWN"
    assert after.arbiter.state.apps["app"].arrival_ms == 0


def test_what_only_the_store_knows_is_listed_until_the_resource_manager_has_named_all() -> None:
    bench = two_jobs()
    bench.wake(10_000, Timer.METERS)
    after = bench.restarted(90_000)
    (app,) = listed(after.arbiter, 90_500)
    assert (app.app_id, app.state, app.attained_gpu_ms) == ("app", AppState.RUNNING, 4.0 * 9_000)
    assert [job.job_id for job in app.jobs] == ["j1"]
    assert math.isnan(app.rho)
    assert apps(after.arbiter, 90_500) == ()
    for name in ("app", "j1"):
        assert "has not named it" in (explain(after.arbiter, name, 90_500) or ("",))[0]
    assert explain(after.arbiter, "nobody", 90_500) is None
    after.full(91_000, (tuning("j2", 5_000, asked=4),), 0)
    (app,) = listed(after.arbiter, 91_500)
    assert app == apps(after.arbiter, 91_500)[0]
    assert math.isfinite(app.rho)
    # One whose jobs are all over and whose app lived when it was stored:
    over = replace(bench.disk.meters["j1"], ended=tuning("j1", 0))
    assert stored_app("app", (), (("j1", over),)).state is AppState.ENDED


def test_an_app_that_ended_while_nobody_looked_leaves_the_store() -> None:
    bench = started()
    bench.wake(1_000 + METERS_STORED_MS, Timer.METERS)
    after = bench.restarted(90_000)
    after.full(91_000, (), 0)
    after.wake(91_000 + METERS_STORED_MS, Timer.METERS)
    assert after.disk.meters == {}
