"""Clocks. Live time is the wall clock's at start and the monotonic clock's from then on."""

import time
from typing import Final

from themis_arbiter.core.types import CoreError, Millis

_NS_IN_MS: Final = 1_000_000


class SystemClock:
    """Milliseconds since 1970, anchored once: later jumps of the wall clock (NTP, an admin, a leap second) move nothing."""

    def __init__(self) -> None:
        self._anchor_ns = 0
        self.anchor()

    def anchor(self) -> None:
        """Take the wall clock's time anew; the one moment at which this clock may fall. Only for who has no engine running.

        An arbiter that stood by for weeks, or whose machine slept, must not begin a term at a time that nobody else has: the
        ends of the leases that it takes over are times of day.
        """
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> Millis:
        """The present; never falls. Any thread may call this."""
        return (self._anchor_ns + time.monotonic_ns()) // _NS_IN_MS


class ManualClock:
    """A clock that stands still until it is told the time, for virtual time and for tests."""

    def __init__(self, now_ms: Millis = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> Millis:
        """The time last told."""
        return self._now_ms

    def move_to(self, now_ms: Millis) -> None:
        """It is now `now_ms`. Errors: CoreError where that is before the time last told."""
        if now_ms < self._now_ms:
            raise CoreError(f"time cannot fall from {self._now_ms} to {now_ms}")
        self._now_ms = now_ms

    def advance(self, by_ms: Millis) -> None:
        """`by_ms` have passed."""
        self.move_to(self._now_ms + by_ms)
