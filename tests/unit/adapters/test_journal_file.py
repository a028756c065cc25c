"""What is the file journal's own: when lines reach the disk, and what it does with files that are there."""

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from themis_arbiter.adapters import journal
from themis_arbiter.adapters.journal import FileJournal, MemoryJournal
from themis_arbiter.core.events import Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError

WOKE: Final = Woke(at_ms=1, timer=Timer.GRID)


def test_steps_reach_the_file_by_the_stated_number(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    writer = FileJournal(path, Settings(), flush_steps=3)
    seen = []
    for _ in range(7):
        writer.record(WOKE, ())
        seen.append(path.read_text().count('{"event":'))
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    writer.close()
    assert path.read_text().count('{"event":') == 7


def test_a_journal_is_private_and_never_continued(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    FileJournal(path, Settings()).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        FileJournal(path, Settings())


def test_a_full_disk_is_not_kept_secret(tmp_path: Path) -> None:
    writer = FileJournal(tmp_path / "j.jsonl", Settings(), flush_steps=1)
    redirect(writer, "/dev/full")
    with pytest.raises(OSError, match="No space left"):
        writer.record(WOKE, ())
    redirect(writer, "/dev/null")  # else closing would fail as well
    writer.close()


def redirect(writer: FileJournal, device: str) -> None:
    descriptor = os.open(device, os.O_WRONLY)
    os.dup2(descriptor, writer._file.fileno())
    os.close(descriptor)


def test_a_memory_journal_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_IN_MEMORY_MAX", 2)
    memory = MemoryJournal(Settings())
    memory.record(WOKE, ())
    memory.record(WOKE, ())
    with pytest.raises(CoreError, match="more than 2 steps"):
        memory.record(WOKE, ())
