from typing import Any

import pytest

from tests.support.replays import SLOW, cluster, job, simulated
from themis_arbiter.core.effects import GrantGpus, RequestDrain
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Locality, OnLeaseEnd
from themis_arbiter.sim.sim_jobs import Declaration, Physics, SimulatedJob, ceil_ms, engine_ids
from themis_arbiter.sim.simulate import Inputs, Misreport, prepare
from themis_arbiter.sim.trace import Trace, TraceError, TraceJob
from themis_arbiter.sim.world import TraceCluster

COST: dict[str, Any] = {"restart_cost_ms": 40_000}


def test_a_job_alone_runs_from_its_arrival_for_its_duration_to_the_microsecond() -> None:
    done, _ = simulated([job("a", "j", 1.5, 4, 1000.000123)], cluster(1, 8), **COST)
    (one,) = done.jobs
    assert one.finish_ms == pytest.approx(1_001_500.123, abs=1e-6)
    assert (one.restarts, one.first_start_ms, {len(r.gpus) for r in one.runs}) == (0, 1500, {4})
    assert [r.end_ms for r in one.runs[:-1]] == [300_000, 600_000, 900_000], "one run a lease"


def test_a_job_of_microseconds_is_done_in_microseconds() -> None:
    done, _ = simulated([job("a", "j", 0, 1, 0.00001)], cluster(1, 1), **COST)
    assert done.jobs[0].finish_ms == pytest.approx(0.01)


def test_distance_slows_a_job_against_the_best_place_that_so_many_gpus_can_have() -> None:
    far = simulated([job("a", "j", 0, 4, 1000, model="vgg")], cluster(2, 2, racks=1), **COST)[0].jobs[0]
    assert far.finish_ms == 1_000_000, "four GPUs cannot be closer here, so that is where it was measured"
    physics = Physics(cluster(2, 2, racks=2), SLOW, 40_000)
    spec = job("a", "j", 0, 2, 100, model="vgg")
    one = SimulatedJob(
        spec=spec, index=0, job_id="j", arrival_ms=0, work=200_000.0, told=Declaration(work=1, model="", max_gpus=2)
    )
    for gpus, speed in ((("r0m0:0", "r0m0:1"), 2), (("r0m0:0", "r0m1:1"), 2 / 1.5), (("r0m0:0", "r1m0:0"), 2 / 2)):
        one.kept = dict.fromkeys(gpus, "L")
        one.settle(0, physics)
        assert one.speed == pytest.approx(speed)


def test_a_drained_job_runs_to_the_grid_end_and_its_successor_starts_then() -> None:
    jobs = [job("a", "long", 0, 8, 10_000), job("b", "short", 10, 8, 600)]
    done, _ = simulated(jobs, cluster(1, 8), **COST)
    long, short = done.jobs
    assert short.first_start_ms % 300_000 == 0
    assert any(r.end_ms == short.first_start_ms for r in long.runs)
    assert long.restarts == 1
    assert long.finish_ms == 10_000_000 + 600_000 + 40_000


def test_an_elastic_job_grows_into_what_is_free_and_pays_for_it() -> None:
    first = job("b", "x", 0, 6, 100, on_lease_end=OnLeaseEnd.NEVER)
    done, _ = simulated([first, job("a", "e", 1, 2, 1000, max_gpus=8)], cluster(1, 8), **COST)
    elastic = next(j for j in done.jobs if j.job_id == "e")
    assert [len(r.gpus) for r in elastic.runs][:2] == [2, 8]
    assert elastic.restarts == 1
    # 99 s on two GPUs, then the restart, then the rest on eight.
    assert elastic.finish_ms == 100_000 + 40_000 + (2000 - 2 * 99) / 8 * 1000


