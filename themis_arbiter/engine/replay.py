"""Feeding a journal's events to a fresh arbiter and comparing what it decides, line by line.

The proof that a decision hangs on the events alone; and a way to look into what happened: a journal from a live system
can be stepped again anywhere.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.driver import Stepping
from themis_arbiter.engine.journal_format import (
    JournalFormatError,
    effects_line,
    event_line,
    parse_header,
    parse_steps,
)

HEADER_CHARS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first decided otherwise than the journal says."""

    line_no: int  # of the event in the journal, from 1
    event: str  # its line
    recorded: str  # the line of the effects as journalled
    replayed: str  # and as decided now


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """`steps` were stepped; the last of them is the one that differs, where one does."""

    steps: int
    first_difference: Difference | None = None


def read_settings(path: Path) -> Settings:
    """The settings of the journal's arbiter, for making a fresh one. Errors: JournalFormatError, OSError."""
    with path.open(encoding="utf-8") as lines:
        return parse_header(_first_line(lines.readline(HEADER_CHARS_MAX)))


def replay(path: Path, arbiter: Stepping) -> ReplayResult:
    """Step `arbiter`, fresh and with the journal's settings, through the journal until it decides otherwise.

    Errors: JournalFormatError, OSError, and what the arbiter raises.
    """
    with path.open(encoding="utf-8") as lines:
        parse_header(_first_line(lines.readline(HEADER_CHARS_MAX)))
        return replay_lines(lines, arbiter)


def replay_with(path: Path, make: Callable[[Settings], Stepping]) -> ReplayResult:
    """`replay` with the arbiter that `make` builds from the journal's settings."""
    return replay(path, make(read_settings(path)))


def replay_lines(lines: Iterable[str], arbiter: Stepping) -> ReplayResult:
    """`replay` of lines after the header, each with its line end."""
    steps = 0
    for recorded in parse_steps(lines):
        steps += 1
        replayed = effects_line(arbiter.step(recorded.event))
        if replayed != recorded.effects_line:
            difference = Difference(
                line_no=recorded.line_no,
                event=event_line(recorded.event),
                recorded=recorded.effects_line,
                replayed=replayed,
            )
            return ReplayResult(steps=steps, first_difference=difference)
    return ReplayResult(steps=steps)


def _first_line(line: str) -> str:
    if not line.endswith("\n"):
        raise JournalFormatError("line 1 is not whole: the journal is empty, cut off, or none")
    return line
