"""The plugin's JSON to messages and back: bounded in size and depth, and one bad entry does not take the others along.

An entry that cannot be read (a name with a lone surrogate, a number that does not fit its field) is left out and named;
what its fields mean is the arbiter's matter, not the bridge's.
"""

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb

JSON_BYTES_MAX: Final = 64 * 2**20  # of one answer of the plugin; the same in binary stays below MESSAGE_BYTES_MAX
MESSAGE_BYTES_MAX: Final = 32 * 2**20  # of one message on the arbiter's stream; the arbiter's own limit
JSON_DEPTH_MAX: Final = 16  # our messages nest four deep
TELL_EVERY_S: Final = 10.0  # one log line of a kind in that time
QUOTED_LENGTH_MAX: Final = 120
_LISTS: Final[dict[str, type[Message]]] = {
    "nodes": pb.Node,
    "applications": pb.Application,
    "containers": pb.Container,
}

MessageT = TypeVar("MessageT", bound=Message)


class WireError(Exception):
    """An answer of the plugin, or a message for it, that cannot be used as a whole."""


class Teller:
    """Says a thing of a kind at most once in TELL_EVERY_S, with the number of times that it happened."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now_s = log, now_s
        self._told: dict[str, float] = {}
        self._silent: dict[str, int] = {}

    def tell(self, kind: str, text: str) -> None:
        """Log `text` as a warning, unless one of this `kind` (a word of the code's, not of the input's) was just told."""
        now_s = self._now_s()
        if kind in self._told and now_s - self._told[kind] < TELL_EVERY_S:
            self._silent[kind] = self._silent.get(kind, 0) + 1
            return
        self._told[kind] = now_s
        more = self._silent.pop(kind, 0)
        self._log.warning("%s%s", text, f" (and {more} times more)" if more else "")


def parse_report(answer: bytes, teller: Teller) -> pb.Report:
    """The report that `answer` holds, without the entries that cannot be read. Errors: WireError."""
    plain = _plain(answer)
    try:
        return _message(pb.Report(), plain)
    except WireError:
        pass  # some entry is bad: read them one by one
    lists = {name: plain.pop(name, None) for name in _LISTS}
    report = _message(pb.Report(), plain)
    for name, entries in lists.items():
        if not isinstance(entries, list):
            if entries is not None:
                teller.tell("list", f"the plugin's {name} are no list: they are left out")
            continue
        for entry in entries:
            try:
                getattr(report, name).append(_message(_LISTS[name](), entry))
            except WireError as err:
                teller.tell("entry", f"an entry of the plugin's {name} is left out: {err}")
    return report


def parse(message: MessageT, answer: bytes) -> MessageT:
    """`message`, filled from `answer`. Errors: WireError."""
    return _message(message, _plain(answer))


def to_json(message: Message) -> bytes:
    """`message` as the plugin reads it."""
    text = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)
    return text.encode()


def check_size(message: Message) -> None:
    """Errors: WireError where `message` is larger than the stream takes."""
    size = message.ByteSize()
    if size > MESSAGE_BYTES_MAX:
        raise WireError(f"a message of {size} bytes for the arbiter; at most {MESSAGE_BYTES_MAX} can be sent")


def _plain(answer: bytes) -> dict[str, Any]:
    if len(answer) > JSON_BYTES_MAX:
        raise WireError(f"an answer of {len(answer)} bytes; at most {JSON_BYTES_MAX} are read")
    try:
        # NaN and infinities have no place in JSON; null means that the field is not set.
        plain = json.loads(answer, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as err:
        raise WireError(f"an answer that is no JSON: {_short(err)}") from None
    if not isinstance(plain, dict):
        raise WireError("an answer that is no JSON object")
    return plain


def _message(message: MessageT, plain: Any) -> MessageT:
    if not isinstance(plain, dict):
        raise WireError("it is no JSON object")
    try:
        json_format.ParseDict(plain, message, ignore_unknown_fields=True, max_recursion_depth=JSON_DEPTH_MAX)
    except (json_format.ParseError, ValueError, TypeError, RecursionError) as err:
        raise WireError(_short(err)) from None
    return message


def _short(err: BaseException) -> str:
    """An error's text on one line, in ASCII: parts of the input may be in it."""
    return ascii(str(err)[:QUOTED_LENGTH_MAX])[1:-1]
