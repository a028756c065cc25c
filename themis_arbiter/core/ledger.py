"""Live leases by GPU: at most one `current` and one `next` each, so that a double lease is impossible by shape.

Only `core.state` owns a ledger. Each lease's story is kept beside it while it lives, for errors and for `themis explain`.
The same mostly happens to many leases at once, all that end at one grid end or all of a gang, so they move together.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from themis_arbiter.core.effects import LeasesMoved
from themis_arbiter.core.lease import (
    DRAINING,
    ENDED,
    Cause,
    Lease,
    LeaseInput,
    Step,
    state_after,
    with_cause,
    with_state,
    with_times,
)
from themis_arbiter.core.types import AppId, CoreError, GpuId, JobId, LeaseId, Millis, NodeName, add_count, counted, node_of
from themis_arbiter.core.value import made

STORY_STEPS_MAX: Final = 32  # of one lease; the oldest go first

_GOING: Final = (DRAINING, ENDED)

_moved = made(LeasesMoved)


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
        mine, following = self._by_job.get(job_id), self._next
        if mine is None:
            return []
        return [x for x in mine.values() if x.gpu not in following or following[x.gpu] != x.lease_id]

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
            kept = [x.gpu for x in self.of_job(job_id) if x.state is not DRAINING]
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
        if lease.state is DRAINING:
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
    ) -> list[LeasesMoved]:
        """Let the same happen to all these leases, one after the other; those that end leave the ledger.

        `cause` None: what each began for; `end_ms` None: times stay. Errors: IllegalTransition with its story, of the first to
        which it cannot happen; those before it have moved.
        """
        leases, stories = self._leases, self._stories
        out: list[LeasesMoved] = []
        for alike in _alike([leases[i] for i in lease_ids], cause):
            first, why = alike[0], cause or alike[0].cause
            state = state_after(first, happened, at_ms, self.story(first.lease_id))
            if end_ms is not None:
                after = with_times(alike, state, start_ms, end_ms)
            elif happened is LeaseInput.DRAIN_REQUESTED:  # why a lease ends matters more from then on than why it began
                after = [with_cause(x, state, why) for x in alike]
            else:
                after = [with_state(x, state) for x in alike]
            step = Step(at_ms, first.state, happened, state, why)
            is_settled = happened is LeaseInput.RENEWED
            job_id, mine = "", dict[LeaseId, Lease]()
            for lease in after:
                lease_id = lease.lease_id
                if lease.job_id != job_id:
                    job_id = lease.job_id
                    mine = self._by_job[job_id]
                    if not is_settled:
                        self._unsettled.add(job_id)
                leases[lease_id] = mine[lease_id] = lease
                story = stories[lease_id]
                story.append(step)
                if len(story) > STORY_STEPS_MAX:
                    del story[0]
            out.append(_moved(tuple(after), first.state, why))
        for moved in out if out and out[0].state in _GOING else ():
            self._enter_going(moved)
        return out

    def promote(self, gpus: Sequence[GpuId], at_ms: Millis, end_ms: Millis) -> list[LeasesMoved]:
        """These are free: their next leases become the current ones, from now to `end_ms`, to be persisted as such."""
        lease_ids = []
        for gpu in gpus:
            if gpu in self._current:
                raise CoreError(f"{gpu}: {self.current(gpu)} must end before the next lease starts")
            lease_id = self._current[gpu] = self._next.pop(gpu)
            lease_ids.append(lease_id)
        return self.move(lease_ids, LeaseInput.GPU_FREED, at_ms, Cause.RELEASED, start_ms=at_ms, end_ms=end_ms)

    def _enter_going(self, moved: LeasesMoved) -> None:
        """What is counted of leases that drain from now on, or have ended."""
        if moved.state_from is not DRAINING:
            for job_id, count in counted([x.job_id for x in moved.leases]).items():
                self._gpus_kept.pop(job_id, None)
                add_count(self._kept, job_id, -count)
            for app_id, count in counted([x.app_id for x in moved.leases]).items():
                add_count(self._kept_by_app, app_id, -count)
        if moved.state is DRAINING:
            self._draining.update([(x.lease_id, x.job_id) for x in moved.leases])
        else:
            for lease in moved.leases:
                self._remove(lease)

    def _remove(self, lease: Lease) -> None:
        lease_id, gpu, job_id = lease.lease_id, lease.gpu, lease.job_id
        place = self._current if self._current.get(gpu) == lease_id else self._next
        del place[gpu], self._leases[lease_id], self._stories[lease_id]
        self._draining.pop(lease_id, None)
        of_job = self._by_job[job_id]
        del of_job[lease_id]
        if not of_job:
            del self._by_job[job_id]


def _alike(leases: Sequence[Lease], cause: Cause | None) -> Iterator[Sequence[Lease]]:
    """Leases that follow each other in one state, and where `cause` is None for one cause: most often all of them."""
    if not leases:
        return
    if len({x.state for x in leases}) == 1 and (cause is not None or len({x.cause for x in leases}) == 1):
        yield leases
    else:
        for _, alike in groupby(leases, key=_state_and_cause if cause is None else _state):
            yield list(alike)


_state = attrgetter("state")
_state_and_cause = attrgetter("state", "cause")
