"""What every converter shares: rows with their place in the file, parsers of single fields, the rule for a job's status.

A source row ends in exactly one of three ways: it becomes a job, it is *bad* (a field cannot be used, told with file, line,
column and reason), or it is *left out* (in order, but not a GPU job that ran to an end). The three add up to the rows read.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from themis_arbiter.core.types import NAME_LENGTH_MAX
from themis_arbiter.sim.plain_numbers import finite

FILE_BYTES_MAX: Final = 4 * 1024**3  # unpacked; the largest published job log is a tenth of that
ROWS_MAX: Final = 5_000_000
FIELD_BYTES_MAX: Final = 1024 * 1024
GPUS_MAX: Final = 1_000_000
SHOWN_LENGTH_MAX: Final = 80
SECONDS_MAX: Final = 100 * 366 * 86_400.0

NO_GPU: Final = "asks for no GPU"
NOT_ENDED: Final = "had not ended"
NOT_COMPLETED: Final = "did not complete"


def shown(text: str) -> str:
    """Text from outside as a message may quote it: on one line, bounded, nothing hidden."""
    quoted = ascii(text)
    return quoted if len(quoted) <= SHOWN_LENGTH_MAX else quoted[: SHOWN_LENGTH_MAX - 3] + "..."


class Unconvertible(Exception):
    """A whole file that cannot be converted; the message says what, where and what to do."""


class BadField(Exception):
    """A row that cannot be used: the column, and the reason."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column
        self.reason = reason


class LeftOut(Exception):
    """A row that is in order and not taken; the message is the reason it is counted under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJob:
    """One job as the source tells it. `submitted_s` is on the source's own clock; GPU figures are per GPU."""

    job_id: str
    submitted_s: float
    n_gpus: int
    duration_s: float
    model: str = ""
    user: str = ""
    queue: str = ""
    weight: float = 1.0
    cpu: float | None = None
    memory_gb: float | None = None
    max_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """Where a row is and why it cannot be used. `line` counts from 1."""

    file: str
    line: int
    column: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: column {self.column}: {self.reason}"


@dataclass(slots=True)
class Tally:
    """What became of the rows of one source."""

    is_strict: bool = False  # whether the first bad row ends the reading
    rows: int = 0
    jobs: list[SourceJob] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    unknown_status: dict[str, int] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def take(self, file: Path, line: int, parse: Callable[[], SourceJob]) -> None:
        """Count one row and enter what `parse` makes of it.

        A job id that comes again is a bad row: sources do not say which of the two is right, so the first stays.
        Errors: Unconvertible for too many rows, and at the first bad one where the tally is strict.
        """
        self.rows += 1
        if self.rows > ROWS_MAX:
            raise Unconvertible(f"{file}: line {line}: more than {ROWS_MAX} rows; convert it in parts")
        try:
            job = parse()
            if job.job_id in self._seen:
                raise BadField("job_id", f"{shown(job.job_id)} is there already; the first stays")
            self._seen.add(job.job_id)
            self.jobs.append(job)
        except BadField as problem:
            self.bad.append(BadRow(str(file), line, problem.column, problem.reason))
            if self.is_strict:
                raise Unconvertible(f"{self.bad[0]}; put it right, or leave --strict out") from None
        except LeftOut as reason:
            self.left_out[str(reason)] = self.left_out.get(str(reason), 0) + 1


@dataclass(frozen=True, slots=True)
class StatusRule:
    """Which statuses a source uses, in lower case, and what is done with them; the words themselves are matched in any case.

    A job that ended held its GPUs for its time, however it ended: it is taken. One that had not ended is left out: nobody
    knows its duration. A word that the source does not define, an empty one too, is counted under the word and the job is taken
    where its times can be used. With `is_completed_only` all but the completed ones are left out.
    """

    column: str
    completed: frozenset[str]
    ended: frozenset[str]
    not_ended: frozenset[str]

    def check(self, word: str, tally: Tally, *, is_completed_only: bool) -> None:
        """Let a row with status `word` pass, or raise LeftOut; an unknown word is counted either way."""
        status = word.strip().lower()
        if status in self.completed:
            return
        if status in self.not_ended:
            raise LeftOut(NOT_ENDED)
        if status not in self.ended:
            key = shown(word.strip())
            tally.unknown_status[key] = tally.unknown_status.get(key, 0) + 1
        if is_completed_only:
            raise LeftOut(NOT_COMPLETED)


def open_text(path: Path) -> IO[str]:
    """`path` as UTF-8 text, unpacked where its name ends in .gz. Errors: Unconvertible."""
    try:
        if path.is_dir():
            raise Unconvertible(f"{path}: is a folder; name the file")
        if path.stat().st_size > FILE_BYTES_MAX:
            raise Unconvertible(f"{path}: larger than {FILE_BYTES_MAX} bytes; convert it in parts")
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise Unconvertible(f"{path}: cannot be read: {error.strerror or error}; name a file that can be read") from error


