"""Draws who held which GPU when, from a run's journal, as one SVG with no scripts and nothing to fetch.

A row is a GPU, rows are grouped by node; a bar is a lease, coloured by app: pale while it is decided but not granted, hatched
while it drains. Vertical lines are the common lease ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from themis_arbiter.core.types import AppId, Millis
from themis_arbiter.sim.run_facts import JournalFacts, LeaseLife

# Told apart by people who see few colours, in this order; more apps than these share colours.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7b00", "#5b5b9e")
ROW: Final = 20
BAR: Final = 15
NODE_GAP: Final = 10
LEFT: Final = 150
TOP: Final = 92
RIGHT: Final = 24
BOTTOM: Final = 46
WIDTH: Final = 1_100
TICKS_MAX: Final = 12
TICK_STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)
LEGEND_STEP: Final = 8  # pixels of a letter in the legend
NAME_LENGTH_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class _Scale:
    """Time to pixels."""

    first_ms: Millis
    last_ms: Millis

    def x(self, at_ms: Millis) -> float:
        within = min(max(at_ms, self.first_ms), self.last_ms)
        return LEFT + (within - self.first_ms) / max(1, self.last_ms - self.first_ms) * (WIDTH - LEFT - RIGHT)


def draw(facts: JournalFacts, title: str = "Who held which GPU when") -> str:
    """The picture as SVG text."""
    apps = list(dict.fromkeys(job.app_id for job in sorted(facts.jobs, key=lambda j: (_first_ask(j.asked), j.job_id))))
    rows = _rows(facts)
    height = max(rows.values(), default=TOP) + ROW + BOTTOM
    scale = _scale(facts)
    body = [
        f'<text x="{LEFT}" y="28" class="title">{escape(title)}</text>',
        *_legend(apps),
        *_frame(facts, rows, scale, height - BOTTOM),
        *(part for lease in facts.leases if lease.gpu in rows for part in _bars(lease, rows[lease.gpu], apps, scale)),
    ]
    return _document(height, [*_patterns(apps), *body])


def _document(height: int, body: Sequence[str]) -> str:
    style = (
        "text{font:12px sans-serif;fill:#222}.title{font-size:17px;font-weight:bold}.node{font-weight:bold}"
        ".dim{fill:#666}.grid{stroke:#777;stroke-dasharray:3 3}.row{stroke:#e4e4e4}.axis{stroke:#222}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        f'<style>{style}</style><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *body, "</svg>"]) + "\n"


def _first_ask(asked: Sequence[tuple[Millis, int]]) -> Millis:
    return asked[0][0] if asked else 0


def _scale(facts: JournalFacts) -> _Scale:
    """From the first lease to the last thing that happened to one, with a little air."""
    starts = [x.entered_ms for x in facts.leases]
    ends = [x.ended_ms if x.ended_ms is not None else facts.last_ms for x in facts.leases]
    first_ms, last_ms = min(starts, default=facts.first_ms), max(ends, default=facts.last_ms)
    air = max(500, (last_ms - first_ms) // 50)
    return _Scale(max(facts.first_ms, first_ms - air), last_ms + air)


def _rows(facts: JournalFacts) -> dict[str, int]:
    """The top of each GPU's row."""
    rows, y = {}, TOP
    for node, count in facts.gpus.items():
        for ordinal in range(count):
            rows[f"{node}:{ordinal}"] = y
            y += ROW
        y += NODE_GAP
    return rows


def _patterns(apps: Sequence[AppId]) -> Iterator[str]:
    yield "<defs>"
    for index in range(min(len(apps), len(COLOURS))):
        yield (
            f'<pattern id="drain{index}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="6" height="6" fill="#fff"/><rect width="3" height="6" fill="{COLOURS[index]}"/></pattern>'
        )
    yield "</defs>"


