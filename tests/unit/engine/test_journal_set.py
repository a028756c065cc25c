"""A journal in parts: which of them may be damaged, and how that is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.counting import Counting
from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event, Timer, Woke
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.journal_set import JournalPartsError, part_line, part_path
from themis_arbiter.engine.replay import ReplayResult, StepRefused, replay, replay_with

PARTS: Final = 4
STEPS_A_PART: Final = 3


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    first, arbiter, last_ms = tmp_path / "j.journal", Counting(), 0
    for number in range(1, PARTS + 1):
        before = STEPS_A_PART * (number - 1)
        head = "" if number == 1 else part_line(first, number, after_step=before, after_ms=last_ms)
        journal = FileJournal(part_path(first, number), Settings(), head=head)
        for k in range(STEPS_A_PART):
            event = Woke(at_ms=10 * (STEPS_A_PART * number + k), timer=Timer.GRID)
            journal.record(event, arbiter.step(event))
            last_ms = event.at_ms
        journal.close()
    return [part_path(first, number) for number in range(1, PARTS + 1)]


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def drop_lines(path: Path, *numbers: int) -> None:
    """Those lines, from 1."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for k, line in enumerate(lines, start=1) if k not in numbers))


@pytest.mark.parametrize("damaged", range(1, PARTS))
@pytest.mark.parametrize(("count", "line"), [(1, 7), (70, 6), (130, 5)])
def test_only_the_last_part_may_be_cut_off(parts: list[Path], damaged: int, count: int, line: int) -> None:
    cut(parts[damaged - 1], count)
    where = f"^{parts[damaged - 1].name}: line {line} is not whole, and only the last part of a journal may be cut off$"
    for named in parts:
        with pytest.raises(JournalFormatError, match=where):
            replay(named, Counting())
    for later in parts[damaged:]:
        later.unlink()
    assert replay(parts[0], Counting()).is_cut_off  # it is the last one now


@pytest.mark.parametrize("bytes_kept", [0, 1, 20])
def test_a_part_that_was_just_opened_counts_as_cut_off(parts: list[Path], bytes_kept: int) -> None:
    for k in (2, 3):  # of part 3 when part 4 is there, then of the last one
        whole = parts[k].read_bytes()
        parts[k].write_bytes(whole[:bytes_kept])
        if k == 2:
            with pytest.raises(JournalFormatError, match=f"^{parts[k].name}: line 1 is not whole, and only the last part"):
                replay(parts[0], Counting())
            parts[k].write_bytes(whole)
    for named in parts:
        assert replay(named, Counting()) == ReplayResult(steps=STEPS_A_PART * (PARTS - 1), parts=PARTS, is_cut_off=True)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: drop_lines(path, 4), "line 4: an event expected"),
        (lambda path: drop_lines(path, 5), "line 5: effects expected"),
        (lambda path: drop_lines(path, 7), "line 7 is not whole, and only the last part"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"Woke", b"Wo\xffe")), "line 2 is not UTF-8 text"),
        (lambda path: drop_lines(path, 1), "line 1: it does not begin as part 3 of a journal"),
    ],
)
def test_a_damaged_part_is_told_by_its_own_name_and_line(parts: list[Path], spoil: Callable[[Path], None], says: str) -> None:
    spoil(parts[2])
    for named in parts:
        with pytest.raises(JournalFormatError, match=f"^{parts[2].name}: {says}"):
            replay(named, Counting())


def test_a_decision_is_found_by_its_part_and_the_line_in_it(parts: list[Path]) -> None:
    result = replay(parts[0], Counting(odd_from=STEPS_A_PART + 2))
    found = result.first_difference
    assert found is not None
    assert (result.steps, found.part, found.line_no) == (STEPS_A_PART + 2, parts[1].name, 4)
    assert parts[1].read_text().split("\n")[found.line_no - 1] == found.event


