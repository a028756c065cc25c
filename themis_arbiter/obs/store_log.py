"""A line in the log where the store takes no writes, and one where it takes them again."""

import logging
from typing import Final

from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event, LeasesPersisted, StoreFailed
from themis_arbiter.obs.logs import RateLimitedLogger, log_event

EVERY_S: Final = 60.0  # a store that stays as it is is told of so often; the arbiter tries it every second


class StoreLog:
    """An engine's observer."""

    def __init__(self, logger: logging.Logger, every_s: float = EVERY_S) -> None:
        self._logger = logger
        self._limited = RateLimitedLogger(logger, every_s)
        self._since_ms: int | None = None  # when it first took none

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Look at one step."""
        if isinstance(event, StoreFailed):
            if self._since_ms is None:
                self._since_ms = event.at_ms
            text = "the store takes no writes: leases go on as they are and none is given until it does"
            waited_s = (event.at_ms - self._since_ms) / 1000.0
            self._limited.log("store", logging.ERROR, text, reason=event.reason, batch=event.batch_no, for_s=waited_s)
        elif isinstance(event, LeasesPersisted) and self._since_ms is not None:
            waited_s, self._since_ms = (event.at_ms - self._since_ms) / 1000.0, None
            log_event(self._logger, logging.INFO, "the store takes writes again", after_s=waited_s, batch=event.batch_no)
