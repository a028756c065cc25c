"""What a policy sees of a round: the supply, and every live app that it could mean something to.

Most apps wait, and of one that waits the same is seen in every round. So what was made of an app is kept and used again while
the values that it was made of are the very same objects: values are frozen, hence nothing else can have changed in between.
Only apps whose jobs hold nothing, run on nothing and are limited by no cap and no memory are kept. As long as the state's
version is the same, nothing has happened to any of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.events import JobReport
from themis_arbiter.core.kinds import never_rooms, on_lease_end, take_never_room, work_lost_by_moving
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.observing import gpus_in_use
from themis_arbiter.core.owners import counted_weights
from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.state import SeenApp, State
from themis_arbiter.core.types import AppId, GpuId, JobId, NodeName, OnLeaseEnd, node_of
from themis_arbiter.core.value import changed
from themis_arbiter.core.workload import Job, guessed_work


@dataclass(frozen=True)
class Offered:
    """GPUs of one round: `ending` ones by the job whose lease ends, `free` ones are free or will be once drained.

    `leaving` leases end too, on nodes that go out of service: nobody is offered their GPUs.
    """

    free: tuple[GpuId, ...]
    ending: Mapping[GpuId, JobId]
    leaving: tuple[Lease, ...] = ()

    def all(self) -> tuple[GpuId, ...]:
        """Everything on offer, sorted."""
        return tuple(sorted((*self.free, *self.ending)))

    @cached_property
    def by_node(self) -> Mapping[NodeName, tuple[GpuId, ...]]:
        """Everything on offer, by node."""
        found: dict[NodeName, list[GpuId]] = {}
        for gpu in self.all():
            found.setdefault(node_of(gpu), []).append(gpu)
        return {name: tuple(gpus) for name, gpus in found.items()}


def market_of(state: State, offered: Offered, *, is_recall: bool = False) -> Market:
    """The market of the next round, in which `offered` is on offer."""
    room: dict[JobId, dict[NodeName, int]] = {}
    never = never_rooms(state)
    version, listed = state.listed
    if version == state.version:
        apps = [shown or look_at_app(state, a, offered, never, room, weight) for a, weight, shown in listed]
    else:
        apps = _list_anew(state, offered, never, room)
    memory_mb, vcores = _cluster_totals(state)
    return Market(
        now_ms=state.now_ms,
        round_no=state.last_round + 1,
        supply=Supply(state.topology, offered.all(), room, offered.ending),
        apps=tuple([app for app in apps if app is not None]),
        settings=state.settings,
        is_recall=is_recall,
        memory_mb=memory_mb,
        vcores=vcores,
        presence=state.presence,
        is_typed=bool(state.typed),
    )


def _list_anew(
    state: State, offered: Offered, never: dict[str, int], room: dict[JobId, dict[NodeName, int]]
) -> list[MarketApp | None]:
    """Live apps as `look_at_app` shows them, in order of id; kept are those that stay the same as long as nothing happens."""
    weights, apps = counted_weights(state), []
    listed: list[tuple[AppId, float, MarketApp | None]] = []
    for app_id in sorted(state.live_jobs):
        weight = weights[app_id]
        shown = _app_as_before(state, app_id, weight)
        is_kept = shown is not None
        if shown is None:
            shown = look_at_app(state, app_id, offered, never, room, weight)
            is_kept = _remember(state, app_id, None if never else shown)
        apps.append(shown)
        listed.append((app_id, weight, shown if is_kept else None))
    state.listed = (state.version, tuple(listed))
    return apps


def _app_as_before(state: State, app_id: AppId, weight: float) -> MarketApp | None:
    """What was made of the app in an earlier round, if that is what would be made of it now."""
    seen = state.seen_apps.get(app_id)
    if seen is None or not is_as_seen(state, seen):
        return None
    t_independent_ms = state.t_independent_ms(seen.app)
    if seen.market_app.t_independent_ms != t_independent_ms or seen.market_app.weight != weight:
        market_app = replace(seen.market_app, t_independent_ms=t_independent_ms, weight=weight)
        seen = state.seen_apps[app_id] = SeenApp(seen.app, seen.jobs, market_app)
    return seen.market_app


def is_as_seen(state: State, seen: SeenApp) -> bool:
    """Whether nothing has happened to the app, its live jobs or their leases since it was looked at."""
    app_id = seen.app.app_id
    if state.apps.get(app_id) is not seen.app or state.ledger.kept_by_app(app_id):
        return False
    return state.live_of(app_id) == seen.jobs


def _remember(state: State, app_id: AppId, market_app: MarketApp | None) -> bool:
    """Keep what was made of the app if all its jobs wait, and nothing but they themselves has made them look so."""
    state.seen_apps.pop(app_id, None)
    if market_app is None or state.admin.is_observing or state.ledger.kept_by_app(app_id):
        return False
    live = state.live_of(app_id)
    if not all(_waits_unlimited(state, job) for job in live):
        return False
    state.seen_apps[app_id] = SeenApp(state.apps[app_id], live, market_app)
    return True


def look_at_app(
    state: State,
    app_id: AppId,
    offered: Offered,
    never: dict[str, int],
    room: dict[JobId, dict[NodeName, int]],
    weight: float,
) -> MarketApp | None:
    """The app as a policy sees it, None where it is nothing to it; `room` is told of its jobs that do not fit everywhere."""
    app = state.apps[app_id]
    live = state.live_of(app_id)
    jobs = []
    for job_id, job in zip(state.live_jobs[app_id], live, strict=True):
        if job.retry_ms > state.now_ms:
            continue
        market_job = _market_job(state, job_id, job, offered, never)
        if market_job.can_gain or market_job.ending or market_job.held:
            jobs.append(market_job)
            if _is_limited(job.report) and (limits := _room(state, job, offered)):
                room[job_id] = limits
    if not jobs or not (app.is_flowing or any(j.held or j.ending for j in jobs)):
        return None
    return MarketApp(
        app_id=app_id,
        arrival_ms=app.arrival_ms,
        t_independent_ms=state.t_independent_ms(app),
        presence_at_arrival=app.presence_at_arrival,
        work=app.told_work,
        demand=app.demand,
        weight=weight,
        jobs=tuple(jobs),
        attained=app.ended_service + sum([max(0.0, job.attained) for job in live]),
    )


def _waits_unlimited(state: State, job: Job) -> bool:
    """Whether what is seen of the job hangs on the job alone."""
    return not (_holds(state, job) or _is_limited(job.report) or job.retry_ms > state.now_ms)


def _is_limited(report: JobReport) -> bool:
    """Whether there may be GPUs that the job cannot have."""
    return bool(report.memory_mb or report.vcores or report.gpu_speeds)


def _holds(state: State, job: Job) -> bool:
    return bool(job.gpus_running or state.ledger.kept_count(job.job_id))


def _cluster_totals(state: State) -> tuple[int, int]:
    """Memory and CPU of the cluster: what is free and what containers with GPUs use."""
    memory_mb = sum(n.memory_free_mb for n in state.nodes.values())
    vcores = sum(n.vcores_free for n in state.nodes.values())
    for job_id, on in state.usage.items():
        report = state.jobs[job_id].report if job_id in state.jobs else None
        if report is not None:
            containers = sum(on.values()) // report.unit
            memory_mb += containers * report.memory_mb
            vcores += containers * report.vcores
    return memory_mb, vcores


def _market_job(state: State, job_id: JobId, job: Job, offered: Offered, never: dict[str, int]) -> MarketJob:
    """The job as a policy sees it. Of one that waits it is the same in every round until the job changes.

    Of one that runs only what is metered is another from round to round, and which of its GPUs are on offer.
    """
    if never or state.admin.is_observing:
        return _make_market_job(state, job, offered, never)
    before = state.market_jobs.get(job_id)
    if before is None or before[0].report is not job.report:
        found = _make_market_job(state, job, offered, never)
    elif before[0] is job and not (before[1].has_gpus or job.gpus_running or state.ledger.kept_count(job_id)):
        return before[1]
    else:
        mine = state.ledger.gpus_kept(job_id)
        ends = tuple([g for g in mine if g in offered.ending])
        found = _seen_again(
            before[1],
            _wanted(state, job, len(mine)),
            job.remaining(guessed_work(job, state.settings.lease_ms)),
            job.has_run,
            tuple([g for g in mine if g not in offered.ending]) if len(ends) < len(mine) else (),
            _usable(state, job, ends) if job.report.gpu_speeds else ends,
            work_lost_by_moving(state, job),
            max(0.0, job.attained),
            max(0.0, job.done - job.begun_at),
        )
    state.market_jobs[job_id] = (job, found)
    return found


def _wanted(state: State, job: Job, has: int) -> int:
    """GPUs that it could use in all, of which it has so many.

    What must not be interrupted is given no more while it has yet to start on what it was granted or promised: with more of
    them, given first, it would run, and be moved when the rest comes. Nor is a gang that runs, since it cannot grow in place.
    """
    if has and on_lease_end(state, job) is OnLeaseEnd.NEVER and (not job.gpus_running or job.report.gang > 1):
        return min(job.wanted, has)
    return job.wanted


_seen_again = changed(MarketJob, "wanted", "remaining", "has_run", "held", "ending", "lost", "attained", "done")


def _make_market_job(state: State, job: Job, offered: Offered, never: dict[str, int]) -> MarketJob:
    if state.admin.is_observing:
        mine = tuple(sorted(g for g, j in gpus_in_use(state).items() if j == job.job_id))
    else:
        mine = state.ledger.gpus_kept(job.job_id)
    ends = tuple([g for g in mine if g in offered.ending])
    wanted = _wanted(state, job, len(mine))
    report = job.report
    return MarketJob(
        job_id=job.job_id,
        app_id=report.app_id,
        arrival_ms=report.arrival_ms,
        gang=report.gang,
        unit=report.unit,
        wanted=wanted if wanted < job.wanted else take_never_room(state, job, len(mine), never),
        model=report.model,
        remaining=job.remaining(guessed_work(job, state.settings.lease_ms)),
        has_run=job.has_run,
        held=tuple([g for g in mine if g not in offered.ending]) if len(ends) < len(mine) else (),
        ending=_usable(state, job, ends),
        restart_ms=state.settings.restart_cost_ms + report.checkpoint_ms,
        lost=work_lost_by_moving(state, job),
        attained=max(0.0, job.attained),
        done=max(0.0, job.done - job.begun_at),
        memory_mb=report.memory_mb,
        vcores=report.vcores,
        loss_curve=report.loss_curve,
        gpu_speeds=report.gpu_speeds,
    )


def _usable(state: State, job: Job, ends: tuple[GpuId, ...]) -> tuple[GpuId, ...]:
    """Those of the GPUs whose type the job may have: others, which it was not given here, it does not get again."""
    speeds = state.topology.speeds(job.report.gpu_speeds)
    return ends if speeds is None else tuple([g for g in ends if speeds.is_usable(g)])


def _room(state: State, job: Job, offered: Offered) -> dict[NodeName, int]:
    """GPUs of each node with offers that the job may have and its containers have room for; empty where nothing limits it.

    This is where GPU types become law: whatever a policy decides, nothing is placed beyond this room.
    """
    rooms = _room_beside(state, job, offered)
    speeds = state.topology.speeds(job.report.gpu_speeds)
    if speeds is None:
        return rooms
    return {name: rooms.get(name, len(gpus)) if speeds.of_machine[name] else 0 for name, gpus in offered.by_node.items()}


def _room_beside(state: State, job: Job, offered: Offered) -> dict[NodeName, int]:
    """GPUs of each node with offers that the job's containers have memory and CPU for, beside those it keeps.

    What ending holders use there will be free when they go; how much that is, only their asks tell, so a GPU that ends
    counts as bringing the memory and CPU of one of this job's containers. Empty where nothing limits the job.
    """
    report, unit = job.report, job.report.unit
    if not (report.memory_mb or report.vcores):
        return {}
    rooms: dict[NodeName, int] = {}
    is_limited = False
    for name, gpus in offered.by_node.items():
        node = state.nodes[name]
        fits = min(
            node.memory_free_mb // report.memory_mb if report.memory_mb else node.gpus,
            node.vcores_free // report.vcores if report.vcores else node.gpus,
        )
        leaving = sum(offered.ending.get(gpu, job.job_id) != job.job_id for gpu in gpus)
        rooms[name] = max(0, fits) * unit + leaving // unit * unit
        is_limited |= rooms[name] < len(gpus)
    return rooms if is_limited else {}
