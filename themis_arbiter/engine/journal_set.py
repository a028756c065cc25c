"""A journal in parts: files beside each other that are one journal, in order.

    arbiter-1.journal              the first, with the settings in its header
    arbiter-1.part0002.journal     the next: `{"journal_part":2,"of":"arbiter-1.journal"}`, then steps that go on from there

A step is whole within a part. What comes later says nothing without what was before, so a journal whose first part has been
removed can be read by people and not be replayed.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from themis_arbiter.core.codec import dumps
from themis_arbiter.engine.journal_format import JournalFormatError, read_lines

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


def read_journal(path: Path) -> Iterator[str]:
    """The lines of a whole journal, of which `path` is a part, with their line ends and without later parts' first lines.

    Errors: JournalFormatError, OSError.
    """
    for number, part in enumerate(parts_of(path), start=1):
        with part.open("rb") as file:
            lines = read_lines(file)
            if number > 1:
                _check_part(next(lines, ""), number, part)
            yield from lines


def _check_part(line: str, number: int, part: Path) -> None:
    try:
        is_right = json.loads(line)["journal_part"] == number
    except (ValueError, KeyError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise JournalFormatError(f"{part.name} does not begin as part {number} of a journal")
