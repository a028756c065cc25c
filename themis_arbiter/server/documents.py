"""JSON documents of the admin messages: what `themis ... --json` prints and what /api/v1 answers, from one place.

A document has the message's fields by name, all of them, integers as numbers, and no NaN or infinity (null instead),
because those are not JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf.message import Message

from themis_arbiter.gen.themis.v1 import admin_pb2

Document: TypeAlias = dict[str, Any]

DECISION_BYTES_MAX: Final = 4 * 1024 * 1024


def document(message: Message) -> Document:
    """`message` as a JSON document. Decision records in it are JSON already and are put in as such."""
    if isinstance(message, admin_pb2.ListRoundsReply):
        return {"rounds": [_decision(text) for text in message.decision_json]}
    return {field.name: _field(message, field.name) for field in message.DESCRIPTOR.fields}


def dumps(value: Document, *, indent: int | None = None) -> str:
    """A document as text: ASCII, so that no terminal, pipe or name can spoil it."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)


def _field(message: Message, name: str) -> Any:
    value = getattr(message, name)
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key]) for key in sorted(value)}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return document(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _decision(text: str) -> Any:
    if len(text) > DECISION_BYTES_MAX:
        return {"error": f"decision record longer than {DECISION_BYTES_MAX} bytes"}
    try:
        return json.loads(text, parse_constant=lambda _constant: None)
    except (ValueError, RecursionError) as error:
        return {"error": f"not a decision record: {error}"}


class UnavailableError(Exception):
    """The arbiter does not answer now."""


class NotFoundError(Exception):
    """There is no such app; the message says so."""


class BadQueryError(Exception):
    """A question that cannot be read; the message says why."""


class Admin(Protocol):
    """The admin views as messages, each a snapshot between two engine steps.

    Errors: UnavailableError; where an app is named also BadQueryError and NotFoundError.
    """

    def apps(self, *, include_ended: bool) -> admin_pb2.ListAppsReply:
        """Apps, live ones only unless `include_ended`."""
        ...

    def leases(self, app_id: str) -> admin_pb2.ListLeasesReply:
        """Live leases, of one app or ("") of all."""
        ...

    def rounds(self, limit: int) -> admin_pb2.ListRoundsReply:
        """The newest `limit` decision records."""
        ...

    def nodes(self) -> admin_pb2.ListNodesReply:
        """Nodes with GPUs."""
        ...

    def status(self) -> admin_pb2.StatusReply:
        """The arbiter as a whole."""
        ...

    def audit(self, limit: int) -> admin_pb2.ListAuditReply:
        """The newest `limit` answered requests of admins."""
        ...

    def explain(self, app_id: str) -> admin_pb2.ExplainReply:
        """Why an app holds what it holds."""
        ...


class Stored(Protocol):
    """The views that a standby has instead: what is stored, as documents that say so.

    Errors: UnavailableError; where an app is named also NotFoundError.
    """

    @property
    def is_standby(self) -> bool:
        """Whether this arbiter does not lead: one that leads and does not answer is another matter."""
        ...

    def apps(self, *, include_ended: bool) -> Document:
        """Apps with leases or accounts."""
        ...

    def leases(self, app_id: str) -> Document:
        """Leases, of one app or ("") of all."""
        ...
