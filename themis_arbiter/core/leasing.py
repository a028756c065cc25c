"""A lease's life between rounds: confirmed in use, drained, released, handed on; and what the gate is told of it.

The ResourceManager counts GPUs by application and node, so use is matched to leases by count: the job's kept leases
there are in use first, what exceeds them is still held by draining ones. A draining lease is free for good only by a report
that was read after the gate had applied the drain: else a container could still slip in under it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from themis_arbiter.core.effects import GrantGpus, PersistLeases, RequestDrain, StandDown, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import LeasesPersisted, RmAttached, RmDetached, StoreFailed, Timer, UpdateRefused
from themis_arbiter.core.kinds import on_lease_end
from themis_arbiter.core.lease import ACTIVE, DRAINING, GRANTED, PENDING, WAITING, Cause, Lease, LeaseInput, ids_of, with_state
from themis_arbiter.core.state import RmLink, State
from themis_arbiter.core.types import GrantId, JobId, LeaseId, Millis, NodeName, OnLeaseEnd, node_of

OLD_EPOCH: Final = "OLD_EPOCH"  # why the gate refuses an update for good
RESYNC_MS_MIN: Final = 1_000  # between two full sets that answer refusals
STORE_RETRY_MS: Final = 1_000
IN_FORCE: Final = (GRANTED, ACTIVE, DRAINING)  # the GPU is the lease's own, and told of
NEVER_TOLD: Final = 1 << 62  # a drain that the gate has not been told of yet


# -- settling use with leases


def settle(state: State, touched: Collection[JobId]) -> list[JobId]:
    """Match what runs with what is leased, and let follow what follows.

    Looked at are the jobs in `touched` and those with changed or draining leases; they are returned.
    """
    seen: list[Lease] = []
    freed: list[Lease] = []
    job_ids = sorted(state.ledger.take_unsettled().union(touched))
    for job_id in job_ids:
        for node, here in _unsettled_by_node(state, job_id).items():
            used = state.used_on(job_id, node)
            seen += _begun(here, used)
            if node not in state.absent:  # what runs there is known when it is back
                freed += _free_by_now(state, here, used)
    if seen:
        _show_up(state, seen)
    if freed:
        promoted = state.hand_on(freed)
        state.persist(puts=promoted, deletes=ids_of(freed))
        if len(promoted) < len(freed):
            state.want_round()
    _watch_surplus(state, job_ids)
    return job_ids


@dataclass(slots=True)
class Here:
    """A job's leases on one node that are in force."""

    granted: list[Lease] = field(default_factory=list)
    draining: list[Lease] = field(default_factory=list)
    active: int = 0


def _unsettled_by_node(state: State, job_id: JobId) -> dict[NodeName, Here]:
    """A job's leases in force by node; of a job that has none to settle, nothing."""
    found: dict[NodeName, Here] = {}
    is_settled = True
    for lease in state.ledger.of_job(job_id):
        lease_state, node = lease.state, node_of(lease.gpu)
        if lease_state not in IN_FORCE:
            continue
        here = found.get(node)
        if here is None:
            here = found[node] = Here()
        if lease_state is ACTIVE:
            here.active += 1
            continue
        is_settled = False
        (here.granted if lease_state is GRANTED else here.draining).append(lease)
    return {} if is_settled else found


def _begun(here: Here, used: int) -> list[Lease]:
    """Of a job's leases on a node with `used` GPUs in use: those that are granted and in use by now."""
    if used <= here.active:
        return []
    return sorted(here.granted, key=_lease_id)[: used - here.active]


def _show_up(state: State, leases: Sequence[Lease]) -> None:
    state.move(ids_of(leases), LeaseInput.USE_SEEN, Cause.STARTED)
    for job_id in {x.job_id for x in leases}:
        job = state.jobs.get(job_id)
        if job is not None and job.no_shows:
            state.jobs[job_id] = replace(job, no_shows=0)


def _free_by_now(state: State, here: Here, used: int) -> list[Lease]:
    """Of a job's leases on a node with `used` GPUs in use: draining ones whose GPUs are free now."""
    still_held = max(0, used - len(here.granted) - here.active)
    if still_held >= len(here.draining):
        return []
    applied = state.rm.applied_seq if state.rm else 0
    ended = sorted(here.draining, key=_lease_id)[still_held:]
    return [x for x in ended if state.drain_seq.get(x.lease_id, NEVER_TOLD) <= applied]


_lease_id = attrgetter("lease_id")


def _watch_surplus(state: State, job_ids: Iterable[JobId]) -> None:
    if any(surplus(state, j) or not state.is_live(j) for j in _odd(state, job_ids)):
        state.wake_at(Timer.TIDY, state.now_ms + state.settings.debounce_ms)


