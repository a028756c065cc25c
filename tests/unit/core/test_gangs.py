"""A gang's leases between being won and being used: whatever becomes of a part of them, no GPU is kept for nobody."""

from dataclasses import replace

from tests.support.bench import NODES, Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.core.effects import GrantGpus, RequestDrain
from themis_arbiter.core.events import AdminRequested, AdminVerb, RmReported, Timer
from themis_arbiter.core.lease import LeaseState


def partly_free() -> Bench:
    """The gang of 4, b, was promised GPUs of a; three of them are free, the fourth is not yet."""
    bench = Bench().up(job("a", 8))
    bench.wake(500, Timer.ROUND)
    running(bench, "a")
    bench.report(8_000, job("b", 4, gang=4, at=8_000), seq=2)
    (drain,) = of_type(bench.wake(17_000, Timer.GRID), RequestDrain)
    assert isinstance(drain, RequestDrain)
    lease = bench.arbiter.state.ledger.get(drain.lease_ids[0])
    assert lease is not None
    first = 0 if lease.node_of_gpu == "n0" else 4
    gone = tuple(container(first + k, "a", lease.node_of_gpu, ended=True) for k in range(3))
    bench.report(18_000, job("a", 3), containers=gone, seq=drain.seq)
    assert bench.states()["b"] == ["pending"] * 3 + ["waiting"]
    return bench


def test_what_waited_for_the_rest_of_its_gang_goes_when_the_job_ends() -> None:
    bench = partly_free()
    bench.report(18_100, job("b", 0, gang=4, at=8_000, finished=True), seq=4)
    bench.wake(18_600, Timer.TIDY)
    assert "b" not in bench.states(), "a GPU is kept for a job that is over"


def test_where_the_rest_of_a_gang_is_taken_back_what_waited_for_it_is_granted_and_goes_its_usual_way() -> None:
    bench = partly_free()
    (waiting,) = [x for x in bench.arbiter.state.ledger.of_job("b") if x.state is LeaseState.WAITING]
    request = AdminRequested(
        at_ms=18_100, request_id="r", actor="admin", verb=AdminVerb.REVOKE, target=waiting.lease_id, value=0.0
    )
    (grant,) = of_type(bench.at(18_100, request), GrantGpus)
    assert isinstance(grant, GrantGpus)
    assert len(grant.leases) == 3
    (drain,) = of_type(bench.wake(18_100 + SHORT.gang_wait_ms, Timer.GANGS), RequestDrain)
    assert isinstance(drain, RequestDrain)
    assert set(drain.lease_ids) == {x.lease_id for x in grant.leases}


def test_a_time_to_show_up_that_was_set_before_takes_nothing_that_is_promised() -> None:
    bench = partly_free()
    state = bench.arbiter.state
    state.gang_deadlines["b"] = 18_200  # of GPUs that a round has moved since
    state.wake_at(Timer.GANGS, 18_200)
    assert of_type(bench.wake(18_200, Timer.GANGS), RequestDrain) == []
    assert bench.states()["b"] == ["pending"] * 3 + ["waiting"]


def test_what_was_won_just_now_has_its_own_time_to_be_used() -> None:
    bench = Bench().up(job("g", 4, gang=4))
    bench.wake(500, Timer.ROUND)
    node = next(iter(bench.arbiter.state.ledger)).node_of_gpu
    running(bench, "g", " ".join([node] * 4))
    lost = tuple(replace(n, is_lost=True) for n in NODES if n.node == node)
    ended = tuple(container(k, "g", node, ended=True) for k in range(4))
    again = job("g", 4, gang=4)
    bench.at(4_000, RmReported(at_ms=4_000, start_id="s1", nodes=lost, jobs=(again,), containers=ended, update_seq=2))
    (grant,) = of_type(bench.wake(5_400, Timer.ROUND), GrantGpus)
    assert isinstance(grant, GrantGpus)
    assert of_type(bench.wake(5_500, Timer.GANGS), RequestDrain) == [], "that was the time of its first GPUs"
    assert len(of_type(bench.wake(5_500 + SHORT.gang_wait_ms, Timer.GANGS), RequestDrain)) == 1
