"""Auction rounds: what is on offer, the market that the policy sees, and what its decision does to leases.

A round is held a debounce after something changed, and at every grid end less the notice. In the latter the GPUs whose leases
end are on offer while their holders still run: who wins its own again is renewed and restarts nothing, who loses drains inside
its lease and the winner's lease follows when the release is confirmed (contracts.md, "A lease's end").
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from themis_arbiter.core import recall
from themis_arbiter.core.codec import to_plain
from themis_arbiter.core.effects import RoundClosed
from themis_arbiter.core.events import Timer
from themis_arbiter.core.gpu_speeds import as_text
from themis_arbiter.core.kinds import (
    protected_jobs,
    take_up,
    tell_impossible,
)
from themis_arbiter.core.later import Record
from themis_arbiter.core.lease import ACTIVE, GRANTED, PENDING, Cause, Lease, LeaseInput, ids_of
from themis_arbiter.core.leasing import drain, hold_past_ends, is_notice_enough
from themis_arbiter.core.market_view import Offered, market_of
from themis_arbiter.core.observing import gpus_in_use, would_move
from themis_arbiter.core.policies.base import Decision, Market, Repeating
from themis_arbiter.core.policies.guard import is_recalling_for_all, standing
from themis_arbiter.core.standstill import Precedent, has_fastest, note, precedent_of
from themis_arbiter.core.state import State
from themis_arbiter.core.types import CoreError, GpuId, JobId, LeaseId, Millis, NodeName, counted
from themis_arbiter.core.value import changed

_of_same_grant = changed(Lease, "lease_id", "gpu", "cause")

Won: TypeAlias = Mapping[JobId, tuple[GpuId, ...]]  # what each job gets in a round


def on_round(state: State) -> None:
    """A round for what is free."""
    state.is_still = True  # unless a round moves something
    _hold(state, ends_at=None)
    recall.watch(state)


def on_recall(state: State) -> None:
    """A round at a tick in which leases may end early: only where an urgent job waits, and never an urgent holder's."""
    state.is_still = True
    if not is_heard(state) or state.admin.is_paused or state.admin.is_observing or not recall.is_due(state):
        return
    free, leases = _offered(state, [], None).free, {x.gpu: x.job_id for x in recall.recallable(state)}
    state.meter()
    market = market_of(state, Offered(free, leases), is_recall=True)
    for_all = is_recalling_for_all(state.settings)
    urgent = frozenset[JobId]() if for_all else standing(market).urgent
    recalled = Offered(free, {g: j for g, j in leases.items() if j not in urgent})
    waits = any((for_all or j.job_id in urgent) and not j.has_gpus and j.can_gain for a in market.apps for j in a.jobs)
    if waits and recalled.ending:
        if len(recalled.ending) < len(leases):
            market = market_of(state, recalled, is_recall=True)
        _decide(state, recalled, market, "recall")
    recall.watch(state)


