"""Live time follows the monotonic clock, and the wall clock only when it is anchored."""

import time

import pytest

from themis_arbiter.adapters.clock import SystemClock


def test_the_wall_clock_moves_it_only_where_it_is_anchored(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_ns, since_ns = 1_700_000_000_000_000_000, 5_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: since_ns)
    clock = SystemClock()
    assert clock.now_ms() == 1_700_000_000_000
    wall_ns -= 3 * 3_600 * 10**9  # somebody set it back three hours
    since_ns += 10**9
    assert clock.now_ms() == 1_700_000_001_000
    clock.anchor()  # a term begins
    assert clock.now_ms() == 1_700_000_000_000 - 3 * 3_600_000
    since_ns += 10**9
    assert clock.now_ms() == 1_700_000_001_000 - 3 * 3_600_000
