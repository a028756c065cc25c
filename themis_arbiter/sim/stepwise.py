"""Whole numbers that change at instants: who holds how many GPUs when. Exact; intervals are half open, [start, end)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from themis_arbiter.core.types import Millis

Span: TypeAlias = tuple[Millis, Millis | None, int]  # start, end (None: stays), amount


@dataclass(frozen=True, slots=True)
class Stepwise:
    """A step function of time: `values[i]` from `times[i]` on, 0 before `times[0]`."""

    times: tuple[Millis, ...] = ()
    values: tuple[int, ...] = ()

    def at(self, at_ms: Millis) -> int:
        """Its value at that instant, after everything that happens then."""
        index = bisect_right(self.times, at_ms) - 1
        return self.values[index] if index >= 0 else 0

    def over(self, start_ms: Millis, end_ms: Millis) -> list[int]:
        """All values that it takes in [start, end], both included."""
        first, last = bisect_right(self.times, start_ms), bisect_right(self.times, end_ms)
        return [self.at(start_ms), *self.values[first:last]]


def total(spans: Iterable[Span]) -> Stepwise:
    """The sum of amounts over the spans that are on."""
    deltas: dict[Millis, int] = {}
    for start_ms, end_ms, amount in spans:
        if end_ms is not None and end_ms <= start_ms:
            continue
        deltas[start_ms] = deltas.get(start_ms, 0) + amount
        if end_ms is not None:
            deltas[end_ms] = deltas.get(end_ms, 0) - amount
    times = tuple(sorted(deltas))
    values, now = [], 0
    for at_ms in times:
        now += deltas[at_ms]
        values.append(now)
    return Stepwise(times, tuple(values))


def levels(changes: Iterable[tuple[Millis, int]]) -> Stepwise:
    """A function given by its values and when each began, in order; of several at one instant the last holds."""
    last = dict(changes)
    return Stepwise(tuple(last), tuple(last.values()))


def where(holds: Callable[[Millis], bool], of: Iterable[Stepwise], until_ms: Millis) -> Iterator[tuple[Millis, Millis]]:
    """The longest intervals up to `until_ms` in which `holds`, a predicate that changes only where one of `of` does."""
    points = sorted({t for each in of for t in each.times if t < until_ms})
    begun: Millis | None = None
    for at_ms in points:
        if holds(at_ms):
            begun = at_ms if begun is None else begun
        elif begun is not None:
            yield begun, at_ms
            begun = None
    if begun is not None:
        yield begun, until_ms
