"""The live thread: times never fall, nobody starves, limits hold, and it ends when and as it should."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.core.effects import Effect, PersistLeases, WakeAt
from themis_arbiter.core.events import Batch, Event, RmAttached, Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError
from themis_arbiter.engine import loop as loop_module
from themis_arbiter.engine.driver import Driver
from themis_arbiter.engine.loop import CallTimeout, EngineError, EngineLoop, EngineStopped, MakeEvent, QueueFull
from themis_arbiter.engine.timers import TimerTable

PATIENCE_S: Final = 20.0


class Recording:
    """An arbiter that writes down what it was told and answers by `answer`; `gate` can hold its steps up."""

    def __init__(self, answer: Callable[[Event], tuple[Effect, ...]]) -> None:
        self.told: list[Event] = []
        self.answer = answer
        self.entered, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def step(self, event: Event) -> tuple[Effect, ...]:
        self.told.append(event)
        self.entered.set()
        assert self.gate.wait(PATIENCE_S)
        return self.answer(event)


class NoGate:
    def sync(self, effect: Any) -> None: ...
    def grant(self, effect: Any) -> None: ...
    def drain(self, effect: Any) -> None: ...
    def withdraw(self, effect: Any) -> None: ...

    def tell(self, effect: Any) -> None: ...


class Live:
    def __init__(self, answer: Callable[[Event], tuple[Effect, ...]], queue_max: int = 100) -> None:
        self.arbiter = Recording(answer)
        self.disk = MemoryDisk(epoch=1)
        self.failures: list[Exception] = []
        timers, clock = TimerTable(), SystemClock()
        self.driver: Driver[Recording] = Driver(
            self.arbiter,
            store=MemoryStore(self.disk),
            rm=NoGate(),
            journal=MemoryJournal(Settings()),
            timers=timers,
            clock=clock,
        )
        self.loop = EngineLoop(self.driver, clock, timers, on_failure=self.failures.append, queue_max=queue_max)
        self.loop.start()

    def told(self, count: int) -> list[Event]:
        """The first `count` events, once they are there."""
        return self.loop.call(lambda a: list(a.told)) if _wait_for(lambda: len(self.arbiter.told) >= count) else []

    def hold(self) -> None:
        """Keep the engine inside a step until `arbiter.gate` is set."""
        self.arbiter.gate.clear()
        self.arbiter.entered.clear()
        self.loop.submit(attached)
        assert self.arbiter.entered.wait(PATIENCE_S)


def _wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.002)
    return True


def attached(at_ms: int) -> Event:
    return RmAttached(at_ms=at_ms, start_id="s")


@pytest.fixture
def make() -> Iterator[Callable[..., Live]]:
    lives: list[Live] = []

    def build(answer: Callable[[Event], tuple[Effect, ...]] = lambda _: (), queue_max: int = 100) -> Live:
        lives.append(Live(answer, queue_max))
        return lives[-1]

    yield build
    for live in lives:
        live.arbiter.gate.set()
        live.loop.stop()


def test_times_never_fall_whoever_submits(make: Callable[..., Live]) -> None:
    live = make(queue_max=10_000)

    def submit_many() -> None:
        for _ in range(200):
            live.loop.submit(attached)

    threads = [threading.Thread(target=submit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = [e.at_ms for e in live.told(800)]
    assert len(times) == 800
    assert times == sorted(times)


def test_events_of_one_thread_keep_their_order(make: Callable[..., Live]) -> None:
    live = make()
    makes: list[MakeEvent] = [lambda at_ms, k=k: RmAttached(at_ms=at_ms, start_id=f"s{k}") for k in range(50)]  # type: ignore[misc]
    for one in makes:
        live.loop.submit(one)
    assert [getattr(e, "start_id", "") for e in live.told(50)] == [f"s{k}" for k in range(50)]


def test_timers_come_in_time(make: Callable[..., Live]) -> None:
    def answer(event: Event) -> tuple[Effect, ...]:
        return () if isinstance(event, Woke) else (WakeAt(timer=Timer.GRID, at_ms=event.at_ms + 60),)

    live = make(answer)
    live.loop.submit(attached)
    first, woke = live.told(2)
    assert isinstance(woke, Woke)
    assert 60 <= woke.at_ms - first.at_ms < 2_000


def test_a_timer_that_is_always_due_does_not_starve_events_or_calls(make: Callable[..., Live]) -> None:
    live = make(lambda e: (WakeAt(timer=Timer.GRID, at_ms=e.at_ms),))
    for _ in range(30):
        live.loop.submit(attached)
    _wait_for(lambda: sum(isinstance(e, RmAttached) for e in list(live.arbiter.told)) == 30)
    assert live.loop.call(lambda a: len(a.told)) >= 30


def test_a_full_queue_refuses_and_nothing_is_lost(make: Callable[..., Live]) -> None:
    live = make(queue_max=3)
    live.hold()
    for _ in range(3):
        live.loop.submit(attached)
    with pytest.raises(QueueFull, match="3 events wait"):
        live.loop.submit(attached)
    assert live.loop.queued == 3
    live.arbiter.gate.set()
    assert len(live.told(4)) == 4
    live.loop.submit(attached)
    assert len(live.told(5)) == 5


def test_a_call_sees_the_arbiter_between_steps(make: Callable[..., Live]) -> None:
    live = make()
    caller = live.loop.call(lambda a: (threading.current_thread().name, len(a.told)))
    assert caller == ("themis-engine", 0)


def test_what_a_call_raises_is_its_callers(make: Callable[..., Live]) -> None:
    live = make()
    for error in (KeyError("no such app"), TimeoutError("its own")):

        def look(_: Recording, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error), match=str(error.args[0])):
            live.loop.call(look)
    assert live.loop.is_running


def test_a_call_that_waits_too_long_is_given_up_and_never_runs(make: Callable[..., Live]) -> None:
    live = make()
    live.hold()
    ran: list[int] = []
    with pytest.raises(CallTimeout):
        live.loop.call(lambda _: ran.append(1), timeout_s=0.05)
    live.arbiter.gate.set()
    assert live.loop.call(lambda _: list(ran)) == []


def test_calls_have_a_limit(make: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "CALLS_MAX", 1)
    live = make()
    live.hold()
    waiting = threading.Thread(target=lambda: live.loop.call(lambda _: None))
    waiting.start()
    _wait_for(lambda: len(live.loop._calls) == 1)
    with pytest.raises(QueueFull, match="1 calls wait"):
        live.loop.call(lambda _: None)
    live.arbiter.gate.set()
    waiting.join(PATIENCE_S)


def test_it_stops_within_a_second_and_takes_nothing_more(make: Callable[..., Live]) -> None:
    live = make(lambda e: (WakeAt(timer=Timer.TIDY, at_ms=e.at_ms + 3_600_000),))
    live.loop.submit(attached)
    live.told(1)
    start = time.monotonic()
    live.loop.stop()
    assert time.monotonic() - start < 1.0
    with pytest.raises(EngineStopped):
        live.loop.submit(attached)
    with pytest.raises(EngineStopped):
        live.loop.call(lambda _: None)
    assert (live.loop.failure, live.failures) == (None, [])


def test_calls_that_wait_at_the_end_are_told(make: Callable[..., Live]) -> None:
    live = make()
    live.hold()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            live.loop.call(lambda _: None, timeout_s=PATIENCE_S)
        except EngineStopped as err:
            errors.append(err)

    waiting = threading.Thread(target=wait)
    waiting.start()
    _wait_for(lambda: len(live.loop._calls) == 1)
    with pytest.raises(EngineError, match="has not ended"):
        live.loop.stop(timeout_s=0.05)  # still inside its step
    live.arbiter.gate.set()
    waiting.join(PATIENCE_S)
    assert [str(e) for e in errors] == ["the engine ended before it came to this call"]
    live.loop.join(PATIENCE_S)


@pytest.mark.parametrize("where", ["core", "edge"])
def test_a_crash_surfaces_to_the_owner(make: Callable[..., Live], where: str) -> None:
    def answer(_: Event) -> tuple[Effect, ...]:
        raise CoreError("broken")

    def broken_make(_: int) -> Event:
        raise CoreError("broken")

    live = make(answer if where == "core" else lambda _: ())
    live.loop.submit(attached if where == "core" else broken_make)
    live.loop.join(PATIENCE_S)
    assert isinstance(live.loop.failure, CoreError)
    assert live.failures == [live.loop.failure]
    with pytest.raises(EngineStopped) as refused:
        live.loop.submit(attached)
    assert refused.value.__cause__ is live.loop.failure


def test_a_fenced_driver_ends_the_loop_without_a_failure(make: Callable[..., Live]) -> None:
    batch = Batch(batch_no=1, epoch=1, start_id="s", last_round=0, last_serial=0)
    live = make(lambda e: (PersistLeases(batch=batch),) if isinstance(e, RmAttached) else ())
    live.disk.epoch = 2
    live.loop.submit(attached)
    live.loop.join(PATIENCE_S)
    assert live.driver.is_fenced
    assert (live.loop.failure, live.loop.is_running) == (None, False)


def test_a_loop_that_never_started_stops_at_once() -> None:
    timers, clock = TimerTable(), SystemClock()
    driver = Driver(
        Recording(lambda _: ()),
        store=MemoryStore(),
        rm=NoGate(),
        journal=MemoryJournal(Settings()),
        timers=timers,
        clock=clock,
    )
    loop = EngineLoop(driver, clock, timers)
    loop.stop()
    with pytest.raises(EngineStopped):
        loop.submit(attached)
