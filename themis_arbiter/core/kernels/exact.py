"""The exact finish: a search over what can still beat the best found, with bounds from prices and counts together.

Prices pi say by how much each option falls short of its app's best (its regret); an allocation better than the best found
has no option whose regret reaches the gap, so all others are dropped. What remains is searched depth first. Its bound: with
the part of the prices that all classes share taken off (that part only says that GPUs are few, which counts say better), a
table over apps and GPUs holds the most surplus that the apps yet to come can have with so many GPUs.

The core array `c` is what is left to decide, with a header like a market's: apps in the order of the search, their options.
"""

from typing import Final

from themis_arbiter.core.kernels.greedy import worth_of
from themis_arbiter.core.kernels.jit import copy, kernel, zeros
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    CHOSEN,
    LEFT,
    MACHINE,
    N_APPS,
    N_GPUS,
    N_OPTIONS,
    NEED_COUNT,
    NEED_KIND,
    NEED_START,
    NEEDS,
    NOBODY,
    OPTION_GPUS,
    OPTION_START,
    SLOT,
    Ints,
)
from themis_arbiter.core.kernels.loads import LOADS, add_option, fill_room, has_room
from themis_arbiter.core.kernels.packing import CANNOT, FITS, UNKNOWN, pack
from themis_arbiter.core.kernels.placing import clear, release, try_option
from themis_arbiter.core.kernels.sorting import sorted_by

MINUS: Final = -(1 << 62)  # less than any surplus
TABLE_STEPS_PER_NODE: Final = 1_000  # a table may take as long to fill as the search may take, more or less
PACK_SHARE: Final = 8  # one search for a packing may use one node in so many

# Header of a core: counts, then where its tables begin.
MEMBERS, ENTRIES, WIDTH, APPS, START, OPTIONS, MORE, VALUE = range(8)
# APPS: by position in the search. START: of its entries. By entry: OPTIONS (NOBODY for nothing), MORE (GPUs beyond the fewest
# that its app takes), VALUE (surplus at prices without their common part). WIDTH: GPUs beyond everybody's fewest.
CORE_HEADER: Final = 8


@kernel
def best_surpluses(m: Ints, is_in: Ints, surplus: Ints, best: Ints) -> int:
    """Each app's largest surplus, at least 0; their sum."""
    total = 0
    for app in range(m[N_APPS]):
        best[app] = 0
        if is_in[app] != 0:
            for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
                best[app] = max(best[app], surplus[option])
            total += best[app]
    return total


@kernel
def _hardness(m: Ints, option: int) -> int:
    """Rises with how easily an option is placed."""
    best = (1 << 39) - int(m[m[OPTION_GPUS] + option])
    for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
        need = m[m[NEEDS] + at]
        if m[m[NEED_KIND] + need] in (SLOT, MACHINE):
            best = min(best, (1 << 30) - m[m[NEED_COUNT] + need])
        elif m[m[NEED_KIND] + need] != ANYWHERE:
            best = min(best, (1 << 35) - m[m[NEED_COUNT] + need])
    return best


@kernel
def _core_size(m: Ints, apps: Ints, surplus: Ints, best: Ints, gap: int, gpus: int) -> tuple[int, int]:
    """ENTRIES and WIDTH of the core of these apps, which mostly turns out too large to be made."""
    entries, width, span = 0, gpus, 0
    for app in apps:
        least, most, surplus_min = 1 << 40, 0, best[app] - gap
        for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
            if surplus[option] > surplus_min:
                entries += 1
                least, most = min(least, m[m[OPTION_GPUS] + option]), max(most, m[m[OPTION_GPUS] + option])
        if best[app] < gap:
            entries, least = entries + 1, 0
        width, span = width - least, span + most - least
    return entries, min(width, span)


@kernel
def _may_fit(m: Ints, s: Ints, app: int, option: int) -> bool:
    """Whether an option may fit beside what is promised in `s`: sure where it has one need only, which then has all places."""
    if s[m[LEFT]] == m[N_GPUS] or m[m[NEED_START] + option + 1] - m[m[NEED_START] + option] > 1:
        return True
    fits: bool = try_option(m, s, app, option)
    if fits:
        release(m, s, app)
    return fits


