"""Winner determination: at most one row of every bid, on disjoint GPUs, with the largest weighted sum of log values.

Prices of GPUs give an upper bound and guide greedy starts; moves of one and of two apps and searches over groups of ten improve
them; a depth-first search over what can still be better closes the gap where it can (`kernels.search`). Work is counted, never
timed: past its limit the best found is returned with the bound of everything left unexplored. Nothing hangs on the order of
bids, on hashing or on time.
"""

from dataclasses import dataclass
from math import fsum
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Solution, Supply, Win
from themis_arbiter.core.auction.market import Market
from themis_arbiter.core.auction.naming import placements
from themis_arbiter.core.kernels.jit import runner
from themis_arbiter.core.kernels.layout import CHOSEN, N_CLASSES, N_STATE, NOBODY, Ints
from themis_arbiter.core.kernels.search import run
from themis_arbiter.core.types import AppId

SOLVER_NODES_MAX: Final = 12_000  # steps of the exact finish
CHECKS_PER_NODE: Final = 8  # pairs of apps that pair moves may look at, for each node of the exact finish


@dataclass(frozen=True, slots=True)
class Found:
    """A solution of one problem: `worth` and `bound` in quanta over everybody's zero row; the row of each bid."""

    rows: tuple[int, ...]
    worth: int
    bound: int
    work: int

    @property
    def is_proved(self) -> bool:
        """Whether nothing better exists."""
        return self.bound == self.worth


class Solver:
    """The auction of these bids, and the same without one of them."""

    def __init__(self, bids: tuple[Bid, ...], supply: Supply) -> None:
        self.market = Market(bids, supply)
        self._has_options = bool(self.market.option_rows)
        if self._has_options:
            self._run_kernel, self._table = runner(run)
            m = self.market.array
            self._array = self._table(m)
            self._index = {bid.app_id: k for k, bid in enumerate(self.market.bids)}
            self._is_in = self._table([1] * len(self.market.bids))
            self._prices = self._table([0] * m[N_CLASSES])
            self._states = [self._table([0] * m[N_STATE]) for _ in range(5)]  # the best of all bids, and working space

    def solve(self, nodes_max: int = SOLVER_NODES_MAX) -> Found:
        """The best of all bids."""
        if not self._has_options:
            return Found((0,) * len(self.market.bids), 0, 0, 0)
        return self._run(0, self._prices, NOBODY, nodes_max)

    def solve_without(self, app_id: AppId, nodes_max: int = SOLVER_NODES_MAX) -> Found:
        """The best of all other bids, after `solve` of all; never worth less than the others' part of what that found."""
        app = self._index[app_id]
        return self._run(3, self._table(self._prices), app, nodes_max)

    def _run(self, into: int, prices: Ints, without: int, nodes_max: int) -> Found:
        """One search; its best allocation goes into that state."""
        whole, trial, spare, _, other = states = self._states
        tables = self._array, whole, states[into], trial, spare, other, self._is_in, prices
        worth, bound, work = self._run_kernel(*tables, without, nodes_max, nodes_max * CHECKS_PER_NODE)
        chosen = self.market.table(states[into], CHOSEN, len(self.market.bids))
        rows = tuple(0 if option == NOBODY else self.market.option_rows[option] for option in chosen)
        return Found(rows, int(worth), int(bound), int(work))

    def solution(self, found: Found) -> Solution:
        """What `solve` found, on GPUs."""
        bids = self.market.bids
        placed = placements(self.market, self._states[0]) if self._has_options else [{} for _ in bids]
        welfare = fsum(bid.weight * bid.rows[row].log_value for bid, row in zip(bids, found.rows, strict=True))
        wins = tuple(
            Win(app_id=bid.app_id, row=row, gpus=gpus) for bid, row, gpus in zip(bids, found.rows, placed, strict=True)
        )
        return Solution(wins=wins, welfare=welfare, bound=welfare + self.slack(found), work=found.work)

    def slack(self, found: Found) -> float:
        """By how much the optimum may be above what was found, in weighted log value; 0 where it is proved."""
        if found.is_proved:
            return 0.0
        quanta = -(-(found.bound - found.worth) // self.market.gpu_quanta) + len(self.market.bids) + 1
        return quanta * self.market.quantum


def solve(bids: tuple[Bid, ...], supply: Supply, nodes_max: int = SOLVER_NODES_MAX) -> Solution:
    """The best disjoint rows of `bids`, placed; `bound` holds whatever `nodes_max` is."""
    solver = Solver(bids, supply)
    return solver.solution(solver.solve(nodes_max))
