"""The picture of an auction benchmark: times beside those of other solvers, and certified gaps."""

from pathlib import Path
from statistics import median
from typing import Any, Final

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

PAPER_MS: Final = 354.0  # median of the paper's own solver on 64 GPUs
OURS: Final = "#1f5fa8"
PAID: Final = "#7fb2e5"
COLORS: Final = {"HiGHS": "#c4562e", "CP-SAT": "#6b8e23"}
GAP_LEAST: Final = 1e-4  # what is below is drawn as this


def draw(document: dict[str, Any], path: Path) -> None:
    """Write an SVG file of what `tests.bench.auction.document` returned."""
    rcParams["svg.hashsalt"] = "auction"
    rcParams["font.size"] = 8
    names = list(document["cases"])
    figure = Figure(figsize=(8.6, 0.9 + 0.3 * len(names)), layout="constrained")
    times, gaps = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    limit_s = document["about"]["others_seconds_max"]
    for at, name in enumerate(names):
        _times(times, at, document["cases"][name])
        _gaps(gaps, at, document["cases"][name])
    times.axvline(PAPER_MS, color="grey", linestyle=":", linewidth=1)
    times.annotate("the paper's, 64 GPUs", (PAPER_MS * 1.1, -0.75), color="grey", fontsize=7, annotation_clip=False)
    times.set(xscale="log", xlabel="CPU milliseconds: median, line to the most")
    times.set_yticks(range(len(names)), names)
    times.invert_yaxis()
    gaps.set(xscale="log", xlabel="certified gap, likewise (left edge: none)")
    gaps.set_xlim(left=GAP_LEAST * 0.7)
    for axes in (times, gaps):
        axes.grid(visible=True, axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [
        times.plot([], [], "o", color=OURS, label="winners")[0],
        times.plot([], [], "o", color=PAID, label="winners and all payments")[0],
        *(times.plot([], [], "x", color=c, label=n)[0] for n, c in COLORS.items()),
        times.plot([], [], "|", color="black", label=f"not all proved in {limit_s:.0f} s")[0],
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _times(axes: Axes, at: int, found: list[dict[str, Any]]) -> None:
    for values, color, y in (([m["solve_ms"] for m in found], OURS, at), ([m["all_ms"] for m in found], PAID, at + 0.18)):
        axes.plot([median(values), max(values)], [y, y], color=color, linewidth=1)
        axes.plot([median(values)], [y], "o", color=color, markersize=4)
    for k, (name, color) in enumerate(COLORS.items()):
        tried = [m["others"][name] for m in found if name in m["others"]]
        if tried:
            y = at - 0.16 - 0.14 * k
            axes.plot([median(o["cpu_ms"] for o in tried)], [y], "x", color=color, markersize=4)
            if not all(o["is_proved"] for o in tried):
                axes.plot([median(o["cpu_ms"] for o in tried)], [y], "|", color="black", markersize=6)


def _gaps(axes: Axes, at: int, found: list[dict[str, Any]]) -> None:
    gaps = [max(GAP_LEAST, m["bound"] - m["gain"]) for m in found]
    axes.plot([median(gaps), max(gaps)], [at, at], color=OURS, linewidth=1)
    axes.plot([median(gaps)], [at], "o", color=OURS, markersize=4)
