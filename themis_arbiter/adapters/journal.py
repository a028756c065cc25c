"""Journals: the ordered record of what an arbiter was told and what it decided (engine/journal_format.py)."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Final

from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError
from themis_arbiter.engine.journal_format import effects_line, event_line, header_line

FLUSH_STEPS_MAX: Final = 64  # steps that a killed process can lose, at most; the live loop also flushes whenever it idles
BUFFER_BYTES: Final = 256 * 1024
FILE_MODE: Final = 0o600  # names of users and apps are in it
STEPS_IN_MEMORY_MAX: Final = 1_000_000


class FileJournal:
    """A journal in a new file. What is recorded reaches the operating system by `flush` or after FLUSH_STEPS_MAX steps.

    There is no fsync: the store is what must survive a power cut, the journal only explains. One thread at a time.
    Errors: OSError where the disk refuses, from every method; the engine then ends, since a run with a hole in its
    journal can no longer be explained.
    """

    def __init__(self, path: Path, settings: Settings, *, head: str = "", flush_steps: int = FLUSH_STEPS_MAX) -> None:
        """Create `path`; `head` is its first line where it is a later part of a journal (engine/journal_set.py).

        Errors: FileExistsError (a journal is never continued: its arbiter is gone), OSError.
        """
        if flush_steps < 1:
            raise CoreError(f"flush_steps must be at least 1: {flush_steps}")
        self.path: Final = path
        self._flush_steps, self._unflushed = flush_steps, 0
        self._file: BinaryIO = open(path, "xb", buffering=BUFFER_BYTES, opener=_private)  # noqa: SIM115 - closed by close()
        self.size_bytes = 0  # with what waits to be flushed
        self._write((head or header_line(settings)) + "\n")
        self._file.flush()

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Append one step."""
        self._write(f"{event_line(event)}\n{effects_line(effects)}\n")
        self._unflushed += 1
        if self._unflushed >= self._flush_steps:
            self.flush()

    def flush(self) -> None:
        """Hand everything recorded to the operating system: a killed process does not lose it."""
        if self._unflushed:
            self._file.flush()
            self._unflushed = 0

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        self._file.close()

    def _write(self, text: str) -> None:
        data = text.encode()
        self._file.write(data)
        self.size_bytes += len(data)


class MemoryJournal:
    """A journal in memory, for tests and short runs. Errors: CoreError past STEPS_IN_MEMORY_MAX steps."""

    def __init__(self, settings: Settings) -> None:
        self.lines = [header_line(settings)]  # without line ends
        self.is_closed = False

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Append one step."""
        if self.is_closed:
            raise ValueError("the journal is closed")
        if len(self.lines) > 2 * STEPS_IN_MEMORY_MAX:
            raise CoreError(f"more than {STEPS_IN_MEMORY_MAX} steps: journal to a file")
        self.lines.extend((event_line(event), effects_line(effects)))

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Take no more steps."""
        self.is_closed = True

    def text(self) -> str:
        """The journal as a file would hold it."""
        return "".join(f"{line}\n" for line in self.lines)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
