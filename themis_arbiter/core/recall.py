"""When leases may end early: at a tick, for an urgent job that waits, and never an urgent holder's (mechanism.md, 6, rule 4).

Ticks lie on a grid of their own between lease ends. Looking at every tick would be idle work, since a waiting job's regret
only grows with the time: so the arbiter works out when the first one becomes urgent and looks at the tick after that. Anything
that could bring that forward (an arrival, an end, a correction) wants a round, and a round looks at the next tick.
"""

from collections.abc import Iterator

from themis_arbiter.core.events import Timer
from themis_arbiter.core.kinds import protected_jobs
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.policies.guard import is_recalling
from themis_arbiter.core.rho import wait_until_urgent
from themis_arbiter.core.state import State
from themis_arbiter.core.types import JobId, Millis
from themis_arbiter.core.workload import guessed_work


def watch(state: State) -> None:
    """Look for urgent waiting jobs at the next tick."""
    if is_recalling(state.settings):
        state.wake_at(Timer.RECALL, _tick_from(state, state.now_ms + 1))


def is_due(state: State) -> bool:
    """Whether some waiting job is urgent, and a recall would end before the grid does; else the right tick is waited for."""
    first = min((_urgent_from(state, job_id) for job_id in _waiting(state)), default=None)
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
        if lease.state is LeaseState.ACTIVE and not state.ledger.has_next(lease.gpu) and state.is_live(lease.job_id):
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


def _waiting(state: State) -> Iterator[JobId]:
    """Live jobs without a gang, in order of app."""
    for app_id, job_ids in state.live_jobs.items():
        if state.apps[app_id].is_flowing:
            for job_id in job_ids:
                job = state.jobs[job_id]
                if job.wanted >= job.report.gang > state.ledger.kept_count(job_id) and job.retry_ms <= state.now_ms:
                    yield job_id


def _urgent_from(state: State, job_id: JobId) -> Millis:
    job = state.jobs[job_id]
    app = state.apps[job.report.app_id]
    count = max(job.report.gang, job.wanted)
    best = state.topology.best_locality(count)
    speed = state.settings.slowdowns.speed_at(job.report.model, count, best, best)
    left = job.remaining(guessed_work(job, state.settings.lease_ms)) / speed
    return app.arrival_ms + wait_until_urgent(state.settings, state.t_independent_ms(app), left)
