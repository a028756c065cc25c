"""`themis audit`: what lies would have gained in the auctions of a run."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click

from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION
from themis_arbiter.cli.replay import cannot_step
from themis_arbiter.core.misreports import FACTORS, About
from themis_arbiter.engine.audit import ROUNDS_AUDITED_MAX, Audit, Gain, Ground, NoAuctions, audit_journal
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.engine.replay import ReplayResult, StepRefused
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.server.documents import dumps
from themis_arbiter.sim.run_folder import JOURNAL

WORST_SHOWN: Final = 5
WORST_TOLD: Final = 50  # with --json
PROGRESS_EVERY_S: Final = 5.0


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--rounds",
    default=200,
    show_default=True,
    type=click.IntRange(1, ROUNDS_AUDITED_MAX),
    help="Rounds to audit, evenly spread over those in which more was bid for than there was.",
)
@JSON_OPTION
def audit(run: Path, rounds: int, as_json: bool) -> None:
    """Hold a run's auctions again with one bidder lying, and say what that gains it by its true table.

    RUN is a folder of `themis simulate --journal` or a journal (of a live arbiter, too). Each bidder tells 10, 20, 40 and 80 %
    more and less work, slowdown and parallelism than is true, alone and in its bid only; gains are of value, 1 / rho.

    Exit status 0: audited; 1: nothing to audit, or the journal is decided otherwise now; 2: no journal.
    """
    journal = run / JOURNAL if run.is_dir() else run
    name = visible(str(journal))
    try:
        found, replayed = audit_journal(journal, rounds, _progress())
    except NoAuctions as problem:
        raise WrongUse(f"{name}: {legible(str(problem))} holds no auctions; name a run of themis or paper") from None
    except (JournalFormatError, StepRefused) as problem:
        raise cannot_step(name, problem) from None
    except OSError as problem:
        advice = f"{problem.strerror or problem}; simulate with --journal" if run.is_dir() else problem.strerror or str(problem)
        what = name if run.is_dir() else visible(str(problem.filename or journal))
        raise WrongUse(f"{what}: cannot be read: {advice}") from None
    if replayed.first_difference is not None:
        raise NotSo(f"{name}: step {replayed.steps} is decided otherwise now (`themis replay` shows it); nothing was audited")
    if as_json:
        click.echo(dumps({**_document(str(journal), found), **_reading(replayed)}, indent=2))
    else:
        click.echo("\n".join(_lines(found)))
    if replayed.parts > 1:
        click.echo(f"themis: {name}: all {replayed.parts} parts of the journal were read", err=True)
    if replayed.is_cut_off:
        click.echo(f"themis: {name}: its end was cut off when its writer ended, and left out", err=True)
    if not found.audited:
        raise NotSo(f"{name}: no round in which two apps bid for more than there was")


def _reading(replayed: ReplayResult) -> dict[str, Any]:
    return {"parts": replayed.parts, "is_cut_off": replayed.is_cut_off}


def _progress() -> Any:
    """Lines on stderr, one in so many seconds."""
    last = [monotonic()]

    def tell(text: str) -> None:
        if monotonic() - last[0] >= PROGRESS_EVERY_S:
            last[0] = monotonic()
            click.echo(f"themis: {text}", err=True)

    return tell


def figures(gains: Sequence[Gain]) -> dict[str, Any]:
    """How often a best lie gained, and how much; of gains by nearest rank, those of 0 included."""
    ordered = sorted(g.gain for g in gains)
    count = len(ordered)

    def rank(share: float) -> float:
        return ordered[max(0, -(-int(share * 1000) * count // 1000) - 1)] if ordered else 0.0

    return {
        "bids": count,
        "gaining": sum(g > 0.0 for g in ordered),
        "mean": sum(ordered) / count if count else 0.0,
        "median": rank(0.5),
        "p95": rank(0.95),
        "max": ordered[-1] if ordered else 0.0,
    }


def best_of_any(gains: Sequence[Gain]) -> list[Gain]:
    """Of each bidder of each round, its best lie of whatever kind."""
    best: dict[tuple[int, str], Gain] = {}
    for g in gains:
        known = best.get((g.round_no, g.app_id))
        if known is None or g.gain > known.gain:
            best[g.round_no, g.app_id] = g
    return list(best.values())


def _table(found: Audit) -> list[dict[str, Any]]:
    rows = []
    for ground in Ground:
        here = [g for g in found.gains if g.ground is ground]
        kinds = [(str(about), [g for g in here if g.about is about]) for about in About]
        rows += [{"value": str(ground), "lie": lie, **figures(gains)} for lie, gains in (*kinds, ("any", best_of_any(here)))]
    return rows


def _unexplained(found: Audit) -> list[Gain]:
    """Gains on exact shares above what the search leaves open: there truth should be best."""
    return [g for g in found.gains if g.ground is Ground.EXACT and g.gain > g.open_share + 1e-6]


def _worst(found: Audit, count: int) -> list[Gain]:
    paid = [g for g in found.gains if g.ground is Ground.PAID and g.gain > 0.0]
    return sorted(paid, key=lambda g: (-g.gain, g.round_no, g.app_id, g.about))[:count]


def _document(journal: str, found: Audit) -> dict[str, Any]:
    return {
        "journal": journal,
        "rounds": found.rounds,
        "contested": found.contested,
        "audited": found.audited,
        "bids": found.bids,
        "auctions": found.auctions,
        "silent_lies": found.silent,
        "factors": list(FACTORS),
        "table": _table(found),
        "worst_paid": [_plain(g) for g in _worst(found, WORST_TOLD)],
        "unexplained": len(_unexplained(found)),
        "worst_exact": [_plain(g) for g in sorted(_unexplained(found), key=lambda g: -g.gain)[:WORST_TOLD]],
    }


def _plain(g: Gain) -> dict[str, Any]:
    return {
        "round": g.round_no,
        "app_id": g.app_id,
        "lie": str(g.about),
        "factor": g.factor,
        "gain": g.gain,
        "rho_true": g.rho_true,
        "rho_lied": g.rho_lied,
        "open_share": g.open_share,
    }


def _lines(found: Audit) -> list[str]:
    seen = f"{found.rounds:,} rounds, {found.contested:,} contested, {found.audited:,} audited"
    lines = [
        f"{seen}: {found.bids:,} bids, {found.auctions:,} auctions held; {found.silent:,} lies change no bid",
        "",
        f"{'value is of':<13}{'lie':<12}{'bids':>7}{'gaining':>9}{'mean':>9}{'median':>9}{'p95':>9}{'max':>9}",
    ]
    for row in _table(found):
        share = row["gaining"] / row["bids"] if row["bids"] else 0.0
        numbers = "".join(f"{row[k]:>9.2%}" for k in ("mean", "median", "p95", "max"))
        lines.append(f"{row['value']:<13}{row['lie']:<12}{row['bids']:>7}{share:>9.1%}{numbers}")
    worst = _worst(found, WORST_SHOWN)
    if worst:
        lines += ["", "most gained with payments:"]
    for g in worst:
        who = f"round {g.round_no}, {visible(g.app_id)}: {g.about} x {g.factor:g}"
        lines.append(f"  {who}: rho {g.rho_lied:.3f} in place of {g.rho_true:.3f}, {g.gain:+.1%}")
    return lines
