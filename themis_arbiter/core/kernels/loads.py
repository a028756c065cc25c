"""What cannot fit, by counts alone.

A machine with n GPUs left has room for n // k parts of k GPUs. Count a part of c GPUs as c // k of those: then parts that fit
on machines count no more than all machines have room for, whatever k is, and the same holds of racks. Looking at a few k takes
a hundredth of the time of a search for places, and most of these searches would find none.
"""

from typing import Final

from themis_arbiter.core.kernels.jit import kernel
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    KEEP_GPUS,
    KEEP_START,
    MACHINE_RACK,
    MACHINES,
    N_MACHINES,
    N_RACKS,
    NEED_COUNT,
    NEED_KIND,
    NEED_START,
    NEED_UNIT,
    NEEDS,
    NOBODY,
    RACKS,
    SPLIT,
    SPLIT_RACK,
    WITHIN_RACK,
    Ints,
)

ON_MACHINE: Final = 8  # parts of 1, 2, 3, .. GPUs on machines
ON_RACK: Final = 8  # parts of 2, 4, 6, .. GPUs on racks
LOADS: Final = ON_MACHINE + ON_RACK


@kernel
def add_parts(loads: Ints, first: int, gpus: int, times: int) -> None:
    """Add so many parts of so many GPUs, each on one machine, to what is counted from `first` on."""
    for k in range(min(gpus, ON_MACHINE)):
        loads[first + k] += gpus // (k + 1) * times
    for k in range(min(gpus // 2, ON_RACK)):
        loads[first + ON_MACHINE + k] += gpus // (2 * k + 2) * times


@kernel
def add_need(m: Ints, need: int, loads: Ints, first: int) -> None:
    """Add a need."""
    kind, count, unit = m[m[NEED_KIND] + need], m[m[NEED_COUNT] + need], m[m[NEED_UNIT] + need]
    if kind == ANYWHERE:
        loads[first] += count
    elif kind == SPLIT:
        add_parts(loads, first, unit, count // unit)
    elif kind not in (WITHIN_RACK, SPLIT_RACK):
        add_parts(loads, first, count, 1)
    else:
        for k in range(min(unit, ON_MACHINE)):
            loads[first + k] += unit // (k + 1) * (count // unit)
        for k in range(min(count // 2, ON_RACK)):
            loads[first + ON_MACHINE + k] += count // (2 * k + 2)


@kernel
def add_option(m: Ints, option: int, loads: Ints, first: int) -> None:
    """Add all that an option keeps and needs; NOBODY is nothing."""
    if option == NOBODY:
        return
    for at in range(m[m[KEEP_START] + option], m[m[KEEP_START] + option + 1]):
        add_parts(loads, first, m[m[KEEP_GPUS] + at], 1)
    for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
        add_need(m, m[m[NEEDS] + at], loads, first)


@kernel
def fill_room(m: Ints, s: Ints, room: Ints) -> None:
    """What machines and racks have room for beside what is promised in `s`, each by k."""
    for k in range(LOADS):
        room[k] = 0
    for machine in range(m[N_MACHINES]):
        left = min(s[m[MACHINES] + machine], s[m[RACKS] + m[m[MACHINE_RACK] + machine]])
        for k in range(min(left, ON_MACHINE)):
            room[k] += left // (k + 1)
    for rack in range(m[N_RACKS]):
        left = s[m[RACKS] + rack]
        for k in range(min(left // 2, ON_RACK)):
            room[ON_MACHINE + k] += left // (2 * k + 2)


@kernel
def has_room(loads: Ints, first: int, loaded: Ints, at: int, room: Ints) -> bool:
    """Whether what counts from `first` on may fit beside what counts from `at` on; the sum then follows after that."""
    for k in range(LOADS):
        total = loaded[at + k] + loads[first + k]
        if total > room[k]:
            return False
        loaded[at + LOADS + k] = total
    return True
