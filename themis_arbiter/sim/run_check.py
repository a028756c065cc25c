"""The judge of a live run: did leases bind what ran, were gangs whole, were ends kept, did no GPU idle?

It stands outside: containers come from the ResourceManager's own log, asks from the events, and of the arbiter's effects only
what was decided and told about leases. It takes over nothing of what the arbiter believed. Every rule answers with
violations, each with its time; a run that keeps the law gives none.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Final

from themis_arbiter.core.gpu_speeds import speed_on
from themis_arbiter.core.lease import Cause
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import JobId, Millis, NodeName
from themis_arbiter.sim.run_facts import ContainerStay, JobFacts, JournalFacts, LeaseLife
from themis_arbiter.sim.stepwise import Span, Stepwise, levels, total, where


class Rule(StrEnum):
    """What was not kept."""

    GPU_TYPE = "a GPU went to a job that must not have its type"
    LEASE_BINDS = "a container ran without a lease"
    GANG_WHOLE = "a gang's leases were not whole"
    GANG_STARTS = "a gang's containers were not whole in time"
    FIRST_GPU = "a late app waited longer than a lease for its first GPU"
    END_KEPT = "a loser stayed past its lease's end"
    WINNER_STARTS = "a winner's containers did not run in time"
    NO_IDLE = "a GPU idled while an app asked for it"


# Rules that a slow or busy machine breaks though everything is right; the others are invariants.
TIMELY: Final = frozenset({Rule.GANG_STARTS, Rule.FIRST_GPU, Rule.WINNER_STARTS, Rule.NO_IDLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that was not kept from `start_ms` to `end_ms`."""

    rule: Rule
    start_ms: Millis
    end_ms: Millis
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What counts as in time.

    `heartbeat_ms` is the slowest in the chain of node, master and ResourceManager; `heartbeats_ms` has it for jobs whose
    master is slower.
    """

    lease_ms: Millis
    debounce_ms: Millis
    gang_wait_ms: Millis
    heartbeat_ms: Millis
    heartbeats_ms: Mapping[JobId, Millis] = field(default_factory=dict)
    start_heartbeats: int = 5
    kill_heartbeats: int = 2

    @classmethod
    def of(cls, settings: Settings, heartbeat_ms: Millis, heartbeats_ms: Mapping[JobId, Millis] | None = None) -> "Bounds":
        """The bounds of a run under `settings`."""
        return cls(
            lease_ms=settings.lease_ms,
            debounce_ms=settings.debounce_ms,
            gang_wait_ms=settings.gang_wait_ms,
            heartbeat_ms=heartbeat_ms,
            heartbeats_ms=heartbeats_ms or {},
        )

    def start_ms(self, job_id: JobId) -> Millis:
        """From a grant until the job's containers run."""
        return self.start_heartbeats * self.heartbeats_ms.get(job_id, self.heartbeat_ms)

    @property
    def kill_ms(self) -> Millis:
        """From a drain's deadline until what still runs is gone."""
        return self.kill_heartbeats * self.heartbeat_ms

    @property
    def idle_ms(self) -> Millis:
        """That a GPU may idle while an app asks for it."""
        return 2 * self.debounce_ms + 2 * self.heartbeat_ms


def check_run(
    facts: JournalFacts, containers: Iterable[ContainerStay], bounds: Bounds, late_jobs: Sequence[JobId] = ()
) -> list[Violation]:
    """Every violation of a run, by time. `late_jobs` are those that came to a full cluster (FIRST_GPU is for them)."""
    stays = sorted((c for c in containers if c.gpus and not c.is_am), key=lambda c: (c.allocated_ms, c.container_id))
    found = [
        *types_kept(facts),
        *leases_bind(facts, stays, bounds),
        *ends_decided_in_time(facts),
        *gangs_whole(facts, stays, bounds),
        *first_gpu(facts, stays, bounds, late_jobs),
        *winners_start(facts, stays, bounds),
        *no_idle(facts, stays, bounds),
    ]
    return sorted(found, key=lambda v: (v.start_ms, v.rule, v.what))


