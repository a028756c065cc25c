"""A report's figures as files: SVG drawn here, the numbers of each as CSV, and PNG where matplotlib is there to draw it."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from themis_arbiter.sim.report_data import BINS, Report, Run

# Eight colours that stay apart for colour-blind eyes; the ninth run on is told apart by dashes.
COLOURS: Final = ("#1f5fbf", "#d1495b", "#2a9d6f", "#e08e1b", "#7b4fb0", "#12a4b8", "#8a5a2b", "#d45fae")
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
WIDTH: Final = 960
HEIGHT: Final = 380
LEFT: Final = 56
RIGHT: Final = 190
TOP: Final = 34
BOTTOM: Final = 40
TIMELINE_ROW: Final = 6
DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
STEPS: Final = (1, 2, 2.5, 5, 10)

Line = Sequence[tuple[float, float]]
Figure = tuple[str, str, Sequence[tuple[str, Line]]]


def line_figures(report: Report) -> Mapping[str, Figure]:
    """The figures that are lines: titles of their axes, and a line a run."""
    scale_s, unit = time_scale(report.span_s)
    return {
        "rho_cdf": ("rho", "share of apps", [(r.label, cdf_line(r)) for r in report.runs]),
        "contention": (
            unit,
            "GPUs wanted / GPUs",
            [(r.label, _line(r.contention, report.span_s / scale_s)) for r in report.runs],
        ),
        "queue": (unit, "jobs without a GPU", [(r.label, _line(r.queue, report.span_s / scale_s)) for r in report.runs]),
    }


def time_scale(span_s: float) -> tuple[float, str]:
    """Seconds of the unit that a time axis counts in, and its name."""
    return (DAY_S, "days") if span_s > 3 * DAY_S else (HOUR_S, "hours")


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write every figure and its numbers into `folder`; the files written. Errors: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, (x_title, y_title, lines) in line_figures(report).items():
        written.append(
            _write(folder / f"{name}.svg", line_chart(x_title, y_title, lines, mark_x=1.0 if name == "rho_cdf" else None))
        )
        written.append(_write_csv(folder / f"{name}.csv", ("run", x_title, y_title), _rows(lines)))
    scale_s, unit = time_scale(report.span_s)
    for number, run in enumerate(report.runs):
        name = f"gpu_timeline_{number:02d}"  # labels come from outside: no file is called after one
        written.append(_write(folder / f"{name}.svg", timeline_chart(run, report.span_s, scale_s, unit)))
        rows = ((run.label, gpu, *s) for gpu, row in zip(run.gpu_names, run.timeline, strict=True) for s in row)
        written.append(_write_csv(folder / f"{name}.csv", ("run", "gpu", "start_s", "end_s", "app_id"), rows))
    return written


def cdf_line(run: Run) -> Line:
    """Corners of the share of apps with rho of at most x."""
    points = [(0.0, 0.0)]
    for k, value in enumerate(run.rho, start=1):
        points += [(value, points[-1][1]), (value, k / len(run.rho))]
    return points


def _line(values: Sequence[float], span: float) -> Line:
    width = span / BINS
    return [point for k, v in enumerate(values) for point in ((k * width, v), ((k + 1) * width, v))]


def _rows(lines: Iterable[tuple[str, Line]]) -> Iterable[tuple[str, float, float]]:
    return ((label, round(x, 6), round(y, 6)) for label, line in lines for x, y in line)


def line_chart(x_title: str, y_title: str, lines: Sequence[tuple[str, Line]], mark_x: float | None = None) -> str:
    """An SVG with axes from 0, a legend, and a dashed mark at `mark_x`."""
    x_max = max((x for _, line in lines for x, _ in line), default=1.0) or 1.0
    y_max = max((y for _, line in lines for _, y in line), default=1.0) or 1.0
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(x: float, y: float) -> str:
        return f"{LEFT + x / x_max * (right - LEFT):.1f},{bottom - y / y_max * (bottom - TOP):.1f}"

    parts = [_open(HEIGHT), _text(LEFT, 18, y_title), _text(right, HEIGHT - 6, x_title, "end")]
    for tick in ticks(y_max):
        y = at(0, tick).split(",")[1]
        parts.append(f'<path d="M{LEFT},{y}H{right}" stroke="#e2e6ec"/>{_text(LEFT - 6, float(y) + 4, f"{tick:g}", "end")}')
    for tick in ticks(x_max):
        x = at(tick, 0).split(",")[0]
        parts.append(f'<path d="M{x},{bottom}v4" stroke="#8894a3"/>{_text(float(x), bottom + 17, f"{tick:g}", "middle")}')
    if mark_x is not None and mark_x <= x_max:
        x = at(mark_x, 0).split(",")[0]
        parts.append(f'<path d="M{x},{TOP}V{bottom}" stroke="#b42318" stroke-dasharray="4 3"/>')
    for number, (label, line) in enumerate(lines):
        look = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-dasharray="{DASHES[number // len(COLOURS) % len(DASHES)]}"'
        path = "L".join(dict.fromkeys(at(x, y) for x, y in line))
        parts.append(f'<path d="M{path}" fill="none" stroke-width="1.6" {look}/>' if line else "")
        entry_y = TOP + 8 + 18 * number
        parts.append(
            f'<path d="M{right + 14},{entry_y}h22" stroke-width="3" {look}/>{_text(right + 42, entry_y + 4, label[:24])}'
        )
    return "".join(parts) + "</svg>\n"


def timeline_chart(run: Run, span_s: float, scale_s: float, unit: str) -> str:
    """An SVG with a row a GPU and a bar for each stay of an app on it."""
    colours = {
        app: f"hsl({n * 137.508 % 360:.0f},{(62, 48, 75)[n % 3]}%,{(52, 64, 42)[n // 3 % 3]}%)"
        for n, app in enumerate(sorted(run.apps))
    }
    height, right = TOP + BOTTOM + TIMELINE_ROW * max(1, len(run.gpu_names)), WIDTH - 20
    width = right - LEFT
    parts = [_open(height), _text(LEFT, 18, f"{run.label}: GPUs by app"), _text(right, height - 6, unit, "end")]
    for tick in ticks(span_s / scale_s):
        x = LEFT + tick * scale_s / span_s * width
        parts.append(
            f'<path d="M{x:.1f},{height - BOTTOM}v4" stroke="#8894a3"/>{_text(x, height - BOTTOM + 17, f"{tick:g}", "middle")}'
        )
    every = max(1, len(run.gpu_names) // 24)
    for k, (gpu, row) in enumerate(zip(run.gpu_names, run.timeline, strict=True)):
        y = TOP + k * TIMELINE_ROW
        if k % every == 0:
            parts.append(_text(LEFT - 6, y + TIMELINE_ROW, gpu[:9], "end"))
        for start_s, end_s, app in row:
            x, wide = LEFT + start_s / span_s * width, (end_s - start_s) / span_s * width
            fill = colours.get(app, "#888")
            parts.append(f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{TIMELINE_ROW - 1}" fill="{fill}"/>')
    return "".join(parts) + "</svg>\n"


def ticks(high: float, wanted: int = 6) -> list[float]:
    """About `wanted` round numbers from 0 to `high`."""
    rough = high / wanted
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough:
        power /= 10
    step = next(s * power for s in STEPS if s * power >= rough)
    return [k * step for k in range(int(high / step + 1e-9) + 1)]


def _open(height: int) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
    return f'{head}<rect width="{WIDTH}" height="{height}" fill="#fff"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    printable = "".join(c if c.isprintable() else "?" for c in text)  # XML has no escape for control characters
    return f'<text {place} font-family="sans-serif" font-size="12" fill="#3c4754">{escape(printable)}</text>'


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path
