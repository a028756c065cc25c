"""Partial allocation (paper, 4.2): winners of the Nash product, and the part of its win that each one does not keep.

    c_i = product over j != i of v_j(G_pf)  /  product over j != i of v_j(optimum without i)         v = 1 / rho

The hidden payment 1 - c_i is what i's presence costs the others; paying it is what makes an honest bid the best one. c_i is
a share of a bundle, but gangs are whole: what a winner keeps is rounded up, in its favour, so that every job that stays has
its gang and no winner leaves with nothing (rounding down starves winners of one gang outright).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, exp, floor, fsum
from sys import float_info
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Part, Payment, Placement, Solution, Supply, Win
from themis_arbiter.core.auction.exchange import spare_holders
from themis_arbiter.core.auction.solver import SOLVER_NODES_MAX, Found, Solver
from themis_arbiter.core.settings import Rounding
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId, GpuId, JobId, NodeName

LEFT_OUT_NODES_MIN: Final = 600  # of each search without a winner, so that all of them end in a few times one solve
SHARE_SLACK: Final = 1e-6  # of a GPU: a share that is whole but for rounding is whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an auction; kept, withheld and unsold GPUs are the supply, each GPU once."""

    solution: Solution
    payments: tuple[Payment, ...]  # of each winner, in order of app id
    kept: Mapping[AppId, Placement]  # of each winner; a job that keeps nothing is absent
    withheld: tuple[GpuId, ...]
    unsold: tuple[GpuId, ...]


