"""Pair moves: one app gets a better option, another a worse one that makes room for it, and both together gain.

The bound less the worth is the sum of all regrets (best surplus less that of what was chosen) and the price of unused GPUs. A
move that gains must lower that sum, so only options of little regret come into question.
"""

from themis_arbiter.core.kernels.greedy import improve_one
from themis_arbiter.core.kernels.jit import copy, kernel, zeros
from themis_arbiter.core.kernels.layout import (
    CHOSEN,
    GPUS,
    IS_NAMED,
    KIND,
    LEFT,
    NAMED,
    NAMED_START,
    NOBODY,
    OPTION_GPUS,
    OPTION_START,
    OPTION_WORTH,
    PROMISE_START,
    SERVES,
    USED,
    WHERE,
    Ints,
)
from themis_arbiter.core.kernels.placing import promise, release, try_option
from themis_arbiter.core.kernels.sorting import sorted_by


@kernel
def pair_moves(m: Ints, s: Ints, spare: Ints, is_in: Ints, regret: Ints, slack: Ints, gap: int, checks_max: int) -> int:
    """Make pair moves while one gains; `regret` by option, `slack` by app (regret of nothing). What was checked."""
    apps = len(is_in)
    now = zeros(apps)
    checks = 0
    copy(spare, s, 0)
    is_better = True
    while is_better and checks < checks_max:
        is_better = False
        for app in range(apps):
            chosen = s[m[CHOSEN] + app]
            now[app] = slack[app] if chosen == NOBODY else regret[chosen]
        unused = gap
        for app in range(apps):
            now[app] = -now[app] if is_in[app] != 0 else 0
            unused += now[app]
        order = sorted_by(now)
        for app in range(apps):
            now[app] = -now[app]
        for at in range(apps):
            first = order[at]
            if is_in[first] == 0 or checks >= checks_max:
                continue
            gain, used = _best_swap(m, s, spare, is_in, regret, now, unused, first, checks_max - checks)
            checks += used
            if gain > 0:
                gap -= gain
                is_better = True
                break
    return checks


@kernel
def _best_swap(
    m: Ints,
    s: Ints,
    spare: Ints,
    is_in: Ints,
    regret: Ints,
    now: Ints,
    unused: int,
    first: int,
    checks_max: int,
) -> tuple[int, int]:
    """The first pair move of app `first` that gains, made in `s`: the gain, and checks used. `spare` is as `s` all the time."""
    chosen = s[m[CHOSEN] + first]
    worth, gpus = (0, 0) if chosen == NOBODY else (m[m[OPTION_WORTH] + chosen], m[m[OPTION_GPUS] + chosen])
    checks = 0
    for option in range(m[m[OPTION_START] + first], m[m[OPTION_START] + first + 1]):
        gain = m[m[OPTION_WORTH] + option] - worth
        if gain <= 0 or checks >= checks_max:
            break
        missing = m[m[OPTION_GPUS] + option] - gpus - s[m[LEFT]]
        for other in range(len(is_in)):
            if is_in[other] == 0 or other == first or s[m[CHOSEN] + other] == NOBODY:
                continue
            checks += 1
            most = now[first] + now[other] + unused - regret[option]
            if most <= 0:
                continue
            lost = _swap(m, s, spare, first, option, other, missing, gain, most, regret)
            checks += 4
            if lost < gain:
                return gain - lost, checks
    return 0, checks


@kernel
def _swap(
    m: Ints,
    s: Ints,
    spare: Ints,
    first: int,
    option: int,
    other: int,
    missing: int,
    gain: int,
    most: int,
    regret: Ints,
) -> int:
    """Try it: what `other` loses, or `gain` where no swap gains (then nothing has changed). `spare` is as `s` then."""
    given = s[m[CHOSEN] + other]
    worth, gpus = m[m[OPTION_WORTH] + given], m[m[OPTION_GPUS] + given]
    if gpus < missing:
        return gain
    begin, end = m[m[OPTION_START] + other], m[m[OPTION_START] + other + 1]
    if worth >= gain and not _has_candidate(m, begin, end, worth, gpus, missing, gain, most, regret):
        return gain
    release(m, spare, first)
    release(m, spare, other)
    if not try_option(m, spare, first, option):
        _restore(m, spare, s, first)
        _restore(m, spare, s, other)
        return gain
    lost = worth
    for swap in range(begin, end):
        loss = worth - m[m[OPTION_WORTH] + swap]
        if loss >= gain:
            break
        if m[m[OPTION_GPUS] + swap] <= gpus - missing and try_option(m, spare, other, swap):
            lost = loss
            break
    if lost >= gain:
        release(m, spare, first)
        _restore(m, spare, s, first)
        _restore(m, spare, s, other)
        return gain
    copy(s, spare, 0)
    improve_one(m, s, first)
    copy(spare, s, 0)
    return int(lost)


@kernel
def _restore(m: Ints, spare: Ints, s: Ints, app: int) -> None:
    """Give an app that has nothing in `spare` what it has in `s`: whole states are too long to be copied for every try."""
    begin = m[m[PROMISE_START] + app]
    for at in range(begin, begin + s[m[USED] + app]):
        promise(m, spare, app, s[m[KIND] + at], s[m[WHERE] + at], s[m[GPUS] + at], s[m[SERVES] + at])
    option = s[m[CHOSEN] + app]
    spare[m[CHOSEN] + app] = option
    if option != NOBODY:
        for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
            spare[m[IS_NAMED] + m[m[NAMED] + k]] = 1


@kernel
def _has_candidate(
    m: Ints, begin: int, end: int, worth: int, gpus: int, missing: int, gain: int, most: int, regret: Ints
) -> bool:
    """Whether some option of the other app costs less than is gained, by counts and regrets alone."""
    for swap in range(begin, end):
        if worth - m[m[OPTION_WORTH] + swap] >= gain:
            return False
        if m[m[OPTION_GPUS] + swap] <= gpus - missing and regret[swap] < most:
            return True
    return False
