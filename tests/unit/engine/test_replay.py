"""Replay: the same decisions pass, and the first other one is found and shown."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.counting import Counting
from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.core.events import Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.replay import ReplayResult, read_settings, replay, replay_with

SETTINGS: Final = Settings(policy="guard")
STEPS: Final = 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    journal, arbiter = FileJournal(path, SETTINGS), Counting()
    for k in range(STEPS):
        event = Woke(at_ms=k * 10, timer=Timer.GRID)
        journal.record(event, arbiter.step(event))
    journal.close()
    return path


def test_the_same_arbiter_decides_the_same(path: Path) -> None:
    assert replay(path, Counting()) == ReplayResult(steps=STEPS)


def test_the_first_other_decision_is_shown(path: Path) -> None:
    result = replay(path, Counting(odd_from=3))
    assert result.steps == 3
    found = result.first_difference
    assert found is not None
    assert found.line_no == 6  # header, two steps of two lines, then this one
    assert found.event == '{"event":{"type":"Woke","at_ms":20,"timer":"grid"}}'
    assert found.recorded == '{"effects":[{"type":"WakeAt","timer":"grid","at_ms":23}]}'
    assert found.replayed == '{"effects":[{"type":"WakeAt","timer":"grid","at_ms":24}]}'
    assert path.read_text().split("\n")[found.line_no - 1] == found.event


def test_the_arbiter_is_made_with_the_journals_settings(path: Path) -> None:
    seen: list[Settings] = []

    def make(settings: Settings) -> Counting:
        seen.append(settings)
        return Counting()

    assert replay_with(path, make).first_difference is None
    assert seen == [SETTINGS] == [read_settings(path)]


@pytest.mark.parametrize("cut", [1, 20, 62, 63, 100])
def test_a_step_that_a_killed_writer_left_half_is_dropped(path: Path, cut: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert replay(path, Counting()) == ReplayResult(steps=STEPS - 1, is_cut_off=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "line 1 is not whole"),
        (lambda lines: ["app_id,job_id", *lines[1:]], "line 1 is no journal's header"),
        (lambda lines: [lines[0].replace(":1,", ":2,", 1), *lines[1:]], "journal format 2; this version reads 1"),
        (lambda lines: [lines[0].replace("lease_ms", "leese_ms"), *lines[1:]], "line 1: Settings has no field"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 4: an event expected"),
        (lambda lines: [*lines[:2], *lines[3:]], "line 3: effects expected"),
        (lambda lines: [*lines[:3], lines[3].replace("Woke", "Slept"), *lines[4:]], "line 4: not a journal line"),
    ],
)
def test_what_is_no_journal_is_refused_with_the_line(path: Path, change: object, message: str) -> None:
    assert callable(change)
    lines = change(path.read_text().split("\n")[:-1])
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(JournalFormatError, match=message):
        replay(path, Counting())
