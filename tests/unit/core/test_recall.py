"""Recall: leases that end early, at a tick and with notice, for an urgent job that waits; and all for whom none does."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.bench import Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.core.effects import Effect, RequestDrain, RoundClosed, WakeAt
from themis_arbiter.core.events import AdminRequested, AdminVerb, Timer
from themis_arbiter.core.lease import Cause, LeaseState
from themis_arbiter.core.policies.base import Decision, Market
from themis_arbiter.core.types import OnLeaseEnd

# Ticks every 4 s, notice 3 s, leases end at 20 s. `new` came at 1 s, runs 2.5 s on eight GPUs and has a fair time of 20 s, the
# floor: passed over at t it ends at t + a tick + a restart + 2.5 s = t + 7.5 s, so it is urgent from 1 + 21 - 7.5 = 14.5 s on.
URGENT_AT = 16_000


def contested(kind: OnLeaseEnd = OnLeaseEnd.CHECKPOINT, *, work: float = 4e6, gang: int = 8, **settings: Any) -> Bench:
    """`old` holds all eight GPUs and has `work` to do; `new` asks for `gang` of them and is done in 2.5 s on these."""
    bench = Bench(replace(SHORT, **settings)).up(replace(job("old", 8, work=work), on_lease_end=kind))
    bench.wake(500, Timer.ROUND)
    running(bench, "old")
    bench.report(1_000, job("new", gang, gang=gang, work=2_500.0 * gang, at=1_000), seq=2)
    bench.wake(1_500, Timer.ROUND)
    return bench


def recalled(effects: list[Effect]) -> list[RequestDrain]:
    return [e for e in effects if isinstance(e, RequestDrain)]


def test_an_urgent_waiting_job_gets_gpus_before_the_lease_end_with_notice() -> None:
    bench = contested()
    effects = bench.wake(URGENT_AT, Timer.RECALL)
    (drain,) = recalled(effects)
    assert len(drain.lease_ids) == 8
    assert drain.deadline_ms == URGENT_AT + SHORT.notice_ms
    assert {x.cause for x in bench.arbiter.state.ledger if x.state is LeaseState.DRAINING} == {Cause.RECALL}
    assert bench.states()["new"] == ["waiting"] * 8
    (closed,) = of_type(effects, RoundClosed)
    assert isinstance(closed, RoundClosed)
    assert closed.record["kind"] == "recall"


def test_srsf_may_be_given_recall_for_whoever_comes_first_to_compare_with() -> None:
    bench = contested(policy="srsf", srsf_recall=True)
    (drain,) = recalled(bench.wake(4_000, Timer.RECALL))
    assert (len(drain.lease_ids), drain.deadline_ms) == (8, 4_000 + SHORT.notice_ms)
    later = contested(policy="srsf", srsf_recall=True, work=1_500.0 * 8)  # the holder is done first: it comes first
    assert recalled(later.wake(4_000, Timer.RECALL)) == []
    without = contested(policy="srsf")
    assert recalled(without.wake(URGENT_AT, Timer.RECALL)) == []


def test_nobody_is_looked_at_before_somebody_can_be_urgent() -> None:
    bench = contested()
    effects = bench.wake(4_000, Timer.RECALL)
    assert not recalled(effects)
    assert WakeAt(timer=Timer.RECALL, at_ms=URGENT_AT) in effects


def test_an_elastic_holder_gives_up_only_what_is_taken_and_keeps_the_rest_to_its_old_end() -> None:
    bench = contested(gang=2)
    (drain,) = recalled(bench.wake(URGENT_AT, Timer.RECALL))
    assert len(drain.lease_ids) == 2
    kept = [x for x in bench.arbiter.state.ledger if x.job_id == "old" and x.state is LeaseState.ACTIVE]
    assert len(kept) == 6
    assert {x.end_ms for x in kept} == {20_000}


class Moves:
    """A policy that moves `old` from where it is to n1."""

    def decide(self, market: Market) -> Decision:
        return Decision(wins={}, leftovers={"old": {"old": tuple(f"n1:{k}" for k in range(4))}})


def test_a_holder_that_is_moved_leaves_what_it_had_though_nobody_takes_it() -> None:
    bench = Bench().up(job("old", 4, gang=4, work=4e6))
    bench.wake(500, Timer.ROUND)
    running(bench, "old", "n0 n0 n0 n0")
    bench.report(1_000, job("new", 8, gang=8, work=2e4, at=1_000), seq=2)
    bench.arbiter.state.policy = Moves()
    (drain,) = recalled(bench.wake(URGENT_AT, Timer.RECALL))
    assert len(drain.lease_ids) == 4
    assert {x.gpu[:2] for x in bench.arbiter.state.ledger if x.state is not LeaseState.DRAINING} == {"n1"}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (OnLeaseEnd.NEVER, {}),
        (OnLeaseEnd.CHECKPOINT, {"min_runtime_ms": 60_000}),
        (OnLeaseEnd.CHECKPOINT, {"recall": False}),
        (OnLeaseEnd.CHECKPOINT, {"policy": "srsf"}),
    ],
)
def test_who_is_protected_and_who_has_no_recall(kind: OnLeaseEnd, settings: dict[str, Any]) -> None:
    bench = contested(kind, **settings)
    assert not recalled(bench.wake(URGENT_AT, Timer.RECALL))
    assert bench.states()["old"] == ["active"] * 8


def test_an_urgent_holder_is_never_recalled() -> None:
    # 40 s of work, of whose fair share `new` takes a little: passed over at 16 s, it would end too late as well.
    bench = contested(work=8 * 40_000.0)
    assert not recalled(bench.wake(URGENT_AT, Timer.RECALL))


def test_no_recall_ends_after_the_common_lease_end() -> None:
    bench = contested(tick_ms=3_000)
    effects = bench.wake(18_000, Timer.RECALL)
    assert not recalled(effects)
    assert WakeAt(timer=Timer.RECALL, at_ms=21_000) in effects


def test_a_paused_arbiter_recalls_nothing() -> None:
    bench = contested()
    bench.at(2_000, AdminRequested(at_ms=2_000, request_id="r1", actor="ops", verb=AdminVerb.PAUSE))
    assert not recalled(bench.wake(URGENT_AT, Timer.RECALL))


def test_a_promised_lease_ends_on_the_grid_whenever_its_gpu_is_free() -> None:
    # Free at once, at 16 s, it ends at 20 s; free at 18 s too little would be left, so it ends at 40 s.
    for freed_ms, end_ms in ((16_000, 20_000), (18_000, 40_000)):
        bench = contested(notice_ms=1_500)
        bench.wake(URGENT_AT, Timer.RECALL)
        gone = replace(bench.arbiter.state.jobs["old"].report, is_finished=True, finish_ms=freed_ms, final_status="SUCCEEDED")
        seq = bench.arbiter.state.update_seq
        ended = tuple(container(k, "old", f"n{k // 4}", ended=True) for k in range(8))
        bench.report(freed_ms, gone, containers=ended, seq=seq)
        assert {x.end_ms for x in bench.arbiter.state.ledger if x.job_id == "new"} == {end_ms}
