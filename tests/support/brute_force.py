"""A naive twin of the auction's solver: every row on every set of real GPUs, for supplies of up to a dozen GPUs.

It shares no code with the solver. A set of GPUs is a bit mask; `tables[k][free]` is the most that the apps up to k can
have together when only the GPUs in `free` are there, found by trying every set of GPUs that every row accepts.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.types import AppId, GpuId

GPUS_MAX = 14

Masks = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]


def best_welfare(bids: tuple[Bid, ...], supply: Supply) -> float:
    """The largest sum of log values over disjoint placements of at most one row of each bid."""
    return brute_force(bids, supply)[0]


def brute_force(bids: tuple[Bid, ...], supply: Supply) -> tuple[float, dict[AppId, float]]:
    """The best welfare, and of each app the best welfare of all others without it."""
    assert len(supply.gpus) <= GPUS_MAX, f"{len(supply.gpus)} GPUs are too many to try all sets"
    values = [_values(bid, supply) for bid in bids]
    size = 1 << len(supply.gpus)
    before = [np.zeros(size)]  # before[k]: bids 0 .. k - 1
    for accepted in values:
        before.append(_add(before[-1], accepted))
    after = [np.zeros(size)]  # after[k]: the last k bids
    for accepted in reversed(values):
        after.append(_add(after[-1], accepted))
    everything = size - 1
    sets = np.arange(size)
    without: dict[AppId, float] = {}
    for k, bid in enumerate(bids):
        without[bid.app_id] = float(np.max(before[k][sets] + after[len(bids) - k - 1][everything & ~sets]))
    return float(before[-1][everything]), without


def _add(table: Table, accepted: dict[int, float]) -> Table:
    """The table with one more app, which takes one of its accepted sets (the empty one included)."""
    free = np.arange(len(table))
    best = np.full(len(table), -np.inf)
    for mask, value in accepted.items():
        able = free[(free & mask) == mask]
        best[able] = np.maximum(best[able], table[able & ~mask] + value)
    return best


def _values(bid: Bid, supply: Supply) -> dict[int, float]:
    """Every set of GPUs that some row of the bid accepts, with the best log value that it brings."""
    best: dict[int, float] = {}
    for row in bid.rows:
        for mask in _row_sets(row, supply).tolist():
            best[mask] = max(row.log_value, best.get(mask, -np.inf))
    return best


def _row_sets(row: Row, supply: Supply) -> Masks:
    """Unions of disjoint sets, one for each part."""
    sets = np.zeros(1, dtype=np.int64)
    for part in row.parts:
        mine = np.array(_part_sets(part, supply), dtype=np.int64)
        pairs = np.nonzero((sets[:, None] & mine[None, :]) == 0)
        sets = np.unique(sets[pairs[0]] | mine[pairs[1]])
    return sets


def _part_sets(part: Part, supply: Supply) -> list[int]:
    """Every set of offered GPUs that this part accepts."""
    if any(gpu not in supply.gpus for gpu in part.keep):
        return []
    rest = [gpu for gpu in supply.gpus if gpu not in part.keep]
    index = {gpu: k for k, gpu in enumerate(supply.gpus)}
    return [
        sum(1 << index[gpu] for gpu in (*part.keep, *more))
        for more in combinations(rest, part.more)
        if accepts(part, more, supply)
    ]


def accepts(part: Part, more: tuple[GpuId, ...], supply: Supply) -> bool:
    """Whether `more` beside the part's own GPUs is what it asks for."""
    places = supply.topology.places
    on_node: dict[str, int] = {}
    for gpu in more:
        node = places[gpu].machine
        on_node[node] = on_node.get(node, 0) + 1
    if any(n % part.unit or n > supply.room_on(part.job_id, node) for node, n in on_node.items()):
        return False
    types = {m.name: m.gpu_type.lower() for m in supply.topology.machines}
    if part.types and any(types[node] not in part.types for node in on_node):
        return False
    mine = (*part.anchor, *part.keep, *more)
    return all(gpu in places for gpu in mine) and supply.topology.locality(mine) <= part.level
