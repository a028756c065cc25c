"""What goes into and comes out of the training job's machine (job.py). Plain frozen values.

Every event carries its time, wall clock in milliseconds: the machine never asks for it.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from themis_arbiter.agent.work import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """The application master is registered; the job may ask for containers."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAllocated:
    """YARN served an ask."""

    at_ms: int
    container_id: str
    request_id: int
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStartFailed:
    """A NodeManager refused or could not be reached; the container is still held."""

    at_ms: int
    container_id: str
    diagnostics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionNoticed:
    """YARN will take the container soon; its task may finish the unit in hand."""

    at_ms: int
    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCompleted:
    """YARN's word that a container is over."""

    at_ms: int
    container_id: str
    exit_status: int
    diagnostics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConnected:
    """A container's task said hello with the right token."""

    at_ms: int
    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDisconnected:
    """Its connection ended."""

    at_ms: int
    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReported:
    """A task did the unit that it had in hand, and its log says so."""

    at_ms: int
    container_id: str
    unit: Unit
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """The answer to ReadLog: every unit that the container's log shows done, with its value."""

    at_ms: int
    container_id: str
    done: tuple[tuple[Unit, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time passed."""

    at_ms: int


JobEvent: TypeAlias = (
    JobStarted
    | ContainerAllocated
    | ContainerStartFailed
    | PreemptionNoticed
    | ContainerCompleted
    | TaskConnected
    | TaskDisconnected
    | UnitReported
    | LogRead
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskContainer:
    """Ask YARN for one container under a new request id."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAsk:
    """Withdraw an ask that is not served yet."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Start a task in a container."""

    container_id: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignUnit:
    """Hand a unit to a task."""

    container_id: str
    unit: Unit
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """Tell a task to end after what it has in hand."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """End a task's connection, and thereby the task; answered by TaskDisconnected."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseContainer:
    """Give a container back to YARN."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Read the log of a task that is gone for certain; answered by LogRead."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCheckpoint:
    """Replace the checkpoint file. Comes before any effect that relies on it."""

    document: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportProgress:
    """Tell YARN how far the job is, 0 to 1."""

    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishJob:
    """The job is over; `reason` is empty where every unit is done."""

    reason: str


JobEffect: TypeAlias = (
    AskContainer
    | CancelAsk
    | StartTask
    | AssignUnit
    | StopTask
    | Disconnect
    | ReleaseContainer
    | ReadLog
    | WriteCheckpoint
    | ReportProgress
    | FinishJob
)
