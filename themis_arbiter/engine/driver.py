"""One step at a time: event in, core steps, effects performed strictly in order, what came of them handled at once.

Order within a step: record in the journal, perform the effects, tell the observers. The journal comes before the deeds so
that a crash in the middle of them leaves a record of what was meant. What the store says of a batch is an event of its
own, stepped when the effects before it are done and before any other event, so that nothing can slip in between a
commit and the grants that wait for it.

The driver knows no threads and no time of its own: the live loop and the simulator call the same `handle`.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, assert_never

from themis_arbiter.core.effects import (
    AdminAnswered,
    AppEnded,
    ContainerLost,
    Effect,
    GrantGpus,
    LeasesMoved,
    PersistLeases,
    RequestDrain,
    RoundClosed,
    StandDown,
    SyncLeases,
    TellJob,
    WakeAt,
    WithdrawLeases,
)
from themis_arbiter.core.events import Batch, EpochAcquired, Event, LeasesPersisted, StoreFailed
from themis_arbiter.core.types import CoreError, Epoch, Millis
from themis_arbiter.engine.timers import Timers
from themis_arbiter.ports import (
    Clock,
    Journal,
    LeaseStore,
    Observer,
    ResourceManager,
    StaleEpochError,
    StoreError,
)

FOR_OBSERVERS: Final = (LeasesMoved, RoundClosed, AppEnded, ContainerLost, AdminAnswered)  # nothing is to be done about them
FOLLOW_UPS_MAX: Final = 1_000  # of one event; more means that the core answers each failed commit with another

_log = logging.getLogger(__name__)


class Stepping(Protocol):
    """What the engine needs of the arbiter."""

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event in. Errors: CoreError, which is a programming error."""
        ...


