"""What runs where: containers as they are reported, counted by job and node.

A round that moves many jobs ends and starts as many containers as there are GPUs, all told of in one report; so they are
counted together.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from themis_arbiter.core import accounts
from themis_arbiter.core.effects import ContainerLost
from themis_arbiter.core.events import END_CAUSES, ContainerReport, EndCause
from themis_arbiter.core.state import State
from themis_arbiter.core.types import JobId, NodeName, add_count
from themis_arbiter.core.value import made

_DONE: Final = EndCause.DONE  # asked of every container
_container_lost = made(ContainerLost)


def take_containers(state: State, containers: Sequence[ContainerReport], known: Mapping[str, ContainerReport]) -> set[JobId]:
    """Enter a report's containers; returns jobs that had begun and whose GPUs are others now, not by their own finishing."""
    disturbed: set[JobId] = set()
    counts: dict[tuple[JobId, NodeName], int] = {}
    starts: dict[JobId, list[int]] = {}  # GPUs of new containers
    draining = state.ledger.draining_places() if any(c.is_ended for c in containers) else set()
    for container in containers:
        job_id, container_id = container.job_id, container.container_id
        is_new = container_id not in known
        was = state.containers.pop(container_id, None)
        if was is not None:
            _count(state, counts, was, -was.gpus)
        if container.is_ended:
            if was is None:
                continue
            cause = container.end_cause or END_CAUSES.get(container.exit_status, EndCause.FAILED)
            if not container.is_am:
                was_due = (job_id, container.node) in draining
                state.effects.append(_container_lost(job_id, container.node, was.gpus, cause, was_due))
            if cause is not _DONE:
                disturbed.add(job_id)
            continue
        state.containers[container_id] = container
        _count(state, counts, container, container.gpus)
        is_start = is_new and job_id in state.jobs and not container.is_am
        if is_start and not (state.returning and accounts.is_back(state, container)):
            starts.setdefault(job_id, []).append(container.gpus)
    for (job_id, node), more in counts.items():
        _run_on(state, job_id, node, more)
    for job_id, gpus in starts.items():
        if _start(state, job_id, gpus):
            disturbed.add(job_id)
    return disturbed


def _count(state: State, counts: dict[tuple[JobId, NodeName], int], container: ContainerReport, gpus: int) -> None:
    """GPUs that a container takes; those of application masters are outside the law of leases."""
    if container.is_am:
        add_count(state.foreign, container.node, gpus)
    else:
        place = container.job_id, container.node
        counts[place] = counts.get(place, 0) + gpus


def _run_on(state: State, job_id: JobId, node: NodeName, more: int) -> None:
    """Count GPUs of a job's containers on a node; nothing is kept of what is 0."""
    for outer, book, inner in ((job_id, state.usage, node), (node, state.users, job_id)):
        counts = book.setdefault(outer, {})
        add_count(counts, inner, more)
        if not counts:
            del book[outer]


def _start(state: State, job_id: JobId, gpus: Sequence[int]) -> bool:
    """Containers of so many GPUs each have started for a job; True: it had begun before."""
    job = state.jobs[job_id]
    if job.has_started or not state.settings.is_first_start_free:
        # A start is no service: what it costs is taken off before it is metered.
        speed = state.type_speed_on(job, state.usage.get(job_id, ()))
        state.jobs[job_id] = job.less([count * state.settings.restart_cost_ms for count in gpus], speed)
    return job.gpus_running > 0


def forget_containers(state: State) -> None:
    """Nothing is known to run: a full report is about to tell."""
    for book in (state.containers, state.usage, state.users, state.foreign):
        book.clear()
