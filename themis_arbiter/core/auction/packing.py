"""Whether a set of needs fits on the floor, and on which GPUs: exact search, bounded by nodes.

A need placed in a rack or a machine is a promise of so many of its GPUs, not of certain ones, so needs may be placed in any
order: what has no choice first, then slots, plain racks, machines, and last those split over machines with units or caps
(every split is tried). Plain needs of the whole cluster fit whenever the total does. Each level tries the tightest fragment
first, so the first descent is best fit; a state that failed once is not entered again, nor one in which the machine needs
left have too few machines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Final

from themis_arbiter.core.auction.bid import Placement
from themis_arbiter.core.auction.market import Floor, Market, Need
from themis_arbiter.core.types import CoreError, GpuId, JobId, Locality

PACK_NODES_MAX: Final = 1_000  # of one search, so that one hard question cannot eat the whole round
EXTEND_NODES_PER_NEED: Final = 2  # to add needs to a packing; beyond that a search from nothing is worth more
MACHINES_PER_NODE: Final = 128  # a level that looks at more machines than this counts as more nodes

Spread = tuple[tuple[int, int], ...]  # (slot, machine or rack, by the need's level; GPUs there)
Packing = dict[int, list[Spread]]  # by need, one spread for each time it is asked for; needs of the whole cluster have none
Question = tuple[int, tuple[int, ...]]  # what is kept, and the needs that shall fit beside it
NOTHING: Final[Question] = (0, ())


class _Stage(IntEnum):
    """Kinds of needs in the order of the search."""

    SLOT = 0
    RACK = 1
    MACHINE = 2
    SPLIT = 3
    ANYWHERE = 4


class Fit(Enum):
    """Whether needs fit; UNKNOWN where the budget ended first."""

    FITS = auto()
    CANNOT = auto()
    UNKNOWN = auto()


@dataclass(slots=True)
class Budget:
    """Nodes that a search may visit, counted down by all of its parts."""

    nodes_max: int
    used: int = 0

    def spend(self, nodes: int = 1) -> bool:
        """Count `nodes`; whether the budget still stands."""
        self.used += nodes
        return self.used <= self.nodes_max


class Packer:
    """Answers about one market's needs, remembered."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._floor = market.floor
        self._known: dict[Question, Packing | None] = {}

    def fits(self, keep: int, needs: tuple[int, ...], budget: Budget, base: Question, nodes_max: int) -> Fit:
        """Whether `needs` (sorted ids) fit on what is left beside the mask `keep`.

        `base` is the same question without some of the GPUs and needs, and known to fit: its packing is added to if that
        is possible; `nodes_max` limits the search from nothing that follows if not (0: none).
        """
        if not needs:
            return Fit.FITS
        question = (keep, needs)
        if question not in self._known:
            if not budget.spend():
                return Fit.UNKNOWN
            if sum(self._market.needs[n].count for n in needs) > len(self._floor.supply.gpus) - keep.bit_count():
                self._known[question] = None
            elif not self._extend(question, base, budget):
                if nodes_max == 0:
                    return Fit.UNKNOWN
                fit, packing = self._search(keep, {}, needs, budget, nodes_max)
                if fit is Fit.UNKNOWN:
                    return fit
                self._known[question] = packing if fit is Fit.FITS else None
        return Fit.CANNOT if self._known[question] is None else Fit.FITS

    def learn_part(self, part: Question, whole: Question) -> None:
        """`part` asks for some of what `whole` does: if a packing of `whole` is known, so is one of it."""
        packing = self._known.get(whole)
        if packing is None or part in self._known:
            return
        left = Counter(part[1])
        self._known[part] = {n: held[: left[n]] for n, held in packing.items() if left[n]}

    def _extend(self, question: Question, base: Question, budget: Budget) -> bool:
        """Whether a few nodes were enough to add what is new to the packing of `base`."""
        packing = self._known.get(base, None if base[1] else {})
        if packing is None:
            return False
        extra = tuple((Counter(question[1]) - Counter(base[1])).elements())
        fit, extended = self._search(question[0], packing, extra, budget, EXTEND_NODES_PER_NEED * len(extra))
        if fit is Fit.FITS:
            self._known[question] = extended
        return fit is Fit.FITS

    def _search(
        self, keep: int, packing: Packing, extra: tuple[int, ...], budget: Budget, nodes_max: int
    ) -> tuple[Fit, Packing]:
        """`packing` with the needs `extra` as well."""
        by_id = self._market.needs
        placed = sorted((n for n in extra if not _is_anywhere(by_id[n])), key=lambda n: (*_search_order(by_id[n]), n))
        search = _Search(self._floor, keep, [by_id[n] for n in placed], budget)
        for n, held in packing.items():
            for spread in held:
                search.apply(by_id[n], spread, -1)
        fit, spreads = search.run(nodes_max)
        found = {n: list(held) for n, held in packing.items()}
        for n, spread in zip(placed, spreads, strict=fit is Fit.FITS):
            found.setdefault(n, []).append(spread)
        return fit, found

    def place(self, rows: Sequence[tuple[int, int]]) -> list[Placement]:
        """GPUs for the rows (bid, row) of a packing that `fits` has found, in their order."""
        market = self._market
        parts = [(k, *part) for k, (bid, row) in enumerate(rows) for part in market.part_needs(market.bids[bid].rows[row])]
        keep = sum(mask for _, _, mask, _ in parts)
        # GPUs are named from the closest needs to the loosest: a promise of a rack's takes what its machines' needs leave.
        waiting = [
            (_NAMING.index(_stage(market.needs[need])), -market.needs[need].count, k, job, mask, need)
            for k, job, mask, need in parts
            if need is not None
        ]
        needs = tuple(sorted(need for *_, need in waiting))
        known = self._known.get((keep, needs)) if needs else {}
        if known is None:
            raise CoreError("only a packing that was found can be placed")
        spreads = {need: iter(found) for need, found in known.items()}
        taker = _Taker(self._floor, keep)
        gpus: list[dict[JobId, tuple[GpuId, ...]]] = [{} for _ in rows]
        for *_, k, job, mask, need_id in sorted(waiting):
            need = market.needs[need_id]
            taken = taker.take_anywhere(need.count) if _is_anywhere(need) else taker.take(need, next(spreads[need_id]))
            gpus[k][job] = self._named(mask | taken)
        for k, job, mask, need_or_none in parts:
            if need_or_none is None:
                gpus[k][job] = self._named(mask)
        return [dict(sorted(one.items())) for one in gpus]

    def _named(self, mask: int) -> tuple[GpuId, ...]:
        return tuple(sorted(gpu for k, gpu in enumerate(self._floor.supply.gpus) if mask >> k & 1))


