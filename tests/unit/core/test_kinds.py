"""Kinds of app: who is renewed without an auction, who waits, who is told that it can never run, who does not show up."""

from dataclasses import replace

import pytest

from tests.support.bench import NODES, Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.core.effects import (
    AdminAnswered,
    ContainerLost,
    Effect,
    GrantGpus,
    RequestDrain,
    RoundClosed,
    SyncLeases,
    TellJob,
)
from themis_arbiter.core.events import (
    AdminRequested,
    AdminVerb,
    EndCause,
    EpochAcquired,
    RmAttached,
    RmReported,
    Timer,
)
from themis_arbiter.core.kinds import work_lost_by_moving
from themis_arbiter.core.lease import Cause
from themis_arbiter.core.policies.base import Decision, Market
from themis_arbiter.core.settings import QueueRule
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.core.views_of import status


def only_drain(effects: list[Effect]) -> RequestDrain:
    (drain,) = of_type(effects, RequestDrain)
    assert isinstance(drain, RequestDrain)
    return drain


def ask(bench: Bench, verb: AdminVerb, target: str = "", value: float = 0.0) -> tuple[AdminAnswered, list[Effect]]:
    event = AdminRequested(at_ms=bench.now, request_id="r1", actor="ops", verb=verb, target=target, value=value)
    effects = bench.at(bench.now, event)
    (answer,) = of_type(effects, AdminAnswered)
    assert isinstance(answer, AdminAnswered)
    return answer, effects


def contested(kind: OnLeaseEnd | None, **settings: object) -> Bench:
    """`old` holds all eight GPUs and has a lot to do; `new` is short and came a while ago."""
    old = replace(job("old", 8, work=4e6), on_lease_end=kind)
    bench = Bench(replace(SHORT, **settings)).up(old)  # type: ignore[arg-type]
    bench.wake(500, Timer.ROUND)
    running(bench, "old")
    bench.report(1_000, job("new", 8, work=2e4, at=1_000), seq=2)
    return bench


def test_a_checkpointing_app_gives_way_at_its_lease_end() -> None:
    assert only_drain(contested(OnLeaseEnd.CHECKPOINT).wake(17_000, Timer.GRID)).lease_ids


def test_an_app_that_must_not_be_interrupted_is_renewed_without_an_auction() -> None:
    bench = contested(OnLeaseEnd.NEVER)
    effects = bench.wake(17_000, Timer.GRID)
    assert not of_type(effects, RequestDrain)
    assert {(x.end_ms, x.job_id) for x in bench.arbiter.state.ledger} == {(40_000, "old")}


class Halves:
    """A policy that leaves n0 to `old` and promises n1 to `new`; it keeps what it was shown and gives nothing else."""

    def __init__(self) -> None:
        self.markets: list[Market] = []

    def decide(self, market: Market) -> Decision:
        self.markets.append(market)
        halves = {"old": "n0", "new": "n1"} if market.supply.ending else {}
        return Decision(wins={}, leftovers={a: {a: tuple(f"{n}:{k}" for k in range(4))} for a, n in halves.items()})


@pytest.mark.parametrize(("kind", "wanted"), [(OnLeaseEnd.NEVER, 4), (OnLeaseEnd.CHECKPOINT, 8)])
def test_what_was_promised_gpus_and_must_not_be_interrupted_does_not_start_on_others_before(
    kind: OnLeaseEnd, wanted: int
) -> None:
    """It would run, and be moved a moment later, when it gets what it was promised (the judge of runs found that)."""
    bench = contested(OnLeaseEnd.CHECKPOINT)
    bench.report(2_000, replace(job("new", 8, gang=2, work=2e4, at=1_000), on_lease_end=kind), seq=2)
    policy = bench.arbiter.state.policy = Halves()
    only_drain(bench.wake(17_000, Timer.GRID))
    assert bench.states()["new"] == ["waiting"] * 4
    gone = tuple(container(k, "old", "n0", ended=True) for k in range(4))
    bench.report(18_000, replace(job("old", 0), is_finished=True, finish_ms=18_000), containers=gone, seq=2)
    bench.wake(18_500, Timer.TIDY)
    bench.report(18_600, seq=9)
    bench.wake(19_000, Timer.ROUND)
    before, free = policy.markets[-2:]
    assert (before.jobs["new"].wanted, free.jobs["new"].wanted) == (8, wanted)
    assert not free.supply.ending


class ToNew:
    """A policy that gives `new` all that there is."""

    def decide(self, market: Market) -> Decision:
        return Decision(wins={}, leftovers={"new": {"new": market.supply.gpus}})


