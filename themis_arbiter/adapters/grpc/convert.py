"""Between the wire's messages and the core's values. Bad entries end here, each alone, with a named fault.

What a bad entry turns into is the reading that cannot give a GPU twice: a node in a state that nobody knows takes no
new leases, a container in one still holds its GPUs. Where nothing can be read (no usable name), the entry is left out.

An application is the arbiter's business from its first GPU on: once it asked for one, held one, or carries a tag of
ours. `ReportReader` remembers that for one activation of the scheduler, because a report shows only the present.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from themis_arbiter.adapters.grpc.faults import Fault, Faults, quoted, why_bad_name
from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.adapters.grpc.tags import Tags, app_id_of, parse_tags
from themis_arbiter.core.events import ContainerReport, EndCause, JobReport, NodeReport
from themis_arbiter.core.types import AppId, JobId, Millis
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb

GPUS_PER_NODE_MAX: Final = 4_096
GPUS_ASKED_MAX: Final = 1_000_000  # of one application; more counts as so many
NODES_MAX: Final = 20_000
APPLICATIONS_MAX: Final = 50_000  # YARN keeps 10,000 by default, ended ones included
CONTAINERS_MAX: Final = 200_000
NOTES_MAX: Final = 20  # of one app
AGE_MS_MAX: Final = 366 * 24 * 3_600_000  # of an application; older counts as so old
FINAL_STATUSES: Final = frozenset({"SUCCEEDED", "FAILED", "KILLED", "UNDEFINED", "ENDED"})
ENDED_BY: Final[Mapping[str, EndCause]] = {  # of YARN's -100; cluster.proto says what they mean
    "MASTER": EndCause.GIVEN_BACK,
    "APPLICATION": EndCause.AFTER_APP,
    "NODE": EndCause.NODE_LOST,
    "EXPIRY": EndCause.EXPIRED,
}
EntryT = TypeVar("EntryT")
_TOTALS_MAX: Final = 2**50  # memory and the like: far above any node, far below what floats hold exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReport:
    """A report in the core's words; entries in order of their ids."""

    nodes: tuple[NodeReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    containers: tuple[ContainerReport, ...] = ()


@dataclass(slots=True)
class _Application:
    """What one application looked like last, and what is only known from before."""

    last: pb.Application
    tags: Tags
    app_id: AppId
    user: str
    queue: str
    arrival_ms: Millis  # kept from the first sight, so that no step of a clock moves it
    is_ours: bool = False
    unit: int = 0
    containers: dict[str, int] = field(default_factory=dict)  # live, not the master's: GPUs by id


class ReportReader:
    """Reads the reports of one activation (start id), in their order. For one thread at a time."""

    def __init__(self, faults: Faults, types: NodeTypes | None = None) -> None:
        """`types` tell nodes' GPU types, which reports do not."""
        self._faults = faults
        self._types = types or NodeTypes()
        self._applications: dict[JobId, _Application] = {}
        self._orphans: dict[JobId, dict[str, int]] = {}  # containers of applications not seen yet

    def read(self, report: pb.Report, now_ms: Millis) -> ParsedReport:
        """What `report` says, at `now_ms` of the arbiter's clock."""
        known = self._applications
        if report.is_full:
            self._applications, self._orphans = {}, {}
        nodes = {n.node: n for n in map(self._node, self._first(report.nodes, NODES_MAX, "nodes")) if n is not None}
        touched = {
            a.application_id
            for a in self._first(report.applications, APPLICATIONS_MAX, "applications")
            if self._remember(a, known.get(a.application_id), report.rm_now_ms, now_ms)
        }
        containers: dict[str, ContainerReport] = {}
        for entry in self._first(report.containers, CONTAINERS_MAX, "containers"):
            parsed = self._container(entry)
            if parsed is not None:
                containers[parsed.container_id] = parsed
                self._hold(parsed)
                touched.add(parsed.job_id)
        jobs = [self._job(job_id, report.rm_now_ms, now_ms) for job_id in sorted(touched)]
        return ParsedReport(
            nodes=tuple(nodes[name] for name in sorted(nodes)),
            jobs=tuple(job for job in jobs if job is not None),
            containers=tuple(containers[name] for name in sorted(containers)),
        )

    def notes(self, app_id: AppId) -> tuple[str, ...]:
        """What people should know about how this app's tags were read."""
        found = [
            f"{job_id}: {note}"
            for job_id, application in sorted(self._applications.items())
            if application.app_id == app_id
            for note in application.tags.notes
        ]
        return tuple(found[:NOTES_MAX])

    def _first(self, entries: Iterable[EntryT], limit: int, what: str) -> list[EntryT]:
        found = list(entries)
        if len(found) > limit:
            self._faults.add(Fault.TOO_MANY, f"{len(found)} {what} in a report: only the first {limit} are read")
        return found[:limit]

    def _is_named(self, *names: tuple[str, str]) -> bool:
        for what, name in names:
            if why := why_bad_name(name):
                self._faults.add(Fault.NAME, f"{what} {quoted(name)}: {why}; the entry is left out")
                return False
        return True

    def _number(self, value: int, high: int, what: str) -> int:
        if 0 <= value <= high:
            return value
        used = min(max(value, 0), high)
        self._faults.add(Fault.NUMBER, f"{what} is {value}: it counts as {used}")
        return used

    def _node(self, node: pb.Node) -> NodeReport | None:
        rack = node.rack or "/default-rack"  # as YARN calls the rack of a node that no table lists
        if not self._is_named(("node", node.node), ("rack", rack)):
            return None
        if node.state not in {"RUNNING", "DECOMMISSIONING", "LOST"}:
            self._faults.add(
                Fault.STATE, f"node {quoted(node.node)} is {quoted(node.state)}: it counts as taking no new leases"
            )
        return NodeReport(
            node=node.node,
            rack=rack,
            gpus=self._number(node.gpus_total, GPUS_PER_NODE_MAX, f"GPUs of node {quoted(node.node)}"),
            gpu_type=self._types.type_of(node.node),
            # Below zero is no fault of the report here: YARN's own books go there when a node shrinks.
            memory_free_mb=min(max(node.memory_free_mb, 0), _TOTALS_MAX),
            vcores_free=max(node.vcores_free, 0),
            is_schedulable=node.state == "RUNNING",
            is_lost=node.state == "LOST",
        )

    def _container(self, entry: pb.Container) -> ContainerReport | None:
        names = (("container", entry.container_id), ("application", entry.application_id), ("node", entry.node))
        if not self._is_named(*names):
            return None
        if not 0 < entry.gpus <= GPUS_PER_NODE_MAX:
            self._faults.add(Fault.NUMBER, f"container {quoted(entry.container_id)} has {entry.gpus} GPUs: it is left out")
            return None
        if entry.state not in {"ALLOCATED", "RUNNING", "COMPLETED"}:
            self._faults.add(
                Fault.STATE,
                f"container {quoted(entry.container_id)} is {quoted(entry.state)}: it counts as not started",
            )
        return ContainerReport(
            container_id=entry.container_id,
            job_id=entry.application_id,
            node=entry.node,
            gpus=entry.gpus,
            is_running=entry.state == "RUNNING",
            is_ended=entry.state == "COMPLETED",
            is_am=entry.is_am,
            exit_status=entry.exit_status,
            end_cause=ENDED_BY.get(entry.ended_by),
        )

    def _hold(self, container: ContainerReport) -> None:
        application = self._applications.get(container.job_id)
        if application is None:
            if not container.is_ended and len(self._orphans) >= APPLICATIONS_MAX:
                self._faults.add(Fault.TOO_MANY, f"container {quoted(container.container_id)} of nobody: not counted")
                return
            held = self._orphans.setdefault(container.job_id, {})
        else:
            application.is_ours = True
            held = application.containers
        if container.is_ended:
            held.pop(container.container_id, None)
        elif not container.is_am:
            held[container.container_id] = container.gpus
        if not held:
            self._orphans.pop(container.job_id, None)

    def _remember(self, entry: pb.Application, before: _Application | None, rm_now_ms: int, now_ms: Millis) -> bool:
        job_id = entry.application_id
        if not self._is_named(("application", job_id)):
            return False
        for what, name in (("user", entry.user), ("queue", entry.queue)):
            if name and not self._is_named((f"{what} of {quoted(job_id)}", name)):
                return False
        if job_id not in self._applications and len(self._applications) >= APPLICATIONS_MAX:
            self._faults.add(Fault.TOO_MANY, f"application {quoted(job_id)}: more than {APPLICATIONS_MAX} are alive")
            return False
        # User and tags are what the application was submitted with; its last report may come without them.
        tags = before.tags if before is not None else parse_tags(entry.tags)
        if before is None:
            for note in tags.notes:
                self._faults.add(Fault.TAG, f"application {quoted(job_id)}: {note}")
        if not math.isfinite(entry.progress):
            self._faults.add(Fault.NUMBER, f"progress of application {quoted(job_id)} is no number: it is not used")
        present = self._applications.get(job_id)
        self._applications[job_id] = _Application(
            last=entry,
            tags=tags,
            app_id=before.app_id if before is not None else app_id_of(entry.user, tags.app, job_id),
            user=before.user if before is not None else entry.user,
            queue=entry.queue or (before.queue if before is not None else ""),
            arrival_ms=before.arrival_ms if before is not None else _instant(entry.submit_rm_ms, rm_now_ms, now_ms),
            is_ours=tags.is_any or (before is not None and before.is_ours),
            unit=before.unit if before is not None else 0,
            containers=present.containers if present is not None else self._orphans.pop(job_id, {}),
        )
        return True

    def _asks(self, entry: pb.Application) -> list[pb.Ask]:
        good = []
        for ask in entry.asks:
            if ask.gpus < 0 or ask.count < 0 or ask.gpus > GPUS_ASKED_MAX:
                self._faults.add(
                    Fault.NUMBER,
                    f"application {quoted(entry.application_id)} asks for {ask.count} containers of {ask.gpus} GPUs: "
                    "this ask is left out",
                )
            elif ask.gpus and ask.count:
                good.append(ask)
        return good

    def _job(self, job_id: JobId, rm_now_ms: int, now_ms: Millis) -> JobReport | None:
        """The job as it is now; None for what is none of the arbiter's business."""
        application = self._applications.get(job_id)
        if application is None:
            return None
        entry, tags = application.last, application.tags
        asks = self._asks(entry)
        sizes = [a.gpus for a in asks] + list(application.containers.values())
        application.unit = max(sizes, default=application.unit)
        application.is_ours = application.is_ours or bool(sizes)
        is_finished = entry.state == "FINISHED"
        if is_finished:
            del self._applications[job_id]
        elif entry.state != "ACTIVE":
            self._faults.add(Fault.STATE, f"application {quoted(job_id)} is {quoted(entry.state)}: it counts as ACTIVE")
        if not application.is_ours:
            return None
        unit = max(application.unit, 1)
        return JobReport(
            app_id=application.app_id,
            job_id=job_id,
            user=application.user,
            queue=application.queue,
            model=tags.model or "",
            arrival_ms=application.arrival_ms,
            gang=max(tags.gang or unit, unit),  # less than one container's GPUs cannot be had
            unit=unit,
            gpus_asked=0 if is_finished else min(sum(a.count * a.gpus for a in asks), GPUS_ASKED_MAX),
            memory_mb=max((min(max(a.memory_mb, 0), _TOTALS_MAX) for a in asks), default=0),
            vcores=max((max(a.vcores, 0) for a in asks), default=0),
            work=tags.work,
            on_lease_end=tags.on_lease_end,
            checkpoint_ms=tags.checkpoint_ms or 0,
            is_finished=is_finished,
            finish_ms=_instant(entry.finish_rm_ms, rm_now_ms, now_ms) if is_finished else 0,
            final_status=self._final_status(entry) if is_finished else "",
            gpu_speeds=tags.gpu_speeds or (),
        )

    def _final_status(self, entry: pb.Application) -> str:
        if entry.final_status in FINAL_STATUSES:
            return entry.final_status
        self._faults.add(Fault.STATE, f"application {quoted(entry.application_id)} ended as {quoted(entry.final_status)}")
        return "UNDEFINED"


def _instant(rm_ms: int, rm_now_ms: int, now_ms: Millis) -> Millis:
    """An instant of the ResourceManager's clock on the arbiter's: as long ago as there; the present where it is unknown."""
    if rm_ms <= 0 or rm_now_ms <= 0:
        return now_ms
    return max(0, now_ms - min(max(rm_now_ms - rm_ms, 0), AGE_MS_MAX))
