"""Upper bounds on what a set of apps can be worth together, from counts and prices.

Prices: let a GPU of a machine with n GPUs on offer cost pi_n >= 0. Disjoint placements cost at most sum(pi_n * GPUs), so
no solution is worth more than that sum and, of every app, its best surplus (worth less the cheapest place of the row).
Counts: rows together take no more GPUs than there are, so the surpluses are picked by a knapsack over the number of GPUs.
With all prices 0 this is the knapsack alone; prices add that only so many machines are large enough. They are lowered and
raised by subgradient steps (Polyak), and any prices at all give a valid bound.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from themis_arbiter.core.auction.market import Market, Need, Option
from themis_arbiter.core.types import Locality

PRICE_STEPS_MAX: Final = 60
STEP_SHRINK_AFTER: Final = 4  # steps without a better bound before the step is halved

Table = npt.NDArray[np.int64]  # [k][g]: the most surplus that apps k, k + 1, ... can have with g GPUs
Prices = tuple[int, ...]  # in quanta of worth, by class of machines
Alternative = tuple[tuple[int, int], ...]  # (class, GPUs there), where a need may be met


class Relaxation:
    """Bounds for one market. Machines with equally many GPUs on offer are one class."""

    def __init__(self, market: Market) -> None:
        floor = market.floor
        sizes = sorted(set(floor.offered))
        self._market = market
        self._class_of = tuple(sizes.index(n) for n in floor.offered)
        self._gpus = np.zeros(len(sizes), dtype=np.int64)  # on offer, by class
        for machine, n in enumerate(floor.offered):
            self._gpus[self._class_of[machine]] += n
        self._class_masks = [0] * len(sizes)
        for cell, mask in enumerate(floor.cell_masks):
            self._class_masks[self._class_of[floor.cell_machine[cell]]] |= mask
        self._alternatives = [self._alternatives_of(need) for need in market.needs]

    @property
    def gpu_count(self) -> int:
        """GPUs on offer."""
        return len(self._market.floor.supply.gpus)

    @property
    def free(self) -> Prices:
        """All prices 0."""
        return (0,) * len(self._gpus)

    def is_possible(self, option: Option) -> bool:
        """Whether each of its needs has a place when it is alone on the floor."""
        return all(self._alternatives[need] for need in option.needs)

    def surpluses(self, prices: Prices, options: Sequence[Option]) -> list[int]:
        """Worth less the cheapest place, of each option."""
        costs = [self._cheapest(need, prices)[0] for need in range(len(self._alternatives))]
        return [
            option.worth
            - sum(costs[need] for need in option.needs)
            - sum(p * (option.keep & mask).bit_count() for p, mask in zip(prices, self._class_masks, strict=True))
            for option in options
        ]

    def floor_price(self, prices: Prices) -> int:
        """What all GPUs on offer cost."""
        return sum(p * int(n) for p, n in zip(prices, self._gpus, strict=True))

    def table(self, surpluses: Sequence[Sequence[int]], options: Sequence[Sequence[Option]]) -> Table:
        """The knapsack over counts; row k is about apps k and later, its last entry about all GPUs."""
        free = self.gpu_count
        table = np.zeros((len(options) + 1, free + 1), dtype=np.int64)
        for k in range(len(options) - 1, -1, -1):
            best: dict[int, int] = {}
            for surplus, option in zip(surpluses[k], options[k], strict=True):
                best[option.gpu_count] = max(surplus, best.get(option.gpu_count, 0))
            row = table[k + 1].copy()
            for count, surplus in best.items():
                if surplus > 0:
                    np.maximum(row[count:], table[k + 1][: free + 1 - count] + surplus, out=row[count:])
            table[k] = row
        return table

    def tighten(self, options: Sequence[Sequence[Option]], target: int, prices: Prices, steps: int = PRICE_STEPS_MAX) -> Prices:
        """Prices near `prices` with a low bound, the first found at or below `target` (a value known to be reached)."""
        best, best_bound = self.free, None
        trial = np.array(prices, dtype=np.float64)
        scale, idle = 1.0, 0
        for _ in range(steps):
            whole = tuple(int(p) for p in trial.round())
            surpluses = [self.surpluses(whole, one) for one in options]
            table = self.table(surpluses, options)
            bound = self.floor_price(whole) + int(table[0][-1])
            if best_bound is None or bound < best_bound:
                best, best_bound, idle = whole, bound, 0
            else:
                idle += 1
            if idle == STEP_SHRINK_AFTER:
                scale, idle = scale / 2, 0
            slope = self._gpus - self._used(whole, self.chosen(table, surpluses, options))
            if bound <= target or not slope.any():
                break
            step = scale * (bound - target) / float(np.square(slope, dtype=np.float64).sum())
            trial = np.maximum(0.0, trial - step * slope)
        return best

    def chosen(
        self, table: Table, surpluses: Sequence[Sequence[int]], options: Sequence[Sequence[Option]]
    ) -> list[Option | None]:
        """The choice behind the table's last entry: one that would be best if only counts mattered."""
        choice: list[Option | None] = [None] * len(options)
        left = table.shape[1] - 1
        for k, one in enumerate(options):
            if table[k][left] == table[k + 1][left]:
                continue
            for surplus, option in zip(surpluses[k], one, strict=True):
                rest = left - option.gpu_count
                if rest >= 0 and surplus + int(table[k + 1][rest]) == int(table[k][left]):
                    choice[k], left = option, rest
                    break
        return choice

    def _used(self, prices: Prices, choice: Sequence[Option | None]) -> npt.NDArray[np.int64]:
        """GPUs of each class that a choice takes where they are cheapest."""
        used = np.zeros(len(prices), dtype=np.int64)
        for option in choice:
            if option is None:
                continue
            for klass, mask in enumerate(self._class_masks):
                used[klass] += (option.keep & mask).bit_count()
            for need in option.needs:
                for klass, count in self._cheapest(need, prices)[1]:
                    used[klass] += count
        return used

    def _cheapest(self, need: int, prices: Prices) -> tuple[int, Alternative]:
        """The least cost of a need, and where."""
        count = self._market.needs[need].count
        best: tuple[int, Alternative] | None = None
        for alternative in self._alternatives[need]:
            left, cost, taken = count, 0, []
            for klass, gpus in sorted(alternative, key=lambda one: (prices[one[0]], one[0])):
                part = min(left, gpus)
                cost += part * prices[klass]
                taken.append((klass, part))
                left -= part
                if left == 0:
                    break
            if best is None or cost < best[0]:
                best = cost, tuple(taken)
        return (0, ()) if best is None else best

    def _alternatives_of(self, need: Need) -> tuple[Alternative, ...]:
        floor = self._market.floor
        caps = floor.offered if need.caps is None else need.caps
        if need.level == Locality.SLOT:
            cells = range(len(floor.cells)) if need.pin is None else (need.pin,)
            able = [floor.cell_machine[c] for c in cells if len(floor.cells[c]) >= need.count]
            machines = [m for m in able if caps[m] >= need.count]
            return tuple((klass,) for klass in sorted({(self._class_of[m], need.count) for m in machines}))
        if need.level == Locality.MACHINE:
            among = range(len(floor.machines)) if need.pin is None else (need.pin,)
            machines = [m for m in among if min(floor.offered[m], caps[m]) >= need.count]
            return tuple((klass,) for klass in sorted({(self._class_of[m], need.count) for m in machines}))
        if need.level == Locality.CLUSTER:
            scopes: Sequence[Sequence[int]] = (range(len(floor.machines)),)
        elif need.pin is None:
            scopes = floor.rack_machines
        else:
            scopes = (floor.rack_machines[need.pin],)
        found: set[Alternative] = set()
        for scope in scopes:
            by_class: dict[int, int] = {}
            for machine in scope:
                most = min(floor.offered[machine], caps[machine]) // need.unit * need.unit
                by_class[self._class_of[machine]] = by_class.get(self._class_of[machine], 0) + most
            if sum(by_class.values()) >= need.count:
                found.add(tuple(sorted(by_class.items())))
        return tuple(sorted(found))
