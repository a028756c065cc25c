"""Bids and supply as the solver sees them: options of integer worth that need GPUs from cells.

Whose GPUs they are does not matter to the question whether a set of rows fits, so each part becomes the GPUs it keeps (a
bit mask) and a `Need`: so many more, so close together, so many on a machine. Equal needs are one need, which makes
answers about them reusable across rows, apps and the leave-one-out problems of the payments.

Worth is counted in whole quanta of log value, less one for each GPU (`GPU_QUANTA` to a quantum): sums are exact in any
order, and among equal values the solution of fewer GPUs is the better one, not a matter of rounding.
"""

from functools import cached_property
from typing import Final

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.types import CoreError, JobId, Locality, NodeName, RackName
from themis_arbiter.core.value import value

LOG_QUANTUM: Final = 1e-10  # log values that differ by less are equal
GPU_QUANTA: Final = 1 << 14  # more than the GPUs of any supply, so that no number of GPUs outweighs one quantum
LOG_GAIN_MAX: Final = 64.0  # gains above it count as it: a rho 10^27 times better is no different from 10^28


@value(frozen=True, slots=True)
class Need:
    """`count` more GPUs in multiples of `unit` on a machine, all within one `level`.

    `pin` is the index of the slot, machine or rack that they must be in (the job has GPUs there), None where any will
    do. `caps` limits the GPUs on each machine, None where nothing but the supply does.
    """

    count: int
    unit: int
    level: Locality
    pin: int | None
    caps: tuple[int, ...] | None

    @property
    def is_plain(self) -> bool:
        """Whether it may be split over machines in any way: only totals count."""
        return self.level >= Locality.RACK and self.unit == 1 and self.caps is None


@value(frozen=True, slots=True)
class Option:
    """One row that can win something: `worth` over the zero row, in quanta; `keep` is a mask of GPUs."""

    row: int
    worth: int
    gpu_count: int
    keep: int
    needs: tuple[int, ...]  # ids of needs, sorted


