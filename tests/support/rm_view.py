"""What an arbiter knows of a ResourceManager: the sum of its events. Contract tests judge an adapter by this alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import (
    ContainerReport,
    Event,
    JobReport,
    NodeReport,
    RmAttached,
    RmDetached,
    RmReported,
    UpdateRefused,
)
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.types import JobId, LeaseId, Millis, NodeName
from themis_arbiter.ports import ResourceManager


@dataclass
class RmView:
    """Events summed up; `containers` are those that hold GPUs, `ended` those that held some."""

    start_id: str = ""
    starts: list[str] = field(default_factory=list)
    is_known: bool = False  # a full report of this start has come
    update_seq: int = 0
    update_seq_max: int = 0  # of this start
    nodes: dict[NodeName, NodeReport] = field(default_factory=dict)
    jobs: dict[JobId, JobReport] = field(default_factory=dict)
    containers: dict[str, ContainerReport] = field(default_factory=dict)
    ended: dict[str, ContainerReport] = field(default_factory=dict)
    refusals: list[UpdateRefused] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Add one event. Errors: AssertionError where it contradicts those before it."""
        assert not self.events or event.at_ms >= self.events[-1].at_ms
        self.events.append(event)
        match event:
            case RmAttached():
                assert event.start_id not in self.starts, "a start id comes once"
                self.starts.append(event.start_id)
                self.start_id, self.is_known, self.update_seq, self.update_seq_max = event.start_id, False, 0, 0
            case RmDetached():
                assert event.start_id == self.start_id
                self.start_id = ""
            case UpdateRefused():
                self.refusals.append(event)
            case RmReported():
                self._take_report(event)
            case _:
                raise AssertionError(f"no ResourceManager says {event}")

    def _take_report(self, report: RmReported) -> None:
        assert report.start_id == self.start_id, "reports come between attachment and detachment"
        assert report.is_full or self.is_known, "the first report of a start is a full one"
        self.update_seq = report.update_seq
        self.update_seq_max = max(self.update_seq_max, report.update_seq)
        if report.is_full:
            self.nodes, self.jobs, self.containers, self.is_known = {}, {}, {}, True
        for node in report.nodes:
            self.nodes[node.node] = node
        for job in report.jobs:
            self.jobs[job.job_id] = job
        for container in report.containers:
            if container.is_ended:
                self.containers.pop(container.container_id, None)
                self.ended[container.container_id] = container
            else:
                assert container.container_id not in self.ended, "what has ended does not come back"
                self.containers[container.container_id] = container

    def used(self, job_id: JobId, node: NodeName | None = None) -> int:
        """GPUs of the job's containers, on `node` or anywhere."""
        return sum(c.gpus for c in self.containers.values() if c.job_id == job_id and node in {None, c.node})

    def running(self, job_id: JobId) -> int:
        """GPUs of the job's containers whose processes run."""
        return sum(c.gpus for c in self.containers.values() if c.job_id == job_id and c.is_running)


class RmHarness(Protocol):
    """A ResourceManager under test, behind the port, and the world around it.

    Its nodes: at least two, with at least three GPUs each. `slack_ms`: within that an update is applied, a container
    placed and started, and all of it reported.
    """

    slack_ms: Millis

    @property
    def rm(self) -> ResourceManager: ...

    @property
    def view(self) -> RmView:
        """As of now."""
        ...

    def now_ms(self) -> Millis:
        """The time that deadlines are in."""
        ...

    def pass_time(self, by_ms: Millis) -> None:
        """Let time pass; events go into `view`."""
        ...

    def submit_job(self, gpus: int, *, listens: bool = True) -> JobId:
        """A new job that wants so many containers of one GPU for longer than any test takes.

        One that `listens` leaves a container that it is told to leave; another's has to be killed.
        """
        ...

    def restart(self) -> None:
        """The ResourceManager starts anew; containers run on."""
        ...


def wait_for(harness: RmHarness, claim: Callable[[RmView], bool], within_ms: Millis | None = None) -> RmView:
    """The view once `claim` holds. Errors: AssertionError where it does not within `within_ms` (default: the slack)."""
    end_ms = harness.now_ms() + (harness.slack_ms if within_ms is None else within_ms)
    while not claim(harness.view):
        assert harness.now_ms() < end_ms, f"it did not come to hold: {harness.view}"
        harness.pass_time(max(1, harness.slack_ms // 50))
    return harness.view


class Teller:
    """The arbiter's side: numbers updates as a leader of `epoch` does."""

    def __init__(self, harness: RmHarness, epoch: int = 1, start_id: str | None = None) -> None:
        self._harness, self.epoch = harness, epoch
        self.start_id = start_id if start_id is not None else harness.view.start_id
        self.seq = 0

    def lease(self, name: LeaseId, job_id: JobId, node: NodeName, *, is_draining: bool = False) -> Lease:
        """A lease on a GPU of its own."""
        now_ms = self._harness.now_ms()
        return Lease(
            lease_id=name,
            grant_id="g",
            gpu=f"{node}:{name.rsplit('.', 1)[-1]}",
            app_id="a",
            job_id=job_id,
            epoch=self.epoch,
            round_no=1,
            start_ms=now_ms,
            end_ms=now_ms + 3_600_000,
            state=LeaseState.DRAINING if is_draining else LeaseState.GRANTED,
        )

    def leases(self, job_id: JobId, node: NodeName, count: int) -> tuple[Lease, ...]:
        """So many leases on the node, named after job, node and number."""
        return tuple(self.lease(f"{job_id}.{node}.{k}", job_id, node) for k in range(count))

    def sync(self, *leases: Lease, drains: tuple[tuple[LeaseId, Millis], ...] = ()) -> int:
        self.seq += 1
        self._harness.rm.sync(SyncLeases(epoch=self.epoch, start_id=self.start_id, seq=self.seq, leases=leases, drains=drains))
        return self.seq

    def grant(self, *leases: Lease) -> int:
        self.seq += 1
        self._harness.rm.grant(GrantGpus(epoch=self.epoch, start_id=self.start_id, seq=self.seq, leases=leases))
        return self.seq

    def drain(self, *leases: Lease, deadline_ms: Millis) -> int:
        self.seq += 1
        ids = tuple(x.lease_id for x in leases)
        self._harness.rm.drain(
            RequestDrain(epoch=self.epoch, start_id=self.start_id, seq=self.seq, lease_ids=ids, deadline_ms=deadline_ms)
        )
        return self.seq

    def withdraw(self, *leases: Lease) -> int:
        self.seq += 1
        ids = tuple(x.lease_id for x in leases)
        self._harness.rm.withdraw(WithdrawLeases(epoch=self.epoch, start_id=self.start_id, seq=self.seq, lease_ids=ids))
        return self.seq
