"""The one sort of all kernels."""

from typing import Final

from themis_arbiter.core.kernels.jit import kernel, zeros
from themis_arbiter.core.kernels.layout import Ints

RUN: Final = 8  # of so many, each put in its place among those before; longer ones are merged


@kernel
def sorted_by(keys: Ints) -> Ints:
    """Positions in ascending order of their keys, equal ones as they come."""
    count = len(keys)
    order, other = zeros(count), zeros(count)
    for k in range(count):
        key, at, first = keys[k], k, k // RUN * RUN
        while at > first and keys[order[at - 1]] > key:
            order[at] = order[at - 1]
            at -= 1
        order[at] = k
    width = RUN
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            a, b = low, middle
            for at in range(low, high):
                if a < middle and (b >= high or keys[order[a]] <= keys[order[b]]):
                    other[at] = order[a]
                    a += 1
                else:
                    other[at] = order[b]
                    b += 1
        order, other = other, order
        width *= 2
    return order
