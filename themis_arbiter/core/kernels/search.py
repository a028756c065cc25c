"""Winner determination, start to end: prices, greedy starts, moves, groups, exact finish."""

from collections.abc import Callable
from typing import Final

from themis_arbiter.core.kernels.exact import best_surpluses, finish
from themis_arbiter.core.kernels.greedy import improve, start, worth_of
from themis_arbiter.core.kernels.jit import copy, entry, kernel, zeros
from themis_arbiter.core.kernels.layout import N_APPS, N_CLASSES, N_OPTIONS, NOBODY, OPTION_START, Ints
from themis_arbiter.core.kernels.pairs import pair_moves
from themis_arbiter.core.kernels.placing import clear, release
from themis_arbiter.core.kernels.pricing import surpluses, tighten
from themis_arbiter.core.kernels.regions import rework

STEPS: Final = 40  # of prices, for the whole problem
LEFT_OUT_STEPS: Final = 12  # for one without a winner, from the whole problem's prices
LARGE_STEPS: Final = 4  # the same in larger auctions, by OPTIONS_PER_NODE
QUICK_SHARE: Final = 4  # the first exact finish may use one node in so many: most small problems need no more
STARTS: Final = 5  # near the prices found, if that was not enough
PERCENT: Final = 4  # by which the prices of starts are apart
HALVINGS: Final = 6  # of the gap that is to be proved
NODES_MIN: Final = 50  # a search with fewer left is not begun
OPTIONS_PER_NODE: Final = 10  # larger auctions without a winner are closed once and not improved by pairs
GROUPS_PER_NODE_MIN: Final = 6  # nodes of searches over groups, for each node of the exact finish
GROUPS_PER_NODE_MAX: Final = 24
GROUPS_PER_NODE_APPS: Final = 9  # one of these for so many apps, between both
GROUP_OPTIONS_MAX: Final = 12_000  # in larger auctions groups are too few among all
GROUP_GAP: Final = 1 << 14  # a gap of less than one in so many parts of the worth is not what groups are for
CLOSINGS_MAX: Final = 3  # each after one that found something better, which sharpens prices and moves


