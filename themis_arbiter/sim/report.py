"""The report of one or several runs: one HTML file that needs nothing else, and its figures as files beside it.

The page holds its data as JSON with every character that could end a script escaped, and its script sets names as text only, so
a name from a user can neither run nor break anything. It fetches nothing; a policy in the page forbids it to.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.report_data import APP_COLUMNS, BINS, Report, ReportError, Run, read_report
from themis_arbiter.sim.report_figures import COLOURS, line_figures, write_figures
from themis_arbiter.sim.report_png import write_png
from themis_arbiter.sim.whole_file import write_whole

ASSETS: Final = Path(__file__).with_name("report_assets")
FIGURES: Final = "figures"
SIGNIFICANT: Final = 4  # digits of what is drawn; tables have two more
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

__all__ = ["ReportError", "page", "read_report", "write_report"]


def write_report(run_dirs: Sequence[Path], out: Path) -> None:
    """Write the report of these run directories to `out`, an HTML file, and its figures to `figures/` beside it.

    Errors: ReportError for a directory that is no run, or a place that cannot be written.
    """
    report = read_report(run_dirs)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_figures(report, out.parent / FIGURES)
        write_png(line_figures(report), out.parent / FIGURES)
        write_whole(out, page(report))
    except OSError as error:
        raise ReportError(f"{out}: cannot be written: {error.strerror or error}; name a place that can be") from error


def page(report: Report) -> str:
    """The HTML page."""
    text = json.dumps(_document(report), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escaped in _ESCAPES.items():
        text = text.replace(character, escaped)
    html = (ASSETS / "report.html").read_text(encoding="utf-8")
    css, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    # The data goes in last: nothing in it is taken for a mark.
    return html.replace("@CSS@", css).replace("@JS@", script).replace("@DATA@", text)


def _document(report: Report) -> dict[str, Any]:
    names = sorted(
        {app for run in report.runs for app in run.apps} | {s[2] for r in report.runs for row in r.timeline for s in row}
    )
    index = {name: k for k, name in enumerate(names)}
    first = report.runs[0]
    counts = f"{len(first.apps)} apps, {first.gpu_count} GPUs used, {report.span_s / 86_400:.1f} days"
    runs = f"{len(report.runs)} runs" if len(report.runs) > 1 else f"policy {first.label}"
    return {
        "subtitle": f"{runs}: {counts}" if len(report.runs) == 1 else f"{runs} of one input: {counts}",
        "span_s": report.span_s,
        "bins": BINS,
        "colours": COLOURS,
        "apps": names,
        "app_columns": APP_COLUMNS,
        "runs": [_run(run, index) for run in report.runs],
    }


def _run(run: Run, index: dict[str, int]) -> dict[str, Any]:
    return {
        "label": run.label,
        "summary": {
            k: _finite(v) for k, v in run.summary.items() if isinstance(v, int | float | str) and not isinstance(v, bool)
        },
        "table": [[index[app], *(_rounded(v, SIGNIFICANT + 2) for v in values)] for app, values in run.apps.items()],
        "gpus": run.gpu_names,
        "gpu_count": run.gpu_count,
        "step_s": run.timeline_step_s,
        "timeline": [
            [part for start, end, app in row for part in (round(start), round(end), index[app])] for row in run.timeline
        ],
        **{key: [_rounded(v, SIGNIFICANT) for v in getattr(run, key)] for key in ("contention", "queue", "present")},
    }


def _finite(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and not -float("inf") < value < float("inf") else value


def _rounded(value: float | None, digits: int) -> float | None:
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) else rounded
