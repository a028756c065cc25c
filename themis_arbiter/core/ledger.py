"""Live leases by GPU: at most one `current` and one `next` each, so that a double lease is impossible by shape.

Only `core.state` owns a ledger. Each lease's story is kept beside it while it lives, for errors and for `themis explain`.
The same mostly happens to many leases at once, all that end at one grid end or all of a gang, so they move together.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from themis_arbiter.core.effects import LeaseMoved
from themis_arbiter.core.lease import Cause, Lease, LeaseInput, LeaseState, Step, state_after, with_cause, with_state, with_time
from themis_arbiter.core.types import AppId, CoreError, GpuId, JobId, LeaseId, Millis, NodeName, add_count, node_of
from themis_arbiter.core.value import made

STORY_STEPS_MAX: Final = 32  # of one lease; the oldest go first

_GOING: Final = (LeaseState.DRAINING, LeaseState.ENDED)

_moved = made(LeaseMoved)


class Ledger:
    """All live leases."""

    def __init__(self) -> None:
        self._current: dict[GpuId, LeaseId] = {}
        self._next: dict[GpuId, LeaseId] = {}
        self._leases: dict[LeaseId, Lease] = {}
        self._stories: dict[LeaseId, list[Step]] = {}
        self._by_job: dict[JobId, dict[LeaseId, Lease]] = {}
        self._kept: dict[JobId, int] = {}  # leases that do not drain
        self._kept_by_app: dict[AppId, int] = {}
        self._gpus_kept: dict[JobId, tuple[GpuId, ...]] = {}  # as last asked for, of jobs whose leases are the same since
        self._unsettled: set[JobId] = set()  # jobs of which some lease has changed its state
        self._draining: dict[LeaseId, JobId] = {}

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

    def taken(self) -> set[GpuId]:
        """GPUs that somebody has for longer than a drain takes, or waits for."""
        taken = set(self._current)
        taken.difference_update([self._leases[i].gpu for i in self._draining])
        return taken.union(self._next)

    def of_job(self, job_id: JobId) -> tuple[Lease, ...]:
        """A job's leases, current and next, oldest first."""
        mine = self._by_job.get(job_id)
        return tuple(mine.values()) if mine else ()

    def current_of_job(self, job_id: JobId) -> list[Lease]:
        """A job's leases of GPUs that are its own by now, oldest first."""
        following = self._next.get
        return [x for x in self.of_job(job_id) if following(x.gpu) != x.lease_id]

    def draining_places(self) -> set[tuple[JobId, NodeName]]:
        """Jobs and nodes on which some of their leases are on their way out."""
        return {(x.job_id, node_of(x.gpu)) for x in map(self._leases.__getitem__, self._draining)}

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
        found = self._unsettled.union(self._draining.values())
        self._unsettled.clear()
        return found

    def free_count(self, gpus: int) -> int:
        """Of `gpus` GPUs, those that have no lease, or a draining one that nobody waits for."""
        return gpus - len(self._current) + sum(self._leases[i].gpu not in self._next for i in self._draining)

    def pending(self, lease_ids: Iterable[LeaseId]) -> set[LeaseId]:
        """Those of the leases that are live and yet to be stored."""
        known = [x for i in lease_ids if (x := self._leases.get(i)) is not None]
        return {x.lease_id for x in known if x.state is LeaseState.PENDING}

    def story(self, lease_id: LeaseId) -> tuple[Step, ...]:
        """What has happened to a live lease so far."""
        return tuple(self._stories.get(lease_id, ()))

    def add(self, lease: Lease, *, as_next: bool = False) -> None:
        """Enter a new lease. Errors: CoreError where the GPU's place is taken: nothing is changed."""
        lease_id, gpu, job_id = lease.lease_id, lease.gpu, lease.job_id
        if lease_id in self._leases:
            raise CoreError(f"{lease_id} is in the ledger already")
        place = self._next if as_next else self._current
        if gpu in place:
            there = self._leases[place[gpu]]
            told = f"{there.lease_id} of {there.job_id}, cannot also be under {lease_id} of {job_id}"
            raise CoreError(f"{gpu}: already leased under {told}")
        if as_next and gpu not in self._current:
            raise CoreError(f"{gpu}: a next lease needs a current one before it: {lease_id} of {job_id}")
        place[gpu] = lease_id
        self._leases[lease_id] = lease
        self._stories[lease_id] = []
        self._by_job.setdefault(job_id, {})[lease_id] = lease
        self._unsettled.add(job_id)
        if lease.state is LeaseState.DRAINING:
            self._draining[lease_id] = job_id
        else:
            self._gpus_kept.pop(job_id, None)
            add_count(self._kept, job_id, +1)
            add_count(self._kept_by_app, lease.app_id, +1)

    def move(
        self,
        lease_ids: Sequence[LeaseId],
        happened: LeaseInput,
        at_ms: Millis,
        cause: Cause | None = None,
        *,
        start_ms: Millis | None = None,
        end_ms: Millis | None = None,
    ) -> list[LeaseMoved]:
        """Let the same happen to all these leases, one after the other; those that end leave the ledger.

        `cause` None: what each began for; `end_ms` None: times stay. Errors: IllegalTransition with its story, of the first to
        which it cannot happen; those before it have moved.
        """
        leases, stories = self._leases, self._stories
        is_drained = happened is LeaseInput.DRAIN_REQUESTED
        step: Step | None = None  # equal ones are one
        job_id, mine = "", dict[LeaseId, Lease]()
        out: list[LeaseMoved] = []
        for lease_id in lease_ids:
            before = leases[lease_id]
            why = cause or before.cause
            if step is None or step.state_from is not before.state or step.cause is not why:
                state = state_after(before, happened, at_ms, self.story(lease_id))
                step = Step(at_ms, before.state, happened, state, why)
            if end_ms is not None:
                after = with_time(before, step.state_to, start_ms, end_ms)
            elif is_drained:  # why a lease ends matters more from then on than why it began
                after = with_cause(before, step.state_to, why)
            else:
                after = with_state(before, step.state_to)
            if after.job_id != job_id:
                job_id = after.job_id
                mine = self._by_job[job_id]
                if happened is not LeaseInput.RENEWED:
                    self._unsettled.add(job_id)
            leases[lease_id] = mine[lease_id] = after
            story = stories[lease_id]
            story.append(step)
            if len(story) > STORY_STEPS_MAX:
                del story[0]
            out.append(_moved(after, step.state_from, why))
        if step is not None and step.state_to in _GOING:
            self._enter_going(out)
        return out

    def promote(self, gpus: Sequence[GpuId], at_ms: Millis, end_ms: Millis) -> list[LeaseMoved]:
        """These are free: their next leases become the current ones, from now to `end_ms`, to be persisted as such."""
        lease_ids = []
        for gpu in gpus:
            if gpu in self._current:
                raise CoreError(f"{gpu}: {self.current(gpu)} must end before the next lease starts")
            lease_id = self._current[gpu] = self._next.pop(gpu)
            lease_ids.append(lease_id)
        return self.move(lease_ids, LeaseInput.GPU_FREED, at_ms, Cause.RELEASED, start_ms=at_ms, end_ms=end_ms)

    def _enter_going(self, moved: Sequence[LeaseMoved]) -> None:
        """What is counted of leases that drain from now on, or have ended."""
        kept = [m.lease for m in moved if m.state_from is not LeaseState.DRAINING]
        for job_id, count in Counter([x.job_id for x in kept]).items():
            self._gpus_kept.pop(job_id, None)
            add_count(self._kept, job_id, -count)
        for app_id, count in Counter([x.app_id for x in kept]).items():
            add_count(self._kept_by_app, app_id, -count)
        for lease in [m.lease for m in moved]:
            if lease.state is LeaseState.DRAINING:
                self._draining[lease.lease_id] = lease.job_id
            else:
                self._remove(lease)

    def _remove(self, lease: Lease) -> None:
        lease_id = lease.lease_id
        for place in (self._current, self._next):
            if place.get(lease.gpu) == lease_id:
                del place[lease.gpu]
        del self._leases[lease_id], self._stories[lease_id]
        self._draining.pop(lease_id, None)
        of_job = self._by_job[lease.job_id]
        del of_job[lease_id]
        if not of_job:
            del self._by_job[lease.job_id]