def _legend(apps: Sequence[AppId]) -> Iterator[str]:
    x = LEFT
    for index, app_id in enumerate(apps):
        name = app_id if len(app_id) <= NAME_LENGTH_MAX else app_id[: NAME_LENGTH_MAX - 3] + "..."
        yield f'<rect x="{x}" y="44" width="14" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>'
        yield f'<text x="{x + 19}" y="54">{escape(name)}</text>'
        x += 19 + LEGEND_STEP * len(name) + 12
    if apps:
        yield f'<rect x="{LEFT}" y="66" width="14" height="12" fill="url(#drain0)" stroke="{COLOURS[0]}"/>'
        yield f'<text x="{LEFT + 19}" y="76" class="dim">draining</text>'
        x = LEFT + 95
        yield f'<rect x="{x}" y="66" width="14" height="12" fill="{COLOURS[0]}" fill-opacity="0.3"/>'
        yield f'<text x="{x + 19}" y="76" class="dim">promised, waits for the rest of its gang or the store</text>'
        x += 340
        yield f'<line x1="{x}" y1="64" x2="{x}" y2="80" class="grid"/>'
        yield f'<text x="{x + 8}" y="76" class="dim">common lease end</text>'


def _frame(facts: JournalFacts, rows: dict[str, int], scale: _Scale, bottom: int) -> Iterator[str]:
    for gpu, y in rows.items():
        node, _, ordinal = gpu.rpartition(":")
        middle = y + ROW // 2 + 4
        yield f'<line x1="{LEFT}" y1="{y + ROW}" x2="{WIDTH - RIGHT}" y2="{y + ROW}" class="row"/>'
        yield f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end" class="dim">{escape(ordinal)}</text>'
        if ordinal == "0":
            yield f'<text x="8" y="{middle}" class="node">{escape(node)}</text>'
            yield f'<text x="8" y="{middle + 15}" class="dim">{escape(facts.racks.get(node, "").strip("/"))}</text>'
    for end_ms in facts.grid_ends_ms:
        if scale.first_ms < end_ms < scale.last_ms:
            x = scale.x(end_ms)
            yield f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" class="grid"/>'
    yield f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}" class="axis"/>'
    yield from _ticks(scale, bottom)


def _ticks(scale: _Scale, bottom: int) -> Iterator[str]:
    span_s = (scale.last_ms - scale.first_ms) / 1_000
    step_s = next((s for s in TICK_STEPS_S if span_s / s <= TICKS_MAX), TICK_STEPS_S[-1])
    for tick in range(min(TICKS_MAX, int(span_s // step_s)) + 1):
        x = scale.x(scale.first_ms + tick * step_s * 1_000)
        yield f'<line x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}" class="axis"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{tick * step_s}</text>'
    text = "seconds since shortly before the first lease"
    yield f'<text x="{WIDTH - RIGHT}" y="{bottom + 38}" text-anchor="end" class="dim">{text}</text>'


def _bars(lease: LeaseLife, y: int, apps: Sequence[AppId], scale: _Scale) -> Iterator[str]:
    index = apps.index(lease.app_id) % len(COLOURS) if lease.app_id in apps else 0
    over_ms = scale.last_ms if lease.ended_ms is None else lease.ended_ms
    # A promise is drawn only once the GPU is its own: until then the bar is the present holder's.
    start_ms = lease.current_ms if lease.current_ms is not None else lease.granted_ms
    if start_ms is None:
        return
    granted_ms = min(lease.granted_ms if lease.granted_ms is not None else over_ms, over_ms)
    drain_ms = min(lease.draining_ms if lease.draining_ms is not None else over_ms, over_ms)
    text = escape(f"{lease.app_id}: {lease.lease_id} on {lease.gpu}")
    colour = COLOURS[index]
    parts = (
        (start_ms, granted_ms, f'fill="{colour}" fill-opacity="0.3"'),
        (granted_ms, drain_ms, f'fill="{colour}"'),
        (drain_ms, over_ms, f'fill="url(#drain{index})" stroke="{colour}" stroke-width="0.5"'),
    )
    top = y + (ROW - BAR) // 2
    for from_ms, to_ms, look in parts:
        if to_ms > from_ms:
            x, width = scale.x(from_ms), scale.x(to_ms) - scale.x(from_ms)
            yield f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" {look}><title>{text}</title></rect>'
    if granted_ms < over_ms:
        yield f'<line x1="{scale.x(granted_ms):.1f}" y1="{top}" x2="{scale.x(granted_ms):.1f}" y2="{top + BAR}" stroke="#fff"/>'
