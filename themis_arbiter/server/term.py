"""A term: one reign of this arbiter, from taking the epoch until nothing of it runs; and the seat where services find it.

With a store of its own an arbiter has one term, the process's. In ZooKeeper it may have many, each with its own engine, journal
and store: what a term knew is nothing to the next one, which reads what the store and the ResourceManager know.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, TypeVar

from themis_arbiter.core.effects import Effect, RoundClosed
from themis_arbiter.core.events import EpochAcquired, Event
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.driver import Driver, Fence
from themis_arbiter.engine.loop import EngineError, EngineLoop
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.obs.logs import log_event
from themis_arbiter.ports import Clock, Journal, LeaseStore, Observer, ResourceManager
from themis_arbiter.server.journals import RotatingJournal

ViewT = TypeVar("ViewT")

_log = logging.getLogger(__name__)


class TimedArbiter(Arbiter):
    """An arbiter that tells how long the steps took that closed a round. The core itself has no clock."""

    def __init__(self, settings: Settings, tell_seconds: Callable[[float], None]) -> None:
        super().__init__(settings)
        self._tell_seconds = tell_seconds

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event."""
        started_ns = time.perf_counter_ns()
        effects = super().step(event)
        if any(isinstance(effect, RoundClosed) for effect in effects):
            self._tell_seconds((time.perf_counter_ns() - started_ns) / 1e9)
        return effects


class Seat:
    """Where services find the engine: they are made before it, because its driver acts through them, and outlive it.

    `empty` makes the error that tells why nobody sits here. Who may not act any more (`why_not`) sits here no longer, though
    its term has not been ended yet: a leader that wakes after a long freeze must not say for a moment that it leads.
    """

    def __init__(self, empty: Callable[[], EngineError], why_not: Callable[[], str] | None = None) -> None:
        self.loop: EngineLoop[Arbiter] | None = None
        self._empty, self._why_not = empty, why_not

    def submit(self, make: Callable[[Millis], Event]) -> None:
        """Hand the engine an event. Errors: EngineError."""
        self.taken().submit(make)

    def call(self, fn: Callable[[Arbiter], ViewT]) -> ViewT:
        """What `fn` says of the arbiter, asked between two steps. Errors: EngineError."""
        return self.taken().call(fn)

    @property
    def is_taken(self) -> bool:
        """Whether somebody sits here, and may act."""
        return self.loop is not None and not (self._why_not is not None and self._why_not())

    def taken(self) -> EngineLoop[Arbiter]:
        """The engine. Errors: EngineError where there is none."""
        loop = self.loop
        if loop is None or not self.is_taken:
            raise self._empty()
        return loop


class Term:
    """`begin`, and later `end`, each once.

    `on_failed` is called on the engine's thread when the engine itself failed: the next term's would too.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        clock: Clock,
        *,
        store: LeaseStore,
        journal: Journal,
        rm: ResourceManager,
        observers: Iterable[Observer],
        fence: Fence,
        on_failed: Callable[[str], None],
    ) -> None:
        self._store, self._journal, self._clock = store, journal, clock
        timers = TimerTable()
        driver: Driver[Any] = Driver(
            arbiter,
            store=store,
            rm=rm,
            journal=journal,
            timers=timers,
            clock=clock,
            observers=observers,
            fence=fence,
        )
        self.loop: Final[EngineLoop[Arbiter]] = EngineLoop(
            driver, clock, timers, on_failure=lambda error: on_failed(f"the engine failed: {error}")
        )

    def begin(self) -> EpochAcquired:
        """Take the epoch and let the engine run; returns what it began with. Errors: StoreError, EngineError."""
        first = take_over(self._store, self._clock)
        self.loop.start()
        self.loop.submit(lambda now_ms: replace(first, at_ms=now_ms))
        self.loop.call(lambda _arbiter: None)  # answered after the first step: from here on it leads
        return first

    def discard_journal(self) -> None:
        """Of a term that could not begin nothing is worth keeping."""
        if isinstance(self._journal, RotatingJournal):
            self._journal.discard()

    def end(self, timeout_s: float) -> bool:
        """Stop the engine and let go of journal and store; whether all of it ended in order."""
        try:
            self.loop.stop(timeout_s)
        except EngineError as error:
            # Its thread may still be in the store, so neither that nor the journal can be closed under it.
            log_event(_log, logging.ERROR, "the engine did not stop", error=str(error))
            return False
        try:
            self._journal.close()
        except OSError as error:
            log_event(_log, logging.ERROR, "the journal could not be closed", error=str(error))
            return False
        finally:
            self._store.close()
        return True
