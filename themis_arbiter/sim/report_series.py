"""Arithmetic of a report's time series: averages over equal bins, and timelines cut to so many segments."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

Segment = tuple[float, float, str]  # start, end in seconds, and whose

TOUCHING_S: Final = 1.0  # a gap below this is no gap: a renewal may be told with rounded times
BIN_STEPS: Final = (1_600, 800, 400, 200, 100, 50)


def averaged(spans: Iterable[tuple[float, float, float]], span_s: float, bins: int) -> list[float]:
    """Time average of a sum of steps in each of `bins` equal parts of [0, span_s]; a step is (start, end, height).

    Linear in the number of steps and bins: a step adds to the two bins that it ends in and, by differences, to all between.
    """
    width = span_s / bins
    whole = [0.0] * (bins + 1)
    part = [0.0] * bins
    for start, end, height in spans:
        first, last = max(0.0, start) / width, min(end, span_s) / width
        if last <= first:
            continue
        a, b = min(int(first), bins - 1), min(int(last), bins - 1)
        if a == b:
            part[a] += height * (last - first)
            continue
        part[a] += height * (a + 1 - first)
        part[b] += height * (last - b)
        whole[a + 1] += height
        whole[b] -= height
    level, out = 0.0, []
    for k in range(bins):
        level += whole[k]
        out.append(level + part[k])
    return out


def merged(segments: Iterable[Segment]) -> list[Segment]:
    """Segments by start, neighbours of one owner joined."""
    out: list[Segment] = []
    for start, end, owner in sorted(segments):
        if out and out[-1][2] == owner and start - out[-1][1] <= TOUCHING_S:
            out[-1] = (out[-1][0], max(out[-1][1], end), owner)
        else:
            out.append((start, end, owner))
    return out


def thinned(rows: Sequence[Sequence[Segment]], span_s: float, segments_max: int) -> tuple[list[list[Segment]], float]:
    """The rows with at most about `segments_max` segments together, and the step they were cut to (0: exact).

    A cut row shows who holds the GPU at the middle of each step, so that what is drawn was true at that moment. The coarsest
    step is taken even where it leaves more.
    """
    if sum(map(len, rows)) <= segments_max:
        return [list(row) for row in rows], 0.0
    cut: list[list[Segment]] = []
    step_s = 0.0
    for bins in BIN_STEPS:
        step_s = span_s / bins
        cut = [_sampled(row, step_s) for row in rows]
        if sum(map(len, cut)) <= segments_max:
            break
    return cut, step_s


def _sampled(row: Sequence[Segment], step_s: float) -> list[Segment]:
    out: list[Segment] = []
    for start, end, owner in row:
        first, last = math.ceil(start / step_s - 0.5), math.ceil(end / step_s - 0.5)
        if last > first:
            out.append((first * step_s, last * step_s, owner))
    return merged(out)
