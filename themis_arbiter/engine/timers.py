"""Wake-ups that the core has asked for: of each kind at most one, so their number is bounded by the kinds there are."""

from typing import Protocol

from themis_arbiter.core.events import Timer
from themis_arbiter.core.types import Millis


class Timers(Protocol):
    """Where the driver leaves wake-ups. Whoever keeps them sends `Woke(timer)` when their time has come."""

    def set(self, timer: Timer, at_ms: Millis) -> None:
        """Wake at `at_ms`, which may be past: then at once. Replaces what was set for this timer."""
        ...


class TimerTable:
    """Timers of one thread; the due one with the earliest time comes first, ties in order of the timer's name."""

    def __init__(self) -> None:
        self._at_ms: dict[Timer, Millis] = {}

    def set(self, timer: Timer, at_ms: Millis) -> None:
        """Wake at `at_ms`; replaces what was set for this timer."""
        self._at_ms[timer] = at_ms

    def next_at_ms(self) -> Millis | None:
        """When the earliest wake-up is due; None where none is set."""
        return min(self._at_ms.values(), default=None)

    def pop_due(self, now_ms: Millis) -> Timer | None:
        """Take the earliest wake-up that is due by `now_ms`; None where none is."""
        due = [(at_ms, timer.value, timer) for timer, at_ms in self._at_ms.items() if at_ms <= now_ms]
        if not due:
            return None
        timer = min(due)[2]
        del self._at_ms[timer]
        return timer
