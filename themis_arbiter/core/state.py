"""Everything the arbiter knows: the only mutable state there is. Handlers change it; `invariants` watches it.

Writes to the outside go through two gates here. `persist` queues an atomic batch with the effects that may follow once it is
committed (persist before act); `tell_rm` numbers what the ResourceManager's gate is told.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from themis_arbiter.core.admin_state import AdminState, admin_to_text
from themis_arbiter.core.effects import Effect, LeasesMoved, PersistLeases, TellJob, WakeAt
from themis_arbiter.core.events import Batch, ContainerReport, Meter, NodeReport, Timer
from themis_arbiter.core.fluid import FluidShare
from themis_arbiter.core.lease import DRAINING, ENDED, GRANTED, PENDING, WAITING, Cause, Lease, LeaseInput, ids_of, with_state
from themis_arbiter.core.ledger import Ledger
from themis_arbiter.core.policies import make_policy
from themis_arbiter.core.policies.base import MarketApp, MarketJob
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import (
    AppId,
    Epoch,
    GpuId,
    GpuMillis,
    GpuSpeeds,
    GrantId,
    JobId,
    LeaseId,
    Millis,
    NodeName,
    RoundNo,
    counted,
    gpu_id,
    node_of,
)
from themis_arbiter.core.value import made
from themis_arbiter.core.workload import App, Job, app_demand, app_shape, app_speeds, guessed_work

if TYPE_CHECKING:
    from themis_arbiter.core.standstill import Precedent

ROUNDS_KEPT_MAX: Final = 200  # decision records that `themis rounds` can still show
NO_GPUS_T_MS: Final = 365 * 24 * 3_600_000  # T_independent while the cluster has no GPU
METERS_STORED_MS: Final = 5_000  # in which what changed in a job's account is in the store
ENDED_APPS_KEPT_MAX: Final = 500  # ended apps that `themis apps` can still show; the oldest go first


_leases_moved = made(LeasesMoved)
_state_and_cause = attrgetter("state", "cause")


@dataclass
class RmLink:
    """The scheduler object that listens, and what it has been told."""

    start_id: str
    applied_seq: int = 0
    is_synced: bool = False  # the full set of leases has been sent
    synced_ms: Millis = -(10**9)  # when
    is_known: bool = False  # its full report has come
    trusted_ms: Millis = 0  # from when on what it does not report counts as not there


@dataclass
class Pending:
    """A batch on its way to the store: which leases it covers, and what may be done once it is committed."""

    batch: Batch
    drains: tuple[tuple[LeaseId, Millis], ...] = ()
    withdrawals: tuple[LeaseId, ...] = ()
    syncs_start_id: str = ""


@dataclass(slots=True)
class LeaseCounts:
    """How many leases an app has had, for people."""

    granted: int = 0
    renewed: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class SeenApp:
    """What a policy saw of an app that waits, and the values that it was made of (core.market_view)."""

    app: App
    jobs: tuple[Job, ...]  # all that live
    market_app: MarketApp


@dataclass
class State:
    """See the module's text. Only handlers of `core.machine` may change it."""

    settings: Settings
    epoch: Epoch = 0
    now_ms: Millis = 0
    topology: Topology = field(default_factory=Topology)
    nodes: dict[NodeName, NodeReport] = field(default_factory=dict)
    apps: dict[AppId, App] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    containers: dict[str, ContainerReport] = field(default_factory=dict)
    stored_meters: dict[JobId, Meter] = field(default_factory=dict)  # from before the start, of jobs not named since
    stored_apps: dict[AppId, list[JobId]] = field(default_factory=dict)  # jobs in `stored_meters` of apps not named since
    stored_ms: Millis = 0  # when the latest of them was stored: what runs was known then
    taken_back: set[JobId] = field(default_factory=set)  # jobs named again whose containers have not been counted yet
    returning: dict[JobId, int] = field(default_factory=dict)  # GPUs of containers that ran before and are to be named again
    presence: float = 0.0  # integral over time of the number of live apps, for n_avg
    admin: AdminState = field(default_factory=AdminState)
    queued: dict[AppId, None] = field(default_factory=dict)  # apps that wait to be let in (core.admission)
    is_admission_due: bool = False  # whether somebody came or ended since it was looked who may be let in
    told: dict[JobId, str] = field(default_factory=dict)  # the line on each job's page in YARN
    ledger: Ledger = field(default_factory=Ledger)
    fluid: FluidShare = field(default_factory=FluidShare)
    absent: dict[NodeName, Millis] = field(default_factory=dict)  # nodes not named lately, lost from then on
    rm: RmLink | None = None
    last_start_id: str = ""
    heard_ms: Millis = 0  # when the last report came
    update_seq: int = 0  # of the last lease update; rises for as long as this arbiter leads, whoever listens
    pending: deque[Pending] = field(default_factory=deque)
    persisted: set[LeaseId] = field(default_factory=set)  # new leases that are stored but not yet granted
    drain_seq: dict[LeaseId, int] = field(default_factory=dict)  # which update told the gate to drain them
    deadlines: dict[LeaseId, Millis] = field(default_factory=dict)  # of drains
    heard: set[LeaseId] = field(default_factory=set)  # draining leases whose drain a gate has applied
    gang_deadlines: dict[JobId, Millis] = field(default_factory=dict)  # by when what was granted must be used
    timers: dict[Timer, Millis] = field(default_factory=dict)
    rounds: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT_MAX))
    last_round: RoundNo = 0
    last_serial: int = 0
    last_batch: int = 0
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = make_policy(self.settings.policy)
        self.usage: dict[JobId, dict[NodeName, int]] = {}
        self.users: dict[NodeName, dict[JobId, int]] = {}  # the same by node
        self.foreign: dict[NodeName, int] = {}  # GPUs of application masters: outside the law of leases
        self.live_jobs: dict[AppId, dict[JobId, None]] = {}  # of apps that have any
        self.lease_counts: dict[AppId, LeaseCounts] = {}
        self.running: dict[JobId, None] = {}  # jobs that have GPUs
        self.typed: set[JobId] = set()  # live jobs that declare speeds by GPU type
        self.remetered: dict[JobId, None] = {}  # jobs whose accounts changed since they were stored
        self.told_work: dict[JobId, GpuMillis] = {}  # what the fluid model was last told of each job
        self.believed: dict[JobId, tuple[Job, GpuMillis, tuple[object, ...]]] = {}  # see `declared`
        self.shapes: dict[AppId, tuple[object, tuple[GpuMillis, float, int, GpuSpeeds]]] = {}  # see `declared`
        self.market_jobs: dict[JobId, tuple[Job, MarketJob]] = {}  # as policies last saw them
        self.times_left: dict[JobId, tuple[Job, Topology, float]] = {}  # of jobs that wait, see core.recall
        self.longest_waits: dict[AppId, tuple[tuple[Job, ...], Topology, float | None]] = {}  # of apps whose jobs all wait
        self.seen_apps: dict[AppId, SeenApp] = {}  # of which all jobs wait
        self.precedent: Precedent | None = None
        self.version = 0  # rises with every step but those after which only the time, meters and lease ends are others
        self.is_still = False  # whether the step under way is such a one, as far as it has got
        self.listed: tuple[int, tuple[tuple[AppId, float, MarketApp | None], ...]] = (-1, ())  # see core.market_view
        self.first_urgent: tuple[int, Millis, Millis | None] = (-1, 0, None)  # see core.recall
        self.told_of: tuple[Topology, tuple[NodeName, ...]] = (self.topology, ())  # by which jobs were told they can run
        self.uncovered: set[JobId] = set()  # jobs that may have containers without a lease

    # -- speaking to the outside

    def emit(self, *effects: Effect) -> None:
        """Want something done."""
        self.effects.extend(effects)

    def wake_at(self, timer: Timer, at_ms: Millis) -> None:
        """Set a timer, unless an earlier one of its kind is set."""
        if timer not in self.timers or at_ms < self.timers[timer]:
            self.timers[timer] = at_ms
            self.emit(WakeAt(timer=timer, at_ms=at_ms))

    def want_round(self) -> None:
        """Have a round, one debounce from the first cause on: a storm of causes makes one round and cannot put it off."""
        self.wake_at(Timer.ROUND, self.now_ms + self.settings.debounce_ms)

    def persist(
        self,
        *,
        puts: Iterable[Lease] = (),
        deletes: Iterable[LeaseId] = (),
        drains: Iterable[tuple[LeaseId, Millis]] = (),
        syncs_start_id: str = "",
        with_meters: bool = False,
        meters_of: Iterable[JobId] = (),
    ) -> None:
        """Queue an atomic write; `drains` are told to the gate and `deletes` withdrawn from it when it is committed.

        Each carries the accounts of jobs that another one changed since; `with_meters` those of all that run too, `meters_of`
        these jobs'.
        """
        self.last_batch += 1
        deletes = tuple(deletes)
        is_next = self.ledger.is_next
        batch = Batch(
            batch_no=self.last_batch,
            epoch=self.epoch,
            start_id=self.rm.start_id if self.rm else "",
            last_round=self.last_round,
            last_serial=self.last_serial,
            puts=tuple([as_stored(x, is_next=is_next(x)) if x.state is PENDING else x for x in puts]),
            deletes=deletes,
            meters=self._meters({*self.remetered, *meters_of, *(self.running if with_meters else ())}),
            admin=admin_to_text(self.admin),
        )
        self.pending.append(Pending(batch, tuple(drains), deletes, syncs_start_id))
        if len(self.pending) == 1:
            self.emit(PersistLeases(batch=batch))

    def _meters(self, job_ids: set[JobId]) -> tuple[tuple[JobId, Meter | None], ...]:
        self.remetered.clear()
        return tuple([(j, self._account(j)) for j in sorted(job_ids)])

    def _account(self, job_id: JobId) -> Meter | None:
        """The job's account; None once its app is over."""
        job = self.jobs.get(job_id)
        if job is None or job.report.app_id not in self.live_jobs:
            return None
        return job.at(self.now_ms).account(self.apps[job.report.app_id].arrival_ms)

    def store_meters_soon(self) -> None:
        """Have the accounts that changed stored: with the next batch, or in one of their own."""
        if self.remetered:
            self.wake_at(Timer.METERS, self.now_ms + METERS_STORED_MS)

    def rm_seq(self) -> int | None:
        """The number of the next lease update; None where nobody would hear it (a sync will tell all later)."""
        if self.rm is None or not self.rm.is_synced:
            return None
        self.update_seq += 1
        return self.update_seq

    def move(
        self, lease_ids: Sequence[LeaseId], happened: LeaseInput, cause: Cause | None = None, end_ms: Millis | None = None
    ) -> list[Lease]:
        """Let the same happen to all these leases now, and tell observers; returns them as they are then. See Ledger.move."""
        moved = self.ledger.move(lease_ids, happened, self.now_ms, cause, end_ms=end_ms)
        self.effects += moved
        after = [x for m in moved for x in m.leases]
        if after and after[0].state is ENDED:
            self._forget(after)
        return after

    def _forget(self, ended: Sequence[Lease]) -> None:
        """Keep nothing more of leases that have ended."""
        ids = ids_of(ended)
        for lease_id in ids:
            self.drain_seq.pop(lease_id, None)
            self.deadlines.pop(lease_id, None)
        self.persisted.difference_update(ids)
        self.heard.difference_update(ids)
        for app_id, count in counted([x.app_id for x in ended]).items():
            self.count(app_id, ended=count)

    def hand_on(self, freed: Iterable[Lease]) -> list[Lease]:
        """The GPUs of these leases are released: they end. Those that were promised them take over, and are returned."""
        moved = self.ledger.move(ids_of(freed), LeaseInput.RELEASE_CONFIRMED, self.now_ms, Cause.RELEASED)
        ended = [x for m in moved for x in m.leases]
        gpus = [x.gpu for x in ended if self.ledger.has_next(x.gpu)]
        # When they were promised, nobody knew when their GPUs would be free.
        promoted = self.ledger.promote(gpus, self.now_ms, self.next_end())
        following = {x.gpu: (x, m.state_from) for m in promoted for x in m.leases}
        for lease in ended:  # GPU by GPU: who goes, then who comes
            self.effects.append(_leases_moved((lease,), DRAINING, Cause.RELEASED))
            if (then := following.get(lease.gpu)) is not None:
                self.effects.append(_leases_moved((then[0],), then[1], Cause.RELEASED))
        self._forget(ended)
        return [x for x, _ in following.values()]

    def enter(self, leases: Iterable[tuple[Lease, bool]]) -> None:
        """New leases, each with whether it waits for its GPU."""
        new = []
        for lease, is_next in leases:
            self.ledger.add(lease, as_next=is_next)
            new.append(lease)
        for (_, cause), alike in groupby(new, key=_state_and_cause):
            self.effects.append(_leases_moved(tuple(alike), None, cause))

    def count(self, app_id: AppId, *, granted: int = 0, renewed: int = 0, ended: int = 0) -> None:
        """Add to an app's lease counters."""
        if app_id in self.apps:
            counts = self.lease_counts.setdefault(app_id, LeaseCounts())
            counts.granted += granted
            counts.renewed += renewed
            counts.ended += ended

    def serial(self, prefix: str) -> str:
        """A new id, never used before in the life of the store."""
        self.last_serial += 1
        return f"{prefix}{self.last_serial:08d}"

    def advance_to(self, now_ms: Millis) -> None:
        """Time passes; an event from before the last one (a clock that fell) happens at the last one's time."""
        now_ms = max(now_ms, self.now_ms)
        self.presence += (now_ms - self.now_ms) * len(self.live_jobs)
        self.now_ms = now_ms
        self.fluid.advance(now_ms)

    # -- looking

    def is_live(self, job_id: JobId) -> bool:
        """Whether the job is known and not over."""
        job = self.jobs.get(job_id)
        return job is not None and not job.report.is_finished

    def live_of(self, app_id: AppId) -> tuple[Job, ...]:
        """The app's live jobs.

        Two such tuples are compared by identity first, item by item, and without a line of Python for each of hundreds of jobs.
        """
        return tuple(map(self.jobs.__getitem__, self.live_jobs.get(app_id, ())))

    def meter(self) -> None:
        """Meter all running jobs up to now; those that have used up what they declared count as having more work."""
        for job_id in self.running:
            job = self.jobs[job_id] = self.jobs[job_id].at(self.now_ms)
            if not job.report.is_finished and self.work_of(job) != self.told_work.get(job_id):
                self.redeclare(job.report.app_id)

    def work_of(self, job: Job) -> GpuMillis:
        """A job's serial work as now believed."""
        is_declared = job.report.work is not None or job.declared_later is not None
        return job.work(0.0 if is_declared else guessed_work(job, self.settings.lease_ms))

    def redeclare(self, app_id: AppId) -> None:
        """Let the fluid share know where the app's work or parallelism is another than it was told."""
        before = self.apps[app_id]
        app = self.declared(before)
        if app is not before and before.is_flowing:
            self.apps[app_id] = app
            self.version += 1
            self.fluid.redeclare(app_id, app.told_work, app.told_parallelism, self.now_ms, app.told_speeds)

    def declared(self, app: App) -> App:
        """The app with its work and parallelism as now believed, which the caller is about to tell the fluid share."""
        believed = [self._believed(job_id) for job_id in app.job_ids]
        works = [work for _, work, _ in believed]
        self.told_work.update(zip(app.job_ids, works, strict=True))
        shaped_by = (self.topology, app.arrival_ms, works, [by for *_, by in believed])
        known = self.shapes.get(app.app_id)
        if known is None or known[0] != shaped_by:
            jobs = self.app_jobs(app)
            shape = app_shape(app, jobs, works, self.topology)
            known = self.shapes[app.app_id] = (shaped_by, (*shape, app_demand(jobs), app_speeds(jobs, self.topology)))
        if known[1] == (app.told_work, app.told_parallelism, app.demand, app.told_speeds):
            return app
        work, parallelism, demand, speeds = known[1]
        return replace(app, told_work=work, told_parallelism=parallelism, demand=demand, told_speeds=speeds)

    def _believed(self, job_id: JobId) -> tuple[Job, GpuMillis, tuple[object, ...]]:
        """The job, its work as now believed, and what else its app's shape hangs on; the same until it runs or is another."""
        job, known = self.jobs[job_id], self.believed.get(job_id)
        if known is None or known[0] is not job or job.gpus_running:
            known = self.believed[job_id] = (job, self.work_of(job.at(self.now_ms)), job.shaped_by)
        return known

    def app_jobs(self, app: App) -> tuple[Job, ...]:
        """The app's jobs, metered up to now."""
        return tuple(self.jobs[j].at(self.now_ms) for j in app.job_ids)

    def node_of(self, gpu: GpuId) -> NodeName:
        """The node that a GPU is or was on."""
        return node_of(gpu)

    def used_on(self, job_id: JobId, node: NodeName) -> int:
        """GPUs of the job's live containers on a node."""
        return self.usage.get(job_id, {}).get(node, 0)

    def kept_leases(self, job_id: JobId) -> tuple[Lease, ...]:
        """The job's leases that are not on their way out, promised ones included."""
        return tuple(x for x in self.ledger.of_job(job_id) if x.state is not DRAINING)

    def rate_of(self, job: Job) -> tuple[int, float]:
        """GPUs that the job has, and the work that they do a millisecond (see Job)."""
        on = self.usage.get(job.job_id)
        if not on:
            return 0, 0.0
        count = sum(on.values())
        slowdowns = self.settings.slowdowns
        type_speed = self.type_speed_on(job, on)
        if job.report.model not in slowdowns.by_model:
            return count, count * type_speed
        places = self.topology.places
        gpus = [x.gpu for x in self.ledger.current_of_job(job.job_id)]
        known = [g for g in gpus if g in places and node_of(g) in on]
        level = self.topology.locality(known) if len(known) == count else self.topology.nodes_locality(on)
        speed = slowdowns.speed_at(job.report.model, count, level, self.topology.best_locality(count))
        return count, speed * type_speed

    def type_speed_on(self, job: Job, nodes: Iterable[NodeName]) -> float:
        """The speed by GPU type at which the job runs on GPUs of these nodes: that of the slowest."""
        speeds = self.topology.speeds(job.report.gpu_speeds)
        # GPUs of a machine are of one type: its first stands for all that run there.
        return 1.0 if speeds is None else speeds.slowest([gpu_id(node, 0) for node in nodes])

    def is_usable(self, job: Job, gpu: GpuId) -> bool:
        """Whether the job may be given the GPU, by its type."""
        speeds = self.topology.speeds(job.report.gpu_speeds)
        return speeds is None or speeds.is_usable(gpu)

    def grant_leases(self, job_id: JobId, grant_id: GrantId) -> tuple[Lease, ...]:
        """The job's live leases of one grant."""
        return tuple(x for x in self.ledger.of_job(job_id) if x.grant_id == grant_id)

    def is_out_of_service(self, node: NodeName) -> bool:
        """Whether a node takes no new leases and keeps none past its end: an admin's drain, or YARN's own."""
        report = self.nodes.get(node)
        return report is None or not report.is_schedulable or node in self.admin.drained

    def show_ms(self, job_id: JobId) -> Millis:
        """How long the job may leave granted GPUs unused."""
        is_gang = self.jobs[job_id].report.gang > 1
        return self.settings.gang_wait_ms if is_gang else self.settings.no_show_ms

    def tell(self, job_id: JobId, text: str) -> None:
        """Show a line on the job's page in YARN, once."""
        if self.rm is not None and self.told.get(job_id, "") != text:
            self.told[job_id] = text
            self.emit(TellJob(start_id=self.rm.start_id, job_id=job_id, text=text))

    def grid_end(self) -> Millis:
        """The next common lease end after now."""
        lease_ms = self.settings.lease_ms
        return (self.now_ms // lease_ms + 1) * lease_ms

    def next_end(self) -> Millis:
        """When a lease that starts now ends: the grid's next end, or the one after where too little is left to it."""
        end = self.grid_end()
        short = self.settings.notice_ms + self.settings.restart_cost_ms
        return end + self.settings.lease_ms if end - self.now_ms <= short else end

    def rebuild_topology(self) -> None:
        """After nodes changed: the topology, and the fluid share's GPUs."""
        before = self.topology.gpus_by_type
        self.topology = Topology(
            tuple(
                Machine(name=n.node, rack=n.rack, gpus=n.gpus, gpus_per_slot=n.gpus_per_slot, gpu_type=n.gpu_type)
                for n in self.nodes.values()
            )
        )
        types = self.topology.gpus_by_type
        if types != before:
            self.fluid.set_gpus(float(self.topology.gpu_count), self.now_ms, types)
            for app_id in [a.app_id for a in self.apps.values() if a.told_speeds and a.is_flowing]:
                self.redeclare(app_id)  # how fast gangs can be hangs on how many GPUs of which type there are

    def app_shape(self, app: App) -> tuple[GpuMillis, float]:
        """The app's serial work and useful parallelism, as now believed."""
        jobs = self.app_jobs(app)
        return app_shape(app, jobs, [self.work_of(job) for job in jobs], self.topology)

    def has_fair_time(self, app: App) -> bool:
        """Whether its ideal fluid share of the cluster as it is would ever get the app done."""
        return app.fair_finish_ms is not None or self.fluid.fair_finishes().get(app.app_id, inf) != inf

    def t_independent_ms(self, app: App) -> float:
        """Time the app would take on its ideal fluid share, floored (mechanism.md, section 5)."""
        end = app.fair_finish_ms
        if end is None:
            end = self.fluid.fair_finishes().get(app.app_id, inf)
        # With no GPU in the cluster nobody's share ever finishes; any finite value orders those who wait.
        since = app.arrival_ms if app.admitted_ms is None else app.admitted_ms
        ideal = end - since if end != inf else float(NO_GPUS_T_MS)
        return max(float(self.settings.rho_floor_ms), ideal)


def as_stored(lease: Lease, *, is_next: bool) -> Lease:
    """The lease as the store shall know it: what is decided now counts as done once it is there."""
    if lease.state is not PENDING:
        return lease
    return with_state(lease, WAITING if is_next else GRANTED)
