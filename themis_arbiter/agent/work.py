"""The sample app's work: numbered units whose values anyone can compute again.

A training step stands for real work. What counts is that its value is a function of its number alone: then a step
lost, done twice or done wrong shows in the sum, whatever containers ran it. A step of a gang has one part per task.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

# A prime, so that a chain of powers never falls into 0; small enough that a sum of a million fits 64 bits.
_MODULUS: Final = (1 << 31) - 1
_ROUNDS: Final = 32
_EXPONENT: Final = 65_537


class Unit(NamedTuple):
    """One countable piece of work: part `part` of step `step`, both from 0."""

    step: int
    part: int


def unit_value(unit: Unit) -> int:
    """The value that a unit adds to the result: a chain of modular powers seeded with its number."""
    value = unit.step * 1_009 + unit.part * 7 + 2
    for _ in range(_ROUNDS):
        value = pow(value % _MODULUS or 1, _EXPONENT, _MODULUS) + unit.step + 1
    return value


def all_units(steps: int, parts: int) -> Iterator[Unit]:
    """Every unit of a job, in order."""
    return (Unit(step, part) for step in range(steps) for part in range(parts))


def expected_sum(steps: int, parts: int) -> int:
    """The right result of a job, computed without looking at what its tasks did."""
    return sum(unit_value(unit) for unit in all_units(steps, parts))