class Floor:
    """The GPUs on offer by slot, machine and rack; indices follow the order of names and ordinals."""

    def __init__(self, supply: Supply) -> None:
        if len(supply.gpus) >= GPU_QUANTA:
            raise CoreError(f"{len(supply.gpus)} GPUs on offer, at most {GPU_QUANTA - 1}")
        places = supply.topology.places
        self.supply = supply
        self.bit = {gpu: k for k, gpu in enumerate(supply.gpus)}
        self.machines: tuple[NodeName, ...] = tuple(supply.by_machine)
        self.machine_index = {name: k for k, name in enumerate(self.machines)}
        home = [places[gpus[0]].rack for gpus in supply.by_machine.values()]
        self.racks: tuple[RackName, ...] = tuple(sorted(set(home)))
        self.rack_index = {name: k for k, name in enumerate(self.racks)}
        self.rack_of = tuple(self.rack_index[rack] for rack in home)
        self.rack_machines = tuple(tuple(m for m, r in enumerate(self.rack_of) if r == rack) for rack in range(len(self.racks)))
        cells: dict[tuple[NodeName, int], list[int]] = {}
        for gpus in supply.by_machine.values():
            for gpu in gpus:
                cells.setdefault((places[gpu].machine, places[gpu].slot), []).append(self.bit[gpu])
        self.cells = tuple(tuple(bits) for bits in cells.values())  # of each slot, by ordinal
        self.cell_index = {key: k for k, key in enumerate(cells)}
        self.cell_masks = tuple(sum(1 << b for b in bits) for bits in self.cells)
        self.cell_machine = tuple(self.machine_index[machine] for machine, _ in cells)
        self.offered = tuple(len(gpus) for gpus in supply.by_machine.values())  # by machine

    @cached_property
    def machine_cells(self) -> tuple[tuple[int, ...], ...]:
        """Slots of each machine."""
        return tuple(tuple(c for c, m in enumerate(self.cell_machine) if m == machine) for machine in range(len(self.machines)))

    def mask(self, part: Part) -> int:
        """The GPUs that the part keeps, all of which are on offer."""
        return sum(1 << self.bit[gpu] for gpu in part.keep)

    def need(self, part: Part) -> Need | None:
        """What the part needs beside what it keeps; None where that is nothing."""
        if part.more == 0:
            return None
        return Need(part.more, part.unit, part.level, self._pin(part), self._caps(part))

    def is_possible(self, part: Part) -> bool:
        """Whether the part's named GPUs exist, are on offer where they should be, and leave it a place to grow in."""
        topology = self.supply.topology
        if any(gpu not in self.bit for gpu in part.keep) or any(gpu not in topology.places for gpu in part.anchor):
            return False
        named = part.anchor + part.keep
        if topology.locality(named) > part.level:
            return False
        is_pinned = bool(named) and part.level < Locality.CLUSTER
        return part.more == 0 or not is_pinned or self._pin(part) is not None

    def _pin(self, part: Part) -> int | None:
        named = part.anchor + part.keep
        if not named or part.level == Locality.CLUSTER:
            return None
        home = self.supply.topology.places[named[0]]
        if part.level == Locality.SLOT:
            return self.cell_index.get((home.machine, home.slot))
        if part.level == Locality.MACHINE:
            return self.machine_index.get(home.machine)
        return self.rack_index.get(home.rack)

    def _caps(self, part: Part) -> tuple[int, ...] | None:
        if part.job_id not in self.supply.room:
            return None
        whole = [min(n, part.more) // part.unit * part.unit for n in self.offered]
        room = [self.supply.room_on(part.job_id, name) // part.unit * part.unit for name in self.machines]
        caps = tuple(min(r, w) for r, w in zip(room, whole, strict=True))
        return None if caps == tuple(whole) else caps


class Market:
    """All bids against one supply: `options[k]` are the rows of `bids[k]` worth more than its zero row."""

    def __init__(self, bids: tuple[Bid, ...], supply: Supply) -> None:
        self.bids = tuple(sorted(bids, key=lambda bid: bid.app_id))
        if len({bid.app_id for bid in bids}) != len(bids):
            raise CoreError("two bids of one app in an auction")
        self.floor = Floor(supply)
        self.needs: list[Need] = []  # by id
        self._ids: dict[Need, int] = {}
        self.options = [self._options(bid) for bid in self.bids]

    def need_id(self, need: Need) -> int:
        """The id of a need; ids follow the order in which needs were first met, bids by app."""
        found = self._ids.setdefault(need, len(self.needs))
        if found == len(self.needs):
            self.needs.append(need)
        return found

    def part_needs(self, row: Row) -> list[tuple[JobId, int, int | None]]:
        """Of each part of a possible row: its job, the mask of what it keeps, the id of its need."""
        found: list[tuple[JobId, int, int | None]] = []
        for part in row.parts:
            need = self.floor.need(part)
            found.append((part.job_id, self.floor.mask(part), None if need is None else self.need_id(need)))
        return found

    def _options(self, bid: Bid) -> list[Option]:
        """The rows that could be won at all, the best of those that ask for the same; in order of row."""
        best: dict[tuple[int, tuple[int, ...]], Option] = {}
        for k, row in enumerate(bid.rows):
            gain = min(row.log_value - bid.rows[0].log_value, LOG_GAIN_MAX)
            quanta = round(gain / LOG_QUANTUM)
            if k == 0 or quanta <= 0 or not self._is_possible(row):
                continue
            parts = self.part_needs(row)
            keep = sum(mask for _, mask, _ in parts)
            needs = tuple(sorted(need for _, _, need in parts if need is not None))
            option = Option(k, quanta * GPU_QUANTA - row.gpu_count, row.gpu_count, keep, needs)
            known = best.get((keep, needs))
            if known is None or option.worth > known.worth:
                best[keep, needs] = option
        return sorted(best.values(), key=lambda option: option.row)

    def _is_possible(self, row: Row) -> bool:
        if row.gpu_count > len(self.floor.supply.gpus) or not all(self.floor.is_possible(p) for p in row.parts):
            return False
        kept = [gpu for part in row.parts for gpu in part.keep]
        return len(set(kept)) == len(kept)
