"""An engine for tests of what stands around it: takes events in, answers with effects where a test says so."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from themis_arbiter.core.events import Event
from themis_arbiter.core.types import Millis
from themis_arbiter.ports import Clock

T = TypeVar("T")
EventT = TypeVar("EventT")


class FakeEngine:
    """Keeps events in order. `failure` is raised by every call while it is set."""

    def __init__(self, clock: Clock, arbiter: Any = None) -> None:
        self.events: list[Event] = []
        self.failure: Exception | None = None
        self.on_event: Callable[[Event], None] = lambda _: None
        self.calls = 0
        self._clock, self._arbiter = clock, arbiter
        self._changed = threading.Condition()

    def submit(self, make: Callable[[Millis], Event]) -> None:
        if self.failure is not None:
            raise self.failure
        event = make(self._clock.now_ms())
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        self.on_event(event)

    def call(self, fn: Callable[[Any], T]) -> T:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return fn(self._arbiter)

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of a kind so far."""
        with self._changed:
            return [e for e in self.events if isinstance(e, kind)]

    def wait_for(self, kind: type[EventT], count: int = 1, timeout_s: float = 10.0) -> list[EventT]:
        """The events of a kind, once there are `count`. Errors: AssertionError where they do not come in time."""

        def found() -> list[EventT]:
            return [e for e in self.events if isinstance(e, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, timeout_s), (kind, count, self.events)
            return found()