def _is_anywhere(need: Need) -> bool:
    return _stage(need) is _Stage.ANYWHERE


def _stage(need: Need) -> _Stage:
    if need.level <= Locality.MACHINE:
        return _Stage.SLOT if need.level == Locality.SLOT else _Stage.MACHINE
    if not need.is_plain:
        return _Stage.SPLIT
    return _Stage.RACK if need.level == Locality.RACK else _Stage.ANYWHERE


def _search_order(need: Need) -> tuple[int, ...]:
    """What has no choice first; then by stage; far before close, so that whole racks are found; large before small."""
    return int(need.pin is None), _stage(need), -int(need.level), -need.unit, -need.count


_NAMING: Final = (_Stage.SLOT, _Stage.MACHINE, _Stage.SPLIT, _Stage.RACK, _Stage.ANYWHERE)


def _pieces(needs: list[Need]) -> list[dict[int, int]]:
    """Of each level, how many pieces of a size the machine needs from there on ask for, by size.

    Machines can only meet them all if they hold as many pieces, whatever the size.
    """
    found: list[dict[int, int]] = [{}]
    tail: list[int] = []
    for need in reversed(needs):
        known = found[-1]
        if need.level == Locality.MACHINE:
            sizes = sorted({need.count, *known})
            tail.append(need.count)
            known = {size: sum(count // size for count in tail) for size in sizes}
        found.append(known)
    found.reverse()
    return found


class _Search:
    """One depth-first search over the places of `needs`, which come in `_search_order`."""

    def __init__(self, floor: Floor, keep: int, needs: list[Need], budget: Budget) -> None:
        self._floor = floor
        self._needs = needs
        self._budget = budget
        self._cells = [(mask & ~keep).bit_count() for mask in floor.cell_masks]
        self._machines = [0] * len(floor.machines)
        self._racks = [0] * len(floor.racks)
        for cell, machine in enumerate(floor.cell_machine):
            self._machines[machine] += self._cells[cell]
            self._racks[floor.rack_of[machine]] += self._cells[cell]
        self._slots = max((k + 1 for k, need in enumerate(needs) if need.level == Locality.SLOT), default=0)
        self._pieces = _pieces(needs)
        # From this level on no need names a machine, so states that differ by names only are the same state.
        self._nameless = max(
            (k + 1 for k, need in enumerate(needs) if need.pin is not None or need.caps is not None), default=0
        )

    def run(self, nodes_max: int) -> tuple[Fit, list[Spread]]:
        """The first packing found."""
        if self._is_overdrawn():
            return Fit.CANNOT, []
        if not self._needs:
            return Fit.FITS, []
        nodes_left = nodes_max
        cost = 1 + len(self._machines) // MACHINES_PER_NODE
        chosen: list[Spread] = []
        levels: list[Iterator[Spread]] = []
        failed: set[tuple[object, ...]] = set()
        if not self._has_machines(0):
            return Fit.CANNOT, []
        while len(chosen) < len(self._needs):
            depth = len(chosen)
            if len(levels) == depth:
                levels.append(self._moves(self._needs[depth]))
            spread = next(levels[-1], None)
            if spread is None:
                if depth == 0:
                    return Fit.CANNOT, []
                failed.add(self._state(depth))
                levels.pop()
                self.apply(self._needs[depth - 1], chosen.pop(), 1)
                continue
            nodes_left -= cost
            if nodes_left < 0 or not self._budget.spend(cost):
                return Fit.UNKNOWN, []
            self.apply(self._needs[depth], spread, -1)
            is_dead = failed and (self._state(depth + 1) in failed or not self._has_machines(depth + 1))
            if is_dead or self._is_overdrawn():
                self.apply(self._needs[depth], spread, 1)
            else:
                chosen.append(spread)
        return Fit.FITS, chosen

    def _state(self, depth: int) -> tuple[object, ...]:
        if depth < self._slots:
            return depth, tuple(self._cells), tuple(self._machines), tuple(self._racks)
        if depth < self._nameless:
            return depth, tuple(self._machines), tuple(self._racks)
        racks = sorted(
            (self._racks[r], tuple(sorted(self._machines[m] for m in machines)))
            for r, machines in enumerate(self._floor.rack_machines)
        )
        return depth, tuple(racks)

    def _is_overdrawn(self) -> bool:
        """Whether a place has promised more than it has: promises are made to slots, machines and racks in any order."""
        return min(self._racks) < 0 or min(self._machines) < 0 or min(self._cells) < 0

    def _has_machines(self, depth: int) -> bool:
        """Whether the machine needs from `depth` on have machines enough, by pieces of each size."""
        for size, count in self._pieces[depth].items():
            able = 0
            for rack, machines in enumerate(self._floor.rack_machines):
                able += min(sum(self._machines[m] // size for m in machines), self._racks[rack] // size)
            if able < count:
                return False
        return True

    def apply(self, need: Need, spread: Spread, sign: int) -> None:
        """Take a spread (sign -1) or give it back (1)."""
        for where, count in spread:
            if need.is_plain:
                self._racks[where] += sign * count
                continue
            machine = where
            if need.level == Locality.SLOT:
                self._cells[where] += sign * count
                machine = self._floor.cell_machine[where]
            self._machines[machine] += sign * count
            self._racks[self._floor.rack_of[machine]] += sign * count

    def _moves(self, need: Need) -> Iterator[Spread]:
        """Ways to place one need now, the tightest fragment first."""
        if need.level >= Locality.RACK and not need.is_plain:
            yield from self._splits(need)
            return
        free = {Locality.SLOT: self._cells, Locality.MACHINE: self._machines, Locality.RACK: self._racks}[need.level]
        places = range(len(free)) if need.pin is None else (need.pin,)
        able = [p for p in places if free[p] >= need.count]
        if need.caps is not None:
            of = self._floor.cell_machine if need.level == Locality.SLOT else range(len(free))
            able = [p for p in able if need.caps[of[p]] >= need.count]
        able.sort(key=free.__getitem__)
        for place in able:
            yield ((place, need.count),)

    def _splits(self, need: Need) -> Iterator[Spread]:
        if need.level == Locality.CLUSTER:
            scopes: list[Sequence[int]] = [range(len(self._machines))]
        else:
            racks = range(len(self._racks)) if need.pin is None else (need.pin,)
            able = sorted((r for r in racks if self._racks[r] >= need.count), key=self._racks.__getitem__)
            scopes = [self._floor.rack_machines[r] for r in able]
        for scope in scopes:
            yield from self._splits_of(need, sorted(scope, key=self._machines.__getitem__))

    def _splits_of(self, need: Need, machines: list[int]) -> Iterator[Spread]:
        """Every split of a need over these machines, in whole units: as much as possible on the first ones first."""
        most = [self._machines[m] if need.caps is None else min(self._machines[m], need.caps[m]) for m in machines]
        most = [n // need.unit * need.unit for n in most]
        after = [0] * (len(machines) + 1)  # what the machines from here on can hold
        for k in range(len(machines) - 1, -1, -1):
            after[k] = after[k + 1] + most[k]
        taken: list[int] = []
        left = need.count
        while True:
            while left and len(taken) < len(machines) and after[len(taken)] >= left:
                taken.append(min(most[len(taken)], left))
                left -= taken[-1]
            if left == 0:
                yield tuple((m, n) for m, n in zip(machines, taken, strict=False) if n)
            while taken and taken[-1] == 0:
                taken.pop()
            if not taken:
                return
            taken[-1] -= need.unit
            left += need.unit


class _Taker:
    """Takes GPUs by name, smallest fragments first, so that whole slots and machines stay free."""

    def __init__(self, floor: Floor, keep: int) -> None:
        self._floor = floor
        self._cells = [[bit for bit in bits if not keep >> bit & 1] for bits in floor.cells]

    def take(self, need: Need, spread: Spread) -> int:
        """A mask of GPUs for a need at the places that the search found."""
        taken = 0
        for where, count in spread:
            if need.level == Locality.SLOT:
                taken |= self._from_cell(where, count)
            elif need.is_plain:
                taken |= self._from_machines(self._floor.rack_machines[where], count)
            else:
                taken |= self._from_machine(where, count)
        return taken

    def take_anywhere(self, count: int) -> int:
        """A mask of `count` GPUs of any machines."""
        return self._from_machines(range(len(self._floor.machines)), count)

    def _free(self, machine: int) -> int:
        return sum(len(self._cells[c]) for c in self._floor.machine_cells[machine])

    def _from_machines(self, machines: Sequence[int], count: int) -> int:
        taken = 0
        for machine in sorted(machines, key=self._free):
            part = min(count - taken.bit_count(), self._free(machine))
            taken |= self._from_machine(machine, part)
        return taken

    def _from_machine(self, machine: int, count: int) -> int:
        cells = sorted(self._floor.machine_cells[machine], key=lambda c: len(self._cells[c]))
        whole = [c for c in cells if len(self._cells[c]) >= count]
        taken = 0
        for cell in whole[:1] or cells:
            taken |= self._from_cell(cell, min(count - taken.bit_count(), len(self._cells[cell])))
        return taken

    def _from_cell(self, cell: int, count: int) -> int:
        assert len(self._cells[cell]) >= count, f"slot {cell} has fewer than {count} free GPUs"
        taken, self._cells[cell] = self._cells[cell][:count], self._cells[cell][count:]
        return sum(1 << bit for bit in taken)
