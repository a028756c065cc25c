"""One arbiter as a process in virtual time: its elector, its terms, its clocks; it can be frozen and can die.

Elector, store, recovery, driver and engine loop are the product's. What is done here instead of `server/bootstrap.py` and
`server/term.py` is the order of calls when a term begins and ends, without their threads.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final, Protocol, TypeVar

from tests.simulation.faults.schedule import Schedule
from tests.simulation.faults.zookeeper import SimZooKeeper
from tests.simulation.faults.zookeeper_client import SimClient, Wire
from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.adapters.zookeeper.elector import ZooKeeperElector
from themis_arbiter.adapters.zookeeper.session import Place, Session
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.core.events import Batch
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Epoch, Millis
from themis_arbiter.engine.driver import Driver, Fence
from themis_arbiter.engine.loop import EngineLoop
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import Observer, ResourceManager, StoredState, StoreError

PLACE: Final = Place(hosts="simulated", chroot="/themis")
SESSION_MS: Final[Millis] = 6_000
DoneT = TypeVar("DoneT")


class Crashed(BaseException):
    """The process is dead: nothing of it may go on, whatever it would catch."""


class Around(Protocol):
    """Is told of each deed, before it (the arbiter has already asked itself whether it may) and after it."""

    def __call__(self, process: "Process", deed: str, *, is_done: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all processes of a world share."""

    schedule: Schedule
    servers: SimZooKeeper
    settings: Settings
    delay_ms: Callable[[], Millis]
    observer: Observer
    around: Around
    rm: Callable[["Process"], ResourceManager]  # the way to the ResourceManager for a new term
    on_failure: Callable[[str], None]
    on_journal: Callable[[MemoryJournal], None]
    is_checked: bool


class WatchedStore:
    """The real store, with each deed told."""

    def __init__(self, process: "Process", store: ZooKeeperStore) -> None:
        self._process, self._store = process, store

    def acquire_epoch(self) -> Epoch:
        """See LeaseStore."""
        return self._process.do("epoch", self._store.acquire_epoch)

    def epoch(self) -> Epoch:
        """See LeaseStore."""
        return self._store.epoch()

    def load(self) -> StoredState:
        """See LeaseStore."""
        return self._process.do("load", self._store.load)

    def commit(self, batch: Batch) -> None:
        """See LeaseStore."""
        self._process.do("persist", lambda: self._store.commit(batch))

    def close(self) -> None:
        """See LeaseStore."""
        self._store.close()


class LocalClock:
    """A process's clocks: one that drifts, read as time of day and as time since the machine's start."""

    def __init__(self, schedule: Schedule, rate: float, offset_ms: Millis) -> None:
        self._schedule, self._rate, self._since_ms = schedule, rate, schedule.now_ms
        self.wall_ms = offset_ms  # how far the time of day is off, as set by whoever sets clocks
        self._anchor_ms = self.wall_ms + schedule.now_ms

    def boot_ms(self) -> Millis:
        """Never set, never falls."""
        return int((self._schedule.now_ms - self._since_ms) * self._rate)

    def anchor(self) -> None:
        """As SystemClock's."""
        self._anchor_ms = self._schedule.now_ms + self.wall_ms - self.boot_ms()

    def now_ms(self) -> Millis:
        """As SystemClock's: the time of day when anchored, and monotonic from there."""
        return self._anchor_ms + self.boot_ms()

    def world_ms(self, boot_ms: Millis) -> Millis:
        """When `boot_ms` will show it."""
        return self._since_ms + ceil(boot_ms / self._rate)


