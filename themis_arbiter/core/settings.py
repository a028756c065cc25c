"""What an arbiter is told once and never changes while it runs. Times in milliseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from themis_arbiter.core.speedup import GUESSED_SLOWDOWN, SlowdownModel
from themis_arbiter.core.types import CoreError, GpuMillis, Millis, OnLeaseEnd

NO_SHOW_LEASES_MAX: Final = 8  # a no-show is offered nothing for 1, 2, 4, ... at most so many leases
ADMISSION_RHO_MAX: Final = 1e6
REGRET_MAX: Final = 1e9
GANG_SHARE_MAX: Final = 2.0  # of the cluster; above 1 no gang is so large
OWED_LEASES_MAX: Final = 1e6
ADMISSION_QUEUE_MAX: Final = 10_000
AGING_MAX: Final = 8.0
LEASE_MS_MAX: Final = 7 * 24 * 3_600_000
WEIGHT_MAX: Final = 1e6  # of an owner, as against another's of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRule:
    """What holds for the jobs of a YARN queue."""

    on_lease_end: OnLeaseEnd | None = None  # of jobs that say nothing themselves; None: as everywhere
    never_gpus_max: int | None = None  # GPUs that its jobs with `never` may hold together; None: no cap
    weight: float = 1.0  # of its share beside other queues', where queues share

    def __post_init__(self) -> None:
        _check_weight("a queue's", self.weight)
        if self.never_gpus_max is not None and self.never_gpus_max < 0:
            raise CoreError(f"a queue's cap on `never` must not be negative: {self.never_gpus_max}")


class ShareBy(StrEnum):
    """Among whom the cluster is shared first; an owner's live apps share what the owner has."""

    APP = "app"  # every app counts for itself
    USER = "user"
    QUEUE = "queue"
    QUEUE_USER = "queue-user"  # queues first, then the users in each


def _check_weight(whose: str, weight: float) -> None:
    if not 1 / WEIGHT_MAX <= weight <= WEIGHT_MAX:  # NaN included
        raise CoreError(f"{whose} weight lies between {1 / WEIGHT_MAX:g} and {WEIGHT_MAX:g}: {weight}")


class Filter(StrEnum):
    """Who is asked to bid."""

    FRACTION = "fraction"  # the worst-off 1-f of the apps
    ADAPTIVE = "adaptive"  # every app with rho above 1, and at least so many


class Tie(StrEnum):
    """Who of equally badly off apps comes first."""

    ID = "id"
    RANDOM = "random"  # by a hash of the round


class Leftover(StrEnum):
    """Who gets what the auction leaves."""

    RANDOM = "random"  # those who did not bid before those who did, by a hash of the round
    SERVICE = "service"  # the app with the least work left first


class Rounding(StrEnum):
    """How a share c_i of a win becomes whole gangs."""

    UP = "up"
    DOWN = "down"
    LOTTERY = "lottery"  # up or down by a hash of the round, so that the mean is the share