ArbiterT = TypeVar("ArbiterT", bound=Stepping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """When to stop: `why_not` says why the arbiter may not act now ("": it may); `on_stale_epoch` is told that it stopped."""

    on_stale_epoch: Callable[[str], None] | None = None
    why_not: Callable[[], str] | None = None


class Driver(Generic[ArbiterT]):
    """Performs what the arbiter decides. One thread at a time may call it.

    It is fenced when a commit finds that another arbiter leads, and when `fence.why_not`, which is asked before each deed, says
    why this one may not act any more: `fence.on_stale_epoch` is called once, nothing more reaches the world, and `handle`
    does nothing. A driver that was fenced never comes back; a new term takes a new one.
    """

    def __init__(
        self,
        arbiter: ArbiterT,
        *,
        store: LeaseStore,
        rm: ResourceManager,
        journal: Journal,
        timers: Timers,
        clock: Clock,
        observers: Iterable[Observer] = (),
        fence: Fence | None = None,
    ) -> None:
        self.arbiter: Final = arbiter
        self.journal: Final = journal
        self.observer_failures: Final[Counter[str]] = Counter()  # by the observer's type
        self._is_fenced = False
        self._why_fenced = ""
        self._store, self._rm, self._timers, self._clock = store, rm, timers, clock
        self._observers = tuple(observers)
        fence = fence if fence is not None else Fence()
        self._on_stale_epoch, self._why_not = fence.on_stale_epoch, fence.why_not
        self._last_ms: Millis = 0
        self._epoch: Epoch = 0

    @property
    def is_fenced(self) -> bool:
        """Whether a commit found that another arbiter leads."""
        return self._is_fenced

    def handle(self, event: Event) -> None:
        """Step `event` and everything that follows from it at once.

        Errors: whatever the core, the journal or a port raises is passed on after the journal was flushed. These are
        programming errors (a port's operating errors arrive as events), or a disk that does not take the journal; the
        arbiter's state is then unknown and it must not be stepped again.
        """
        if self.is_fenced:
            return
        try:
            self._handle(event)
        except Exception:
            self.journal.flush()
            raise
        if self._is_fenced:  # only now
            self._stand_down()

    def check_fence(self) -> None:
        """Ask the store whether this is still its epoch: an arbiter that has nothing to write would never learn of another."""
        if self.is_fenced or not self._epoch:
            return
        try:
            epoch = self._store.epoch()
            why = "" if epoch == self._epoch else f"another arbiter has taken epoch {epoch} on this store"
        except StaleEpochError as err:
            why = str(err)
        except StoreError:
            return  # a commit will tell, and try again
        if why:
            self._fence(why)
            self._stand_down()

    def _fence(self, why: str) -> None:
        self._is_fenced = True
        self._why_fenced = self._why_fenced or why

    def _stand_down(self) -> None:
        self.journal.flush()
        if self._on_stale_epoch is not None:
            self._on_stale_epoch(self._why_fenced)

    def _handle(self, event: Event) -> None:
        pending: deque[Event] = deque([event])
        handled = 0
        while pending:
            handled += 1
            if handled > FOLLOW_UPS_MAX:
                raise CoreError(f"more than {FOLLOW_UPS_MAX} events follow from one {type(event).__name__}")
            pending.extend(self._step(pending.popleft()))

    def _step(self, event: Event) -> list[Event]:
        """One step; returns the events that follow from its effects, in their order."""
        if event.at_ms < self._last_ms:
            raise CoreError(f"time fell from {self._last_ms} to {event.at_ms}: {event}")
        self._last_ms = event.at_ms
        if isinstance(event, EpochAcquired):
            self._epoch = event.epoch
        effects = self.arbiter.step(event)
        self.journal.record(event, effects)
        follow_ups: list[Event] = []
        for effect in [e for e in effects if not isinstance(e, FOR_OBSERVERS)]:
            if self._is_fenced:
                break  # another arbiter leads: what this one still wants is nobody's business
            follow_up = self._perform(effect)
            if follow_up is not None:
                follow_ups.append(follow_up)
        self._tell_observers(event, effects)
        return follow_ups

    def _perform(self, effect: Effect) -> Event | None:
        if self._why_not is not None and (why := self._why_not()):
            self._fence(why)
            return None
        match effect:
            case PersistLeases(batch=batch):
                return self._commit(batch)
            case SyncLeases():
                self._rm.sync(effect)
            case GrantGpus():
                self._rm.grant(effect)
            case RequestDrain():
                self._rm.drain(effect)
            case WithdrawLeases():
                self._rm.withdraw(effect)
            case StandDown(reason=reason):
                self._fence(reason)
            case TellJob():
                self._rm.tell(effect)
            case WakeAt(timer=timer, at_ms=at_ms):
                self._timers.set(timer, at_ms)
            case LeasesMoved() | RoundClosed() | AppEnded() | ContainerLost() | AdminAnswered():
                pass
            case _:
                assert_never(effect)
        return None

    def _commit(self, batch: Batch) -> Event:
        try:
            self._store.commit(batch)
        except StoreError as err:
            if isinstance(err, StaleEpochError):
                self._fence(f"another arbiter leads on this store: {err}")
            reason = f"{type(err).__name__}: {err}"
            return StoreFailed(at_ms=self._now_ms(), batch_no=batch.batch_no, reason=reason)
        return LeasesPersisted(at_ms=self._now_ms(), batch_no=batch.batch_no)

    def _now_ms(self) -> Millis:
        """A commit may take long, so the time after it is asked for, not carried over."""
        return max(self._last_ms, self._clock.now_ms())

    def _tell_observers(self, event: Event, effects: tuple[Effect, ...]) -> None:
        for observer in self._observers:
            try:
                observer.observe(event, effects)
            except Exception:  # noqa: BLE001 - a metric that cannot be drawn is no reason to stop scheduling
                name = type(observer).__name__
                self.observer_failures[name] += 1
                if self.observer_failures[name] == 1:  # the first tells all, the count tells the rest
                    _log.exception("observer %s failed on %s", name, type(event).__name__)
