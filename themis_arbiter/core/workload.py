"""Apps and their jobs as the arbiter knows them: what was declared, what was metered, what is left.

Declared work binds (mechanism.md, section 6): metered service counts it down, and when it is used up the job counts as having
as much again left as it has used, each time that happens. Metered service is GPU time of containers, less what each start
costs; a declaration may be a little short (`OVERRUN_TOLERANCE`) before it counts as used up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from themis_arbiter.core.events import JobReport, Meter
from themis_arbiter.core.gpu_speeds import Reach, gpus_for, merged
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId, GpuMillis, GpuSpeeds, JobId, Millis
from themis_arbiter.core.value import changed, made, value

GONE_STATUS: Final = "UNKNOWN"  # of a job that the ResourceManager stopped naming
DOUBLINGS_MAX: Final = 60  # past this a declaration was nonsense; work stays finite
OVERRUN_TOLERANCE: Final = 0.1  # of what was declared: costs the mechanism nothing visible (policy-study.md, S2.4)
LEFT_SHARE_MIN: Final = 0.02  # of what was declared: a live job counts as having at least so much left


@value(frozen=True, slots=True, kw_only=True)
class Job:
    """A job; `report` is its latest. `attained` is GPU time metered up to `metered_ms`, at `gpus_running` GPUs since then.

    `done` is the work that this amounts to: less than the time where its GPUs lie apart and its model's slowdown is known
    (`rate` is work a millisecond). What a start costs is taken off both at once, so they may be below 0 for a moment.
    """

    report: JobReport
    attained: GpuMillis = 0.0
    done: GpuMillis = 0.0
    metered_ms: Millis = 0
    rate: float = 0.0
    has_started: bool = False
    gpus_running: int = 0
    max_gpus: int = 0  # the most it ever asked for at once: its useful parallelism
    declared_later: GpuMillis | None = None  # by its agent: done then + remaining then
    retry_ms: Millis = 0  # not offered anything before: it did not use what it won, or an admin took it
    no_shows: int = 0  # in a row
    running_since_ms: Millis | None = None  # without a pause
    begun_at: GpuMillis = 0.0  # done when it last began anew (`restart` jobs); 0: never

    @property
    def job_id(self) -> JobId:
        """Its id."""
        return self.report.job_id

    @property
    def wanted(self) -> int:
        """GPUs that it could use now: what it runs on and what it still asks for."""
        return self.gpus_running + self.report.gpus_asked

    @property
    def has_run(self) -> bool:
        """Whether a change of GPUs costs it a restart."""
        return self.has_started or self.attained > 0

    @property
    def shaped_by(self) -> tuple[object, ...]:
        """What an app's work, parallelism, demand and speeds by type hang on of its job, beside its work."""
        report = self.report
        return report.gang, report.gpu_speeds, report.arrival_ms, self.max_gpus, report.is_finished, report.final_status

    def at(self, now_ms: Millis) -> "Job":
        """This job metered up to `now_ms`."""
        elapsed = now_ms - self.metered_ms
        if elapsed == 0 or self.gpus_running == 0:
            return self
        return _metered(self, self.attained + self.gpus_running * elapsed, self.done + self.rate * elapsed, now_ms)

    def told(self, report: JobReport) -> "Job":
        """This job as it is now reported."""
        return _told(self, report)

    def on(self, gpus: int, rate: float, now_ms: Millis) -> "Job":
        """This job on so many GPUs from now on."""
        since = self.running_since_ms if gpus and self.gpus_running else now_ms if gpus else None
        return _running(self.at(now_ms), now_ms, gpus, rate, since, self.has_started or gpus > 0)

    def less(self, costs: Iterable[GpuMillis], type_speed: float = 1.0) -> "Job":
        """This job with what its starts cost it taken off, one after the other, on GPUs of that speed by their type."""
        attained, done = self.attained, self.done
        for cost in costs:
            attained -= cost
            done -= cost * type_speed
        return _metered(self, attained, done, self.metered_ms)

    def account(self, arrival_ms: Millis) -> Meter:
        """What the store keeps of it as it is now metered; `arrival_ms` is its app's."""
        ended = None
        if self.report.is_finished:
            work = self.report.work
            # Whole numbers become floats as they do in the journal, or a replay would write another batch.
            ended = replace(self.report, work=None if work is None else float(work), weight=float(self.report.weight))
        return _meter(
            attained=self.attained,
            done=self.done,
            metered_ms=self.metered_ms,
            app_id=self.report.app_id,
            arrival_ms=arrival_ms,
            gpus=self.gpus_running,
            rate=self.rate,
            running_since_ms=self.running_since_ms,
            max_gpus=self.max_gpus,
            begun_at=self.begun_at,
            declared_later=self.declared_later,
            ended=ended,
        )

    def work(self, guess: GpuMillis) -> GpuMillis:
        """Its serial work as now believed; `guess` if nobody declared it. Of a job that is over, what it took then."""
        declared = self.declared_later if self.declared_later is not None else self.report.work
        if self.report.is_finished and declared is None:
            return max(1.0, self.done - self.begun_at)
        believed = max(1.0, declared if declared is not None else guess)
        done = self.done - self.begun_at
        if self.report.is_finished and done > believed * (1 + OVERRUN_TOLERANCE):
            return done
        return believed_work(believed, done)

    def remaining(self, guess: GpuMillis) -> GpuMillis:
        """Serial work left, above 0 while the job lives."""
        return work_left(self.work(guess), self.done - self.begun_at)


