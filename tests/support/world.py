"""The production arbiter, driver and recovery in virtual time beside the simulated ResourceManager.

A `World` is advanced event by event and checks every invariant of the core after each step, and the books of the outside after
each instant. Faults are methods: the arbiter crashes and comes back on the same store, the ResourceManager restarts, the
store refuses writes, nobody listens for a while, nodes go and come.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.core.effects import Effect, RequestDrain, RoundClosed
from themis_arbiter.core.events import Batch, Event, Woke
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.driver import Driver
from themis_arbiter.engine.loop import MakeEvent
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import StoreError
from themis_arbiter.sim.live_jobs import SimJob, SimNode
from themis_arbiter.sim.live_model import SimTiming, SimulatedCluster

SHORT = Settings(
    lease_ms=20_000,
    notice_ms=3_000,
    debounce_ms=500,
    rho_floor_ms=20_000,
    restart_cost_ms=1_000,
    tick_ms=4_000,
    gang_wait_ms=5_000,
    recovery_grace_ms=5_000,
)
TURNS_MAX = 200_000  # of one run: more means that nothing gets on


class VirtualClock:
    """Time that stands still until it is told."""

    def __init__(self) -> None:
        self.at_ms: Millis = 0

    def now_ms(self) -> Millis:
        """The present."""
        return self.at_ms


class FlakyStore(MemoryStore):
    """A memory store that refuses the commits it is told to refuse."""

    def __init__(self, disk: MemoryDisk) -> None:
        super().__init__(disk)
        self.refuse = 0

    def commit(self, batch: Batch) -> None:
        """As in MemoryStore, but for refusals."""
        if self.refuse > 0:
            self.refuse -= 1
            raise StoreError("the disk is full")
        super().commit(batch)


@dataclass
class Rounds:
    """An observer that keeps decision records, and how long before its deadline each drain was told."""

    records: list[dict[str, Any]] = field(default_factory=list)
    notices_ms: list[Millis] = field(default_factory=list)

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Look at one step."""
        self.notices_ms += [e.deadline_ms - event.at_ms for e in effects if isinstance(e, RequestDrain)]
        self.records += [dict(e.record) for e in effects if isinstance(e, RoundClosed)]


class World:
    """See the module's text."""

    def __init__(
        self, nodes: Iterable[SimNode], jobs: Iterable[SimJob], settings: Settings = SHORT, timing: SimTiming | None = None
    ) -> None:
        self.settings = settings
        self.clock = VirtualClock()
        nodes = tuple(nodes)
        self.gpus_of_node = {n.node: n.gpus for n in nodes}
        self.cluster = SimulatedCluster(nodes, jobs, timing=timing)
        self.disk = MemoryDisk()
        self.rounds = Rounds()
        self._queue: deque[MakeEvent] = deque()
        self.boot()

    def boot(self) -> None:
        """A new process of the arbiter, on what the store holds."""
        self.store = FlakyStore(self.disk)
        self.timers = TimerTable()
        self.journal = MemoryJournal(self.settings)
        self.arbiter = Arbiter(self.settings, is_checked=True)
        self._queue.clear()
        self._link = self.cluster.link()
        self.driver = Driver(
            self.arbiter,
            store=self.store,
            rm=self._link,
            journal=self.journal,
            timers=self.timers,
            clock=self.clock,
            observers=[self.rounds],
        )
        self.driver.handle(take_over(self.store, self.clock))
        self._link.attach(self._queue.append)

    def crash(self) -> None:
        """The arbiter's process ends without a word."""
        self._link.detach()
        self._queue.clear()

    def freeze(self, for_ms: Millis) -> None:
        """The arbiter's process is stopped for a while; when it goes on, its timers ring before it reads what has come."""
        self.clock.at_ms += for_ms
        self.cluster.advance(self.clock.at_ms)
        while (timer := self.timers.pop_due(self.clock.at_ms)) is not None:
            self.driver.handle(Woke(at_ms=self.clock.at_ms, timer=timer))

    def run_until(self, until_ms: Millis) -> None:
        """Let time pass."""
        for _ in range(TURNS_MAX):
            self._drain_queue()
            due = [t for t in (self.timers.next_at_ms(), self.cluster.next_at_ms()) if t is not None]
            now = max(self.clock.at_ms, min(due, default=until_ms))
            if now > until_ms:
                self.clock.at_ms = until_ms
                self.cluster.advance(until_ms)
                self._drain_queue()
                return
            self.clock.at_ms = now
            while (timer := self.timers.pop_due(now)) is not None:
                self.driver.handle(Woke(at_ms=now, timer=timer))
            self.cluster.advance(now)
            self._drain_queue()
            self.check_outside()
        raise AssertionError(f"{TURNS_MAX} turns and only {self.clock.at_ms} ms")

    def run_to_end(self, limit_ms: Millis) -> None:
        """Let time pass until every job has finished, at most to `limit_ms`, and then until the books are closed."""
        while not self.cluster.is_over() and self.clock.at_ms < limit_ms:
            self.run_until(self.clock.at_ms + 5_000)
        self.run_until(self.clock.at_ms + 3 * self.settings.lease_ms)

    def check_outside(self) -> None:
        """No node has more GPUs in use than it has, and none is used without a lease."""
        used: dict[str, int] = {}
        for job_id, node in self.cluster.places():
            used[node] = used.get(node, 0) + self.cluster.used((job_id, node))
        over = {n: k for n, k in used.items() if k > self.gpus_of_node[n]}
        assert not over, f"more GPUs in use than there are: {over}"
        leased: dict[tuple[str, str], int] = {}
        for lease in self.arbiter.state.ledger:
            if not self.arbiter.state.ledger.is_next(lease):
                leased[lease.job_id, lease.node_of_gpu] = leased.get((lease.job_id, lease.node_of_gpu), 0) + 1
        for place in self.cluster.places():
            assert self.cluster.used(place) <= leased.get(place, 0), f"{place} is used without a lease at {self.clock.at_ms}"

    def _drain_queue(self) -> None:
        while self._queue:
            self.driver.handle(self._queue.popleft()(self.clock.at_ms))
