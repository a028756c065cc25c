"""Cheapest flows by successive shortest paths.

Costs are whole numbers, at least 0. Each phase finds the distances of cheapest paths (Dijkstra on reduced costs) and fills all
cheapest paths at once, so there are as many phases as there are different path costs. Work is counted in arcs looked at; when
it runs out, the flow found is the cheapest of its size.

Arcs come as one array, four numbers each: tail, head, capacity, cost. Inside, every arc and its way back stand beside the other
arcs of their tails, in the order in which they came: in this order they are tried, which decides between flows that cost the
same.
"""

from collections.abc import Callable
from typing import Final

from themis_arbiter.core.kernels.jit import entry, kernel, zeros
from themis_arbiter.core.kernels.layout import Ints

UNREACHED: Final = 1 << 60
TAIL, HEAD, CAPACITY, COST, PER_ARC = range(5)

# Header of a network: where its tables begin. By arc: HEADS, ROOM (capacity left), COSTS, BACK (its way back). By node: FIRST
# of its arcs (and one more), POTENTIAL, DISTANCE, AT (which of its arcs is tried next), IS_ON_PATH. GIVEN: arcs as they came.
HEADS, ROOM, COSTS, BACK, FIRST, POTENTIAL, DISTANCE, AT, IS_ON_PATH, GIVEN, NETWORK_HEADER = range(11)


@kernel
def _cheapest_flow(arcs: Ints, flows: Ints, nodes: int, source: int, sink: int, work: int, work_max: int) -> tuple[int, int]:
    """Add to `flows` (one number for each arc) as much as can flow, at the least cost; how much that is, and the work then.

    `work`: what was done before; less than can flow where it reaches its maximum.
    """
    n = _network(arcs, flows, nodes)
    count = 2 * len(flows)
    heap, path, spent = zeros(count + 1), zeros(nodes), zeros(1)
    spent[0], total = work, 0
    while spent[0] < work_max and _shorten(n, nodes, source, sink, heap, spent):
        for node in range(nodes):
            n[n[AT] + node] = n[n[FIRST] + node]
        pushed = 1
        while pushed > 0:
            pushed = _push(n, source, sink, path, spent)
            total += pushed
    for k in range(len(flows)):
        flows[k] = n[n[ROOM] + n[n[BACK] + n[n[GIVEN] + k]]]
    return total, spent[0]


@kernel
def _network(arcs: Ints, flows: Ints, nodes: int) -> Ints:
    """The arcs and their ways back, by tail."""
    count = 2 * len(flows)
    n = zeros(NETWORK_HEADER + 4 * count + 5 * nodes + 1 + len(flows))
    n[HEADS] = NETWORK_HEADER
    n[ROOM], n[COSTS], n[BACK] = n[HEADS] + count, n[HEADS] + 2 * count, n[HEADS] + 3 * count
    n[FIRST] = n[BACK] + count
    n[POTENTIAL] = n[FIRST] + nodes + 1
    n[DISTANCE], n[AT], n[IS_ON_PATH] = n[POTENTIAL] + nodes, n[POTENTIAL] + 2 * nodes, n[POTENTIAL] + 3 * nodes
    n[GIVEN] = n[IS_ON_PATH] + nodes
    first, following = n[FIRST], n[AT]
    for k in range(len(flows)):
        n[first + arcs[PER_ARC * k + TAIL] + 1] += 1
        n[first + arcs[PER_ARC * k + HEAD] + 1] += 1
    for node in range(nodes):
        n[first + node + 1] += n[first + node]
        n[following + node] = n[first + node]
    for k in range(len(flows)):
        tail, head, cost = arcs[PER_ARC * k + TAIL], arcs[PER_ARC * k + HEAD], arcs[PER_ARC * k + COST]
        there = n[following + tail]
        n[following + tail] += 1
        back = n[following + head]
        n[following + head] += 1
        n[n[GIVEN] + k] = there
        n[n[HEADS] + there], n[n[HEADS] + back] = head, tail
        n[n[ROOM] + there], n[n[ROOM] + back] = arcs[PER_ARC * k + CAPACITY] - flows[k], flows[k]
        n[n[COSTS] + there], n[n[COSTS] + back] = cost, -cost
        n[n[BACK] + there], n[n[BACK] + back] = back, there
    return n


