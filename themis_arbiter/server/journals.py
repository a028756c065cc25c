"""Journals of a live arbiter: a new file at each start, old ones removed, and an end to how large one may become."""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.obs.logs import log_event
from themis_arbiter.ports import Journal
from themis_arbiter.server.config import JournalConfig

PREFIX: Final = "arbiter-"
SUFFIX: Final = ".journal"
SIZE_CHECK_STEPS: Final = 256  # steps between two looks at the file's size

_log = logging.getLogger(__name__)


class NoJournal:
    """Where no journal is wanted."""

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held open."""


class LimitedJournal:
    """A journal that ends when its file has reached `bytes_max`, or when the disk does not take it any more.

    What it has until then replays all the same. Leases are kept elsewhere, so an arbiter goes on without its journal. It
    never starts a second file in mid-run: a journal without its beginning explains nothing. One thread at a time.
    """

    def __init__(self, journal: FileJournal, bytes_max: int) -> None:
        self._journal, self._bytes_max = journal, bytes_max
        self._steps = 0
        self.is_full = False

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Append one step, unless the journal is full."""
        if self.is_full:
            return
        try:
            self._journal.record(event, effects)
            self._steps += 1
            if self._steps % SIZE_CHECK_STEPS == 0:
                self._journal.flush()
                if self._journal.path.stat().st_size >= self._bytes_max:
                    self._end("the journal is full and ends here")
        except OSError as error:
            self._end("the journal cannot be written any more and ends here", error)

    def flush(self) -> None:
        """Let what was recorded reach the operating system."""
        if not self.is_full:
            try:
                self._journal.flush()
            except OSError as error:
                self._end("the journal cannot be written any more and ends here", error)

    def close(self) -> None:
        """Flush and close. Errors: OSError, unless it had ended before."""
        try:
            self._journal.close()
        except OSError:
            if not self.is_full:
                raise

    def discard(self) -> None:
        """Remove the file of a run that never began."""
        with suppress(OSError):
            self._journal.close()
            self._journal.path.unlink(missing_ok=True)
        self.is_full = True

    def _end(self, why: str, error: OSError | None = None) -> None:
        self.is_full = True
        log_event(_log, logging.WARNING, why, path=self._journal.path, error=str(error or ""))


def open_journal(config: JournalConfig | None, settings: Settings, now_ms: Millis) -> Journal:
    """The journal of a run that starts now. Errors: OSError where the folder does not take it.

    Old ones are left alone until the run has begun (`remove_old`): a start that fails must not cost a journal.
    """
    if config is None:
        return NoJournal()
    config.folder.mkdir(parents=True, exist_ok=True)
    # Sorts by time; the process id keeps two starts within one millisecond apart.
    stamp = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    path = config.folder / f"{PREFIX}{stamp}-{os.getpid()}{SUFFIX}"
    return LimitedJournal(FileJournal(path, settings), config.bytes_max)


def remove_old(folder: Path, *, keep: int) -> None:
    """Remove all but the newest `keep` journals of `folder`; other files are none of our business."""
    journals = sorted(p for p in folder.glob(f"{PREFIX}*{SUFFIX}") if p.is_file())
    for path in journals[: max(0, len(journals) - keep)]:
        path.unlink(missing_ok=True)
