"""An arbiter's connection to the simulated ResourceManager: updates one way, reports the other.

It stands for bridge, stream and adapter together. The arbiter's calls only queue, from any thread; everything else is the
cluster's, on the thread that advances it. What the engine does not take (its queue is full) is owed: a full report says
it later.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, TellJob, WithdrawLeases
from themis_arbiter.core.events import (
    ContainerReport,
    JobReport,
    NodeReport,
    RmAttached,
    RmDetached,
    RmReported,
    UpdateRefused,
)
from themis_arbiter.core.types import Epoch, JobId, NodeName
from themis_arbiter.engine.loop import EngineError, MakeEvent
from themis_arbiter.sim.live_gate import Gate, LeaseUpdate

INBOX_MAX: Final = 1_000  # updates that wait for the cluster; one more is dropped and answered with INBOX_FULL
TOLD_MAX: Final = 10_000  # jobs whose line is kept
OUTBOX_MAX: Final = 20_000  # ended containers that wait to be reported; past it a full report says the same

Submit: TypeAlias = Callable[[MakeEvent], None]


@dataclass(frozen=True, slots=True)
class _Attach:
    submit: Submit | None  # None: detach


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What a report says."""

    nodes: tuple[NodeReport, ...] = ()
    jobs: tuple[JobReport, ...] = ()
    containers: tuple[ContainerReport, ...] = ()


class Outbox:
    """What changed since the last report, by key, so that a storm of changes costs one entry."""

    def __init__(self) -> None:
        self.nodes: dict[NodeName, None] = {}
        self.jobs: dict[JobId, None] = {}
        self.containers: dict[str, None] = {}
        self.ended: dict[str, ContainerReport] = {}
        self.is_full = False  # owes everything

    def __bool__(self) -> bool:
        return bool(self.is_full or self.nodes or self.jobs or self.containers or self.ended)

    def note_ended(self, report: ContainerReport) -> None:
        """A container has ended; what is no longer there must be kept to be told."""
        self.containers.pop(report.container_id, None)
        self.ended[report.container_id] = report
        if len(self.ended) > OUTBOX_MAX:
            self.ended.clear()
            self.is_full = True


class ClusterLink:
    """A `ResourceManager` port. One link a term of leadership; a cluster may have several, as stale leaders keep theirs.

    `update_seq` of its reports is the gate's only while the gate follows this link: from the first full update that was
    taken from it after it was attached, until another epoch's is taken. Else it is 0: the numbers of others, or of an
    earlier attachment, must not pass for this one's.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called, on the caller's thread, whenever something was queued."""
        self._wake = wake
        self._inbox: deque[LeaseUpdate | _Attach] = deque()
        self._has_dropped = False
        self._submit: Submit | None = None
        self._attached_to = ""  # start id that the arbiter knows of
        self._followed: Epoch | None = None
        self._told_seq = 0
        self._refusal: tuple[str, str] | None = None  # start id, reason: still to be told
        self.outbox = Outbox()
        self.told: dict[JobId, str] = {}

    # -- the arbiter's side: any thread

    def attach(self, submit: Submit) -> None:
        """Send events to `submit` from now on: RmAttached, a full report, then changes."""
        self._inbox.append(_Attach(submit))
        self._wake()

    def detach(self) -> None:
        """Send nothing more and take nothing."""
        self._inbox.append(_Attach(None))
        self._wake()

    def sync(self, effect: SyncLeases) -> None:
        """Make these all the leases that the gate honours."""
        self._queue(effect)

    def grant(self, effect: GrantGpus) -> None:
        """Admit containers under these leases."""
        self._queue(effect)

    def drain(self, effect: RequestDrain) -> None:
        """Ask for these leases' GPUs now, take them at the deadline."""
        self._queue(effect)

    def withdraw(self, effect: WithdrawLeases) -> None:
        """Forget these leases."""
        self._queue(effect)

    def tell(self, effect: TellJob) -> None:
        """Keep the line; `told` has what people would see."""
        if len(self.told) < TOLD_MAX or effect.job_id in self.told:
            self.told[effect.job_id] = effect.text

    def _queue(self, effect: LeaseUpdate) -> None:
        if len(self._inbox) < INBOX_MAX:
            self._inbox.append(effect)
        else:
            self._has_dropped = True
        self._wake()

    # -- the cluster's side: the thread that advances it

    @property
    def has_mail(self) -> bool:
        """Whether something waits to be taken in."""
        return bool(self._inbox) or self._has_dropped

    @property
    def is_attached(self) -> bool:
        """Whether anybody listens."""
        return self._submit is not None

    def take(self, gate: Gate) -> LeaseUpdate | None:
        """The next update for the gate, which will take it; None: there is none left. Refused ones are answered."""
        while self._inbox:
            mail = self._inbox.popleft()
            if isinstance(mail, _Attach):
                self._attach(mail.submit)
            elif self.is_attached:
                refusal = gate.refusal(mail)
                if refusal is None:
                    if isinstance(mail, SyncLeases):
                        self._followed, self._refusal = mail.epoch, None
                    return mail
                self._refusal = (mail.start_id, refusal)
        if self._has_dropped:
            self._has_dropped = False
            self._refusal = (gate.start_id, "INBOX_FULL")
        return None

    def restarted(self) -> None:
        """The scheduler object is another one: whoever listens is told, and gets everything anew."""
        self._followed, self._refusal = None, None
        self.outbox = Outbox()
        self.outbox.is_full = True

    def greet(self, gate: Gate) -> None:
        """Say what cannot wait for the next report: attached, detached, refused. What the engine does not take is kept."""
        if self._submit is None:
            return
        try:
            if self._attached_to not in {"", gate.start_id}:
                old = self._attached_to
                self._submit(lambda at_ms: RmDetached(at_ms=at_ms, start_id=old))
                self._attached_to = ""
            if not self._attached_to:
                start_id = gate.start_id
                self._submit(lambda at_ms: RmAttached(at_ms=at_ms, start_id=start_id))
                self._attached_to = start_id
            if self._refusal is not None:
                refused_id, reason = self._refusal
                self._submit(lambda at_ms: UpdateRefused(at_ms=at_ms, start_id=refused_id, reason=reason))
                self._refusal = None
        except EngineError:
            self.outbox.is_full = True

    def is_due(self, gate: Gate) -> bool:
        """Whether a report would say anything new."""
        owes = self._attached_to != gate.start_id or self._refusal is not None
        return self.is_attached and (bool(self.outbox) or owes or self._update_seq(gate) != self._told_seq)

    def report(self, gate: Gate, entries: Entries) -> None:
        """Send `entries`, which are everything or what changed as the outbox says; it is empty afterwards."""
        self.greet(gate)
        if self._submit is None or self._attached_to != gate.start_id or self._refusal is not None:
            return
        is_full, update_seq, start_id = self.outbox.is_full, self._update_seq(gate), gate.start_id

        def make(at_ms: int) -> RmReported:
            return RmReported(
                at_ms=at_ms,
                start_id=start_id,
                is_full=is_full,
                update_seq=update_seq,
                nodes=entries.nodes,
                jobs=entries.jobs,
                containers=entries.containers,
            )

        try:
            self._submit(make)
        except EngineError:
            self.outbox.is_full = True
            return
        self._told_seq = update_seq
        self.outbox = Outbox()

    def _attach(self, submit: Submit | None) -> None:
        self._submit, self._attached_to, self._told_seq = submit, "", 0
        self.restarted()

    def _update_seq(self, gate: Gate) -> int:
        return gate.seq if self._followed is not None and self._followed == gate.epoch else 0
