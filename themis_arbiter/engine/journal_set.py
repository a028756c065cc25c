"""A journal in parts: files beside each other that are one journal, in order.

    arbiter-1.journal              the first, with the settings in its header
    arbiter-1.part0002.journal     the next: `{"journal_part":2,"of":"arbiter-1.journal"}`, then steps that go on from there

A step is whole within a part, and a writer that is killed leaves its last part cut off and no other. What comes later says
nothing without what was before, so a journal whose first part has been removed can be read by people and not be replayed.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from themis_arbiter.core.codec import dumps
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.journal_format import JournalFormatError, RecordedStep, parse_header, parse_steps, read_lines

PARTS_MAX: Final = 9_999
_NAME: Final = re.compile(r"(?P<first>.+)\.part(?P<number>[0-9]{4})")


def part_path(first: Path, number: int) -> Path:
    """Where the part `number`, from 1, of the journal that begins at `first` is."""
    assert 1 <= number <= PARTS_MAX, number
    return first if number == 1 else first.with_name(f"{first.stem}.part{number:04d}{first.suffix}")


def part_line(first: Path, number: int) -> str:
    """The first line of a later part."""
    return dumps({"journal_part": number, "of": first.name})


def parts_of(path: Path) -> list[Path]:
    """All parts of the journal of which `path` is one, in order. Errors: JournalFormatError where one is missing."""
    named = _NAME.fullmatch(path.stem)
    first = path.with_name(named["first"] + path.suffix) if named else path
    numbers = [1] if first.exists() else []
    for other in first.parent.glob(f"*.part????{first.suffix}"):
        found = _NAME.fullmatch(other.stem)
        if found is not None and found["first"] == first.stem:
            numbers.append(int(found["number"]))
    for number, there in enumerate(sorted(numbers), start=1):
        if number != there:
            missing = part_path(first, number).name
            raise JournalFormatError(f"{missing}, a part before {part_path(first, there).name}, is not there any more")
    return [part_path(first, number) for number in range(1, len(numbers) + 1)] or [path]


class JournalReader:
    """A journal, of which `path` is a part. Problems are told by the part's own name and lines where there are several.

    Errors: JournalFormatError, OSError, from every method.
    """

    def __init__(self, path: Path) -> None:
        """Look for the parts; nothing is read yet."""
        self.parts: Final = parts_of(path)
        self.is_cut_off = False  # after `steps`: the journal ends within a step, which was left out

    def settings(self) -> Settings:
        """Those of the journal's arbiter."""
        with self.naming(self.parts[0]), self.parts[0].open("rb") as file:
            return parse_header(_whole(next(read_lines(file), "")))

    def steps(self) -> Iterator[RecordedStep]:
        """All steps of all parts, in order."""
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
                    _check_part(head, number)
                yield from parse_steps(lines, self._on_cut(part), part=self._name(part))

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
            raise JournalFormatError(f"{part.name}: {err}" if self._name(part) else str(err)) from err


def _damaged(line_no: int) -> None:
    # Its writer went on in the next part, so it was whole once: to go on from here would be to judge another run.
    raise JournalFormatError(f"line {line_no} is not whole, and only the last part of a journal may be cut off")


def _whole(line: str) -> str:
    if not line.endswith("\n"):
        raise JournalFormatError("line 1 is not whole: the journal is empty, cut off, or none")
    return line


def _check_part(line: str, number: int) -> None:
    try:
        is_right = json.loads(line)["journal_part"] == number
    except (ValueError, KeyError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise JournalFormatError(f"line 1: it does not begin as part {number} of a journal")