# -- GPU types


def types_kept(facts: JournalFacts) -> Iterator[Violation]:
    """No lease is won on a GPU of a type that its job declares as none of its own; what was adopted runs where it ran."""
    jobs = {j.job_id: j for j in facts.jobs}
    for lease in facts.leases:
        job = jobs.get(lease.job_id)
        if job is not None and not lease.is_adopted and not _speed(job, facts, lease.node):
            what = f"{lease.lease_id} of {lease.job_id}: {lease.gpu} is of type {facts.gpu_types.get(lease.node) or 'none'}"
            yield Violation(rule=Rule.GPU_TYPE, start_ms=lease.entered_ms, end_ms=lease.over_ms or facts.last_ms, what=what)


def _speed(job: JobFacts, facts: JournalFacts, node: NodeName) -> float:
    """What it declares of the node's type; 0: it must not have it."""
    return speed_on(job.gpu_speeds, facts.gpu_types.get(node, ""))


# -- (a) leases bind, (d) and end


def leases_bind(facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds) -> Iterator[Violation]:
    """An application's GPU containers on a node never use more than its leases there.

    Draining leases cover until their deadline and the time that a kill takes; a container counts until the ResourceManager
    takes it off its application. On its node it may be that time longer, and no more, after its lease was withdrawn.
    """
    for job_id, node in sorted({(s.job_id, s.node) for s in stays}):
        leases = [x for x in facts.leases if (x.job_id, x.node) == (job_id, node) and x.granted_ms is not None]
        here = [s for s in stays if (s.job_id, s.node) == (job_id, node)]
        allowed = total(_cover(x, bounds, 0) for x in leases)
        used = total(_stay_spans(here))
        on_node = total((s.allocated_ms, s.ended_ms, s.gpus) for s in here)
        to_leave = total(_cover(x, bounds, bounds.kill_ms) for x in leases)
        deadlines = {_cover(x, bounds, 0)[1] for x in leases if x.withdrawn_ms != _cover(x, bounds, 0)[1]}
        until_ms = _until(facts, stays)
        for start_ms, end_ms, count, leased in _excess(used, allowed, until_ms):
            rule = Rule.END_KEPT if start_ms in deadlines else Rule.LEASE_BINDS
            what = f"{job_id} used {count} GPUs of {node} under leases of {leased}"
            yield Violation(rule=rule, start_ms=start_ms, end_ms=end_ms, what=what)
        for start_ms, end_ms, count, leased in _excess(on_node, to_leave, until_ms):
            if used.at(start_ms) <= allowed.at(start_ms):  # else it has been told above
                what = f"{job_id} still had {count} GPUs of {node}, {leased} by right"
                yield Violation(rule=Rule.END_KEPT, start_ms=start_ms, end_ms=end_ms, what=what)


def _excess(used: Stepwise, allowed: Stepwise, until_ms: Millis) -> Iterator[tuple[Millis, Millis, int, int]]:
    for start_ms, end_ms in where(lambda t: used.at(t) > allowed.at(t), (used, allowed), until_ms):
        yield start_ms, end_ms, used.at(start_ms), allowed.at(start_ms)


def _cover(lease: LeaseLife, bounds: Bounds, leaving_ms: Millis) -> Span:
    assert lease.granted_ms is not None, f"{lease.lease_id} was never granted"
    ends = [lease.withdrawn_ms + leaving_ms] if lease.withdrawn_ms is not None else []
    if lease.deadline_ms is not None and lease.drain_ms is not None:
        ends.append(max(lease.deadline_ms, lease.drain_ms) + bounds.kill_ms)
    return lease.granted_ms, min(ends, default=None), 1


