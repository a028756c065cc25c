"""What jobs had used before this arbiter started, or before the ResourceManager did: taken back, and the gap metered.

The store has each job's account as of some moment and the GPUs that it ran on then. Accounts are stored with every batch of
leases after they changed, and within `METERS_STORED_MS` in any case, so the stored GPUs were still the job's when the latest
account was stored. What runs on as many when the job is named again is taken to have run throughout: nobody could give or take
GPUs meanwhile. What is not there any more is metered up to the latest account.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from themis_arbiter.core.events import ContainerReport, JobReport, Meter
from themis_arbiter.core.state import State
from themis_arbiter.core.types import JobId, Millis
from themis_arbiter.core.workload import GONE_STATUS, Job, job_of


def take_back(state: State, report: JobReport) -> tuple[Job | None, tuple[JobId, ...], list[Millis]]:
    """What is stored of a job that is new to this arbiter.

    The job as it ran when it was stored (None: nothing is), its app's jobs that were over then, entered again, and when the app
    arrived, by each of these.
    """
    arrivals: list[Millis] = []
    ended: list[JobId] = []
    for job_id in state.stored_apps.pop(report.app_id, ()):
        meter = state.stored_meters[job_id]
        arrivals.append(meter.arrival_ms)
        if meter.ended is not None:
            del state.stored_meters[job_id]
            state.jobs[job_id] = job_of(meter, meter.ended)
            ended.append(job_id)
    stored = state.stored_meters.pop(report.job_id, None)
    if stored is None:
        return None, tuple(ended), arrivals
    job = job_of(stored, report)
    job = replace(job, metered_ms=min(job.metered_ms, state.now_ms))  # the clock may have fallen
    state.taken_back.add(report.job_id)
    if stored.gpus:
        state.running[report.job_id] = None
        state.returning[report.job_id] = stored.gpus
    return job, tuple(ended), arrivals


def expect_back(state: State, known: Mapping[str, ContainerReport], named: Collection[str]) -> None:
    """A ResourceManager that has just started names containers as their nodes register: those that ran are not new then."""
    if state.rm is None or state.now_ms >= state.rm.trusted_ms:
        return
    for container_id, container in known.items():
        if container_id not in named and not container.is_am:
            state.returning[container.job_id] = state.returning.get(container.job_id, 0) + container.gpus


def is_back(state: State, container: ContainerReport) -> bool:
    """Whether a container that is new to this arbiter ran before: it costs no start, and its job goes on as it was."""
    if not state.returning:
        return False
    if state.rm is not None and state.rm.is_known and state.now_ms >= state.rm.trusted_ms:
        state.returning.clear()  # all that ran has been named
        return False
    left = state.returning.get(container.job_id, 0)
    if left < container.gpus:
        return False
    state.returning[container.job_id] = left - container.gpus
    return True


def catch_up(state: State, job: Job, running: int) -> Job:
    """A job just taken back, which is seen on so many GPUs now: what is gone counts as gone since the latest account."""
    if job.job_id not in state.taken_back:
        return job
    state.taken_back.discard(job.job_id)
    gone = max(0, job.gpus_running - running)
    if not gone:
        return job
    unseen_ms = state.now_ms - max(min(state.stored_ms, state.now_ms), job.metered_ms)
    rate = job.rate / job.gpus_running
    return replace(job, attained=job.attained - gone * unseen_ms, done=job.done - rate * gone * unseen_ms)


def close_unnamed(state: State) -> None:
    """A full report has named all jobs: the rest of what is stored was of jobs that ended while nobody looked."""
    if state.rm is None or state.now_ms < state.rm.trusted_ms:
        return
    for job_id, meter in sorted(state.stored_meters.items()):
        state.remetered[job_id] = None  # out of the store, where its app does not live
        if meter.app_id in state.live_jobs:
            _enter_ended(state, job_id, meter)
    state.stored_meters.clear()
    state.stored_apps.clear()


def _enter_ended(state: State, job_id: JobId, meter: Meter) -> None:
    """A job of a live app that ended meanwhile; nobody knows how it went, and it was last heard of when it was stored."""
    ended_ms = max(meter.metered_ms, min(state.stored_ms, state.now_ms))
    app = state.apps[meter.app_id]
    report = JobReport(
        app_id=app.app_id,
        job_id=job_id,
        user=app.user,
        queue=app.queue,
        arrival_ms=app.arrival_ms,
        is_finished=True,
        finish_ms=ended_ms,
        final_status=GONE_STATUS,
    )
    job = job_of(meter, report).at(ended_ms)
    state.jobs[job_id] = replace(job, gpus_running=0, rate=0.0)
    service = app.ended_service + max(0.0, job.attained)
    state.apps[app.app_id] = replace(app, job_ids=(job_id, *app.job_ids), ended_service=service)
    state.redeclare(app.app_id)
