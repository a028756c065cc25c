"""CPU and memory of a simulated cluster: who uses how much of which machine, where the cluster file says what there is.

They weigh in dominant shares (`drf`, `carbyne`) and bound where containers fit, by the arbiter's own reckoning, as live. CPUs
count in thousandths, memory in megabytes, each for one GPU of a job. What the file does not say is plentiful and nobody asks.
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Final

from themis_arbiter.core.events import NodeReport
from themis_arbiter.core.gpu_speeds import Speeds, as_text
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, GpuSpeeds, NodeName
from themis_arbiter.sim.clusterfile import Capacity
from themis_arbiter.sim.trace import TraceJob

PLENTY: Final = 1 << 40
PER_CPU: Final = 1_000
PER_GB: Final = 1_024
ROOMS_KEPT_MAX: Final = 4_096
TYPES_SHOWN_MAX: Final = 8  # in a reason


class Stock:
    """What machines have and what is left of it."""

    def __init__(self, topology: Topology, capacity: Mapping[NodeName, Capacity]) -> None:
        any_machine = next(iter(capacity.values()), Capacity())
        self._has_memory, self._has_cpu = any_machine.memory_gb is not None, any_machine.cpu is not None
        self._topology = topology
        self._machines: Final = {m.name: m for m in topology.machines}
        self._free = {name: _amounts(capacity.get(name, Capacity())) for name in self._machines}
        self._all = dict(self._free)
        self._rooms: dict[tuple[tuple[int, int], GpuSpeeds], int] = {}
        self._changed: dict[NodeName, None] = {}

    def need(self, job: TraceJob) -> tuple[int, int]:
        """Megabytes and thousandths of a CPU that a container of the job, one GPU, takes; 0 where nobody counts."""
        memory = ceil(job.memory_gb * PER_GB) if self._has_memory else 0
        return memory, ceil(job.cpu * PER_CPU) if self._has_cpu else 0

    def room(self, job: TraceJob) -> int:
        """GPUs that the job's containers could have at most if the cluster were empty."""
        need, speeds = self.need(job), self._topology.speeds(job.gpu_speeds)
        if need == (0, 0) and speeds is None:
            return self._topology.gpu_count
        if (need, job.gpu_speeds) not in self._rooms:
            if len(self._rooms) >= ROOMS_KEPT_MAX:
                self._rooms.clear()
            self._rooms[need, job.gpu_speeds] = self._room(need, speeds)
        return self._rooms[need, job.gpu_speeds]

    def _room(self, need: tuple[int, int], speeds: Speeds | None) -> int:
        usable = [m for m in self._machines.values() if speeds is None or speeds.of_machine[m.name] > 0.0]
        return sum(m.gpus if need == (0, 0) else min(m.gpus, *_fits(self._all[m.name], need)) for m in usable)

    def why_not(self, job: TraceJob) -> str:
        """Why the job's gang could not be had even of the empty cluster; empty: it could."""
        room, total = self.room(job), self._topology.gpu_count
        if job.gang <= room:
            return ""
        if job.gang > total:
            return f"needs {job.gang} GPUs, the cluster has {total}"
        speeds = self._topology.speeds(job.gpu_speeds)
        usable = total if speeds is None else speeds.usable
        declares = f"declares {as_text(job.gpu_speeds)} and " if speeds is not None else ""
        if job.gang > usable:
            types = [f"{count} {name or 'of no type'}" for name, count in self._topology.gpus_by_type]
            has = ", ".join([*types[:TYPES_SHOWN_MAX], *(["..."] if len(types) > TYPES_SHOWN_MAX else [])])
            return f"{declares}needs {job.gang} GPUs, the cluster has {usable} that it may have ({has})"
        return f"{declares}needs {job.gang} GPUs, the memory and CPUs of the cluster's machines are enough for {room}"

    def use(self, gpu: GpuId, job: TraceJob, sign: int) -> None:
        """A container of the job on this GPU begins (+1) or ends (-1)."""
        if not (self._has_memory or self._has_cpu):
            return
        memory, cpu = self.need(job)
        if memory or cpu:
            name = gpu.rpartition(":")[0]
            free = self._free[name]
            self._free[name] = (free[0] - sign * memory, free[1] - sign * cpu)
            self._changed[name] = None

    def reports(self) -> tuple[NodeReport, ...]:
        """All machines, as a ResourceManager tells of them."""
        return tuple(self._report(m) for m in self._machines.values())

    def changes(self) -> tuple[NodeReport, ...]:
        """Machines that have more or less than when this was last asked."""
        changed = tuple(self._report(self._machines[name]) for name in sorted(self._changed))
        self._changed.clear()
        return changed

    def _report(self, machine: Machine) -> NodeReport:
        memory, cpu = self._free[machine.name]
        return NodeReport(
            node=machine.name,
            rack=machine.rack,
            gpus=machine.gpus,
            gpus_per_slot=machine.gpus_per_slot,
            gpu_type=machine.gpu_type,
            memory_free_mb=max(0, memory),
            vcores_free=max(0, cpu),
        )


def _amounts(capacity: Capacity) -> tuple[int, int]:
    memory = PLENTY if capacity.memory_gb is None else floor(capacity.memory_gb * PER_GB)
    return memory, PLENTY if capacity.cpu is None else floor(capacity.cpu * PER_CPU)


def _fits(free: tuple[int, int], need: tuple[int, int]) -> tuple[int, ...]:
    return tuple(f // n for f, n in zip(free, need, strict=True) if n)
