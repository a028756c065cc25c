"""A live arbiter's journals: parts that are one journal, and how many files stay."""

from pathlib import Path
from typing import Final

import pytest

from themis_arbiter.core.effects import Effect, WakeAt
from themis_arbiter.core.events import AdminRequested, AdminVerb, Event, Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.journal_set import part_path
from themis_arbiter.engine.replay import ReplayResult, read_settings, replay
from themis_arbiter.server.config import JournalConfig
from themis_arbiter.server.journals import RotatingJournal, open_journal, remove_old

BYTES_MAX: Final = 8_192
STEPS_MAX: Final = 10_000


def stepped(journal: RotatingJournal, until: Path) -> int:
    """Record steps until there is a file `until`, which then holds one; returns how many."""
    for k in range(STEPS_MAX):
        journal.record(Woke(at_ms=k, timer=Timer.GRID), (WakeAt(timer=Timer.GRID, at_ms=k + 1),))
        if until.exists():
            return k + 1
    raise AssertionError(f"no {until.name} after {STEPS_MAX} steps")


class Waking:
    """Decides as `stepped` has it."""

    def step(self, event: Event) -> tuple[Effect, ...]:
        return (WakeAt(timer=Timer.GRID, at_ms=event.at_ms + 1),)


def test_a_journal_goes_on_in_parts_and_is_replayed_whole(tmp_path: Path) -> None:
    first = tmp_path / "arbiter-20260101T000000.000-1.journal"
    older = tmp_path / "arbiter-20250101T000000.000-1.journal"
    older.touch()
    journal = RotatingJournal(first, Settings(), bytes_max=BYTES_MAX, files_max=4)
    steps = stepped(journal, part_path(first, 4))
    journal.close()
    files = sorted(tmp_path.iterdir())
    assert [p.name[len(first.stem) :] for p in files] == [
        ".journal",
        ".part0002.journal",
        ".part0003.journal",
        ".part0004.journal",
    ]
    for named in files:
        assert replay(named, Waking()) == ReplayResult(steps=steps, parts=4)
        assert named.stat().st_mode & 0o077 == 0
    assert read_settings(files[3]) == Settings()
    # The step that reaches the bound is a part's last.
    for part in files[:3]:
        last_step = sum(len(line) for line in part.read_bytes().splitlines(keepends=True)[-2:])
        assert BYTES_MAX <= part.stat().st_size < BYTES_MAX + last_step
    files[3].write_bytes(files[3].read_bytes()[:-9])
    assert replay(first, Waking()) == ReplayResult(steps=steps - 1, parts=4, is_cut_off=True)
    files[2].write_text(files[1].read_text())
    with pytest.raises(JournalFormatError, match=r"part0003\.journal: line 1: it does not begin as part 3 of a journal"):
        replay(first, Waking())
    files[2].unlink()
    with pytest.raises(JournalFormatError, match=r"part0003\.journal, a part before .*part0004\.journal, is not there"):
        replay(first, Waking())


def test_of_a_long_run_the_newest_parts_are_kept_and_said_to_be_no_whole(tmp_path: Path) -> None:
    first = tmp_path / "arbiter-20260101T000000.000-1.journal"
    journal = RotatingJournal(first, Settings(), bytes_max=BYTES_MAX, files_max=2)
    stepped(journal, part_path(first, 5))
    (tmp_path / "arbiter-20270101T000000.000-9.journal").touch()  # of another arbiter, begun later
    stepped(journal, part_path(first, 6))
    journal.close()
    kept = sorted(p.name for p in tmp_path.iterdir())
    assert kept == ["arbiter-20260101T000000.000-1.part0006.journal", "arbiter-20270101T000000.000-9.journal"]
    with pytest.raises(JournalFormatError, match=r"-1\.journal, a part before .*part0006.*is not there any more"):
        replay(tmp_path / kept[0], Waking())


def test_old_journals_go_oldest_first(tmp_path: Path) -> None:
    for day in ("03", "01", "02"):
        (tmp_path / f"arbiter-202601{day}T000000.000-1.journal").touch()
    remove_old(tmp_path, keep=2)
    assert [p.name[14:16] for p in sorted(tmp_path.iterdir())] == ["02", "03"]
    remove_old(tmp_path, keep=0)
    assert list(tmp_path.iterdir()) == []


def test_sizes_are_of_bytes_and_steps_of_any_size(tmp_path: Path) -> None:
    first = tmp_path / "arbiter-20260101T000000.000-1.journal"
    journal = RotatingJournal(first, Settings(), bytes_max=BYTES_MAX, files_max=4)
    event = AdminRequested(at_ms=1, request_id="r", actor="\u00e9" * (BYTES_MAX // 2), verb=AdminVerb.PAUSE)
    for _ in range(3):
        journal.record(event, ())
    journal.close()
    counts = [path.read_bytes().count(b"\n") for path in sorted(tmp_path.iterdir())]
    assert counts == [3, 3, 3]  # a first line and a step each


def test_files_of_other_names_take_no_place_and_stay(tmp_path: Path) -> None:
    others = (
        "arbiter-backup.journal",
        "arbiter-20260101T000000.000-1-copy.journal",
        "arbiter-20260101T000000.000-1.part2.journal",
        "arbiter-20260101T000000.000.journal",
        "arbiter-20260101T000000.000-1.journal.bak",
        "old-arbiter-20260101T000000.000-1.journal",
    )
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / "arbiter-20260101T000000.000-2.journal").mkdir()
    config = JournalConfig(folder=tmp_path, bytes_max=BYTES_MAX, files_max=2)
    for now_ms in (0, 1_800_000_000_001, 4_000_000_000_000):
        open_journal(config, Settings(), now_ms).close()
        remove_old(tmp_path, keep=2)
    ours = sorted({path.name for path in tmp_path.iterdir() if path.is_file()} - {*others})
    assert [name[:27] for name in ours] == ["arbiter-20270115T080000.001", "arbiter-20961002T070640.000"]
    remove_old(tmp_path, keep=0)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {*others}