class Process:
    """See the module's text; a source of the schedule. A dead one is left for a new one of the same name."""

    def __init__(self, name: str, world: Surroundings, clock: LocalClock) -> None:
        self.name, self.clock = name, clock
        self.is_dead = False
        self.frozen_until_ms: Millis = 0
        self.loop: EngineLoop[Arbiter] | None = None
        self.rm: ResourceManager | None = None
        self._world, self._schedule = world, world.schedule
        self._store: WatchedStore | None = None
        self._clients: list[SimClient] = []
        self._is_busy = False  # its main thread or its engine's is in a call
        self._inbox: deque[Callable[[], None]] = deque()  # came while it was frozen
        self._posts: deque[tuple[str, str]] = deque()
        self.wire = Wire(
            delay_ms=world.delay_ms,
            is_running=lambda: not self.is_dead and not self.is_frozen,
            is_dead=lambda: self.is_dead,
            deliver=self.deliver,
            wait=self._wait,
        )
        self._card = {"name": name, "grpc": name}
        self.elector = ZooKeeperElector(
            PLACE,
            self._card,
            on_lead=lambda candidate: self._posts.append(("lead", candidate)),
            on_stand_down=lambda reason: self._posts.append(("over", reason)),
            clock=clock.boot_ms,
            connect=partial(Session, client=self._client),
        )
        self.elector.open()

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped now."""
        return self._schedule.now_ms < self.frozen_until_ms

    @property
    def is_leading(self) -> bool:
        """Whether whoever asked it now would be served."""
        return not (self.is_dead or self.is_frozen or self.loop is None or self.elector.why_not() or not self.loop.is_running)

    def deliver(self, do: Callable[[], None]) -> None:
        """Have it hear something: now, or when it goes on."""
        if self.is_frozen:
            self._inbox.append(do)
        elif not self.is_dead:
            do()

    def do(self, deed: str, call: Callable[[], DoneT]) -> DoneT:
        """A deed of its engine."""
        self._world.around(self, deed, is_done=False)
        self._live_on()
        result = call()
        self._world.around(self, deed, is_done=True)
        self._live_on()
        return result

    def freeze(self, for_ms: Millis) -> None:
        """Stop it for so long."""
        self.frozen_until_ms = max(self.frozen_until_ms, self._schedule.now_ms + for_ms)

    def kill(self) -> None:
        """Its connections break; its session goes on until it times out."""
        self.is_dead = True
        self._inbox.clear()

    def cut(self) -> None:
        """Its connections to ZooKeeper break and are made again."""
        for client in self._clients:
            client.cut()

    def expire(self) -> None:
        """ZooKeeper ends its sessions."""
        for client in self._clients:
            if client.client_id is not None:
                self._world.servers.end(client.client_id[0])

    def look(self, patience_ms: Millis) -> None:
        """See SimClient.look."""
        for client in self._clients:
            client.look(patience_ms)

    # -- as a source

    def next_at_ms(self) -> Millis | None:
        """When it wants to run."""
        if self.is_dead:
            return None
        now_ms = self._schedule.now_ms
        if self.is_frozen:
            return self.frozen_until_ms
        if self._inbox or self.elector.has_inputs or (self._posts and not self._is_busy):
            return now_ms
        due_ms = self.elector.due_ms
        times = [] if due_ms is None else [self.clock.world_ms(due_ms)]
        if self.loop is not None and not self._is_busy:
            times.append(now_ms + max(0, ceil(self.loop.due_in_s() * 1_000)))
        return min(times, default=None)

    def run(self) -> None:
        """One turn: what came meanwhile, then the election, then the main thread, then the engine."""
        if self._inbox:
            for _ in range(len(self._inbox)):
                self._inbox.popleft()()
        elif self.elector.has_inputs or self._is_elector_due():
            self.elector.turn()
        elif not self._is_busy:
            self._is_busy = True
            try:
                self._run_main()
            except Crashed:
                pass
            except Exception as err:  # noqa: BLE001 - any error of the product is a finding
                self._world.on_failure(f"{self.name}: {type(err).__name__}: {err}")
                self.kill()
            finally:
                self._is_busy = False

    def _is_elector_due(self) -> bool:
        due_ms = self.elector.due_ms
        return due_ms is not None and self.clock.boot_ms() >= due_ms

    def _run_main(self) -> None:
        if self._posts:
            what, text = self._posts.popleft()
            if what == "lead":
                self._lead(text)
            elif self.loop is not None:
                self._end_term()
        elif self.loop is not None:
            self.loop.turn()

    # -- terms, as server/bootstrap.py has them

    def _lead(self, candidate: str) -> None:
        self.clock.anchor()
        world = self._world
        try:
            real = ZooKeeperStore(
                PLACE, leader=self._card, candidate=lambda: candidate, connect=partial(Session, client=self._client)
            )
            self._store = store = WatchedStore(self, real)
            timers, journal = TimerTable(), MemoryJournal(world.settings)
            self.rm = world.rm(self)
            driver = Driver(
                Arbiter(world.settings, is_checked=world.is_checked),
                store=store,
                rm=self.rm,
                journal=journal,
                timers=timers,
                clock=self.clock,
                observers=(world.observer,),
                fence=Fence(on_stale_epoch=lambda reason: self._posts.append(("over", reason)), why_not=self.elector.why_not),
            )
            first = take_over(store, self.clock)
        except StoreError:
            self._end_term()
            return
        world.on_journal(journal)
        loop = EngineLoop(driver, self.clock, timers)
        loop.open()
        loop.submit(lambda now_ms: replace(first, at_ms=now_ms))
        loop.turn()
        self.loop = loop

    def _end_term(self) -> None:
        loop, self.loop, self.rm = self.loop, None, None
        if loop is not None:
            loop.request_stop()
        store, self._store = self._store, None
        if store is not None:
            store.close()
        self._clients = self._clients[:1]  # the elector's
        self.elector.term_ended()

    # -- waiting

    def _client(self, **kazoo: object) -> SimClient:
        client = SimClient(self._world.servers, self._schedule, self.wire, granted_ms=SESSION_MS, **kazoo)
        self._clients.append(client)
        return client

    def _wait(self, is_done: Callable[[], bool], for_ms: Millis) -> bool:
        """The calling thread of this process waits while everything else goes on."""
        self._schedule.wait(lambda: is_done() or self.is_dead, self._schedule.now_ms + for_ms)
        self._live_on()
        return is_done()

    def _live_on(self) -> None:
        """Errors: Crashed where it does not."""
        while self.is_frozen and not self.is_dead:
            self._schedule.wait(lambda: self.is_dead, self.frozen_until_ms)
        if self.is_dead:
            raise Crashed
