"""`themis replay`: step a journal again and say whether every decision is the same."""

from pathlib import Path
from typing import Any, Final

import click

from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.difference import Place, first_place
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.journal_set import JournalPartsError
from themis_arbiter.engine.replay import Difference, ReplayResult, StepRefused, read_settings, replay_with
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.server.documents import dumps

NO_STEP: Final = "holds no whole step, so there is nothing to compare; name a journal of an arbiter that has run"


@click.command()
@click.argument("journal", metavar="JOURNAL", type=click.Path(path_type=Path))
@click.option("--check", "is_checked", is_flag=True, help="Check the arbiter's own invariants after every step, too.")
@JSON_OPTION
def replay(journal: Path, is_checked: bool, as_json: bool) -> None:
    """Step a journal's events through a fresh arbiter and compare its decisions with those that stand there.

    JOURNAL is one of a live arbiter (journal.folder; journal/ of a `make run`) or of `themis simulate --journal`.

    Exit status 0: every decision is the same, byte for byte; 1: one is not, and the first such is shown; 2: no journal.
    """

    def make(settings: Settings) -> Arbiter:
        return Arbiter(settings, is_checked=is_checked)

    name = visible(str(journal))
    try:
        policy = read_settings(journal).policy
        result = replay_with(journal, make)
    except (JournalFormatError, StepRefused) as problem:
        raise cannot_step(name, problem) from None
    except OSError as problem:
        what = visible(str(problem.filename or journal))  # one of its parts, it may be
        raise WrongUse(f"{what}: cannot be read: {problem.strerror or problem}; name a journal that is there") from None
    if result.steps == 0:
        raise WrongUse(f"{name}: {NO_STEP}")
    place = None if result.first_difference is None else first_place(*_decisions(result.first_difference))
    if as_json:
        click.echo(dumps(_document(journal, policy, result, place), indent=2))
    else:
        click.echo("\n".join(_lines(policy, result, place)))
    if place is not None:
        raise NotSo(f"{name}: step {result.steps} is decided otherwise now")


def cannot_step(name: str, problem: JournalFormatError | StepRefused) -> click.ClickException:
    """Why the journal called `name` cannot be stepped by this version."""
    if isinstance(problem, JournalPartsError):
        return WrongUse(f"{name}: {legible(str(problem))}")
    if isinstance(problem, JournalFormatError):
        return WrongUse(f"{name}: {legible(str(problem))}; name a journal that this version wrote")
    return NotSo(f"{name}: {legible(str(problem))}; the arbiter that wrote it took this event, this one does not")


def _decisions(found: Difference) -> tuple[str, str]:
    return found.recorded, found.replayed


def _lines(policy: str, result: ReplayResult, place: Place | None) -> list[str]:
    end = "; what came after them was cut off when its writer ended, and left out" if result.is_cut_off else ""
    parts = f" in {result.parts} parts" if result.parts > 1 else ""
    found = result.first_difference
    if found is None or place is None:
        return [f"{result.steps:,} steps{parts} under {visible(policy)}: every decision is the same{end}"]
    same = f"{result.steps - 1:,} steps{parts} under {visible(policy)} are the same, step {result.steps:,} is not"
    of = f" of {visible(found.part)}" if found.part else ""
    where = " ".join(part for part in (f"effect {place.effect}", place.kind, place.path) if part)
    return [
        same,
        f"  event     line {found.line_no}{of}, {_event_type(found)} at {found.at_ms} ms",
        f"  where     {visible(where) if place.effect else 'the whole line'}",
        f"  recorded  {visible(place.recorded)}",
        f"  now       {visible(place.replayed)}",
    ]


def _event_type(found: Difference) -> str:
    return found.event.partition('"type":"')[2].partition('"')[0]


def _document(journal: Path, policy: str, result: ReplayResult, place: Place | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "journal": str(journal),
        "policy": policy,
        "parts": result.parts,
        "steps": result.steps,
        "is_same": result.first_difference is None,
        "is_cut_off": result.is_cut_off,
        "first_difference": None,
    }
    found = result.first_difference
    if found is not None and place is not None:
        document["first_difference"] = {
            "step": result.steps,
            "part": found.part or None,
            "line": found.line_no,
            "at_ms": found.at_ms,
            "event_type": _event_type(found),
            "effect": place.effect,
            "effect_type": place.kind,
            "field": place.path,
            "recorded": place.recorded,
            "now": place.replayed,
            "event_line": found.event,
            "recorded_line": found.recorded,
            "now_line": found.replayed,
        }
    return document