def _odd(state: State, job_ids: Iterable[JobId]) -> list[JobId]:
    """Those that may have a surplus: of a live job that keeps no more than it wants, as most do, there is none."""
    kept, jobs = state.ledger.kept_count, state.jobs
    return [j for j in job_ids if (count := kept(j)) and not (state.is_live(j) and count <= jobs[j].wanted)]


def surplus(state: State, job_id: JobId) -> list[Lease]:
    """Granted leases that the job neither uses nor asks to use, those furthest from use first."""
    if state.is_live(job_id) and state.ledger.kept_count(job_id) <= state.jobs[job_id].wanted:
        return []
    kept = [x for x in state.kept_leases(job_id) if not state.ledger.is_next(x)]
    if not state.is_live(job_id):
        return [x for x in kept if x.state is not PENDING]
    job = state.jobs[job_id]
    over = len(kept) - job.wanted
    if over <= 0:
        return []
    idle: list[Lease] = []
    for node in sorted({x.node_of_gpu for x in kept}):
        here = sorted((x for x in kept if x.node_of_gpu == node), key=lambda x: x.lease_id)
        idle += here[state.used_on(job_id, node) :]
    return [x for x in idle if x.state is not PENDING][:over]


def on_tidy(state: State) -> None:
    """Take back what nobody wants, a debounce after it was first seen: an app that asks again at once keeps it."""
    if state.rm is None:
        return
    if state.now_ms < state.rm.trusted_ms:
        state.wake_at(Timer.TIDY, state.rm.trusted_ms)
        return
    for job_id in sorted(_odd(state, {x.job_id for x in state.ledger})):
        cause = Cause.UNWANTED if state.is_live(job_id) else Cause.APP_ENDED
        if not state.is_live(job_id):
            cancel(state, state.ledger.of_job(job_id), cause)
        drain(state, surplus(state, job_id), state.now_ms + state.settings.notice_ms, cause)


# -- endings


def drain(state: State, leases: Iterable[Lease], deadline_ms: Millis, cause: Cause) -> None:
    """End these leases: their holders are told to go, and taken at the deadline."""
    moved = state.move(ids_of(leases), LeaseInput.DRAIN_REQUESTED, cause)
    if not moved:
        return
    ids = ids_of(moved)
    state.drain_seq.update(dict.fromkeys(ids, NEVER_TOLD))
    state.deadlines.update(dict.fromkeys(ids, deadline_ms))
    state.persist(puts=moved, drains=[(i, deadline_ms) for i in ids], meters_of={x.job_id for x in moved})


def cancel(state: State, leases: Iterable[Lease], cause: Cause) -> None:
    """Take back promises that nobody has been told of."""
    leases = [x for x in leases if x.state in (PENDING, WAITING)]
    state.move(ids_of(leases), LeaseInput.CANCELLED, cause)
    if leases:
        state.persist(deletes=[x.lease_id for x in leases])
        _grant_what_waited(state, leases)
        state.want_round()


def _grant_what_waited(state: State, gone: Iterable[Lease]) -> None:
    """Leases that waited for these, to be granted with them as one gang, wait no more."""
    for job_id, grant_id in sorted({(x.job_id, x.grant_id) for x in gone}):
        grant_if_whole(state, job_id, grant_id)


def lose_node(state: State, node: NodeName, *, only_vanished: bool = False) -> None:
    """A node is gone (or some of its GPUs are): so are its leases, and gangs that are broken by it."""
    lost = [x for x in state.ledger if x.node_of_gpu == node]
    if only_vanished:
        lost = [x for x in lost if x.gpu not in state.topology.places]
    if not lost:
        return
    state.move(ids_of(lost), LeaseInput.LOST, Cause.NODE_LOST)
    state.persist(deletes=ids_of(lost))
    for job_id in sorted({x.job_id for x in lost}):
        kept = state.kept_leases(job_id)
        job = state.jobs.get(job_id)
        if job is not None and 0 < len(kept) < job.report.gang:
            able = (GRANTED, ACTIVE)
            rest = [x for x in kept if x.state in able]
            drain(state, rest, state.now_ms + state.settings.notice_ms, Cause.GANG_BROKEN)
            cancel(state, [x for x in kept if x.state not in able], Cause.GANG_BROKEN)
    _grant_what_waited(state, lost)
    state.want_round()


def on_absent(state: State) -> None:
    """Nodes that a full report did not name and that have not come back in time are lost."""
    for name in sorted(n for n, at in state.absent.items() if at <= state.now_ms):
        del state.absent[name]
        del state.nodes[name]
        state.rebuild_topology()
        lose_node(state, name)
    if state.absent:
        state.wake_at(Timer.ABSENT, min(state.absent.values()))


# -- the store's answers, and what the gate may be told then