def test_never_is_not_interrupted_and_does_not_grow_once_it_runs() -> None:
    jobs = [
        job("a", "n", 0, 4, 5000, max_gpus=8, on_lease_end=OnLeaseEnd.NEVER),
        *(job("b", f"x{k}", 5, 4, 900) for k in range(6)),
    ]
    done, _ = simulated(jobs, cluster(1, 8), **COST)
    never = next(j for j in done.jobs if j.job_id == "n")
    assert (never.restarts, len({r.gpus for r in never.runs})) == (0, 1)


def test_restart_loses_what_it_did_when_it_is_paused() -> None:
    jobs = [job("a", "r", 0, 8, 2000, on_lease_end=OnLeaseEnd.RESTART), job("b", "x", 10, 8, 300)]
    done, _ = simulated(jobs, cluster(1, 8), policy="paper", lease_ms=600_000, **COST)
    again = next(j for j in done.jobs if j.job_id == "r")
    assert again.finish_ms is not None
    held = sum(r.end_ms - r.start_ms for r in again.runs)
    assert held >= 2_000_000 + (40_000 if again.restarts else 0)


def test_gpus_of_who_finishes_go_on_at_the_same_instant() -> None:
    jobs = [job("a", "one", 0, 8, 100.5), job("b", "two", 1, 8, 100)]
    done, _ = simulated(jobs, cluster(1, 8), **COST)
    assert done.jobs[1].first_start_ms == 100_500


def test_what_cannot_fit_is_rejected_and_nothing_else() -> None:
    done, _ = simulated([job("a", "big", 0, 9, 10), job("a", "all", 0, 8, 10)], cluster(1, 8), **COST)
    assert [j.key for j in done.rejected] == [("a", "big")]
    assert [j.job_id for j in done.jobs] == ["all"]
    with pytest.raises(TraceError, match="no job of the trace fits"):
        simulated([job("a", "big", 0, 9, 10)], cluster(1, 8))


def test_two_gangs_that_each_need_all_take_turns() -> None:
    done, _ = simulated([job(app, "j", 0, 8, 1000) for app in "abc"], cluster(2, 4), **COST)
    assert all(j.finish_ms is not None for j in done.jobs)


def test_two_jobs_of_one_name_in_different_apps_are_different_jobs() -> None:
    jobs = (job("a/b", "c", 0, 1, 1), job("a", "b/c", 0, 1, 1), job("a", "c", 0, 1, 1))
    assert len(set(engine_ids(jobs).values())) == 3
    done, _ = simulated([job("a", "j", 0, 1, 10), job("b", "j", 0, 1, 20)], cluster(1, 2))
    assert sorted(j.finish_ms or 0 for j in done.jobs) == [10_000, 20_000]


@pytest.mark.parametrize(("seconds", "ms"), [(0.0, 0), (1.001, 1001), (1.0001, 1001), (0.29, 290)])
def test_milliseconds_are_rounded_up_but_not_by_a_hair(seconds: float, ms: int) -> None:
    assert ceil_ms(seconds) == ms


def declared(jobs: list[TraceJob], **more: Any) -> list[tuple[float, str, int]]:
    inputs = Inputs(trace=Trace(tuple(jobs)), topology=cluster(1, 8), slowdowns=SLOW, settings=Settings(**COST), **more)
    made, _, _ = prepare(inputs, jobs)
    return [(j.told.work, j.told.model, j.told.max_gpus) for j in made]


def test_what_is_declared_may_be_off_by_a_factor_for_each_app_and_the_truth_stays() -> None:
    jobs = [job(app, name, 0, 2, 100) for app in "ab" for name in "12"]
    exact = declared(jobs)
    assert {work for work, _, _ in exact} == {200_000.0}
    off = [work / 200_000.0 for work, _, _ in declared(jobs, estimate_error=1.0, seed=3)]
    assert off[0] == off[1] != off[2] == off[3]
    assert all(0.5 <= factor <= 2.0 for factor in off)
    assert declared(jobs, estimate_error=1.0, seed=3) != declared(jobs, estimate_error=1.0, seed=4)


