"""What a job of a trace does in virtual time (contracts.md, "What a simulated job does").

A job holds GPUs under leases and runs on all of them, from the instant it has a gang. What it runs on is settled once an
instant, when everything that happens then has happened: a set that goes and comes back at one instant was never gone.
Times are whole milliseconds, but for the finish, which is exact.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeAlias

from themis_arbiter.core.gpu_speeds import as_text
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import (
    CHECKPOINT,
    CoreError,
    GpuId,
    GpuMillis,
    GrantId,
    JobId,
    LeaseId,
    Millis,
    OnLeaseEnd,
    RoundNo,
)
from themis_arbiter.core.value import value
from themis_arbiter.sim.trace import TraceJob

Grant: TypeAlias = tuple[GrantId, RoundNo]

SAME_INSTANT_MS: Final = 1  # who goes on on the same GPUs within it was not interrupted
WORK_EPSILON: Final = 1e-9  # of a job's work: rounding, not work


@value(frozen=True, slots=True)
class Run:
    """A stretch of time on one set of GPUs; milliseconds."""

    start_ms: Millis
    end_ms: float
    gpus: tuple[GpuId, ...]
    grant_id: GrantId
    round_no: RoundNo


@dataclass(frozen=True, slots=True)
class Physics:
    """What speed hangs on, and what a change of GPUs costs."""

    topology: Topology
    slowdowns: SlowdownModel
    restart_cost_ms: Millis

    def speed(self, job: TraceJob, gpus: tuple[GpuId, ...]) -> float:
        """GPU-ms of work a ms of a job on these GPUs. Errors: CoreError where it must not have one of them."""
        speed = self.slowdowns.speed(job.model, gpus, self.topology)
        speeds = self.topology.speeds(job.gpu_speeds)
        if speeds is None:
            return speed
        if not all(speeds.is_usable(gpu) for gpu in gpus):
            raise CoreError(f"job {job.key} cannot run on one of {gpus}: it declares {as_text(job.gpu_speeds)}")
        return speed * speeds.slowest(gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a job says of itself, true or not: `work` in GPU-ms; it never asks for more GPUs than it says it can use."""

    work: GpuMillis
    model: str
    max_gpus: int


@dataclass(slots=True, kw_only=True)
class SimulatedJob:
    """A job and its progress; `work` in GPU-ms, true and not as declared."""

    spec: TraceJob
    index: int  # its place in the trace
    job_id: JobId  # as the engine calls it
    arrival_ms: Millis
    work: GpuMillis
    told: Declaration
    weight: float = 1.0
    has_arrived: bool = False
    kept: dict[GpuId, LeaseId] = field(default_factory=dict)  # granted, not asked back
    draining: dict[GpuId, tuple[LeaseId, Millis]] = field(default_factory=dict)  # to be given back by then
    running: tuple[GpuId, ...] = ()
    since_ms: Millis = 0  # of what it runs on
    speed: float = 0.0  # GPU-ms of work a ms on it
    owed_ms: float = 0.0  # of a restart, before it gets on
    done: GpuMillis = 0.0
    last_running: tuple[GpuId, ...] = ()
    last_end_ms: float = 0.0
    has_started: bool = False
    first_start_ms: Millis = 0
    restarts: int = 0
    finish_ms: float | None = None
    plan: int = 0  # number of its latest planned finish; older ones are void
    grant: Grant = ("", 0)  # the latest that it was told of
    runs_under: Grant = ("", 0)
    renewals: list[tuple[Millis, Grant]] = field(default_factory=list)  # lease ends at which it goes on, and under what
    runs: list[Run] = field(default_factory=list)

    @property
    def held(self) -> int:
        """GPUs in its hands."""
        return len(self.kept) + len(self.draining)

    @property
    def most(self) -> int:
        """GPUs that it would use now: who cannot keep progress through a change does not ask for one."""
        if self.spec.on_lease_end is not CHECKPOINT and (self.running or self.held >= self.spec.gang):
            return len(self.running) or self.held
        return max(self.spec.gang, min(self.spec.max_gpus, self.told.max_gpus))

    @property
    def asked(self) -> int:
        """GPUs that it waits for, beside those that it holds."""
        return max(0, self.most - self.held) if self.has_arrived and self.finish_ms is None else 0

    def settle(self, now_ms: Millis, physics: Physics) -> bool:
        """Let it run on what it holds now; returns whether that is another set than before."""
        gpus = tuple(sorted((*self.kept, *self.draining))) if self.held >= self.spec.gang else ()
        if gpus == self.running:
            self._go_on(now_ms)
            return False
        self.stop(now_ms)
        if gpus:
            self._start(gpus, now_ms, physics)
        return True

    def _go_on(self, now_ms: Millis) -> None:
        """On the same GPUs; perhaps under another lease from now on."""
        latest = self.renewals[-1][1] if self.renewals else self.runs_under
        if self.running and self.grant[0] != latest[0]:
            self.renewals.append((now_ms, self.grant))

    def _start(self, gpus: tuple[GpuId, ...], now_ms: Millis, physics: Physics) -> None:
        goes_on = gpus == self.last_running and now_ms - self.last_end_ms <= SAME_INSTANT_MS
        if not self.has_started:
            self.first_start_ms = now_ms
        elif not goes_on:
            self.owed_ms = float(physics.restart_cost_ms)
            self.restarts += 1
            if self.spec.on_lease_end is OnLeaseEnd.RESTART:
                self.done = 0.0
        self.running, self.since_ms, self.runs_under = gpus, now_ms, self.grant
        self.speed = physics.speed(self.spec, gpus)
        self.has_started = True

    def finishes_ms(self) -> float | None:
        """When its work will be done if nothing changes."""
        if not self.running:
            return None
        return self.since_ms + self.owed_ms + max(0.0, self.work - self.done) / self.speed

    def stop(self, now_ms: float) -> None:
        """Leave what it runs on."""
        if not self.running:
            return
        elapsed = now_ms - self.since_ms
        pays = min(self.owed_ms, elapsed)
        self.owed_ms -= pays
        self.done += (elapsed - pays) * self.speed
        self._note_runs(now_ms)
        self.last_running, self.last_end_ms, self.running = self.running, now_ms, ()

    def finish(self, at_ms: float) -> None:
        """Its work is done, at the exact time `at_ms`."""
        self.stop(at_ms)
        self.done, self.finish_ms = self.work, at_ms
        self.kept.clear()
        self.draining.clear()

    def _note_runs(self, end_ms: float) -> None:
        """One run for each lease that it went through."""
        start, grant = self.since_ms, self.runs_under
        for at_ms, following in self.renewals:
            if start < at_ms < end_ms:
                self.runs.append(Run(start, float(at_ms), self.running, *grant))
                start, grant = at_ms, following
        self.runs.append(Run(start, end_ms, self.running, *grant))
        self.renewals = [renewal for renewal in self.renewals if renewal[0] > end_ms]


def engine_ids(jobs: tuple[TraceJob, ...]) -> dict[tuple[str, str], JobId]:
    """A name for each job that no other job of any app has: its own where that is so, else with its app's before it."""
    names = [job.job_id for job in jobs]
    if len(set(names)) == len(names):
        return {job.key: job.job_id for job in jobs}
    return {job.key: f"{job.app_id.replace('%', '%25').replace('/', '%2F')}/{job.job_id}" for job in jobs}


def ceil_ms(seconds: float) -> Millis:
    """Whole milliseconds, rounded up; a hair above a whole one is that one."""
    return ceil(round(seconds * 1000.0, 6))