_metered = changed(Job, "attained", "done", "metered_ms")
_told = changed(Job, "report")
_running = changed(Job, "metered_ms", "gpus_running", "rate", "running_since_ms", "has_started")
_meter = made(Meter)


def believed_work(declared: GpuMillis, done: GpuMillis) -> GpuMillis:
    """The serial work that a live job counts as having: what it declared, doubled until it is more than is done."""
    if done <= declared * (1 + OVERRUN_TOLERANCE):
        return declared
    for _ in range(DOUBLINGS_MAX):
        if declared > done:
            break
        declared *= 2
    return declared


def work_left(work: GpuMillis, done: GpuMillis) -> GpuMillis:
    """What a live job that is believed to have `work` in all has left, above 0."""
    return max(1.0, LEFT_SHARE_MIN * work, work - max(0.0, done))


def job_of(meter: Meter, report: JobReport) -> Job:
    """The job that a stored account is of: as it was when it was metered."""
    return Job(
        report=report,
        attained=meter.attained,
        done=meter.done,
        metered_ms=meter.metered_ms,
        rate=meter.rate,
        has_started=meter.gpus > 0 or meter.attained != 0.0,
        gpus_running=meter.gpus,
        max_gpus=max(meter.max_gpus, report.gang, report.gpus_asked, report.max_gpus),
        declared_later=meter.declared_later,
        running_since_ms=meter.running_since_ms,
        begun_at=meter.begun_at,
    )


@value(frozen=True, slots=True, kw_only=True)
class App:
    """An app: the unit of fairness. It has ended when all its jobs have."""

    app_id: AppId
    arrival_ms: Millis
    user: str
    queue: str
    weight: float
    job_ids: tuple[JobId, ...] = ()
    finish_ms: Millis = 0  # 0 while it lives
    final_status: str = ""
    fair_finish_ms: float | None = None  # once the fluid model has let go of it
    presence_at_arrival: float = 0.0  # see Market.n_avg
    ended_service: GpuMillis = 0.0  # GPU time of its jobs that are over
    told_work: GpuMillis = 0.0  # work and parallelism that the fluid model was last told
    told_parallelism: float = 0.0
    told_speeds: GpuSpeeds = ()
    demand: int = 0  # GPUs that all its jobs, those that are over too, could use at once
    is_flowing: bool = False  # the fluid share knows of it: not while it waits to be let in or asks for the impossible
    admitted_ms: Millis | None = None  # when admission control let it in; None where there is none

    @property
    def has_ended(self) -> bool:
        """Whether all its jobs are over."""
        return self.finish_ms > 0


def guessed_work(job: Job, lease_ms: Millis) -> GpuMillis:
    """Work of a job that nobody declared: a lease's worth on all GPUs that it asked for, at first."""
    return float(lease_ms * max(job.report.gang, job.max_gpus))


def app_demand(jobs: Iterable[Job]) -> int:
    """GPUs that the jobs could use at once."""
    return sum([max(1, j.report.gang, j.max_gpus) for j in jobs])


def app_shape(app: App, jobs: Sequence[Job], works: Sequence[GpuMillis], topology: Topology) -> tuple[GpuMillis, float]:
    """An app's serial work, and its useful parallelism = work / longest (contracts.md), of its jobs and their works.

    Who declares speeds by GPU type takes the GPU time, and at least the time, that its gang takes at its best in this cluster.
    """
    reaches = [_reach(j, topology) for j in jobs]
    times = [r.gpu_time(w) for r, w in zip(reaches, works, strict=True)]
    longest = max(j.report.arrival_ms - app.arrival_ms + t / r.gpus for j, r, t in zip(jobs, reaches, times, strict=True))
    parallelism = sum(times) / longest
    if len(jobs) > 1 and any(j.report.gpu_speeds for j in jobs):  # each type counts for the fastest, so it might end too soon
        most = gpus_for(app_speeds(jobs, topology), topology.gpus_by_type, sum(works) / longest)
        parallelism = min(parallelism, most) or parallelism
    return sum(works), parallelism


def _reach(job: Job, topology: Topology) -> Reach:
    gang = max(1, job.report.gang)
    return topology.reach(job.report.gpu_speeds, gang, max(gang, job.max_gpus))


def app_speeds(jobs: Iterable[Job], topology: Topology) -> GpuSpeeds:
    """What an app can use by GPU type: of each what that job of its can which is fastest there, gangs as a whole.

    Jobs that ended while nobody looked do not count: what they had declared is not known any more.
    """
    known = (j for j in jobs if not (j.report.is_finished and j.report.final_status == GONE_STATUS))
    return merged(_reach(j, topology).speeds for j in known)
