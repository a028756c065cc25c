"""What the engine needs of the world. Adapters implement these; fakes pass the same contract suites."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from themis_arbiter.core.effects import (
    Effect,
    GrantGpus,
    RequestDrain,
    SyncLeases,
    TellJob,
    WithdrawLeases,
)
from themis_arbiter.core.events import Batch, Event, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import Epoch, JobId, Millis, RoundNo

EPOCH_MAX: Final = 10**15  # that a store goes up to: it has to fit 64 bits, and the doubles of other programs' JSON
EPOCH_SET_MAX: Final = 10**12  # that an admin may set: it cannot be lowered again, and terms have to follow


class Clock(Protocol):
    """Time in milliseconds since 1970 that never goes back and that no change of the wall clock moves."""

    def now_ms(self) -> Millis:
        """The present."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """What a lease store holds."""

    epoch: Epoch
    start_id: str
    leases: tuple[Lease, ...]  # in order of lease id
    meters: tuple[tuple[JobId, Meter], ...]  # in order of job id
    last_round: RoundNo
    last_serial: int
    admin: str  # what admins have set, as JSON; empty: nothing


class StoreError(Exception):
    """The store did not take a write; the cause is in the message."""


class StaleEpochError(StoreError):
    """Another arbiter has taken a higher epoch: this one must stop leading."""


class LeaseStore(Protocol):
    """Leases that survive the arbiter. A batch is committed whole or not at all."""

    def acquire_epoch(self) -> Epoch:
        """Raise the epoch by one and return it: later batches must carry it. Errors: StoreError."""
        ...

    def epoch(self) -> Epoch:
        """The highest epoch taken; cheap. Errors: StaleEpochError where the store itself is gone, StoreError."""
        ...

    def load(self) -> StoredState:
        """Everything stored. Errors: StoreError."""
        ...

    def commit(self, batch: Batch) -> None:
        """Write `batch`. Errors: StaleEpochError (its epoch is not the store's), StoreError.

        Nothing is changed then, unless a remote store's answer was lost. A batch may be committed again in any case.
        """
        ...

    def close(self) -> None:
        """Release what the store holds open; later calls raise StoreError."""
        ...


class ResourceManager(Protocol):
    """The gate. Calls return at once; what comes of them arrives as events (`RmReported`, `UpdateRefused`)."""

    def sync(self, effect: SyncLeases) -> None:
        """Make these all the leases that the gate honours."""
        ...

    def grant(self, effect: GrantGpus) -> None:
        """Admit containers under these leases."""
        ...

    def drain(self, effect: RequestDrain) -> None:
        """Ask for these leases' GPUs now, take them at the deadline."""
        ...

    def withdraw(self, effect: WithdrawLeases) -> None:
        """Forget these leases."""
        ...

    def tell(self, effect: TellJob) -> None:
        """Show people why a job waits; best effort."""
        ...


class Journal(Protocol):
    """The ordered record of events and effects; byte-equal for equal runs."""

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Append one step."""
        ...

    def flush(self) -> None:
        """Let what was recorded reach the disk."""
        ...

    def close(self) -> None:
        """Flush and release."""
        ...


class Observer(Protocol):
    """Sees every step after its effects were performed; must not fail and cannot change anything."""

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Look at one step."""
        ...