def partial_allocation(
    bids: tuple[Bid, ...],
    supply: Supply,
    gangs: Mapping[JobId, int],
    *,
    payments: bool = True,
    nodes_max: int = SOLVER_NODES_MAX,
    rounding: Rounding = Rounding.UP,
    lot: str = "",
) -> Outcome:
    """Hold the auction. `gangs`: the fewest GPUs that a job runs on; one that is not named runs on any number.

    `nodes_max` bounds the search for the winners; the searches without one of them share as much again, but each may
    use LEFT_OUT_NODES_MIN or `nodes_max`, whichever is less. Without `payments` every winner keeps all that it wins. `lot`
    is what a lottery's chance is a hash of, with the app's name.
    """
    if not bids:  # the most frequent auction of all
        nothing = Solution(wins=(), welfare=0.0, bound=0.0, work=0)
        return Outcome(solution=nothing, payments=(), kept={}, withheld=(), unsold=tuple(supply.gpus))
    solver = Solver(bids, supply)
    found = solver.solve(nodes_max)
    solution = spare_holders(solver.solution(found), bids, supply)
    rows = {bid.app_id: bid.rows for bid in bids}
    winners = max(1, sum(row > 0 for row in found.rows))
    left_out_nodes = min(nodes_max, max(LEFT_OUT_NODES_MIN, nodes_max // winners))
    kept: dict[AppId, Placement] = {}
    paid: list[Payment] = []
    for app, win in enumerate(solution.wins):
        if win.row == 0:
            continue
        low, high = 1.0, 1.0
        if payments:
            low, high = _share(solver, found, app, solver.solve_without(win.app_id, left_out_nodes))
        won = sum(len(gpus) for gpus in win.gpus.values())
        parts = rows[win.app_id][win.row].parts
        up = keep_share(parts, win, max(1, ceil(high * won - SHARE_SLACK)), gangs, supply.topology)
        kept[win.app_id] = up if rounding is Rounding.UP else _rounded(up, parts, win, high * won, gangs, supply, rounding, lot)
        count = sum(len(gpus) for gpus in kept[win.app_id].values())
        paid.append(Payment(app_id=win.app_id, share=low, share_max=high, won=won, kept=count))
    all_won = {gpu for win in solution.wins for gpus in win.gpus.values() for gpu in gpus}
    all_kept = {gpu for placement in kept.values() for gpus in placement.values() for gpu in gpus}
    return Outcome(
        solution=solution,
        payments=tuple(paid),
        kept=kept,
        withheld=tuple(gpu for gpu in supply.gpus if gpu in all_won and gpu not in all_kept),
        unsold=tuple(gpu for gpu in supply.gpus if gpu not in all_won),
    )


def _share(solver: Solver, with_it: Found, app: int, without: Found) -> tuple[float, float]:
    """The bracket of c_i: from what the others could reach at most without i, and from what they were found to reach."""
    bids = solver.market.bids
    gain = fsum(
        bid.weight * (bid.rows[row].log_value - bid.rows[row_with].log_value)
        for k, (bid, row, row_with) in enumerate(zip(bids, without.rows, with_it.rows, strict=True))
        if row != row_with and k != app
    )
    weight = bids[app].weight
    high = max(float_info.min, exp(-max(0.0, gain) / weight))
    return max(float_info.min, min(high, exp((-max(0.0, gain) - solver.slack(without)) / weight))), high


def keep_share(parts: tuple[Part, ...], win: Win, target: int, gangs: Mapping[JobId, int], topology: Topology) -> Placement:
    """The fewest GPUs, at least `target`, that leave every job of the row whole or out.

    Jobs go first, the last part of the row before the others; then growth beyond the gangs, in units. A job that runs on
    GPUs outside the offer may go back to those alone.
    """
    sizes = {part.job_id: len(win.gpus[part.job_id]) for part in parts}
    total = sum(sizes.values())
    for part in reversed(parts):
        if total - sizes[part.job_id] >= target:
            total -= sizes.pop(part.job_id)
    kept: dict[JobId, tuple[GpuId, ...]] = {}
    for part in reversed(parts):
        size = sizes.get(part.job_id, 0)
        # What it holds anyway counts towards its gang, and may be less than one: leases do not all end in the same round.
        floor = min(size, max(0, gangs.get(part.job_id, 1) - len(part.anchor)))
        units = max(0, min(total - target, size - floor)) // part.unit
        gpus = _shrink(part, win.gpus[part.job_id], units, topology) if size else ()
        total -= size - len(gpus)
        if gpus:
            kept[part.job_id] = gpus
    return dict(sorted(kept.items()))


def _rounded(
    up: Placement,
    parts: tuple[Part, ...],
    win: Win,
    share: float,
    gangs: Mapping[JobId, int],
    supply: Supply,
    rounding: Rounding,
    lot: str,
) -> Placement:
    """What a winner keeps that may keep less than its share: the most whole gangs within it, or by lot `up`."""
    most, down = floor(share + SHARE_SLACK), up
    for target in range(most, -1, -1):
        down = keep_share(parts, win, target, gangs, supply.topology)
        if _count(down) <= most:
            break
    if rounding is Rounding.DOWN or _count(up) == _count(down):
        return down
    chance = (share - _count(down)) / (_count(up) - _count(down))
    drawn = int.from_bytes(blake2b(f"{lot}/{win.app_id}".encode(errors="replace"), digest_size=8).digest(), "big") / 2**64
    return up if drawn < chance else down


def _count(placement: Placement) -> int:
    return sum(len(gpus) for gpus in placement.values())


def _shrink(part: Part, gpus: tuple[GpuId, ...], units: int, topology: Topology) -> tuple[GpuId, ...]:
    """The job's GPUs less `units` whole units: new ones before those it holds, where it has fewest first."""
    left = list(gpus)
    for _ in range(units):
        on_node: dict[NodeName, int] = {}
        for gpu in left:
            node = topology.places[gpu].machine
            on_node[node] = on_node.get(node, 0) + 1
        for is_kept in (False, True):
            pool: dict[NodeName, list[GpuId]] = {}
            for gpu in left:
                if (gpu in part.keep) == is_kept:
                    pool.setdefault(topology.places[gpu].machine, []).append(gpu)
            able = [node for node, held in pool.items() if len(held) >= part.unit]
            if able:
                node = min(able, key=lambda one: (on_node[one], one))
                by_slot = sorted(pool[node], key=lambda gpu: topology.places[gpu].ordinal)
                left = [gpu for gpu in left if gpu not in by_slot[-part.unit :]]
                break
    return tuple(left)
