"""What admins asked for and what came of it: the answers that callers wait for, and the record that people read.

A request is known by its id: asked again, it is not done again but answered as it was. That holds for as long as the answer is
remembered (ENTRIES_MAX of them, in this process). The log has every answer, and the journal has it too.
"""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from themis_arbiter.core.effects import AdminAnswered, Effect
from themis_arbiter.core.events import AdminVerb, Event
from themis_arbiter.core.types import Millis

ENTRIES_MAX: Final = 1_000  # answers remembered, the newest ones
WAITING_MAX: Final = 64  # requests that the engine has not answered yet

Asked: TypeAlias = tuple[str, AdminVerb, str, float]  # actor, verb, target, value


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One answered request."""

    at_ms: Millis
    request_id: str
    actor: str
    verb: AdminVerb
    target: str
    value: float
    is_done: bool
    text: str


class TooManyWaiting(Exception):
    """WAITING_MAX requests wait for the engine already."""


class OtherRequest(Exception):
    """The id was used for something else."""


class AuditTrail:
    """An `Observer` that keeps answers by request id. Any thread may call it; `log` gets one line an answer."""

    def __init__(self, log: logging.Logger) -> None:
        self.log: Final = log
        self._changed = threading.Condition()
        self._entries: OrderedDict[str, AuditEntry] = OrderedDict()
        self._waiting: dict[str, Asked] = {}

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Keep and log what a step answered."""
        for effect in effects:
            if isinstance(effect, AdminAnswered):
                self._answered(effect, event.at_ms)

    def begin(self, request_id: str, asked: Asked) -> bool:
        """Whether the request is new, so that the caller has to hand it to the engine; else somebody has.

        Errors: OtherRequest, TooManyWaiting.
        """
        with self._changed:
            entry = self._entries.get(request_id)
            known = self._waiting.get(request_id) if entry is None else _asked(entry)
            if known is not None and known != asked:
                raise OtherRequest
            if known is not None:
                return False
            if len(self._waiting) >= WAITING_MAX:
                raise TooManyWaiting
            self._waiting[request_id] = asked
            return True

    def forget(self, request_id: str) -> None:
        """The engine did not take the request: it may be asked anew."""
        with self._changed:
            self._waiting.pop(request_id, None)
            self._changed.notify_all()

    def forget_all(self) -> None:
        """The engine has ended: what it has not answered it never will."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def wait(self, request_id: str, timeout_s: float) -> AuditEntry | None:
        """The answer; None where there is none in time."""
        with self._changed:
            self._changed.wait_for(lambda: request_id not in self._waiting, timeout_s)
            return self._entries.get(request_id)

    def latest(self, limit: int) -> tuple[AuditEntry, ...]:
        """The newest answers, newest first."""
        with self._changed:
            return tuple(islice(reversed(self._entries.values()), max(0, limit)))

    def _answered(self, answer: AdminAnswered, at_ms: Millis) -> None:
        entry = AuditEntry(
            at_ms=at_ms,
            request_id=answer.request_id,
            actor=answer.actor,
            verb=answer.verb,
            target=answer.target,
            value=answer.value,
            is_done=answer.is_done,
            text=answer.text,
        )
        with self._changed:
            self._entries[entry.request_id] = entry
            while len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
            self._waiting.pop(entry.request_id, None)
            self._changed.notify_all()
        fields = {
            "actor": entry.actor,
            "verb": entry.verb.value,
            "target": entry.target,
            "value": entry.value,
            "is_done": entry.is_done,
            "text": entry.text,
            "request_id": entry.request_id,
        }
        self.log.info("admin request", extra={"fields": fields})


def _asked(entry: AuditEntry) -> Asked:
    return entry.actor, entry.verb, entry.target, entry.value
