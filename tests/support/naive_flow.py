"""Cheapest flows the slow and plain way: any largest flow, then cycles of negative cost until there are none (Klein)."""

from collections import deque

Arc = tuple[int, int, int, int]  # tail, head, capacity, cost


def cheapest_flow(nodes: int, arcs: list[Arc], source: int, sink: int) -> tuple[int, int]:
    """The largest flow and its least cost."""
    heads = [arc[1 - k] if k else arc[1] for arc in arcs for k in (0, 1)]
    tails = [arc[1] if k else arc[0] for arc in arcs for k in (0, 1)]
    costs = [-arc[3] if k else arc[3] for arc in arcs for k in (0, 1)]
    room = [0 if k else arc[2] for arc in arcs for k in (0, 1)]
    total = 0
    while (path := _path(nodes, tails, heads, room, source, sink)) is not None:
        total += _push(room, path)
    while (cycle := _negative_cycle(nodes, tails, heads, room, costs)) is not None:
        _push(room, cycle)
    return total, sum(costs[k] * room[k ^ 1] for k in range(0, len(room), 2))


def _push(room: list[int], path: list[int]) -> int:
    amount = min(room[k] for k in path)
    for k in path:
        room[k] -= amount
        room[k ^ 1] += amount
    return amount


def _path(nodes: int, tails: list[int], heads: list[int], room: list[int], source: int, sink: int) -> list[int] | None:
    came: list[int] = [-1] * nodes
    seen, queue = {source}, deque([source])
    while queue:
        node = queue.popleft()
        for k, tail in enumerate(tails):
            if tail == node and room[k] > 0 and heads[k] not in seen:
                seen.add(heads[k])
                came[heads[k]] = k
                queue.append(heads[k])
    if sink not in seen:
        return None
    path, node = [], sink
    while node != source:
        path.append(came[node])
        node = tails[came[node]]
    return path


def _negative_cycle(nodes: int, tails: list[int], heads: list[int], room: list[int], costs: list[int]) -> list[int] | None:
    """By Bellman and Ford: what still gets shorter after as many passes as there are nodes lies behind a cycle."""
    distance, came, last = [0] * nodes, [-1] * nodes, -1
    for _ in range(nodes):
        last = -1
        for k, tail in enumerate(tails):
            if room[k] > 0 and distance[tail] + costs[k] < distance[heads[k]]:
                distance[heads[k]] = distance[tail] + costs[k]
                came[heads[k]] = k
                last = heads[k]
    if last == -1:
        return None
    for _ in range(nodes):
        last = tails[came[last]]
    cycle, node = [came[last]], tails[came[last]]
    while node != last:
        cycle.append(came[node])
        node = tails[came[node]]
    return cycle