def ends_decided_in_time(facts: JournalFacts) -> Iterator[Violation]:
    """A lease's renewal or drain is decided before its end comes, and a drain's deadline is no later than that end."""
    for lease in facts.leases:
        if lease.granted_ms is None:
            continue
        for (_, end_ms), (decided_ms, _) in zip(lease.ends, lease.ends[1:], strict=False):
            if decided_ms > end_ms:
                yield Violation(rule=Rule.END_KEPT, start_ms=end_ms, end_ms=decided_ms, what=f"{lease.lease_id}: renewed late")
        over_ms = lease.over_ms if lease.over_ms is not None else facts.last_ms
        if over_ms > lease.end_ms:
            what = f"{lease.lease_id} of {lease.job_id}: still held"
            yield Violation(rule=Rule.END_KEPT, start_ms=lease.end_ms, end_ms=over_ms, what=what)
        if lease.drain_cause is Cause.LEASE_END and (lease.deadline_ms or 0) > lease.end_ms:
            what = f"{lease.lease_id} of {lease.job_id}: drains past its end"
            yield Violation(rule=Rule.END_KEPT, start_ms=lease.end_ms, end_ms=lease.deadline_ms or 0, what=what)


# -- (b) gangs


def gangs_whole(facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds) -> Iterator[Violation]:
    """A gang's leases are all or none while it wants them; its containers become whole in time, or it gives all back."""
    for job in facts.jobs:
        if job.gang <= job.unit:
            continue
        leases = [x for x in facts.leases if x.job_id == job.job_id]
        live = total(_stay_spans(s for s in stays if s.job_id == job.job_id))
        yield from _leases_whole(job, leases, live, _until(facts, stays))
        yield from _containers_whole(facts, job, leases, stays, bounds)


def _leases_whole(job: JobFacts, leases: Sequence[LeaseLife], live: Stepwise, until_ms: Millis) -> Iterator[Violation]:
    decided = total((x.entered_ms, x.over_ms, 1) for x in leases)
    asked = levels(job.asked)

    def is_broken(t: Millis) -> bool:
        return 0 < decided.at(t) < job.gang and live.at(t) + asked.at(t) >= job.gang

    for start_ms, end_ms in where(is_broken, (decided, asked, live), _end_of(job, until_ms)):
        what = f"{job.job_id} held {decided.at(start_ms)} leases of a gang of {job.gang}"
        yield Violation(rule=Rule.GANG_WHOLE, start_ms=start_ms, end_ms=end_ms, what=what)
    granted = total((x.granted_ms, x.over_ms, 1) for x in leases if x.granted_ms is not None)
    for at_ms in sorted({x.granted_ms for x in leases if x.granted_ms is not None}):
        if 0 < granted.at(at_ms) < job.gang and live.at(at_ms) + asked.at(at_ms) >= job.gang:
            what = f"{job.job_id} was granted a part of its gang: {granted.at(at_ms)} of {job.gang}"
            yield Violation(rule=Rule.GANG_WHOLE, start_ms=at_ms, end_ms=at_ms, what=what)


def _containers_whole(
    facts: JournalFacts, job: JobFacts, leases: Sequence[LeaseLife], stays: Sequence[ContainerStay], bounds: Bounds
) -> Iterator[Violation]:
    running = total(_running_spans(s for s in stays if s.job_id == job.job_id))
    by_grant = sorted((x for x in leases if x.granted_ms is not None), key=lambda x: (x.granted_ms, x.lease_id))
    for granted_ms, group in groupby(by_grant, key=lambda x: x.granted_ms):
        granted = list(group)
        assert granted_ms is not None, "filtered above"
        due_ms = granted_ms + bounds.start_ms(job.job_id)
        if max(running.over(granted_ms, due_ms)) >= job.gang or _end_of(job, facts.last_ms) <= due_ms:
            continue
        back_ms = max((x.over_ms or facts.last_ms) for x in granted)
        if back_ms > granted_ms + bounds.gang_wait_ms + bounds.debounce_ms:
            most = max(running.over(granted_ms, due_ms))
            what = f"{job.job_id}: {most} of {job.gang} ran in time, and it kept its leases"
            yield Violation(rule=Rule.GANG_STARTS, start_ms=granted_ms, end_ms=back_ms, what=what)


# -- (c) a late app


