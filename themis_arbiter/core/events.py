"""Everything that can happen to the arbiter. Each fact carries the time at which the shell learned it (`at_ms`).

Reports are level-triggered: an entry is the entity's whole present state, so that a repeated or a skipped report does no
harm. Names in them have been parsed and bounded at the edge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import (
    AppId,
    Epoch,
    GpuMillis,
    GpuSpeeds,
    JobId,
    LeaseId,
    LossCurve,
    Millis,
    NodeName,
    OnLeaseEnd,
    RackName,
    RoundNo,
)
from themis_arbiter.core.value import LEFT_OUT, value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node as the ResourceManager sees it. Only a `schedulable` one gives GPUs to auctions; a lost one is gone."""

    node: NodeName
    rack: RackName
    gpus: int
    gpus_per_slot: int = 0
    gpu_type: str = ""
    memory_free_mb: int
    vcores_free: int
    is_schedulable: bool = True
    is_lost: bool = False


@value(frozen=True, slots=True, kw_only=True)
class JobReport:
    """A job (a YARN application): what it is and what it asks for now.

    `gpus_asked` are those that it still waits for, beside its containers. `work` is declared serial work, None where
    nobody said. `unit` is the GPUs of one container, `gang` the fewest GPUs that it can run on, `max_gpus` the most that it
    says it can use (0: not said, then it is the most that it ever asked for).
    """

    app_id: AppId
    job_id: JobId
    user: str = ""
    queue: str = ""
    model: str = ""
    arrival_ms: Millis
    gang: int = 1
    unit: int = 1
    gpus_asked: int = 0
    max_gpus: int = 0
    memory_mb: int = 0
    vcores: int = 0
    work: GpuMillis | None = None
    weight: float = 1.0
    on_lease_end: OnLeaseEnd | None = None  # None: as its queue says, else `checkpoint`
    loss_curve: LossCurve | None = None
    checkpoint_ms: Millis = 0  # what writing and reading its checkpoint costs it, beside the restart cost
    is_finished: bool = False
    finish_ms: Millis = 0
    final_status: str = ""
    gpu_speeds: GpuSpeeds = field(default=(), metadata=LEFT_OUT)


@value(frozen=True, slots=True, kw_only=True)
class Meter:
    """What the store keeps of a job's account, as of `metered_ms`: what no report of the ResourceManager's says again.

    See core.workload.Job for the fields. `arrival_ms` is the app's (0 and no app: of a store whose
    version did not keep them). `ended` is the last report of a job that is over while its
    app lives; None: it lives.
    """

    attained: GpuMillis
    done: GpuMillis
    metered_ms: Millis
    app_id: AppId = ""
    arrival_ms: Millis = 0
    gpus: int = 0  # that it ran on then
    rate: float = 0.0
    running_since_ms: Millis | None = None
    max_gpus: int = 0
    begun_at: GpuMillis = 0.0
    declared_later: GpuMillis | None = None
    ended: JobReport | None = None


class EndCause(StrEnum):
    """Why a container ended, by YARN's exit status and what it says beside it; label values, so an enum."""

    DONE = "done"
    GIVEN_BACK = "given_back"  # -100: by its master
    NODE_LOST = "node_lost"  # -100, as are the next two where YARN says so
    EXPIRED = "expired"  # allocated and never started
    DISKS = "disks"  # -101
    PREEMPTED = "preempted"  # -102: by a drain, or by YARN's own preemption
    MEMORY = "memory"  # -103, -104: used more than it had asked for
    BY_MASTER = "by_master"  # -105
    BY_RM = "by_rm"  # -106: YARN took it, by a user's kill or a limit
    AFTER_APP = "after_app"  # -107, and -100: its application, or the attempt that it was of, had ended
    FAILED = "failed"  # any other


