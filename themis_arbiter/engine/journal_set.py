"""A journal in parts: files beside each other that are one journal, in order.

    arbiter-1.journal              the first, with the settings in its header
    arbiter-1.part0002.journal     the next; with the step, of the whole journal, and the time that it goes on from:
                                   `{"journal_part":2,"of":"arbiter-1.journal","after_step":9,"after_ms":1700}`

A step is whole within a part, and a writer that is killed leaves its last part cut off and no other. What comes later says
nothing without what was before, so a journal whose first part has been removed can be read by people and not be replayed.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOENT
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Final

from themis_arbiter.core.codec import dumps
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.journal_format import JournalFormatError, RecordedStep, parse_header, parse_steps, read_lines

PARTS_MAX: Final = 9_999
NEIGHBOURS_MAX: Final = 10_000  # second parts beside a journal that are looked at
_NAME: Final = re.compile(r"(?P<stem>.+)\.part(?P<number>(?!000[01])[0-9]{4})(?P<suffix>\.[^.]+)?")


class JournalPartsError(JournalFormatError):
    """A part, or a piece of one, is not where it should be; the message says which."""


def part_path(first: Path, number: int) -> Path:
    """Where the part `number`, from 1, of the journal that begins at `first` is."""
    assert 1 <= number <= PARTS_MAX, number
    return first if number == 1 else first.with_name(f"{first.stem}.part{number:04d}{first.suffix}")


def part_line(first: Path, number: int, *, after_step: int, after_ms: Millis) -> str:
    """The first line of a later part: how many steps stand before it in all, and when the last of them was."""
    return dumps({"journal_part": number, "of": first.name, "after_step": after_step, "after_ms": after_ms})


def parts_of(path: Path) -> list[Path]:
    """All parts of the journal of which `path` is one, in order.

    Errors: JournalPartsError where one is missing, FileNotFoundError where `path` is.
    """
    first = _first_of(path)
    numbers = [1] if first.exists() else []
    for other in first.parent.glob(f"{escape(first.stem)}.part????{escape(first.suffix)}"):
        found = _NAME.fullmatch(other.name)
        if found is not None and _first_of(other) == first:
            numbers.append(int(found["number"]))
    for number, there in enumerate(sorted(numbers), start=1):
        if number != there:
            missing = part_path(first, number).name
            told = f"{missing}, a part before {part_path(first, there).name}, is not there any more"
            raise JournalPartsError(f"{told}; a journal can be stepped from its first part on only")
    parts = [part_path(first, number) for number in range(1, len(numbers) + 1)]
    if path not in parts:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
    return parts


def _first_of(path: Path) -> Path:
    named = _NAME.fullmatch(path.name)
    return path.with_name(named["stem"] + (named["suffix"] or "")) if named else path


class JournalReader:
    """A journal, of which `path` is a part. Problems are told by the part's own name and lines where there are several.

    Errors: JournalFormatError, OSError, from every method.
    """

    def __init__(self, path: Path) -> None:
        """Look for the parts; nothing is read yet."""
        self.parts: Final = parts_of(path)
        self.is_cut_off = False  # after `steps`: the journal ends within a step, which was left out
        self._last = (0, 0)  # steps read, and when the last of them was

    def settings(self) -> Settings:
        """Those of the journal's arbiter."""
        with self.naming(self.parts[0]), self.parts[0].open("rb") as file:
            return parse_header(_whole(next(read_lines(file), "")))

    def steps(self) -> Iterator[RecordedStep]:
        """All steps of all parts, in order."""
        self._last, self.is_cut_off = (0, 0), False
        for number, part in enumerate(self.parts, start=1):
            with self.naming(part), part.open("rb") as file:
                lines = read_lines(file)
                head = next(lines, "")
                if number == 1:
                    parse_header(_whole(head))
                elif not head.endswith("\n"):
                    self._on_cut(part)(1)  # killed just after it had opened the part
                    return
                else:
                    self._check_part(head, number)
                for step in parse_steps(lines, self._on_cut(part), part=self._name(part)):
                    self._last = (self._last[0] + 1, step.event.at_ms)
                    yield step
        if len(self.parts) == 1 and not self.is_cut_off:
            self._look_beside(self.parts[0])

    def _check_part(self, line: str, number: int) -> None:
        after = _after(line, number)
        if after is None:
            raise JournalFormatError(f"line 1: it does not begin as part {number} of a journal")
        if after != self._last:
            goes_on, stands = (f"step {steps} at {at_ms} ms" for steps, at_ms in (after, self._last))
            raise JournalPartsError(f"line 1: it goes on from {goes_on}, and the parts before it end with {stands}")

    def _look_beside(self, part: Path) -> None:
        """Errors: JournalPartsError where the next part of this journal bears another name than `part` lets it have."""
        for other in islice(part.parent.glob("*.part0002*"), NEIGHBOURS_MAX):
            first = _first_of(other)
            if first == other or first.exists():
                continue
            if _after(_beginning(other), 2) == self._last:
                raise JournalPartsError(f"{other.name} beside it goes on from its last step: name it {first.name}, as it was")

    def _on_cut(self, part: Path) -> Callable[[int], None]:
        return self._end if part == self.parts[-1] else _damaged

    def _end(self, _line_no: int) -> None:
        self.is_cut_off = True

    def _name(self, part: Path) -> str:
        return part.name if len(self.parts) > 1 else ""

    @contextmanager
    def naming(self, part: Path) -> Iterator[None]:
        """What is wrong with `part` is told by its name, where the journal has several."""
        try:
            yield
        except JournalFormatError as err:
            raise type(err)(f"{part.name}: {err}" if self._name(part) else str(err)) from err


def _damaged(line_no: int) -> None:
    # Its writer went on in the next part, so it was whole once: to go on from here would be to judge another run.
    raise JournalPartsError(f"line {line_no} is not whole, and only the last part of a journal may be cut off")


def _whole(line: str) -> str:
    if not line.endswith("\n"):
        raise JournalFormatError("line 1 is not whole: the journal is empty, cut off, or none")
    return line


def _beginning(path: Path) -> str:
    """The first line of a file that need be no journal of ours, nor readable."""
    try:
        with path.open("rb") as file:
            return next(read_lines(file), "")
    except (OSError, JournalFormatError):
        return ""


def _after(line: str, number: int) -> tuple[int, Millis] | None:
    """What the first line of part `number` says that it goes on from; None where it is no such line."""
    try:
        head = json.loads(line)
        after = (head["after_step"], head["after_ms"])
        is_right = head["journal_part"] == number
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return after if is_right else None