def on_persisted_or_failed(state: State, event: LeasesPersisted | StoreFailed, *, is_stored: bool) -> None:
    """Go on with the head of the queue of writes; what the store did not take is tried again."""
    if not state.pending or state.pending[0].batch.batch_no != event.batch_no:
        return
    if not is_stored:
        state.wake_at(Timer.STORE_RETRY, state.now_ms + STORE_RETRY_MS)
        return
    done = state.pending.popleft()
    if state.pending:
        state.emit(PersistLeases(batch=state.pending[0].batch))
    state.is_still = not (done.drains or done.withdrawals or done.syncs_start_id)
    _after_commit(state, done.batch.puts, done.drains, done.withdrawals)
    if done.syncs_start_id and state.rm is not None and state.rm.start_id == done.syncs_start_id:
        _sync(state)


def on_store_retry(state: State) -> None:
    """Write the head of the queue again."""
    if state.pending:
        state.emit(PersistLeases(batch=state.pending[0].batch))


def on_meters(state: State) -> None:
    """No other batch has taken the accounts that changed to the store."""
    if state.pending:  # the store is slow or fails: more batches would not make it faster
        state.store_meters_soon()
    elif state.remetered:
        state.persist()
    state.is_still = True


def _after_commit(
    state: State,
    puts: tuple[Lease, ...],
    drains: tuple[tuple[LeaseId, Millis], ...],
    withdrawals: tuple[LeaseId, ...],
) -> None:
    """Tell the gate what is stored by now; new leases are stored as granted or waiting (`state.as_stored`) and are so now."""
    if withdrawals:
        seq = state.rm_seq()
        if seq is not None and state.rm is not None:
            state.emit(WithdrawLeases(epoch=state.epoch, start_id=state.rm.start_id, seq=seq, lease_ids=withdrawals))
    by_deadline: dict[Millis, list[LeaseId]] = {}
    for lease_id, _ in drains:
        lease = state.ledger.get(lease_id)
        if lease is not None:
            # The store may have taken long.
            deadline_ms = state.deadlines[lease_id] = _told_deadline(state, lease)
            by_deadline.setdefault(deadline_ms, []).append(lease_id)
    for deadline_ms, ids in sorted(by_deadline.items()):
        _tell_drain(state, tuple(ids), deadline_ms)
    new = [x for x in puts if x.state is GRANTED or x.state is WAITING]
    new = [x for x in new if (now := state.ledger.get(x.lease_id)) is not None and now.state is PENDING]
    if not new:
        return
    state.is_still = False
    # One whose GPU was free before its promise was stored is no next lease any more: a later write makes it the current one.
    promised = [x.lease_id for x in new if x.state is WAITING and state.ledger.is_next(x)]
    state.move(promised, LeaseInput.PERSISTED_AS_NEXT)
    free = [x for x in new if x.state is GRANTED]
    state.persisted.update(ids_of(free))
    for job_id, grant_id in dict.fromkeys([(x.job_id, x.grant_id) for x in free]):
        grant_if_whole(state, job_id, grant_id)


def grant_if_whole(state: State, job_id: JobId, grant_id: GrantId) -> None:
    """Grant what is stored of a grant, whole where it has to be: when all of it is free and stored.

    So no part of a gang idles, and what must not be interrupted does not start on a part and is moved when the rest comes.
    """
    to_come = [x.lease_id for x in state.grant_leases(job_id, grant_id) if x.state is PENDING or x.state is WAITING]
    ready = [i for i in to_come if i in state.persisted]  # what is stored and was granted or gone is not in there
    job = state.jobs.get(job_id)
    is_at_once = job is not None and (job.report.gang > 1 or on_lease_end(state, job) is OnLeaseEnd.NEVER)
    if not ready or (is_at_once and len(ready) < len(to_come)):
        return
    granted = state.move(ready, LeaseInput.PERSISTED)
    state.persisted.difference_update(ready)
    state.count(granted[0].app_id, granted=len(granted))
    seq = state.rm_seq()
    if seq is not None and state.rm is not None:
        state.emit(GrantGpus(epoch=state.epoch, start_id=state.rm.start_id, seq=seq, leases=tuple(granted)))
    late = [x for x in granted if x.end_ms < state.next_end()]
    if late:  # the store took so long that their ends are past, or the round for them is
        state.persist(puts=state.move(ids_of(late), LeaseInput.RENEWED, Cause.RECOVERY, state.next_end()))
    if job is not None:
        due = state.now_ms + state.show_ms(job_id)
        state.gang_deadlines[job_id] = min(due, state.gang_deadlines.get(job_id, due))
        state.wake_at(Timer.GANGS, state.gang_deadlines[job_id])
    _watch_surplus(state, (job_id,))


