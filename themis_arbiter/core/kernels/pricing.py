"""Prices of GPUs by class of machines, and the upper bound that any prices give.

Let a GPU of class k cost pi_k >= 0. Disjoint placements cost at most sum(pi_k * GPUs), so no allocation is worth more than that
sum and, of every app, its best surplus: worth less the cheapest place of the row. The lowest such bound is looked for by one
price for all (bisection), then by subgradient steps (Polyak) of each class's own. Prices are whole quanta: bounds are exact.
"""

from typing import Final

from themis_arbiter.core.kernels.jit import kernel, zeros
from themis_arbiter.core.kernels.layout import (
    CLASS_GPUS,
    KEY_COUNT,
    KEY_FIRST,
    KEY_LAST,
    KEYS,
    KEYS_START,
    N_APPS,
    N_CLASSES,
    N_GPUS,
    N_KEYS,
    N_OPTIONS,
    NOBODY,
    OPTION_GPUS,
    OPTION_START,
    OPTION_WORTH,
    PLACE_GPUS,
    Ints,
)

HALVINGS: Final = 16  # of the interval that holds the one price
IDLE_MAX: Final = 4  # steps without a better bound before steps are halved
SCALE_MIN: Final = 0.02  # steps shorter than this find nothing that matters
BOUND_MAX: Final = 1 << 61  # what all GPUs may cost


@kernel
def costs_of(m: Ints, prices: Ints, costs: Ints, used: Ints) -> None:
    """What each key costs at its cheapest place, and how many GPUs of each class it then takes ([key][class])."""
    classes = m[N_CLASSES]
    order = zeros(classes)
    for k in range(classes):
        at = k
        while at > 0 and prices[order[at - 1]] > prices[k]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = k
    for key in range(m[N_KEYS]):
        best, best_row = 0, NOBODY
        for row in range(m[m[KEY_FIRST] + key], m[m[KEY_LAST] + key]):
            left, cost = m[m[KEY_COUNT] + key], 0
            for at in range(classes):
                part = min(left, m[m[PLACE_GPUS] + row * classes + order[at]])
                cost += part * prices[order[at]]
                left -= part
                if left == 0:
                    break
            if best_row == NOBODY or cost < best:
                best, best_row = cost, row
        costs[key] = best
        left = m[m[KEY_COUNT] + key]
        for at in range(classes):
            part = min(left, m[m[PLACE_GPUS] + best_row * classes + order[at]])
            used[key * classes + order[at]] = part
            left -= part


@kernel
def dual(m: Ints, is_in: Ints, prices: Ints, costs: Ints, used: Ints, unused: Ints) -> int:
    """The bound at these prices; `unused` is how many GPUs of each class are left when every app takes what it likes best."""
    costs_of(m, prices, costs, used)
    classes = m[N_CLASSES]
    bound = 0
    for k in range(classes):
        unused[k] = m[m[CLASS_GPUS] + k]
        bound += prices[k] * unused[k]
    for app in range(m[N_APPS]):
        if is_in[app] == 0:
            continue
        best, best_option = 0, NOBODY
        for option in range(m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]):
            surplus = m[m[OPTION_WORTH] + option]
            if surplus <= best:
                break
            for at in range(m[m[KEYS_START] + option], m[m[KEYS_START] + option + 1]):
                surplus -= costs[m[m[KEYS] + at]]
            if surplus > best:
                best, best_option = surplus, option
        bound += best
        if best_option != NOBODY:
            for at in range(m[m[KEYS_START] + best_option], m[m[KEYS_START] + best_option + 1]):
                for k in range(classes):
                    unused[k] -= used[m[m[KEYS] + at] * classes + k]
    return bound


@kernel
def tighten(m: Ints, is_in: Ints, prices: Ints, target: int, steps: int, is_new: bool) -> int:
    """Improve prices by at most so many steps, until the bound is at or below `target` (a worth that is reached); the bound.

    `is_new`: there are none yet, and the one price with the lowest bound is looked for first.
    """
    classes = m[N_CLASSES]
    costs, used = zeros(m[N_KEYS]), zeros(m[N_KEYS] * classes)
    unused, trial = zeros(classes), zeros(classes)
    halvings = HALVINGS if is_new else 0
    low, high = 0, 0
    for option in range(m[N_OPTIONS] if is_new else 0):
        high = max(high, m[m[OPTION_WORTH] + option] // m[m[OPTION_GPUS] + option])
    high = min(high, BOUND_MAX // m[N_GPUS])
    for k in range(classes):
        trial[k] = 0 if is_new else prices[k]
    best, scale, idle = BOUND_MAX, 1.0, 0
    for step in range(halvings + steps):
        bound = dual(m, is_in, trial, costs, used, unused)
        if step == 0 or bound < best:
            best, idle = bound, 0
            for k in range(classes):
                prices[k] = trial[k]
        elif step >= halvings:
            idle += 1
        free, length = 0, 0.0
        for k in range(classes):
            free += unused[k]
            length += float(unused[k]) * float(unused[k])
        if bound <= target or length == 0.0:
            break
        if step < halvings:
            if step == 0 and free >= 0 and _is_ample(unused, classes):
                break
            low, high = (trial[0], high) if free < 0 else (low, trial[0])
            for k in range(classes):
                trial[k] = (low + high) // 2 if step + 1 < halvings else prices[k]
            continue
        if scale < SCALE_MIN:
            break
        if idle == IDLE_MAX:
            scale, idle = scale / 2.0, 0
            for k in range(classes):
                trial[k] = prices[k]
            continue
        length = scale * float(bound - target) / length
        for k in range(classes):
            trial[k] = min(BOUND_MAX // m[N_GPUS], max(0, trial[k] - int(length * float(unused[k]))))
    return best


@kernel
def _is_ample(unused: Ints, classes: int) -> bool:
    """Whether nothing is scarce."""
    for k in range(classes):
        if unused[k] < 0:
            return False
    return True


@kernel
def surpluses(m: Ints, prices: Ints, surplus: Ints) -> int:
    """Each option's surplus; what all GPUs cost."""
    costs, used = zeros(m[N_KEYS]), zeros(m[N_KEYS] * m[N_CLASSES])
    costs_of(m, prices, costs, used)
    for option in range(m[N_OPTIONS]):
        rest = m[m[OPTION_WORTH] + option]
        for at in range(m[m[KEYS_START] + option], m[m[KEYS_START] + option + 1]):
            rest -= costs[m[m[KEYS] + at]]
        surplus[option] = rest
    base = 0
    for k in range(m[N_CLASSES]):
        base += prices[k] * m[m[CLASS_GPUS] + k]
    return base
