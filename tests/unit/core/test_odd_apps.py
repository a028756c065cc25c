"""Apps that vanish, lose their master or have not begun to ask: what becomes of their leases, and what is said of them."""

from dataclasses import replace

from tests.support.bench import NODES, Bench, container, job, of_type, running
from themis_arbiter.core.effects import AppEnded, ContainerLost, GrantGpus, RequestDrain, TellJob
from themis_arbiter.core.events import EndCause, JobReport, RmReported, Timer
from themis_arbiter.core.lease import Cause


def held_by(name: str, report: JobReport) -> Bench:
    """`name` holds all eight GPUs and runs on them."""
    bench = Bench().up(report)
    bench.wake(500, Timer.ROUND)
    assert bench.states() == {name: ["granted"] * 8}
    running(bench, name)
    return bench


def test_an_app_that_a_full_report_does_not_name_has_ended_and_its_gpus_are_anothers() -> None:
    bench = held_by("gone", job("gone", 8))
    full = RmReported(at_ms=2_000, start_id="s1", is_full=True, nodes=NODES, jobs=(job("next", 8),), update_seq=2)
    effects = bench.at(2_000, full)
    (ended,) = of_type(effects, AppEnded)
    assert isinstance(ended, AppEnded)
    assert (ended.app_id, ended.final_status) == ("gone", "UNKNOWN")
    (drain,) = of_type(bench.wake(2_500, Timer.TIDY), RequestDrain)
    assert isinstance(drain, RequestDrain)
    assert {x.cause for x in bench.arbiter.state.ledger} == {Cause.APP_ENDED}
    bench.report(2_700, seq=drain.seq)
    assert bench.states() == {}
    (grant,) = of_type(bench.wake(3_200, Timer.ROUND), GrantGpus)
    assert isinstance(grant, GrantGpus)
    assert {x.job_id for x in grant.leases} == {"next"}


def test_an_app_that_lost_its_master_keeps_its_leases_for_the_next_one_to_use() -> None:
    bench = held_by("orphan", job("orphan", 8, gang=8))
    before = {x.lease_id for x in bench.arbiter.state.ledger}
    gone = tuple(
        replace(container(k, "orphan", n), is_ended=True, exit_status=-100, end_cause=EndCause.AFTER_APP)
        for k, n in enumerate(["n0"] * 4 + ["n1"] * 4)
    )
    effects = bench.report(2_000, job("orphan", 0, gang=8), containers=gone, seq=2)
    assert {e.cause for e in of_type(effects, ContainerLost) if isinstance(e, ContainerLost)} == {EndCause.AFTER_APP}
    # Its second master asks within the debounce after which what nobody wants is taken back.
    bench.report(2_300, job("orphan", 8, gang=8), seq=2)
    bench.wake(2_500, Timer.TIDY)
    assert {x.lease_id for x in bench.arbiter.state.ledger if x.state.value == "active"} == before


def test_a_master_that_takes_longer_to_come_back_wins_its_gpus_anew() -> None:
    bench = held_by("orphan", job("orphan", 8, gang=8))
    gone = tuple(
        replace(container(k, "orphan", n), is_ended=True, exit_status=-100) for k, n in enumerate(["n0"] * 4 + ["n1"] * 4)
    )
    bench.report(2_000, job("orphan", 0, gang=8), containers=gone, seq=2)
    (drain,) = of_type(bench.wake(2_500, Timer.TIDY), RequestDrain)
    assert isinstance(drain, RequestDrain)
    assert {x.cause for x in bench.arbiter.state.ledger} == {Cause.UNWANTED}
    bench.report(2_700, seq=drain.seq)
    bench.report(9_000, job("orphan", 8, gang=8), seq=drain.seq)
    (grant,) = of_type(bench.wake(9_500, Timer.ROUND), GrantGpus)
    assert isinstance(grant, GrantGpus)
    assert len(grant.leases) == 8


def test_who_has_not_begun_to_ask_is_told_nothing_yet_since_yarn_would_forget_it() -> None:
    bench = Bench().up()
    assert of_type(bench.report(100, job("huge", 0, gang=9)), TellJob) == []
    (told,) = of_type(bench.report(5_000, job("huge", 9, gang=9)), TellJob)
    assert isinstance(told, TellJob)
    assert "needs 9 GPUs at once" in told.text
    assert of_type(bench.report(6_000, job("huge", 9, gang=9)), TellJob) == []  # once
