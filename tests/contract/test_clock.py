"""What every clock must do."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import pytest

from themis_arbiter.adapters.clock import ManualClock, SystemClock
from themis_arbiter.core.types import CoreError
from themis_arbiter.ports import Clock


def _manual() -> tuple[Clock, Callable[[int], None]]:
    clock = ManualClock(1_700_000_000_000)
    return clock, clock.advance


def _system() -> tuple[Clock, Callable[[int], None]]:
    return SystemClock(), lambda by_ms: time.sleep(by_ms / 1000)


CLOCKS: Final = {"manual": _manual, "system": _system}


@pytest.fixture(params=sorted(CLOCKS))
def clock_and_wait(request: pytest.FixtureRequest) -> tuple[Clock, Callable[[int], None]]:
    return CLOCKS[request.param]()


def test_time_is_whole_milliseconds_and_never_falls(clock_and_wait: tuple[Clock, Callable[[int], None]]) -> None:
    clock, wait = clock_and_wait
    seen = [clock.now_ms()]
    for _ in range(20):
        wait(2)
        seen.append(clock.now_ms())
    assert all(type(x) is int for x in seen)
    assert all(later - earlier >= 2 for earlier, later in pairwise(seen))


def test_time_moves_as_fast_as_it_passes(clock_and_wait: tuple[Clock, Callable[[int], None]]) -> None:
    clock, wait = clock_and_wait
    start_ms = clock.now_ms()
    wait(50)
    assert 50 <= clock.now_ms() - start_ms < 5_000


def test_system_clock_starts_at_the_wall_clock() -> None:
    before_ms = time.time_ns() // 1_000_000
    assert before_ms - 1 <= SystemClock().now_ms() <= time.time_ns() // 1_000_000 + 1


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_jumps_of_the_wall_clock_move_nothing(monkeypatch: pytest.MonkeyPatch, jump_s: int) -> None:
    clock = SystemClock()
    before_ms = clock.now_ms()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump_s * 10**9)
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + jump_s)
    assert 0 <= clock.now_ms() - before_ms < 5_000


def test_manual_clock_refuses_to_go_back() -> None:
    clock = ManualClock(10)
    with pytest.raises(CoreError, match="cannot fall from 10 to 9"):
        clock.move_to(9)
    assert clock.now_ms() == 10
