"""The campaign's account: a table for people and the whole as JSON, in the run's folder."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.chaos.campaign import Record
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.types import Millis

COLUMNS: Final = (
    *(("SCENARIO", False), ("FAULTS", True), ("GPUS", True), ("SETTLED P50", True), ("MAX", True), ("ASK P50", True)),
    *(("MAX", True), ("LEASES", True), ("END ERROR", True), ("AT THE GATE", True), ("VIOLATIONS", True)),
)
LINES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the campaign was."""

    seed: int
    stop_s: float
    wall_s: float
    run_dir: Path


def write(
    facts: Facts,
    records: Sequence[Record],
    closing: Sequence[str],
    leaderless: Mapping[str, Sequence[Millis]],
    session_ms: Millis,
) -> str:
    """chaos.json and chaos.txt in the run's folder; returns the text.

    `leaderless` are times until another arbiter led, sorted, by scenario; they are told in session timeouts too.
    """
    document = {
        "seed": facts.seed,
        "stop_s": facts.stop_s,
        "wall_s": facts.wall_s,
        "records": [asdict(r) for r in records],
        "closing": list(closing),
        "leaderless_ms": {scenario: list(times) for scenario, times in leaderless.items()},
    }
    (facts.run_dir / "chaos.json").write_text(json.dumps(document, indent=2) + "\n")
    text = "\n".join([_text(facts, records, closing), *_without_leader(leaderless, session_ms)])
    (facts.run_dir / "chaos.txt").write_text(text + "\n")
    return text


def _text(facts: Facts, records: Sequence[Record], closing: Sequence[str]) -> str:
    out = io.StringIO()
    scenarios = list(dict.fromkeys(r.scenario for r in sorted(records, key=lambda r: r.scenario)))
    print_table(COLUMNS, [_row(name, [r for r in records if r.scenario == name]) for name in scenarios], out)
    broken = [f"{r.scenario} {r.number}: {line}" for r in records for line in r.violations] + list(closing)
    lines = [f"VIOLATED {line}" for line in broken[:LINES_MAX]]
    verdict = f"{len(broken)} violations" if broken else "no container of a valid lease ended, no GPU was leased twice"
    took = f"{len(records)} faults in {facts.wall_s / 60:.1f} min, stops of {facts.stop_s:g} s, seed {facts.seed}: {verdict}"
    return "\n".join([out.getvalue().rstrip(), *lines, took])


def _without_leader(leaderless: Mapping[str, Sequence[Millis]], session_ms: Millis) -> Iterator[str]:
    for scenario, times in leaderless.items():
        if times:
            told = [f"{each / 1_000:.1f} s ({each / session_ms:.2f})" for each in (_median(times), times[-1])]
            how = f"{told[0]} in the median, {told[1]} at most"
            yield f"{scenario}: until another led {how}, of {len(times)} (in sessions of {session_ms} ms)"


def _row(scenario: str, records: Sequence[Record]) -> list[str]:
    settled, asked = sorted(r.settle_s for r in records), sorted(r.ask_s for r in records)
    return [
        scenario,
        str(len(records)),
        f"{sum(r.gpus_running for r in records) / len(records):.1f}",
        f"{_median(settled):.1f} s",
        f"{settled[-1]:.1f} s",
        f"{_median(asked):.1f} s",
        f"{asked[-1]:.1f} s",
        str(sum(r.leases_compared for r in records)),
        f"{max(r.lease_error_ms for r in records)} ms",
        f"{max(r.told_error_ms for r in records)} ms",
        str(sum(len(r.violations) for r in records)),
    ]


def _median(values: Sequence[float]) -> float:
    return values[(len(values) - 1) // 2]
