"""Networks for the flow policy: arcs with capacities and costs, and the cheapest flow through them (`kernels.flowing`)."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from themis_arbiter.core.kernels.flowing import PER_ARC, cheapest_flow
from themis_arbiter.core.kernels.jit import runner

FLOW_WORK_MAX: Final = 400_000  # arcs looked at in one solve: some tenths of a second in Python


@dataclass
class FlowNetwork:
    """Nodes are 0 .. `nodes`-1; arcs are numbered as they are added."""

    nodes: int
    count: int = 0  # arcs
    work: int = 0
    flows: list[int] = field(default_factory=list)  # by arc, once solved

    def __post_init__(self) -> None:
        self._arcs: list[int] = []

    def add(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """A new arc; returns its number."""
        return self.add_all((tail, head, capacity, cost))

    def add_all(self, arcs: tuple[int, ...]) -> int:
        """New arcs, four numbers each: tail, head, capacity and cost, which are at least 0. Returns the first one's number."""
        first = self.count
        self._arcs += arcs
        self.count += len(arcs) // PER_ARC
        return first

    def solve(self, source: int, sink: int, work_max: int = FLOW_WORK_MAX) -> int:
        """As much as can flow, at the least cost; returns how much more does. Less where `work` reaches its maximum."""
        run, table = runner(cheapest_flow)
        assert min(self._arcs, default=0) >= 0, "an arc of a capacity or cost below 0"
        self.flows += [0] * (self.count - len(self.flows))
        flows = table(self.flows)
        total, work = run(table(self._arcs), flows, self.nodes, source, sink, self.work, work_max)
        self.flows, self.work = np.asarray(flows).tolist(), int(work)
        return int(total)