@value(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """A container that holds GPUs; one that has ended says so once."""

    container_id: str
    job_id: JobId
    node: NodeName
    gpus: int
    is_running: bool = False
    is_ended: bool = False
    is_am: bool = False
    exit_status: int = 0
    end_cause: EndCause | None = None  # where YARN says more than its exit status


END_CAUSES: Final[Mapping[int, EndCause]] = {
    0: EndCause.DONE,
    -100: EndCause.GIVEN_BACK,
    -101: EndCause.DISKS,
    -102: EndCause.PREEMPTED,
    -103: EndCause.MEMORY,
    -104: EndCause.MEMORY,
    -105: EndCause.BY_MASTER,
    -106: EndCause.BY_RM,
    -107: EndCause.AFTER_APP,
}


class AdminVerb(StrEnum):
    """What an admin may ask for (contracts.md)."""

    PAUSE = "pause"
    RESUME = "resume"
    REVOKE = "revoke"
    DRAIN = "drain"
    UNDRAIN = "undrain"
    SET_WEIGHT = "set-weight"
    OBSERVE_ONLY = "observe-only"


class Timer(StrEnum):
    """What a wake-up is for; of each kind at most one is set."""

    ROUND = "round"
    GRID = "grid"
    RECALL = "recall"
    TIDY = "tidy"
    GANGS = "gangs"
    ABSENT = "absent"
    RESYNC = "resync"
    STORE_RETRY = "store_retry"
    METERS = "meters"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAcquired:
    """This arbiter leads from now on; `leases` and `meters` (by job) are what the store holds."""

    at_ms: Millis
    epoch: Epoch
    leases: tuple[Lease, ...] = ()
    meters: tuple[tuple[JobId, Meter], ...] = ()
    last_round: RoundNo = 0
    last_serial: int = 0
    start_id: str = ""  # of the scheduler object that the leases were last written for
    admin: str = ""  # what admins have set (core.admin.AdminState), as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class RmAttached:
    """A ResourceManager's scheduler object, known by `start_id`, listens from now on."""

    at_ms: Millis
    start_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RmDetached:
    """Nobody listens any more."""

    at_ms: Millis
    start_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RmReported:
    """What the ResourceManager has, all of it (`is_full`) or what changed.

    `update_seq` is the last lease update that was applied before this report's entries were read: containers that it
    does not show cannot come any more from leases withdrawn up to then.
    """

    at_ms: Millis
    start_id: str
    is_full: bool = False
    update_seq: int = 0
    nodes: tuple[NodeReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    containers: tuple[ContainerReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRefused:
    """The gate did not take a lease update: it wants the full set."""

    at_ms: Millis
    start_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported:
    """An agent says how much serial work its job has left."""

    at_ms: Millis
    app_id: AppId
    job_id: JobId
    remaining: GpuMillis


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequested:
    """An admin wants something; `request_id` names it in the answer (AdminAnswered) and in the audit."""

    at_ms: Millis
    request_id: str
    actor: str
    verb: AdminVerb
    target: str = ""  # app or lease (revoke), node (drain, undrain), app (set-weight)
    value: float = 0.0  # weight (set-weight); 1 on, 0 off (observe-only)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesPersisted:
    """The store has committed batch `batch_no`."""

    at_ms: Millis
    batch_no: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """The store could not commit batch `batch_no`; nothing of it is in the store, or all is."""

    at_ms: Millis
    batch_no: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Woke:
    """A timer that the core set has come."""

    at_ms: Millis
    timer: Timer


Event: TypeAlias = (
    EpochAcquired
    | RmAttached
    | RmDetached
    | RmReported
    | UpdateRefused
    | ProgressReported
    | AdminRequested
    | LeasesPersisted
    | StoreFailed
    | Woke
)

EVENT_TYPES: tuple[type, ...] = (
    EpochAcquired,
    RmAttached,
    RmDetached,
    RmReported,
    UpdateRefused,
    ProgressReported,
    AdminRequested,
    LeasesPersisted,
    StoreFailed,
    Woke,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One atomic write to the lease store: all of it or nothing.

    `puts` are leases as they shall stand, `deletes` ones that have ended, `meters` the accounts of jobs (None: the
    job's app is gone). `start_id` is the scheduler object that the leases are for (fencing, architecture.md).
    """

    batch_no: int
    epoch: Epoch
    start_id: str
    last_round: RoundNo
    last_serial: int
    puts: tuple[Lease, ...] = ()
    deletes: tuple[LeaseId, ...] = ()
    meters: tuple[tuple[JobId, Meter | None], ...] = field(default=())
    admin: str = ""
