"""Promises of one option: made at the tightest places that hold them, and taken back."""

from themis_arbiter.core.kernels.jit import copy, kernel
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    AT_CELL,
    AT_LARGE,
    AT_MACHINE,
    AT_RACK,
    CAPS,
    CELL_MACHINE,
    CELLS,
    CHOSEN,
    EMPTY,
    GPUS,
    IS_NAMED,
    KEEP_CELL,
    KEEP_GPUS,
    KEEP_START,
    KIND,
    LEFT,
    MACHINE,
    MACHINE_RACK,
    MACHINES,
    N_CELLS,
    N_MACHINES,
    N_RACKS,
    NAMED,
    NAMED_START,
    NEED_CAPS,
    NEED_COUNT,
    NEED_KIND,
    NEED_PIN,
    NEED_START,
    NEED_UNIT,
    NEEDS,
    NOBODY,
    OPTION_GPUS,
    PROMISE_START,
    RACK_MACHINE,
    RACK_START,
    RACKS,
    SERVES,
    SLOT,
    SPLIT_RACK,
    USED,
    WHERE,
    WITHIN_RACK,
    Ints,
)


@kernel
def clear(m: Ints, s: Ints) -> None:
    """Nobody has anything."""
    copy(s, m, m[EMPTY])


@kernel
def shift(m: Ints, s: Ints, kind: int, where: int, gpus: int) -> None:
    """Add `gpus` to what is left at a place and around it."""
    machine = where
    if kind == AT_CELL:
        s[m[CELLS] + where] += gpus
        machine = m[m[CELL_MACHINE] + where]
    if kind <= AT_MACHINE:
        s[m[MACHINES] + machine] += gpus
        s[m[RACKS] + m[m[MACHINE_RACK] + machine]] += gpus
    elif kind == AT_RACK:
        s[m[RACKS] + where] += gpus
    s[m[LEFT]] += gpus


@kernel
def promise(m: Ints, s: Ints, app: int, kind: int, where: int, gpus: int, need: int) -> None:
    """Write down one promise to an app."""
    at = m[m[PROMISE_START] + app] + s[m[USED] + app]
    s[m[KIND] + at] = kind
    s[m[WHERE] + at] = where
    s[m[GPUS] + at] = gpus
    s[m[SERVES] + at] = need
    s[m[USED] + app] += 1
    shift(m, s, kind, where, -gpus)


@kernel
def release(m: Ints, s: Ints, app: int) -> None:
    """Take back all that an app was promised."""
    first = m[m[PROMISE_START] + app]
    for at in range(first, first + s[m[USED] + app]):
        shift(m, s, s[m[KIND] + at], s[m[WHERE] + at], s[m[GPUS] + at])
    s[m[USED] + app] = 0
    option = s[m[CHOSEN] + app]
    if option != NOBODY:
        for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
            s[m[IS_NAMED] + m[m[NAMED] + k]] = 0
    s[m[CHOSEN] + app] = NOBODY


@kernel
def try_option(m: Ints, s: Ints, app: int, option: int) -> bool:
    """Promise an option to an app that has nothing; without a place for all of it, change nothing."""
    if m[m[OPTION_GPUS] + option] > s[m[LEFT]]:
        return False
    for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
        if s[m[IS_NAMED] + m[m[NAMED] + k]] != 0:
            return False
    has_place = True
    for k in range(m[m[KEEP_START] + option], m[m[KEEP_START] + option + 1]):
        cell, gpus = m[m[KEEP_CELL] + k], m[m[KEEP_GPUS] + k]
        machine = m[m[CELL_MACHINE] + cell]
        if s[m[CELLS] + cell] < gpus or s[m[MACHINES] + machine] < gpus or s[m[RACKS] + m[m[MACHINE_RACK] + machine]] < gpus:
            has_place = False
            break
        promise(m, s, app, AT_CELL, cell, gpus, NOBODY)
    if has_place:
        for k in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
            if not place_need(m, s, app, k):
                has_place = False
                break
    if not has_place:
        release(m, s, app)
        return False
    s[m[CHOSEN] + app] = option
    for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
        s[m[IS_NAMED] + m[m[NAMED] + k]] = 1
    return True


@kernel
def place_need(m: Ints, s: Ints, app: int, at: int) -> bool:
    """Promise `Flat.needs[at]` where it leaves the least behind."""
    need = m[m[NEEDS] + at]
    kind, count = m[m[NEED_KIND] + need], m[m[NEED_COUNT] + need]
    if kind == MACHINE:
        machine = tightest_machine(m, s, need)
        if machine != NOBODY:
            promise(m, s, app, AT_MACHINE, machine, count, at)
        return machine != NOBODY
    if kind == ANYWHERE:
        if s[m[LEFT]] < count:
            return False
        promise(m, s, app, AT_LARGE, 0, count, at)
        return True
    if kind == WITHIN_RACK:
        rack = tightest_rack(m, s, need)
        if rack != NOBODY:
            promise(m, s, app, AT_RACK, rack, count, at)
        return rack != NOBODY
    if kind == SLOT:
        cell = tightest_cell(m, s, need)
        if cell != NOBODY:
            promise(m, s, app, AT_CELL, cell, count, at)
        return cell != NOBODY
    return place_split(m, s, app, at)


