"""Allocations without a proof: by surplus at given prices, filled up, improved app by app and pair by pair."""

from typing import Final

from themis_arbiter.core.kernels.jit import kernel, zeros
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    CHOSEN,
    GPUS,
    IS_NAMED,
    KEEP_START,
    KIND,
    LEFT,
    MACHINE,
    N_APPS,
    NAMED,
    NAMED_START,
    NEED_COUNT,
    NEED_KIND,
    NEED_START,
    NEEDS,
    NOBODY,
    OPTION_GPUS,
    OPTION_START,
    OPTION_WORTH,
    PROMISE_START,
    SERVES,
    SLOT,
    USED,
    WHERE,
    WITHIN_RACK,
    Ints,
)
from themis_arbiter.core.kernels.placing import clear, release, shift, try_option
from themis_arbiter.core.kernels.sorting import sorted_by

PASSES_MAX: Final = 8  # over all apps, each of which must have improved something
TRIES_MAX: Final = 12  # options of one app that a greedy start tries to place


@kernel
def worth_of(m: Ints, s: Ints) -> int:
    """What an allocation is worth over everybody's zero row."""
    worth = 0
    for app in range(m[N_APPS]):
        if s[m[CHOSEN] + app] != NOBODY:
            worth += m[m[OPTION_WORTH] + s[m[CHOSEN] + app]]
    return worth


@kernel
def _hardness(m: Ints, option: int, racks_first: bool) -> int:
    """Rises with how easily an option is placed: by the hardest of its needs, large before small."""
    if m[m[KEEP_START] + option] < m[m[KEEP_START] + option + 1]:
        return -(1 << 40)
    best = 1 << 40
    for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
        need = m[m[NEEDS] + at]
        kind = m[m[NEED_KIND] + need]
        if kind in (MACHINE, SLOT):
            stage = 2
        elif kind == ANYWHERE:
            stage = 4
        elif kind == WITHIN_RACK:
            stage = 1 if racks_first else 3
        else:
            stage = 3
        best = min(best, (stage << 30) - m[m[NEED_COUNT] + need])
    return best


@kernel
def start(m: Ints, s: Ints, is_in: Ints, surplus: Ints, racks_first: bool) -> None:
    """Each app gets the option of the largest positive surplus that still has a place, apps hard to place first."""
    apps = len(is_in)
    clear(m, s)
    hard = zeros(apps)
    for app in range(apps):
        best = next_by_surplus(m, surplus, app, NOBODY)
        hard[app] = (1 << 50) if best == NOBODY or is_in[app] == 0 else _hardness(m, best, racks_first)
    order = sorted_by(hard)
    for at in range(apps):
        app = order[at]
        if hard[app] == 1 << 50:
            break
        option = NOBODY
        for _ in range(TRIES_MAX):
            option = next_by_surplus(m, surplus, app, option)
            if option == NOBODY or try_option(m, s, app, option):
                break


@kernel
def next_by_surplus(m: Ints, surplus: Ints, app: int, after: int) -> int:
    """The app's option of the largest positive surplus after `after`, ties by index; NOBODY when there is none."""
    best = NOBODY
    for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
        value = surplus[option]
        if value <= 0 or (best != NOBODY and value <= surplus[best]):
            continue
        if after != NOBODY and (value > surplus[after] or (value == surplus[after] and option <= after)):
            continue
        best = option
    return best


@kernel
def set_aside(m: Ints, s: Ints, app: int) -> int:
    """Take from an app what it has but remember it; its option."""
    spare = m[m[PROMISE_START] + m[N_APPS]]
    first = m[m[PROMISE_START] + app]
    count = s[m[USED] + app]
    for k in range(count):
        s[m[KIND] + spare + k] = s[m[KIND] + first + k]
        s[m[WHERE] + spare + k] = s[m[WHERE] + first + k]
        s[m[GPUS] + spare + k] = s[m[GPUS] + first + k]
        s[m[SERVES] + spare + k] = s[m[SERVES] + first + k]
    s[m[USED] + m[N_APPS]] = count
    option = s[m[CHOSEN] + app]
    release(m, s, app)
    return int(option)


