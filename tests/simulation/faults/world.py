"""One seed's run: arbiters, ZooKeeper, bridge and ResourceManager in virtual time, faults, and whether all ends well."""

import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.simulation.faults.bridge import LOOK_EVERY_MS, Bridge
from tests.simulation.faults.plan import START_MS, Fault, Plan, draw_plan
from tests.simulation.faults.process import SESSION_MS, LocalClock, Process, Surroundings
from tests.simulation.faults.schedule import Schedule
from tests.simulation.faults.watch import Broken, Watch, WatchedGate
from tests.simulation.faults.zookeeper import SimZooKeeper
from themis_arbiter.adapters.journal import MemoryJournal
from themis_arbiter.core.events import ProgressReported
from themis_arbiter.core.types import Millis, NodeName
from themis_arbiter.sim.live_jobs import Container, RunningJob
from themis_arbiter.sim.live_model import SimulatedCluster

QUIET_MS: Final[Millis] = 40_000  # after the last fault is over, somebody leads again, with everything attached
JUDGE_FROM_MS: Final[Millis] = 80_000
LEASES_TO_END: Final = 25  # within so many leases after that every job is done
NOTICE_MS: Final = 500  # how often things that only need time are looked at


class WatchedCluster(SimulatedCluster):
    """The simulated ResourceManager, looked at."""

    watch: Watch

    def _place(self, job: RunningJob, node: NodeName) -> None:
        super()._place(job, node)
        self.watch.on_placed(next(reversed(self._containers.values())))

    def _lose(self, container: Container, exit_status: int) -> None:
        is_known = container.container_id in self._containers
        super()._lose(container, exit_status)
        if is_known:
            self.watch.on_lost(container, exit_status, node_is_lost=container.node in self._lost)


@dataclass(slots=True)
class _Waiting:
    """A fault that has not come yet, and how many deeds are still to go; `from_ms` as in the fault, unless it follows one."""

    fault: Fault
    left: int
    from_ms: Millis | None = None

    def is_due(self, deed: str, now_ms: Millis, *, is_done: bool) -> bool:
        """Whether this deed counts."""
        if self.from_ms is None or now_ms < self.from_ms:
            return False
        return self.left == 0 or (self.fault.deed == deed and self.fault.is_after == is_done)


