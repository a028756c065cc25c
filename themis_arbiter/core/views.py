"""What people and dashboards may see of the arbiter's state: plain frozen values, made between two steps."""

from dataclasses import dataclass
from enum import StrEnum

from themis_arbiter.core.types import AppId, Epoch, JobId, Millis, NodeName, RackName


class AppState(StrEnum):
    """Where an app is in its life."""

    WAITING = "WAITING"  # holds no GPU
    RUNNING = "RUNNING"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job of an app."""

    job_id: JobId
    gang: int
    max_gpus: int
    gpus_held: int
    state: AppState


@dataclass(frozen=True, slots=True, kw_only=True)
class AppView:
    """One app. `rho` is of the time so far, final once ended; `rho_forecast` is at its end, as things are now."""

    app_id: AppId
    user: str
    queue: str
    state: AppState
    arrival_ms: Millis
    finish_ms: Millis
    rho: float
    rho_forecast: float
    t_independent_ms: float
    work_gpu_ms: float
    is_work_estimated: bool
    attained_gpu_ms: float
    gpus_held: int
    gpus_wanted: int
    gpus_by_node: tuple[tuple[NodeName, int], ...]
    leases_granted: int
    leases_renewed: int
    leases_ended: int
    final_status: str
    jobs: tuple[JobView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node."""

    node: NodeName
    rack: RackName
    state: str  # RUNNING, DRAINING (takes no new leases), LOST
    gpus_total: int
    gpus_leased: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """The arbiter as a whole."""

    epoch: Epoch
    now_ms: Millis
    is_rm_attached: bool
    max_rho: float  # the largest rho so far of a live app; 0 where there is none
    gpus_leased: int
    gpus_free: int
    gpus_total: int
    rounds: int
