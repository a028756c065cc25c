"""Structured logs: one event a line on stderr, as key=value text or as JSON; and a logger that cannot flood.

Call the standard library's loggers with fields in `extra={"fields": {...}}`, or through `log_event`. Everything that
comes from users is escaped, so that a line stays a line.
"""

import json
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from themis_arbiter.obs.labels import visible

ROOT: Final = "themis"
AUDIT: Final = "themis_arbiter.audit"  # logged at every level: who looks for what was done must find it
VALUE_LENGTH_MAX: Final = 8_192  # of one field; a lease's story fits, a runaway text does not
KEYS_MAX: Final = 1_000  # that a rate-limited logger remembers

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def log_event(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Log `message` with `fields`."""
    logger.log(level, message, extra={"fields": fields})


def configure_logging(log_format: str = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Send every logger's lines to `stream` (stderr) in `log_format`, replacing what was configured before."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    # Libraries say what they have to say at warning; our own level is the setting's.
    root.setLevel(max(LEVELS[level], logging.WARNING))
    for name in (ROOT, "themis_arbiter", "yarn_bridge"):
        logging.getLogger(name).setLevel(LEVELS[level])
    logging.getLogger(AUDIT).setLevel(logging.INFO)


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Time (UTC), level, logger, message and the caller's fields, then the exception where there is one."""
    stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields: dict[str, object] = {
        "time": stamp,
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    extra = getattr(record, "fields", None)
    if isinstance(extra, Mapping):
        fields.update((str(key), value) for key, value in extra.items() if key not in fields)
    if record.exc_info and record.exc_info[0] is not None:
        fields["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return {key: _bounded(value) for key, value in fields.items()}


def _bounded(value: object) -> object:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    # The end of a traceback or story says more than its beginning.
    return text if len(text) <= VALUE_LENGTH_MAX else "..." + text[-VALUE_LENGTH_MAX:]


class TextFormatter(logging.Formatter):
    """`time=... level=... logger=... message="..." key=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return " ".join(f"{visible(key)}={_quoted(value)}" for key, value in _fields_of(record).items())


class JsonFormatter(logging.Formatter):
    """One JSON object a line, ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return json.dumps(_fields_of(record), ensure_ascii=True, default=str)


def _quoted(value: Any) -> str:
    text = visible(str(value)) if value is not None else "none"
    if text and not any(c in text for c in ' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'


@dataclass(slots=True)
class _Window:
    until_s: float
    suppressed: int = 0


class RateLimitedLogger:
    """Logs the same kind of line at most once in `every_s` seconds and then says how many were left out.

    `key` names the kind; it is the caller's own word, never a user's. Any thread may call.
    """

    def __init__(
        self, logger: logging.Logger, every_s: float = 10.0, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._every_s = every_s
        self._monotonic_s = monotonic_s
        self._windows: dict[str, _Window] = {}
        self._lock = threading.Lock()

    def log(self, key: str, level: int, message: str, **fields: object) -> bool:
        """Log, or count what was not logged; whether it was logged."""
        now_s = self._monotonic_s()
        with self._lock:
            window = self._windows.get(key)
            if window is not None and now_s < window.until_s:
                window.suppressed += 1
                return False
            suppressed = window.suppressed if window is not None else 0
            if len(self._windows) >= KEYS_MAX and window is None:
                self._windows.pop(next(iter(self._windows)))
            self._windows[key] = _Window(now_s + self._every_s)
        if suppressed:
            fields["suppressed"] = suppressed
        log_event(self._logger, level, message, **fields)
        return True
