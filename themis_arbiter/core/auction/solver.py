"""Winner determination: at most one row of every bid, on disjoint GPUs, with the largest sum of log values.

Depth-first search over apps, the best bound first, from a greedy start that is improved app by app. A branch lives while
its bound (counts and prices, see `bound`) is above the best found and what it has chosen so far still packs. Work is
counted in nodes; when they run out, the best found is returned with the bound of everything left unexplored. Nothing hangs
on the order of bids, on hashing or on time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Solution, Supply, Win
from themis_arbiter.core.auction.bound import PRICE_STEPS_MAX, Prices, Relaxation
from themis_arbiter.core.auction.market import GPU_QUANTA, LOG_QUANTUM, Market, Option
from themis_arbiter.core.auction.packing import NOTHING, PACK_NODES_MAX, Budget, Fit, Packer, Question
from themis_arbiter.core.types import AppId

SOLVER_NODES_MAX: Final = 20_000  # a second or two at the worst; small clusters need hundreds
MARGIN_SHARE: Final = 8  # a GPU's price is that of the last one in so many
START_PACK_NODES_MAX: Final = 200  # the start does not insist on packings that are hard to find
START_NODES_SHARE: Final = 8  # each greedy start may use one node in so many
FREE_NODES_SHARE: Final = 4  # and with the search before prices are worked out, which most small problems do not need
LEFT_OUT_STEPS_MAX: Final = 10  # of prices, for a leave-one-out problem: they start from the whole problem's

Choice = tuple[Option | None, ...]  # of each app of a problem; None is the zero row
Branch = tuple[int, int, Option | None]  # bound, minus the position of the option, the option


@dataclass(frozen=True, slots=True)
class Found:
    """A solution of one problem: `worth` and `bound` in quanta over everybody's zero row."""

    choice: dict[AppId, Option]
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
        self._packer = Packer(self.market)
        self._relaxation = Relaxation(self.market)
        self._options = {
            bid.app_id: [o for o in options if self._relaxation.is_possible(o)]
            for bid, options in zip(self.market.bids, self.market.options, strict=True)
        }
        self._prices: Prices = self._relaxation.free

    def solve(self, nodes_max: int = SOLVER_NODES_MAX) -> Found:
        """The best of all bids."""
        return self._solve(tuple(self._options), {}, Budget(nodes_max), PRICE_STEPS_MAX)

    def solve_without(self, app_id: AppId, start: Found, nodes_max: int = SOLVER_NODES_MAX) -> Found:
        """The best of all other bids; never worth less than the others' part of `start`."""
        others = tuple(one for one in self._options if one != app_id)
        return self._solve(others, start.choice, Budget(nodes_max), LEFT_OUT_STEPS_MAX)

    def solution(self, found: Found) -> Solution:
        """What was found, on GPUs."""
        bids = self.market.bids
        rows = [found.choice[bid.app_id].row if bid.app_id in found.choice else 0 for bid in bids]
        placed = self._packer.place(list(enumerate(rows)))
        welfare = fsum(bid.rows[row].log_value for bid, row in zip(bids, rows, strict=True))
        slack = 0.0 if found.is_proved else log_value(found.bound - found.worth) + (len(bids) + 1) * LOG_QUANTUM
        wins = tuple(Win(app_id=bid.app_id, row=row, gpus=gpus) for bid, row, gpus in zip(bids, rows, placed, strict=True))
        return Solution(wins=wins, welfare=welfare, bound=welfare + slack, work=found.work)

    def _solve(self, apps: tuple[AppId, ...], start: dict[AppId, Option], budget: Budget, steps: int) -> Found:
        # Those with most at stake first: their choice decides most of the bound.
        order = sorted(apps, key=lambda a: (-max((o.worth for o in self._options[a]), default=0), a))
        problem = _Problem([self._options[a] for a in order], self._packer, self._relaxation, budget)
        problem.start([start.get(a) for a in order], budget.nodes_max // START_NODES_SHARE)
        bound = problem.search(budget.nodes_max // FREE_NODES_SHARE)
        if bound > problem.worth:
            bound = min(bound, problem.set_prices(self._prices, steps))
            problem.start([None] * len(order), budget.nodes_max // START_NODES_SHARE)
            bound = min(bound, problem.search(budget.nodes_max))
        if not start:
            self._prices = problem.prices
        choice = {a: option for a, option in zip(order, problem.choice, strict=True) if option is not None}
        return Found(choice, problem.worth, max(bound, problem.worth), budget.used)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A level of the search: the branches left, and what was chosen above: GPUs left, worth, surplus, kept GPUs, needs."""

    branches: list[Branch]
    left: int
    worth: int
    surplus: int
    keep: int
    needs: tuple[int, ...]

    def with_option(self, option: Option, surplus: int) -> "_Frame":
        """What is chosen when `option` is as well."""
        return _Frame(
            [],
            self.left - option.gpu_count,
            self.worth + option.worth,
            self.surplus + surplus,
            self.keep | option.keep,
            tuple(sorted((*self.needs, *option.needs))),
        )


class _Problem:
    """One search: apps in a fixed order, each with its options."""

    def __init__(self, options: list[list[Option]], packer: Packer, relaxation: Relaxation, budget: Budget) -> None:
        self._options = options
        self._packer = packer
        self._relaxation = relaxation
        self._budget = budget
        self._gpus = relaxation.gpu_count
        self.choice: Choice = (None,) * len(options)
        self.worth = 0
        self.prices = relaxation.free
        self._surplus: list[list[int]] = [[o.worth for o in one] for one in options]
        self._knapsack = relaxation.table(self._surplus, options)  # at prices of 0
        self._priced = self._knapsack
        last = max(1, self._gpus // MARGIN_SHARE)
        self._gpu_price = int(self._knapsack[0][self._gpus] - self._knapsack[0][max(0, self._gpus - last)]) // last

    # ---- a start

    def start(self, choice: list[Option | None], nodes_max: int) -> None:
        """Fill up `choice` greedily, in a few orders of preference, and take the best if it beats what is known."""
        for ranked in self._rankings():
            if self.worth >= self._knapsack[0][-1]:
                return
            stop_at = self._budget.used + nodes_max
            trial = list(choice)
            for k, option in ranked:
                if trial[k] is None and self._budget.used < stop_at and self._fits(trial, k, option):
                    trial[k] = option
            self._improve(trial, stop_at)
            self._offer(tuple(trial))

    def _rankings(self) -> Iterator[list[tuple[int, Option]]]:
        """Orders in which to hand out options: (app, option), the most preferred first."""
        everything = [(k, option) for k, one in enumerate(self._options) for option in one]
        ideal = self._relaxation.chosen(self._priced, self._surplus, self._options)
        # What counts and prices would choose, the largest first; then what is worth more than its GPUs are to others.
        yield sorted(
            everything,
            key=lambda e: (e[1] != ideal[e[0]], -e[1].gpu_count if e[1] == ideal[e[0]] else 0, -self._profit(e[1]), e[0]),
        )
        yield sorted(everything, key=lambda e: (-e[1].worth, e[0]))
        yield sorted(everything, key=lambda e: (-e[1].worth / e[1].gpu_count, e[0]))

    def _profit(self, option: Option) -> int:
        return option.worth - self._gpu_price * option.gpu_count

    def _improve(self, trial: list[Option | None], stop_at: int) -> None:
        """Better rows for one app at a time, until nobody has one."""
        is_better = True
        while is_better:
            is_better = False
            for k, one in enumerate(self._options):
                for option in sorted(one, key=lambda o: (-o.worth, o.row)):
                    now = trial[k]
                    if (now is not None and option.worth <= now.worth) or self._budget.used >= stop_at:
                        break
                    if self._fits(trial, k, option):
                        trial[k] = option
                        is_better = True
                        break

    def _fits(self, trial: list[Option | None], k: int, option: Option) -> bool:
        others = [chosen for other, chosen in enumerate(trial) if other != k and chosen is not None]
        if sum([o.gpu_count for o in others]) + option.gpu_count > self._gpus:
            return False
        base = _question(others)
        if base[0] & option.keep:
            return False
        now = trial[k]
        if now is not None:  # what fits still does when one app leaves
            self._packer.learn_part(base, _question([*others, now]))
        if self._packer.fits(*base, self._budget, NOTHING, START_PACK_NODES_MAX) is not Fit.FITS:
            return False
        return self._packer.fits(*_question([*others, option]), self._budget, base, 0) is Fit.FITS

    def _offer(self, choice: Choice) -> None:
        worth = sum(option.worth for option in choice if option is not None)
        if worth > self.worth:
            self.worth, self.choice = worth, choice

    # ---- bounds

    def set_prices(self, prices: Prices, steps: int) -> int:
        """Choose prices; the bound on the whole problem at them."""
        self.prices = self._relaxation.tighten(self._options, self.worth, prices, steps)
        self._surplus = [self._relaxation.surpluses(self.prices, one) for one in self._options]
        self._priced = self._relaxation.table(self._surplus, self._options)
        return min(int(self._knapsack[0][-1]), self._relaxation.floor_price(self.prices) + int(self._priced[0][-1]))

    def _branches(self, k: int, left: int, worth: int, surplus: int) -> list[Branch]:
        """App k's choices that may beat the best found, (bound, position, option), the least bound first."""
        knapsack, priced = self._knapsack[k + 1].tolist(), self._priced[k + 1].tolist()
        found: list[Branch] = []
        zero = min(worth + knapsack[left], surplus + priced[left])
        if zero > self.worth:
            found.append((zero, -len(self._options[k]), None))
        for j, option in enumerate(self._options[k]):
            rest = left - option.gpu_count
            if rest >= 0:
                bound = min(worth + option.worth + knapsack[rest], surplus + self._surplus[k][j] + priced[rest])
                if bound > self.worth:
                    found.append((bound, -j, option))
        found.sort(key=lambda entry: entry[:2])
        return found

    # ---- the search

    def search(self, nodes_max: int) -> int:
        """Search until nothing better can exist or `nodes_max` of the budget are used; the certified bound."""
        if not self._options:
            return 0
        unexplored = 0
        base = self._relaxation.floor_price(self.prices)
        chosen: list[Option | None] = []
        frames = [_Frame(self._branches(0, self._gpus, 0, base), self._gpus, 0, base, *NOTHING)]
        while frames:
            frame = frames[-1]
            del chosen[len(frames) - 1 :]
            if not frame.branches or frame.branches[-1][0] <= self.worth:
                frames.pop()
                continue
            if self._budget.used >= nodes_max or not self._budget.spend():
                return max(unexplored, self.worth, *(bound for f in frames for bound, *_ in f.branches[-1:]))
            bound, position, option = frame.branches.pop()
            child = frame
            if option is not None:
                if frame.keep & option.keep:
                    continue
                child = frame.with_option(option, self._surplus[len(frames) - 1][-position])
                question = (child.keep, child.needs)
                fit = self._packer.fits(*question, self._budget, (frame.keep, frame.needs), PACK_NODES_MAX)
                if fit is not Fit.FITS:
                    unexplored = max(unexplored, bound) if fit is Fit.UNKNOWN else unexplored
                    continue
            chosen.append(option)
            if len(frames) == len(self._options):
                self._offer(tuple(chosen))
                continue
            branches = self._branches(len(frames), child.left, child.worth, child.surplus)
            frames.append(replace(child, branches=branches))
        return max(unexplored, self.worth)


def _question(options: Sequence[Option]) -> Question:
    """What all of these options ask for together."""
    return sum(o.keep for o in options), tuple(sorted(need for o in options for need in o.needs))


def log_value(worth: int) -> float:
    """A difference of worths as one of log values, no less than it is."""
    return -(-worth // GPU_QUANTA) * LOG_QUANTUM


def solve(bids: tuple[Bid, ...], supply: Supply, nodes_max: int = SOLVER_NODES_MAX) -> Solution:
    """The best disjoint rows of `bids`, placed; `bound` holds whatever `nodes_max` is."""
    solver = Solver(bids, supply)
    return solver.solution(solver.solve(nodes_max))
