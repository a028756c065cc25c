"""Nodes and jobs of the simulated ResourceManager: what they are, and how a job gets on with its work.

A job computes while the GPUs of its running containers are at least its gang, each GPU one GPU-millisecond a millisecond (no
slowdown), times the speed that it declares of the slowest of their types. What it does when it is told to go hangs on
`on_lease_end`:

* `checkpoint`: it goes on for `checkpoint_ms`, then leaves and loses nothing; killed before that, it falls back to what it
  saved last.
* `restart`: it leaves at once, and any change of its GPUs costs all its progress.
* `never`: it does not listen, and is killed at the deadline with all its progress.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from themis_arbiter.core.gpu_speeds import speed_on
from themis_arbiter.core.types import (
    NAME_LENGTH_MAX,
    AppId,
    CoreError,
    GpuMillis,
    GpuSpeeds,
    JobId,
    Millis,
    NodeName,
    OnLeaseEnd,
    RackName,
)

WORK_EPSILON: Final[GpuMillis] = 1e-6  # work left below this is rounding

EXIT_DONE: Final = 0
EXIT_RELEASED: Final = -100  # YARN: the container was given back, or its node is gone
EXIT_PREEMPTED: Final = -102  # YARN: killed by the scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class SimNode:
    """A node of the simulated cluster."""

    node: NodeName
    rack: RackName
    gpus: int
    gpus_per_slot: int = 0
    gpu_type: str = ""
    memory_mb: int = 262_144
    vcores: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """A job that arrives `arrival_ms` after the cluster's start. `memory_mb` and `vcores` are of one container.

    `work` is serial work in GPU-milliseconds; reports name it only where `is_work_declared`. Errors: CoreError.
    """

    app_id: AppId
    job_id: JobId
    arrival_ms: Millis = 0
    gang: int = 1
    unit: int = 1
    max_gpus: int = 1
    work: GpuMillis
    is_work_declared: bool = True
    on_lease_end: OnLeaseEnd = OnLeaseEnd.CHECKPOINT
    checkpoint_ms: Millis = 300
    memory_mb: int = 1_024
    vcores: int = 1
    user: str = "sim"
    queue: str = "default"
    model: str = ""
    weight: float = 1.0
    gpu_speeds: GpuSpeeds = ()

    def __post_init__(self) -> None:
        if not (0 < len(self.job_id) <= NAME_LENGTH_MAX and 0 < len(self.app_id) <= NAME_LENGTH_MAX):
            raise CoreError(f"names have 1 to {NAME_LENGTH_MAX} characters: {self.app_id!r}, {self.job_id!r}")
        if not (1 <= self.unit <= self.gang <= self.max_gpus) or self.gang % self.unit or self.max_gpus % self.unit:
            raise CoreError(f"{self.job_id}: gang and max_gpus are multiples of the unit, gang <= max_gpus: {self}")
        if not (self.work > 0 and self.arrival_ms >= 0 and self.checkpoint_ms >= 0):
            raise CoreError(f"{self.job_id}: work must be above 0, times at least 0: {self}")


@dataclass(slots=True)
class Container:
    """A container on its way: allocated, running from `starts_ms`, told to go, over, freed by its node's heartbeat."""

    container_id: str
    job_id: JobId
    node: NodeName
    gpus: int
    starts_ms: Millis
    is_running: bool = False
    is_told: bool = False  # to go
    exits_ms: Millis | None = None  # its process ends by itself
    is_over: bool = False  # its process has ended; the GPUs are the ResourceManager's only after a heartbeat
    kill_ms: Millis | None = None


@dataclass(slots=True)
class RunningJob:
    """A job's progress. `containers` are those that hold GPUs, by id, oldest first."""

    spec: SimJob
    arrival_ms: Millis  # absolute
    updated_ms: Millis
    has_arrived: bool = False
    finish_ms: Millis | None = None
    done: GpuMillis = 0.0
    saved: GpuMillis = 0.0
    containers: dict[str, Container] = field(default_factory=dict)
    gpu_types: Mapping[NodeName, str] = field(default_factory=dict)  # of the cluster's nodes

    @property
    def is_live(self) -> bool:
        """Has arrived and has not finished."""
        return self.has_arrived and self.finish_ms is None

    @property
    def gpus_held(self) -> int:
        """GPUs of its containers, running or not."""
        return sum(c.gpus for c in self.containers.values())

    @property
    def gpus_asked(self) -> int:
        """GPUs that it waits for, beside its containers."""
        return self.spec.max_gpus - self.gpus_held if self.is_live else 0

    @property
    def rate(self) -> float:
        """Work a millisecond that it does now; none where it is on a GPU whose type it cannot use."""
        nodes = [(c.node, c.gpus) for c in self.containers.values() if c.is_running and not c.is_over]
        gpus = sum(count for _, count in nodes)
        if gpus < self.spec.gang:
            return 0
        if not self.spec.gpu_speeds:
            return gpus
        return gpus * min([speed_on(self.spec.gpu_speeds, self.gpu_types.get(node, "")) for node, _ in nodes])

    def finishes_ms(self) -> Millis | None:
        """When the work will be done if nothing changes; None: never."""
        rate = self.rate
        if not self.is_live or rate == 0:
            return None
        return self.updated_ms + max(0, ceil((self.spec.work - self.done - WORK_EPSILON) / rate))

    def compute_to(self, at_ms: Millis) -> None:
        """Get on with the work until `at_ms`."""
        if self.is_live:
            self.done = min(self.spec.work, self.done + self.rate * (at_ms - self.updated_ms))
        self.updated_ms = at_ms

    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.done >= self.spec.work - WORK_EPSILON

    def tell(self, container: Container, at_ms: Millis, kill_ms: Millis) -> None:
        """The container is to go now; it is killed at `kill_ms`."""
        container.kill_ms = kill_ms if container.kill_ms is None else min(container.kill_ms, kill_ms)
        if container.is_told:
            return
        container.is_told = True
        if self.spec.on_lease_end is OnLeaseEnd.NEVER:
            return
        saves = container.is_running and self.spec.on_lease_end is OnLeaseEnd.CHECKPOINT
        container.exits_ms = at_ms + self.spec.checkpoint_ms if saves else at_ms

    def start(self, container: Container) -> None:
        """The container's process runs from now on."""
        container.is_running = True
        self._change_gpus()

    def leave(self, container: Container) -> None:
        """The container's process ends by itself, its work saved where it can be."""
        container.is_over = True
        if self.spec.on_lease_end is OnLeaseEnd.CHECKPOINT:
            self.saved = self.done
        self._change_gpus()

    def lose(self, container: Container) -> None:
        """The container is gone without warning, or by force; unless it had left already, unsaved work goes with it."""
        del self.containers[container.container_id]
        if container.is_running and not container.is_over:
            self.done = self.saved
            self._change_gpus()

    def _change_gpus(self) -> None:
        if self.spec.on_lease_end is OnLeaseEnd.RESTART:
            self.done = self.saved = 0.0
