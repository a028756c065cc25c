"""A task's own log: one file for each container, one JSON object a line, written by the task alone.

The line that says `done` *is* the commit: a task writes it with one O_APPEND write before it reports the unit. So when
a container dies, its log tells whether the unit in hand was done, and a driver that starts again loses nothing that
any task had finished. A line without its newline was torn by a crash and does not count.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from themis_arbiter.agent.work import Unit

LOG_BYTES_MAX: Final = 256 * 1024 * 1024
_SUFFIX: Final = ".jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: `is_done` False says that the unit was begun. Times are wall clock, milliseconds."""

    unit: Unit
    is_done: bool
    container_id: str
    value: int
    start_ms: int
    end_ms: int
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """What one container wrote, in order."""

    container_id: str
    lines: tuple[Line, ...]
    torn: int

    @property
    def done(self) -> tuple[Line, ...]:
        """The units that the container did, each with its value."""
        return tuple(line for line in self.lines if line.is_done)


class LogWriter:
    """Appends to one container's log. For the task's process only."""

    def __init__(self, job_dir: Path, container_id: str, slot: int) -> None:
        folder = log_dir(job_dir)
        folder.mkdir(parents=True, exist_ok=True)
        self._fixed = {"container": container_id, "slot": slot}
        self._fd = os.open(log_path(job_dir, container_id), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begun(self, unit: Unit, start_ms: int, checkpoint: int) -> None:
        """Say that a unit is in hand: evidence for what a kill costs."""
        self._append({"begun": list(unit), "start_ms": start_ms, "checkpoint": checkpoint})

    def done(self, unit: Unit, value: int, start_ms: int, end_ms: int, checkpoint: int) -> None:
        """Commit a unit. `checkpoint` is the generation of the job's checkpoint when the unit was handed out."""
        self._append({"done": list(unit), "value": value, "start_ms": start_ms, "end_ms": end_ms, "checkpoint": checkpoint})

    def _append(self, what: dict[str, Any]) -> None:
        line = json.dumps(what | self._fixed, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._fd, line)
        assert written == len(line), f"a log line was cut short after {written} bytes"


def log_dir(job_dir: Path) -> Path:
    """The folder of a job's task logs."""
    return job_dir / "tasks"


def log_path(job_dir: Path, container_id: str) -> Path:
    """The log of one container."""
    return log_dir(job_dir) / f"{container_id}{_SUFFIX}"


def read_log(job_dir: Path, container_id: str) -> TaskLog:
    """One container's log; an empty one where it never wrote. Raises ValueError for a whole line that is not ours."""
    path = log_path(job_dir, container_id)
    try:
        with path.open("rb") as file:
            raw = file.read(LOG_BYTES_MAX)
    except FileNotFoundError:
        raw = b""
    *whole, rest = raw.split(b"\n")
    lines = tuple(_parse(text, path, number) for number, text in enumerate(whole, start=1))
    return TaskLog(container_id=container_id, lines=lines, torn=1 if rest else 0)


def read_logs(job_dir: Path) -> list[TaskLog]:
    """Every container's log, by container id."""
    return [read_log(job_dir, path.name.removesuffix(_SUFFIX)) for path in sorted(log_dir(job_dir).glob("*" + _SUFFIX))]


def _parse(text: bytes, path: Path, number: int) -> Line:
    try:
        raw = json.loads(text)
        is_done = "done" in raw
        step, part = raw["done" if is_done else "begun"]
        return Line(
            unit=Unit(int(step), int(part)),
            is_done=is_done,
            container_id=str(raw["container"]),
            value=int(raw["value"]) if is_done else 0,
            start_ms=int(raw["start_ms"]),
            end_ms=int(raw["end_ms"]) if is_done else 0,
            checkpoint=int(raw["checkpoint"]),
        )
    except (ValueError, KeyError, TypeError) as err:
        raise ValueError(f"{path}:{number}: not a line of a task's log: {err!r}") from err