@kernel
def _run(
    m: Ints,
    whole: Ints,
    best: Ints,
    trial: Ints,
    spare: Ints,
    other: Ints,
    is_in: Ints,
    prices: Ints,
    without: int,
    nodes_max: int,
    checks_max: int,
) -> tuple[int, int, int]:
    """The best allocation in the state `best`: its worth, the certified bound, the work done. Sets or improves `prices`.

    `without`: an app that is left out; then `whole` holds what was found for all, and `prices` its prices. NOBODY: none.
    """
    worth, work = 0, 0
    if without == NOBODY:
        clear(m, best)
        bound = tighten(m, is_in, prices, 0, 1, True)
        worth, work = _starts(m, best, trial, is_in, prices, worth, 1)
        if bound > worth:
            bound = tighten(m, is_in, prices, worth, STEPS, False)
        if bound > worth:
            worth, more = _starts(m, best, trial, is_in, prices, worth, 1)
            work += more
    else:
        copy(best, whole, 0)
        release(m, best, without)
        is_in[without] = 0
        work = improve(m, best, is_in)
        worth = worth_of(m, best)
        is_large = m[N_OPTIONS] > nodes_max * OPTIONS_PER_NODE
        bound = tighten(m, is_in, prices, worth, LARGE_STEPS if is_large else LEFT_OUT_STEPS, False)
    reach, is_again = bound, False  # at these prices
    if bound > worth:
        worth, bound, more = _close(m, best, trial, spare, other, is_in, prices, worth, nodes_max // QUICK_SHARE, 0, 0)
        work += more
    if bound > worth and nodes_max > 0 and (without == NOBODY or m[N_OPTIONS] <= nodes_max * OPTIONS_PER_NODE):
        if without == NOBODY:
            worth, more = _starts(m, best, trial, is_in, prices, worth, STARTS)
            work += more
        group_nodes_max = _group_nodes(m, nodes_max) if without == NOBODY else 0
        for _ in range(CLOSINGS_MAX):
            before = worth
            nodes = 0 if is_again else nodes_max
            worth, proved, more = _close(m, best, trial, spare, other, is_in, prices, worth, nodes, checks_max, group_nodes_max)
            work, group_nodes_max = work + more, 0
            bound = min(bound, proved)
            if bound <= worth or worth == before:
                break
            # The same search at the same prices would find the same: then only pair moves may, after what groups have found.
            now = tighten(m, is_in, prices, worth, LEFT_OUT_STEPS, False)
            is_again = now == reach and not is_again
            bound, reach = min(bound, now), now
    if without != NOBODY:
        is_in[without] = 1
    return worth, max(bound, worth), work


@kernel
def _group_nodes(m: Ints, nodes_max: int) -> int:
    """What searches over groups may use."""
    if m[N_OPTIONS] > GROUP_OPTIONS_MAX:
        return 0
    return nodes_max * int(min(GROUPS_PER_NODE_MAX, max(GROUPS_PER_NODE_MIN, m[N_APPS] // GROUPS_PER_NODE_APPS)))


@kernel
def _starts(m: Ints, best: Ints, trial: Ints, is_in: Ints, prices: Ints, worth: int, starts: int) -> tuple[int, int]:
    """Greedy starts at these prices and, with more than one, near them; the best worth, in `best`, and the work."""
    work = 0
    scaled, surplus = zeros(m[N_CLASSES]), zeros(m[N_OPTIONS])
    for k in range(starts):
        percent = 100 + (k + 1) // 2 * PERCENT * (1 if k % 2 == 0 else -1)
        for at in range(m[N_CLASSES]):
            scaled[at] = prices[at] // 100 * percent
        surpluses(m, scaled, surplus)
        for racks_first in (False, True):
            start(m, trial, is_in, surplus, racks_first)
            work += improve(m, trial, is_in) + 1
            total = worth_of(m, trial)
            if total > worth:
                worth = total
                copy(best, trial, 0)
    return worth, work


@kernel
def _close(
    m: Ints,
    best: Ints,
    trial: Ints,
    spare: Ints,
    other: Ints,
    is_in: Ints,
    prices: Ints,
    worth: int,
    nodes_max: int,
    checks_max: int,
    group_nodes_max: int,
) -> tuple[int, int, int]:
    """Pair moves, groups and the exact finish on what is in `best`: its worth then, the certified bound, the work."""
    surplus, slack = zeros(m[N_OPTIONS]), zeros(m[N_APPS])
    base = surpluses(m, prices, surplus)
    bound = base + best_surpluses(m, is_in, surplus, slack)
    work = 0
    if checks_max > 0 and bound > worth:
        regret = zeros(m[N_OPTIONS])
        for app in range(m[N_APPS]):
            for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
                regret[option] = slack[app] - surplus[option]
        work = pair_moves(m, best, trial, is_in, regret, slack, bound - worth, checks_max)
        work += improve(m, best, is_in)
        worth = worth_of(m, best)
    if group_nodes_max > 0 and bound - worth > worth // GROUP_GAP:
        worth, more = rework(m, best, trial, spare, other, is_in, surplus, slack, bound, worth, group_nodes_max)
        work += more
    common = prices[0]
    for k in range(m[N_CLASSES]):
        common = min(common, prices[k])
    # First for the optimum; then, with what nodes are left, that nothing is better by more than half the gap, a quarter, ...
    mark = worth
    for _ in range(HALVINGS):
        worth, proved, nodes = finish(m, best, trial, spare, is_in, surplus, base, common, worth, mark, nodes_max // 2)
        work += nodes
        nodes_max -= nodes
        is_proved = proved < bound
        bound = min(bound, proved)
        if bound <= worth or nodes_max <= NODES_MIN:
            break
        mark = worth + (bound - worth) // 2 if is_proved or mark == worth else mark + (bound - mark) // 2
    work += improve(m, best, is_in)
    worth = worth_of(m, best)
    return worth, max(bound, worth), work


@entry
def run(version: int) -> Callable[[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, int, int, int], tuple[int, int, int]]:
    """See `_run`."""

    def versioned(
        m: Ints,
        whole: Ints,
        best: Ints,
        trial: Ints,
        spare: Ints,
        other: Ints,
        is_in: Ints,
        prices: Ints,
        without: int,
        nodes_max: int,
        checks_max: int,
    ) -> tuple[int, int, int]:
        assert version > 0
        return _run(m, whole, best, trial, spare, other, is_in, prices, without, nodes_max, checks_max)

    return versioned
