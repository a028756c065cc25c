"""Feeding a journal's events to a fresh arbiter and comparing what it decides, line by line.

The proof that a decision hangs on the events alone; and a way to look into what happened: a journal from a live system
can be stepped again anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError, Millis
from themis_arbiter.engine.driver import Stepping
from themis_arbiter.engine.journal_format import (
    JournalFormatError,
    RecordedStep,
    effects_line,
    event_line,
)
from themis_arbiter.engine.journal_set import JournalReader


class StepRefused(Exception):
    """The arbiter could not take an event: another version of it wrote the journal, or somebody changed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first decided otherwise than the journal says."""

    line_no: int  # of the event in its file, from 1
    part: str  # the file's name, "" where the journal is one file
    at_ms: Millis
    event: str  # its line
    recorded: str  # the line of the effects as journalled
    replayed: str  # and as decided now


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """`steps` were stepped; the last of them is the one that differs, where one does."""

    steps: int
    first_difference: Difference | None = None
    parts: int = 1  # files that the journal is in
    is_cut_off: bool = False  # the journal ends within a step, which was left out: its writer was killed


def read_settings(path: Path) -> Settings:
    """The settings of the journal's arbiter, for making a fresh one. Errors: JournalFormatError, OSError."""
    return JournalReader(path).settings()


def replay(path: Path, arbiter: Stepping) -> ReplayResult:
    """Step `arbiter`, fresh and with the journal's settings, through the journal until it decides otherwise.

    `path` is the journal, or one of its parts: all are stepped. Errors: JournalFormatError, StepRefused, OSError.
    """
    reader = JournalReader(path)
    steps = 0
    for recorded in reader.steps():
        steps += 1
        replayed = _step(arbiter, recorded)
        if replayed != recorded.effects_line:
            difference = Difference(
                line_no=recorded.line_no,
                part=recorded.part,
                at_ms=recorded.event.at_ms,
                event=event_line(recorded.event),
                recorded=recorded.effects_line,
                replayed=replayed,
            )
            return ReplayResult(steps=steps, parts=len(reader.parts), first_difference=difference)
    return ReplayResult(steps=steps, parts=len(reader.parts), is_cut_off=reader.is_cut_off)


def replay_with(path: Path, make: Callable[[Settings], Stepping]) -> ReplayResult:
    """`replay` with the arbiter that `make` builds from the journal's settings.

    Errors: those of `replay`; JournalFormatError too where no arbiter takes these settings.
    """
    reader = JournalReader(path)
    settings = reader.settings()
    with reader.naming(reader.parts[0]):
        try:
            arbiter = make(settings)
        except CoreError as err:
            raise JournalFormatError(f"line 1: {err}") from err
    return replay(path, arbiter)


def _step(arbiter: Stepping, recorded: RecordedStep) -> str:
    event: Event = recorded.event
    try:
        return effects_line(arbiter.step(event))
    except Exception as err:
        # Whatever it was: the events are somebody's file, and what the core asserts of them need not hold there.
        said = f"{type(err).__name__}: {err}"
        where = f"{recorded.part}: " * bool(recorded.part) + f"line {recorded.line_no}"
        raise StepRefused(f"{where}, {type(event).__name__} at {event.at_ms} ms: {said:.300}") from err
