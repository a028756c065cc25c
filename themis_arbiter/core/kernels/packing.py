"""Whether a set of options fits on the floor, by search over the places of their needs, bounded by nodes.

What is kept has no choice and comes first; then needs with a pin, slots, racks, machines, and last those that are split, piece
by piece (a unit on a machine each). Each level tries the tightest place first, so the first descent is best fit. Equal needs
take places in one fixed order, and of equal machines only one is tried: what else is cut off could only be a renaming.
"""

from typing import Final

from themis_arbiter.core.kernels.jit import kernel, zeros
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    AT_CELL,
    AT_LARGE,
    AT_MACHINE,
    AT_RACK,
    CELL_MACHINE,
    CELLS,
    CHOSEN,
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
    N_APPS,
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
    PROMISE_START,
    RACKS,
    SLOT,
    SPLIT,
    SPLIT_RACK,
    USED,
    WHERE,
    WITHIN_RACK,
    Ints,
)
from themis_arbiter.core.kernels.loads import LOADS, add_need, fill_room, has_room
from themis_arbiter.core.kernels.placing import cap, promise, shift
from themis_arbiter.core.kernels.sorting import sorted_by

FITS: Final = 1
CANNOT: Final = 0
UNKNOWN: Final = 2
NEEDS_MAX: Final = 256  # pieces of one search; more are UNKNOWN at once
MACHINES_PER_NODE: Final = 128  # a level that looks at more machines than this counts as more nodes


@kernel
def pack(m: Ints, s: Ints, wanted: Ints, nodes_max: int, spent: Ints) -> int:
    """Promise every app that has nothing in `s` the option that it has in `wanted`. Nodes are added to `spent[0]`.

    What others have in `s` stays where it is. Unless it FITS, `s` is not to be used.
    """
    apps, pieces = zeros(m[N_APPS]), 0
    count = 0
    for app in range(m[N_APPS]):
        if wanted[m[CHOSEN] + app] != NOBODY and s[m[CHOSEN] + app] == NOBODY:
            apps[count] = app
            count += 1
            if not _keep(m, s, app, wanted[m[CHOSEN] + app]):
                return CANNOT
            pieces += _piece_count(m, wanted[m[CHOSEN] + app])
    if pieces > NEEDS_MAX:
        return UNKNOWN
    apps = apps[:count]
    if not _has_room(m, s, wanted, apps):
        return CANNOT
    app_of, need_at, is_more = zeros(pieces), zeros(pieces), zeros(pieces)
    _list_pieces(m, wanted, apps, app_of, need_at, is_more)
    fit = _search(m, s, app_of, need_at, is_more, nodes_max, spent)
    if fit == FITS:
        for app in apps:
            option = wanted[m[CHOSEN] + app]
            s[m[CHOSEN] + app] = option
            for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
                if m[m[NEED_KIND] + m[m[NEEDS] + at]] == ANYWHERE:
                    if s[m[LEFT]] < m[m[NEED_COUNT] + m[m[NEEDS] + at]]:
                        return CANNOT
                    promise(m, s, app, AT_LARGE, 0, m[m[NEED_COUNT] + m[m[NEEDS] + at]], at)
    return fit


@kernel
def _keep(m: Ints, s: Ints, app: int, option: int) -> bool:
    """Promise what an option keeps."""
    for k in range(m[m[NAMED_START] + option], m[m[NAMED_START] + option + 1]):
        if s[m[IS_NAMED] + m[m[NAMED] + k]] != 0:
            return False
        s[m[IS_NAMED] + m[m[NAMED] + k]] = 1
    for k in range(m[m[KEEP_START] + option], m[m[KEEP_START] + option + 1]):
        promise(m, s, app, AT_CELL, m[m[KEEP_CELL] + k], m[m[KEEP_GPUS] + k], NOBODY)
        if s[m[CELLS] + m[m[KEEP_CELL] + k]] < 0:
            return False
    return True


@kernel
def _has_room(m: Ints, s: Ints, wanted: Ints, apps: Ints) -> bool:
    """Whether what these apps want beside what they keep, which is promised, may fit by counts."""
    loads, loaded, room = zeros(LOADS), zeros(2 * LOADS), zeros(LOADS)
    for app in apps:
        option = wanted[m[CHOSEN] + app]
        for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
            add_need(m, m[m[NEEDS] + at], loads, 0)
    fill_room(m, s, room)
    return has_room(loads, 0, loaded, 0, room)


