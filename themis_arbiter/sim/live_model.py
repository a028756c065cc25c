"""A simulated ResourceManager as a deterministic state machine: nodes, heartbeats, jobs, containers under a gate.

It knows no threads and no clock: `advance(now_ms)` runs everything that is due by then, each thing at its own time, and
`next_at_ms` says when something is due next. So real time (live_cluster.py), virtual time and tests share it. At one
instant things happen in this order: work done and jobs finished, arrivals, containers started, left and killed, nodes'
heartbeats (which free what has left and place what is admitted), reports.

What an arbiter wants comes through a `ClusterLink` and is taken in by `advance`, after what was due before.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from themis_arbiter.core.effects import SyncLeases
from themis_arbiter.core.events import NodeReport
from themis_arbiter.core.types import CoreError, JobId, LeaseId, Millis, NodeName
from themis_arbiter.sim.live_gate import Gate, LeaseUpdate, Place
from themis_arbiter.sim.live_jobs import (
    EXIT_DONE,
    EXIT_PREEMPTED,
    EXIT_RELEASED,
    Container,
    RunningJob,
    SimJob,
    SimNode,
)
from themis_arbiter.sim.live_link import ClusterLink, Entries
from themis_arbiter.sim.live_reports import (
    SimJobView,
    container_report,
    ended_report,
    job_report,
    job_view,
    node_report,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimTiming:
    """How fast the simulated ResourceManager is."""

    heartbeat_ms: Millis = 200  # of each node; also the least time between two reports
    start_delay_ms: Millis = 400  # from allocation until the container's process runs


class SimulatedCluster:
    """See the module's text. One thread at a time, but for what ClusterLink allows. Errors: CoreError for bad nodes, jobs."""

    def __init__(
        self,
        nodes: Iterable[SimNode],
        jobs: Iterable[SimJob],
        *,
        start_ms: Millis = 0,
        timing: SimTiming | None = None,
        name: str = "sim",
    ) -> None:
        """`start_ms`: the present, which the jobs' arrivals count from; with `name` it is in every id drawn."""
        self._timing = timing or SimTiming()
        ordered = sorted(nodes, key=lambda n: n.node)
        self._nodes = {n.node: n for n in ordered}
        self._gpu_types = {n.node: n.gpu_type for n in ordered}
        if len(self._nodes) != len(ordered):
            raise CoreError("two nodes have the same name")
        self._lost: dict[NodeName, None] = {}
        self._jobs: dict[JobId, RunningJob] = {}
        self._containers: dict[str, Container] = {}  # in order of their numbers
        self._container_count = 0
        self._start_ms = self._now_ms = start_ms
        # Two clusters, and one that is made anew after a crash, must not be taken for the same one.
        self._name, self._starts = f"{name}{start_ms}", 1
        self.gate = Gate(self._start_id())
        self._links: list[ClusterLink] = []
        # A node's heartbeats lie on a grid of its own, spread over the interval as those of real nodes are.
        interval = self._timing.heartbeat_ms
        self._offset_ms = {n: interval * k // len(ordered) for k, n in enumerate(self._nodes)}
        self._beaten_ms: dict[NodeName, Millis] = dict.fromkeys(self._nodes, start_ms - 1)
        self._reported_ms = start_ms - 1
        for job in jobs:
            self.add_job(job)

    # -- for whoever advances it

    @property
    def now_ms(self) -> Millis:
        """The time that it was advanced to."""
        return self._now_ms

    def link(self, wake: Callable[[], None] = lambda: None) -> ClusterLink:
        """A new connection, not attached yet; `wake` is called, on any thread, when something was queued on it."""
        link = ClusterLink(wake)
        self._links.append(link)
        return link

    def add_job(self, job: SimJob) -> None:
        """One more job, to arrive `job.arrival_ms` after the cluster's start (at once, where that is past)."""
        if job.job_id in self._jobs:
            raise CoreError(f"two jobs are called {job.job_id}")
        arrival_ms = max(self._now_ms, self._start_ms + job.arrival_ms)
        self._jobs[job.job_id] = RunningJob(job, arrival_ms, updated_ms=self._now_ms, gpu_types=self._gpu_types)

    def next_at_ms(self) -> Millis | None:
        """When something is due next; None: nothing will happen unless somebody wants something."""
        if any(link.has_mail for link in self._links):
            return self._now_ms
        return min(self._due_times(), default=None)

    def advance(self, now_ms: Millis) -> None:
        """Run everything that is due by `now_ms`, then take in what arbiters want. Errors: CoreError if time falls."""
        if now_ms < self._now_ms:
            raise CoreError(f"time cannot fall from {self._now_ms} to {now_ms}")
        while True:
            due_ms = min(self._due_times(), default=None)
            if due_ms is not None and due_ms <= now_ms:
                self._now_ms = max(self._now_ms, due_ms)
                self._run_due()
                continue
            self._now_ms = now_ms
            if not any(link.has_mail for link in self._links):
                break
            self._take_mail()
        self._catch_up()

    def lose_node(self, node: NodeName) -> None:
        """The node is gone, with every container on it."""
        self._catch_up()
        self._lost[node] = None
        for container in [c for c in self._containers.values() if c.node == node]:
            self._lose(container, EXIT_RELEASED)
        self._mark_node(node)

    def restore_node(self, node: NodeName) -> None:
        """The node is back, empty."""
        self._lost.pop(node, None)
        self._mark_node(node)

    def restart(self) -> None:
        """The ResourceManager starts anew: containers run on, leases and kill timers are forgotten (the plugin's law)."""
        self._catch_up()
        self._starts += 1
        self.gate.restart(self._start_id())
        for container in self._containers.values():
            container.kill_ms = None
        for link in self._links:
            link.restarted()
            link.greet(self.gate)

    # -- views

    def jobs(self) -> tuple[SimJobView, ...]:
        """All jobs, in the order in which they were added, as of the time advanced to."""
        return tuple(job_view(job) for job in self._jobs.values())

    def is_over(self) -> bool:
        """Whether every job has finished."""
        return all(job.finish_ms is not None for job in self._jobs.values())

    def used(self, place: Place) -> int:
        """GPUs of the job's containers on the node."""
        job = self._jobs.get(place[0])
        return 0 if job is None else sum(c.gpus for c in job.containers.values() if c.node == place[1])

    def places(self) -> tuple[Place, ...]:
        """Where containers are."""
        return tuple(dict.fromkeys((c.job_id, c.node) for c in self._containers.values()))

    # -- what is due

    def _due_times(self) -> Iterator[Millis]:
        for job in self._jobs.values():
            if not job.has_arrived:
                yield job.arrival_ms
            elif (finishes_ms := job.finishes_ms()) is not None:
                yield finishes_ms
        for container in self._containers.values():
            if not container.is_over and container.exits_ms is not None:
                yield container.exits_ms
            if not container.is_over and not container.is_running:
                yield container.starts_ms
            if container.kill_ms is not None:
                yield container.kill_ms
        for node in self._busy_nodes():
            yield self._next_beat_ms(node)
        if any(link.is_due(self.gate) for link in self._links):
            yield self._grid_ms(self._start_ms, self._reported_ms)

    def _run_due(self) -> None:
        self._catch_up()
        for job in self._jobs.values():
            if job.is_live and job.is_done():
                self._finish(job)
            elif not job.has_arrived and job.arrival_ms <= self._now_ms:
                job.has_arrived = True
                self._mark_job(job.spec.job_id)
        for container in list(self._containers.values()):
            self._run_container(container)
        for node in [n for n in self._busy_nodes() if self._next_beat_ms(n) <= self._now_ms]:
            self._beat(node)
        if self._grid_ms(self._start_ms, self._reported_ms) <= self._now_ms:
            self._report()

    def _run_container(self, container: Container) -> None:
        job, now_ms = self._jobs[container.job_id], self._now_ms
        if not container.is_over and container.exits_ms is not None and container.exits_ms <= now_ms:
            job.leave(container)
        if not container.is_over and not container.is_running and container.starts_ms <= now_ms:
            job.start(container)
            self._mark_container(container)
        if container.kill_ms is not None and container.kill_ms <= now_ms:
            self._lose(container, EXIT_RELEASED if container.is_over else EXIT_PREEMPTED)

    def _busy_nodes(self) -> list[NodeName]:
        """Nodes whose next heartbeat frees or may place something, by name; the others' change nothing."""
        busy = {c.node for c in self._containers.values() if c.is_over}
        busy.update(node for job_id, node in self.gate.open_places() if self._is_admitted((job_id, node)))
        return [n for n in self._nodes if n in busy and n not in self._lost]

    def _is_admitted(self, place: Place) -> bool:
        """Whether the gate lets one more of the job's containers in there."""
        job = self._jobs.get(place[0])
        if job is None or job.gpus_asked < job.spec.unit:
            return False
        return self.used(place) + job.spec.unit <= self.gate.allowed(place)

    def _beat(self, node: NodeName) -> None:
        self._beaten_ms[node] = self._now_ms
        for container in [c for c in self._containers.values() if c.node == node and c.is_over]:
            self._lose(container, EXIT_RELEASED)
        for job in sorted(self._jobs.values(), key=lambda j: (j.arrival_ms, j.spec.job_id)):
            while self._is_admitted((job.spec.job_id, node)) and self._has_room(node, job.spec):
                self._place(job, node)

    def _has_room(self, node: NodeName, job: SimJob) -> bool:
        gpus, memory_mb, vcores = self._free(node)
        return gpus >= job.unit and memory_mb >= job.memory_mb and vcores >= job.vcores

    def _free(self, node: NodeName) -> tuple[int, int, int]:
        """GPUs, memory and vcores that no container holds."""
        spec = self._nodes[node]
        there = [c for c in self._containers.values() if c.node == node]
        return (
            spec.gpus - sum(c.gpus for c in there),
            spec.memory_mb - sum(self._jobs[c.job_id].spec.memory_mb for c in there),
            spec.vcores - sum(self._jobs[c.job_id].spec.vcores for c in there),
        )

    # -- what happens

    def _place(self, job: RunningJob, node: NodeName) -> None:
        self._container_count += 1
        container = Container(
            container_id=f"{self._name}_container_{self._container_count:06d}",
            job_id=job.spec.job_id,
            node=node,
            gpus=job.spec.unit,
            starts_ms=self._now_ms + self._timing.start_delay_ms,
        )
        self._containers[container.container_id] = job.containers[container.container_id] = container
        self._mark_container(container)

    def _finish(self, job: RunningJob) -> None:
        job.finish_ms = self._now_ms
        for container in list(job.containers.values()):
            container.is_over = True  # what it had done counts
            self._lose(container, EXIT_DONE)
        self._mark_job(job.spec.job_id)

    def _lose(self, container: Container, exit_status: int) -> None:
        """The container is gone from the ResourceManager's books; its job and its node have changed by that."""
        self._jobs[container.job_id].lose(container)
        del self._containers[container.container_id]
        ended = ended_report(container, exit_status)
        for link in self._links:
            link.outbox.note_ended(ended)
        self._mark_job(container.job_id)
        self._mark_node(container.node)

    def _take_mail(self) -> None:
        self._catch_up()
        for link in self._links:
            while (update := link.take(self.gate)) is not None:
                self._apply(update)
            link.greet(self.gate)

    def _apply(self, update: LeaseUpdate) -> None:
        drains = self.gate.take(update)
        if isinstance(update, SyncLeases):
            for container in self._containers.values():
                container.kill_ms = None  # only what the new set says drains is killed
        for lease_id, deadline_ms in drains:
            self._drain(lease_id, deadline_ms)

    def _drain(self, lease_id: LeaseId, deadline_ms: Millis) -> None:
        """The containers that no longer fit what is allowed are told to go, newest first."""
        place = self.gate.begin_drain(lease_id)
        job = self._jobs.get(place[0]) if place is not None else None
        if place is None or job is None:
            return
        kept = self.used(place)
        for container in reversed([c for c in job.containers.values() if c.node == place[1]]):
            if kept <= self.gate.allowed(place):
                break
            kept -= container.gpus
            job.tell(container, self._now_ms, deadline_ms)

    def _catch_up(self) -> None:
        for job in self._jobs.values():
            job.compute_to(self._now_ms)

    # -- telling

    def _mark_node(self, node: NodeName) -> None:
        for link in self._links:
            link.outbox.nodes[node] = None

    def _mark_job(self, job_id: JobId) -> None:
        for link in self._links:
            link.outbox.jobs[job_id] = None

    def _mark_container(self, container: Container) -> None:
        for link in self._links:
            link.outbox.containers[container.container_id] = None
        self._mark_job(container.job_id)
        self._mark_node(container.node)

    def _report(self) -> None:
        for link in self._links:
            if link.is_due(self.gate):
                self._reported_ms = self._now_ms
                link.report(self.gate, self._entries(link))

    def _entries(self, link: ClusterLink) -> Entries:
        box = link.outbox
        nodes = [n for n in self._nodes if n not in self._lost] if box.is_full else sorted(box.nodes)
        jobs = [j for j, job in self._jobs.items() if job.is_live or (job.has_arrived and j in box.jobs)]
        containers = [c for i, c in self._containers.items() if box.is_full or i in box.containers]
        return Entries(
            nodes=tuple(self._node_report(n) for n in nodes),
            jobs=tuple(job_report(self._jobs[j]) for j in jobs if box.is_full or j in box.jobs),
            containers=(*box.ended.values(), *(container_report(c) for c in containers)),
        )

    def _node_report(self, node: NodeName) -> NodeReport:
        _, memory_mb, vcores = self._free(node)
        return node_report(self._nodes[node], memory_mb, vcores, is_lost=node in self._lost)

    # -- times

    def _start_id(self) -> str:
        return f"{self._name}-{self._starts}"

    def _next_beat_ms(self, node: NodeName) -> Millis:
        return self._grid_ms(self._start_ms + self._offset_ms[node], self._beaten_ms[node])

    def _grid_ms(self, first_ms: Millis, last_ms: Millis) -> Millis:
        """The first point of the heartbeat grid from `first_ms` that is after `last_ms` and not past."""
        interval = self._timing.heartbeat_ms
        beats = max(0, -(-(max(last_ms + 1, self._now_ms) - first_ms) // interval))
        return first_ms + beats * interval
