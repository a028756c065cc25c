"""The GPUs on offer by slot, machine and rack, as indices and counts."""

from typing import Final

import numpy as np
import numpy.typing as npt

from themis_arbiter.core.auction.bid import Part, Supply
from themis_arbiter.core.types import CoreError, GpuId, JobId, Locality, NodeName

GPUS_MAX: Final = 1 << 15  # on offer at once

Counts = npt.NDArray[np.int64]


class Floor:
    """Indices follow the order of names and ordinals. Machines with equally many GPUs on offer are one class."""

    def __init__(self, supply: Supply) -> None:
        if len(supply.gpus) >= GPUS_MAX:
            raise CoreError(f"{len(supply.gpus)} GPUs on offer, at most {GPUS_MAX - 1}")
        places = supply.topology.places
        self.supply = supply
        self.machines: tuple[NodeName, ...] = tuple(supply.by_machine)
        self.machine_index = {name: k for k, name in enumerate(self.machines)}
        home = [places[gpus[0]].rack for gpus in supply.by_machine.values()]
        self.rack_index = {name: k for k, name in enumerate(sorted(set(home)))}
        self.rack_of = [self.rack_index[rack] for rack in home]
        self.cells: list[list[GpuId]] = []  # of each slot, by ordinal
        self.cell_machine: list[int] = []
        self.cell_index: dict[tuple[NodeName, int], int] = {}
        self.cell_of: dict[GpuId, int] = {}
        for machine, (name, gpus) in enumerate(supply.by_machine.items()):
            for gpu in gpus:
                key = name, places[gpu].slot
                cell = self.cell_index.get(key)
                if cell is None:
                    cell = self.cell_index[key] = len(self.cells)
                    self.cells.append([])
                    self.cell_machine.append(machine)
                self.cells[cell].append(gpu)
                self.cell_of[gpu] = cell
        self.offered = [len(gpus) for gpus in supply.by_machine.values()]
        sizes = sorted(set(self.offered))
        self.class_sizes = sizes
        index = {size: k for k, size in enumerate(sizes)}
        self.class_of = [index[n] for n in self.offered]
        self.rack_machines: list[list[int]] = [[] for _ in self.rack_index]
        for machine, rack in enumerate(self.rack_of):
            self.rack_machines[rack].append(machine)

    def pin(self, part: Part) -> int | None:
        """The slot, machine or rack that the part must be in because it has GPUs there; None where any will do."""
        named = part.anchor or part.keep
        if not named or part.level == Locality.CLUSTER:
            return None
        home = self.supply.topology.places[named[0]]
        if part.level == Locality.SLOT:
            return self.cell_index.get((home.machine, home.slot))
        if part.level == Locality.MACHINE:
            return self.machine_index.get(home.machine)
        return self.rack_index.get(home.rack)

    def size(self, level: Locality, pin: int) -> int:
        """GPUs on offer at a place that `pin` found."""
        if level == Locality.SLOT:
            return len(self.cells[pin])
        if level == Locality.MACHINE:
            return self.offered[pin]
        return sum([self.offered[machine] for machine in self.rack_machines[pin]])

    def caps(self, job_id: JobId, unit: int, types: tuple[str, ...] = ()) -> Counts | None:
        """The most GPUs, in whole units, that the job has room for on each machine; None where the supply is the limit.

        Where `types` are named, machines of others have none.
        """
        room = self.supply.room.get(job_id)
        if types:
            all_room, type_of = room or {}, self.supply.topology.type_of
            limits_of = zip(self.machines, self.offered, strict=True)
            room = {n: all_room.get(n, k) if type_of[n] in types else 0 for n, k in limits_of}
        if room is None:
            return None
        offered = np.array(self.offered, dtype=np.int64)
        limits = np.array([room.get(name, n) for name, n in zip(self.machines, self.offered, strict=True)], dtype=np.int64)
        caps = np.maximum(limits, 0) // unit * unit
        return None if bool((caps >= offered // unit * unit).all()) else caps
