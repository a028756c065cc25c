"""Searches over a few apps at a time, what everybody else has left as it is.

An exact search over all apps ends where there are many; over ten it takes little. So groups are drawn, by chance that is the
same in every run. Mostly what is missing is that one app gets more and some others a little less each. So half of the groups
are an app that has less than prices say it should, or hardly more, and those whose GPUs are worth the least; the other half
such an app, those on a few racks or machines, and some others. What is missing may be a matter of places alone, so those who
share machines with a group may have their GPUs elsewhere. When many groups in a row bring nothing, an allocation somewhat away
from the best is made and improved in the same way, and then all apps in which it differs from the best are a group.
"""

from typing import Final

from themis_arbiter.core.kernels.exact import ENTRIES, MEMBERS, TABLE_STEPS_PER_NODE, WIDTH, core_of, search, table_of
from themis_arbiter.core.kernels.greedy import improve, next_by_surplus, worth_of
from themis_arbiter.core.kernels.jit import copy, kernel, zeros
from themis_arbiter.core.kernels.layout import (
    AT_CELL,
    AT_LARGE,
    AT_MACHINE,
    AT_RACK,
    CELL_MACHINE,
    CHOSEN,
    KIND,
    LEFT,
    MACHINE_RACK,
    N_APPS,
    N_GPUS,
    N_MACHINES,
    N_OPTIONS,
    N_RACKS,
    NOBODY,
    OPTION_GPUS,
    OPTION_START,
    OPTION_WORTH,
    PROMISE_START,
    USED,
    WHERE,
    Ints,
)
from themis_arbiter.core.kernels.placing import release, try_option
from themis_arbiter.core.kernels.sorting import sorted_by

GROUP: Final = 10  # apps that are searched over together
DRAWN: Final = 2  # of them, at least so many from all, wherever they are
DRAWS: Final = 3  # for each of those: some are not in question
PLACES: Final = 8  # racks or machines that the others are gathered from
CHEAP_MIN: Final = 6  # apps of a group in which one gets more and the others less, wherever they are
CHEAP: Final = 12  # and up to so many more: some moves take few, and in large groups these are found late
MOVERS_MAX: Final = 12  # apps beside a group that may be placed anew, with as much as they have
RACK_MOVERS: Final = 2  # with fewer of its machines, so many together with some of its racks
SKIPPED: Final = 3  # one of so many that come into question is not in it
DEAR: Final = 1 << 61  # more than any worth
GROUP_NODES_MAX: Final = 300  # of the search over one group
PACK_NODES_MAX: Final = 64  # of these, for one search for a packing
STALE_MAX: Final = 80  # groups in a row that bring nothing, and no more than half as many as there are apps
ROUNDS_MAX: Final = 12  # from the best found, the second and later ones from somewhat away from it
APPS_PER_ROUND: Final = 8  # an auction of fewer has one round
AMPLE: Final = 4  # GPUs on offer for each app; where there are more,
AMPLE_ROUNDS: Final = 3  # so many are enough
STIRRED: Final = 6  # apps that lose what they have for that
STIRRED_TRIES: Final = 4  # options that an app drawn in their place tries to place
CROSS_MAX: Final = 20  # apps in which an allocation differs from the best, of a group
CROSS_NODES_MAX: Final = 1_200  # of the search over them


