"""The driver's law: order, follow-ups before anything else, fencing, and who may fail without ending the engine."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from themis_arbiter.adapters.clock import ManualClock
from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.core.effects import (
    Effect,
    GrantGpus,
    PersistLeases,
    RequestDrain,
    RoundClosed,
    StandDown,
    SyncLeases,
    TellJob,
    WakeAt,
    WithdrawLeases,
)
from themis_arbiter.core.events import Batch, EpochAcquired, Event, LeasesPersisted, StoreFailed, Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError
from themis_arbiter.engine.driver import FOLLOW_UPS_MAX, Driver, Fence
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import Observer

WOKE: Final = Woke(at_ms=10, timer=Timer.ROUND)


class Scripted:
    """An arbiter that answers each event with what `answer` says, and writes down what it was told."""

    def __init__(self, answer: Callable[[Event], tuple[Effect, ...]]) -> None:
        self.answer, self.told = answer, list[Event]()

    def step(self, event: Event) -> tuple[Effect, ...]:
        self.told.append(event)
        return self.answer(event)


class World:
    """Ports that write down, in one list, what reached them; the store is a real one."""

    def __init__(self, answer: Callable[[Event], tuple[Effect, ...]], observers: tuple[Observer, ...] = ()) -> None:
        self.log: list[Any] = []
        self.clock, self.timers = ManualClock(), TimerTable()
        self.store = MemoryStore()
        self.store.acquire_epoch()
        self.journal = Listening(self.log)
        self.arbiter = Scripted(answer)
        self.stale_calls = 0
        self.why = self.why_not = ""
        self.driver: Driver[Scripted] = Driver(
            self.arbiter,
            store=self,
            rm=self,
            journal=self.journal,
            timers=self.timers,
            clock=self.clock,
            observers=observers,
            fence=Fence(on_stale_epoch=self._note_stale, why_not=lambda: self.why_not),
        )

    def _note_stale(self, why: str) -> None:
        assert why
        self.stale_calls += 1
        self.why = why

    def epoch(self) -> int:
        return self.store.epoch()

    def commit(self, batch: Batch) -> None:
        self.log.append(f"commit {batch.batch_no}")
        self.store.commit(batch)

    def acquire_epoch(self) -> int:
        return self.store.acquire_epoch()

    def load(self) -> Any:
        return self.store.load()

    def close(self) -> None:
        self.store.close()

    def sync(self, effect: SyncLeases) -> None:
        self.log.append(f"sync {effect.seq}")

    def grant(self, effect: GrantGpus) -> None:
        self.log.append(f"grant {effect.seq}")

    def drain(self, effect: RequestDrain) -> None:
        self.log.append(f"drain {effect.seq}")

    def withdraw(self, effect: WithdrawLeases) -> None:
        self.log.append(f"withdraw {effect.seq}")

    def tell(self, effect: TellJob) -> None:
        self.log.append(f"tell {effect.job_id}")


class Listening(MemoryJournal):
    def __init__(self, log: list[Any]) -> None:
        super().__init__(Settings())
        self.log, self.flushes = log, 0

    def record(self, event: Event, effects: Any) -> None:
        self.log.append(f"record {type(event).__name__}")
        super().record(event, effects)

    def flush(self) -> None:
        self.flushes += 1


def persist(number: int, epoch: int = 1) -> PersistLeases:
    return PersistLeases(batch=Batch(batch_no=number, epoch=epoch, start_id="s", last_round=number, last_serial=0))


def grant(seq: int) -> GrantGpus:
    return GrantGpus(epoch=1, start_id="s", seq=seq, leases=())


def test_every_effect_reaches_its_port_in_order() -> None:
    effects = (
        WithdrawLeases(epoch=1, start_id="s", seq=1, lease_ids=()),
        grant(2),
        WakeAt(timer=Timer.GRID, at_ms=99),
        RequestDrain(epoch=1, start_id="s", seq=3, lease_ids=(), deadline_ms=5),
        RoundClosed(round_no=1, record={}),
        SyncLeases(epoch=1, start_id="s", seq=4, leases=(), drains=()),
    )
    world = World(lambda _: effects)
    world.driver.handle(WOKE)
    assert world.log == ["record Woke", "withdraw 1", "grant 2", "drain 3", "sync 4"]
    assert world.timers.next_at_ms() == 99


def test_what_the_store_says_is_stepped_after_the_effects_and_before_other_events() -> None:
    def answer(event: Event) -> tuple[Effect, ...]:
        match event:
            case Woke():
                return (persist(1), grant(1), persist(2), grant(2))
            case LeasesPersisted(batch_no=1):
                return (persist(3), grant(3))
            case _:
                return (grant(event.batch_no * 10),) if isinstance(event, LeasesPersisted) else ()

    world = World(answer)
    world.driver.handle(WOKE)
    assert world.log == [
        *("record Woke", "commit 1", "grant 1", "commit 2", "grant 2"),
        *("record LeasesPersisted", "commit 3", "grant 3"),
        *("record LeasesPersisted", "grant 20"),
        *("record LeasesPersisted", "grant 30"),
    ]


def test_the_time_after_a_slow_commit_is_the_clocks() -> None:
    world = World(lambda e: (persist(1),) if isinstance(e, Woke) else ())
    world.clock.move_to(500)
    world.driver.handle(WOKE)
    assert world.arbiter.told == [WOKE, LeasesPersisted(at_ms=500, batch_no=1)]


def test_the_time_after_a_commit_never_falls() -> None:
    world = World(lambda e: (persist(1),) if isinstance(e, Woke) else ())
    world.driver.handle(WOKE)  # the clock still says 0
    assert world.arbiter.told[1].at_ms == WOKE.at_ms


def test_an_event_from_the_past_is_a_programming_error() -> None:
    world = World(lambda _: ())
    world.driver.handle(WOKE)
    with pytest.raises(CoreError, match="time fell from 10 to 9"):
        world.driver.handle(Woke(at_ms=9, timer=Timer.GRID))
    assert world.arbiter.told == [WOKE]


def test_a_failed_commit_is_an_event_and_the_engine_goes_on() -> None:
    world = World(lambda e: (persist(7), grant(1)) if isinstance(e, Woke) else (grant(2),))
    world.store.close()
    world.driver.handle(WOKE)
    failed = world.arbiter.told[1]
    assert isinstance(failed, StoreFailed)
    assert (failed.batch_no, failed.reason) == (7, "StoreError: the store is closed")
    assert world.log == ["record Woke", "commit 7", "grant 1", "record StoreFailed", "grant 2"]
    assert (world.driver.is_fenced, world.stale_calls) == (False, 0)


def test_after_a_stale_epoch_nothing_more_reaches_the_world() -> None:
    world = World(lambda _: (grant(1), persist(1), grant(2), persist(2), WakeAt(timer=Timer.GRID, at_ms=1)))
    world.store.acquire_epoch()  # somebody else leads now
    world.driver.handle(WOKE)
    assert world.log == ["record Woke", "grant 1", "commit 1", "record StoreFailed"]
    assert world.timers.next_at_ms() is None
    assert isinstance(world.arbiter.told[1], StoreFailed)
    assert world.arbiter.told[1].reason.startswith("StaleEpochError")
    world.driver.handle(Woke(at_ms=20, timer=Timer.GRID))
    assert len(world.arbiter.told) == 2
    assert (world.driver.is_fenced, world.stale_calls, world.journal.flushes) == (True, 1, 1)


def test_an_error_of_the_core_is_passed_on_after_the_journal_was_flushed() -> None:
    def answer(_: Event) -> tuple[Effect, ...]:
        raise CoreError("a claim does not hold")

    world = World(answer)
    with pytest.raises(CoreError, match="a claim does not hold"):
        world.driver.handle(WOKE)
    assert world.journal.flushes == 1


def test_an_error_of_a_port_is_passed_on_and_the_journal_tells_what_was_meant() -> None:
    world = World(lambda _: (grant(1),))

    def broken(effect: GrantGpus) -> None:
        raise RuntimeError("a bug in the adapter")

    world.grant = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug in the adapter"):
        world.driver.handle(WOKE)
    assert '"type":"GrantGpus"' in world.journal.lines[-1]
    assert world.journal.flushes == 1


def test_a_core_that_answers_each_failure_with_another_write_is_stopped() -> None:
    world = World(lambda _: (persist(1),))
    world.store.close()
    with pytest.raises(CoreError, match=f"more than {FOLLOW_UPS_MAX} events follow from one Woke"):
        world.driver.handle(WOKE)
    assert len(world.arbiter.told) == FOLLOW_UPS_MAX


class Failing:
    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        raise ZeroDivisionError


class Seeing:
    def __init__(self) -> None:
        self.seen: list[tuple[Event, tuple[Effect, ...]]] = []

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        self.seen.append((event, effects))


def test_observers_see_each_step_and_cannot_stop_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    seeing = Seeing()
    world = World(lambda e: (persist(1),) if isinstance(e, Woke) else (), observers=(Failing(), seeing))
    world.driver.handle(WOKE)
    assert seeing.seen == [(WOKE, (persist(1),)), (LeasesPersisted(at_ms=10, batch_no=1), ())]
    assert world.driver.observer_failures == {"Failing": 2}
    assert [r.message for r in caplog.records] == ["observer Failing failed on Woke"]


def test_observers_come_after_the_effects() -> None:
    at_observation: list[list[Any]] = []

    class Peeking:
        def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
            at_observation.append(list(world.log))

    world = World(lambda _: (grant(1),), observers=(Peeking(),))
    world.driver.handle(WOKE)
    assert at_observation == [["record Woke", "grant 1"]]


def test_stores_errors_that_are_no_store_errors_are_bugs() -> None:
    world = World(lambda _: (persist(1),))

    def broken(batch: Batch) -> None:
        raise KeyError("lease")

    world.commit = broken  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        world.driver.handle(WOKE)


def test_an_arbiter_with_nothing_to_write_learns_that_another_leads() -> None:
    world = World(lambda _: ())
    world.driver.handle(EpochAcquired(at_ms=0, epoch=1))
    world.driver.check_fence()
    assert world.stale_calls == 0
    world.store.acquire_epoch()
    world.driver.check_fence()
    world.driver.check_fence()
    assert world.driver.is_fenced
    assert (world.stale_calls, world.why) == (1, "another arbiter has taken epoch 2 on this store")


def test_who_is_told_to_stand_down_does() -> None:
    world = World(lambda _: (StandDown(reason="somebody leads"), grant(1)))
    world.driver.handle(EpochAcquired(at_ms=0, epoch=1))
    assert world.driver.is_fenced
    assert world.why == "somebody leads"
    assert "grant 1" not in world.log


def test_an_arbiter_that_may_not_act_any_more_does_nothing_and_never_comes_back() -> None:
    world = World(lambda _: (persist(1), grant(1)))
    world.why_not = "its session may be over"
    world.driver.handle(WOKE)
    world.why_not = ""
    world.driver.handle(WOKE)
    assert world.log == ["record Woke"]
    assert (world.stale_calls, world.why, world.driver.is_fenced) == (1, "its session may be over", True)


def test_an_arbiter_that_froze_in_its_commit_tells_the_world_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lambda event: (persist(1),) if isinstance(event, Woke) else (grant(1),))
    commit = world.store.commit

    def freeze(batch: Batch) -> None:
        commit(batch)
        world.why_not = "it was frozen"

    monkeypatch.setattr(world.store, "commit", freeze)
    world.driver.handle(WOKE)
    assert world.log == ["record Woke", "commit 1", "record LeasesPersisted"]
    assert world.driver.is_fenced
