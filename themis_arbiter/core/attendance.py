"""Who does not use what it won, and who uses what it never won.

A no-show: granted, asked for, and still unused after a while. It is taken back, and the job is offered nothing for 1, 2, 4, ...
leases, until it shows up once. The opposite: containers that no lease covers, after a fall-back or when the plugin is
first switched on, are *adopted* under leases to the next grid end (contracts.md, "A lease's end").
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from themis_arbiter.core.events import Timer
from themis_arbiter.core.lease import ACTIVE, GRANTED, PENDING, WAITING, Cause, Lease
from themis_arbiter.core.leasing import cancel, drain
from themis_arbiter.core.settings import NO_SHOW_LEASES_MAX
from themis_arbiter.core.state import State
from themis_arbiter.core.types import GpuId, GrantId, JobId, NodeName, counted, node_of


def on_shows(state: State) -> None:
    """The time to show up has come for some jobs: gangs that are not whole and GPUs that nobody uses go back."""
    for job_id in sorted(j for j, at in state.gang_deadlines.items() if at <= state.now_ms):
        late_ms = state.now_ms - state.gang_deadlines.pop(job_id)
        # Woken late, after a stop, there may be reports that nobody has read yet.
        if state.rm is None or state.now_ms < state.rm.trusted_ms or late_ms > state.settings.debounce_ms:
            _look_again(state, job_id)
            continue
        job = state.jobs.get(job_id)
        if job is None or not state.is_live(job_id):
            continue
        if job.gpus_running < job.report.gang and _is_coming(state, job_id):
            _look_again(state, job_id)
            continue
        if job.gpus_running < job.report.gang:
            _hand_back(state, job_id, _drainable(state, job_id), Cause.GANG_BROKEN if job.report.gang > 1 else Cause.NO_SHOW)
            continue
        unused = [x for x in state.ledger.of_job(job_id) if x.state is GRANTED and not state.ledger.is_next(x)]
        late = [x for x in unused if x.start_ms + state.show_ms(job_id) <= state.now_ms]
        if late:
            _hand_back(state, job_id, late, Cause.NO_SHOW)
        if len(late) < len(unused):
            _look_again(state, job_id)
    if state.gang_deadlines:
        state.wake_at(Timer.GANGS, min(state.gang_deadlines.values()))


def _is_coming(state: State, job_id: JobId) -> bool:
    """Whether the job waits for GPUs that it has won, or got some so lately that it need not have used them yet.

    A round may move a part of a gang just before its time to show up, which was about what it won before.
    """
    promised = (PENDING, WAITING)
    fresh_since = state.now_ms - state.show_ms(job_id)
    leases = state.ledger.of_job(job_id)
    return any(x.state in promised or (x.state is GRANTED and x.start_ms > fresh_since) for x in leases)


def _look_again(state: State, job_id: JobId) -> None:
    state.gang_deadlines[job_id] = state.now_ms + state.show_ms(job_id)


def _drainable(state: State, job_id: JobId) -> list[Lease]:
    return [x for x in state.ledger.of_job(job_id) if x.state in (GRANTED, ACTIVE)]


def _hand_back(state: State, job_id: JobId, leases: list[Lease], cause: Cause) -> None:
    job = state.jobs[job_id]
    wait = state.settings.lease_ms * min(NO_SHOW_LEASES_MAX, 2**job.no_shows)
    state.jobs[job_id] = replace(job, retry_ms=state.now_ms + wait, no_shows=job.no_shows + 1)
    drain(state, leases, state.now_ms + state.settings.notice_ms, cause)
    cancel(state, state.ledger.of_job(job_id), cause)


def adopt(state: State, touched: Collection[JobId]) -> None:
    """Lease to the next grid end what runs without a lease, where its node has GPUs that nobody else has.

    Looked at are the jobs in `touched`, and those for which there was no GPU before.
    """
    rm = state.rm
    state.uncovered |= {j for j in touched if j in state.usage}
    if rm is None or not (rm.is_known and rm.is_synced) or state.admin.is_observing:
        return
    adopted: list[Lease] = []
    for job_id in sorted(state.uncovered):
        over = _outside(state, job_id)
        if not over:
            state.uncovered.discard(job_id)
        elif state.is_live(job_id):
            adopted += _adopt_of(state, job_id, over)
    if adopted:
        state.persist(puts=adopted)


def _adopt_of(state: State, job_id: JobId, over: Mapping[NodeName, int]) -> list[Lease]:
    """New leases of what a job uses beyond its own, as far as there are GPUs that nobody else has."""
    gpus = [gpu for node in sorted(over) if state.topology.machine(node) for gpu in _unleased(state, node)[: over[node]]]
    if not gpus:
        return []
    grant_id = state.serial("G")
    leases = [_adopted_lease(state, job_id, gpu, grant_id) for gpu in gpus]
    if not _outside(state, job_id):
        state.uncovered.discard(job_id)
    return leases


def _unleased(state: State, node: NodeName) -> list[GpuId]:
    return [g for g in state.topology.gpus_of[node] if state.ledger.current(g) is None]


def _outside(state: State, job_id: JobId) -> dict[NodeName, int]:
    """GPUs by node that the job's containers use beyond its leases; no zeros."""
    use = state.usage.get(job_id)
    if not use:
        return {}
    leased = counted([node_of(x.gpu) for x in state.ledger.current_of_job(job_id)])
    return {node: over for node, count in use.items() if (over := count - leased.get(node, 0)) > 0}


def _adopted_lease(state: State, job_id: JobId, gpu: str, grant_id: GrantId) -> Lease:
    lease = Lease(
        lease_id=state.serial("L"),
        grant_id=grant_id,
        gpu=gpu,
        app_id=state.jobs[job_id].report.app_id,
        job_id=job_id,
        epoch=state.epoch,
        round_no=state.last_round,
        start_ms=state.now_ms,
        end_ms=state.next_end(),
        cause=Cause.ADOPTED,
    )
    state.enter([(lease, False)])
    return lease
