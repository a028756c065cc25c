"""When leases may end early: at a tick, for an urgent job that waits, and never an urgent holder's (mechanism.md, 6, rule 4).

Ticks lie on a grid of their own between lease ends. Looking at every tick would be idle work, since a waiting job's regret
only grows with the time: so the arbiter works out when the first one becomes urgent and looks at the tick after that. Anything
that could bring that forward (an arrival, an end, a correction) wants a round, and a round looks at the next tick.
"""

from collections.abc import Iterator
from typing import Final

from themis_arbiter.core.events import Timer
from themis_arbiter.core.kinds import protected_jobs
from themis_arbiter.core.lease import ACTIVE, Lease
from themis_arbiter.core.policies.guard import is_recalling, is_recalling_for_all
from themis_arbiter.core.rho import wait_until_urgent
from themis_arbiter.core.state import State
from themis_arbiter.core.types import AppId, JobId, Millis
from themis_arbiter.core.workload import App, Job, guessed_work

NEVER_MS: Final = 1 << 62


def watch(state: State) -> None:
    """Look for urgent waiting jobs at the next tick."""
    if is_recalling(state.settings):
        state.wake_at(Timer.RECALL, _tick_from(state, state.now_ms + 1))


def is_due(state: State) -> bool:
    """Whether some waiting job is urgent, and a recall would end before the grid does; else the right tick is waited for."""
    state.is_still = True  # until a round is held
    if is_recalling_for_all(state.settings):
        first = state.now_ms if any(_waiting(state)) else None
    else:
        first = _first_urgent(state)
    if first is None:
        return False
    if first > state.now_ms or state.now_ms + state.settings.notice_ms >= state.grid_end():
        state.wake_at(Timer.RECALL, _tick_from(state, max(first, state.now_ms + 1)))
        return False
    return True


def recallable(state: State) -> list[Lease]:
    """Leases that may end early, in order of GPU; whether their job is urgent is for the policy to say.

    Only of jobs that run on all that they have: who starts, moves or goes is left alone. Not inside the protected minimum
    runtime, and never of jobs that must not be interrupted.
    """
    jobs: dict[JobId, list[Lease] | None] = {}
    for lease in state.ledger:
        known = jobs.setdefault(lease.job_id, [])
        if known is None:
            continue
        if lease.state is ACTIVE and not state.ledger.has_next(lease.gpu) and state.is_live(lease.job_id):
            known.append(lease)
        else:
            jobs[lease.job_id] = None
    end_ms = state.now_ms + state.settings.notice_ms
    kept = protected_jobs(state, jobs, end_ms)
    found = [x for job_id, leases in jobs.items() if leases and job_id not in kept for x in leases]
    found = [x for x in found if x.end_ms > end_ms and not state.is_out_of_service(x.node_of_gpu)]
    return sorted(found, key=lambda x: x.gpu)


def _tick_from(state: State, at_ms: Millis) -> Millis:
    tick_ms = state.settings.tick_ms
    return -(-at_ms // tick_ms) * tick_ms


def _first_urgent(state: State) -> Millis | None:
    """When the first of the waiting jobs becomes urgent, or did; None: nobody waits.

    As long as nothing but time has passed it is the same, until a job may be offered something again.
    """
    version, until_ms, first = state.first_urgent
    if version != state.version or state.now_ms >= until_ms:
        until_ms = min((job.retry_ms for job in _live(state) if job.retry_ms > state.now_ms), default=NEVER_MS)
        first = min((at_ms for app in _flowing(state) if (at_ms := _urgent_from(state, app)) is not None), default=None)
        state.first_urgent = (state.version, until_ms, first)
    return first


def _flowing(state: State) -> Iterator[App]:
    for app_id in state.live_jobs:
        app = state.apps[app_id]
        if app.is_flowing:
            yield app


def _live(state: State) -> Iterator[Job]:
    for app in _flowing(state):
        yield from state.live_of(app.app_id)


def _waiting(state: State) -> Iterator[Job]:
    """Live jobs without a gang, in order of app."""
    for app in _flowing(state):
        yield from _waiting_of(state, app.app_id)


def _waiting_of(state: State, app_id: AppId) -> list[Job]:
    jobs, kept_count, now_ms = state.jobs, state.ledger.kept_count, state.now_ms
    return [
        job
        for job_id in state.live_jobs[app_id]
        if (job := jobs[job_id]).wanted >= job.report.gang > kept_count(job_id) and job.retry_ms <= now_ms
    ]


def _urgent_from(state: State, app: App) -> Millis | None:
    """When the first of an app's waiting jobs becomes urgent: the one that takes longest. None: none waits."""
    longest = _longest_wait(state, app.app_id)
    if longest is None:
        return None
    return app.arrival_ms + wait_until_urgent(state.settings, state.t_independent_ms(app), longest)


def _longest_wait(state: State, app_id: AppId) -> float | None:
    """How long the longest of an app's waiting jobs would run; remembered while all of them wait, and as they did before."""
    if state.ledger.kept_by_app(app_id):
        return max([_time_left(state, job) for job in _waiting_of(state, app_id)], default=None)
    live = state.live_of(app_id)
    known = state.longest_waits.get(app_id)
    if known is not None and known[0] == live and known[1] is state.topology:
        return known[2]
    waiting = _waiting_of(state, app_id)
    longest = max([_time_left(state, job) for job in waiting], default=None)
    if len(waiting) == len(live):
        state.longest_waits[app_id] = (live, state.topology, longest)
    return longest


def _time_left(state: State, job: Job) -> float:
    """How long a waiting job would run at its best; remembered until the job or the cluster is another."""
    known = state.times_left.get(job.report.job_id)
    if known is not None and known[0] is job and known[1] is state.topology:
        return known[2]
    count = max(job.report.gang, job.wanted)
    best = state.topology.best_locality(count)
    speed = state.settings.slowdowns.speed_at(job.report.model, count, best, best)
    speeds = state.topology.speeds(job.report.gpu_speeds)
    if speeds is not None:
        speed *= speeds.best(count)
    left = job.remaining(guessed_work(job, state.settings.lease_ms)) / speed
    state.times_left[job.job_id] = (job, state.topology, left)
    return left
