"""Taking over: the first event of a term, from what the store holds."""

from themis_arbiter.core.events import EpochAcquired
from themis_arbiter.core.types import Millis
from themis_arbiter.ports import Clock, LeaseStore, StaleEpochError, StoredState


def take_over(store: LeaseStore, clock: Clock) -> EpochAcquired:
    """Take the next epoch and read what it inherits; hand the result to the driver as the term's first event.

    Errors: StaleEpochError where another arbiter took a higher epoch meanwhile, StoreError.
    """
    epoch = store.acquire_epoch()
    state = store.load()
    if state.epoch != epoch:
        raise StaleEpochError(f"took epoch {epoch}, but the store is at {state.epoch} already")
    return first_event(state, clock.now_ms())


def first_event(state: StoredState, at_ms: Millis) -> EpochAcquired:
    """What a term begins with that inherits `state`."""
    return EpochAcquired(
        at_ms=at_ms,
        epoch=state.epoch,
        leases=state.leases,
        meters=state.meters,
        last_round=state.last_round,
        last_serial=state.last_serial,
        start_id=state.start_id,
        admin=state.admin,
    )
