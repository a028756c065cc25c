"""Auction rounds: what is on offer, the market that the policy sees, and what its decision does to leases.

A round is held a debounce after something changed, and at every grid end less the notice. In the latter the GPUs whose leases
end are on offer while their holders still run: who wins its own again is renewed and restarts nothing, who loses drains inside
its lease and the winner's lease follows when the release is confirmed (contracts.md, "A lease's end").
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.codec import to_plain
from themis_arbiter.core.effects import RoundClosed
from themis_arbiter.core.events import Timer
from themis_arbiter.core.lease import Cause, Lease, LeaseInput, LeaseState
from themis_arbiter.core.leasing import drain
from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.state import State
from themis_arbiter.core.types import CoreError, GpuId, GrantId, JobId, Millis, NodeName
from themis_arbiter.core.workload import Job, guessed_work


@dataclass(frozen=True, slots=True)
class Offered:
    """GPUs of one round: `ending` ones by the lease that ends, the others are free or will be once drained."""

    free: tuple[GpuId, ...]
    ending: Mapping[GpuId, Lease]

    def all(self) -> tuple[GpuId, ...]:
        """Everything on offer, sorted."""
        return tuple(sorted((*self.free, *self.ending)))


def on_round(state: State) -> None:
    """A round for what is free."""
    _hold(state, ends_at=None)


def on_grid(state: State) -> None:
    """The round of a grid end, held a notice before it; then wait for the next."""
    end = state.grid_end()
    if end - state.now_ms <= state.settings.notice_ms:
        _hold(state, ends_at=end)
    set_grid_timer(state)


def set_grid_timer(state: State) -> None:
    """Wake for the next grid end whose round has not been held."""
    end = state.grid_end()
    at = end - state.settings.notice_ms
    state.wake_at(Timer.GRID, at if at > state.now_ms else at + state.settings.lease_ms)


def _hold(state: State, *, ends_at: Millis | None) -> None:
    if state.rm is None or not (state.rm.is_known and state.rm.is_synced):
        return  # nobody could carry out what a round decides; leases are held past their ends
    offered = _offered(state, ends_at)
    market = _market(state, offered)
    if not offered.ending and not any(j.can_gain for a in market.apps for j in a.jobs):
        return
    if not market.supply.gpus:
        return
    state.last_round += 1
    market = replace(market, round_no=state.last_round)
    decision = state.policy.decide(market)
    _check(market, decision)
    moves = _carry_out(state, offered, decision)
    record = {
        "round": state.last_round,
        "at_ms": state.now_ms,
        "policy": state.settings.policy,
        "kind": "free" if ends_at is None else "grid",
        "machines": {m.name: [m.rack, m.gpus, m.slot_size] for m in state.topology.machines},
        "offered": list(market.supply.gpus),
        "ending": {g: lease.job_id for g, lease in sorted(offered.ending.items())},
        "room": to_plain(market.supply.room),
        **decision.record,
        "moves": moves,
    }
    state.rounds.append(record)
    state.emit(RoundClosed(round_no=state.last_round, record=record))


def _offered(state: State, ends_at: Millis | None) -> Offered:
    """What can be sold now. Where containers run without a lease, as many GPUs of their node are kept back."""
    free: dict[NodeName, list[GpuId]] = {}
    ending: dict[GpuId, Lease] = {}
    for machine in state.topology.machines:
        node = state.nodes[machine.name]
        for gpu in machine.gpu_ids():
            current, following = state.ledger.current(gpu), state.ledger.next(gpu)
            if following is not None:
                continue
            if current is None or current.state is LeaseState.DRAINING:
                if node.is_schedulable:
                    free.setdefault(machine.name, []).append(gpu)
            elif ends_at is not None and current.end_ms <= ends_at and current.state is not LeaseState.PENDING:
                ending[gpu] = current
    out: list[GpuId] = []
    for name, gpus in free.items():
        # Really free GPUs last in the list, so that they are kept back before those that are promised back.
        gpus.sort(key=lambda g: state.ledger.current(g) is None)
        out += gpus[: max(0, len(gpus) - _outside_leases(state, name))]
    return Offered(tuple(sorted(out)), ending)


def _outside_leases(state: State, node: NodeName) -> int:
    """GPUs of a node in use by containers that no lease covers: masters, and what ran before this arbiter knew of it."""
    leased: dict[JobId, int] = {}
    for gpu in state.topology.machine(node).gpu_ids():  # type: ignore[union-attr]
        lease = state.ledger.current(gpu)
        if lease is not None:
            leased[lease.job_id] = leased.get(lease.job_id, 0) + 1
    over = sum(max(0, on.get(node, 0) - leased.get(job_id, 0)) for job_id, on in state.usage.items())
    return state.foreign.get(node, 0) + over


def _market(state: State, offered: Offered) -> Market:
    apps = []
    room: dict[JobId, dict[NodeName, int]] = {}
    for app_id in sorted(state.apps):
        app = state.apps[app_id]
        live = [j for j in app.job_ids if state.is_live(j) and state.jobs[j].retry_ms <= state.now_ms]
        jobs = []
        for job_id in live:
            job = state.jobs[job_id].at(state.now_ms)
            market_job = _market_job(state, job, offered)
            if market_job.can_gain or market_job.ending or market_job.held:
                jobs.append(market_job)
                room[job_id] = _room(state, job, offered)
        if jobs:
            apps.append(
                MarketApp(
                    app_id=app_id,
                    arrival_ms=app.arrival_ms,
                    t_independent_ms=state.t_independent_ms(app),
                    n_avg=state.n_avg(app),
                    work=state.app_shape(app)[0],
                    weight=app.weight,
                    jobs=tuple(jobs),
                )
            )
    supply = Supply(state.topology, offered.all(), room)
    return Market(now_ms=state.now_ms, round_no=state.last_round, supply=supply, apps=tuple(apps), settings=state.settings)


def _market_job(state: State, job: Job, offered: Offered) -> MarketJob:
    kept = state.kept_leases(job.job_id)
    report = job.report
    return MarketJob(
        job_id=job.job_id,
        app_id=report.app_id,
        arrival_ms=report.arrival_ms,
        gang=report.gang,
        unit=report.unit,
        wanted=job.wanted,
        model=report.model,
        remaining=job.remaining(guessed_work(job, state.settings.lease_ms)),
        has_run=job.has_run,
        held=tuple(sorted(x.gpu for x in kept if x.gpu not in offered.ending)),
        ending=tuple(sorted(x.gpu for x in kept if x.gpu in offered.ending)),
    )


def _room(state: State, job: Job, offered: Offered) -> dict[NodeName, int]:
    """GPUs of each node with offers that the job's containers have memory and CPU for, beside those it keeps.

    What ending holders use there will be free when they go; how much that is, only their asks tell, so a GPU that ends
    counts as bringing the memory and CPU of one of this job's containers.
    """
    rooms: dict[NodeName, int] = {}
    unit = job.report.unit
    for gpu in offered.all():
        rooms.setdefault(state.node_of(gpu), 0)
    for name in rooms:
        node = state.nodes[name]
        fits = min(
            node.memory_free_mb // job.report.memory_mb if job.report.memory_mb else node.gpus,
            node.vcores_free // job.report.vcores if job.report.vcores else node.gpus,
        )
        leaving = sum(
            1
            for gpu in offered.all()
            if state.node_of(gpu) == name and (held := state.ledger.current(gpu)) is not None and held.job_id != job.job_id
        )
        rooms[name] = max(0, fits) * unit + leaving // unit * unit
    return rooms


def _check(market: Market, decision: Decision) -> None:
    """A decision gives only what is on offer, once, in whole gangs: claimed here, whatever the policy."""
    given = [g for gpus in decision.gpus_by_job().values() for g in gpus]
    if len(set(given)) != len(given) or not set(given) <= set(market.supply.gpus):
        raise CoreError(f"round {market.round_no}: a GPU was given twice or was not on offer: {sorted(given)}")
    jobs = {j.job_id: j for a in market.apps for j in a.jobs}
    for job_id, gpus in decision.gpus_by_job().items():
        total = len(jobs[job_id].held) + len(gpus)
        if gpus and not jobs[job_id].gang <= total <= max(jobs[job_id].wanted, len(jobs[job_id].held)):
            raise CoreError(f"round {market.round_no}: {job_id} would hold {total} GPUs: {jobs[job_id]}")


def _carry_out(state: State, offered: Offered, decision: Decision) -> dict[str, list[str]]:
    """Renewals, drains and new leases of a decision, stored as one batch each; returns what moved, for the record."""
    new_end = state.next_end()
    by_auction = {g for p in decision.wins.values() for gpus in p.values() for g in gpus}
    winner = {g: job_id for job_id, gpus in decision.gpus_by_job().items() for g in gpus}
    renewed, losing = [], []
    for gpu, lease in sorted(offered.ending.items()):
        if winner.get(gpu) == lease.job_id:
            renewed.append(lease)
        else:
            losing.append(lease)
    puts = [
        state.moved(state.ledger.move(x.lease_id, LeaseInput.RENEWED, state.now_ms, Cause.RENEWAL, end_ms=new_end))
        for x in renewed
    ]
    for lease in puts:
        state.count(lease.app_id, renewed=1)
    # Losers first, in a batch of their own deadline each: promises on their GPUs need them in DRAINING.
    for deadline in sorted({x.end_ms for x in losing}):
        drain(state, [x for x in losing if x.end_ms == deadline], max(deadline, state.now_ms), Cause.LEASE_END)
    _break_up(state, offered, winner)
    kept = {x.gpu for x in renewed}
    new = [(g, j) for g, j in sorted(winner.items()) if g not in kept]
    entered = list(_new_leases(state, new, by_auction, new_end))
    if puts or entered:
        state.persist(puts=[*puts, *entered], with_meters=True)
    return {
        "renewed": [x.lease_id for x in renewed],
        "draining": [x.lease_id for x in losing],
        "granted": [x.lease_id for x in entered if not state.ledger.is_next(x)],
        "promised": [x.lease_id for x in entered if state.ledger.is_next(x)],
    }


def _break_up(state: State, offered: Offered, winner: Mapping[GpuId, JobId]) -> None:
    """A gang that lost what ended, and holds less than a gang beside it, gives that up too: a part of a gang is idle."""
    for job_id in sorted({x.job_id for x in offered.ending.values()}):
        job = state.jobs.get(job_id)
        rest = [x for x in state.kept_leases(job_id) if x.state in (LeaseState.GRANTED, LeaseState.ACTIVE)]
        won = sum(j == job_id for g, j in winner.items() if g not in {x.gpu for x in rest})
        if job is not None and 0 < len(rest) + won < job.report.gang:
            drain(state, rest, state.now_ms + state.settings.notice_ms, Cause.GANG_BROKEN)


def _new_leases(state: State, new: Iterable[tuple[GpuId, JobId]], by_auction: set[GpuId], end_ms: Millis) -> Iterable[Lease]:
    """Leases of newly won GPUs; those given to one job together share a grant id."""
    grants: dict[JobId, GrantId] = {}
    for gpu, job_id in new:
        if job_id not in grants:
            grants[job_id] = state.serial("G")
        lease = Lease(
            lease_id=state.serial("L"),
            grant_id=grants[job_id],
            gpu=gpu,
            app_id=state.jobs[job_id].report.app_id,
            job_id=job_id,
            epoch=state.epoch,
            round_no=state.last_round,
            start_ms=state.now_ms,
            end_ms=end_ms,
            cause=Cause.AUCTION if gpu in by_auction else Cause.LEFTOVER,
        )
        state.enter(lease, as_next=state.ledger.current(gpu) is not None)
        yield lease