class TimeAlone(StrEnum):
    """What rho is measured against."""

    PAPER = "paper"  # n_avg x work / min(GPUs, the most that it can use)
    FLUID = "fluid"  # the ideal fluid share, as for everybody else


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRules:
    """Where the paper is silent or could be read otherwise: the `paper` policy's rules, as it has them unless told."""

    filter: Filter = Filter.FRACTION
    tie: Tie = Tie.ID
    leftover: Leftover = Leftover.RANDOM
    rounding: Rounding = Rounding.UP
    t_id: TimeAlone = TimeAlone.PAPER
    aging: float = 0.0  # exponent of waiting in the weight of a bid: 0, as in the paper, weighs all alike

    def __post_init__(self) -> None:
        if not 0.0 <= self.aging <= AGING_MAX:
            raise CoreError(f"aging lies in [0, {AGING_MAX:g}]: {self.aging}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of core and policies; defaults are contracts.md's. Errors: CoreError where they contradict each other."""

    policy: str = "themis"
    lease_ms: Millis = 300_000
    notice_ms: Millis = 60_000
    debounce_ms: Millis = 1_000
    rho_floor_ms: Millis = 600_000
    restart_cost_ms: Millis = 40_000  # what a job loses when its GPUs change or it resumes after a pause
    is_first_start_free: bool = False  # whether a job's first start costs nothing: only in a trace's world
    recall: bool = True  # whether `themis` and `guard` may end leases early, for urgent jobs that wait
    srsf_recall: bool = False  # whether `srsf` may too, for any job that waits and comes first (to compare with)
    tick_ms: Millis = 60_000  # of recall: a waiting job's next chance is at most so far away; without recall, a lease
    urgent_above: float = 1.02  # regret above which a job is urgent (mechanism.md, section 6; docs/policies.md on the number)
    starving_above: float = 1.3  # regret above which it goes before all who came later; of the urgent only
    large_gang: float = 0.5  # of the cluster's GPUs: a gang from which on its first lease is owed (core.policies.owed)
    owed_leases: float = 1.0  # leases after its share has paid for its first lease, from when on it goes before all others
    gang_wait_ms: Millis = 10_000  # a gang whose containers are not whole by then is handed back
    no_show_ms: Millis = 60_000  # what was granted and asked for and is still unused then is taken back
    min_runtime_ms: Millis = 0  # a job that started is renewed until it has run so long
    on_lease_end: OnLeaseEnd = OnLeaseEnd.CHECKPOINT  # of jobs that say nothing, in queues that say nothing
    queues: Mapping[str, QueueRule] = field(default_factory=dict)
    share_by: ShareBy = ShareBy.APP
    users: Mapping[str, float] = field(default_factory=dict)  # weights of users' shares; who is not named has 1
    observe_only: bool = False  # decide and record, but lease nothing: YARN schedules as if the arbiter were not there
    recovery_grace_ms: Millis = 30_000  # after a ResourceManager's restart: until what it does not report is gone
    fairness_knob: float = 0.8  # f of the `paper` policy
    paper: PaperRules = field(default_factory=PaperRules)
    payments: bool = True
    admission_max_rho: float = 0.0  # admission control's bound on projected rho (core.admission); 0: everybody is let in
    admission_queue_max: int = 1_000  # apps that may wait to be let in; beyond it the first is let in whatever it does
    first_queue_max: GpuMillis = 3_600_000.0  # of the `tiresias` policy: a job falls into its second queue at so much GPU time
    slowdowns: SlowdownModel = field(default_factory=lambda: SlowdownModel(default=GUESSED_SLOWDOWN))

    def __post_init__(self) -> None:
        if not 0 < self.lease_ms <= LEASE_MS_MAX:
            raise CoreError(f"lease must be above 0 and at most {LEASE_MS_MAX} ms: {self.lease_ms}")
        for name in (
            "notice_ms",
            "debounce_ms",
            "rho_floor_ms",
            "restart_cost_ms",
            "tick_ms",
            "gang_wait_ms",
            "recovery_grace_ms",
            "no_show_ms",
            "min_runtime_ms",
        ):
            if getattr(self, name) < 0:
                raise CoreError(f"{name} must not be negative: {getattr(self, name)}")
        if self.notice_ms + self.restart_cost_ms >= self.lease_ms:
            raise CoreError(
                f"notice {self.notice_ms} + restart cost {self.restart_cost_ms} must be shorter than the lease "
                f"{self.lease_ms}: nothing would be left to compute in"
            )
        self._check_bars()
        if self.tick_ms == 0:
            raise CoreError("tick must be above 0 ms: recall looks for urgent jobs once a tick (recall = false: not at all)")
        for user, weight in self.users.items():
            _check_weight(f"user {user}'s", weight)
        if self.first_queue_max < 0:
            raise CoreError(f"first_queue_max must not be negative: {self.first_queue_max}")
        if not (self.admission_max_rho == 0.0 or 1.0 <= self.admission_max_rho <= ADMISSION_RHO_MAX):
            raise CoreError(f"admission_max_rho is 0 (off) or lies in [1, {ADMISSION_RHO_MAX:g}]: {self.admission_max_rho}")
        if not 1 <= self.admission_queue_max <= ADMISSION_QUEUE_MAX:
            raise CoreError(f"admission_queue_max lies in [1, {ADMISSION_QUEUE_MAX}]: {self.admission_queue_max}")
        if not 0.0 <= self.fairness_knob <= 1.0:
            raise CoreError(f"the fairness knob f lies in [0, 1]: {self.fairness_knob}")

    def _check_bars(self) -> None:
        if not 0.0 < self.urgent_above <= self.starving_above <= REGRET_MAX:
            raise CoreError(
                f"0 < urgent_above <= starving_above <= {REGRET_MAX:g} must hold, who starves is urgent: "
                f"{self.urgent_above} and {self.starving_above}"
            )
        if not (self.large_gang > 0.0 and self.owed_leases >= 0.0):  # NaN included
            raise CoreError(
                f"large_gang must be above 0 (above 1: no gang is large) and owed_leases at least 0: "
                f"{self.large_gang} and {self.owed_leases}"
            )
