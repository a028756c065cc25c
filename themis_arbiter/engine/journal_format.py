"""The journal's lines: what adapters write and `replay` reads.

JSON lines, UTF-8. The first is the header, then two for each step, an event's and its effects':

    {"journal":1,"settings":{...}}
    {"event":{"type":"Woke",...}}
    {"effects":[{"type":"WakeAt",...},...]}

One journal is one arbiter's, from its first event. A line's bytes hang on its values alone, so equal runs write equal
journals. A process that was killed may leave the last step without its effects, or half a line: readers drop that step.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from themis_arbiter.core.codec import dumps, from_plain, tagged, to_plain, untagged
from themis_arbiter.core.effects import Effect, LeasesMoved
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError

FORMAT_VERSION: Final = 1
LINE_BYTES_MAX: Final = 64 * 1024 * 1024  # of a line that is read: a whole cluster's report has some megabytes

_EVENT_START: Final = '{"event":'
_EFFECTS_START: Final = '{"effects":['


class JournalFormatError(Exception):
    """The text is no journal of this format; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step as it was written: the event, and its effects as the line that stands for them."""

    line_no: int  # of the event's line in its file, from 1
    event: Event
    effects_line: str
    part: str = ""  # the file's name, where the journal has several (engine/journal_set.py)


def header_line(settings: Settings) -> str:
    """The journal's first line (the policy's name is in the settings)."""
    return dumps({"journal": FORMAT_VERSION, "settings": to_plain(settings)})


def event_line(event: Event) -> str:
    """The line of an event."""
    return f"{_EVENT_START}{tagged(event)}}}"


def effects_line(effects: Iterable[Effect]) -> str:
    """The line of one step's effects; leases that moved together are told of one by one."""
    singly = [one for e in effects for one in (e.singly() if isinstance(e, LeasesMoved) else (e,))]
    return f"{_EFFECTS_START}{','.join(tagged(e) for e in singly)}]}}"


def parse_header(line: str) -> Settings:
    """The settings that the journal's arbiter ran under. Errors: JournalFormatError."""
    try:
        plain: Any = json.loads(line)
        version = plain["journal"]
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise JournalFormatError(f"line 1 is no journal's header: {line[:80]!r}") from err
    if version != FORMAT_VERSION:
        raise JournalFormatError(f"journal format {version!r:.40}; this version reads {FORMAT_VERSION}")
    try:
        settings: Settings = from_plain(Settings, plain.get("settings"))
    except CoreError as err:
        raise JournalFormatError(f"line 1: {err}") from err
    return settings


def read_lines(file: BinaryIO) -> Iterator[str]:
    """The lines of an open journal, with their line ends. Errors: JournalFormatError where they cannot be a journal's."""
    line_no = 0
    while raw := file.readline(LINE_BYTES_MAX):
        line_no += 1
        if len(raw) == LINE_BYTES_MAX and not raw.endswith(b"\n"):
            raise JournalFormatError(f"line {line_no} is longer than {LINE_BYTES_MAX} bytes")
        # Half a line may end within a character; whether the writer was killed is the next reader's question.
        is_whole = raw.endswith(b"\n")
        try:
            yield raw.decode("utf-8", errors="strict" if is_whole else "replace")
        except UnicodeDecodeError as err:
            raise JournalFormatError(f"line {line_no} is not UTF-8 text") from err


def parse_steps(
    lines: Iterable[str], on_cut: Callable[[int], None] = lambda _: None, *, part: str = ""
) -> Iterator[RecordedStep]:
    """The steps after a file's first line, from `lines` with their line ends. Errors: JournalFormatError.

    A last step that was not written whole is left out, and `on_cut` called with the number of the line where it breaks off.
    """
    event: Event | None = None
    line_no = 1
    for line_no, raw in enumerate(lines, start=2):
        if not raw.endswith("\n"):
            on_cut(line_no)  # half a line: the writer was killed
            return
        line = raw[:-1]
        if event is None:
            event = _parse_event(line, line_no)
        elif line.startswith(_EFFECTS_START):
            yield RecordedStep(line_no=line_no - 1, event=event, effects_line=line, part=part)
            event = None
        else:
            raise JournalFormatError(f"line {line_no}: effects expected: {line[:80]!r}")
    if event is not None:
        on_cut(line_no + 1)


def _parse_event(line: str, line_no: int) -> Event:
    if not (line.startswith(_EVENT_START) and line.endswith("}")):
        raise JournalFormatError(f"line {line_no}: an event expected: {line[:80]!r}")
    try:
        event: Event = untagged(line[len(_EVENT_START) : -1])
    except (CoreError, RecursionError) as err:
        raise JournalFormatError(f"line {line_no}: {err}") from err
    return event