@kernel
def _pieces_of(m: Ints, need: int) -> int:
    kind = m[m[NEED_KIND] + need]
    if kind == ANYWHERE:
        return 0
    if kind in (SPLIT, SPLIT_RACK):
        return int(m[m[NEED_COUNT] + need] // m[m[NEED_UNIT] + need])
    return 1


@kernel
def _piece_count(m: Ints, option: int) -> int:
    count = 0
    for at in range(m[m[NEED_START] + option], m[m[NEED_START] + option + 1]):
        count += _pieces_of(m, m[m[NEEDS] + at])
    return count


@kernel
def _list_pieces(m: Ints, wanted: Ints, packed: Ints, app_of: Ints, need_at: Ints, is_more: Ints) -> None:
    """All pieces in the order of the search; `is_more` marks those that belong with the piece before."""
    total = 0
    for app in packed:
        total += m[m[NEED_START] + wanted[m[CHOSEN] + app] + 1] - m[m[NEED_START] + wanted[m[CHOSEN] + app]]
    apps, ats, ranks = zeros(total), zeros(total), zeros(total)
    k = 0
    for app in packed:
        for at in range(m[m[NEED_START] + wanted[m[CHOSEN] + app]], m[m[NEED_START] + wanted[m[CHOSEN] + app] + 1]):
            need = m[m[NEEDS] + at]
            stage = m[m[NEED_KIND] + need] + (8 if m[m[NEED_PIN] + need] == NOBODY else 0)
            size = 65_535 - min(65_535, m[m[NEED_COUNT] + need])
            apps[k], ats[k], ranks[k] = app, at, (stage * 65_536 + size) * 1_048_576 + need
            k += 1
    at_piece = 0
    order = sorted_by(ranks)
    for place in range(total):
        k = order[place]
        for piece in range(_pieces_of(m, m[m[NEEDS] + ats[k]])):
            app_of[at_piece], need_at[at_piece], is_more[at_piece] = apps[k], ats[k], min(piece, 1)
            at_piece += 1


@kernel
def _search(m: Ints, s: Ints, app_of: Ints, need_at: Ints, is_more: Ints, nodes_max: int, spent: Ints) -> int:
    """Depth-first over pieces; promises in `state` are the packing when it FITS."""
    pieces, most = len(app_of), 0
    for k in range(m[N_MACHINES]):
        if s[m[MACHINES] + k] < 0 or s[m[RACKS] + m[m[MACHINE_RACK] + k]] < 0:
            return CANNOT
        most = max(most, s[m[MACHINES] + k])
    able = _machines_with_room(m, s, most)
    is_special = _special_machines(m, s, need_at)
    where, left = zeros(pieces), zeros(pieces)
    for k in range(pieces):
        where[k] = NOBODY
    cost = 1 + m[N_MACHINES] // MACHINES_PER_NODE
    nodes, depth, fit = 0, 0, UNKNOWN
    while True:
        if depth == pieces:
            fit = FITS
            break
        place = _next_place(m, s, depth, need_at, is_more, where, left, able, is_special)
        if place == NOBODY:
            if depth == 0:
                fit = CANNOT
                break
            where[depth] = NOBODY
            depth -= 1
            _take_back(m, s, app_of[depth])
            continue
        nodes += cost
        if nodes > nodes_max:
            break
        where[depth] = place
        need = m[m[NEEDS] + need_at[depth]]
        kind, gpus = AT_MACHINE, m[m[NEED_COUNT] + need]
        if m[m[NEED_KIND] + need] == SLOT:
            kind, left[depth] = AT_CELL, s[m[CELLS] + place]
        elif m[m[NEED_KIND] + need] == WITHIN_RACK:
            kind, left[depth] = AT_RACK, s[m[RACKS] + place]
        else:
            place = able[place]
            left[depth] = s[m[MACHINES] + place]
            if m[m[NEED_KIND] + need] != MACHINE:
                gpus = m[m[NEED_UNIT] + need]
        promise(m, s, app_of[depth], kind, place, gpus, need_at[depth])
        depth += 1
    spent[0] += nodes
    return fit


@kernel
def _machines_with_room(m: Ints, s: Ints, most: int) -> Ints:
    """Machines that have something left, `most` at most, those with the least first and equal ones by index."""
    begin = zeros(most + 2)
    for machine in range(m[N_MACHINES]):
        begin[s[m[MACHINES] + machine] + 1] += 1
    empty = begin[1]
    begin[1] = 0
    for left in range(2, most + 1):
        begin[left] += begin[left - 1]
    able = zeros(m[N_MACHINES] - empty)
    for machine in range(m[N_MACHINES]):
        left = s[m[MACHINES] + machine]
        if left > 0:
            able[begin[left]] = machine
            begin[left] += 1
    return able


@kernel
def _take_back(m: Ints, s: Ints, app: int) -> None:
    """Undo the app's last promise."""
    s[m[USED] + app] -= 1
    at = m[m[PROMISE_START] + app] + s[m[USED] + app]
    shift(m, s, s[m[KIND] + at], s[m[WHERE] + at], s[m[GPUS] + at])


@kernel
def _special_machines(m: Ints, s: Ints, need_at: Ints) -> Ints:
    """1 for machines that some need names, by pin, slot or caps: they cannot be taken for one another."""
    is_special = zeros(m[N_MACHINES])
    for at in need_at:
        need = m[m[NEEDS] + at]
        if m[m[NEED_CAPS] + need] != NOBODY or m[m[NEED_KIND] + need] == SLOT:
            for k in range(m[N_MACHINES]):
                is_special[k] = 1
        elif m[m[NEED_KIND] + need] == MACHINE and m[m[NEED_PIN] + need] != NOBODY:
            is_special[m[m[NEED_PIN] + need]] = 1
    return is_special


@kernel
def _next_place(
    m: Ints,
    s: Ints,
    depth: int,
    need_at: Ints,
    is_more: Ints,
    where: Ints,
    left: Ints,
    able: Ints,
    is_special: Ints,
) -> int:
    """The next place to try for a piece after `where[depth]`, machines by position in `able`; NOBODY when there is none."""
    need = m[m[NEEDS] + need_at[depth]]
    kind = m[m[NEED_KIND] + need]
    is_same = depth > 0 and need == m[m[NEEDS] + need_at[depth - 1]]
    if kind == MACHINE:
        least = where[depth - 1] if is_same else 0
        return _next_machine(m, s, need, where[depth], left[depth], least, able, is_special)
    if kind == WITHIN_RACK:
        return _next_of(s, m[RACKS], m[N_RACKS], m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need], where[depth], left[depth])
    if kind == SLOT:
        cell = where[depth]
        last = left[depth]
        while True:
            cell = _next_of(s, m[CELLS], m[N_CELLS], m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need], cell, last)
            if cell == NOBODY:
                return NOBODY
            last = s[m[CELLS] + cell]
            machine = m[m[CELL_MACHINE] + cell]
            rack = m[m[MACHINE_RACK] + machine]
            if min(s[m[MACHINES] + machine], s[m[RACKS] + rack], cap(m, need, machine)) >= m[m[NEED_COUNT] + need]:
                return cell
    return _next_piece(m, s, depth, need_at, is_more, where, able)


