"""What people and dashboards may see of the arbiter's state: plain frozen values, made between two steps."""

from dataclasses import dataclass
from enum import StrEnum

from themis_arbiter.core.types import AppId, Epoch, JobId, Millis, NodeName, RackName


class AppState(StrEnum):
    """Where an app is in its life."""

    QUEUED = "QUEUED"  # waits to be let in by admission control
    WAITING = "WAITING"  # holds no GPU
    RUNNING = "RUNNING"
    ENDED = "ENDED"


class NodeState(StrEnum):
    """Whether a node takes new leases, and why not."""

    RUNNING = "RUNNING"
    DRAINED = "DRAINED"  # by an admin
    DRAINING = "DRAINING"  # by YARN
    LOST = "LOST"  # the ResourceManager does not name it (any more)


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
    """One app. `rho` is of the time so far, final once ended; `rho_forecast` is at its end, as things are now.

    Both and `t_independent_ms` are NaN where no share of the cluster as it is would get it done.
    """

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
    """One node. `gpus_outside` of `gpus_used` are in use without a lease: masters', and what nobody has adopted yet."""

    node: NodeName
    rack: RackName
    state: NodeState
    gpus_total: int
    gpus_leased: int
    gpus_used: int
    gpus_outside: int
    gpu_type: str = ""

    @property
    def gpus_free(self) -> int:
        """What a round could lease: never below 0, and nothing where no new leases are given."""
        return max(0, self.gpus_total - self._taken) if self.state is NodeState.RUNNING else 0

    @property
    def gpus_over(self) -> int:
        """GPUs leased or used that the node does not have (any more)."""
        return max(0, self._taken - self.gpus_total)

    @property
    def is_oversubscribed(self) -> bool:
        """Whether more is leased or used than there is."""
        return self.gpus_over > 0

    @property
    def _taken(self) -> int:
        return self.gpus_leased + self.gpus_outside


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
    is_paused: bool
    is_observing: bool