@kernel
def _shorten(n: Ints, nodes: int, source: int, sink: int, heap: Ints, spent: Ints) -> bool:
    """Make cheapest paths have reduced cost 0; False where the sink cannot be reached.

    Nodes as far as the sink, or farther, move with it: no arc's reduced cost falls below 0 by that. So it is searched
    no farther. The heap holds distances and nodes as one number each.
    """
    heads, room, costs, first, potential, distance = n[HEADS], n[ROOM], n[COSTS], n[FIRST], n[POTENTIAL], n[DISTANCE]
    for node in range(nodes):
        n[distance + node] = UNREACHED
    n[distance + source] = 0
    heap[0], waiting = source, 1
    while waiting > 0:
        nearest = _taken(heap, waiting)
        waiting -= 1
        d, node = nearest // nodes, nearest % nodes
        if d >= n[distance + sink]:
            break
        if d > n[distance + node]:
            continue
        spent[0] += n[first + node + 1] - n[first + node]
        base = d + n[potential + node]
        for arc in range(n[first + node], n[first + node + 1]):
            if n[room + arc] != 0:
                head = n[heads + arc]
                through = base + n[costs + arc] - n[potential + head]
                if through < n[distance + head]:
                    n[distance + head] = through
                    _put(heap, waiting, through * nodes + head)
                    waiting += 1
    end = n[distance + sink]
    if end == UNREACHED:
        return False
    for node in range(nodes):
        n[potential + node] += min(n[distance + node], end)
    return True


@kernel
def _put(heap: Ints, count: int, number: int) -> None:
    """One more number for a heap of so many; the least is at 0."""
    at = count
    while at > 0 and heap[(at - 1) // 2] > number:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = number


@kernel
def _taken(heap: Ints, count: int) -> int:
    """Take the least number from a heap of so many, at least one."""
    least, last = heap[0], heap[count - 1]
    at, below = 0, 1
    while below < count - 1:
        if below + 1 < count - 1 and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= last:
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = last
    return int(least)


@kernel
def _push(n: Ints, source: int, sink: int, path: Ints, spent: Ints) -> int:
    """Fill one path of reduced cost 0, going on where the last search of this phase left off; how much flows along it."""
    heads, room, costs, back, first = n[HEADS], n[ROOM], n[COSTS], n[BACK], n[FIRST]
    potential, following, is_on_path = n[POTENTIAL], n[AT], n[IS_ON_PATH]
    length, node = 0, source
    n[is_on_path + source] = 1
    while node != sink:
        begun, end, arc, is_further = n[following + node], n[first + node + 1], n[following + node], False
        base = n[potential + node]
        while arc < end and not is_further:
            head = n[heads + arc]
            if n[room + arc] > 0 and n[costs + arc] + base == n[potential + head] and n[is_on_path + head] == 0:
                path[length] = arc
                length += 1
                n[is_on_path + head] = 1
                is_further = True
            else:
                arc += 1
        n[following + node] = arc
        spent[0] += arc - begun
        if is_further:
            spent[0] += 1
            node = n[heads + arc]
            continue
        n[is_on_path + node] = 0
        if node == source:
            return 0
        length -= 1
        node = n[heads + n[back + path[length]]]
        n[following + node] += 1
    pushed = UNREACHED
    for k in range(length):
        pushed = min(pushed, n[room + path[k]])
    n[is_on_path + source] = 0
    for k in range(length):
        arc = path[k]
        n[room + arc] -= pushed
        n[room + n[back + arc]] += pushed
        n[is_on_path + n[heads + arc]] = 0
    return pushed


@entry
def cheapest_flow(version: int) -> Callable[[Ints, Ints, int, int, int, int, int], tuple[int, int]]:
    """See `_cheapest_flow`."""

    def versioned(arcs: Ints, flows: Ints, nodes: int, source: int, sink: int, work: int, work_max: int) -> tuple[int, int]:
        assert version > 0
        return _cheapest_flow(arcs, flows, nodes, source, sink, work, work_max)

    return versioned
