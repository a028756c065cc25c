"""The arbiter: `step(event) -> effects`. It owns the only mutable state; equal events give equal effects, byte for byte.

    RmReported ---------> facts taken in, use matched with leases (intake, leasing)
    Woke(ROUND | GRID) --> an auction round (rounds, policies, auction)
    LeasesPersisted ----> what was decided may be told to the gate (leasing)

Order within a step: time first, then the event's handler. Handlers want things done by `state.emit`; nothing is done here.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from themis_arbiter.core import admission, attendance, intake, leasing, rounds
from themis_arbiter.core.admin import on_admin
from themis_arbiter.core.admin_state import admin_from_text
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import (
    AdminRequested,
    EpochAcquired,
    Event,
    LeasesPersisted,
    ProgressReported,
    RmAttached,
    RmDetached,
    RmReported,
    StoreFailed,
    Timer,
    UpdateRefused,
    Woke,
)
from themis_arbiter.core.invariants import check
from themis_arbiter.core.lease import LeaseState
from themis_arbiter.core.observing import begin_observing
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.state import State


def on_grid(state: State) -> None:
    """A lease end comes near: time alone may have made room for who waits to be let in."""
    admission.review(state)
    rounds.on_grid(state)


ON_TIMER: Final[Mapping[Timer, Callable[[State], None]]] = {
    Timer.ROUND: rounds.on_round,
    Timer.GRID: on_grid,
    Timer.RECALL: rounds.on_recall,
    Timer.TIDY: leasing.on_tidy,
    Timer.GANGS: attendance.on_shows,
    Timer.ABSENT: leasing.on_absent,
    Timer.RESYNC: leasing.on_resync,
    Timer.STORE_RETRY: leasing.on_store_retry,
    Timer.METERS: leasing.on_meters,
}


class Arbiter:
    """See the module's text. Not thread-safe: one thread steps it and looks at its state in between."""

    def __init__(self, settings: Settings, *, is_checked: bool = False) -> None:
        """`is_checked`: check all invariants after each step (tests and simulation; costs time in proportion to leases)."""
        self.state = State(settings)
        self._is_checked = is_checked

    @property
    def settings(self) -> Settings:
        """What it was told at its start."""
        return self.state.settings

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event. Errors: CoreError where the core's own claims fail; then its state must not be used again."""
        state = self.state
        state.advance_to(event.at_ms)
        state.is_still = False
        self._handle(event)
        if not state.is_still:
            state.version += 1
        effects = tuple(state.effects)
        state.effects.clear()
        if self._is_checked:
            check(state)
        return effects

    def _handle(self, event: Event) -> None:
        state = self.state
        match event:
            case RmReported():
                intake.on_rm_reported(state, event)
            case LeasesPersisted():
                leasing.on_persisted_or_failed(state, event, is_stored=True)
            case StoreFailed():
                leasing.on_persisted_or_failed(state, event, is_stored=False)
            case Woke():
                # A timer that was set anew since is not the one that rang.
                if state.timers.get(event.timer, state.now_ms + 1) <= state.now_ms:
                    del state.timers[event.timer]
                    ON_TIMER[event.timer](state)
            case EpochAcquired():
                on_epoch_acquired(state, event)
            case RmAttached() | UpdateRefused():
                leasing.on_attached(state, event)
            case RmDetached():
                leasing.on_detached(state, event)
            case ProgressReported():
                intake.on_progress_reported(state, event)
            case AdminRequested():
                on_admin(state, event)
            case _:
                assert_never(event)


def on_epoch_acquired(state: State, event: EpochAcquired) -> None:
    """Lead: what the store holds is what is leased. Drains that were under way are told anew when a gate listens."""
    state.epoch = event.epoch
    state.last_start_id = event.start_id
    state.admin = admin_from_text(event.admin)
    if state.settings.admission_max_rho == 0.0:
        state.admin = replace(state.admin, admitted=())
    if state.settings.observe_only and not state.admin.is_observing:
        state.admin = replace(state.admin, is_observing=True)
    state.last_round, state.last_serial = event.last_round, event.last_serial
    state.stored_meters = dict(event.meters)
    for job_id, meter in event.meters:
        if meter.app_id:
            state.stored_apps.setdefault(meter.app_id, []).append(job_id)
    state.stored_ms = max((m.metered_ms for _, m in event.meters), default=0)
    ordered = sorted(event.leases, key=lambda x: (x.state is LeaseState.WAITING, x.lease_id))
    state.enter([(x, x.state is LeaseState.WAITING) for x in ordered])
    for lease in ordered:
        if lease.state is LeaseState.DRAINING:
            state.deadlines[lease.lease_id] = lease.end_ms
            state.drain_seq[lease.lease_id] = leasing.NEVER_TOLD
    if state.admin.is_observing:
        begin_observing(state)
    rounds.set_grid_timer(state)
