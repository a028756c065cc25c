"""What a policy sees and says: a frozen market in, a decision out. A policy keeps no state between rounds.

What it has worked out of frozen values it may keep with them, since it would come to the same again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

from themis_arbiter.core.auction.bid import Placement, Supply
from themis_arbiter.core.gpu_speeds import Speeds
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, GpuId, GpuMillis, GpuSpeeds, JobId, LossCurve, Millis, RoundNo
from themis_arbiter.core.value import value


@value(frozen=True, slots=True, kw_only=True)
class MarketJob:
    """A live job in a round. `held` are GPUs that it keeps whatever happens, `ending` ones of its that are on offer."""

    job_id: JobId
    app_id: AppId
    arrival_ms: Millis
    gang: int
    unit: int
    wanted: int  # most GPUs that it could use now, those it holds included
    model: str
    remaining: GpuMillis
    has_run: bool
    held: tuple[GpuId, ...] = ()
    ending: tuple[GpuId, ...] = ()
    restart_ms: Millis = 0  # what it loses when its GPUs change
    lost: GpuMillis = 0.0  # work that it then has to do again
    attained: GpuMillis = 0.0  # GPU time metered so far
    done: GpuMillis = 0.0  # work that this came to: less where its GPUs lay apart, none of what is lost
    memory_mb: int = 0  # of one container, which has `unit` GPUs; 0 where nobody said
    vcores: int = 0
    loss_curve: LossCurve | None = None
    gpu_speeds: GpuSpeeds = ()

    @property
    def has_gpus(self) -> bool:
        """Whether it runs on anything now."""
        return bool(self.held or self.ending)

    @property
    def is_whole(self) -> bool:
        """Whether what it keeps is a gang."""
        return len(self.held) >= self.gang

    @property
    def can_gain(self) -> bool:
        """Whether any GPU on offer could be of use to it."""
        return self.wanted >= self.gang and len(self.held) < self.wanted


@value(frozen=True, slots=True, kw_only=True)
class MarketApp:
    """A live app in a round; `t_independent_ms` is floored, so never 0."""

    app_id: AppId
    arrival_ms: Millis
    t_independent_ms: float
    presence_at_arrival: float  # see Market.n_avg
    work: GpuMillis  # of all its jobs, those that are over too
    demand: int  # GPUs that these could use at once
    weight: float
    jobs: tuple[MarketJob, ...]
    attained: GpuMillis = 0.0  # GPU time metered so far, of jobs that are over too
    remaining: GpuMillis = field(init=False, compare=False)  # serial work that all its jobs have left
    in_order: tuple[MarketJob, ...] = field(init=False, compare=False, repr=False)  # its jobs as it would serve them

    def __post_init__(self) -> None:
        # Orders ask for both job by job and round by round, and most apps are the same value in many rounds.
        jobs = self.jobs
        object.__setattr__(self, "remaining", sum([j.remaining for j in jobs]))
        object.__setattr__(self, "in_order", tuple(sorted(jobs, key=_in_app)) if len(jobs) > 1 else jobs)


def _in_app(job: MarketJob) -> tuple[bool, bool, float, JobId]:
    """In-app order: jobs that run, then jobs that paused, then new ones; the longest first."""
    return (not job.has_gpus, not job.has_run, -job.remaining, job.job_id)


@dataclass(frozen=True, kw_only=True)
class Market:
    """Everything a policy may look at in one round."""

    now_ms: Millis
    round_no: RoundNo
    supply: Supply
    apps: tuple[MarketApp, ...]  # in order of app id
    settings: Settings
    is_recall: bool = False  # whether the GPUs that end would go on if nobody urgent took them
    memory_mb: int = 0  # of the whole cluster; 0 where nobody said
    vcores: int = 0
    presence: float = 0.0  # integral over time of the number of live apps, up to now
    is_typed: bool = False  # whether any job declares speeds by GPU type; `supply.room` then says what it may not have

    def speeds(self, job: MarketJob) -> Speeds | None:
        """What the job's declaration means here; None: it runs at speed 1 on every GPU, and may have any."""
        return self.supply.topology.speeds(job.gpu_speeds) if job.gpu_speeds else None

    def slowest(self, job: MarketJob, gpus: Iterable[GpuId]) -> float:
        """The speed by type at which the job would run on these GPUs; of none, its highest here."""
        speeds = self.speeds(job)
        return 1.0 if speeds is None else speeds.slowest(gpus)

    def fastest(self, job: MarketJob, count: int) -> float:
        """The same of the fastest so many GPUs of the cluster."""
        speeds = self.speeds(job)
        return 1.0 if speeds is None else speeds.best(count)

    @cached_property
    def jobs(self) -> Mapping[JobId, MarketJob]:
        """All jobs of all apps."""
        return {job.job_id: job for app in self.apps for job in app.jobs}

    def n_avg(self, app: MarketApp) -> float:
        """Time average, over the app's life so far, of the number of live apps (paper, 4.3); at least 1."""
        lived = self.now_ms - app.arrival_ms
        return max(1.0, (self.presence - app.presence_at_arrival) / lived) if lived > 0 else 1.0


Orders: TypeAlias = tuple[tuple[JobId, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who gets what of the supply, and the policy's part of the decision record (plain JSON values)."""

    wins: Mapping[AppId, Placement]  # by the auction, payments withheld
    leftovers: Mapping[AppId, Placement] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    orders: Orders | None = None  # by which it was handed out, one after the other; None: by more than that
    choosers: Collection[JobId] = ()  # who of them chose their places first

    def gpus_by_job(self) -> dict[JobId, tuple[GpuId, ...]]:
        """All GPUs that each job gets, sorted."""
        out: dict[JobId, tuple[GpuId, ...]] = {}
        for part in (self.wins, self.leftovers):
            for placement in part.values():
                for job_id, gpus in placement.items():
                    out[job_id] = tuple(sorted((*out.get(job_id, ()), *gpus)))
        return out


class Policy(Protocol):
    """A rule for rounds. Equal markets give equal decisions; chance comes from the round number only."""

    def decide(self, market: Market) -> Decision:
        """Share out the supply."""
        ...


@runtime_checkable
class Repeating(Policy, Protocol):
    """A policy that can tell whether it would decide as before."""

    def decide_after(self, market: Market, before: Decision) -> Decision:
        """As `decide`; `before` is what it decided when all was as it is now but the time (see core.standstill).

        Where the leftovers come to the same, they are the very same object.
        """
        ...
