"""Frozen dataclasses for values that are made by the million: leases, their moves, reports, jobs, rows of bids.

A frozen dataclass pays for being frozen when it is made: each field by a call of `object.__setattr__`, three to four times the
cost of the rest. So mypy, which checks every line here, holds these values frozen, and at run time they are plain.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """`dataclass` for a value; equal values are equal and hash alike, as with frozen ones."""
        assert frozen, "a value does not change"
        return dataclass(slots=slots, kw_only=kw_only, unsafe_hash=True)


__all__ = ["value"]
