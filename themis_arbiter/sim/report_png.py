"""The line figures as PNG. matplotlib is no part of an installation: where it is missing there are none."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from themis_arbiter.sim.report_figures import COLOURS, Figure

DPI: Final = 110
MARKERLESS_DASHES: Final = ("-", "--", ":", "-.")


def write_png(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure (its axes' titles and its lines) as PNG; the files written, none without matplotlib."""
    if find_spec("matplotlib") is None:
        return []
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    written: list[Path] = []
    for name, (x_title, y_title, lines) in figures.items():
        # No pyplot: it keeps figures alive and looks for a display.
        figure = Canvas(figsize=(9, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for number, (label, line) in enumerate(lines):
            look = MARKERLESS_DASHES[number // len(COLOURS) % len(MARKERLESS_DASHES)]
            # "$" would start a formula and a leading "_" would hide the entry.
            shown = "\u200b" + "".join(c if c.isprintable() else "?" for c in label).replace("$", r"\$")
            axes.plot(
                [x for x, _ in line],
                [y for _, y in line],
                look,
                color=COLOURS[number % len(COLOURS)],
                label=shown,
                linewidth=1.4,
            )
        if name == "rho_cdf":
            axes.axvline(1.0, color="#b42318", linestyle="--", linewidth=0.8)
        axes.set_xlabel(x_title)
        axes.set_ylabel(y_title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, color="#e2e6ec")
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
        written.append(folder / f"{name}.png")
        figure.savefig(written[-1], dpi=DPI)
    return written
