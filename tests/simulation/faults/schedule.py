"""Virtual time: what is to happen when, and one that waits while the rest of the world goes on."""

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, Protocol

from themis_arbiter.core.types import Millis

RESEND_MS: Final[Millis] = 100
EVENTS_MAX: Final = 400_000  # of one schedule: more means that nothing gets on


class Source(Protocol):
    """Something that knows itself when it wants to run."""

    def next_at_ms(self) -> Millis | None:
        """When; past times mean now; None: not unless something else happens."""
        ...

    def run(self) -> None:
        """Do what is due."""
        ...


class Schedule:
    """Events in order of time, then of their making; then sources in the order in which they were added.

    `wait` may be called from within an event: the world goes on inside it, so that a call that blocks one process leaves
    the others free to do anything meanwhile.
    """

    def __init__(self, start_ms: Millis = 0) -> None:
        self.now_ms = start_ms
        self.sources: list[Source] = []
        self.after_each: Callable[[], None] = lambda: None
        self._heap: list[tuple[Millis, int, Callable[[], None]]] = []
        self._numbers = count()
        self._events = 0

    def after(self, delay_ms: Millis, do: Callable[[], None]) -> None:
        """Have `do` happen then."""
        heapq.heappush(self._heap, (self.now_ms + max(0, delay_ms), next(self._numbers), do))

    def wait(self, is_done: Callable[[], bool], until_ms: Millis) -> bool:
        """Let the world go on until `is_done` or the time has come; whether it is done."""
        while not is_done():
            if not self._run_next(until_ms):
                self.now_ms = max(self.now_ms, until_ms)
                return is_done()
        return True

    def run_until(self, until_ms: Millis) -> None:
        """Let the world go on until then."""
        self.wait(lambda: False, until_ms)

    def _run_next(self, until_ms: Millis) -> bool:
        at_ms = self._heap[0][0] if self._heap else until_ms + 1
        source: Source | None = None
        for one in self.sources:
            due_ms = one.next_at_ms()
            if due_ms is not None and due_ms < at_ms:
                at_ms, source = due_ms, one
        if at_ms > until_ms:
            return False
        self._events += 1
        assert self._events <= EVENTS_MAX, f"{EVENTS_MAX} events and only {self.now_ms} ms"
        self.now_ms = max(self.now_ms, at_ms)
        if source is not None:
            source.run()
        else:
            heapq.heappop(self._heap)[2]()
        self.after_each()
        return True


class Pipe:
    """One way of a connection: what is put in comes out in order, late, and not before `is_clear`, as in TCP."""

    def __init__(self, schedule: Schedule, delay_ms: Callable[[], Millis], is_clear: Callable[[], bool]) -> None:
        self._schedule, self._delay_ms, self._is_clear = schedule, delay_ms, is_clear
        self._under_way: deque[Callable[[], None]] = deque()
        self._last_ms: Millis = 0

    def put(self, arrive: Callable[[], None], at_least_ms: Millis = 0) -> None:
        """Send it; `at_least_ms` is the earliest time at which it may come out."""
        self._under_way.append(arrive)
        self._last_ms = max(self._last_ms, self._schedule.now_ms + self._delay_ms(), at_least_ms)
        self._schedule.after(self._last_ms - self._schedule.now_ms, self._come_out)

    def _come_out(self) -> None:
        if not self._under_way:
            return
        if self._is_clear():
            self._under_way.popleft()()
        else:
            self._schedule.after(RESEND_MS, self._come_out)
