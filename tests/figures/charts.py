"""Bars for our means with their intervals, the paper's numbers beside them; as SVG without a library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from themis_arbiter.sim.report_figures import COLOURS, ticks
from themis_arbiter.sim.sweep import Interval

HEIGHT: Final = 320
LEFT: Final = 60
TOP: Final = 56
BOTTOM: Final = 44
BAR: Final = 13
GAP: Final = 16
PAPER: Final = "#9aa4b1"


@dataclass(frozen=True, slots=True)
class Group:
    """Bars side by side under one name: ours by series, and the paper's by the same series where it has one."""

    name: str
    ours: Mapping[str, Interval]
    paper: Mapping[str, float]


def bar_chart(title: str, y_title: str, groups: Sequence[Group], series: Sequence[str]) -> str:
    """An SVG; for each series our bar in colour with its 95 % interval, and the paper's in grey right of it."""
    high = max(
        (v for g in groups for v in (*g.paper.values(), *(i.high if i.high is not None else i.mean for i in g.ours.values()))),
        default=1.0,
    )
    wide = [GAP + sum(BAR * (1 + (s in g.paper)) + 2 for s in series if s in g.ours) for g in groups]
    width = max(640, LEFT + sum(wide) + 20)
    base = HEIGHT - BOTTOM

    def y(value: float) -> float:
        return base - max(0.0, value) / high * (base - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}">',
        f'<rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
        _text(12, 20, title, size=14),
        _text(12, 46, y_title),
    ]
    parts += [
        f'<path d="M{LEFT},{y(t):.1f}H{width - 12}" stroke="#e2e6ec"/>{_text(LEFT - 6, y(t) + 4, f"{t:g}", "end")}'
        for t in ticks(high)
    ]
    x = float(LEFT)
    for group, room in zip(groups, wide, strict=True):
        x += GAP / 2
        start = x
        for number, name in enumerate(series):
            if name not in group.ours:
                continue
            found = group.ours[name]
            parts.append(_bar(x, y(found.mean), base, COLOURS[number % len(COLOURS)]))
            if found.low is not None and found.high is not None:
                parts.append(
                    f'<path d="M{x + BAR / 2},{y(found.low):.1f}V{y(found.high):.1f}" stroke="#1d2733" stroke-width="1.4"/>'
                )
            x += BAR
            if name in group.paper:
                parts.append(_bar(x, y(group.paper[name]), base, PAPER))
                x += BAR
            x += 2
        parts.append(_text((start + x) / 2, base + 18, group.name, "middle"))
        x = start + room - GAP / 2
    place = float(LEFT)
    for number, name in enumerate((*series, "the paper's")):
        colour = PAPER if number == len(series) else COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{place}" y="{HEIGHT - 16}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(place + 14, HEIGHT - 7, name))
        place += 26 + 7 * len(name)
    return "".join(parts) + "</svg>\n"


def _bar(x: float, top: float, base: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{top:.1f}" width="{BAR}" height="{max(0.0, base - top):.1f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} font-family="sans-serif" fill="#3c4754">{escape(text)}</text>'
