"""The least max rho that any scheduler could reach on a trace, knowing all of it beforehand.

Two things bound it. No app ends before its longest job can (`critical`). And all apps together cannot do more than the GPUs
can: where each has to end by arrival + r * t_independent, work of an app divided at will over time, never on more GPUs at once
than its jobs can use, must fit (a maximum flow from apps to the stretches of time between arrivals and deadlines). With r = 1
it always fits, since the ideal fluid share is such a schedule; so the flow is asked only where `critical` is below 1, and only
where nobody declares speeds by GPU type.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from themis_arbiter.core.types import AppId
from themis_arbiter.sim.trace import FairApp

STEP: Final = 0.005  # of rho: how exact the flow's part is
EDGES_MAX: Final = 300_000  # of a flow network; past it only `critical` counts
SLACK: Final = 1e-6  # of all work: rounding


def max_rho_lower_bound(apps: Sequence[FairApp], fair_s: Mapping[AppId, float], gpus: int) -> float:
    """See the module's text; `fair_s` is t_independent, floored. A bound: the true least may be higher."""
    low = max(app.longest_s / fair_s[app.app_id] for app in apps)
    if any(app.speeds for app in apps):
        return low  # work of GPUs of several types is no matter of one flow
    bound, high = low, 1.0
    while high - bound > STEP:
        middle = (bound + high) / 2
        fits = _fits(apps, fair_s, gpus, middle)
        if fits is None:
            return low
        if fits:
            high = middle
        else:
            bound = middle
    return bound


def _fits(apps: Sequence[FairApp], fair_s: Mapping[AppId, float], gpus: int, rho: float) -> bool | None:
    """Whether all work can be done with nobody's rho above `rho`; None: the network would be too large."""
    windows = [(a.arrival_s, a.arrival_s + rho * fair_s[a.app_id]) for a in apps]
    points = sorted({t for window in windows for t in window})
    number = {t: k for k, t in enumerate(points)}
    if sum(number[end] - number[start] for start, end in windows) > EDGES_MAX:
        return None
    spans = [after - before for before, after in pairwise(points)]
    flow = _Flow(len(apps) + len(spans) + 2)
    source, sink = len(apps) + len(spans), len(apps) + len(spans) + 1
    for k, length in enumerate(spans):
        flow.edge(len(apps) + k, sink, length * gpus)
    for i, (app, (start, end)) in enumerate(zip(apps, windows, strict=True)):
        flow.edge(source, i, app.work_gpu_s)
        for k in range(number[start], number[end]):
            flow.edge(i, len(apps) + k, spans[k] * app.max_demand)
    work = sum(app.work_gpu_s for app in apps)
    return flow.most(source, sink) >= work * (1 - SLACK)


class _Flow:
    """Dinic's maximum flow. Edges lie in pairs, the even one forward and the odd one back."""

    def __init__(self, nodes: int) -> None:
        self._edges_of: list[list[int]] = [[] for _ in range(nodes)]
        self._to: list[int] = []
        self._room: list[float] = []
        self._least = 0.0  # room below this is none

    def edge(self, start: int, end: int, room: float) -> None:
        """Let `room` flow from `start` to `end`."""
        for at, to, free in ((start, end, room), (end, start, 0.0)):
            self._edges_of[at].append(len(self._to))
            self._to.append(to)
            self._room.append(free)

    def most(self, source: int, sink: int) -> float:
        """The maximum flow."""
        self._least = 1e-9 * max(self._room, default=0.0)
        total = 0.0
        while (level := self._levels(source, sink)) is not None:
            following = [0] * len(self._edges_of)
            while (pushed := self._push(source, sink, level, following)) > 0.0:
                total += pushed
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """Distance from the source by edges with room; None where the sink is out of reach."""
        level = [-1] * len(self._edges_of)
        level[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for edge in self._edges_of[node]:
                to = self._to[edge]
                if level[to] < 0 and self._room[edge] > self._least:
                    level[to] = level[node] + 1
                    queue.append(to)
        return level if level[sink] >= 0 else None

    def _push(self, source: int, sink: int, level: list[int], following: list[int]) -> float:
        """Push along one shortest path; `following` are the edges of each node that are still to be tried."""
        path: list[int] = []
        node = source
        while node != sink:
            edges, k = self._edges_of[node], following[node]
            while k < len(edges) and not self._goes_on(edges[k], level, node):
                k += 1
            following[node] = k
            if k < len(edges):
                path.append(edges[k])
                node = self._to[edges[k]]
            elif path:  # nothing goes on from here: back, and past it
                node = self._to[path.pop() ^ 1]
                following[node] += 1
            else:
                return 0.0
        pushed = min(self._room[edge] for edge in path)
        for edge in path:
            self._room[edge] -= pushed
            self._room[edge ^ 1] += pushed
        return pushed

    def _goes_on(self, edge: int, level: list[int], node: int) -> bool:
        return self._room[edge] > self._least and level[self._to[edge]] == level[node] + 1
