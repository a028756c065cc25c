"""The files of a run (contracts.md). Written to the side and moved into place, so that a run that breaks leaves none."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from themis_arbiter.core.types import AppId
from themis_arbiter.sim.figures import AppFigures, finish_s, held_gpu_s
from themis_arbiter.sim.run_folder import PART, SHARES, SUMMARY, TABLES
from themis_arbiter.sim.sim_jobs import SimulatedJob


def seconds(value: float) -> str:
    """Seconds to the microsecond, without trailing zeros."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def write_run(
    folder: Path,
    jobs: Sequence[SimulatedJob],
    apps: Sequence[AppFigures],
    summary: dict[str, Any],
    shares: dict[AppId, float] | None,
) -> None:
    """All files but rounds.jsonl. Errors: OSError."""
    _table(
        folder / "allocations.csv",
        (
            (
                j.spec.app_id,
                j.spec.job_id,
                ";".join(r.gpus),
                seconds(r.start_ms / 1e3),
                seconds(r.end_ms / 1e3),
                r.grant_id,
                r.round_no,
            )
            for j in jobs
            for r in j.runs
        ),
    )
    _table(
        folder / "jobs.csv",
        (
            (
                j.spec.app_id,
                j.spec.job_id,
                seconds(j.spec.arrival_s),
                seconds(j.first_start_ms / 1e3),
                seconds(finish_s(j)),
                seconds(held_gpu_s(j)),
                j.restarts,
            )
            for j in jobs
        ),
    )
    _table(
        folder / "apps.csv",
        (
            (
                *(a.app_id, seconds(a.arrival_s), seconds(a.finish_s), seconds(a.t_shared_s), seconds(a.t_independent_s)),
                *(seconds(a.n_avg), seconds(a.rho), seconds(a.rho_own), seconds(a.rho_paper), seconds(a.gpu_seconds)),
                a.restarts,
            )
            for a in apps
        ),
    )
    if shares is not None:
        _table(folder / SHARES, ((a, repr(shares[a])) for a in sorted(shares)))
    _write(folder / SUMMARY, json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def _table(path: Path, rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TABLES[path.name])
    writer.writerows(rows)
    _write(path, text.getvalue())


def _write(path: Path, text: str) -> None:
    beside = path.with_name(path.name + PART)
    beside.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    beside.replace(path)