def test_what_an_arbiter_does_not_take_is_found_there_too(parts: list[Path]) -> None:
    class Refusing(Counting):
        def step(self, event: Event) -> tuple[Effect, ...]:
            if event.at_ms >= 10 * STEPS_A_PART * 2:
                raise CoreError("no more")
            return super().step(event)

    def refuses(_: Settings) -> Counting:
        raise CoreError("no such policy")

    with pytest.raises(StepRefused, match=f"^{parts[1].name}: line 2, Woke at 60 ms: CoreError: no more"):
        replay(parts[3], Refusing())
    with pytest.raises(JournalFormatError, match=f"^{parts[0].name}: line 1: no such policy"):
        replay_with(parts[3], refuses)


def test_a_journal_in_one_file_needs_no_name_in_what_is_told(parts: list[Path]) -> None:
    for later in parts[1:]:
        later.unlink()
    assert replay(parts[0], Counting()) == ReplayResult(steps=STEPS_A_PART)
    drop_lines(parts[0], 4)
    with pytest.raises(JournalFormatError, match=r"^line 4: an event expected"):
        replay(parts[0], Counting())


class Stateless:
    """Decides by the event alone, so that no decision tells that a step is missing."""

    def step(self, _: Event) -> tuple[Effect, ...]:
        return ()


def without_effects(parts: list[Path]) -> None:
    for part in parts:
        lines = part.read_text().splitlines()
        part.write_text("".join('{"effects":[]}\n' if line.startswith('{"eff') else f"{line}\n" for line in lines))


@pytest.mark.parametrize("lines", [(6, 7), (2, 3, 4, 5, 6, 7)], ids=["a step", "all steps"])
def test_whole_steps_that_are_missing_between_parts_are_noticed(parts: list[Path], lines: tuple[int, ...]) -> None:
    without_effects(parts)
    assert replay(parts[3], Stateless()) == ReplayResult(steps=STEPS_A_PART * PARTS, parts=PARTS)
    drop_lines(parts[1], *lines)
    left = 2 * STEPS_A_PART - len(lines) // 2
    says = rf"^{parts[2].name}: line 1: it goes on from step 6 at 80 ms, and the parts before it end with step {left} at "
    with pytest.raises(JournalPartsError, match=says):
        replay(parts[0], Stateless())


def test_a_part_of_another_run_is_noticed(parts: list[Path]) -> None:
    without_effects(parts)
    parts[2].write_text(parts[2].read_text().replace('"after_ms":80', '"after_ms":81', 1))
    with pytest.raises(JournalPartsError, match=r"goes on from step 6 at 81 ms, and .* end with step 6 at 80 ms$"):
        replay(parts[0], Stateless())


@pytest.mark.parametrize("name", ["incident.journal", "copy"])
def test_a_first_part_that_was_renamed_is_told(parts: list[Path], name: str) -> None:
    renamed = parts[0].rename(parts[0].with_name(name))
    with pytest.raises(
        JournalPartsError, match=r"^j\.part0002\.journal beside it goes on from its last step: name it j\.journal"
    ):
        replay(renamed, Counting())
    # Others' files beside it are none of its business. Taken elsewhere it is a journal of its own, as another run beside
    # parts whose first is gone is.
    (renamed.parent / "elsewhere" / "k.part0002.journal").mkdir(parents=True)
    (renamed.parent / "elsewhere" / "l.part0002").write_bytes(b"\xff\n")
    renamed = renamed.rename(renamed.parent / "elsewhere" / name)
    assert replay(renamed, Counting()) == ReplayResult(steps=STEPS_A_PART)
    cut(renamed, 1)
    renamed = renamed.rename(parts[0].with_name(name))
    assert replay(renamed, Counting()) == ReplayResult(steps=STEPS_A_PART - 1, is_cut_off=True)


def test_a_part_that_is_not_there_does_not_stand_for_the_others(parts: list[Path]) -> None:
    for name in ("j.part0009.journal", "j.part0001.journal", "k.journal"):
        with pytest.raises(FileNotFoundError, match=name):
            replay(parts[0].with_name(name), Counting())