def on_grid(state: State) -> None:
    """The round of a grid end, held a notice before it; then wait for the next.

    An arbiter that was stopped, or on a machine that was, wakes late: what ended meanwhile ends with the next grid end, and
    where that is so near that losers would have no notice, nobody loses and all go on to the end after it.
    """
    state.is_still = True
    lease_ms = state.settings.lease_ms
    end = -(-state.now_ms // lease_ms) * lease_ms  # with a notice of 0 it is now
    left = end - state.now_ms
    if is_heard(state):
        if not is_notice_enough(state, left):
            hold_past_ends(state, end, state.next_end())
        else:
            hold_past_ends(state, state.now_ms - 1, end)
            if left <= state.settings.notice_ms:
                _hold(state, ends_at=end)
                recall.watch(state)
    set_grid_timer(state)
    if state.rm is not None and not is_heard(state):  # but will be in a moment: the round is late then, not lost
        state.wake_at(Timer.GRID, state.now_ms + state.settings.debounce_ms)


def is_heard(state: State) -> bool:
    """Whether somebody could carry out what a round decides."""
    return state.rm is not None and state.rm.is_known and state.rm.is_synced


def set_grid_timer(state: State) -> None:
    """Wake for the next grid end whose round has not been held."""
    end = state.grid_end()
    at = end - state.settings.notice_ms
    state.wake_at(Timer.GRID, at if at > state.now_ms else at + state.settings.lease_ms)


def _hold(state: State, *, ends_at: Millis | None) -> None:
    if not is_heard(state):
        return  # leases are held past their ends
    _tell_of_new_topology(state)
    if ends_at is not None and (before := precedent_of(state, ends_at)) is not None:
        _decide(state, before.offered, market_of(state, before.offered), "grid", before)
        return
    ending = _ending(state, ends_at)
    if state.admin.is_paused:
        _renew(state, ids_of(ending), Cause.PROTECTED)
        return
    if ends_at is not None:
        protected = protected_jobs(state, {x.job_id for x in ending}, ends_at)
        if protected:
            _renew(state, ids_of(x for x in ending if _is_kept(state, x, protected)), Cause.PROTECTED)
            ending = [x for x in ending if not _is_kept(state, x, protected)]
    elif not state.admin.is_observing and not state.ledger.free_count(state.topology.gpu_count):
        return
    offered = _offered(state, ending, ends_at)
    if not (offered.free or offered.ending or offered.leaving):
        return
    if not (offered.ending or offered.leaving) and not _can_be_used(state, len(offered.free)):
        return
    state.meter()
    if _changes_nothing(state, offered):
        _renew(state, ids_of(ending), Cause.RENEWAL)
        return
    _decide(state, offered, market_of(state, offered), "free" if ends_at is None else "grid")


def _decide(state: State, offered: Offered, market: Market, kind: str, before: Precedent | None = None) -> None:
    """Ask the policy, check what it says, carry it out and record it; `before` is the round that may be held again."""
    state.last_round += 1
    policy = state.policy
    if before is not None and isinstance(policy, Repeating):
        decision = policy.decide_after(market, before.decision)
    else:
        decision = policy.decide(market)
    if before is not None and decision.leftovers is before.decision.leftovers and decision.wins == before.decision.wins:
        _renew(state, before.moves["renewed"], Cause.RENEWAL)
        _record(state, kind, before.head, decision, {"moves": before.moves})
        return
    won = decision.gpus_by_job()
    _check(market, won)
    head: dict[str, Any] = {
        "machines": state.topology.plain,
        "offered": list(market.supply.gpus),
        "ending": dict(sorted(offered.ending.items())),
        "room": to_plain(_room_beside_types(market)),
    }
    if market.is_typed:
        head["gpu_types"] = {m.name: m.gpu_type for m in state.topology.machines}
        head["gpu_speeds"] = {j: as_text(job.gpu_speeds) for j, job in sorted(market.jobs.items()) if job.gpu_speeds}
    if state.admin.is_observing:
        _record(state, kind, head, decision, {"moves": {}, "would": would_move(offered.ending, won)})
        return
    moves = _carry_out(state, offered, decision, won, is_recall=market.is_recall)
    state.is_still &= not (moves["draining"] or moves["granted"] or moves["promised"])
    if kind == "grid":
        note(state, offered, decision, head, moves)
    _record(state, kind, head, decision, {"moves": moves})


def _room_beside_types(market: Market) -> Mapping[JobId, Mapping[NodeName, int]]:
    """The room of those whom memory or CPU limits; what GPU types forbid is said by type, and not again by job and node."""
    room = market.supply.room
    if not market.is_typed:
        return room
    limited = {j for j, job in market.jobs.items() if job.memory_mb or job.vcores}
    return {j: nodes for j, nodes in room.items() if j in limited}


def _record(state: State, kind: str, head: Mapping[str, Any], decision: Decision, moves: Mapping[str, Any]) -> None:
    """Keep and tell the decision record."""
    first = {"round": state.last_round, "at_ms": state.now_ms, "policy": state.settings.policy, "kind": kind}
    record = Record(first, head, decision.record, moves)
    state.rounds.append(record)
    state.emit(RoundClosed(round_no=state.last_round, record=record))


def _ending(state: State, ends_at: Millis | None) -> list[Lease]:
    """Leases that end by then and that nobody is promised yet, in order of GPU."""
    if ends_at is None:
        return []
    able = (GRANTED, ACTIVE)
    found = [x for x in state.ledger if x.end_ms <= ends_at and x.state in able and not state.ledger.has_next(x.gpu)]
    return sorted(found, key=lambda x: x.gpu)


def _is_kept(state: State, lease: Lease, protected: Collection[JobId]) -> bool:
    return lease.job_id in protected and not state.is_out_of_service(lease.node_of_gpu)


def _renew(state: State, lease_ids: Sequence[LeaseId], cause: Cause) -> list[Lease]:
    """Give leases another period; stored as one batch."""
    renewed = state.move(lease_ids, LeaseInput.RENEWED, cause, state.next_end())
    if not renewed:
        return []
    for app_id, count in counted([x.app_id for x in renewed]).items():
        state.count(app_id, renewed=count)
    state.persist(puts=renewed, with_meters=True)
    return renewed


def _offered(state: State, ending: Sequence[Lease], ends_at: Millis | None) -> Offered:
    """What can be sold now. Where containers run without a lease, as many GPUs of their node are kept back."""
    if state.admin.is_observing:
        return _offered_to_a_looker_on(state, ends_at)
    out_of_service = {name for name in state.topology.gpus_of if state.is_out_of_service(name)}
    leaving = tuple(x for x in ending if x.node_of_gpu in out_of_service) if out_of_service else ()
    out: list[GpuId] = []
    is_any_free = state.ledger.free_count(state.topology.gpu_count) > 0
    taken = state.ledger.taken() if is_any_free else set()
    for name, all_gpus in state.topology.gpus_of.items() if is_any_free else ():
        gpus = [g for g in all_gpus if g not in taken]
        if not gpus or name in out_of_service:
            continue
        outside = _outside_leases(state, name)
        if outside:
            # Really free GPUs last in the list, so that they are kept back before those that are promised back.
            gpus.sort(key=lambda g: state.ledger.current(g) is None)
            gpus = gpus[: max(0, len(gpus) - outside)]
        out += gpus
    gone = {x.gpu for x in leaving}
    return Offered(tuple(sorted(out)), {x.gpu: x.job_id for x in ending if x.gpu not in gone}, leaving)


def _can_be_used(state: State, count: int) -> bool:
    """Whether any live job could use `count` more GPUs, as far as numbers tell."""
    if state.admin.is_observing:
        return True
    for jobs in state.live_jobs.values():
        for job_id in jobs:
            job, kept = state.jobs[job_id], state.ledger.kept_count(job_id)
            least = job.report.gang - kept if kept < job.report.gang else job.report.unit
            if kept + least <= job.wanted and least <= count and job.retry_ms <= state.now_ms:
                return True
    return False


def _changes_nothing(state: State, offered: Offered) -> bool:
    """Whether a round could only renew what ends: everybody has what it wants, and nobody would be faster elsewhere.

    Then no policy is asked and no round counted: most lease ends of a cluster that is not full are such.
    """
    if state.admin.is_observing or offered.leaving or not offered.ending:
        return False
    if _can_be_used(state, state.topology.gpu_count):
        return False
    slowdown, topology = state.settings.slowdowns.slowdown, state.topology
    for job_id in set(offered.ending.values()):
        job, count = state.jobs.get(job_id), state.ledger.kept_count(job_id)
        if job is None or not state.is_live(job_id) or not job.report.gang <= count <= job.wanted:
            return False
        if job.retry_ms > state.now_ms:
            return False
        gpus = tuple([x.gpu for x in state.kept_leases(job_id)])
        level = topology.locality(gpus)
        if not has_fastest(state, job, gpus):
            return False
        if slowdown(job.report.model, level) > slowdown(job.report.model, min(level, topology.best_locality(count))):
            return False
    return True


def _tell_of_new_topology(state: State) -> None:
    """Whether the cluster can ever give a job what it asks for hangs on the nodes in service."""
    seen = (state.topology, state.admin.drained)
    if seen[0] is not state.told_of[0] or seen[1] != state.told_of[1]:
        state.told_of = seen
        tell_impossible(state, list(state.jobs))
        for app_id in [a for a, app in state.apps.items() if not app.has_ended and not app.is_flowing]:
            take_up(state, app_id)


def _offered_to_a_looker_on(state: State, ends_at: Millis | None) -> Offered:
    use = gpus_in_use(state)
    in_service = [m for m in state.topology.machines if not state.is_out_of_service(m.name)]
    masters = dict(state.foreign)
    free: list[GpuId] = []
    for machine in in_service:
        idle = [g for g in machine.gpu_ids() if g not in use]
        free += idle[: max(0, len(idle) - masters.get(machine.name, 0))]
    offerable = {g for m in in_service for g in m.gpu_ids()}
    ending = {} if ends_at is None else {g: j for g, j in sorted(use.items()) if state.is_live(j) and g in offerable}
    return Offered(tuple(sorted(free)), ending)


def _outside_leases(state: State, node: NodeName) -> int:
    """GPUs of a node in use by containers that no lease covers: masters, and what ran before this arbiter knew of it."""
    users = state.users.get(node, {})
    if not users:
        return state.foreign.get(node, 0)
    leased: dict[JobId, int] = {}
    for gpu in state.topology.gpus_of[node]:
        lease = state.ledger.current(gpu)
        if lease is not None:
            leased[lease.job_id] = leased.get(lease.job_id, 0) + 1
    return state.foreign.get(node, 0) + sum(max(0, count - leased.get(job_id, 0)) for job_id, count in users.items())


def _check(market: Market, won: Won) -> None:
    """A decision gives only what is on offer, once, in whole gangs: claimed here, whatever the policy."""
    given = [g for gpus in won.values() for g in gpus]
    if len(set(given)) != len(given) or not set(given) <= set(market.supply.gpus):
        raise CoreError(f"round {market.round_no}: a GPU was given twice or was not on offer: {sorted(given)}")
    for job_id, gpus in won.items():
        job = market.jobs[job_id]
        total, speeds = len(job.held) + len(gpus), market.speeds(job)
        if speeds is not None and not all(speeds.is_usable(g) for g in gpus):
            raise CoreError(
                f"round {market.round_no}: {job_id} was given a GPU of a type that it must not have: {sorted(gpus)}"
            )
        if gpus and not job.gang <= total <= max(job.wanted, len(job.held)):
            raise CoreError(f"round {market.round_no}: {job_id} would hold {total} GPUs: {job}")


def _carry_out(
    state: State, offered: Offered, decision: Decision, won: Won, *, is_recall: bool = False
) -> dict[str, list[str]]:
    """Renewals, drains and new leases of a decision, stored as one batch each; returns what moved, for the record.

    In a recall what nobody else takes goes on as it was, to its old end, unless a gang is broken.
    """
    new_end = state.next_end()
    by_auction = {g for p in decision.wins.values() for gpus in p.values() for g in gpus}
    winner = {g: job_id for job_id, gpus in won.items() for g in gpus}
    held = {g: lease for g in sorted(offered.ending) if (lease := state.ledger.current(g)) is not None}
    if is_recall:
        moves = {j for g, j in winner.items() if g not in held or held[g].job_id != j}
        winner |= {
            g: x.job_id
            for g, x in held.items()
            if g not in winner and x.job_id not in moves and _stays_whole(state, x.job_id, held, winner)
        }
    staying: list[Lease] = []
    losing: list[Lease] = []
    for gpu, lease in held.items():
        (staying if winner.get(gpu) == lease.job_id else losing).append(lease)
    renewed = [] if is_recall else _renew(state, ids_of(staying), Cause.RENEWAL)
    # Losers first, in a batch of their own deadline each: promises on their GPUs need them in DRAINING.
    if is_recall:
        drain(state, losing, state.now_ms + state.settings.notice_ms, Cause.RECALL)
    for leases, cause in ((() if is_recall else losing, Cause.LEASE_END), (list(offered.leaving), Cause.NODE_DRAINED)):
        for deadline in sorted({x.end_ms for x in leases}):
            drain(state, [x for x in leases if x.end_ms == deadline], max(deadline, state.now_ms), cause)
    if losing or offered.leaving:
        _break_up(state, [*losing, *offered.leaving], winner)
    kept = {x.gpu for x in staying}
    new = [(g, j) for g, j in sorted(winner.items()) if g not in kept]
    entered = _enter_new(state, new, by_auction, new_end)
    for job_id in dict.fromkeys(x.job_id for x in entered):
        kept_count, job = state.ledger.kept_count(job_id), state.jobs[job_id]
        if kept_count > max(job.wanted, job.report.gang):
            raise CoreError(f"round {state.last_round}: {job_id} wants {job.wanted} GPUs and would hold {kept_count}")
    if entered:
        state.persist(puts=entered, with_meters=True)
    return {
        "renewed": ids_of(renewed),
        "draining": ids_of((*losing, *offered.leaving)),
        "granted": [x.lease_id for x in entered if not state.ledger.is_next(x)],
        "promised": [x.lease_id for x in entered if state.ledger.is_next(x)],
    }


def _stays_whole(state: State, job_id: JobId, held: Mapping[GpuId, Lease], winner: Mapping[GpuId, JobId]) -> bool:
    """Whether a job keeps a gang without the GPUs that others take from it."""
    taken = sum(winner.get(g, job_id) != job_id for g, x in held.items() if x.job_id == job_id)
    return state.ledger.kept_count(job_id) - taken >= state.jobs[job_id].report.gang


def _break_up(state: State, losing: Iterable[Lease], winner: Mapping[GpuId, JobId]) -> None:
    """A gang that lost what ended, and holds less than a gang beside it, gives that up too: a part of a gang is idle."""
    won: dict[JobId, list[GpuId]] = {}
    for gpu, job_id in winner.items():
        won.setdefault(job_id, []).append(gpu)
    for job_id in sorted({x.job_id for x in losing}):
        job = state.jobs.get(job_id)
        rest = [x for x in state.kept_leases(job_id) if x.state in (GRANTED, ACTIVE)]
        more = len(set(won.get(job_id, ())) - {x.gpu for x in rest})
        if job is not None and 0 < len(rest) + more < job.report.gang:
            drain(state, rest, state.now_ms + state.settings.notice_ms, Cause.GANG_BROKEN)


def _enter_new(state: State, new: Iterable[tuple[GpuId, JobId]], by_auction: set[GpuId], end_ms: Millis) -> list[Lease]:
    """Leases of newly won GPUs; those given to one job together share a grant id."""
    grants: dict[JobId, Lease] = {}  # the first lease of each
    won, left_over = Cause.AUCTION, Cause.LEFTOVER
    entered: list[Lease] = []
    for gpu, job_id in new:
        cause = won if gpu in by_auction else left_over
        if job_id in grants:
            entered.append(_of_same_grant(grants[job_id], state.serial("L"), gpu, cause))
            continue
        grants[job_id] = Lease(
            grant_id=state.serial("G"),
            lease_id=state.serial("L"),
            gpu=gpu,
            app_id=state.jobs[job_id].report.app_id,
            job_id=job_id,
            epoch=state.epoch,
            round_no=state.last_round,
            start_ms=state.now_ms,
            end_ms=end_ms,
            state=PENDING,
            cause=cause,
        )
        entered.append(grants[job_id])
    state.enter([(x, state.ledger.current(x.gpu) is not None) for x in entered])
    return entered