@kernel
def cap(m: Ints, need: int, machine: int) -> int:
    """The most GPUs that a need may have on a machine, whatever is left there."""
    row = m[m[NEED_CAPS] + need]
    if row == NOBODY:
        return int(m[m[NEED_COUNT] + need])
    return int(min(m[m[NEED_COUNT] + need], m[m[CAPS] + row * m[N_MACHINES] + machine]))


@kernel
def has_room(m: Ints, s: Ints, need: int, machine: int, count: int) -> bool:
    """Whether a machine and its rack have `count` GPUs left for a need."""
    return (
        s[m[MACHINES] + machine] >= count
        and s[m[RACKS] + m[m[MACHINE_RACK] + machine]] >= count
        and (m[m[NEED_CAPS] + need] == NOBODY or cap(m, need, machine) >= count)
    )


@kernel
def tightest_machine(m: Ints, s: Ints, need: int) -> int:
    """The machine with the fewest GPUs left that holds the need; NOBODY without one."""
    count, pin = m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need]
    if pin != NOBODY:
        return pin if has_room(m, s, need, pin, count) else NOBODY
    best, best_left = NOBODY, 0
    for machine in range(m[N_MACHINES]):
        left = s[m[MACHINES] + machine]
        if left >= count and (best == NOBODY or left < best_left) and has_room(m, s, need, machine, count):
            best, best_left = machine, left
            if left == count:
                break
    return best


@kernel
def tightest_rack(m: Ints, s: Ints, need: int) -> int:
    """The rack with the fewest GPUs left that holds the need; NOBODY without one."""
    count, pin = m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need]
    if pin != NOBODY:
        return pin if s[m[RACKS] + pin] >= count else NOBODY
    best, best_left = NOBODY, 0
    for rack in range(m[N_RACKS]):
        left = s[m[RACKS] + rack]
        if left >= count and (best == NOBODY or left < best_left):
            best, best_left = rack, left
    return best


@kernel
def tightest_cell(m: Ints, s: Ints, need: int) -> int:
    """The slot with the fewest GPUs left that holds the need; NOBODY without one."""
    count, pin = m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need]
    best, best_left = NOBODY, 0
    for cell in range(m[N_CELLS]):
        left = s[m[CELLS] + cell]
        if pin not in (NOBODY, cell) or left < count or (best != NOBODY and left >= best_left):
            continue
        if has_room(m, s, need, m[m[CELL_MACHINE] + cell], count):
            best, best_left = cell, left
    return best


@kernel
def usable(m: Ints, s: Ints, need: int, machine: int) -> int:
    """GPUs in whole units that a split need could have on a machine."""
    left = min(s[m[MACHINES] + machine], s[m[RACKS] + m[m[MACHINE_RACK] + machine]], cap(m, need, machine))
    return int(left // m[m[NEED_UNIT] + need] * m[m[NEED_UNIT] + need])


@kernel
def place_split(m: Ints, s: Ints, app: int, at: int) -> bool:
    """Promise a need in units over machines of one rack or of all, the smallest fragments first."""
    need = m[m[NEEDS] + at]
    first, last = 0, m[N_MACHINES]
    if m[m[NEED_KIND] + need] == SPLIT_RACK:
        rack = split_rack(m, s, need)
        if rack == NOBODY:
            return False
        first, last = m[m[RACK_START] + rack], m[m[RACK_START] + rack + 1]
    left = m[m[NEED_COUNT] + need]
    while left > 0:
        best, most = NOBODY, 0
        for k in range(first, last):
            machine = m[m[RACK_MACHINE] + k]
            gpus = usable(m, s, need, machine)
            if gpus > 0 and (best == NOBODY or gpus < most) and not has_promise(m, s, app, machine, at):
                best, most = machine, gpus
        if best == NOBODY:
            return False
        promise(m, s, app, AT_MACHINE, best, min(left, most), at)
        left -= min(left, most)
    return True


@kernel
def has_promise(m: Ints, s: Ints, app: int, machine: int, at: int) -> bool:
    """Whether a split need has its part of that machine already."""
    first = m[m[PROMISE_START] + app]
    for k in range(first + s[m[USED] + app] - 1, first - 1, -1):
        if s[m[SERVES] + k] != at:
            return False
        if s[m[WHERE] + k] == machine:
            return True
    return False


@kernel
def split_rack(m: Ints, s: Ints, need: int) -> int:
    """The rack with the fewest GPUs left that can hold the need in units; NOBODY without one."""
    count, pin = m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need]
    best, best_left = NOBODY, 0
    for rack in range(m[N_RACKS]):
        left = s[m[RACKS] + rack]
        if pin not in (NOBODY, rack) or left < count or (best != NOBODY and left >= best_left):
            continue
        total = 0
        for k in range(m[m[RACK_START] + rack], m[m[RACK_START] + rack + 1]):
            total += usable(m, s, need, m[m[RACK_MACHINE] + k])
        if total >= count:
            best, best_left = rack, left
    return best
