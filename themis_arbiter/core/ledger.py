"""Live leases by GPU: at most one `current` and one `next` each, so that a double lease is impossible by shape.

Only `core.state` owns a ledger. Each lease's story is kept beside it while it lives, for errors and for `themis explain`.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from themis_arbiter.core.lease import Cause, Lease, LeaseInput, LeaseState, Step, advance, renewed
from themis_arbiter.core.types import AppId, CoreError, GpuId, JobId, LeaseId, Millis, NodeName
from themis_arbiter.core.value import value

STORY_STEPS_MAX: Final = 32  # of one lease; the oldest go first


@value(frozen=True, slots=True)
class Moved:
    """What one transition did, for effects and metrics."""

    before: Lease
    after: Lease
    happened: LeaseInput
    cause: Cause


class _Kind(Enum):
    """What counts of a lease's state."""

    KEPT = "kept"
    GOING = "going"
    OVER = "over"


_KIND: Final[dict[LeaseState, _Kind]] = {
    **dict.fromkeys(LeaseState, _Kind.KEPT),
    LeaseState.DRAINING: _Kind.GOING,
    LeaseState.ENDED: _Kind.OVER,
}


class Ledger:
    """All live leases."""

    def __init__(self) -> None:
        self._current: dict[GpuId, LeaseId] = {}
        self._next: dict[GpuId, LeaseId] = {}
        self._leases: dict[LeaseId, Lease] = {}
        self._stories: dict[LeaseId, tuple[Step, ...]] = {}
        self._by_job: dict[JobId, dict[LeaseId, None]] = {}
        self._kept: dict[JobId, int] = {}  # leases that do not drain
        self._kept_by_app: dict[AppId, int] = {}
        self._gpus_kept: dict[JobId, tuple[GpuId, ...]] = {}  # as last asked for, of jobs whose leases are the same since
        self._unsettled: dict[JobId, None] = {}  # jobs of which some lease has changed its state
        self._draining: dict[LeaseId, None] = {}

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, lease_id: LeaseId) -> Lease | None:
        """The live lease of that id."""
        return self._leases.get(lease_id)

    def current(self, gpu: GpuId) -> Lease | None:
        """The lease that holds the GPU now."""
        return self._leases[self._current[gpu]] if gpu in self._current else None

    def next(self, gpu: GpuId) -> Lease | None:
        """The lease that takes over when the current one is released."""
        return self._leases[self._next[gpu]] if gpu in self._next else None

    def has_next(self, gpu: GpuId) -> bool:
        """Whether somebody waits for the GPU's present holder to go."""
        return gpu in self._next

    def is_next(self, lease: Lease) -> bool:
        """Whether the lease still waits for its GPU."""
        return self._next.get(lease.gpu) == lease.lease_id

    def is_free(self, gpu: GpuId) -> bool:
        """Whether nobody has the GPU for longer than a drain takes, and nobody waits for it."""
        return gpu not in self._next and (gpu not in self._current or self._current[gpu] in self._draining)

    def of_job(self, job_id: JobId) -> tuple[Lease, ...]:
        """A job's leases, current and next, oldest first."""
        return tuple(self._leases[i] for i in self._by_job.get(job_id, ()))

    def is_draining_on(self, job_id: JobId, node: NodeName) -> bool:
        """Whether some lease of the job on that node is on its way out."""
        mine = map(self._leases.__getitem__, self._by_job.get(job_id, ()))
        return any(x.state is LeaseState.DRAINING and x.node_of_gpu == node for x in mine)

    def kept_count(self, job_id: JobId) -> int:
        """How many of a job's leases are not on their way out."""
        return self._kept.get(job_id, 0)

    def gpus_kept(self, job_id: JobId) -> tuple[GpuId, ...]:
        """GPUs of a job's leases that are not on their way out, sorted."""
        gpus = self._gpus_kept.get(job_id)
        if gpus is None:
            kept = [x.gpu for x in self.of_job(job_id) if x.state is not LeaseState.DRAINING]
            gpus = tuple(sorted(kept))
            if gpus:
                self._gpus_kept[job_id] = gpus
        return gpus

    def kept_by_app(self, app_id: AppId) -> int:
        """The same of all jobs of an app."""
        return self._kept_by_app.get(app_id, 0)

    def take_unsettled(self) -> set[JobId]:
        """Jobs whose leases are to be compared with what runs: changed since they were last taken, or draining."""
        found = {*self._unsettled, *(self._leases[i].job_id for i in self._draining)}
        self._unsettled.clear()
        return found

    def free_count(self, gpus: int) -> int:
        """Of `gpus` GPUs, those that have no lease, or a draining one that nobody waits for."""
        return gpus - len(self._current) + sum(self._leases[i].gpu not in self._next for i in self._draining)

    def story(self, lease_id: LeaseId) -> tuple[Step, ...]:
        """What has happened to a live lease so far."""
        return self._stories.get(lease_id, ())

    def add(self, lease: Lease, *, as_next: bool = False) -> None:
        """Enter a new lease. Errors: CoreError where the GPU's place is taken: nothing is changed."""
        if lease.lease_id in self._leases:
            raise CoreError(f"{lease.lease_id} is in the ledger already")
        place = self._next if as_next else self._current
        if lease.gpu in place:
            raise CoreError(f"{lease.gpu}: already leased to {self._leases[place[lease.gpu]]}, cannot also be {lease}")
        if as_next and lease.gpu not in self._current:
            raise CoreError(f"{lease.gpu}: a next lease needs a current one before it: {lease}")
        place[lease.gpu] = lease.lease_id
        self._leases[lease.lease_id] = lease
        self._by_job.setdefault(lease.job_id, {})[lease.lease_id] = None
        self._unsettled[lease.job_id] = None
        self._count(lease, _KIND[lease.state], +1)

    def move(
        self,
        lease_id: LeaseId,
        happened: LeaseInput,
        at_ms: Millis,
        cause: Cause,
        *,
        start_ms: Millis | None = None,
        end_ms: Millis | None = None,
    ) -> Moved:
        """Let something happen to a lease; one that ends leaves the ledger. Errors: IllegalTransition with its story."""
        before = self._leases[lease_id]
        # Of a drain: why a lease ends matters more from then on than why it began.
        why = cause if happened is LeaseInput.DRAIN_REQUESTED else None
        story = self._stories.get(lease_id, ())
        after = advance(before, happened, at_ms, story, start_ms=start_ms, end_ms=end_ms, cause=why)
        self._leases[lease_id] = after
        self._stories[lease_id] = (*story, Step(at_ms, before.state, happened, after.state, cause))[-STORY_STEPS_MAX:]
        if after.state is not before.state:
            self._unsettled[after.job_id] = None
            if (kind := _KIND[after.state]) is not _KIND[before.state]:
                self._count(before, _KIND[before.state], -1)
                self._count(after, kind, +1)
            if after.state is LeaseState.ENDED:
                self._remove(after)
        return Moved(before, after, happened, cause)

    def renew(self, lease_ids: Sequence[LeaseId], at_ms: Millis, end_ms: Millis, cause: Cause) -> list[Lease]:
        """Move many leases by RENEWED at once, which happens at every grid end; as they are now, their states unchanged.

        Errors: IllegalTransition, as `move`.
        """
        leases, stories = self._leases, self._stories
        steps: dict[LeaseState, tuple[Step]] = {}  # equal ones are one
        out = []
        for lease_id in lease_ids:
            before = leases[lease_id]
            step = steps.get(before.state)
            if step is None:
                after = advance(before, LeaseInput.RENEWED, at_ms, self.story(lease_id), end_ms=end_ms)
                step = steps[before.state] = (Step(at_ms, before.state, LeaseInput.RENEWED, after.state, cause),)
            else:
                after = renewed(before, end_ms)
            leases[lease_id] = after
            story = stories.get(lease_id, ())
            stories[lease_id] = story + step if len(story) < STORY_STEPS_MAX else story[1:] + step
            out.append(after)
        return out

    def promote(self, gpu: GpuId, at_ms: Millis, end_ms: Millis) -> Moved:
        """The GPU is free: its next lease becomes the current one, from now to `end_ms`, to be persisted as such."""
        if gpu in self._current:
            raise CoreError(f"{gpu}: {self.current(gpu)} must end before the next lease starts")
        lease_id = self._next.pop(gpu)
        self._current[gpu] = lease_id
        return self.move(lease_id, LeaseInput.GPU_FREED, at_ms, Cause.RELEASED, start_ms=at_ms, end_ms=end_ms)

    def _count(self, lease: Lease, kind: "_Kind", sign: int) -> None:
        """Enter a lease into the counts, or take it out."""
        self._gpus_kept.pop(lease.job_id, None)
        if kind is _Kind.KEPT:
            _add(self._kept, lease.job_id, sign)
            _add(self._kept_by_app, lease.app_id, sign)
        elif kind is _Kind.GOING:
            if sign > 0:
                self._draining[lease.lease_id] = None
            else:
                del self._draining[lease.lease_id]

    def _remove(self, lease: Lease) -> None:
        for place in (self._current, self._next):
            if place.get(lease.gpu) == lease.lease_id:
                del place[lease.gpu]
        del self._leases[lease.lease_id]
        self._stories.pop(lease.lease_id, None)
        of_job = self._by_job[lease.job_id]
        del of_job[lease.lease_id]
        if not of_job:
            del self._by_job[lease.job_id]


def _add(counts: dict[str, int], key: str, more: int) -> None:
    """Count; nothing is kept of what is 0."""
    counts[key] = counts.get(key, 0) + more
    if not counts[key]:
        del counts[key]