@kernel
def put_back(m: Ints, s: Ints, app: int, option: int) -> None:
    """Give an app what was set aside for it; nothing else has changed since."""
    spare = m[m[PROMISE_START] + m[N_APPS]]
    first = m[m[PROMISE_START] + app]
    count = s[m[USED] + m[N_APPS]]
    for k in range(count):
        s[m[KIND] + first + k] = s[m[KIND] + spare + k]
        s[m[WHERE] + first + k] = s[m[WHERE] + spare + k]
        s[m[GPUS] + first + k] = s[m[GPUS] + spare + k]
        s[m[SERVES] + first + k] = s[m[SERVES] + spare + k]
        shift(m, s, s[m[KIND] + first + k], s[m[WHERE] + first + k], -s[m[GPUS] + first + k])
    s[m[USED] + app] = count
    s[m[CHOSEN] + app] = option
    if option != NOBODY:
        for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
            s[m[IS_NAMED] + m[m[NAMED] + k]] = 1


@kernel
def improve_one(m: Ints, s: Ints, app: int) -> bool:
    """The best option of one app that fits on what it has and what is left, if that is worth more."""
    now = s[m[CHOSEN] + app]
    worth, gpus = (0, 0) if now == NOBODY else (m[m[OPTION_WORTH] + now], m[m[OPTION_GPUS] + now])
    is_aside = False
    for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
        if m[m[OPTION_WORTH] + option] <= worth:
            break
        room = s[m[LEFT]] if is_aside else s[m[LEFT]] + gpus
        if m[m[OPTION_GPUS] + option] > room:
            continue
        if not is_aside:
            set_aside(m, s, app)
            is_aside = True
        if try_option(m, s, app, option):
            return True
    if is_aside:
        put_back(m, s, app, now)
    return False


@kernel
def improve(m: Ints, s: Ints, is_in: Ints) -> int:
    """Better options for one app at a time until nobody has one; what each adds for a GPU decides who is first."""
    tries = _fill(m, s, is_in)
    for _ in range(PASSES_MAX):
        is_better = False
        for app in range(len(is_in)):
            if is_in[app] != 0:
                tries += 1
                is_better = improve_one(m, s, app) or is_better
        if not is_better:
            break
    return tries


@kernel
def _fill(m: Ints, s: Ints, is_in: Ints) -> int:
    """Hand out what is left by the worth that it adds for each GPU."""
    if s[m[LEFT]] == 0:
        return 0
    count = 0
    for app in range(len(is_in)):
        if is_in[app] != 0:
            now = s[m[CHOSEN] + app]
            worth, gpus = (0, 0) if now == NOBODY else (m[m[OPTION_WORTH] + now], m[m[OPTION_GPUS] + now])
            for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
                if m[m[OPTION_WORTH] + option] <= worth:
                    break
                count += 1 if m[m[OPTION_GPUS] + option] - gpus <= s[m[LEFT]] else 0
    if count == 0:
        return 0
    ratio, apps, options = zeros(count), zeros(count), zeros(count)
    k = 0
    for app in range(len(is_in)):
        if is_in[app] != 0:
            now = s[m[CHOSEN] + app]
            worth, gpus = (0, 0) if now == NOBODY else (m[m[OPTION_WORTH] + now], m[m[OPTION_GPUS] + now])
            for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
                if m[m[OPTION_WORTH] + option] <= worth:
                    break
                if m[m[OPTION_GPUS] + option] - gpus <= s[m[LEFT]]:
                    more = max(1, m[m[OPTION_GPUS] + option] - gpus)
                    ratio[k], apps[k], options[k] = -((m[m[OPTION_WORTH] + option] - worth) // more), app, option
                    k += 1
    tries = 0
    order = sorted_by(ratio)
    for at in range(count):
        k = order[at]
        app, option = apps[k], options[k]
        now = s[m[CHOSEN] + app]
        gpus = 0 if now == NOBODY else m[m[OPTION_GPUS] + now]
        if now != NOBODY and m[m[OPTION_WORTH] + option] <= m[m[OPTION_WORTH] + now]:
            continue
        if m[m[OPTION_GPUS] + option] - gpus > s[m[LEFT]]:
            continue
        tries += 1
        set_aside(m, s, app)
        if not try_option(m, s, app, option):
            put_back(m, s, app, now)
    return tries