@kernel
def core_of(m: Ints, s: Ints, apps: Ints, surplus: Ints, best: Ints, gap: int, values: Ints, gpus: int) -> Ints:
    """Options of these apps of regret below the gap, worth `values`, for so many GPUs, that may fit beside what is in `s`.

    Apps with a choice come first, then those hard to place, as they come in `apps` where that is equal.
    """
    most, count, members = 0, 0, len(apps)
    for app in apps:
        most += m[m[OPTION_START] + app + 1] - m[m[OPTION_START] + app] + 1
    rank, begin, options = zeros(members), zeros(members + 1), zeros(most)
    for at in range(members):
        app, hard = apps[at], 1 << 40
        for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
            if best[app] - surplus[option] < gap and _may_fit(m, s, app, option):
                options[count] = option
                count += 1
                hard = min(hard, _hardness(m, option))
        if best[app] < gap:
            options[count] = NOBODY
            count += 1
        begin[at + 1] = count
        rank[at] = hard + (1 << 45 if count > begin[at] + 1 else 0)
    order = sorted_by(rank)
    c = zeros(CORE_HEADER + 2 * members + 1 + 3 * count)
    c[MEMBERS], c[ENTRIES] = members, count
    c[APPS], c[START] = CORE_HEADER, CORE_HEADER + members
    c[OPTIONS] = c[START] + members + 1
    c[MORE], c[VALUE] = c[OPTIONS] + count, c[OPTIONS] + 2 * count
    k, width, span = 0, gpus, 0
    for at in range(members):
        c[c[APPS] + at] = apps[order[at]]
        first, least, most = k, 1 << 40, 0
        for at_option in range(begin[order[at]], begin[order[at] + 1]):
            option = options[at_option]
            if option != NOBODY:
                c[c[MORE] + k], c[c[VALUE] + k] = m[m[OPTION_GPUS] + option], values[option]
            c[c[OPTIONS] + k] = option
            least, most = min(least, c[c[MORE] + k]), max(most, c[c[MORE] + k])
            k += 1
        for entry in range(first, k):
            c[c[MORE] + entry] -= least
        c[c[START] + at + 1] = k
        width, span = width - least, span + most - least
    c[WIDTH] = min(width, span)
    return c


@kernel
def table_of(c: Ints) -> Ints:
    """[position][GPUs beyond everybody's fewest] -> the most value of the apps from there on."""
    members, size = c[MEMBERS], c[WIDTH] + 1
    table = zeros((members + 1) * size)
    for at in range(members - 1, -1, -1):
        after, row = (at + 1) * size, at * size
        for k in range(size):
            table[row + k] = MINUS
        for entry in range(c[c[START] + at], c[c[START] + at + 1]):
            more, value = c[c[MORE] + entry], c[c[VALUE] + entry]
            for k in range(size - more):
                table[row + more + k] = max(table[row + more + k], table[after + k] + value)
    return table