def first_gpu(
    facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds, late_jobs: Sequence[JobId]
) -> Iterator[Violation]:
    """A late app has its first GPU within one lease of its first ask."""
    known = {j.job_id: j for j in facts.jobs}
    for job_id in late_jobs:
        asks = [at_ms for at_ms, gpus in (known[job_id].asked if job_id in known else ()) if gpus]
        if not asks:
            what = f"{job_id} never asked for a GPU"
            yield Violation(rule=Rule.FIRST_GPU, start_ms=facts.first_ms, end_ms=facts.last_ms, what=what)
            continue
        first_ms = min((s.allocated_ms for s in stays if s.job_id == job_id), default=facts.last_ms)
        if first_ms - asks[0] > bounds.lease_ms:
            what = f"{job_id} waited {(first_ms - asks[0]) / 1000:.1f} s for its first GPU"
            yield Violation(rule=Rule.FIRST_GPU, start_ms=asks[0], end_ms=first_ms, what=what)


# -- (d) winners


def winners_start(facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds) -> Iterator[Violation]:
    """What was granted to a job that goes on asking runs in time, and so does every container that it was given."""
    jobs = {j.job_id: j for j in facts.jobs}
    until_ms = _until(facts, stays)
    granted = {(x.job_id, x.node, x.granted_ms) for x in facts.leases if x.granted_ms is not None}
    for job_id, node, at_ms in sorted(granted):
        due_ms = at_ms + bounds.start_ms(job_id)
        asked = levels(jobs[job_id].asked)
        if due_ms >= until_ms or min(asked.over(at_ms, due_ms)) == 0:
            continue  # it has all that it asked for
        here = [x for x in facts.leases if (x.job_id, x.node) == (job_id, node) and x.granted_ms is not None]
        kept = sum(1 for x in here if (x.granted_ms or 0) <= at_ms and (x.over_ms is None or x.over_ms > due_ms))
        running = total(_running_spans(s for s in stays if (s.job_id, s.node) == (job_id, node)))
        if running.at(due_ms) < kept:
            what = f"{job_id} ran on {running.at(due_ms)} of the {kept} GPUs of {node} that it was granted and asked for"
            yield Violation(rule=Rule.WINNER_STARTS, start_ms=at_ms, end_ms=due_ms, what=what)
    for stay in stays:
        due_ms = stay.allocated_ms + bounds.start_ms(stay.job_id)
        ran_ms = min(t for t in (stay.running_ms, stay.left_ms, until_ms) if t is not None)
        if ran_ms > due_ms:
            what = f"{stay.container_id} of {stay.job_id} did not run"
            yield Violation(rule=Rule.WINNER_STARTS, start_ms=stay.allocated_ms, end_ms=ran_ms, what=what)


# -- (e) no GPU idles


def no_idle(facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds) -> Iterator[Violation]:
    """No GPU is without a lease for longer than rounds take while an app asks for GPUs that it could use.

    A gang could use GPUs only where, with those it has, they make it whole. GPUs that are promised to a gang count as used,
    and so do draining ones until their holder must be gone.
    """
    gpus = {f"{node}:{k}": node for node, count in facts.gpus.items() for k in range(count)}
    used = {gpu: total(_held(x, facts, bounds) for x in facts.leases if x.gpu == gpu) for gpu in gpus}
    demands = [_Demand(job, facts, stays, bounds) for job in facts.jobs]
    start = levels([(facts.first_ms, 1)])  # a GPU that nobody ever had has no change of its own
    changes = (start, *used.values(), *(each for d in demands for each in d.parts))

    def is_wasted(gpu: str, node: NodeName, t: Millis) -> bool:
        if used[gpu].at(t):
            return False
        idle: dict[NodeName, int] = {}
        for each, on in gpus.items():
            idle[on] = idle.get(on, 0) + (not used[each].at(t))
        return any(d.could_use(node, idle, t) for d in demands)

    for gpu, node in gpus.items():
        for start_ms, end_ms in where(lambda t, g=gpu, n=node: is_wasted(g, n, t), changes, facts.last_ms):  # type: ignore[misc]
            if end_ms - start_ms > bounds.idle_ms:
                what = f"{gpu} idled {(end_ms - start_ms) / 1000:.1f} s while an app asked for it"
                yield Violation(rule=Rule.NO_IDLE, start_ms=start_ms, end_ms=end_ms, what=what)