def table_rows(
    path: Path, columns: Sequence[str], *, header_if_none: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file with their lines.

    `columns` must be in its header; the error names those that are not. Where the first row holds none of `header_if_none`, the
    file is one that is published without a header, and those are its columns in order. Errors: Unconvertible.
    """
    csv.field_size_limit(FIELD_BYTES_MAX)
    with open_text(path) as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        try:
            first = [name.strip() for name in next(reader, [])]
            is_bare = bool(header_if_none) and not set(first) & set(header_if_none)
            header = list(header_if_none) if is_bare else first
            _check_header(path, header, columns)
            if is_bare and first:
                yield reader.line_num, _row(header, first)
            for values in reader:
                if values:
                    yield reader.line_num, _row(header, values)
        except csv.Error as error:
            raise Unconvertible(f"{path}: line {reader.line_num}: {error}; quote fields that hold commas or quotes") from error
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
            raise Unconvertible(f"{path}: after line {reader.line_num}: {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8; save it as UTF-8"
    return f"cannot be unpacked ({error}); get the file again"


def _check_header(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    if not any(header):
        raise Unconvertible(f"{path}: empty; name a file with a header and rows")
    if len(set(header)) != len(header):
        raise Unconvertible(f"{path}: line 1: a column is named twice; name each once")
    missing = [name for name in columns if name not in header]
    if missing:
        raise Unconvertible(f"{path}: line 1: no column {', '.join(missing)}; this format needs {', '.join(columns)}")


SURPLUS: Final = "\0surplus"  # no header can hold it: a key for what stands beyond the last column


def _row(header: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    row = dict(zip(header, (v.strip() for v in values), strict=False))
    if len(values) > len(header):
        row[SURPLUS] = str(len(values))
    return row


def check_width(row: Mapping[str, str], columns: Sequence[str]) -> None:
    """Refuse a row with more or fewer fields than it needs."""
    if SURPLUS in row:
        raise BadField("(all)", f"{row[SURPLUS]} fields for {len(row) - 1} columns; quote fields that hold commas")
    for name in columns:
        if name not in row:
            raise BadField(name, "missing: the row is too short")


# --- single fields ----------------------------------------------------------------------------------------------------


def number(row: Mapping[str, str], column: str) -> float:
    """The finite number in `column`."""
    text = row.get(column, "")
    if not text:
        raise BadField(column, "empty; a number is needed")
    try:
        return finite(text)
    except ValueError as problem:
        raise BadField(column, f"{shown(text)} {problem}") from None


def name(row: Mapping[str, str], column: str) -> str:
    """The name in `column`: not empty, not longer than names may be."""
    return checked_name(row.get(column, ""), column)


def checked_name(text: str, column: str) -> str:
    """`text` if it can be an id."""
    if not text:
        raise BadField(column, "empty; a name is needed")
    return optional_name(text, column)


def optional_name(text: str, column: str) -> str:
    """`text` if it can be an id or is empty."""
    if len(text) > NAME_LENGTH_MAX:
        raise BadField(column, f"{shown(text)} has {len(text)} characters, more than {NAME_LENGTH_MAX}")
    return text


def moment(row: Mapping[str, str], column: str) -> float:
    """The time in `column` in seconds: a number of them, or a date with time of day (without a zone: UTC)."""
    return parsed_moment(row.get(column, ""), column)


def parsed_moment(text: str, column: str) -> float:
    """`text` as a time in seconds."""
    if not text or text.lower() in {"none", "null", "nan", "na"}:
        raise BadField(column, "empty; a time is needed")
    try:
        return finite(text)
    except ValueError as problem:
        if text.lower().strip("+-") in {"inf", "infinity"}:
            raise BadField(column, f"{shown(text)} {problem}") from None
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise BadField(column, f"{shown(text)} is neither seconds nor a date") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def relative_moment(row: Mapping[str, str], column: str) -> float:
    """The time in `column`, in seconds since the source's own start: never below 0."""
    value = number(row, column)
    if value < 0:
        raise BadField(column, f"{value:g} s is before the trace's own start")
    return value


def duration(row: Mapping[str, str], column: str) -> float:
    """The duration in `column`, in seconds, above 0."""
    return checked_duration(number(row, column), column)


def checked_duration(value: float, column: str) -> float:
    """`value` if a job can run so long."""
    if not 0 < value <= SECONDS_MAX:
        raise BadField(column, f"{value:g} s is no time that a job can run; it must be above 0")
    return value


def between(start_s: float, end_s: float, column: str) -> float:
    """Seconds from start to end, above 0."""
    if end_s <= start_s:
        raise BadField(
            column, f"ends {start_s - end_s:g} s before it starts" if end_s < start_s else "ends when it starts: no run time"
        )
    return checked_duration(end_s - start_s, column)


def gpus(row: Mapping[str, str], column: str) -> int:
    """The whole number of GPUs in `column`, at least 1; 0 leaves the row out."""
    return checked_gpus(number(row, column), column)


def checked_gpus(value: float, column: str) -> int:
    """`value` if it is a gang size; 0 leaves the row out."""
    if value == 0:
        raise LeftOut(NO_GPU)
    if value < 0 or value != int(value) or value > GPUS_MAX:
        raise BadField(column, f"{value:g} is no number of GPUs; it must be whole, from 1 to {GPUS_MAX}")
    return int(value)
