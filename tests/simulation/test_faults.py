"""The fault simulation in short, and for each of its claims a broken product that it finds out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.simulation.faults.campaign import run_here, run_twice
from tests.simulation.faults.plan import FAULTS, Plan, draw_plan
from themis_arbiter.core import leasing
from themis_arbiter.core.events import Batch, Event, LeasesPersisted, StoreFailed, Timer
from themis_arbiter.core.lease import TRANSITIONS, Lease, LeaseInput, LeaseState
from themis_arbiter.core.machine import ON_TIMER
from themis_arbiter.core.policies.handout import HandOut
from themis_arbiter.core.state import State
from themis_arbiter.engine.driver import Driver
from themis_arbiter.sim.live_gate import Gate, LeaseUpdate, Refusal

SEEDS: Final = 200
SEEDS_TO_CATCH: Final = 60  # that suit a mutation, at most


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_whatever_happens_no_claim_is_broken_and_every_run_can_be_repeated() -> None:
    tally = run_twice(range(SEEDS), 2)
    assert tally.failed == {}, "\n".join(f"make sim SEED={seed}: {texts}" for seed, texts in tally.failed.items())
    assert tally.seeds == SEEDS
    assert tally.overlapped >= 0.3 * SEEDS
    assert {kind for kind, _ in tally.fired} == set(FAULTS)
    assert all(count > SEEDS for count in tally.seen.values()), tally.seen


def catches(claim: str, suits: Callable[[Plan], bool] = lambda _plan: True) -> bool:
    """Whether the claim is found broken within a bounded number of seeds."""
    seeds = [seed for seed in range(20 * SEEDS_TO_CATCH) if suits(draw_plan(seed)) and not draw_plan(seed).is_checked]
    return any(broken.claim == claim for out in run_here(seeds[:SEEDS_TO_CATCH]) for broken in out.broken)


def has(*kinds: str) -> Callable[[Plan], bool]:
    return lambda plan: any(fault.kind in kinds for fault in plan.faults)


def has_long_job(plan: Plan) -> bool:
    return any(job.work / job.max_gpus > 25_000 for job in plan.jobs)


def nothing(_state: State) -> None:
    pass


def test_a_release_that_nobody_confirmed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(_state: State, here: leasing.Here, _used: int) -> list[Lease]:
        return list(here.draining)

    monkeypatch.setattr(leasing, "_free_by_now", at_once)
    assert catches("no GPU under two leases")


def test_a_grant_that_was_not_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Driver._commit

    def as_if_stored(driver: Driver[Any], batch: Batch) -> Event:
        answer = commit(driver, batch)
        return LeasesPersisted(at_ms=answer.at_ms, batch_no=batch.batch_no) if isinstance(answer, StoreFailed) else answer

    monkeypatch.setattr(Driver, "_commit", as_if_stored)
    assert catches("no uncommitted lease", has("disk_full", "lose_request", "no_quorum"))


def test_a_gate_that_hears_an_old_leader_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Gate.refusal

    def forgetful(gate: Gate, update: LeaseUpdate) -> Refusal | None:
        answer = refusal(gate, update)
        return None if answer is Refusal.OLD_EPOCH else answer

    monkeypatch.setattr(Gate, "refusal", forgetful)
    assert catches("epochs never fall", has("forget"))


def test_gangs_that_stay_in_part_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = leasing.grant_if_whole

    def in_part(state: State, job_id: str, grant_id: str) -> None:
        leases = [x for x in state.grant_leases(job_id, grant_id) if x.lease_id in state.persisted]
        state.persisted.difference_update([x.lease_id for x in leases[1:]])
        report = state.jobs[job_id].report
        state.jobs[job_id] = replace(state.jobs[job_id], report=replace(report, gang=1))
        grant(state, job_id, grant_id)

    monkeypatch.setattr(leasing, "grant_if_whole", in_part)
    monkeypatch.setitem(ON_TIMER, Timer.GANGS, nothing)
    assert catches("gangs are whole")


def test_leases_that_do_not_end_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ON_TIMER, Timer.GRID, nothing)
    assert catches("every lease ends", has_long_job)


def test_drains_without_notice_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "_told_deadline", lambda state, _lease: state.now_ms - 10_000)
    assert catches("no GPU lost early")


def test_a_round_that_loses_a_gpu_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    by_app = HandOut.by_app

    def all_but_one(hand_out: HandOut) -> Any:
        return {app: {job: gpus[1:] for job, gpus in jobs.items()} for app, jobs in by_app(hand_out).items()}

    monkeypatch.setattr(HandOut, "by_app", all_but_one)
    assert catches("rounds add up")


def test_a_write_that_is_never_tried_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ON_TIMER, Timer.STORE_RETRY, nothing)
    assert catches("all is well again", has("disk_full"))


def test_an_engine_that_fails_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSITIONS, (LeaseState.ACTIVE, LeaseInput.LOST))
    assert catches("nothing fails", has("node_lost"))