@pytest.mark.parametrize(("kind", "free"), [(OnLeaseEnd.NEVER, "pending"), (OnLeaseEnd.CHECKPOINT, "granted")])
def test_what_must_not_be_interrupted_starts_on_all_that_it_won_at_once(kind: OnLeaseEnd, free: str) -> None:
    bench = Bench().up(job("old", 4, gang=4, work=4e6))
    bench.wake(500, Timer.ROUND)
    on = sorted(x.gpu for x in bench.arbiter.state.ledger)
    running(bench, "old", " ".join(g.split(":")[0] for g in on))
    bench.arbiter.state.admin = replace(bench.arbiter.state.admin, is_paused=True)  # so that the rest stays free for now
    bench.report(1_000, replace(job("new", 8, work=2e5, at=1_000), on_lease_end=kind), seq=2)
    bench.arbiter.state.admin = replace(bench.arbiter.state.admin, is_paused=False)
    bench.arbiter.state.policy = ToNew()
    drain = only_drain(bench.wake(17_000, Timer.GRID))
    assert bench.states()["new"] == sorted([free] * 4 + ["waiting"] * 4)
    gone = tuple(container(k, "old", g.split(":")[0], ended=True) for k, g in enumerate(on))
    bench.report(19_900, containers=gone, seq=drain.seq)
    assert bench.states()["new"] == ["granted"] * 8


def test_a_protected_minimum_runtime_holds_for_all_and_then_ends() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT, min_runtime_ms=30_000)
    assert not of_type(bench.wake(17_000, Timer.GRID), RequestDrain)
    assert only_drain(bench.wake(37_000, Timer.GRID)).lease_ids


def test_a_queues_default_holds_for_jobs_that_say_nothing() -> None:
    rules = {"": QueueRule(on_lease_end=OnLeaseEnd.NEVER)}
    assert not of_type(contested(None, queues=rules).wake(17_000, Timer.GRID), RequestDrain)
    assert of_type(contested(OnLeaseEnd.CHECKPOINT, queues=rules).wake(17_000, Timer.GRID), RequestDrain)


def test_a_queues_cap_on_never_lets_the_rest_wait() -> None:
    rules = {"": QueueRule(on_lease_end=OnLeaseEnd.NEVER, never_gpus_max=4)}
    bench = Bench(replace(SHORT, queues=rules)).up(job("a", 3), job("b", 3))
    bench.wake(500, Timer.ROUND)
    held = {name: len(states) for name, states in bench.states().items()}
    assert sum(held.values()) == 4


def test_what_a_restarting_job_has_done_is_the_price_of_moving_it() -> None:
    bench = Bench().up(replace(job("r", 4, work=1e6), on_lease_end=OnLeaseEnd.RESTART))
    bench.wake(500, Timer.ROUND)
    running(bench, "r", "n0 n0 n0 n0")
    bench.report(10_600, seq=2)
    state = bench.arbiter.state
    one = state.jobs["r"].at(state.now_ms)
    assert work_lost_by_moving(state, one) == pytest.approx(4 * (10_000 - SHORT.restart_cost_ms))
    # It loses one container: what it had done is gone, and it is no longer the price of anything.
    bench.report(10_700, containers=(replace(container(0, "r", "n0", ended=True), exit_status=-102),), seq=2)
    one = state.jobs["r"].at(state.now_ms)
    assert work_lost_by_moving(state, one) == 0
    assert one.remaining(1.0) == pytest.approx(1e6)
    assert one.attained == pytest.approx(4 * (10_100 - SHORT.restart_cost_ms))  # but it was served, and that is metered


def test_a_no_show_is_taken_back_and_waits_twice_as_long_each_time_until_it_shows_up() -> None:
    bench = Bench(replace(SHORT, no_show_ms=4_000)).up(job("n", 2))
    bench.wake(500, Timer.ROUND)
    waits = []
    now = 500
    for _ in range(3):
        effects = bench.wake(now + 4_000, Timer.GANGS)
        drain = only_drain(effects)
        assert {x.cause for x in bench.arbiter.state.ledger} == {Cause.NO_SHOW}
        waits.append(bench.arbiter.state.jobs["n"].retry_ms - bench.now)
        bench.report(bench.now + 100, seq=drain.seq)
        assert bench.states() == {}
        now = bench.arbiter.state.jobs["n"].retry_ms
        bench.report(now, job("n", 3), seq=drain.seq)
        bench.report(now, job("n", 4), seq=drain.seq)
        now += 500
        (grant,) = of_type(bench.wake(now, Timer.ROUND), GrantGpus)
        assert isinstance(grant, GrantGpus)
    assert waits == [20_000, 40_000, 80_000]
    bench.report(now + 100, job("n", 3), containers=(container(1, "n", "n0"),), seq=99)
    assert bench.arbiter.state.jobs["n"].no_shows == 0


