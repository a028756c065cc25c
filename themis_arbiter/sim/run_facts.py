"""What a live run's journal says was granted, told and asked: the facts that `run_check` judges and `run_picture` draws.

Nothing of the arbiter's own reckoning is taken over: who runs where comes from the ResourceManager's log
(`ContainerStay`), who asks for how much from the events, and leases from what was told outside about them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from themis_arbiter.core.codec import untagged
from themis_arbiter.core.effects import GrantGpus, LeaseMoved, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import JobReport, NodeReport, RmReported
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, GpuId, GpuSpeeds, GrantId, JobId, LeaseId, Millis, NodeName
from themis_arbiter.engine.journal_format import RecordedStep, parse_header, parse_steps

LEASES_MAX: Final = 1_000_000
_WANTED: Final = frozenset({"GrantGpus", "LeaseMoved", "RequestDrain", "SyncLeases", "WithdrawLeases"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStay:
    """A container's stay on a node by the ResourceManager's log. Times are wall clock; None: not (yet).

    `released_ms` is when the ResourceManager took it off its application (it was given back, killed or seen to end),
    `ended_ms` when its node confirmed that it is gone and its GPUs are free.
    """

    container_id: str
    job_id: JobId
    node: NodeName
    gpus: int
    is_am: bool = False
    allocated_ms: Millis
    running_ms: Millis | None = None
    released_ms: Millis | None = None
    ended_ms: Millis | None = None

    @property
    def left_ms(self) -> Millis | None:
        """When it was no longer its application's."""
        return self.released_ms if self.released_ms is not None else self.ended_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLife:
    """One lease of one GPU. None: that did not happen.

    `entered_ms` is when it was decided, `current_ms` when its GPU was its alone (later than that where it was promised while
    another lease was still on the GPU), `granted_ms` when the gate was told. `draining_ms` is when its end was decided,
    `drain_ms` when the gate was told that. `ends` are its ends by when they were decided.
    """

    lease_id: LeaseId
    grant_id: GrantId
    app_id: AppId
    job_id: JobId
    gpu: GpuId
    entered_ms: Millis
    ends: tuple[tuple[Millis, Millis], ...]
    current_ms: Millis | None = None
    granted_ms: Millis | None = None
    draining_ms: Millis | None = None
    drain_ms: Millis | None = None
    deadline_ms: Millis | None = None
    withdrawn_ms: Millis | None = None
    ended_ms: Millis | None = None
    drain_cause: Cause | None = None
    is_adopted: bool = False  # of what ran without one, not won

    @property
    def node(self) -> NodeName:
        """The node of its GPU."""
        return self.gpu.rsplit(":", 1)[0]

    @property
    def end_ms(self) -> Millis:
        """Its end as last decided."""
        return self.ends[-1][1]

    @property
    def over_ms(self) -> Millis | None:
        """When it stopped being the job's to keep: its end was decided, or it ended at once."""
        return self.draining_ms if self.draining_ms is not None else self.ended_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job as it reported itself; `asked` are GPUs it still asked for, by the time from which on."""

    app_id: AppId
    job_id: JobId
    gang: int
    unit: int
    asked: tuple[tuple[Millis, int], ...]
    finished_ms: Millis | None = None
    final_status: str = ""
    gpu_speeds: GpuSpeeds = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFacts:
    """Everything that is taken from a journal; `gpus` is by node, as first reported (a run without lost nodes).

    `gpu_types` are those of nodes, in lower case.
    """

    settings: Settings
    first_ms: Millis
    last_ms: Millis
    gpus: Mapping[NodeName, int]
    racks: Mapping[NodeName, str]
    jobs: tuple[JobFacts, ...]
    leases: tuple[LeaseLife, ...]
    grid_ends_ms: tuple[Millis, ...]
    rounds: int
    gpu_types: Mapping[NodeName, str] = field(default_factory=dict)


@dataclass
class _Reader:
    """Takes in one step after the other."""

    gpus: dict[NodeName, int] = field(default_factory=dict)
    racks: dict[NodeName, str] = field(default_factory=dict)
    gpu_types: dict[NodeName, str] = field(default_factory=dict)
    jobs: dict[JobId, JobFacts] = field(default_factory=dict)
    leases: dict[LeaseId, LeaseLife] = field(default_factory=dict)
    first_ms: Millis = 0
    last_ms: Millis = 0
    rounds: int = 0

    def take(self, step: RecordedStep) -> None:
        # The arbiter's time never falls, so neither does the time of what it told.
        now_ms = self.last_ms = max(self.last_ms, step.event.at_ms)
        self.first_ms = self.first_ms or now_ms
        if isinstance(step.event, RmReported):
            for node in step.event.nodes:
                self._node(node)
            for job in step.event.jobs:
                self._job(job, now_ms)
        for plain in json.loads(step.effects_line)["effects"]:
            self.rounds += plain["type"] == "RoundClosed"
            if plain["type"] in _WANTED:
                self._effect(untagged(json.dumps(plain)), now_ms)

    def _node(self, node: NodeReport) -> None:
        self.gpus[node.node] = max(node.gpus, self.gpus.get(node.node, 0))
        self.racks[node.node] = node.rack
        self.gpu_types[node.node] = node.gpu_type.lower()

    def _job(self, report: JobReport, now_ms: Millis) -> None:
        old = self.jobs.get(report.job_id)
        asked = old.asked if old is not None else ()
        if not asked or asked[-1][1] != report.gpus_asked:
            asked = (*asked, (now_ms, report.gpus_asked))
        finished_ms = old.finished_ms if old is not None else None
        if report.is_finished and finished_ms is None:
            finished_ms = now_ms
        self.jobs[report.job_id] = JobFacts(
            app_id=report.app_id if old is None else old.app_id,
            job_id=report.job_id,
            gang=max(report.gang, old.gang if old is not None else 1),
            unit=max(report.unit, old.unit if old is not None else 1),
            asked=asked,
            finished_ms=finished_ms,
            final_status=report.final_status,
            gpu_speeds=report.gpu_speeds if old is None else old.gpu_speeds,
        )

    def _effect(self, effect: Any, now_ms: Millis) -> None:
        match effect:
            case LeaseMoved():
                self._moved(effect, now_ms)
            case GrantGpus():
                for lease in effect.leases:
                    self._change(lease.lease_id, granted_ms=now_ms)
            case SyncLeases():
                for lease in effect.leases:
                    if self.leases[lease.lease_id].granted_ms is None:
                        self._change(lease.lease_id, granted_ms=now_ms)
                for lease_id, deadline_ms in effect.drains:
                    self._drain(lease_id, now_ms, deadline_ms)
            case RequestDrain():
                for lease_id in effect.lease_ids:
                    self._drain(lease_id, now_ms, effect.deadline_ms)
            case WithdrawLeases():
                for lease_id in effect.lease_ids:
                    self._change(lease_id, withdrawn_ms=now_ms)
            case _:
                raise AssertionError(f"not an effect that is looked at: {effect}")

    def _moved(self, moved: LeaseMoved, now_ms: Millis) -> None:
        lease = moved.lease
        known = self.leases.get(lease.lease_id)
        if known is None:
            assert len(self.leases) < LEASES_MAX, f"more than {LEASES_MAX} leases in one journal"
            known = _new_life(lease, now_ms)
        if lease.end_ms != known.end_ms:
            known = replace(known, ends=(*known.ends, (now_ms, lease.end_ms)))
        if moved.state_from is LeaseState.WAITING:
            known = replace(known, current_ms=None if lease.state is LeaseState.ENDED else now_ms)
        if lease.state is LeaseState.WAITING:  # it was taken for the GPU's only one until now
            known = replace(known, current_ms=None)
        if lease.state is LeaseState.DRAINING:
            known = replace(known, draining_ms=now_ms, drain_cause=moved.cause)
        if lease.state is LeaseState.ENDED:
            known = replace(known, ended_ms=now_ms)
        self.leases[lease.lease_id] = known

    def _drain(self, lease_id: LeaseId, now_ms: Millis, deadline_ms: Millis) -> None:
        if self.leases[lease_id].drain_ms is None:
            self._change(lease_id, drain_ms=now_ms, deadline_ms=deadline_ms)

    def _change(self, lease_id: LeaseId, **changes: Any) -> None:
        # A lease that was taken back before the gate knew of it is withdrawn all the same.
        if lease_id in self.leases:
            self.leases[lease_id] = replace(self.leases[lease_id], **changes)


def _new_life(lease: Lease, now_ms: Millis) -> LeaseLife:
    return LeaseLife(
        lease_id=lease.lease_id,
        grant_id=lease.grant_id,
        app_id=lease.app_id,
        job_id=lease.job_id,
        gpu=lease.gpu,
        entered_ms=now_ms,
        ends=((now_ms, lease.end_ms),),
        current_ms=now_ms,
        is_adopted=lease.cause is Cause.ADOPTED,
    )


def read_facts(path: Path) -> JournalFacts:
    """The facts of a journal. Errors: JournalFormatError, OSError."""
    with path.open(encoding="utf-8") as lines:
        return facts_of(parse_header(lines.readline()), parse_steps(lines))


def facts_of(settings: Settings, steps: Iterable[RecordedStep]) -> JournalFacts:
    """The facts of `steps`, the first of which is the arbiter's first."""
    reader = _Reader()
    for step in steps:
        reader.take(step)
    return JournalFacts(
        settings=settings,
        first_ms=reader.first_ms,
        last_ms=reader.last_ms,
        gpus=dict(sorted(reader.gpus.items())),
        racks=dict(sorted(reader.racks.items())),
        jobs=tuple(reader.jobs[j] for j in sorted(reader.jobs)),
        leases=tuple(reader.leases[i] for i in sorted(reader.leases)),
        grid_ends_ms=tuple(_grid(reader.first_ms, reader.last_ms, settings.lease_ms)),
        rounds=reader.rounds,
        gpu_types=dict(sorted(reader.gpu_types.items())),
    )


def _grid(first_ms: Millis, last_ms: Millis, lease_ms: Millis) -> Iterator[Millis]:
    end = (first_ms // lease_ms + 1) * lease_ms
    while end <= last_ms:
        yield end
        end += lease_ms
