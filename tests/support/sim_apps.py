"""Simulated clusters and apps for tests, and two worlds around them that run in virtual time."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic

from tests.support.rm_view import RmView
from themis_arbiter.adapters.clock import ManualClock
from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.core.events import Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import JobId, Millis, OnLeaseEnd
from themis_arbiter.engine.driver import ArbiterT, Driver
from themis_arbiter.engine.loop import MakeEvent
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import Journal, LeaseStore, ResourceManager
from themis_arbiter.sim.live_gate import Place
from themis_arbiter.sim.live_jobs import SimJob, SimNode
from themis_arbiter.sim.live_model import SimulatedCluster

START_MS: Final = 1_700_000_000_000
FOR_EVER: Final = 1e12  # work that no test finishes
TURNS_MAX: Final = 200_000  # of a world, in one call


def nodes(*gpus: int, racks: int = 2) -> tuple[SimNode, ...]:
    """Nodes `n0`, `n1`, ... with so many GPUs, on racks in turn."""
    return tuple(SimNode(node=f"n{k}", rack=f"r{k % racks}", gpus=g) for k, g in enumerate(gpus))


def job(name: str, *, gpus: int = 1, work_s: float | None = None, arrival_ms: Millis = 0, **more: object) -> SimJob:
    """A job of that name, an app of its own unless `app_id` says otherwise; `work_s` in GPU-seconds, None: endless."""
    fields: dict[str, object] = {"app_id": f"app-{name}", "max_gpus": gpus, **more}
    work = FOR_EVER if work_s is None else work_s * 1000
    return SimJob(job_id=name, arrival_ms=arrival_ms, work=work, **fields)  # type: ignore[arg-type]


def over_leased(cluster: SimulatedCluster) -> list[tuple[Place, int, int]]:
    """Places where containers hold more GPUs than there are leases: must be none, unless leases were withdrawn in use."""
    return [
        (place, cluster.used(place), cluster.gate.leased(place))
        for place in cluster.places()
        if cluster.used(place) > cluster.gate.leased(place)
    ]


class SimHarness:
    """The simulated ResourceManager for the port's contract (RmHarness)."""

    slack_ms: Millis = 2_000

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(nodes(4, 4, 3), (), start_ms=START_MS)
        self._link = self.cluster.link()
        self.rm: ResourceManager = self._link
        self.view = RmView()
        self._count = 0
        self._link.attach(self._take)

    def _take(self, make: MakeEvent) -> None:
        self.view.take(make(self.cluster.now_ms))

    def now_ms(self) -> Millis:
        return self.cluster.now_ms

    def pass_time(self, by_ms: Millis) -> None:
        self.cluster.advance(self.cluster.now_ms)  # what was said just now is heard now
        self.cluster.advance(self.cluster.now_ms + by_ms)

    def submit_job(self, gpus: int, *, listens: bool = True) -> JobId:
        self._count += 1
        on_lease_end = OnLeaseEnd.CHECKPOINT if listens else OnLeaseEnd.NEVER
        self.cluster.add_job(job(f"job{self._count}", gpus=gpus, on_lease_end=on_lease_end))
        return f"job{self._count}"

    def restart(self) -> None:
        self.cluster.restart()


class VirtualWorld(Generic[ArbiterT]):
    """An arbiter with the production driver on a simulated cluster, in virtual time, on one thread."""

    def __init__(
        self,
        arbiter: ArbiterT,
        cluster: SimulatedCluster,
        *,
        settings: Settings,
        store: LeaseStore | None = None,
        journal: Journal | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called after every turn."""
        self.cluster, self.check = cluster, check
        self.clock, self.timers = ManualClock(cluster.now_ms), TimerTable()
        self.store: LeaseStore = store if store is not None else MemoryStore()
        self.journal: Journal = journal if journal is not None else MemoryJournal(settings)
        self._link = cluster.link()
        self._queue: deque[MakeEvent] = deque()
        self.driver: Driver[ArbiterT] = Driver(
            arbiter,
            store=self.store,
            rm=self._link,
            journal=self.journal,
            timers=self.timers,
            clock=self.clock,
        )
        self.driver.handle(take_over(self.store, self.clock))
        self._link.attach(self._queue.append)

    def run_until(self, done: Callable[[], bool], limit_ms: Millis) -> None:
        """Let time jump from one thing to the next. Errors: AssertionError where `done` does not come by `limit_ms`."""
        end_ms = self.clock.now_ms() + limit_ms
        for _ in range(TURNS_MAX):
            if done():
                return
            now_ms = min(self._due_times(), default=end_ms)
            assert now_ms < end_ms, f"not done within {limit_ms} ms: {self.cluster.jobs()}"
            self._turn(max(now_ms, self.clock.now_ms()))
        raise AssertionError(f"not done within {TURNS_MAX} turns: {self.cluster.jobs()}")

    def _due_times(self) -> Iterable[Millis]:
        return [at for at in (self.timers.next_at_ms(), self.cluster.next_at_ms()) if at is not None]

    def _turn(self, now_ms: Millis) -> None:
        self.clock.move_to(now_ms)
        self.cluster.advance(now_ms)
        while self._queue:
            self.driver.handle(self._queue.popleft()(now_ms))
        timer = self.timers.pop_due(now_ms)
        if timer is not None:
            self.driver.handle(Woke(at_ms=now_ms, timer=timer))
        self.check()
