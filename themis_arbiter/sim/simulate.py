"""One replay: a trace through the Arbiter and the Driver that run live, in virtual time.

Only the clock, the ResourceManager and the store are other than live, and all of them stand behind the live system's ports. The
loop holds an instant until nothing more follows from it, then moves to the next one.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TextIO

from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Batch, Event, RmAttached, Timer, Woke
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import NO_SLOWDOWN, SlowdownModel, Slowdowns
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId, CoreError, Millis, NodeName
from themis_arbiter.engine.driver import Driver
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.ports import Journal
from themis_arbiter.sim.clusterfile import Capacity
from themis_arbiter.sim.ledger_rows import RoundsObserver
from themis_arbiter.sim.sim_jobs import Declaration, Physics, SimulatedJob, ceil_ms, engine_ids
from themis_arbiter.sim.stock import Stock
from themis_arbiter.sim.trace import Trace, TraceError, TraceJob
from themis_arbiter.sim.world import START_ID, TraceCluster

IDLE_MS_MAX: Final = 30 * 24 * 3_600_000  # of a cluster with live jobs on which nothing runs: the policy is stuck
TURNS_OF_INSTANT_MAX: Final = 10_000
PROGRESS_EVERY_S: Final = 5.0
REJECTED_SHOWN_MAX: Final = 5

MISREPORTS: Final = ("work", "slowdown", "parallelism")


@dataclass(frozen=True, slots=True)
class Misreport:
    """One app's lie: what it says is `factor` times the truth."""

    app_id: AppId
    about: str
    factor: float


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything that a replay hangs on; equal inputs give equal outputs."""

    trace: Trace
    topology: Topology
    slowdowns: SlowdownModel
    capacity: Mapping[NodeName, Capacity] = field(default_factory=dict)  # of machines, beside GPUs; absent: plenty
    settings: Settings  # `slowdowns` in it is replaced by what is declared
    seed: int = 0
    weights: Mapping[AppId, float] | None = None
    estimate_error: float = 0.0
    misreports: tuple[Misreport, ...] = ()


@dataclass(kw_only=True)
class Replayed:
    """What came of it: jobs with their runs, in trace order; jobs that cannot fit; what the machine needed."""

    jobs: tuple[SimulatedJob, ...]
    rejected: tuple[TraceJob, ...]
    weights: Mapping[AppId, float]
    rounds: int = 0
    reserved_gpu_s: float = 0.0  # GPU-seconds free or left early, and promised to a gang that is not whole yet
    round_wall_ms: list[float] = field(default_factory=list)
    wall_s: float = 0.0


class _Clock:
    def __init__(self, at_ms: Millis) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> Millis:
        """The present instant of the replay."""
        return self.at_ms


class _NoMemory(MemoryStore):
    """A store whose leases nobody ever reads: the replay's arbiter leads from the beginning to the end."""

    def commit(self, batch: Batch) -> None:
        """Forget one batch."""


class _NoJournal:
    """Where none is wanted: a replay's inputs are its journal, it can be run again."""

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Forget one step."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


def replay(
    inputs: Inputs,
    records: TextIO,
    *,
    progress: Callable[[str], None] | None = None,
    is_checked: bool = False,
    open_journal: Callable[[Settings], Journal] = lambda _: _NoJournal(),
) -> Replayed:
    """Run `inputs` to the last finish; `records` gets the decision records, the journal every step.

    Errors: TraceError, CoreError (a defect), OSError where `records` or the journal cannot be written.
    """
    stock = Stock(inputs.topology, inputs.capacity)
    fitting = [j for j in inputs.trace.jobs if j.gang <= stock.room(j)]
    rejected = tuple(j for j in inputs.trace.jobs if j.gang > stock.room(j))
    if not fitting:
        raise TraceError(f"no job of the trace fits the cluster: {told_rejected(rejected, stock)}; name another cluster")
    jobs, settings, weights = prepare(inputs, fitting)
    physics = Physics(inputs.topology, inputs.slowdowns, settings.restart_cost_ms)
    journal = open_journal(settings)
    try:
        run = _Run(TraceCluster(physics, jobs, stock), settings, records, journal, is_checked=is_checked)
        started = time.perf_counter()
        run.go(progress)
    finally:
        journal.close()
    return Replayed(
        jobs=jobs,
        rejected=rejected,
        weights=weights,
        rounds=run.observer.rounds,
        reserved_gpu_s=run.observer.reserved_gpu_s,
        round_wall_ms=run.round_wall_ms,
        wall_s=time.perf_counter() - started,
    )


def told_rejected(rejected: Sequence[TraceJob], stock: Stock) -> str:
    """Jobs that the cluster cannot serve, the first of them, each with the reason."""
    told = [f"{ascii('/'.join(job.key))[:60]} {stock.why_not(job)}" for job in rejected[:REJECTED_SHOWN_MAX]]
    return "; ".join([*told, *(["..."] if len(rejected) > REJECTED_SHOWN_MAX else [])])


