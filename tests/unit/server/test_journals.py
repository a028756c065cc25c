"""A live arbiter's journals: parts that are one journal, and how many files stay."""

from pathlib import Path

import pytest

from themis_arbiter.core.effects import Effect, WakeAt
from themis_arbiter.core.events import Event, Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.replay import ReplayResult, read_settings, replay
from themis_arbiter.server.journals import SIZE_CHECK_STEPS, RotatingJournal, remove_old


def stepped(journal: RotatingJournal, steps: int) -> None:
    for k in range(steps):
        journal.record(Woke(at_ms=k, timer=Timer.GRID), (WakeAt(timer=Timer.GRID, at_ms=k + 1),))


class Waking:
    """Decides as `stepped` has it."""

    def step(self, event: Event) -> tuple[Effect, ...]:
        return (WakeAt(timer=Timer.GRID, at_ms=event.at_ms + 1),)


def test_a_journal_goes_on_in_parts_and_is_replayed_whole(tmp_path: Path) -> None:
    first = tmp_path / "arbiter-20260101T000000.000-1.journal"
    older = tmp_path / "arbiter-20250101T000000.000-1.journal"
    older.touch()
    journal = RotatingJournal(first, Settings(), bytes_max=1, files_max=4)
    steps = 3 * SIZE_CHECK_STEPS + 7
    stepped(journal, steps)
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
    journal = RotatingJournal(first, Settings(), bytes_max=1, files_max=2)
    stepped(journal, 4 * SIZE_CHECK_STEPS)
    (tmp_path / "arbiter-20270101T000000.000-9.journal").touch()  # of another arbiter, begun later
    stepped(journal, SIZE_CHECK_STEPS)
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