def _tell_drain(state: State, lease_ids: tuple[LeaseId, ...], deadline_ms: Millis) -> None:
    seq = state.rm_seq()
    if seq is None or state.rm is None:
        return
    state.drain_seq.update(dict.fromkeys(lease_ids, seq))
    state.emit(
        RequestDrain(epoch=state.epoch, start_id=state.rm.start_id, seq=seq, lease_ids=lease_ids, deadline_ms=deadline_ms)
    )


# -- the scheduler object that listens


def on_attached(state: State, event: RmAttached | UpdateRefused) -> None:
    """A scheduler object listens: it gets the full set, after a commit under our epoch made since we know its start id."""
    if isinstance(event, UpdateRefused):
        if state.rm is None or state.rm.start_id != event.start_id:
            return
        if event.reason == OLD_EPOCH:
            # Asking again cannot help: whoever led with a higher epoch is the only one that the gate listens to.
            state.emit(
                StandDown(
                    reason=f"the ResourceManager has listened to an arbiter with a higher epoch than {state.epoch}: another "
                    "one leads, or this one's store is not the one that it had (themis admin reset-epoch raises it)"
                )
            )
            return
        if not state.rm.is_synced:
            return  # the full set is on its way already
        since = state.now_ms - state.rm.synced_ms
        state.rm.is_synced = False
        if since < RESYNC_MS_MIN:
            state.wake_at(Timer.RESYNC, state.now_ms + RESYNC_MS_MIN - since)
            return
    else:
        # After a restart the ResourceManager learns only bit by bit what runs and what is asked for.
        is_same = event.start_id == state.last_start_id or not len(state.ledger)
        trusted_ms = state.now_ms if is_same else state.now_ms + state.settings.recovery_grace_ms
        state.rm = RmLink(event.start_id, trusted_ms=trusted_ms)
        state.last_start_id = event.start_id
        state.told.clear()
        hold_past_ends(state, state.now_ms + state.settings.notice_ms, state.next_end())
    state.persist(syncs_start_id=event.start_id)


def on_resync(state: State) -> None:
    """The gate refused an update just after it had been told everything: tell it again, but not in a loop."""
    if state.rm is not None and not state.rm.is_synced:
        state.persist(syncs_start_id=state.rm.start_id)


def on_detached(state: State, event: RmDetached) -> None:
    """Nobody listens: leases stay as they are, and no round is held until somebody does."""
    if state.rm is not None and state.rm.start_id == event.start_id:
        state.rm = None


def hold_past_ends(state: State, until_ms: Millis, end_ms: Millis) -> None:
    """Leases that end by `until_ms` go on to a grid point, since nobody could be told in time: work is spread, not ends."""
    able = (GRANTED, ACTIVE)
    late = [x for x in state.ledger if x.end_ms <= until_ms and x.state in able]
    if late:
        state.persist(puts=state.move(ids_of(late), LeaseInput.RENEWED, Cause.RECOVERY, end_ms))


def is_notice_enough(state: State, left_ms: Millis) -> bool:
    """Whether so little time will do for a holder's notice: what is a little late shortens it, what is very late does not."""
    return 2 * left_ms >= state.settings.notice_ms


def hear_drains(state: State) -> None:
    """Note which drains the gate has applied by now: their holders have been told to go."""
    applied = state.rm.applied_seq if state.rm is not None else 0
    state.heard.update([i for i, seq in state.drain_seq.items() if seq <= applied])


def _told_deadline(state: State, lease: Lease) -> Millis:
    """By when a draining lease's holder must be gone. Where it may never have heard of it, it gets its notice now."""
    deadline_ms = state.deadlines.get(lease.lease_id, lease.end_ms)
    if lease.lease_id in state.heard or is_notice_enough(state, deadline_ms - state.now_ms):
        return deadline_ms
    return state.now_ms + state.settings.notice_ms


def _sync(state: State) -> None:
    """Tell the gate everything that is stored: a drain that is still being written is told when that is done."""
    assert state.rm is not None
    state.rm.is_synced = True
    state.rm.synced_ms = state.now_ms
    state.update_seq += 1
    unstored = {lease_id for pending in state.pending for lease_id, _ in pending.drains}
    leases, drains = [], []
    for lease in sorted((x for x in state.ledger if x.state in IN_FORCE), key=_lease_id):
        is_unstored = lease.lease_id in unstored
        leases.append(with_state(lease, ACTIVE) if is_unstored else lease)
        if lease.state is DRAINING and not is_unstored:
            state.drain_seq[lease.lease_id] = state.update_seq
            state.deadlines[lease.lease_id] = _told_deadline(state, lease)
            drains.append((lease.lease_id, state.deadlines[lease.lease_id]))
    state.emit(
        SyncLeases(
            epoch=state.epoch,
            start_id=state.rm.start_id,
            seq=state.update_seq,
            leases=tuple(leases),
            drains=tuple(drains),
            is_observing=state.admin.is_observing,
        )
    )
