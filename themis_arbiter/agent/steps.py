"""The ledger of steps: which units are done, who has which in hand, and the running sum. Pure.

A unit is free, in hand (claimed by one task) or done; the ledger refuses every other move, so a unit counted twice is
impossible by shape. Committed units are a prefix of whole steps plus the extras beyond it. With more than one part a
step is a barrier: no unit of the next one is handed out before all its parts are done.
"""

from collections.abc import Mapping
from typing import Any, Final

from themis_arbiter.agent.work import Unit

STEPS_MAX: Final = 10_000_000
PARTS_MAX: Final = 1_024


class LedgerError(ValueError):
    """A claim or commit that the ledger's state does not allow, or a checkpoint that is not this job's."""


class StepLedger:
    """Counts one job's units. `holder` is any name that says who has a unit in hand."""

    def __init__(self, steps: int, parts: int = 1) -> None:
        if not 1 <= steps <= STEPS_MAX or not 1 <= parts <= PARTS_MAX:
            raise LedgerError(f"a job has 1 to {STEPS_MAX} steps of 1 to {PARTS_MAX} parts, not {steps} of {parts}")
        self.steps = steps
        self.parts = parts
        self._prefix = 0
        self._extras: set[Unit] = set()
        self._in_hand: dict[Unit, str] = {}
        self._sum = 0

    @property
    def units(self) -> int:
        """How many units the job has."""
        return self.steps * self.parts

    @property
    def done(self) -> int:
        """How many of them are done."""
        return self._prefix * self.parts + len(self._extras)

    @property
    def left(self) -> int:
        """How many are not done yet: free or in hand."""
        return self.units - self.done

    @property
    def running_sum(self) -> int:
        """The sum of the values of the units that are done."""
        return self._sum

    def is_done(self, unit: Unit) -> bool:
        """Whether a unit counts already."""
        return unit.step < self._prefix or unit in self._extras

    def holder_of(self, unit: Unit) -> str | None:
        """Who has a unit in hand, if anyone."""
        return self._in_hand.get(unit)

    def claim_next(self, holder: str) -> Unit | None:
        """Hand the lowest free unit to a task; None where nothing may be handed out now."""
        last_step = self._prefix + 1 if self.parts > 1 else self.steps
        for step in range(self._prefix, min(last_step, self.steps)):
            for part in range(self.parts):
                unit = Unit(step, part)
                if unit not in self._extras and unit not in self._in_hand:
                    self._in_hand[unit] = holder
                    return unit
        return None

    def commit(self, unit: Unit, value: int, holder: str) -> None:
        """Count a unit that its holder has done. Raises LedgerError where it is not in that holder's hand."""
        if self._in_hand.get(unit) != holder:
            raise LedgerError(f"{holder} reports {unit}, which is in the hand of {self._in_hand.get(unit)}")
        del self._in_hand[unit]
        self._count(unit, value)

    def adopt(self, unit: Unit, value: int) -> bool:
        """Count a unit found in a log of a task that is gone; False where it counts already."""
        if not (0 <= unit.step < self.steps and 0 <= unit.part < self.parts):
            raise LedgerError(f"{unit} is not a unit of this job of {self.steps} steps of {self.parts} parts")
        if self.is_done(unit):
            return False
        self._in_hand.pop(unit, None)
        self._count(unit, value)
        return True

    def give_back(self, unit: Unit, holder: str) -> bool:
        """Make a unit free again that its holder did not do; False where that holder does not have it in hand."""
        if self._in_hand.get(unit) != holder:
            return False
        del self._in_hand[unit]
        return True

    def checkpoint(self) -> dict[str, Any]:
        """What is done, as JSON values. What is in hand is not part of it."""
        return {
            "steps": self.steps,
            "parts": self.parts,
            "prefix": self._prefix,
            "extras": sorted([unit.step, unit.part] for unit in self._extras),
            "sum": self._sum,
        }

    @classmethod
    def from_checkpoint(cls, saved: Mapping[str, Any], steps: int, parts: int) -> "StepLedger":
        """The ledger as it was saved. Raises LedgerError where the checkpoint is of another job or damaged."""
        ledger = cls(steps, parts)
        try:
            if (saved["steps"], saved["parts"]) != (steps, parts):
                raise LedgerError(
                    f"the checkpoint is of {saved['steps']} steps of {saved['parts']} parts, not {steps} of {parts}"
                )
            ledger._prefix = int(saved["prefix"])
            ledger._extras = {Unit(int(step), int(part)) for step, part in saved["extras"]}
            ledger._sum = int(saved["sum"])
        except (KeyError, TypeError) as err:
            raise LedgerError(f"the checkpoint cannot be read: {err!r}") from err
        if not 0 <= ledger._prefix <= steps or any(unit.step < ledger._prefix for unit in ledger._extras):
            raise LedgerError("the checkpoint contradicts itself: an extra lies within the prefix")
        return ledger

    def _count(self, unit: Unit, value: int) -> None:
        assert not self.is_done(unit), f"{unit}: counted twice"
        self._extras.add(unit)
        self._sum += value
        while self._prefix < self.steps:
            whole = [Unit(self._prefix, part) for part in range(self.parts)]
            if not all(each in self._extras for each in whole):
                break
            self._extras.difference_update(whole)
            self._prefix += 1
