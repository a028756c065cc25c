"""What is wrong with input from outside: counted by kind, told at a bounded rate, never passed on."""

import logging
import threading
import unicodedata
from enum import StrEnum
from typing import Final

from themis_arbiter.core.types import NAME_LENGTH_MAX, Millis
from themis_arbiter.ports import Clock

TELL_EVERY_MS: Final = 10_000  # of each kind one line in the log, with the number that it stands for
QUOTED_LENGTH_MAX: Final = 80  # characters of a bad value that a log line shows
# Control characters and lone surrogates break paths, log lines and wire formats; the two separators break lines too.
_FORBIDDEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Fault(StrEnum):
    """Kinds of bad input; fit for a metric's label."""

    NAME = "name"  # empty, too long, or with characters that no name may have
    NUMBER = "number"  # out of range, not a number
    STATE = "state"  # a word that is not in its list
    TAG = "tag"
    TOO_MANY = "too_many"
    MESSAGE = "message"  # not what the protocol allows at this point


class Faults:
    """Counts bad input and tells of it. Any thread may call it."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._counts: dict[Fault, int] = dict.fromkeys(Fault, 0)
        self._told: dict[Fault, tuple[Millis, int]] = {}  # when a kind was told last, and its count then

    def add(self, fault: Fault, text: str) -> None:
        """Note one bad thing; `text` says what and what was done about it, in one line."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._counts[fault] += 1
            count = self._counts[fault]
            at_ms, counted = self._told.get(fault, (now_ms - TELL_EVERY_MS, 0))
            if now_ms - at_ms < TELL_EVERY_MS:
                return
            self._told[fault] = (now_ms, count)
        more = f" (and {count - counted - 1} more like it)" if count - counted > 1 else ""
        self._log.warning("bad %s: %s%s", fault, text, more)

    def counts(self) -> dict[Fault, int]:
        """How many of each kind there were so far, all kinds."""
        with self._lock:
            return dict(self._counts)


def quoted(value: str) -> str:
    """`value` for a log line or an error: bounded, with everything unprintable escaped."""
    text = value if len(value) <= QUOTED_LENGTH_MAX else f"{value[:QUOTED_LENGTH_MAX]}..."
    return repr(text)


def why_bad_name(value: str, length_max: int = NAME_LENGTH_MAX) -> str:
    """Why `value` cannot be a name; empty where it can."""
    if not value:
        return "it is empty"
    if len(value) > length_max:
        return f"it has {len(value)} characters, more than {length_max}"
    if any(unicodedata.category(c) in _FORBIDDEN for c in value):
        return "it has control characters or lone surrogates"
    return ""
