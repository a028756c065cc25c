"""A ResourceManager without delay, for replaying a trace in virtual time through the engine that runs live.

It stands behind the `ResourceManager` port and speaks by the same reports as a real one. Containers (one a lease) are there
at the instant of the grant; who is drained runs to the deadline and stops exactly then; all that an instant brings stands in
one report. Happenings of an instant are looked at in the order finish, deadline, arrival: who is done by then is not drained.
"""

import heapq
from collections.abc import Sequence
from enum import IntEnum
from math import ceil
from typing import Final

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, TellJob, WithdrawLeases
from themis_arbiter.core.events import ContainerReport, JobReport, RmReported
from themis_arbiter.core.types import CoreError, GpuId, JobId, LeaseId, Millis, RoundNo, node_of
from themis_arbiter.core.value import changed, made
from themis_arbiter.sim.sim_jobs import Physics, SimulatedJob
from themis_arbiter.sim.stock import Stock

START_ID: Final = "sim"
DONE: Final = 0  # exit statuses of containers, as YARN has them
PREEMPTED: Final = -102
BY_MASTER: Final = -105


class _What(IntEnum):
    FINISH = 0
    DEADLINE = 1
    ARRIVAL = 2


class TraceCluster:
    """Nodes and jobs; see the module's text. Times are milliseconds from the trace's zero."""

    def __init__(self, physics: Physics, jobs: Sequence[SimulatedJob], stock: Stock | None = None) -> None:
        """`jobs` in order of arrival; `stock` is the machines' CPU and memory, None: plenty."""
        self.physics = physics
        self._stock: Final = stock if stock is not None else Stock(physics.topology, {})
        self.jobs: Final = {job.job_id: job for job in jobs}
        self.arrived = self.finished = 0
        self._holder: dict[LeaseId, tuple[SimulatedJob, GpuId]] = {}  # live containers
        self._agenda: list[tuple[Millis, _What, int, int]] = [(j.arrival_ms, _What.ARRIVAL, j.index, 0) for j in jobs]
        heapq.heapify(self._agenda)
        self._by_index = {job.index: job for job in jobs}
        self._started: dict[LeaseId, tuple[SimulatedJob, GpuId]] = {}  # containers to be told of
        self._ended: dict[LeaseId, tuple[SimulatedJob, GpuId, int]] = {}  # and with which exit status
        self._changed: dict[int, None] = {}  # jobs to be told of, by index
        self._told: dict[int, JobReport] = {}  # what was last said of each
        self._unsettled: dict[int, None] = {}  # jobs whose GPUs have changed in this instant
        self._seq = self._told_seq = 0
        self._owes_seq = False  # a drain that is over already waits for a report that says so

    @property
    def is_over(self) -> bool:
        """Whether every job has finished."""
        return self.finished == len(self.jobs)

    @property
    def is_busy(self) -> bool:
        """Whether anybody holds a GPU."""
        return bool(self._holder)

    @property
    def has_waiting(self) -> bool:
        """Whether some job has arrived and has not finished."""
        return self.arrived > self.finished

    def next_at_ms(self) -> Millis | None:
        """When something happens by itself; None: never."""
        return self._agenda[0][0] if self._agenda else None

    # -- the port

    def sync(self, effect: SyncLeases) -> None:
        """Make these all the leases that the gate honours."""
        if effect.leases or self._holder:
            raise CoreError("a replay starts with no leases, and its arbiter leads to the end")
        self._seq, self._owes_seq = effect.seq, True

    def grant(self, effect: GrantGpus) -> None:
        """Containers are there at once; a job that is over starts none."""
        self._seq = effect.seq
        for lease in effect.leases:
            job, gpu, lease_id = self.jobs[lease.job_id], lease.gpu, lease.lease_id
            if job.finish_ms is not None:
                continue
            if gpu in job.kept or gpu in job.draining:
                raise CoreError(f"{gpu} was granted to {lease.job_id}, which still holds it")
            job.kept[gpu] = lease_id
            job.grant = (lease.grant_id, lease.round_no)
            self._holder[lease_id] = self._started[lease_id] = (job, gpu)
            self._stock.use(gpu, job.spec, +1)
            self._touch(job)

    def drain(self, effect: RequestDrain) -> None:
        """Who runs under these leases runs on to the deadline."""
        self._seq = effect.seq
        leaving: dict[int, SimulatedJob] = {}
        for lease_id in effect.lease_ids:
            held = self._holder.get(lease_id)
            if held is None:
                self._owes_seq = True
                continue
            job, gpu = held
            del job.kept[gpu]
            job.draining[gpu] = (lease_id, effect.deadline_ms)
            leaving[job.index] = job
        for index, job in leaving.items():
            heapq.heappush(self._agenda, (effect.deadline_ms, _What.DEADLINE, index, 0))
            self._touch(job)

    def withdraw(self, effect: WithdrawLeases) -> None:
        """These leases are over; nobody holds anything under them."""
        self._seq = effect.seq

    def tell(self, effect: TellJob) -> None:
        """Nobody looks."""

    # -- time

    def advance(self, now_ms: Millis) -> None:
        """Let everything happen that is due by `now_ms`, the next instant of the agenda or before it."""
        while self._agenda and self._agenda[0][0] <= now_ms:
            _, what, index, number = heapq.heappop(self._agenda)
            job = self._by_index[index]
            if what is _What.ARRIVAL:
                job.has_arrived = True
                self.arrived += 1
                self._changed[index] = None
            elif job.finish_ms is not None:
                continue
            elif what is _What.DEADLINE:
                self._take_back(job, [gpu for gpu, (_, at_ms) in job.draining.items() if at_ms <= now_ms], PREEMPTED)
            elif number == job.plan:
                self._finish(job)

    def settle(self, now_ms: Millis) -> None:
        """An instant is over: jobs run on what they hold now."""
        for index in sorted(self._unsettled):
            job = self._by_index[index]
            if job.finish_ms is None and job.settle(now_ms, self.physics):
                job.plan += 1
                at_ms = job.finishes_ms()
                if at_ms is not None:
                    heapq.heappush(self._agenda, (max(now_ms, ceil(at_ms)), _What.FINISH, index, job.plan))
        self._unsettled.clear()

    def renewed(self, job_id: JobId, old_end_ms: Millis, round_no: RoundNo) -> None:
        """A lease of the job goes on past `old_end_ms`: for the books only, the gate is not told of renewals."""
        job = self.jobs[job_id]
        if not job.renewals or job.renewals[-1][0] != old_end_ms:
            job.renewals.append((old_end_ms, (job.grant[0], round_no)))

    # -- reports

    def report(self, now_ms: Millis) -> RmReported | None:
        """What is new since the last report; None: nothing that anybody waits for."""
        for index in self._unsettled:
            self._give_up_surplus(self._by_index[index])
        if not (self._changed or self._started or self._ended or self._owes_seq):
            return None
        nodes = self._stock.changes()
        jobs = tuple(self._job_report(self._by_index[index]) for index in sorted(self._changed))
        started = tuple([_container(i, job, gpu) for i, (job, gpu) in self._started.items()])
        ended = tuple([_container(i, job, gpu, status) for i, (job, gpu, status) in self._ended.items()])
        self._changed.clear()
        self._started.clear()
        self._ended.clear()
        self._owes_seq = False
        return RmReported(
            at_ms=now_ms, start_id=START_ID, update_seq=self._seq, nodes=nodes, jobs=jobs, containers=ended + started
        )

    def full_report(self, now_ms: Millis) -> RmReported:
        """The cluster before its first job."""
        self._owes_seq = False
        return RmReported(at_ms=now_ms, start_id=START_ID, is_full=True, update_seq=self._seq, nodes=self._stock.reports())

    def _job_report(self, job: SimulatedJob) -> JobReport:
        """What is said of a job; while it lives, only what it asks for is ever another than before."""
        told = self._told.get(job.index)
        if told is None or job.finish_ms is not None:
            told = self._whole_report(job)
        elif told.gpus_asked != (asked := job.asked):
            told = _asking(told, asked)
        self._told[job.index] = told
        return told

    def _whole_report(self, job: SimulatedJob) -> JobReport:
        is_finished = job.finish_ms is not None
        memory_mb, millicores = self._stock.need(job.spec)
        return JobReport(
            app_id=job.spec.app_id,
            job_id=job.job_id,
            user=job.spec.user,
            queue=job.spec.queue,
            model=job.told.model,
            arrival_ms=job.arrival_ms,
            gang=job.spec.gang,
            gpus_asked=job.asked,
            max_gpus=job.told.max_gpus,
            work=job.told.work,
            weight=job.weight,
            memory_mb=memory_mb,
            vcores=millicores,
            on_lease_end=job.spec.on_lease_end,
            loss_curve=job.spec.loss_curve,
            gpu_speeds=job.spec.gpu_speeds,
            is_finished=is_finished,
            finish_ms=ceil(job.finish_ms) if job.finish_ms is not None else 0,
            final_status="SUCCEEDED" if is_finished else "",
        )

    # -- inside

    def _touch(self, job: SimulatedJob) -> None:
        self._changed[job.index] = self._unsettled[job.index] = None

    def _give_up_surplus(self, job: SimulatedJob) -> None:
        """Who has got other GPUs in time moves at once: it gives up those that it must leave anyway.

        While they are too few to run on it gives up no more than it cannot use.
        """
        if job.draining and job.held > job.most:
            over = len(job.draining) if len(job.kept) >= job.spec.gang else job.held - job.most
            self._take_back(job, sorted(job.draining)[:over], BY_MASTER)

    def _take_back(self, job: SimulatedJob, gpus: Sequence[GpuId], status: int) -> None:
        for gpu in gpus:
            lease_id, _ = job.draining.pop(gpu)
            self._end(lease_id, job, gpu, status)
        if gpus:
            self._touch(job)

    def _finish(self, job: SimulatedJob) -> None:
        at_ms = job.finishes_ms()
        assert at_ms is not None, f"{job.job_id} finishes without running"
        for gpu, lease_id in job.kept.items():
            self._end(lease_id, job, gpu, DONE)
        for gpu, (lease_id, _) in job.draining.items():
            self._end(lease_id, job, gpu, DONE)
        job.finish(at_ms)
        self.finished += 1
        self._changed[job.index] = None

    def _end(self, lease_id: LeaseId, job: SimulatedJob, gpu: GpuId, status: int) -> None:
        del self._holder[lease_id]
        self._stock.use(gpu, job.spec, -1)
        if self._started.pop(lease_id, None) is None:
            self._ended[lease_id] = (job, gpu, status)
        else:
            self._owes_seq = True  # it came and went before anybody was told


def _container(lease_id: LeaseId, job: SimulatedJob, gpu: GpuId, status: int | None = None) -> ContainerReport:
    """The container under a lease; ended where it has an exit status."""
    return _container_report(
        container_id=lease_id,
        job_id=job.job_id,
        node=node_of(gpu),
        gpus=1,
        is_running=status is None,
        is_ended=status is not None,
        is_am=False,
        exit_status=status or 0,
        end_cause=None,
    )


_container_report = made(ContainerReport)
_asking = changed(JobReport, "gpus_asked")
