"""Cheapest flows by successive shortest paths, for the flow policy.

Costs are whole numbers, at least 0. Each phase finds the distances of cheapest paths (Dijkstra on reduced costs) and fills all
cheapest paths at once, so there are as many phases as there are different path costs. Work is counted in arcs looked at; when
it runs out, the flow found is the cheapest of its size, and the rest of the supply stays where it is.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

FLOW_WORK_MAX: Final = 400_000  # arcs looked at in one solve: some tenths of a second
UNREACHED: Final = 1 << 60


@dataclass
class FlowNetwork:
    """Nodes are 0 .. `nodes`-1. Arc 2k is the k-th added, 2k+1 its way back."""

    nodes: int
    heads: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)  # capacity left
    costs: list[int] = field(default_factory=list)
    work: int = 0

    def __post_init__(self) -> None:
        self._out: list[list[int]] = [[] for _ in range(self.nodes)]

    def add(self, tail: int, head: int, capacity: int, cost: int) -> int:
        """A new arc; returns its number."""
        assert capacity >= 0, f"capacity {capacity} of an arc from {tail} to {head}"
        assert cost >= 0, f"cost {cost} of an arc from {tail} to {head}"
        for start, end, room, price in ((tail, head, capacity, cost), (head, tail, 0, -cost)):
            self._out[start].append(len(self.heads))
            self.heads.append(end)
            self.room.append(room)
            self.costs.append(price)
        return len(self.heads) - 2

    def flow(self, arc: int) -> int:
        """What flows along an arc."""
        return self.room[arc ^ 1]

    def solve(self, source: int, sink: int, work_max: int = FLOW_WORK_MAX) -> int:
        """As much as can flow, at the least cost; returns how much does. Less than can where `work` reaches its maximum."""
        total = 0
        potential = [0] * self.nodes
        while self.work < work_max and self._shorten(source, sink, potential):
            at = [0] * self.nodes
            while pushed := self._push(source, sink, potential, at):
                total += pushed
        return total

    def _shorten(self, source: int, sink: int, potential: list[int]) -> bool:
        """Make cheapest paths have reduced cost 0; False where the sink cannot be reached.

        Nodes as far as the sink, or farther, move with it: no arc's reduced cost falls below 0 by that. So it is searched
        no farther.
        """
        room, heads, costs, out_of = self.room, self.heads, self.costs, self._out
        distance = [UNREACHED] * self.nodes
        distance[source] = 0
        heap = [(0, source)]
        while heap:
            d, node = heappop(heap)
            if d >= distance[sink]:
                break
            if d > distance[node]:
                continue
            out = out_of[node]
            self.work += len(out)
            base = d + potential[node]
            for arc in out:
                if room[arc]:
                    head = heads[arc]
                    through = base + costs[arc] - potential[head]
                    if through < distance[head]:
                        distance[head] = through
                        heappush(heap, (through, head))
        end = distance[sink]
        if end == UNREACHED:
            return False
        for node, d in enumerate(distance):
            potential[node] += min(d, end)
        return True

    def _push(self, source: int, sink: int, potential: list[int], at: list[int]) -> int:
        """Fill one path of reduced cost 0, going on where the last search of this phase left off (`at`)."""
        room, heads, costs = self.room, self.heads, self.costs
        path: list[int] = []
        on_path = {source}
        node = source
        while node != sink:
            out = self._out[node]
            while at[node] < len(out):
                arc = out[at[node]]
                head = heads[arc]
                self.work += 1
                if room[arc] > 0 and costs[arc] + potential[node] == potential[head] and head not in on_path:
                    path.append(arc)
                    on_path.add(head)
                    node = head
                    break
                at[node] += 1
            else:
                if node == source:
                    return 0
                on_path.discard(node)
                node = heads[path.pop() ^ 1]
                at[node] += 1
        pushed = min(self.room[arc] for arc in path)
        for arc in path:
            self.room[arc] -= pushed
            self.room[arc ^ 1] += pushed
        return pushed
