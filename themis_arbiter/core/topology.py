"""Where GPUs are: slots in machines in racks, and how tight a set of GPUs lies.

A `Topology` is a frozen picture of the cluster; a change of nodes makes a new one. Every ordering that others rely on
(machines, GPUs of a machine) is fixed here, by name and ordinal, so that no choice hangs on the order of arrival.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from themis_arbiter.core.gpu_speeds import Reach, Speeds, reach_of, speed_on
from themis_arbiter.core.types import CoreError, GpuId, GpuSpeeds, Locality, NodeName, RackName, gpu_id

DECLARATIONS_KEPT_MAX: Final = 4_096  # of speeds by type, whose meaning in this cluster is remembered
LOCALITIES_KEPT_MAX: Final = 20_000  # sets of GPUs whose level is remembered; then all are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A node with `gpus` GPUs in slots of `gpus_per_slot`; live, where slots are unknown, the machine is one slot."""

    name: NodeName
    rack: RackName
    gpus: int
    gpus_per_slot: int = 0
    gpu_type: str = ""

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise CoreError(f"machine {self.name}: {self.gpus} GPUs, must be at least 0")

    @property
    def slot_size(self) -> int:
        """GPUs in a slot, at least 1."""
        return self.gpus_per_slot or max(1, self.gpus)

    def gpu_ids(self) -> tuple[GpuId, ...]:
        """This machine's GPUs by ordinal."""
        return tuple(gpu_id(self.name, k) for k in range(self.gpus))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one GPU is."""

    rack: RackName
    machine: NodeName
    slot: int
    ordinal: int


@dataclass(frozen=True)
class Topology:
    """The cluster's machines, in order of name."""

    machines: tuple[Machine, ...] = ()
    _by_name: Mapping[NodeName, Machine] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "machines", tuple(sorted(self.machines, key=lambda m: m.name)))
        object.__setattr__(self, "_by_name", {m.name: m for m in self.machines})
        if len(self._by_name) != len(self.machines):
            raise CoreError("two machines have the same name")

    @cached_property
    def places(self) -> Mapping[GpuId, Place]:
        """Every GPU's place, machines by name, GPUs by ordinal."""
        return {g: Place(m.rack, m.name, k // m.slot_size, k) for m in self.machines for k, g in enumerate(m.gpu_ids())}

    @cached_property
    def gpus_of(self) -> Mapping[NodeName, tuple[GpuId, ...]]:
        """Every machine's GPUs by ordinal, machines by name."""
        return {m.name: m.gpu_ids() for m in self.machines}

    @cached_property
    def plain(self) -> Mapping[str, list[Any]]:
        """Rack, GPUs and slot size of each machine, as decision records have them."""
        return {m.name: [m.rack, m.gpus, m.slot_size] for m in self.machines}

    @cached_property
    def gpu_count(self) -> int:
        """All GPUs."""
        return sum(m.gpus for m in self.machines)

    @cached_property
    def _largest(self) -> tuple[int, int, int]:
        """The most GPUs that one slot, one machine and one rack have."""
        racks: dict[RackName, int] = {}
        for m in self.machines:
            racks[m.rack] = racks.get(m.rack, 0) + m.gpus
        slot = max((min(m.slot_size, m.gpus) for m in self.machines), default=0)
        machine = max((m.gpus for m in self.machines), default=0)
        return slot, machine, max(racks.values(), default=0)

    @cached_property
    def _best(self) -> tuple[Locality, ...]:
        """The tightest level of so many GPUs, for each number that fits a rack."""
        slot, machine, rack = self._largest
        levels = (Locality.SLOT, Locality.MACHINE, Locality.RACK)
        return tuple(levels[(n > slot) + (n > machine)] for n in range(rack + 1))

    @cached_property
    def _speeds(self) -> dict[GpuSpeeds, Speeds | None]:
        return {}

    def speeds(self, declared: GpuSpeeds) -> Speeds | None:
        """What a job's declaration means here; None: all GPUs run at speed 1, as for who declares nothing."""
        if not declared:
            return None
        known = self._speeds
        if declared not in known:
            if len(known) >= DECLARATIONS_KEPT_MAX:
                known.clear()
            of_type = {m.gpu_type: speed_on(declared, m.gpu_type) for m in self.machines}
            known[declared] = Speeds(
                of_machine={m.name: of_type[m.gpu_type] for m in self.machines},
                gpus={m.name: m.gpus for m in self.machines},
                type_of=self.type_of,
            )
            if all(speed == 1.0 for speed in of_type.values()):
                known[declared] = None
        return known[declared]

    @cached_property
    def type_of(self) -> Mapping[NodeName, str]:
        """The GPU type of each machine, in lower case; "" where nobody says."""
        return {m.name: m.gpu_type.lower() for m in self.machines}

    @cached_property
    def gpus_by_type(self) -> tuple[tuple[str, int], ...]:
        """GPUs of each type, sorted; names of types in lower case."""
        found: dict[str, int] = {}
        for m in self.machines:
            found[self.type_of[m.name]] = found.get(self.type_of[m.name], 0) + m.gpus
        return tuple(sorted((name, count) for name, count in found.items() if count))

    @cached_property
    def _reaches(self) -> dict[tuple[GpuSpeeds, int, int], Reach]:
        return {}

    def reach(self, declared: GpuSpeeds, gang: int, most: int) -> Reach:
        """What a job of `gang` to `most` GPUs that declares these can do here at best."""
        known, asked = self._reaches, (declared, gang, most)
        if asked not in known:
            if len(known) >= DECLARATIONS_KEPT_MAX:
                known.clear()
            known[asked] = reach_of(declared, gang, most, self.gpus_by_type)
        return known[asked]

    def machine(self, name: NodeName) -> Machine | None:
        """The machine of that name, None where there is none."""
        return self._by_name.get(name)

    @cached_property
    def _localities(self) -> dict[tuple[GpuId, ...], Locality]:
        return {}

    def locality(self, gpus: Iterable[GpuId]) -> Locality:
        """The tightest level that holds all of `gpus`; of no GPUs, SLOT."""
        asked = gpus if type(gpus) is tuple else tuple(gpus)
        known = self._localities
        level = known.get(asked)
        if level is None:
            if len(known) >= LOCALITIES_KEPT_MAX:
                known.clear()
            level = known[asked] = self._locality(asked)
        return level

    def _locality(self, gpus: tuple[GpuId, ...]) -> Locality:
        places = self.places
        first: Place | None = None
        level = Locality.SLOT
        for gpu in gpus:
            place = places[gpu]
            if first is None:
                first = place
            elif place.machine == first.machine:
                if place.slot != first.slot and level is Locality.SLOT:
                    level = Locality.MACHINE
            elif place.rack == first.rack:
                level = Locality.RACK
            else:
                return Locality.CLUSTER
        return level

    def nodes_locality(self, nodes: Iterable[NodeName]) -> Locality:
        """The same for GPUs of which only the nodes are known: one node is MACHINE, since its slots are not."""
        machines = [self._by_name[n] for n in nodes if n in self._by_name]
        if len(machines) <= 1:
            return Locality.MACHINE
        return Locality.RACK if len({m.rack for m in machines}) == 1 else Locality.CLUSTER

    def best_locality(self, gpu_count: int) -> Locality:
        """The tightest level that `gpu_count` GPUs can have in this cluster when it is empty (contracts.md)."""
        return self._best[gpu_count] if gpu_count < len(self._best) else Locality.CLUSTER

    def with_machine(self, machine: Machine) -> "Topology":
        """This cluster with `machine` added or replaced."""
        return Topology((*(m for m in self.machines if m.name != machine.name), machine))

    def without_machine(self, name: NodeName) -> "Topology":
        """This cluster less the machine of that name."""
        return Topology(tuple(m for m in self.machines if m.name != name))
