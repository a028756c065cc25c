"""Bids and supply as flat arrays, for the kernels (`kernels.layout`).

Whose GPUs they are does not matter to the question whether a set of rows fits, so each part becomes the GPUs it keeps (by
slot) and a need: so many more, so close together, so many on a machine. Equal needs are one need, and equal in price where
machines with equally many GPUs are.

Worth is counted in whole quanta of weighted log value, less one for each GPU (`gpu_quanta` to a quantum): sums are exact in any
order, and among equal values the solution of fewer GPUs is the better one, not a matter of rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import log
from typing import Final

import numpy as np

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.auction.floor import Counts, Floor
from themis_arbiter.core.kernels.layout import (
    ANYWHERE,
    HEADER,
    MACHINE,
    NOBODY,
    SLOT,
    SPLIT,
    SPLIT_RACK,
    TABLES,
    WITHIN_RACK,
    Ints,
)
from themis_arbiter.core.types import CoreError, GpuId, JobId, Locality

LOG_QUANTUM: Final = 1e-10  # log values that differ by less are equal
GPU_QUANTA_MIN: Final = 16
LOG_GAIN_MAX: Final = 64.0  # gains above it count as it: a rho 10^27 times better is no different from 10^28
WORTH_MAX: Final = float(1 << 60)  # of all apps together, so that no sum overflows; past it, the quantum is coarser
BIDS_MAX: Final = 1 << 14

PartKey = tuple[int, int, int, tuple[str, ...], tuple[str, ...], JobId | None, tuple[str, ...]]


@dataclass(slots=True)
class Kept:
    """GPUs that parts keep: how close they lie, beside those held outside the offer; by slot; and their price keys."""

    gpus: tuple[GpuId, ...]
    level: Locality
    cells: tuple[int, ...]
    counts: tuple[int, ...]  # by cell
    keys: tuple[int, ...]
    owner: int = NOBODY  # the last app seen with them


@dataclass(slots=True)
class Ask:
    """What a part asks for: a need (NOBODY where nothing beside what it keeps), what it keeps, and its price keys."""

    need: int
    rank: tuple[int, ...]  # of needs, in order of placing
    kept: Kept
    keys: tuple[int, ...]
    pieces: int  # promises that it can take at most


class Market:
    """All bids against one supply."""

    def __init__(self, bids: tuple[Bid, ...], supply: Supply) -> None:
        self.bids = tuple(sorted(bids, key=lambda bid: bid.app_id))
        if len({bid.app_id for bid in bids}) != len(bids) or len(bids) > BIDS_MAX:
            raise CoreError(f"two bids of one app in an auction, or more than {BIDS_MAX} bids")
        self.floor = Floor(supply)
        self.gpu_count = len(self.floor.cell_of)
        self._needs: dict[tuple[int, int, int, int, int], int] = {}
        self._caps: list[Counts] = []
        self._caps_of: dict[tuple[JobId, int, tuple[str, ...]], int] = {}
        self._caps_of_types: dict[bytes, int] = {}
        self._places: list[tuple[int, ...]] = []  # [row][class]
        self._sets: dict[tuple[tuple[int, ...], ...], tuple[int, int]] = {}
        self._keys: dict[tuple[int, int, int], int] = {}
        self._price_keys: dict[tuple[int, int, int, int, int], int] = {}
        self._asks: dict[PartKey, Ask | None] = {}
        self._kept: dict[tuple[tuple[GpuId, ...], tuple[GpuId, ...]], Kept | None] = {}
        self.quantum, self.gpu_quanta = self._units()
        self.option_rows: list[int] = []  # by option: the row of its bid
        self.array = self._flatten()

    def table(self, array: Sequence[int] | Ints, name: int, count: int) -> list[int]:
        """The first entries of a table of this market (`array` is its own) or of a state of it."""
        first = self.array[name]
        return [int(n) for n in array[first : first + count]]

    # ---- worth

    def _units(self) -> tuple[float, int]:
        """The quantum of log value, and how many parts of it a GPU is less than one of."""
        gpu_quanta = max(GPU_QUANTA_MIN, 1 << self.gpu_count.bit_length())
        most = 0.0
        for bid in self.bids:
            least = min([row.rho for row in bid.rows])
            most += bid.weight * min(max(0.0, log(bid.rows[0].rho) - log(least)), LOG_GAIN_MAX)
        quantum = LOG_QUANTUM
        while most / quantum * gpu_quanta > WORTH_MAX:
            quantum *= 2.0
        return quantum, gpu_quanta

    # ---- needs, and what prices see of them

    def ask_of(self, part: Part) -> Ask | None:
        """What a part asks for; None where it is not to be had at all."""
        job = part.job_id if part.job_id in self.floor.supply.room else None
        key = (part.more, part.unit, int(part.level), part.keep, part.anchor, job, part.types)
        try:
            return self._asks[key]
        except KeyError:
            found = self._asks[key] = self._new_ask(part)
            return found

    def _new_ask(self, part: Part) -> Ask | None:
        held = part.keep, part.anchor
        if held not in self._kept:
            self._kept[held] = self._new_kept(part)
        kept = self._kept[held]
        if kept is None or kept.level > part.level:
            return None
        if part.more == 0:
            return Ask(NOBODY, (), kept, kept.keys, len(kept.cells))
        named = self.floor.pin(part) if part.keep or part.anchor else None
        if named is None and (part.keep or part.anchor) and part.level < Locality.CLUSTER:
            return None  # nothing is on offer where it would have to grow
        if named is not None and len(part.keep) + part.more > self.floor.size(part.level, named):
            return None  # it cannot grow as much where it is
        caps = self._caps_row(part)
        kind = _kind(part, has_caps=caps != NOBODY)
        pin = NOBODY if named is None else named
        key = self._price_key(kind, part.unit, pin, caps, part.more)
        if key == NOBODY:
            return None
        need = self._needs.setdefault((kind, part.more, part.unit, pin, caps), len(self._needs))
        pieces = part.more // part.unit if kind in (SPLIT, SPLIT_RACK) else 1
        rank = (int(pin == NOBODY), kind, -part.unit, -part.more, need)
        return Ask(need, rank, kept, (*kept.keys, key), len(kept.cells) + pieces)

    def _new_kept(self, part: Part) -> Kept | None:
        """What the part keeps; None where some of that is not on offer, or what it holds beside does not exist."""
        floor, topology = self.floor, self.floor.supply.topology
        counts: dict[int, int] = {}
        for gpu in part.keep:
            if gpu not in floor.cell_of:
                return None
            counts[floor.cell_of[gpu]] = counts.get(floor.cell_of[gpu], 0) + 1
        if any(gpu not in topology.places for gpu in part.anchor):
            return None
        keys = [self._kept_key(floor.class_of[floor.cell_machine[cell]], gpus) for cell, gpus in counts.items()]
        level = topology.locality(part.anchor + part.keep)
        return Kept(part.keep, level, tuple(counts), tuple(counts.values()), tuple(keys))

    def _caps_row(self, part: Part) -> int:
        key = part.job_id, part.unit, part.types
        found = self._caps_of.get(key)
        if found is None:
            caps = self.floor.caps(part.job_id, part.unit, part.types)
            found = NOBODY if caps is None else len(self._caps)
            if caps is not None and part.types:  # who asks for the same types asks for the same
                found = self._caps_of_types.setdefault(caps.tobytes(), found)
            if caps is not None and found == len(self._caps):
                self._caps.append(caps)
            self._caps_of[key] = found
        return found

    def _rows_of(self, kind: int, unit: int, pin: int, caps: int) -> tuple[tuple[int, ...], ...]:
        """GPUs by class of each different place that would do, for a need of any size."""
        floor = self.floor
        classes = len(floor.class_sizes)
        most = floor.offered if caps == NOBODY else np.minimum(self._caps[caps], floor.offered).tolist()
        found: set[tuple[int, ...]] = set()
        if kind == SLOT:
            for cell in range(len(floor.cells)) if pin == NOBODY else (pin,):
                machine = floor.cell_machine[cell]
                found.add((*(0,) * floor.class_of[machine], min(len(floor.cells[cell]), most[machine])))
        elif kind == MACHINE:
            for machine in range(len(floor.machines)) if pin == NOBODY else (pin,):
                found.add((*(0,) * floor.class_of[machine], most[machine]))
        else:
            is_racked = kind in (WITHIN_RACK, SPLIT_RACK)
            scopes = floor.rack_machines if is_racked else [list(range(len(floor.machines)))]
            for machines in scopes if pin == NOBODY else [floor.rack_machines[pin]]:
                row = [0] * classes
                for machine in machines:
                    row[floor.class_of[machine]] += most[machine] // unit * unit
                found.add(tuple(row))
        return tuple(sorted(found))

    def _kept_key(self, machine_class: int, gpus: int) -> int:
        """The price key of GPUs that are kept in one slot."""
        known = (NOBODY, 1, machine_class, NOBODY, gpus)
        if known not in self._price_keys:
            self._price_keys[known] = self._key(((*(0,) * machine_class, gpus),), gpus)
        return self._price_keys[known]

    def _price_key(self, kind: int, unit: int, pin: int, caps: int, count: int) -> int:
        """The price key of a need; NOBODY where no place is large enough."""
        place = pin
        if kind == MACHINE and pin != NOBODY and caps == NOBODY:
            place = -2 - self.floor.class_of[pin]  # machines of a class cost alike
        known = (kind, unit, place, caps, count)
        if known not in self._price_keys:
            rows = self._rows_of(kind, unit, pin, caps)
            is_possible = any(sum(row) >= count for row in rows)
            self._price_keys[known] = self._key(rows, count) if is_possible else NOBODY
        return self._price_keys[known]

    def _key(self, rows: tuple[tuple[int, ...], ...], count: int) -> int:
        """The price key of a need of `count` GPUs at these places."""
        able = tuple(row for row in rows if sum(row) >= count)
        span = self._sets.get(able)
        if span is None:
            first = len(self._places)
            for row in able:
                self._places.append((*row, *(0,) * (len(self.floor.class_sizes) - len(row))))
            span = self._sets[able] = first, len(self._places)
        return self._keys.setdefault((count, *span), len(self._keys))

    # ---- options

    def asks_of(self, row: Row) -> tuple[tuple[Part, ...], tuple[Ask, ...]] | None:
        """The parts of a row in order of placing, and their asks; None where one is not to be had, or two keep the same GPU."""
        if len(row.parts) == 1:  # as most have
            only = self.ask_of(row.parts[0])
            return None if only is None else (row.parts, (only,))
        found: list[tuple[Part, Ask]] = []
        for part in row.parts:
            ask = self.ask_of(part)
            if ask is None:
                return None
            found.append((part, ask))
        kept = [gpu for part, _ in found for gpu in part.keep]
        if len(set(kept)) != len(kept):
            return None
        found.sort(key=lambda one: one[1].rank)
        return tuple([part for part, _ in found]), tuple([ask for _, ask in found])

    def _options(self, bid: Bid) -> list[tuple[int, int, int, tuple[Ask, ...]]]:
        """(worth, GPUs, row, asks) of rows that could be won at all, the best of those that ask for the same."""
        most, weight, quantum, gpu_quanta = self.gpu_count, bid.weight, self.quantum, self.gpu_quanta
        zero = log(bid.rows[0].rho)
        best: dict[int | tuple[int, ...], tuple[int, int, int, tuple[Ask, ...]]] = {}
        for k, row in enumerate(bid.rows):
            gpus = 0
            for part in row.parts:
                gpus += len(part.keep) + part.more
            gain = zero - log(row.rho)
            if gpus == 0 or gpus > most or gain <= 0.0:
                continue
            quanta = round(weight * min(gain, LOG_GAIN_MAX) / quantum)
            found = self.asks_of(row) if quanta > 0 else None
            if found is None:
                continue
            asks = found[1]
            worth = quanta * gpu_quanta - gpus
            same = id(asks[0]) if len(asks) == 1 else tuple(sorted([id(ask) for ask in asks]))
            known = best.get(same)
            if known is None or worth > known[0]:
                best[same] = worth, gpus, k, asks
        return sorted(best.values(), key=_best_first)

    def _flatten(self) -> list[int]:
        """The market array (`kernels.layout`)."""
        lists: dict[str, list[int]] = {name: [] for name in _OPTION_TABLES}
        start, need_start, keep_start, keys_start, promises = [0], [0], [0], [0], [0]
        kept_by: dict[str, int] = {}
        contested: set[str] = set()
        option_asks: list[tuple[Ask, ...]] = []
        option_worth, option_gpus, needs, keep_cell, keep_gpus, keys = lists.values()
        for app, bid in enumerate(self.bids):
            most = 0
            for worth, gpus, row, asks in self._options(bid):
                option_worth.append(worth)
                option_gpus.append(gpus)
                self.option_rows.append(row)
                option_asks.append(asks)
                pieces = 0
                for ask in asks:
                    pieces += ask.pieces
                    keys += ask.keys
                    if ask.need != NOBODY:
                        needs.append(ask.need)
                    kept = ask.kept
                    if kept.cells:
                        keep_cell += kept.cells
                        keep_gpus += kept.counts
                        if kept.owner != app:
                            kept.owner = app
                            contested.update([gpu for gpu in kept.gpus if kept_by.setdefault(gpu, app) != app])
                most = max(most, pieces)
                need_start.append(len(needs))
                keep_start.append(len(keep_cell))
                keys_start.append(len(keys))
            start.append(len(self.option_rows))
            promises.append(most)
        promises.append(max(promises))
        lists |= {"OPTION_START": start, "NEED_START": need_start, "KEEP_START": keep_start, "KEYS_START": keys_start}
        lists |= self._named(contested, option_asks) | self._floor_tables() | self._need_tables()
        lists["PROMISE_START"] = list(accumulate(promises))
        lists["EMPTY"], state_starts = self._empty(sum(promises), len(contested))
        header = [self.gpu_count, len(self.floor.cells), len(self.floor.machines), len(self.floor.rack_machines)]
        header += [len(self.floor.class_sizes), len(self.bids), len(self.option_rows), len(self._keys), len(lists["EMPTY"])]
        tables = [lists[name] for name in TABLES]
        starts = accumulate((len(table) for table in tables[:-1]), initial=HEADER)
        return [*header, *starts, *state_starts, *chain.from_iterable(tables)]

    def _empty(self, promises: int, contested: int) -> tuple[list[int], list[int]]:
        """The state in which nobody has anything, and where its tables begin."""
        floor = self.floor
        tables = [
            [len(gpus) for gpus in floor.cells],
            floor.offered,
            [sum(floor.offered[m] for m in machines) for machines in floor.rack_machines],
            [self.gpu_count],
            [0] * contested,
            [NOBODY] * len(self.bids),
            *([0] * promises for _ in range(4)),
            [0] * (len(self.bids) + 1),
        ]
        return list(chain.from_iterable(tables)), list(accumulate((len(table) for table in tables[:-1]), initial=0))

    def _named(self, contested: set[str], option_asks: list[tuple[Ask, ...]]) -> dict[str, list[int]]:
        """GPUs that options of several apps keep, by option."""
        if not contested:
            return {"NAMED_START": [0] * (len(option_asks) + 1), "NAMED": []}
        index = {gpu: k for k, gpu in enumerate(sorted(contested))}
        start, named = [0], list[int]()
        for asks in option_asks:
            named += [index[gpu] for ask in asks for gpu in ask.kept.gpus if gpu in contested]
            start.append(len(named))
        return {"NAMED_START": start, "NAMED": named}

    def _floor_tables(self) -> dict[str, list[int]]:
        floor = self.floor
        sizes = [0] * len(floor.class_sizes)
        for machine, gpus in enumerate(floor.offered):
            sizes[floor.class_of[machine]] += gpus
        return {
            "CELL_MACHINE": floor.cell_machine,
            "MACHINE_RACK": floor.rack_of,
            "RACK_START": list(accumulate((len(machines) for machines in floor.rack_machines), initial=0)),
            "RACK_MACHINE": [m for machines in floor.rack_machines for m in machines],
            "CLASS_GPUS": sizes,
        }

    def _need_tables(self) -> dict[str, list[int]]:
        columns = [list(column) for column in zip(*self._needs, strict=True)] or [[]] * 5
        keys = [list(column) for column in zip(*self._keys, strict=True)] or [[]] * 3
        names = ("NEED_KIND", "NEED_COUNT", "NEED_UNIT", "NEED_PIN", "NEED_CAPS", "KEY_COUNT", "KEY_FIRST", "KEY_LAST")
        return dict(zip(names, (*columns, *keys), strict=True)) | {
            "CAPS": [n for row in self._caps for n in row.tolist()],
            "PLACE_GPUS": [n for row in self._places for n in row],
        }


def _best_first(option: tuple[int, int, int, tuple[Ask, ...]]) -> tuple[int, int]:
    return -option[0], option[2]


_OPTION_TABLES: Final = ("OPTION_WORTH", "OPTION_GPUS", "NEEDS", "KEEP_CELL", "KEEP_GPUS", "KEYS")


def _kind(part: Part, *, has_caps: bool) -> int:
    if part.level == Locality.SLOT:
        return SLOT
    if part.level == Locality.MACHINE:
        return MACHINE
    is_plain = part.unit == 1 and not has_caps
    if part.level == Locality.RACK:
        return WITHIN_RACK if is_plain else SPLIT_RACK
    return ANYWHERE if is_plain else SPLIT