@kernel
def finish(
    m: Ints,
    best: Ints,
    trial: Ints,
    spare: Ints,
    is_in: Ints,
    surplus: Ints,
    base: int,
    common: int,
    worth: int,
    mark: int,
    nodes_max: int,
) -> tuple[int, int, int]:
    """Improve the state `best`, worth `worth`; what it is worth then, the certified bound, and the nodes used.

    `surplus` and `base` (what all GPUs cost) are at prices of which every class has `common` at least. Only what is worth more
    than `mark`, at least `worth`, is looked for: a search that ends empty proves that nothing is.
    """
    most = zeros(m[N_APPS])
    bound = base + best_surpluses(m, is_in, surplus, most)
    if bound <= mark:
        return worth, max(bound, worth), 0
    apps, count = zeros(m[N_APPS]), 0
    for app in range(m[N_APPS]):
        if is_in[app] != 0:
            apps[count] = app
            count += 1
    entries, width = _core_size(m, apps[:count], surplus, most, bound - mark, m[N_GPUS])
    # Nobody left, an app without a choice, or too many GPUs in the least of choices: nothing better exists.
    if count == 0 or width < 0:
        return worth, mark, 0
    if entries * (width + 1) > nodes_max * TABLE_STEPS_PER_NODE:
        return worth, bound, 0
    values = zeros(m[N_OPTIONS])
    for option in range(m[N_OPTIONS]):
        values[option] = surplus[option] + common * m[m[OPTION_GPUS] + option]
    clear(m, trial)
    clear(m, spare)
    c = core_of(m, trial, apps[:count], surplus, most, bound - mark, values, m[N_GPUS])
    table = table_of(c)
    offset = base - common * m[N_GPUS]
    bound = min(bound, offset + table[c[WIDTH]])
    if bound <= mark:
        return worth, max(bound, worth), 0
    return search(m, best, trial, spare, c, table, apps[:0], offset, worth, mark, bound, nodes_max, nodes_max // PACK_SHARE)


@kernel
def _fill_level(
    c: Ints, table: Ints, at: int, left: int, value: int, mark: int, entries: Ints, bounds: Ints, first: int
) -> int:
    """Entries of one app whose bound beats `mark`, the best bound first, from `first` on; how many."""
    count, size = 0, c[WIDTH] + 1
    for entry in range(c[c[START] + at], c[c[START] + at + 1]):
        rest = left - c[c[MORE] + entry]
        if rest < 0:
            continue
        bound = value + c[c[VALUE] + entry] + table[(at + 1) * size + rest]
        if bound <= mark:
            continue
        k = first + count
        while k > first and bounds[k - 1] < bound:
            bounds[k], entries[k] = bounds[k - 1], entries[k - 1]
            k -= 1
        bounds[k], entries[k] = bound, entry
        count += 1
    return count


@kernel
def _place(
    m: Ints, trial: Ints, spare: Ints, c: Ints, movers: Ints, depth: int, option: int, nodes_max: int, spent: Ints
) -> int:
    """Add an option, movers and apps of the core before it placed anew if need be and there are nodes for it."""
    app = c[c[APPS] + depth]
    if try_option(m, trial, app, option):
        return FITS
    if m[m[OPTION_GPUS] + option] > trial[m[LEFT]]:
        return CANNOT
    if nodes_max == 0:
        return UNKNOWN
    copy(spare, trial, 0)
    for at in range(depth):
        if spare[m[CHOSEN] + c[c[APPS] + at]] != NOBODY:
            release(m, spare, c[c[APPS] + at])
    for mover in movers:
        release(m, spare, mover)
    trial[m[CHOSEN] + app] = option
    fit = pack(m, spare, trial, nodes_max, spent)
    trial[m[CHOSEN] + app] = NOBODY
    if fit == FITS:
        copy(trial, spare, 0)
    return fit


@kernel
def _count(m: Ints, trial: Ints, spare: Ints, c: Ints, movers: Ints, loads: Ints, loaded: Ints, room: Ints) -> None:
    """What entries count as, what movers do, and what there is room for without them, as in `spare`."""
    fill_room(m, spare, room)
    for mover in movers:
        add_option(m, trial[m[CHOSEN] + mover], loaded, 0)
    for entry in range(c[ENTRIES]):
        add_option(m, c[c[OPTIONS] + entry], loads, entry * LOADS)


@kernel
def search(
    m: Ints,
    best: Ints,
    trial: Ints,
    spare: Ints,
    c: Ints,
    table: Ints,
    movers: Ints,
    offset: int,
    worth: int,
    mark: int,
    bound: int,
    nodes_max: int,
    pack_nodes_max: int,
) -> tuple[int, int, int]:
    """Depth-first, beside what others have in `trial`. `movers` keep as much but may be placed anew; `spare` has them not."""
    members, widest = c[MEMBERS], 1
    for at in range(members):
        widest = max(widest, c[c[START] + at + 1] - c[c[START] + at])
    entries, bounds = zeros(members * widest), zeros(members * widest)
    count, tried = zeros(members), zeros(members)
    left, value, spent = zeros(members + 1), zeros(members + 1), zeros(1)
    loads, loaded, room = zeros(c[ENTRIES] * LOADS), zeros((members + 1) * LOADS), zeros(LOADS)
    _count(m, trial, spare, c, movers, loads, loaded, room)
    left[0], value[0] = c[WIDTH], offset
    depth, unexplored = 0, mark
    count[0] = _fill_level(c, table, 0, left[0], offset, mark, entries, bounds, 0)
    while depth >= 0:
        app, first = c[c[APPS] + depth], depth * widest
        if trial[m[CHOSEN] + app] != NOBODY:
            release(m, trial, app)
        if tried[depth] == count[depth] or bounds[first + tried[depth]] <= mark:
            depth -= 1
            continue
        if spent[0] >= nodes_max:
            unexplored = max(unexplored, _open_bound(count, tried, bounds, depth, widest))
            break
        entry, reach = entries[first + tried[depth]], bounds[first + tried[depth]]
        tried[depth] += 1
        spent[0] += 1
        option = c[c[OPTIONS] + entry]
        if not has_room(loads, entry * LOADS, loaded, depth * LOADS, room):
            continue
        if option != NOBODY:
            fit = _place(m, trial, spare, c, movers, depth, option, pack_nodes_max, spent)
            if fit != FITS:
                unexplored = max(unexplored, reach) if fit == UNKNOWN else unexplored
                continue
        if depth == members - 1:
            total = worth_of(m, trial)
            if total > worth:
                worth, mark = total, max(mark, total)
                copy(best, trial, 0)
            continue
        left[depth + 1] = left[depth] - c[c[MORE] + entry]
        value[depth + 1] = value[depth] + c[c[VALUE] + entry]
        depth += 1
        tried[depth], first = 0, depth * widest
        count[depth] = _fill_level(c, table, depth, left[depth], value[depth], mark, entries, bounds, first)
    return worth, min(bound, max(unexplored, mark)), spent[0]


@kernel
def _open_bound(count: Ints, tried: Ints, bounds: Ints, depth: int, widest: int) -> int:
    """The best bound of all branches not entered."""
    best = MINUS
    for level in range(depth + 1):
        if tried[level] < count[level]:
            best = max(best, bounds[level * widest + tried[level]])
    return best
