"""Networks for the flow policy: arcs with capacities and costs, and the cheapest flow through them (`kernels.flowing`)."""

from dataclasses import dataclass, field
from typing import Final

from themis_arbiter.core.kernels.flowing import cheapest_flow
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
        assert capacity >= 0, f"capacity {capacity} of an arc from {tail} to {head}"
        assert cost >= 0, f"cost {cost} of an arc from {tail} to {head}"
        self._arcs += (tail, head, capacity, cost)
        self.count += 1
        return self.count - 1

    def solve(self, source: int, sink: int, work_max: int = FLOW_WORK_MAX) -> int:
        """As much as can flow, at the least cost; returns how much more does. Less where `work` reaches its maximum."""
        run, table = runner(cheapest_flow)
        self.flows += [0] * (self.count - len(self.flows))
        flows = table(self.flows)
        total, work = run(table(self._arcs), flows, self.nodes, source, sink, self.work, work_max)
        self.flows, self.work = [int(n) for n in flows], int(work)
        return int(total)