def test_who_asks_for_what_can_never_be_is_told_at_once_and_others_go_on() -> None:
    bench = Bench().up()
    huge = replace(job("huge", 9, gang=9), unit=1)
    wide = replace(job("wide", 5), unit=5, gang=5)
    told = of_type(bench.report(100, huge, wide, job("ok", 1)), TellJob)
    texts = {t.job_id: t.text for t in told if isinstance(t, TellJob)}
    assert "needs 9 GPUs at once" in texts["huge"]
    assert "the cluster has 8" in texts["huge"]
    assert "no node has more than 4" in texts["wide"]
    bench.wake(600, Timer.ROUND)
    assert bench.states() == {"ok": ["granted"]}
    # Nobody's share is smaller for them, and they are nobody's largest rho.
    assert set(bench.arbiter.state.fluid.fair_finishes()) == {"ok"}
    assert status(bench.arbiter, 10**9).max_rho == pytest.approx(10**9 / 1e6)
    # A node is added: it can be now, and that is told too.
    bigger = replace(NODES[0], node="n2", gpus=8)
    bench.at(700, RmReported(at_ms=700, start_id="s1", nodes=(bigger,)))
    effects = bench.wake(1_200, Timer.ROUND)
    assert {(t.job_id, t.text) for t in of_type(effects, TellJob) if isinstance(t, TellJob)} == {("huge", ""), ("wide", "")}
    assert bench.states()["huge"] == ["granted"] * 9


def test_what_runs_without_a_lease_is_adopted_to_the_next_grid_end() -> None:
    bench = Bench().up()
    found = (container(1, "a", "n0"), container(2, "a", "n0"), replace(container(3, "m", "n1"), is_am=True))
    effects = bench.report(5_000, job("a", 0), containers=found)
    (grant,) = of_type(effects, GrantGpus)
    assert isinstance(grant, GrantGpus)
    assert [(x.gpu, x.end_ms, x.cause) for x in grant.leases] == [
        ("n0:0", 20_000, Cause.ADOPTED),
        ("n0:1", 20_000, Cause.ADOPTED),
    ]
    assert not of_type(bench.report(5_100, seq=3), GrantGpus)
    assert bench.states() == {"a": ["active", "active"]}


def test_a_container_that_ends_is_counted_with_its_cause() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    killed = replace(container(0, "old", "n0", ended=True), exit_status=-106)
    (lost,) = of_type(bench.report(2_000, containers=(killed,), seq=2), ContainerLost)
    assert isinstance(lost, ContainerLost)
    assert (lost.cause, lost.was_due, lost.gpus) == (EndCause.BY_RM, False, 1)
    drain = only_drain(bench.wake(17_000, Timer.GRID))
    (node,) = {x.node_of_gpu for x in bench.arbiter.state.ledger if x.lease_id == drain.lease_ids[0]}
    drained = replace(container(1 if node == "n0" else 5, "old", node, ended=True), exit_status=-102)
    (lost,) = of_type(bench.report(18_000, containers=(drained,), seq=9), ContainerLost)
    assert isinstance(lost, ContainerLost)
    assert (lost.cause, lost.was_due) == (EndCause.PREEMPTED, True)


def test_a_node_that_goes_out_of_service_keeps_its_leases_to_their_ends_and_no_longer() -> None:
    bench = contested(OnLeaseEnd.NEVER)
    bench.at(2_000, RmReported(at_ms=2_000, start_id="s1", nodes=(replace(NODES[0], is_schedulable=False),)))
    assert len(bench.states()["old"]) == 8
    drain = only_drain(bench.wake(17_000, Timer.GRID))
    assert drain.deadline_ms == 20_000
    causes = {x.node_of_gpu: x.cause for x in bench.arbiter.state.ledger}
    assert causes["n0"] is Cause.NODE_DRAINED
    assert len(drain.lease_ids) == 4
    assert "new" not in bench.states()  # nobody is promised its GPUs


def test_pausing_holds_everybody_where_he_is() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    answer, _ = ask(bench, AdminVerb.PAUSE)
    assert answer.is_done
    effects = bench.wake(17_000, Timer.GRID)
    assert not of_type(effects, RequestDrain)
    assert not of_type(effects, RoundClosed)
    assert {x.end_ms for x in bench.arbiter.state.ledger} == {40_000}
    assert not ask(bench, AdminVerb.PAUSE)[0].is_done
    ask(bench, AdminVerb.RESUME)
    assert only_drain(bench.wake(37_000, Timer.GRID)).lease_ids