@kernel
def draw(seed: Ints, count: int) -> int:
    """A whole number below `count`; the next of a sequence that hangs on nothing but where it began."""
    seed[0] = (seed[0] * 1_103_515_245 + 12_345) % 2_147_483_648
    return int(seed[0] // 65_536 % count)


@kernel
def _is_at(m: Ints, s: Ints, app: int, rack: int, machine: int) -> bool:
    """Whether an app has GPUs of a rack, or of a machine; NOBODY for the one that does not matter."""
    first = m[m[PROMISE_START] + app]
    for at in range(first, first + s[m[USED] + app]):
        kind, where = s[m[KIND] + at], s[m[WHERE] + at]
        if kind == AT_LARGE:
            continue
        if kind == AT_CELL:
            where = m[m[CELL_MACHINE] + where]
        if machine != NOBODY and kind <= AT_MACHINE and where == machine:
            return True
        if rack != NOBODY and (m[m[MACHINE_RACK] + where] if kind <= AT_MACHINE else where) == rack:
            return True
    return False


@kernel
def _gather(m: Ints, s: Ints, is_in: Ints, group: Ints, is_member: Ints, count: int, most: int, seed: Ints) -> int:
    """Add apps that are on one rack or machine after the other; how many the group has then."""
    apps = m[N_APPS]
    by_rack = draw(seed, 2) == 0
    for _ in range(PLACES):
        rack = draw(seed, m[N_RACKS]) if by_rack else NOBODY
        machine = NOBODY if by_rack else draw(seed, m[N_MACHINES])
        begin = draw(seed, apps)
        for k in range(apps):
            if count >= most:
                return count
            app = (begin + k) % apps
            if is_in[app] != 0 and is_member[app] == 0 and _is_at(m, s, app, rack, machine):
                group[count], is_member[app] = app, 1
                count += 1
    return count


@kernel
def _shortfall(m: Ints, s: Ints, surplus: Ints, slack: Ints, app: int) -> int:
    """Below 0: by how much an app has less than prices say it should. Above: what prices lose if one without gets something."""
    chosen = s[m[CHOSEN] + app]
    if chosen != NOBODY:
        return surplus[chosen] - slack[app] if surplus[chosen] < slack[app] else DEAR
    if slack[app] > 0:
        return -slack[app]  # type: ignore[no-any-return]
    least: int = DEAR
    for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
        least = min(least, -surplus[option])
    return least


@kernel
def _price_of_less(m: Ints, s: Ints, app: int) -> int:
    """What a GPU of an app costs in worth at least, if it has fewer; DEAR where it has none."""
    chosen = s[m[CHOSEN] + app]
    if chosen == NOBODY:
        return DEAR
    worth, gpus = m[m[OPTION_WORTH] + chosen], m[m[OPTION_GPUS] + chosen]
    best: int = worth // gpus
    for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
        fewer = gpus - m[m[OPTION_GPUS] + option]
        if fewer > 0:
            best = min(best, (worth - m[m[OPTION_WORTH] + option]) // fewer)
    return best


@kernel
def _gather_cheap(dear: Ints, cheap: Ints, group: Ints, is_member: Ints, count: int, most: int, seed: Ints) -> int:
    """Add apps whose GPUs cost the least, some left out by chance; how many the group has then."""
    for at in range(len(cheap)):
        app = cheap[at]
        if count >= most or dear[app] == DEAR:
            break
        if is_member[app] == 0 and draw(seed, SKIPPED) != 0:
            group[count], is_member[app] = app, 1
            count += 1
    return count


@kernel
def _movers(m: Ints, s: Ints, group: Ints) -> Ints:
    """Apps beside a group that have GPUs of its machines, or a few of its racks: they may have as many elsewhere."""
    is_machine, is_rack, is_member = zeros(m[N_MACHINES]), zeros(m[N_RACKS]), zeros(m[N_APPS])
    for app in group:
        is_member[app] = 1
        first = m[m[PROMISE_START] + app]
        for at in range(first, first + s[m[USED] + app]):
            kind, where = s[m[KIND] + at], s[m[WHERE] + at]
            if kind == AT_CELL:
                where = m[m[CELL_MACHINE] + where]
            if kind <= AT_MACHINE:
                is_machine[where] = 1
                where = m[m[MACHINE_RACK] + where]
            if kind != AT_LARGE:
                is_rack[where] = 1
    movers, count = zeros(MOVERS_MAX), 0
    for kind, most in ((AT_MACHINE, MOVERS_MAX), (AT_RACK, RACK_MOVERS)):
        for app in range(m[N_APPS]):
            if count < most and is_member[app] == 0 and _is_on(m, s, app, kind, is_machine if kind == AT_MACHINE else is_rack):
                movers[count], is_member[app] = app, 1
                count += 1
    return movers[:count]


@kernel
def _is_on(m: Ints, s: Ints, app: int, kind: int, marks: Ints) -> bool:
    """Whether an app has a promise of that kind where a mark is."""
    first = m[m[PROMISE_START] + app]
    for at in range(first, first + s[m[USED] + app]):
        if s[m[KIND] + at] == kind and marks[s[m[WHERE] + at]] != 0:
            return True
    return False


@kernel
def _attempt(
    m: Ints,
    s: Ints,
    trial: Ints,
    spare: Ints,
    group: Ints,
    surplus: Ints,
    slack: Ints,
    worths: Ints,
    bound: int,
    worth: int,
    nodes_max: int,
) -> tuple[int, int]:
    """Improve the state `s`, worth `worth`, by what the apps of a group have; its worth then, and the nodes used."""
    copy(trial, s, 0)
    rest = worth
    for app in group:
        if trial[m[CHOSEN] + app] != NOBODY:
            rest -= worths[trial[m[CHOSEN] + app]]
            release(m, trial, app)
    movers = _movers(m, s, group)
    copy(spare, trial, 0)
    for mover in movers:
        release(m, spare, mover)
    c = core_of(m, spare, group, surplus, slack, bound - worth, worths, trial[m[LEFT]])
    if c[MEMBERS] == 0 or c[WIDTH] < 0:
        return worth, 1
    table = table_of(c)
    nodes = 1 + c[ENTRIES] * c[WIDTH] // TABLE_STEPS_PER_NODE
    if rest + table[c[WIDTH]] <= worth:
        return worth, nodes
    worth, _, more = search(m, s, trial, spare, c, table, movers, rest, worth, worth, bound, nodes_max, PACK_NODES_MAX)
    return worth, nodes + more


@kernel
def _stir(m: Ints, s: Ints, is_in: Ints, surplus: Ints, group: Ints, is_member: Ints, seed: Ints) -> None:
    """Take from some apps what they have, and give to others."""
    count = _gather(m, s, is_in, group, is_member, 0, STIRRED, seed)
    for k in range(count):
        is_member[group[k]] = 0
        release(m, s, group[k])
    for _ in range(count):
        app, option = draw(seed, m[N_APPS]), NOBODY
        if is_in[app] == 0 or s[m[CHOSEN] + app] != NOBODY:
            continue
        for _try in range(STIRRED_TRIES):
            option = next_by_surplus(m, surplus, app, option)
            if option == NOBODY or try_option(m, s, app, option):
                break
    improve(m, s, is_in)


@kernel
def _differing(m: Ints, s: Ints, other: Ints, group: Ints, begin: int) -> int:
    """The group of apps that do not have the same in two states, looked for from `begin` on; how many."""
    count = 0
    for k in range(m[N_APPS]):
        app = (begin + k) % m[N_APPS]
        if s[m[CHOSEN] + app] != other[m[CHOSEN] + app] and count < CROSS_MAX:
            group[count] = app
            count += 1
    return count


@kernel
def rework(
    m: Ints,
    best: Ints,
    trial: Ints,
    spare: Ints,
    other: Ints,
    is_in: Ints,
    surplus: Ints,
    slack: Ints,
    bound: int,
    worth: int,
    nodes_max: int,
) -> tuple[int, int]:
    """Improve the state `best`, worth `worth`; its worth then, and the nodes used. `surplus` by option, `slack` by app."""
    apps, nodes = m[N_APPS], 0
    worths, group, is_member, seed = zeros(m[N_OPTIONS]), zeros(apps), zeros(apps), zeros(1)
    for option in range(m[N_OPTIONS]):
        worths[option] = m[m[OPTION_WORTH] + option]
    rounds = min(AMPLE_ROUNDS if m[N_GPUS] > AMPLE * apps else ROUNDS_MAX, 1 + apps // APPS_PER_ROUND)
    for k in range(rounds):
        if worth >= bound or nodes >= nodes_max:
            break
        copy(other, best, 0)
        if k > 0:
            _stir(m, other, is_in, surplus, group, is_member, seed)
        found, more = _descend(
            m, other, trial, spare, is_in, surplus, slack, worths, group, is_member, seed, bound, nodes_max - nodes
        )
        nodes += more
        if found > worth:
            worth = found
            copy(best, other, 0)
        elif k > 0:
            count = _differing(m, best, other, group, draw(seed, apps))
            worth, more = _attempt(m, best, trial, spare, group[:count], surplus, slack, worths, bound, worth, CROSS_NODES_MAX)
            nodes += more
    return worth, nodes


@kernel
def _descend(
    m: Ints,
    s: Ints,
    trial: Ints,
    spare: Ints,
    is_in: Ints,
    surplus: Ints,
    slack: Ints,
    worths: Ints,
    group: Ints,
    is_member: Ints,
    seed: Ints,
    bound: int,
    nodes_max: int,
) -> tuple[int, int]:
    """Groups one after the other, until many in a row bring nothing; what `s` is worth then, and the nodes used."""
    apps, nodes, stale, turn, worth = m[N_APPS], 0, 0, 0, worth_of(m, s)
    short, dear = zeros(apps), zeros(apps)
    order, cheap = short, short
    while stale < min(STALE_MAX, apps // 2) and bound > worth and nodes < nodes_max:
        if turn == 0:
            for app in range(apps):
                short[app] = _shortfall(m, s, surplus, slack, app) if is_in[app] != 0 else DEAR
                dear[app] = _price_of_less(m, s, app)
            order, cheap = sorted_by(short), sorted_by(dear)
        has_seed = short[order[turn]] < bound - worth
        count, is_by_price = 0, stale % 2 == 0 and has_seed
        if has_seed:
            group[0], is_member[order[turn]] = order[turn], 1
            count = 1
        if is_by_price:
            count = _gather_cheap(dear, cheap, group, is_member, count, min(CHEAP_MIN + draw(seed, CHEAP), apps), seed)
        else:
            count = _gather(m, s, is_in, group, is_member, count, min(GROUP - DRAWN, apps), seed)
        for _ in range(DRAWS * (GROUP - count)):
            app = draw(seed, apps)
            if (
                count < GROUP
                and is_in[app] != 0
                and is_member[app] == 0
                and (short[app] < bound - worth or s[m[CHOSEN] + app] != NOBODY)
            ):
                group[count], is_member[app] = app, 1
                count += 1
        for k in range(count):
            is_member[group[k]] = 0
        found, more = _attempt(m, s, trial, spare, group[:count], surplus, slack, worths, bound, worth, GROUP_NODES_MAX)
        nodes += more
        stale = 0 if found > worth else stale + 1
        if found > worth:
            turn = 0
        elif not is_by_price:
            turn = 0 if turn + 1 == apps or short[order[turn + 1]] >= bound - worth else turn + 1
        worth = found
    return worth, nodes