@kernel
def _next_of(s: Ints, first: int, places: int, count: int, pin: int, tried: int, tried_left: int) -> int:
    """The place with the fewest left that holds `count`, after the one tried last (which had `tried_left`)."""
    best = NOBODY
    for place in range(places):
        have = s[first + place]
        if have < count or pin not in (NOBODY, place):
            continue
        if tried != NOBODY and (have < tried_left or (have == tried_left and place <= tried)):
            continue
        if best == NOBODY or have < s[first + best]:
            best = place
    return best


@kernel
def _next_machine(m: Ints, s: Ints, need: int, tried: int, tried_left: int, least: int, able: Ints, is_special: Ints) -> int:
    count, pin = m[m[NEED_COUNT] + need], m[m[NEED_PIN] + need]
    best, best_left = NOBODY, 0
    tightest = count if tried == NOBODY else max(count, tried_left)
    for at in range(least, len(able)):
        machine = able[at]
        have = s[m[MACHINES] + machine]
        if have < tightest or (best != NOBODY and have >= best_left) or pin not in (NOBODY, machine):
            continue
        if tried != NOBODY and have == tried_left and at <= tried:
            continue
        if s[m[RACKS] + m[m[MACHINE_RACK] + machine]] < count or cap(m, need, machine) < count:
            continue
        if tried == NOBODY or have != tried_left or not _has_twin(m, s, at, least, able, is_special):
            best, best_left = at, have
            if have == tightest:
                break
    return best


@kernel
def _has_twin(m: Ints, s: Ints, at: int, least: int, able: Ints, is_special: Ints) -> bool:
    """Whether an equal machine of the rack comes before this one, and so was tried."""
    machine = able[at]
    if is_special[machine] != 0:
        return False
    rack, left = m[m[MACHINE_RACK] + machine], s[m[MACHINES] + machine]
    for k in range(least, at):
        other = able[k]
        if s[m[MACHINES] + other] == left and m[m[MACHINE_RACK] + other] == rack and is_special[other] == 0:
            return True
    return False


@kernel
def _next_piece(m: Ints, s: Ints, depth: int, need_at: Ints, is_more: Ints, where: Ints, able: Ints) -> int:
    """The next machine for a unit of a split need: not before the last unit's, in its rack if one is asked for."""
    need = m[m[NEEDS] + need_at[depth]]
    unit = m[m[NEED_UNIT] + need]
    is_racked = m[m[NEED_KIND] + need] == SPLIT_RACK
    least = where[depth - 1] if is_more[depth] != 0 else 0
    if where[depth] != NOBODY:
        least = where[depth] + 1
    for at in range(least, len(able)):
        machine = able[at]
        rack = m[m[MACHINE_RACK] + machine]
        if s[m[MACHINES] + machine] < unit or s[m[RACKS] + rack] < unit:
            continue
        if is_racked and m[m[NEED_PIN] + need] not in (NOBODY, rack):
            continue
        if is_racked and is_more[depth] != 0 and m[m[MACHINE_RACK] + able[where[depth - 1]]] != rack:
            continue
        if m[m[NEED_CAPS] + need] != NOBODY:
            have, k = unit, depth
            while is_more[k] != 0:
                k -= 1
                have += unit if where[k] == at else 0
            if have > cap(m, need, machine):
                continue
        return at
    return NOBODY
