"""Journals of a live arbiter: a new one at each start, in parts of a size, and old files removed."""

import logging
import os
import re
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
from themis_arbiter.engine.journal_set import PARTS_MAX, part_line, part_path
from themis_arbiter.obs.logs import log_event
from themis_arbiter.ports import Journal
from themis_arbiter.server.config import JournalConfig

PREFIX: Final = "arbiter-"
SUFFIX: Final = ".journal"
# A journal's name as `open_journal` and `part_path` give it: TIME-PID, and the part. A copy that somebody kept has another.
_OURS: Final = re.compile(rf"{PREFIX}[0-9]{{8}}T[0-9]{{6}}\.[0-9]{{3}}-[0-9]+(\.part[0-9]{{4}})?{re.escape(SUFFIX)}")

_log = logging.getLogger(__name__)


class NoJournal:
    """Where no journal is wanted."""

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held open."""


class RotatingJournal:
    """A journal that goes on in a new part when its file has reached `bytes_max`, and ends when the disk takes no more.

    A part is past `bytes_max` by no more than its last step. With each new part the oldest journals of the folder go, so that
    `files_max` files remain: those of earlier runs first, then this one's own first parts, without which it can be read but
    not replayed. Leases are kept elsewhere, so an arbiter goes on without its journal. One thread at a time.
    """

    def __init__(self, path: Path, settings: Settings, *, bytes_max: int, files_max: int) -> None:
        """Create the first part. Errors: OSError."""
        self._first, self._settings, self._bytes_max, self._files_max = path, settings, bytes_max, files_max
        self._journal = FileJournal(path, settings)
        self._parts = 1
        self._steps, self._last_ms = 0, 0
        self.is_over = False

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Append one step, unless the journal has ended."""
        if self.is_over:
            return
        try:
            if self._journal.size_bytes >= self._bytes_max and not self._begin_part():
                return
            self._journal.record(event, effects)
            self._steps += 1
            self._last_ms = event.at_ms
        except OSError as error:
            self._end("the journal cannot be written any more and ends here", error)

    def _begin_part(self) -> bool:
        """Whether there is a new one."""
        if self._parts == PARTS_MAX:
            self._end(f"the journal has {PARTS_MAX} parts and ends here")
            return False
        self._journal.close()
        self._parts += 1
        path = part_path(self._first, self._parts)
        head = part_line(self._first, self._parts, after_step=self._steps, after_ms=self._last_ms)
        self._journal = FileJournal(path, self._settings, head=head)
        remove_old(path.parent, keep=self._files_max, but=path)
        log_event(_log, logging.INFO, "the journal goes on in a new part", path=path)
        return True

    def flush(self) -> None:
        """Let what was recorded reach the operating system."""
        if not self.is_over:
            try:
                self._journal.flush()
            except OSError as error:
                self._end("the journal cannot be written any more and ends here", error)

    def close(self) -> None:
        """Flush and close. Errors: OSError, unless it had ended before."""
        try:
            self._journal.close()
        except OSError:
            if not self.is_over:
                raise

    def discard(self) -> None:
        """Remove the file of a run that never began."""
        with suppress(OSError):
            self._journal.close()
            self._journal.path.unlink(missing_ok=True)
        self.is_over = True

    def _end(self, why: str, error: OSError | None = None) -> None:
        self.is_over = True
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
    return RotatingJournal(path, settings, bytes_max=config.bytes_max, files_max=config.files_max)


def remove_old(folder: Path, *, keep: int, but: Path | None = None) -> None:
    """Remove all but the newest `keep` journals of `folder`, `but` among them; other files are none of our business."""
    journals = sorted(p for p in folder.iterdir() if _OURS.fullmatch(p.name) and p.is_file() and p != but)
    kept = keep - (but is not None)
    for path in journals[: max(0, len(journals) - kept)]:
        path.unlink(missing_ok=True)
