"""What people are told: each case in which an app waits, keeps or loses GPUs, and what nodes show."""

from dataclasses import replace

from tests.support.bench import NODES, Bench, container, job, running
from tests.support.world import SHORT
from themis_arbiter.core.events import (
    AdminRequested,
    AdminVerb,
    EpochAcquired,
    JobReport,
    NodeReport,
    RmAttached,
    RmDetached,
    RmReported,
    Timer,
)
from themis_arbiter.core.explain import explain
from themis_arbiter.core.settings import QueueRule
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.core.views import NodeState
from themis_arbiter.core.views_of import is_stored, nodes, status

GRID = 17_000  # when the first grid end's round is held


def said(bench: Bench, app_id: str) -> str:
    lines = explain(bench.arbiter, app_id, bench.now)
    assert lines is not None
    assert all(line.endswith(".") and "\n" not in line for line in lines), lines
    return "\n".join(lines)


def ask(bench: Bench, verb: AdminVerb, target: str = "", value: float = 0.0) -> None:
    bench.at(bench.now, AdminRequested(at_ms=bench.now, request_id="r", actor="ann", verb=verb, target=target, value=value))


def nodes_report(bench: Bench, *reports: NodeReport) -> None:
    bench.at(bench.now + 100, RmReported(at_ms=0, start_id="s1", nodes=reports, update_seq=bench.arbiter.state.update_seq))


def leased(*reports: JobReport, **settings: object) -> Bench:
    bench = Bench(replace(SHORT, **settings)).up(*reports)  # type: ignore[arg-type]
    bench.wake(500, Timer.ROUND)
    for k, report in enumerate(reports):
        places = " ".join(x.node_of_gpu for x in bench.arbiter.state.ledger.of_job(report.job_id))
        running(bench, report.job_id, places, first=100 * k)
    return bench


def test_an_app_that_nobody_knows() -> None:
    assert explain(Bench().up().arbiter, "nobody", 0) is None


def test_an_ask_that_can_never_be() -> None:
    bench = Bench().up(job("big", 9, gang=9), replace(job("wide", 5), unit=5, gang=5))
    assert "big is not scheduled, because it needs 9 GPUs at once" in said(bench, "big")
    assert "because it asks for 5 GPUs in one container and no node has more than 4" in said(bench, "wide")
    nodes_report(bench, replace(NODES[0], node="n2", gpus=8))
    assert "is not scheduled" not in said(bench, "big") + said(bench, "wide")


def test_fewer_asks_than_a_gang() -> None:
    bench = Bench().up(job("a", 2, gang=3))
    assert "a asks for 2 GPUs, fewer than its gang of 3: it is offered none" in said(bench, "a")


def test_a_no_show_backs_off() -> None:
    bench = Bench().up(job("a", 2))
    bench.wake(500, Timer.ROUND)
    bench.wake(500 + SHORT.no_show_ms, Timer.GANGS)
    text = said(bench, "a")
    assert "a did not use what it won, once; it is offered GPUs again in 20 s." in text
    assert "is being drained (no_show); what still runs in 3 s is killed." in text


def test_a_gang_that_does_not_come_up() -> None:
    bench = Bench().up(job("a", 2, gang=2))
    bench.wake(500, Timer.ROUND)
    bench.wake(500 + SHORT.gang_wait_ms, Timer.GANGS)
    assert "a did not bring its gang up in time, once;" in said(bench, "a")


def test_protected_jobs() -> None:
    bench = leased(replace(job("a", 4), on_lease_end=OnLeaseEnd.NEVER), job("b", 4), min_runtime_ms=30_000)
    assert "a must not be interrupted (on_lease_end=never): 4 of its 4 leases are renewed" in said(bench, "a")
    assert "b is inside the protected minimum runtime of 30 s: 4 of its leases are renewed" in said(bench, "b")


def test_a_queue_that_caps_what_must_not_be_interrupted() -> None:
    never = [replace(job(name, 4, at=at), queue="q", on_lease_end=OnLeaseEnd.NEVER) for at, name in enumerate("ab")]
    bench = Bench(replace(SHORT, queues={"q": QueueRule(never_gpus_max=5)})).up(*never)
    bench.wake(500, Timer.ROUND)
    text = said(bench, "a") + said(bench, "b")
    assert "Queue q lets jobs that must not be interrupted hold 5 GPUs together, and 0 of them are left" in text
    assert "waits for more until others there end" in text


def test_what_a_restart_would_lose_and_has_lost() -> None:
    bench = leased(replace(job("a", 2), on_lease_end=OnLeaseEnd.RESTART))
    bench.now = 11_000
    bench.report(11_000, seq=2)
    assert "a cannot checkpoint (on_lease_end=restart): a change of its GPUs would lose 19 GPU-s" in said(bench, "a")
    node = bench.arbiter.state.ledger.of_job("a")[0].node_of_gpu
    ended = replace(container(0, "a", node, ended=True), exit_status=-102)
    bench.report(12_000, replace(job("a", 1), on_lease_end=OnLeaseEnd.RESTART), containers=(ended,), seq=2)
    assert "a has begun anew: 21 GPU-s before that are lost." in said(bench, "a")


def test_what_ran_before_is_adopted() -> None:
    bench = Bench().up()
    bench.report(1_000, job("a", 0), containers=tuple(container(k, "a", "n0") for k in range(2)))
    bench.report(1_200, seq=bench.arbiter.state.update_seq)
    assert "(active, adopted: it ran before the arbiter knew of it) ends in" in said(bench, "a")