@dataclass(slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    broken: list[Broken]
    fired: Counter[tuple[str, str]]  # fault, deed
    overlapped: bool
    digest: str
    ended_ms: Millis  # after the start
    terms: int
    seen: Counter[str] = field(default_factory=Counter)


class World:
    """See the module's text."""

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self.seed, self.plan = seed, plan if plan is not None else draw_plan(seed)
        self.schedule = Schedule(START_MS)
        self.servers = SimZooKeeper(lambda: self.schedule.now_ms)
        self._chance = random.Random(f"{seed}/run")
        self.cluster = WatchedCluster(self.plan.nodes, self.plan.jobs, start_ms=START_MS)
        self.watch = Watch(self.servers, self.plan.settings, self.plan.jobs, lambda: self.schedule.now_ms)
        self.cluster.watch = self.watch
        self.cluster.gate = WatchedGate(self.cluster.gate.start_id, self.watch)
        self.servers.on_change = self.watch.on_store
        self.bridge = Bridge(self.schedule, self.cluster, self._around, self._delay_ms)
        self.journals: list[MemoryJournal] = []
        self.fired: Counter[tuple[str, str]] = Counter()
        self.story: list[str] = []
        self._waiting = [_Waiting(fault, fault.nth) for fault in self.plan.faults]
        self._times: list[tuple[Millis, Millis]] = []  # from, to, of faults
        self._busy_until_ms = START_MS  # faults last until then
        self._shared = Surroundings(
            schedule=self.schedule,
            servers=self.servers,
            settings=self.plan.settings,
            delay_ms=self._delay_ms,
            observer=self.watch,
            around=self._around,
            rm=self.bridge.port,
            on_failure=lambda text: self.watch.fail("nothing fails", text),
            on_journal=self.journals.append,
            is_checked=self.plan.is_checked,
        )
        for waiting in self._waiting:
            if not waiting.fault.follows:
                waiting.from_ms = START_MS + waiting.fault.from_ms
        self.processes: list[Process] = []
        self.schedule.sources.append(_ClusterSource(self))
        for k in range(self.plan.n_arbiters):
            self.schedule.after(k * 150, lambda k=k: self._boot(f"a{k}"))  # type: ignore[misc]
        self.schedule.after(LOOK_EVERY_MS, self._look)

    # -- the run

    def run(self) -> Outcome:
        """Let it happen. What is broken is in the outcome; nothing is raised."""
        limit_ms = START_MS + JUDGE_FROM_MS
        try:
            self.schedule.wait(self._is_over, limit_ms)
            while not self.watch.broken and not self._is_over():
                if self.schedule.now_ms > self._busy_until_ms + QUIET_MS + LEASES_TO_END * self.plan.settings.lease_ms:
                    self._judge_end()
                    break
                self.schedule.wait(self._is_over, self.schedule.now_ms + 10_000)
        except AssertionError as err:
            self.watch.fail("nothing fails", f"AssertionError: {err}")
        if not self.watch.broken:
            self._close_books()
        return self._outcome()

    def _is_over(self) -> bool:
        """Faults that have found no moment by the time that every job is done stay away."""
        return bool(self.watch.broken) or (self.schedule.now_ms > self._busy_until_ms and self.cluster.is_over())

    def _judge_end(self) -> None:
        if not any(process.is_leading for process in self.processes):
            self.watch.fail("all is well again", "nobody leads")
        elif self.bridge.connection is None:
            self.watch.fail("all is well again", "the ResourceManager is not attached")
        else:
            waits = [f"{job.job_id} ({job.gpus_held} GPUs)" for job in self.cluster.jobs() if job.finish_ms is None]
            self.watch.fail("all is well again", f"not done: {', '.join(waits)}")

    def _close_books(self) -> None:
        """All jobs are done: within a lease nothing may be left."""
        settings = self.plan.settings
        until_ms = self.schedule.now_ms + QUIET_MS + 2 * settings.lease_ms
        self.schedule.wait(lambda: not self.watch.book.leases or bool(self.watch.broken), until_ms)
        if self.watch.book.leases and not self.watch.broken:
            self.watch.fail("every lease ends", f"every job is done, and there are {sorted(self.watch.book.leases)}")

    def _outcome(self) -> Outcome:
        told = hashlib.sha256()
        for journal in self.journals:
            told.update(journal.text().encode("utf-8", "surrogatepass"))
        told.update("\n".join([*self.watch.lines, *map(str, self.watch.broken)]).encode())
        times = sorted(self._times)
        overlapped = any(later[0] < earlier[1] for earlier, later in pairwise(times))
        return Outcome(
            seed=self.seed,
            broken=self.watch.broken,
            fired=self.fired,
            overlapped=overlapped,
            digest=told.hexdigest(),
            ended_ms=self.schedule.now_ms - START_MS,
            terms=len(self.journals),
            seen=self.watch.seen,
        )

    # -- what only needs time

    def _look(self) -> None:
        self.schedule.after(LOOK_EVERY_MS, self._look)
        self.servers.pass_time()
        for process in self.processes:
            process.look(SESSION_MS * 2 // 3)
        self.bridge.look(self.processes)
        for waiting in self._waiting:
            if waiting.from_ms is not None and self.schedule.now_ms >= waiting.from_ms + waiting.fault.within_ms:
                waiting.left = 0
        now_ms = self.schedule.now_ms
        live = {job.job_id: job.gpus_held for job in self.cluster.jobs() if job.has_arrived and job.finish_ms is None}
        is_attached = self.bridge.connection is not None and self.bridge.connection.process.is_leading
        self.watch.on_time(LOOK_EVERY_MS, live, is_well=is_attached and now_ms > self._busy_until_ms)

    def _boot(self, name: str) -> None:
        chance = self._chance
        clock = LocalClock(self.schedule, 1 + chance.choice((-5e-4, 0, 0, 5e-4)), chance.randrange(-400, 401))
        process = Process(name, self._shared, clock)
        self.processes = sorted([p for p in self.processes if p.name != name] + [process], key=lambda p: p.name)
        self.schedule.sources[1:] = self.processes

    def _delay_ms(self) -> Millis:
        return self._chance.randrange(1, 8) if self._chance.random() < 0.97 else self._chance.randrange(20, 400)

    # -- faults

    def _around(self, process: Process, deed: str, *, is_done: bool) -> None:
        """A deed of an arbiter is about to be done, or is done."""
        now_ms = self.schedule.now_ms
        for waiting in [one for one in self._waiting if one.is_due(deed, now_ms, is_done=is_done)]:
            waiting.left -= 1
            if waiting.left <= 0:
                at = self._waiting.index(waiting)
                del self._waiting[at]
                if at < len(self._waiting) and self._waiting[at].from_ms is None:
                    self._waiting[at].from_ms = now_ms + self._waiting[at].fault.from_ms
                self._fire(waiting.fault, process, deed)

    def _fire(self, fault: Fault, process: Process, deed: str) -> None:
        now_ms = self.schedule.now_ms
        self.fired[fault.kind, deed] += 1
        self.story.append(f"{now_ms}: {fault.kind} for {fault.lasts_ms} ms at a {deed} of {process.name}")
        self._times.append((now_ms, now_ms + max(fault.lasts_ms, self.plan.settings.lease_ms // 4)))
        self._busy_until_ms = max(self._busy_until_ms, now_ms + fault.lasts_ms + 2_000)
        self.servers.pass_time()
        getattr(self, f"_do_{fault.kind}")(process, fault.lasts_ms)
        self.servers.pass_time()

    def _later(self, after_ms: Millis, name: str, value: object, *targets: object) -> None:
        """Put an attribute back."""

        def put() -> None:
            self.servers.pass_time()
            for target in targets:
                setattr(target, name, value)

        self.schedule.after(after_ms, put)

    def _do_crash(self, process: Process, lasts_ms: Millis) -> None:
        process.kill()
        if self.bridge.connection is not None and self.bridge.connection.process is process:
            self.bridge.leave()
        self.schedule.after(lasts_ms, lambda: self._boot(process.name))

    def _do_freeze(self, process: Process, lasts_ms: Millis) -> None:
        process.freeze(lasts_ms)

    def _do_expire(self, process: Process, _lasts_ms: Millis) -> None:
        process.expire()

    def _do_lose_request(self, process: Process, _lasts_ms: Millis) -> None:
        process.wire.lose_request = True
        self.bridge.net(process).lose += 1

    def _do_lose_answer(self, process: Process, _lasts_ms: Millis) -> None:
        process.wire.lose_answer = True

    def _do_cut_out(self, process: Process, lasts_ms: Millis) -> None:
        process.wire.goes_out = False
        self._later(lasts_ms, "goes_out", True, process.wire)

    def _do_cut_in(self, process: Process, lasts_ms: Millis) -> None:
        process.wire.comes_in = False
        self._later(lasts_ms, "comes_in", True, process.wire)

    def _do_cut_rm_out(self, process: Process, lasts_ms: Millis) -> None:
        self.bridge.net(process).goes_out = False
        self._later(lasts_ms, "goes_out", True, self.bridge.net(process))

    def _do_cut_rm_in(self, process: Process, lasts_ms: Millis) -> None:
        self.bridge.net(process).comes_in = False
        self._later(lasts_ms, "comes_in", True, self.bridge.net(process))

    def _do_no_quorum(self, _process: Process, lasts_ms: Millis) -> None:
        self.servers.set_quorum(False)
        self.schedule.after(lasts_ms, lambda: self.servers.set_quorum(True))

    def _do_disk_full(self, _process: Process, lasts_ms: Millis) -> None:
        self.servers.refuses_writes = True
        self._later(lasts_ms, "refuses_writes", False, self.servers)

    def _do_clock(self, process: Process, _lasts_ms: Millis) -> None:
        process.clock.wall_ms = self._chance.randrange(-1_000, 1_001)

    def _do_node_lost(self, _process: Process, lasts_ms: Millis) -> None:
        node = self._chance.choice(self.plan.nodes).node
        self.schedule.after(1, lambda: self.watch.on_node_lost(node))
        self.schedule.after(1, lambda: self.cluster.lose_node(node))
        self.schedule.after(1 + lasts_ms, lambda: self.cluster.restore_node(node))

    def _do_rm_restart(self, _process: Process, _lasts_ms: Millis) -> None:
        self.schedule.after(1, self.cluster.restart)

    def _do_repeat(self, process: Process, _lasts_ms: Millis) -> None:
        self.bridge.net(process).repeat += self._chance.randint(1, 3)

    def _do_reorder(self, process: Process, _lasts_ms: Millis) -> None:
        self.bridge.net(process).hold += self._chance.randint(1, 2)

    def _do_late(self, process: Process, lasts_ms: Millis) -> None:
        self.bridge.net(process).late_until_ms = self.schedule.now_ms + lasts_ms

    def _do_lie(self, process: Process, _lasts_ms: Millis) -> None:
        job = self._chance.choice(self.plan.jobs)
        remaining = job.work * self._chance.choice((0.0, 0.01, 100.0, 1e9))
        loop = process.loop
        if loop is not None and loop.is_running:
            loop.submit(lambda at_ms: ProgressReported(at_ms=at_ms, app_id=job.app_id, job_id=job.job_id, remaining=remaining))

    def _do_forget(self, process: Process, lasts_ms: Millis) -> None:
        self.bridge.forgets = True
        process.freeze(max(lasts_ms, 9_000))


class _ClusterSource:
    """The ResourceManager as a source."""

    def __init__(self, world: World) -> None:
        self._world = world

    def next_at_ms(self) -> Millis | None:
        """See Source."""
        return self._world.cluster.next_at_ms()

    def run(self) -> None:
        """See Source."""
        self._world.cluster.advance(self._world.schedule.now_ms)
