"""Grid rounds in which the one before them is held again: nothing but time has passed, and everything was renewed where it was.

Most rounds of a full cluster are such. What a round hands out by an order of jobs then hangs on that order alone: what is on
offer and what everybody wants is the same, and how much work a job has left weighs only where it may grow or lie closer, and
there only once it is less than a lease's (`sharing`, `placing`). So who comes to the same order (`Repeating`) decides the same,
and neither shares nor places are worked out. The record, the renewals and their effects are those of any round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from themis_arbiter.core.gpu_speeds import fastest
from themis_arbiter.core.kinds import on_lease_end
from themis_arbiter.core.market_view import Offered
from themis_arbiter.core.policies.base import Decision
from themis_arbiter.core.state import State
from themis_arbiter.core.types import GpuId, GpuMillis, JobId, Millis, OnLeaseEnd
from themis_arbiter.core.workload import Job, guessed_work


@dataclass(frozen=True, slots=True)
class Precedent:
    """A grid round that could be held again as long as the state's version is `version`; all leases were renewed in it."""

    version: int
    offered: Offered
    decision: Decision
    head: Mapping[str, Any]  # what its record says of the offer
    moves: Mapping[str, list[str]]
    least_left: Mapping[JobId, GpuMillis]  # work that jobs must have left, where how much they have could weigh


def precedent_of(state: State, ends_at: Millis) -> Precedent | None:
    """The round that may be held again now; None: there is none."""
    known = state.precedent
    if known is None or known.version != state.version or any(x.end_ms > ends_at for x in state.ledger):
        return None
    state.meter()
    if known.version != state.version:  # some job has used up what it declared
        return None
    return known if _have_left(state, known.least_left) else None


def note(state: State, offered: Offered, decision: Decision, head: Mapping[str, Any], moves: Mapping[str, list[str]]) -> None:
    """Keep a grid round that was just held, if it could be held again."""
    state.precedent = None
    is_quiet = len(moves["renewed"]) == len(state.ledger) == len(offered.ending) and state.is_still
    if decision.orders is None or not is_quiet or _is_any_put_off(state):
        return
    holders = tuple(dict.fromkeys(offered.ending.values()))
    if not all(state.is_live(j) and on_lease_end(state, state.jobs[j]) is OnLeaseEnd.CHECKPOINT for j in holders):
        return
    least_left: dict[JobId, GpuMillis] = {}
    if not all(_has_its_best(state, job_id) for job_id in holders):
        # On no more than it wants, at its best speed, each does a lease's work of what is left and is not done.
        least_left = {j: _lease_work(state, j) for j in holders}
    if _have_left(state, least_left):
        state.precedent = Precedent(state.version, offered, decision, head, moves, least_left)


def _lease_work(state: State, job_id: JobId) -> GpuMillis:
    """The most that a job could do in a lease."""
    job = state.jobs[job_id]
    gpus = max(job.wanted, len(state.ledger.gpus_kept(job_id)))
    return gpus * state.settings.lease_ms * max(1.0, fastest(job.report.gpu_speeds))


def _have_left(state: State, least: Mapping[JobId, GpuMillis]) -> bool:
    lease_ms = state.settings.lease_ms
    return all(state.jobs[j].remaining(guessed_work(state.jobs[j], lease_ms)) >= left for j, left in least.items())


def _is_any_put_off(state: State) -> bool:
    """Whether some job is offered nothing now, and something again when its time has come."""
    return any(state.jobs[job_id].retry_ms > state.now_ms for jobs in state.live_jobs.values() for job_id in jobs)


def has_fastest(state: State, job: Job, gpus: tuple[GpuId, ...]) -> bool:
    """Whether no GPUs of another type would make a job faster than these, which it may all have."""
    speeds = state.topology.speeds(job.report.gpu_speeds)
    if speeds is None:
        return True
    return all(speeds.is_usable(g) for g in gpus) and speeds.slowest(gpus) >= speeds.best(len(gpus))


def _has_its_best(state: State, job_id: JobId) -> bool:
    """Whether a job has all that it wants, as near as can be."""
    job, gpus = state.jobs[job_id], state.ledger.gpus_kept(job_id)
    model, level, best = job.report.model, state.topology.locality(gpus), state.topology.best_locality(len(gpus))
    slowdown = state.settings.slowdowns.slowdown
    return (
        job.wanted == len(gpus)
        and has_fastest(state, job, gpus)
        and (level <= best or slowdown(model, level) <= slowdown(model, best))
    )
