"""From promises to GPUs: closest promises first, smallest fragments first, so that whole slots and machines stay free."""

from collections.abc import Sequence

from themis_arbiter.core.auction.bid import Part, Placement
from themis_arbiter.core.auction.floor import Floor
from themis_arbiter.core.auction.market import Market
from themis_arbiter.core.kernels.layout import (
    AT_CELL,
    AT_LARGE,
    AT_MACHINE,
    AT_RACK,
    CHOSEN,
    GPUS,
    KIND,
    NEED_START,
    NOBODY,
    PROMISE_START,
    SERVES,
    USED,
    WHERE,
    Ints,
)
from themis_arbiter.core.types import GpuId, JobId


def placements(market: Market, state: Sequence[int] | Ints) -> list[Placement]:
    """The GPUs of each bid's jobs, by bid."""
    apps, m = len(market.bids), market.array
    gpus: list[dict[JobId, list[GpuId]]] = [{} for _ in market.bids]
    promises: list[tuple[int, int, int, int, Part, int]] = []
    kept: set[GpuId] = set()
    chosen, used = market.table(state, CHOSEN, apps), market.table(state, USED, apps)
    begin = market.table(m, PROMISE_START, apps + 1)
    kind, where, count, serves = (market.table(state, name, begin[-1]) for name in (KIND, WHERE, GPUS, SERVES))
    for app, option in enumerate(chosen):
        if option == NOBODY:
            continue
        found = market.asks_of(market.bids[app].rows[market.option_rows[option]])
        assert found is not None, f"{market.bids[app].app_id} wins a row that is not to be had"
        parts = [part for part, ask in zip(*found, strict=True) if ask.need != NOBODY]
        for part in found[0]:
            gpus[app][part.job_id] = list(part.keep)
            kept.update(part.keep)
        first_need = m[m[NEED_START] + option]
        promises += [
            (kind[at], -count[at], app, at, parts[serves[at] - first_need], where[at])
            for at in range(begin[app], begin[app] + used[app])
            if serves[at] != NOBODY
        ]
    taker = _Taker(market.floor, kept)
    for at_kind, minus, app, _, part, place in sorted(promises, key=lambda p: p[:4]):
        gpus[app][part.job_id] += taker.take(at_kind, place, -minus)
    return [{job: tuple(sorted(one[job])) for job in sorted(one)} for one in gpus]


class _Taker:
    """GPUs not yet named. Promises come by kind: what is taken from a rack is taken when its machines' promises are named."""

    def __init__(self, floor: Floor, kept: set[GpuId]) -> None:
        self._floor = floor
        self._cells = [[gpu for gpu in gpus if gpu not in kept] for gpus in floor.cells]
        self._machine_cells: list[list[int]] = [[] for _ in floor.machines]
        for cell, machine in enumerate(floor.cell_machine):
            self._machine_cells[machine].append(cell)
        self._orders: dict[int, list[int]] = {}  # by rack, and of all: machines with GPUs left, the fullest last

    def take(self, kind: int, where: int, count: int) -> list[GpuId]:
        """So many GPUs of a place."""
        if kind == AT_CELL:
            return self._from_cell(where, count)
        if kind == AT_MACHINE:
            return self._from_machine(where, count)
        if kind == AT_RACK:
            return self._from_machines(where, self._floor.rack_machines[where], count)
        assert kind == AT_LARGE, f"no such kind of place: {kind}"
        return self._from_machines(NOBODY, range(len(self._floor.machines)), count)

    def _free(self, machine: int) -> int:
        return sum(len(self._cells[c]) for c in self._machine_cells[machine])

    def _from_machines(self, scope: int, machines: Sequence[int], count: int) -> list[GpuId]:
        if scope not in self._orders:
            # What a machine has left only shrinks once its turn has come, and it stays first until it has nothing left.
            self._orders[scope] = sorted(machines, key=lambda m: (-self._free(m), -m))
        order, taken = self._orders[scope], list[GpuId]()
        while len(taken) < count:
            machine = order[-1]
            part = min(count - len(taken), self._free(machine))
            taken += self._from_machine(machine, part)
            if self._free(machine) == 0:
                order.pop()
        return taken

    def _from_machine(self, machine: int, count: int) -> list[GpuId]:
        cells = sorted(self._machine_cells[machine], key=lambda c: len(self._cells[c]))
        whole = [c for c in cells if len(self._cells[c]) >= count]
        taken: list[GpuId] = []
        for cell in whole[:1] or cells:
            taken += self._from_cell(cell, min(count - len(taken), len(self._cells[cell])))
        return taken

    def _from_cell(self, cell: int, count: int) -> list[GpuId]:
        assert len(self._cells[cell]) >= count, f"slot {cell} has fewer than {count} free GPUs"
        taken, self._cells[cell] = self._cells[cell][:count], self._cells[cell][count:]
        return taken
