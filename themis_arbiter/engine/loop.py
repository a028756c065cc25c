"""The one live thread: takes events from a bounded queue, wakes for timers, lets others look between steps.

The loop stamps an event's time when it takes it from the queue, not when somebody put it there: times then never fall,
whoever submits and however long the queue is. Each turn handles at most one timer, one event and the calls that wait,
so that a storm of one kind cannot starve the others.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, Generic, TypeAlias, TypeVar

from themis_arbiter.core.events import Event, Woke
from themis_arbiter.core.types import Epoch, Millis
from themis_arbiter.engine.driver import ArbiterT, Driver
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import Clock

QUEUE_MAX: Final = 10_000  # events that wait; reports are level-triggered, so who is refused sends a full one later
CALLS_MAX: Final = 64  # views that wait for the engine
CALL_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.0
FENCE_CHECK_MS: Final = 2_000  # how often the store is asked whether somebody else leads
IDLE_SECONDS_MAX: Final = 1.0  # the longest sleep, so that a clock that disagrees with the thread's wait does no harm

MakeEvent: TypeAlias = Callable[[Millis], Event]
ViewT = TypeVar("ViewT")

_log = logging.getLogger(__name__)


class EngineError(Exception):
    """The engine could not take what was asked of it; the caller may try again or give up."""


class QueueFull(EngineError):
    """More waits than the engine may hold. Whoever reports state sends all of it later."""


class EngineStopped(EngineError):
    """The engine is not running."""


class NotLeading(EngineStopped):
    """This arbiter stands by. `leader` is where the one that leads can be called ("": nobody known to), `epoch` its epoch."""

    def __init__(self, text: str, *, leader: str = "", epoch: Epoch = 0) -> None:
        super().__init__(text)
        self.leader: Final = leader
        self.epoch: Final = epoch


class CallTimeout(EngineError):
    """The engine did not come to a call in time; it will not run any more."""


class EngineLoop(Generic[ArbiterT]):
    """Runs a driver on a thread of its own. `timers` is the table that was given to the driver.

    It ends by `stop`, when the driver is fenced, or by an exception: `failure` then holds it and `on_failure` is called
    with it, on the engine's thread, as the last thing that thread does. The journal stays open: its owner closes it.
    """

    def __init__(
        self,
        driver: Driver[ArbiterT],
        clock: Clock,
        timers: TimerTable,
        *,
        on_failure: Callable[[Exception], None] | None = None,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._driver, self._clock, self._timers = driver, clock, timers
        self._on_failure, self._queue_max = on_failure, queue_max
        self._events: deque[MakeEvent] = deque()
        self._calls: deque[tuple[Future[Any], Callable[[ArbiterT], Any]]] = deque()
        self._changed = threading.Condition()
        self._is_open = False  # takes events and calls
        self._last_ms: Millis = 0
        self._fence_due_ms: Millis = 0
        self._thread = threading.Thread(target=self._run, name="themis-engine", daemon=True)
        self.failure: Exception | None = None

    @property
    def is_running(self) -> bool:
        """Whether events are taken."""
        return self._is_open

    @property
    def queued(self) -> int:
        """Events that wait, for metrics."""
        return len(self._events)

    def start(self) -> None:
        """Start the thread; a loop is started once."""
        self.open()
        self._thread.start()

    def open(self) -> None:
        """`start` without the thread, for virtual time: whoever calls this calls `turn` when `due_in_s` says so."""
        self._is_open = True

    def due_in_s(self) -> float:
        """How long until a turn would do something; 0 or less: now."""
        return 0.0 if self._events or self._calls else self._delay_s()

    def turn(self) -> bool:
        """At most one timer, one event and the calls that wait, and a look at the fence; False: the loop is over.

        Errors: whatever a step raises; the arbiter must not be stepped again then.
        """
        if not self._is_open or self._driver.is_fenced:
            return False
        self._turn()
        self._check_fence()
        return True

    def submit(self, make: MakeEvent) -> None:
        """Queue an event; `make` gets the time and is called on the engine's thread. Any thread may call this.

        Errors: QueueFull (nothing was queued), EngineStopped.
        """
        with self._changed:
            self._check_open()
            if len(self._events) >= self._queue_max:
                raise QueueFull(f"{self._queue_max} events wait already")
            self._events.append(make)
            self._changed.notify()

    def call(self, look: Callable[[ArbiterT], ViewT], timeout_s: float = CALL_SECONDS) -> ViewT:
        """What `look` returns of the arbiter between two steps. It must change nothing and return nothing mutable.

        Any thread but the engine's may call this. Errors: QueueFull, EngineStopped, CallTimeout, and what `look` raises.
        """
        assert threading.current_thread() is not self._thread, "the engine would wait for itself"
        future: Future[ViewT] = Future()
        with self._changed:
            self._check_open()
            if len(self._calls) >= CALLS_MAX:
                raise QueueFull(f"{CALLS_MAX} calls wait already")
            self._calls.append((future, look))
            self._changed.notify()
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as err:
            if future.cancel() or not future.done():
                raise CallTimeout(f"the engine did not answer within {timeout_s} s") from err
            raise  # `look` itself raised a TimeoutError

    def request_stop(self) -> None:
        """Let the thread end after the step that it is in. Events that wait are dropped. Any thread may call this."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def stop(self, timeout_s: float = STOP_SECONDS) -> None:
        """`request_stop`, then `join`. Errors: EngineError where a step takes longer than that."""
        self.request_stop()
        self.join(timeout_s)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended. Errors: EngineError where it has not within `timeout_s`."""
        if self._thread.ident is None:
            return  # never started
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise EngineError(f"the engine has not ended within {timeout_s} s")

    def _check_open(self) -> None:
        if not self._is_open:
            raise EngineStopped("the engine is not running") from self.failure

    def _run(self) -> None:
        try:
            while self._wait():
                self.turn()
            self._driver.journal.flush()
        except Exception as err:  # noqa: BLE001 - the thread's end: the owner is told and ends the process
            self.failure = err
            _log.exception("the engine failed")
        self._close()
        if self.failure is not None and self._on_failure is not None:
            self._on_failure(self.failure)

    def _wait(self) -> bool:
        """Sleep until there is something to do; False: stop. The journal is flushed before each sleep."""
        is_flushed = False
        while True:
            with self._changed:
                if not self._is_open or self._driver.is_fenced:
                    return False
                delay_s = self._delay_s()
                if self._events or self._calls or delay_s <= 0:
                    return True
                if is_flushed:
                    self._changed.wait(delay_s)
                    continue
            self._driver.journal.flush()  # outside the lock: a slow disk must not hold up who submits
            is_flushed = True

    def _delay_s(self) -> float:
        next_ms = self._timers.next_at_ms()
        due_ms = self._fence_due_ms if next_ms is None else min(next_ms, self._fence_due_ms)
        return min(IDLE_SECONDS_MAX, (due_ms - self._now_ms()) / 1000)

    def _check_fence(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._fence_due_ms:
            self._fence_due_ms = now_ms + FENCE_CHECK_MS
            self._driver.check_fence()

    def _turn(self) -> None:
        timer = self._timers.pop_due(self._now_ms())
        if timer is not None:
            self._driver.handle(Woke(at_ms=self._now_ms(), timer=timer))
        with self._changed:
            make = self._events.popleft() if self._events else None
            calls = tuple(self._calls)
            self._calls.clear()
        if make is not None:
            self._driver.handle(make(self._now_ms()))
        for future, look in calls:
            self._answer(future, look)

    def _answer(self, future: "Future[Any]", look: Callable[[ArbiterT], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return  # the caller has given up
        try:
            future.set_result(look(self._driver.arbiter))
        except Exception as err:  # noqa: BLE001 - a view that fails is its caller's matter
            future.set_exception(err)

    def _now_ms(self) -> Millis:
        self._last_ms = max(self._last_ms, self._clock.now_ms())
        return self._last_ms

    def _close(self) -> None:
        with self._changed:
            self._is_open = False
            self._events.clear()
            calls = tuple(self._calls)
            self._calls.clear()
        for future, _ in calls:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineStopped("the engine ended before it came to this call"))
