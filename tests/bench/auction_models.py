"""The auction as integer programs, solved by HiGHS and CP-SAT: what other solvers make of the same problem.

The exact count model: x[o] says that option o is won; n[k, p] is how many parts of k GPUs go to place p, a machine or a rack.
Each place holds what it holds, kept GPUs included; racks also hold what their machines are promised. Since the floor is
laminar, whole numbers that meet these limits can always be placed. Parts with units or room are left out, and those that must
lie in one slot of a machine with several.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import highspy
from ortools.sat.python import cp_model

from tests.support.auctions import Auction
from themis_arbiter.core.auction.bid import Part, Row
from themis_arbiter.core.types import Locality

QUANTUM: Final = 1e-9  # CP-SAT counts in whole numbers
EVERYWHERE: Final = ("cluster", "")

Place = tuple[str, str]


@dataclass
class Model:
    """Maximise gain * x with `low <= sum of entries <= high` for each limit; all columns are whole numbers from 0."""

    gains: list[float] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    limits: list[tuple[int, int, dict[int, int]]] = field(default_factory=list)

    def column(self, gain: float, most: int) -> int:
        """A new column."""
        self.gains.append(gain)
        self.most.append(most)
        return len(self.gains) - 1


def can_model(auction: Auction) -> bool:
    """Whether the auction has nothing that the model leaves out."""
    parts = [part for bid in auction.bids for row in bid.rows for part in row.parts]
    places = auction.supply.topology.places.values()
    has_slots = len({(place.machine, place.slot) for place in places}) > len({place.machine for place in places})
    return not auction.supply.room and all(p.unit == 1 and not (has_slots and p.level == Locality.SLOT) for p in parts)


def model_of(auction: Auction) -> Model:
    """The count model."""
    model, supply = Model(), auction.supply
    places = supply.topology.places
    free: dict[Place, int] = {EVERYWHERE: len(supply.gpus)}
    machines = {name: places[gpus[0]].rack for name, gpus in supply.by_machine.items()}
    for name, gpus in supply.by_machine.items():
        free["machine", name] = len(gpus)
        free["rack", machines[name]] = free.get(("rack", machines[name]), 0) + len(gpus)
    used: dict[Place, dict[int, int]] = {place: {} for place in free}
    wanted: dict[tuple[Locality, int], dict[int, int]] = {}
    kept: dict[str, dict[int, int]] = {}

    def use(place: Place, column: int, count: int) -> None:
        around = [place, EVERYWHERE]
        if place[0] == "machine":
            around.append(("rack", machines[place[1]]))
        for one in around if place != EVERYWHERE else [EVERYWHERE]:
            used[one][column] = used[one].get(column, 0) + count

    for bid in auction.bids:
        own: dict[int, int] = {}
        for row in bid.rows[1:]:
            gain = bid.weight * (row.log_value - bid.rows[0].log_value)
            if gain <= 0 or not all(_is_possible(part, free, auction) for part in row.parts):
                continue
            column = model.column(gain, 1)
            own[column] = 1
            _ask(row, column, auction, use, wanted, kept)
        model.limits.append((0, 1, own))
    for (level, count), asking in sorted(wanted.items()):
        kind = "machine" if level == Locality.MACHINE else "rack"
        given: dict[int, int] = {column: -times for column, times in asking.items()}
        for place in [p for p in free if p[0] == kind and free[p] >= count]:
            column = model.column(0.0, free[place] // count)
            given[column] = 1
            use(place, column, count)
        model.limits.append((0, 0, given))
    model.limits += [(0, free[place], entries) for place, entries in used.items() if entries]
    model.limits += [(0, 1, entries) for entries in kept.values() if len(entries) > 1]
    return model


def _is_possible(part: Part, free: dict[Place, int], auction: Auction) -> bool:
    topology = auction.supply.topology
    named = (*part.anchor, *part.keep)
    if any(g not in topology.places for g in named) or any(g not in auction.supply.gpus for g in part.keep):
        return False
    return not named or topology.locality(named) <= part.level


def _ask(row: Row, column: int, auction: Auction, use, wanted, kept) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """What a row asks for when its column is 1."""
    places = auction.supply.topology.places
    for part in row.parts:
        for gpu in part.keep:
            use(("machine", places[gpu].machine), column, 1)
            kept.setdefault(gpu, {})[column] = 1
        named = (*part.anchor, *part.keep)
        if part.more == 0:
            continue
        if part.level == Locality.CLUSTER:
            use(EVERYWHERE, column, part.more)
        elif named:
            home = places[named[0]]
            use(("machine", home.machine) if part.level <= Locality.MACHINE else ("rack", home.rack), column, part.more)
        else:
            asking = wanted.setdefault((max(part.level, Locality.MACHINE), part.more), {})
            asking[column] = asking.get(column, 0) + 1


@dataclass(frozen=True)
class Answer:
    """What a solver found: gain over everybody's zero row, and whether it proved it."""

    gain: float
    is_proved: bool


def lp_bound(model: Model) -> float:
    """What HiGHS finds when options may be won in parts: no allocation gains more."""
    highs, _ = _loaded(model, highspy.HighsVarType.kContinuous)
    highs.run()
    return -float(highs.getInfo().objective_function_value)


def by_highs(model: Model, seconds_max: float) -> Answer:
    """HiGHS, one thread."""
    highs, begin = _loaded(model, highspy.HighsVarType.kInteger)
    highs.setOptionValue("time_limit", max(0.0, seconds_max - (time.monotonic() - begin)))
    highs.run()
    is_proved = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return Answer(-highs.getInfo().objective_function_value, is_proved)


def _loaded(model: Model, kind: Any) -> tuple[Any, float]:
    """A HiGHS with the model, and when that began."""
    begin = time.monotonic()
    with _quiet():
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0)):
        highs.setOptionValue(name, value)
    columns = [
        highs.addVariable(lb=0, ub=most, obj=-gain, type=kind) for gain, most in zip(model.gains, model.most, strict=True)
    ]
    for low, high, entries in model.limits:
        highs.addRow(
            -highspy.kHighsInf if low < high else low,
            high,
            len(entries),
            [columns[c].index for c in entries],
            [float(v) for v in entries.values()],
        )
    return highs, begin


@contextmanager
def _quiet() -> Iterator[None]:
    """HiGHS prints a banner when it is made, before it can be told not to, and past Python's own output."""
    sys.stdout.flush()
    kept = os.dup(1)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def by_cp_sat(model: Model, seconds_max: float) -> Answer:
    """CP-SAT, one worker."""
    program = cp_model.CpModel()
    columns = [program.new_int_var(0, most, f"c{k}") for k, most in enumerate(model.most)]
    for low, high, entries in model.limits:
        total = sum(columns[c] * v for c, v in entries.items())
        program.add_linear_constraint(total, low if low == high else -(1 << 40), high)
    program.maximize(sum(round(g / QUANTUM) * c for g, c in zip(model.gains, columns, strict=True) if g))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds_max
    solver.parameters.num_workers = 1
    status = solver.solve(program)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Answer(solver.objective_value * QUANTUM if found else 0.0, status == cp_model.OPTIMAL)