def prepare(inputs: Inputs, jobs: list[TraceJob]) -> tuple[tuple[SimulatedJob, ...], Settings, dict[AppId, float]]:
    """Jobs with what they declare, and the settings with the slowdowns as declared."""
    ids = engine_ids(tuple(jobs))
    apps: dict[AppId, float] = {}
    for job in jobs:
        apps.setdefault(job.app_id, job.weight)
    weights = {app_id: (inputs.weights or {}).get(app_id, own) for app_id, own in apps.items()}
    lies = {(m.app_id, m.about): m.factor for m in inputs.misreports}
    unknown = sorted({m.app_id for m in inputs.misreports} - apps.keys())
    if unknown:
        raise TraceError(f"--misreport: no app is called {unknown[0]!r:.60}; name one of the trace")
    models: dict[str, Slowdowns] = dict(inputs.slowdowns.by_model)
    out = []
    for index, job in enumerate(jobs):
        factor = _error(inputs, job.app_id) * lies.get((job.app_id, "work"), 1.0)
        told = Declaration(
            work=job.work_gpu_s * 1000.0 * factor,
            model=_told_model(job, lies.get((job.app_id, "slowdown")), models),
            max_gpus=max(1, round(job.max_gpus * lies.get((job.app_id, "parallelism"), 1.0))),
        )
        out.append(
            SimulatedJob(
                spec=job,
                index=index,
                job_id=ids[job.key],
                arrival_ms=ceil_ms(job.arrival_s),
                work=job.work_gpu_s * 1000.0,
                told=told,
                weight=weights[job.app_id],
            )
        )
    settings = _with_slowdowns(inputs.settings, SlowdownModel(by_model=models, default=NO_SLOWDOWN))
    return tuple(out), settings, weights


def _error(inputs: Inputs, app_id: AppId) -> float:
    """An app's factor, log-uniform in [1 / (1 + X), 1 + X]; it hangs on the seed and the app's name only."""
    if inputs.estimate_error <= 0:
        return 1.0
    return float((1.0 + inputs.estimate_error) ** Random(f"{inputs.seed}/{app_id}").uniform(-1.0, 1.0))


def _told_model(job: TraceJob, factor: float | None, models: dict[str, Slowdowns]) -> str:
    """The model that the job names; who lies about S has one of its own, with S - 1 so many times as large."""
    if factor is None:
        return job.model
    slot, machine, rack, cluster = models.get(job.model, NO_SLOWDOWN)
    name = f"{job.model} as told by {job.app_id}"
    models[name] = (_lie(slot, factor), _lie(machine, factor), _lie(rack, factor), _lie(cluster, factor))
    return name


def _lie(slowdown: float, factor: float) -> float:
    return 1.0 + (slowdown - 1.0) * factor


def _with_slowdowns(settings: Settings, slowdowns: SlowdownModel) -> Settings:
    return replace(settings, slowdowns=slowdowns, is_first_start_free=True)


class _Run:
    """The engine and its world, instant by instant."""

    def __init__(self, world: TraceCluster, settings: Settings, records: TextIO, journal: Journal, *, is_checked: bool) -> None:
        self.world = world
        self.observer = RoundsObserver(settings.lease_ms, world.renewed, records)
        self.round_wall_ms: list[float] = []
        first_ms = world.next_at_ms() or 0
        self._clock = _Clock(first_ms // settings.lease_ms * settings.lease_ms)
        self._timers = TimerTable()
        store = _NoMemory()
        self._driver = Driver(
            Arbiter(settings, is_checked=is_checked),
            store=store,
            rm=world,
            journal=journal,
            timers=self._timers,
            clock=self._clock,
            observers=[self.observer],
        )
        now_ms = self._clock.at_ms
        self._driver.handle(take_over(store, self._clock))
        self._driver.handle(RmAttached(at_ms=now_ms, start_id=START_ID))
        self._driver.handle(world.full_report(now_ms))

    def go(self, progress: Callable[[str], None] | None) -> None:
        """Until every job has finished."""
        told_at = time.perf_counter()
        last_finished, last_ms = 0, self._clock.at_ms
        while not self.world.is_over:
            due = [t for t in (self.world.next_at_ms(), self._timers.next_at_ms()) if t is not None]
            if not due:
                raise CoreError(f"{len(self.world.jobs) - self.world.finished} jobs wait and nothing will happen any more")
            self._clock.at_ms = max(self._clock.at_ms, min(due))
            self._instant(self._clock.at_ms)
            if self.world.finished > last_finished or self.world.is_busy:
                last_finished, last_ms = self.world.finished, self._clock.at_ms
            if self._clock.at_ms - last_ms > IDLE_MS_MAX and self.world.has_waiting:
                raise CoreError(f"nothing has run for {IDLE_MS_MAX} ms although jobs wait: the policy is stuck")
            if progress is not None and time.perf_counter() - told_at > PROGRESS_EVERY_S:
                told_at = time.perf_counter()
                progress(
                    f"day {self._clock.at_ms / 86_400_000:.1f}: {self.world.finished} of {len(self.world.jobs)} jobs done, "
                    f"{self.observer.rounds} rounds"
                )

    def _instant(self, now_ms: Millis) -> None:
        for _ in range(TURNS_OF_INSTANT_MAX):
            self.world.advance(now_ms)
            report = self.world.report(now_ms)
            if report is not None:
                self._driver.handle(report)
                continue
            timer = self._timers.pop_due(now_ms)
            if timer is None:
                self.world.settle(now_ms)
                return
            self._wake(now_ms, timer)
        raise CoreError(f"at {now_ms} ms one thing follows from another without end")

    def _wake(self, now_ms: Millis, timer: Timer) -> None:
        before, started = self.observer.rounds, time.perf_counter()
        self._driver.handle(Woke(at_ms=now_ms, timer=timer))
        if self.observer.rounds > before:
            self.round_wall_ms.append((time.perf_counter() - started) * 1000.0)
        if self.observer.broken is not None:
            raise self.observer.broken
