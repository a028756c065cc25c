"""An arbiter in small for tests of journals: what it decides hangs on all that it was told before."""

from themis_arbiter.core.effects import Effect, WakeAt
from themis_arbiter.core.events import Event, Timer


class Counting:
    """Wakes later each time, so a step left out shows at the next; from step `odd_from` on a millisecond later still."""

    def __init__(self, odd_from: int = 10**9) -> None:
        self._told, self._odd_from = 0, odd_from

    def step(self, event: Event) -> tuple[Effect, ...]:
        """One step."""
        self._told += 1
        late = self._told >= self._odd_from
        return (WakeAt(timer=Timer.GRID, at_ms=event.at_ms + self._told + late),)
