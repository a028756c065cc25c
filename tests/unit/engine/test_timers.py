"""Wake-ups: at most one of each kind, the earliest first."""

from themis_arbiter.core.events import Timer
from themis_arbiter.engine.timers import TimerTable


def drain(table: TimerTable, now_ms: int) -> list[Timer]:
    found = []
    while (timer := table.pop_due(now_ms)) is not None:
        found.append(timer)
    return found


def test_the_earliest_comes_first_and_ties_go_by_name() -> None:
    table = TimerTable()
    for timer, at_ms in ((Timer.TIDY, 5), (Timer.ROUND, 7), (Timer.GRID, 5), (Timer.GANGS, 8)):
        table.set(timer, at_ms)
    assert table.next_at_ms() == 5
    assert drain(table, 7) == [Timer.GRID, Timer.TIDY, Timer.ROUND]
    assert table.next_at_ms() == 8


def test_setting_again_replaces() -> None:
    table = TimerTable()
    table.set(Timer.ROUND, 5)
    table.set(Timer.ROUND, 9)
    assert drain(table, 8) == []
    table.set(Timer.ROUND, 3)
    assert drain(table, 8) == [Timer.ROUND]
    assert table.next_at_ms() is None