def test_revoking_ends_an_apps_leases_with_notice_and_keeps_it_away_for_one_lease() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    answer, effects = ask(bench, AdminVerb.REVOKE, "old")
    assert answer.is_done
    assert only_drain(effects).deadline_ms == bench.now + SHORT.notice_ms
    bench.wake(17_000, Timer.GRID)
    assert set(bench.states()) == {"old", "new"}
    answer, effects = ask(bench, AdminVerb.REVOKE, "nobody")
    assert not answer.is_done
    assert "nobody" in answer.text
    assert not of_type(effects, RequestDrain)


def test_draining_a_node_and_taking_that_back() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    assert ask(bench, AdminVerb.DRAIN, "n1")[0].is_done
    assert not ask(bench, AdminVerb.DRAIN, "n7")[0].is_done
    drains = of_type(bench.wake(17_000, Timer.GRID), RequestDrain)
    ids = {i for drain in drains if isinstance(drain, RequestDrain) for i in drain.lease_ids}
    gpus = {x.gpu for x in bench.arbiter.state.ledger if x.lease_id in ids}
    assert {g for g in gpus if g.startswith("n1")} == {f"n1:{k}" for k in range(4)}
    assert ask(bench, AdminVerb.UNDRAIN, "n1")[0].is_done
    assert bench.arbiter.state.admin.drained == ()


def test_a_weight_changes_the_fair_share_and_outlives_the_arbiter() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    before = bench.arbiter.state.t_independent_ms(bench.arbiter.state.apps["old"])
    answer, effects = ask(bench, AdminVerb.SET_WEIGHT, "old", 3.0)
    assert answer.is_done
    assert bench.arbiter.state.t_independent_ms(bench.arbiter.state.apps["old"]) <= before
    (persist,) = [e for e in effects if type(e).__name__ == "PersistLeases"]
    stored = persist.batch.admin  # type: ignore[union-attr]
    after = Bench()
    after.at(0, EpochAcquired(at_ms=0, epoch=2, admin=stored))
    after.at(0, RmAttached(at_ms=0, start_id="s1"))
    after.at(0, RmReported(at_ms=0, start_id="s1", is_full=True, nodes=NODES, jobs=(job("old", 1),)))
    assert after.arbiter.state.apps["old"].weight == 3.0
    for bad in (0.0, -1.0, float("nan"), 1e300):
        assert not ask(bench, AdminVerb.SET_WEIGHT, "old", bad)[0].is_done


def test_looking_on_records_what_would_have_been_and_leases_nothing() -> None:
    bench = Bench(replace(SHORT, observe_only=True)).up(job("a", 8), job("b", 4, gang=4))
    bench.report(100, containers=tuple(container(k, "a", "n0") for k in range(4)))
    closed = of_type(bench.wake(600, Timer.ROUND), RoundClosed)
    assert bench.states() == {}
    assert len(closed) == 1
    record = closed[0].record  # type: ignore[union-attr]
    assert record["moves"] == {}
    assert record["would"]["get"]
    closed = of_type(bench.wake(17_000, Timer.GRID), RoundClosed)
    would = closed[0].record["would"]  # type: ignore[union-attr]
    assert set(would["keep"]) | set(would["lose"]) == {f"n0:{k}" for k in range(4)}


def test_switching_between_looking_on_and_leasing() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    answer, effects = ask(bench, AdminVerb.OBSERVE_ONLY, value=1.0)
    (sync,) = of_type(effects, SyncLeases)
    assert answer.is_done
    assert isinstance(sync, SyncLeases)
    assert sync.is_observing
    assert not sync.leases
    assert bench.states() == {}
    assert not of_type(effects, RequestDrain)
    answer, effects = ask(bench, AdminVerb.OBSERVE_ONLY, value=0.0)
    (sync,) = of_type(effects, SyncLeases)
    assert answer.is_done
    assert isinstance(sync, SyncLeases)
    assert not sync.is_observing
    bench.report(bench.now + 100)
    assert {k: len(v) for k, v in bench.states().items()} == {"old": 8}  # adopted


def test_gpus_cut_below_what_is_leased_end_those_leases_and_sell_nothing_new_there() -> None:
    bench = contested(OnLeaseEnd.CHECKPOINT)
    bench.at(2_000, RmReported(at_ms=2_000, start_id="s1", nodes=(replace(NODES[0], gpus=1),)))
    assert sorted(x.gpu for x in bench.arbiter.state.ledger) == ["n0:0", "n1:0", "n1:1", "n1:2", "n1:3"]
    closed = of_type(bench.wake(17_000, Timer.GRID), RoundClosed)
    offered = closed[0].record["offered"]  # type: ignore[union-attr]
    assert [g for g in offered if g.startswith("n0")] in ([], ["n0:0"])