def _held(lease: LeaseLife, facts: JournalFacts, bounds: Bounds) -> Span:
    """When a lease counts as use of its GPU: from its grant on, a gang's from its promise on."""
    gang = next((j.gang for j in facts.jobs if j.job_id == lease.job_id), 1)
    start_ms = lease.current_ms if gang > 1 else lease.granted_ms
    if start_ms is None:
        return lease.entered_ms, lease.entered_ms, 1
    ends = [lease.ended_ms] if lease.ended_ms is not None else []
    if lease.deadline_ms is not None:
        ends.append(lease.deadline_ms + bounds.kill_ms)
    return start_ms, min(ends, default=None), 1


class _Demand:
    """What a job asks for beyond what it has or was promised."""

    def __init__(self, job: JobFacts, facts: JournalFacts, stays: Sequence[ContainerStay], bounds: Bounds) -> None:
        self._job = job
        self._speed = {n: _speed(job, facts, n) for n in facts.gpus}
        over = () if job.finished_ms is None else ((job.finished_ms, 0),)
        self._asked = levels((*job.asked, *over))
        mine = [x for x in facts.leases if x.job_id == job.job_id]
        self._kept = {n: total((x.entered_ms, x.over_ms, 1) for x in mine if x.node == n) for n in facts.gpus}
        own = [s for s in stays if s.job_id == job.job_id]
        self._live = {n: total(_stay_spans(s for s in own if s.node == n)) for n in facts.gpus}
        # A gang that gave its leases back because it did not become whole is passed over for one lease.
        broken = {x.draining_ms for x in mine if x.drain_cause is Cause.GANG_BROKEN and x.draining_ms is not None}
        self._paused = total((t, t + bounds.lease_ms, 1) for t in sorted(broken))

    @property
    def parts(self) -> list[Stepwise]:
        """Where it can change."""
        return [self._asked, self._paused, *self._kept.values(), *self._live.values()]

    def could_use(self, node: NodeName, idle: Mapping[NodeName, int], t: Millis) -> bool:
        """Whether an idle GPU of `node` would serve it at `t`, given the idle GPUs of all nodes."""
        job = self._job
        if self._paused.at(t):
            return False
        unused = sum(max(0, kept.at(t) - self._live[n].at(t)) for n, kept in self._kept.items())
        pending = self._asked.at(t) - unused
        # Slower GPUs than those that it has would hold up the whole gang: nobody has to grow by them.
        least = min([self._speed[n] for n, kept in self._kept.items() if kept.at(t)], default=0.0)
        if pending < job.unit or idle.get(node, 0) < job.unit or self._speed[node] <= 0.0 or self._speed[node] < least:
            return False
        fitting = sum(count // job.unit * job.unit for n, count in idle.items() if self._speed[n] > 0.0)
        return sum(kept.at(t) for kept in self._kept.values()) + min(pending, fitting) >= job.gang


# -- small things


def _stay_spans(stays: Iterable[ContainerStay]) -> Iterator[Span]:
    return ((s.allocated_ms, s.left_ms, s.gpus) for s in stays)


def _running_spans(stays: Iterable[ContainerStay]) -> Iterator[Span]:
    return ((s.running_ms, s.left_ms, s.gpus) for s in stays if s.running_ms is not None)


def _until(facts: JournalFacts, stays: Iterable[ContainerStay]) -> Millis:
    """The end of what is judged: the last thing that either side tells."""
    return max(facts.last_ms, max((s.ended_ms or s.allocated_ms for s in stays), default=0))


def _end_of(job: JobFacts, until_ms: Millis) -> Millis:
    return until_ms if job.finished_ms is None else min(until_ms, job.finished_ms)
