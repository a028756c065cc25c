"""Admission control: who would slow down those who are in waits outside, first come first served."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.bench import Bench, job
from tests.support.replays import cluster, simulated
from tests.support.replays import job as trace_job
from tests.support.world import SHORT, World
from themis_arbiter.core import admission
from themis_arbiter.core.admin_state import admin_from_text, admin_to_text
from themis_arbiter.core.events import Timer
from themis_arbiter.core.explain import explain
from themis_arbiter.core.settings import Settings, ShareBy
from themis_arbiter.core.types import CoreError
from themis_arbiter.core.views import AppState
from themis_arbiter.core.views_of import apps
from themis_arbiter.sim.live_jobs import SimJob, SimNode

BOUND = replace(SHORT, admission_max_rho=1.5)
WORK = 8 * 100_000.0  # a hundred seconds on all eight GPUs


def states(bench: Bench) -> dict[str, AppState]:
    return {a.app_id: a.state for a in apps(bench.arbiter, bench.now)}


def test_it_is_off_unless_a_bound_is_set() -> None:
    bench = Bench().up(job("a", 8, work=WORK), job("b", 8, work=WORK))
    assert bench.arbiter.state.queued == {}
    assert bench.arbiter.state.admin.admitted == ()


def test_who_would_push_somebody_past_the_bound_waits_and_is_let_in_when_it_no_longer_would() -> None:
    bench = Bench(BOUND).up(job("a", 8, work=WORK))
    bench.report(1_000, job("b", 8, work=WORK, at=1_000))
    assert states(bench) == {"a": AppState.WAITING, "b": AppState.QUEUED}
    # With b from 1 s on a would be done at 199 s in place of 100, so its rho would be 1.99.
    state = bench.arbiter.state
    assert admission.project(state, "b", 1_000).max_rho == pytest.approx(1.99)
    # At 50 s half is left, and with b it would be done at 150 s.
    assert admission.earliest(state, "b", 1_000) == pytest.approx(50_000, abs=1_700)
    lines = explain(bench.arbiter, "b", 1_000)
    assert lines is not None
    assert any(
        "number 1 of 1: with it the projected rho of a would be 1.99, above admission_max_rho = 1.5." in x for x in lines
    )
    assert any("let in in about 4" in x or "let in in about 5" in x for x in lines)
    assert not state.apps["b"].is_flowing  # a's share is what it was
    assert state.t_independent_ms(state.apps["a"]) == pytest.approx(100_000)
    bench.wake(37_000, Timer.GRID)  # a grid round
    assert states(bench)["b"] is AppState.QUEUED
    bench.wake(57_000, Timer.GRID)
    assert states(bench)["b"] is AppState.WAITING
    assert state.apps["b"].admitted_ms == 57_000


def test_an_end_lets_the_next_in_at_once_and_nobody_overtakes() -> None:
    bench = Bench(BOUND).up(job("a", 8, work=WORK))
    bench.report(1_000, job("large", 8, work=WORK, at=1_000))
    bench.report(2_000, job("small", 1, work=10.0, at=2_000))  # it would hardly slow anybody down
    assert list(admission.queue(bench.arbiter.state)) == ["large", "small"]
    lines = explain(bench.arbiter, "small", 2_000)
    assert lines is not None
    assert any("number 2 of 2: first come first served" in x for x in lines)
    bench.report(3_000, job("a", 0, work=WORK, finished=True))
    assert states(bench) == {"a": AppState.ENDED, "large": AppState.WAITING, "small": AppState.WAITING}
    assert [a.app_id for a in bench.arbiter.state.admin.admitted] == ["large", "small"]


def test_what_a_waiting_app_would_take_goes_by_its_owners_share() -> None:
    settings = replace(BOUND, share_by=ShareBy.USER)
    alices = [replace(job(f"a{k}", 4, work=WORK), user="alice") for k in range(2)]
    bench = Bench(settings).up(*alices)
    bench.report(1_000, replace(job("b", 8, work=4 * WORK, at=1_000), user="bob"))
    state = bench.arbiter.state
    assert states(bench)["b"] is AppState.QUEUED
    # Half of the eight GPUs are bob's, however many apps alice has and whatever she lets them count among themselves.
    assert admission.t_independent_ms(state, state.apps["b"]) == pytest.approx(WORK)
    state.apps["a0"] = replace(state.apps["a0"], weight=1_000.0)
    assert admission.t_independent_ms(state, state.apps["b"]) == pytest.approx(WORK)


def test_an_app_that_ends_while_it_waits_leaves_the_queue() -> None:
    bench = Bench(BOUND).up(job("a", 8, work=WORK))
    bench.report(1_000, job("b", 8, work=WORK, at=1_000))
    bench.report(2_000, job("b", 0, work=WORK, at=1_000, finished=True))
    assert bench.arbiter.state.queued == {}


def test_a_full_queue_lets_its_first_in() -> None:
    bench = Bench(replace(BOUND, admission_queue_max=2)).up(job("a", 8, work=WORK))
    for k, name in enumerate(("b", "c", "d"), start=1):
        bench.report(k * 1_000, job(name, 8, work=WORK, at=k * 1_000))
    assert {a for a, s in states(bench).items() if s is AppState.QUEUED} == {"c", "d"}


def test_work_that_is_more_than_was_told_does_not_count_against_newcomers() -> None:
    bench = Bench(BOUND).up(job("a", 8, work=WORK))
    bench.report(70_000, job("a", 8, work=2 * WORK))  # too late to be rewound: it now ends at 200 s
    state = bench.arbiter.state
    bench.report(71_000, job("b", 1, work=8_000.0, at=71_000))
    assert states(bench)["b"] is AppState.WAITING  # 2.0 times what was promised, but of twice the work
    assert {a.app_id for a in state.admin.admitted} == {"a", "b"}


def test_admissions_are_stored_and_read_back() -> None:
    bench = Bench(BOUND).up(job("a", 8, work=WORK))
    admin = bench.arbiter.state.admin
    assert [(a.app_id, a.admitted_ms, a.promised_ms, a.work) for a in admin.admitted] == [("a", 0, 100_000.0, WORK)]
    assert admin_from_text(admin_to_text(admin)) == admin


NODES = (SimNode(node="n0", rack="r0", gpus=4), SimNode(node="n1", rack="r0", gpus=4))


def test_who_is_in_and_who_waits_survives_a_crash() -> None:
    jobs = [
        SimJob(app_id=name, job_id=name, arrival_ms=k * 1_000, gang=8, max_gpus=8, work=WORK)
        for k, name in enumerate(("a", "b", "c"))
    ]
    world = World(NODES, jobs, settings=BOUND)
    world.run_until(30_000)
    before = world.arbiter.state
    assert (list(admission.queue(before)), before.apps["a"].admitted_ms) == (["b", "c"], 0)
    world.crash()
    world.boot()
    world.run_until(40_000)
    after = world.arbiter.state
    assert after is not before
    assert after.admin.admitted == before.admin.admitted
    assert list(admission.queue(after)) == ["b", "c"]
    world.run_until(600_000)
    assert all(j.finish_ms is not None for j in world.cluster.jobs())
    assert world.arbiter.state.admin.admitted == ()


def test_a_simulated_run_holds_the_bound_and_serves_everybody() -> None:
    jobs = [trace_job(f"a{k}", "j", 100.0 * k, 4, 3000.0) for k in range(8)]
    runs: dict[str, Any] = {"large_gang": 2.0}  # nobody takes turns for a first lease, so it can be told who runs when
    _, free = simulated(jobs, cluster(2, 4), **runs)
    held, records = simulated(jobs, cluster(2, 4), admission_max_rho=1.5, **runs)
    assert records == simulated(jobs, cluster(2, 4), admission_max_rho=1.5, **runs)[1]
    starts = {j.spec.app_id: j.first_start_ms for j in held.jobs}
    assert sorted(starts, key=lambda a: starts[a]) == sorted(starts)  # first come first served
    # Two fit side by side, a third stretches their times by half, and a fourth comes when the first is all but done.
    assert max(len(r["apps"]) for r in records) == 4
    assert max(len(r["apps"]) for r in free) == 8


@pytest.mark.parametrize("wrong", [-1.0, 0.5, float("nan"), float("inf")])
def test_bounds_of_the_bound(wrong: float) -> None:
    with pytest.raises(CoreError, match="admission_max_rho"):
        Settings(admission_max_rho=wrong)
    with pytest.raises(CoreError, match="admission_queue_max"):
        Settings(admission_queue_max=0)