def test_masters_that_hold_gpus_and_gpus_that_no_lease_covers() -> None:
    bench = leased(job("a", 8))
    bench.report(2_000, containers=(replace(container(90, "a", "n0"), is_am=True), container(91, "a", "n0")), seq=2)
    text = said(bench, "a")
    assert "The master of a holds 1 GPUs itself" in text
    assert "a uses 1 GPUs that no lease covers" in text
    (first, second) = nodes(bench.arbiter)
    assert (first.gpus_leased, first.gpus_used, first.gpus_outside, first.gpus_free) == (4, 6, 2, 0)
    assert (first.gpus_over, first.is_oversubscribed, second.is_oversubscribed) == (2, True, False)


def test_a_node_with_fewer_gpus_than_are_used() -> None:
    bench = leased(job("a", 8))
    nodes_report(bench, replace(NODES[1], gpus=3))
    text = said(bench, "a")
    assert "n1 has 3 GPUs, 1 fewer than are leased or used on it: nothing there is leased until" in text
    assert [(n.node, n.gpus_over, n.gpus_free) for n in nodes(bench.arbiter)] == [("n0", 0, 0), ("n1", 1, 0)]
    assert status(bench.arbiter, bench.now).gpus_free == 0


def test_a_node_that_is_being_drained() -> None:
    bench = leased(job("a", 8))
    ask(bench, AdminVerb.DRAIN, "n0")
    nodes_report(bench, replace(NODES[1], is_schedulable=False))
    text = said(bench, "a")
    assert "n0 is being drained by an admin: leases on it are not renewed." in text
    assert "n1 takes no more containers, says YARN: leases on it are not renewed." in text
    assert [n.state for n in nodes(bench.arbiter)] == [NodeState.DRAINED, NodeState.DRAINING]
    full = RmReported(at_ms=0, start_id="s1", is_full=True, nodes=(NODES[1],), jobs=(job("a", 0),), update_seq=2)
    bench.at(bench.now + 100, full)
    assert "n0 is not reported any more" in said(bench, "a")
    assert [n.state for n in nodes(bench.arbiter)] == [NodeState.LOST, NodeState.RUNNING]


def test_paused_and_detached() -> None:
    bench = leased(job("a", 8))
    assert not status(bench.arbiter, bench.now).is_paused
    ask(bench, AdminVerb.PAUSE)
    assert "An admin has paused auctions" in said(bench, "a")
    assert status(bench.arbiter, bench.now).is_paused
    bench.at(bench.now, RmDetached(at_ms=0, start_id="s1"))
    assert "No ResourceManager is attached" in said(bench, "a")
    bench.now = 30_000
    assert "should have ended 10 s ago and is held on" in said(bench, "a")


def test_looking_on_tells_what_would_have_been() -> None:
    bench = leased(job("a", 8, work=4e6), observe_only=True)
    running(bench, "a")
    bench.report(2_000, job("b", 8, work=2e4, at=1_000))
    bench.wake(GRID, Timer.GRID)
    text = said(bench, "a")
    assert "The arbiter looks on only" in text
    assert "Nothing of that round was done; leased, it would have kept" in text
    assert "uses 8 GPUs that no lease covers" not in text
    assert status(bench.arbiter, bench.now).is_observing


def test_a_large_gang_that_is_owed_its_first_lease() -> None:
    bench = leased(job("a", 8, work=4e7), urgent_above=1e6, starving_above=1e6, policy="guard")
    bench.report(2_000, job("b", 8, gang=8, work=4e7 + 1, at=1_000))
    bench.wake(GRID, Timer.GRID)
    assert "It stood 2 of 2 in the order of handing out: not urgent" in said(bench, "b")
    for k in (1, 2, 3):  # half of the GPUs pay for a lease of all within two leases, and one more passes
        bench.wake(GRID + k * SHORT.lease_ms, Timer.GRID)
    text = said(bench, "b")
    assert "It stood 1 of 2 in the order of handing out: a large gang that never ran and whose share has paid" in text


def test_weights() -> None:
    bench = leased(job("a", 4), replace(job("b", 2), weight=2.0))
    assert "weight" not in said(bench, "a")
    assert "Its weight is 2." in said(bench, "b")
    ask(bench, AdminVerb.SET_WEIGHT, "a", 0.5)
    assert "Its weight is 0.5, set by an admin." in said(bench, "a")


def test_who_vanished_and_who_was_revoked() -> None:
    bench = leased(job("a", 4), job("b", 4))
    ask(bench, AdminVerb.REVOKE, "b")
    assert "An admin took leases of b back; it is offered GPUs again in 20 s." in said(bench, "b")
    assert "is being drained (revoked)" in said(bench, "b")
    full = RmReported(at_ms=0, start_id="s1", is_full=True, nodes=NODES, jobs=(job("b", 0),), update_seq=2)
    bench.at(bench.now + 100, full)
    assert "It ended UNKNOWN (the ResourceManager stopped naming it)." in said(bench, "a")


def test_what_the_store_has_not_taken_is_known() -> None:
    bench = Bench()
    bench.at(0, EpochAcquired(at_ms=0, epoch=1))
    assert is_stored(bench.arbiter)
    bench.is_store_held = True
    bench.at(0, RmAttached(at_ms=0, start_id="s1"))
    assert not is_stored(bench.arbiter)
