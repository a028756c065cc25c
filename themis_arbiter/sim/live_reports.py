"""What the simulated ResourceManager says of its nodes, jobs and containers, to arbiters and to people."""

from dataclasses import dataclass

from themis_arbiter.core.events import ContainerReport, JobReport, NodeReport
from themis_arbiter.core.types import AppId, GpuMillis, JobId, Millis, NodeName
from themis_arbiter.sim.live_jobs import Container, RunningJob, SimNode


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJobView:
    """A job as a person may see it. `finish_ms` is None while it lives."""

    app_id: AppId
    job_id: JobId
    has_arrived: bool
    gpus_held: int
    gpus_by_node: tuple[tuple[NodeName, int], ...]
    done: GpuMillis
    work: GpuMillis
    finish_ms: Millis | None


def node_report(spec: SimNode, memory_free_mb: int, vcores_free: int, *, is_lost: bool) -> NodeReport:
    """A node's whole present state."""
    return NodeReport(
        node=spec.node,
        rack=spec.rack,
        gpus=spec.gpus,
        gpus_per_slot=spec.gpus_per_slot,
        gpu_type=spec.gpu_type,
        memory_free_mb=memory_free_mb,
        vcores_free=vcores_free,
        is_schedulable=not is_lost,
        is_lost=is_lost,
    )


def job_report(job: RunningJob) -> JobReport:
    """A job's whole present state."""
    spec, is_finished = job.spec, job.finish_ms is not None
    return JobReport(
        app_id=spec.app_id,
        job_id=spec.job_id,
        user=spec.user,
        queue=spec.queue,
        model=spec.model,
        arrival_ms=job.arrival_ms,
        gang=spec.gang,
        unit=spec.unit,
        gpus_asked=job.gpus_asked,
        memory_mb=spec.memory_mb,
        vcores=spec.vcores,
        work=spec.work if spec.is_work_declared else None,
        weight=spec.weight,
        on_lease_end=spec.on_lease_end,
        is_finished=is_finished,
        finish_ms=job.finish_ms or 0,
        final_status="SUCCEEDED" if is_finished else "",
        gpu_speeds=spec.gpu_speeds,
    )


def container_report(container: Container) -> ContainerReport:
    """A container that holds GPUs."""
    return ContainerReport(
        container_id=container.container_id,
        job_id=container.job_id,
        node=container.node,
        gpus=container.gpus,
        is_running=container.is_running,
    )


def ended_report(container: Container, exit_status: int) -> ContainerReport:
    """A container that holds none any more."""
    return ContainerReport(
        container_id=container.container_id,
        job_id=container.job_id,
        node=container.node,
        gpus=container.gpus,
        is_ended=True,
        exit_status=exit_status,
    )


def job_view(job: RunningJob) -> SimJobView:
    """A job as of the time that it was computed to."""
    on: dict[NodeName, int] = {}
    for container in job.containers.values():
        on[container.node] = on.get(container.node, 0) + container.gpus
    return SimJobView(
        app_id=job.spec.app_id,
        job_id=job.spec.job_id,
        has_arrived=job.has_arrived,
        gpus_held=job.gpus_held,
        gpus_by_node=tuple(sorted(on.items())),
        done=job.done,
        work=job.spec.work,
        finish_ms=job.finish_ms,
    )
