"""An arbiter that was stopped and wakes late: nobody is taken without notice, nor judged by old reports."""

import pytest

from tests.support.bench import Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases
from themis_arbiter.core.events import RmAttached, RmDetached, Timer
from themis_arbiter.core.lease import LeaseState


def contested() -> Bench:
    """`old` holds and uses all eight GPUs to 20 s, `new` waits and would win some at once."""
    bench = Bench().up(job("old", 8))
    bench.wake(500, Timer.ROUND)
    running(bench, "old")
    bench.report(1_000, job("new", 4, work=1_000.0), seq=2)
    return bench


def ends(bench: Bench) -> set[int]:
    return {x.end_ms for x in bench.arbiter.state.ledger if x.state is LeaseState.ACTIVE}


def drains(effects: list[object]) -> list[RequestDrain]:
    return [e for e in effects if isinstance(e, RequestDrain)]


@pytest.mark.parametrize("wakes_ms", [35_180, 23_000, 36_999])
def test_what_ended_meanwhile_ends_with_the_next_grid_end_and_losers_have_their_notice(wakes_ms: int) -> None:
    bench = contested()
    assert drains(list(bench.wake(wakes_ms, Timer.GRID))) == []
    assert ends(bench) == {40_000}
    (drain,) = drains(list(bench.wake(37_000, Timer.GRID)))
    assert drain.deadline_ms == 40_000
    assert ends(bench) == {60_000}, "those that stay were renewed"


def test_a_little_late_the_round_is_held_and_the_end_is_kept() -> None:
    bench = contested()
    (drain,) = drains(list(bench.wake(38_400, Timer.GRID)))
    assert drain.deadline_ms == 40_000


def test_very_late_nobody_loses_and_all_go_on_to_the_end_after() -> None:
    bench = contested()
    assert drains(list(bench.wake(38_600, Timer.GRID))) == []
    assert ends(bench) == {60_000}
    (drain,) = drains(list(bench.wake(57_000, Timer.GRID)))
    assert drain.deadline_ms == 60_000


def attach_again(bench: Bench, now_ms: int) -> SyncLeases:
    bench.at(now_ms - 1, RmDetached(at_ms=now_ms - 1, start_id="s1"))
    effects = bench.at(now_ms, RmAttached(at_ms=now_ms, start_id="s2"))
    (sync,) = of_type(effects, SyncLeases)
    assert isinstance(sync, SyncLeases)
    assert sync.drains
    return sync


def test_a_drain_that_nobody_may_have_heard_of_is_told_with_a_notice() -> None:
    bench = contested()
    bench.wake(17_000, Timer.GRID)
    # The ResourceManager was stopped just then: the drain was told, and no report says that it was applied.
    assert {deadline for _, deadline in attach_again(bench, 30_000).drains} == {33_000}


def test_a_drain_that_was_applied_keeps_its_deadline() -> None:
    bench = contested()
    (drain,) = drains(list(bench.wake(17_000, Timer.GRID)))
    bench.report(17_300, seq=drain.seq)
    assert {deadline for _, deadline in attach_again(bench, 19_900).drains} == {20_000}


def test_a_drain_with_time_left_keeps_its_deadline_heard_of_or_not() -> None:
    bench = contested()
    bench.wake(17_000, Timer.GRID)
    assert {deadline for _, deadline in attach_again(bench, 18_000).drains} == {20_000}


def test_a_gang_whose_start_may_be_in_a_report_that_nobody_has_read_is_not_taken_back() -> None:
    bench = Bench().up(job("gang", 4, gang=4))
    (grant,) = of_type(bench.wake(500, Timer.ROUND), GrantGpus)
    assert isinstance(grant, GrantGpus)
    due_ms = 500 + SHORT.gang_wait_ms
    assert drains(list(bench.wake(due_ms + 22_000, Timer.GANGS))) == []
    started = tuple(container(k, "gang", x.node_of_gpu) for k, x in enumerate(grant.leases))
    bench.report(due_ms + 22_001, job("gang", 0, gang=4), containers=started, seq=2)
    assert drains(list(bench.wake(due_ms + 22_000 + SHORT.gang_wait_ms, Timer.GANGS))) == []
    assert bench.states()["gang"] == ["active"] * 4


def test_a_gang_that_is_not_there_when_it_is_looked_at_again_goes_back() -> None:
    bench = Bench().up(job("gang", 4, gang=4))
    bench.wake(500, Timer.ROUND)
    due_ms = 500 + SHORT.gang_wait_ms
    bench.wake(due_ms + 22_000, Timer.GANGS)
    (drain,) = drains(list(bench.wake(due_ms + 22_000 + SHORT.gang_wait_ms, Timer.GANGS)))
    assert len(drain.lease_ids) == 4
