"""Looking on: what would be decided is recorded, and nothing is done about it.

While observing there are no leases and the gate stays open. A round takes what runs for what is held: at a grid end everything
that runs is on offer, between them what is free. The record's `moves` are empty; `would` says what would have moved.
"""

from collections.abc import Mapping

from themis_arbiter.core.lease import Cause, LeaseInput, ids_of
from themis_arbiter.core.state import State
from themis_arbiter.core.types import GpuId, JobId, NodeName, gpu_id


def begin_observing(state: State) -> None:
    """Give all leases up; who runs goes on, and YARN places as it likes."""
    gone = ids_of(state.move(ids_of(state.ledger), LeaseInput.LOST, Cause.OBSERVING))
    state.gang_deadlines.clear()
    if state.rm is not None:
        state.persist(deletes=gone, syncs_start_id=state.rm.start_id)
    elif gone:
        state.persist(deletes=gone)


def end_observing(state: State) -> None:
    """Lease again: the gate is told the (empty) set, and what runs is adopted by the next reports."""
    if state.rm is not None:
        state.persist(syncs_start_id=state.rm.start_id)


def gpus_in_use(state: State) -> dict[GpuId, JobId]:
    """Which GPUs what runs would be on, if devices went to containers by their ids: by node, in order of container id."""
    taken: dict[NodeName, int] = {}
    use: dict[GpuId, JobId] = {}
    for container_id in sorted(state.containers):
        container = state.containers[container_id]
        first = taken.get(container.node, 0)
        taken[container.node] = first + container.gpus
        if container.is_am:
            continue
        for ordinal in range(first, first + container.gpus):
            gpu = gpu_id(container.node, ordinal)
            if gpu in state.topology.places:
                use[gpu] = container.job_id
    return use


def would_move(ending: Mapping[GpuId, JobId], won: Mapping[JobId, tuple[GpuId, ...]]) -> dict[str, dict[GpuId, JobId]]:
    """What a decision would have moved: GPU id -> the job that would have kept, got or lost it."""
    winner = {g: job_id for job_id, gpus in won.items() for g in gpus}
    return {
        "keep": {g: j for g, j in sorted(ending.items()) if winner.get(g) == j},
        "lose": {g: j for g, j in sorted(ending.items()) if winner.get(g) != j},
        "get": {g: j for g, j in sorted(winner.items()) if ending.get(g) != j},
    }