def test_an_app_may_lie_about_work_parallelism_and_slowdown() -> None:
    jobs = [job("a", "1", 0, 2, 100, max_gpus=4, model="vgg"), job("b", "1", 0, 2, 100, model="vgg")]
    assert declared(jobs, misreports=(Misreport("a", "work", 0.5),)) == [(100_000.0, "vgg", 4), (200_000.0, "vgg", 2)]
    assert declared(jobs, misreports=(Misreport("a", "parallelism", 0.5),))[0] == (200_000.0, "vgg", 2)
    inputs = Inputs(
        trace=Trace(tuple(jobs)),
        topology=cluster(1, 8),
        slowdowns=SLOW,
        settings=Settings(**COST),
        misreports=(Misreport("a", "slowdown", 0.5),),
    )
    (liar, honest), settings, _ = prepare(inputs, jobs)
    slowdown = settings.slowdowns.slowdown
    assert [slowdown(liar.told.model, level) for level in Locality] == [1.0, 1.05, 1.25, 1.5]
    assert [slowdown(honest.told.model, level) for level in Locality] == [1.0, 1.1, 1.5, 2.0]
    assert SLOW.slowdown(liar.spec.model, Locality.CLUSTER) == 2.0, "how fast it runs is no matter of what it says"


def test_slaq_serves_whose_curve_falls_most() -> None:
    """Without curves who came first is served first, for both learn alike; a curve that falls late changes that."""
    flat, steep = (1.0, 0.01, 0.0), (1.0, 99.0, 0.0)
    holder = job("h", "h", 0, 2, 200)

    def first(*curves: tuple[float, float, float] | None) -> str:
        jobs = [job(name, name, 1, 2, 900, loss_curve=curve) for name, curve in zip("ab", curves, strict=True)]
        done, _ = simulated([holder, *jobs], cluster(1, 2), policy="slaq")
        return min(done.jobs[1:], key=lambda j: j.first_start_ms).job_id

    assert first(None, None) == first(steep, flat) == first(None, flat) == "a"
    assert first(flat, steep) == first(flat, None) == "b"


def lease(number: int, node: str) -> Lease:
    return Lease(
        lease_id=f"L{node}{number}",
        grant_id=f"G{node}",
        gpu=f"{node}:{number}",
        app_id="a",
        job_id="e",
        epoch=1,
        round_no=1,
        start_ms=0,
        end_ms=300_000,
    )


@pytest.mark.parametrize(("granted", "left"), [(1, 4), (2, 2)])
def test_a_job_never_runs_on_more_than_it_can_use(granted: int, left: int) -> None:
    """Given other GPUs while its own are about to go, it moves if they are a gang; else it gives up what is too many."""
    spec = job("a", "e", 0, 2, 1000, max_gpus=4)
    told = Declaration(work=2e6, model="", max_gpus=4)
    one = SimulatedJob(spec=spec, index=0, job_id="e", arrival_ms=0, work=2e6, told=told)
    world = TraceCluster(Physics(cluster(2, 4), SLOW, 40_000), [one])
    world.advance(0)
    world.grant(GrantGpus(epoch=1, start_id="s", seq=1, leases=tuple(lease(k, "r0m0") for k in range(4))))
    world.report(0)
    world.settle(0)
    assert len(one.running) == 4
    world.drain(RequestDrain(epoch=1, start_id="s", seq=2, lease_ids=tuple(f"Lr0m0{k}" for k in range(4)), deadline_ms=60_000))
    world.grant(GrantGpus(epoch=1, start_id="s", seq=3, leases=tuple(lease(k, "r0m1") for k in range(granted))))
    told_of = world.report(1_000)
    world.settle(1_000)
    assert len(one.running) == left
    assert told_of is not None
    assert sum(c.is_ended for c in told_of.containers) == 4 + granted - left
    world.advance(60_000)
    world.settle(60_000)
    assert set(one.kept) == {f"r0m1:{k}" for k in range(granted)}
