"""Free GPUs by slot, machine and rack, and the best hole among them for a number of GPUs.

Best fit, as tight as can be: one slot where the job's model gains by it, else one machine, the one that is left with the
fewest; else machines of one rack; else any. A job that has GPUs already looks beside them first. Machines are kept in buckets
by how many GPUs they have free, so that a search looks at few of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.gpu_speeds import Speeds
from themis_arbiter.core.policies.base import MarketJob
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.types import GpuId, JobId, Locality, NodeName

ROUNDING: Final = 1e-9  # a share of speed: what is faster by less is not faster

Room: TypeAlias = Mapping[NodeName, int] | None  # GPUs of each node that a job's containers fit beside; None: all of them


class Holes:
    """The free GPUs of one round while they are being given out."""

    def __init__(
        self,
        supply: Supply,
        free: Iterable[GpuId],
        slowdowns: SlowdownModel,
        got: Mapping[JobId, tuple[GpuId, ...]] | None = None,
    ) -> None:
        """`got`: what jobs have of this supply already."""
        self._supply = supply
        self._got = got or {}
        self._places = supply.topology.places
        self._slowdowns = slowdowns
        self._names: tuple[NodeName, ...] = tuple(supply.by_machine)
        self._index = {name: m for m, name in enumerate(self._names)}
        home = [self._places[gpus[0]].rack for gpus in supply.by_machine.values()]
        racks = sorted(set(home))
        self._rack_index = {rack: r for r, rack in enumerate(racks)}
        self._rack_of = [self._rack_index[rack] for rack in home]
        self._in_rack: list[list[int]] = [[] for _ in racks]
        for m, r in enumerate(self._rack_of):
            self._in_rack[r].append(m)
        self._free: list[set[GpuId]] = [set() for _ in self._names]
        for gpu in free:
            self._free[self._index[self._places[gpu].machine]].add(gpu)
        self._rack_free = [sum(len(self._free[m]) for m in machines) for machines in self._in_rack]
        most = max((len(gpus) for gpus in supply.by_machine.values()), default=0)
        self._buckets: list[set[int]] = [set() for _ in range(most + 1)]
        for m, gpus in enumerate(self._free):
            self._buckets[len(gpus)].add(m)
        self.count = sum(self._rack_free)

    def __contains__(self, gpu: GpuId) -> bool:
        return gpu in self._free[self._index[self._places[gpu].machine]]

    def gpus(self) -> set[GpuId]:
        """All that is free."""
        return {g for free in self._free for g in free}

    def take(self, gpus: Iterable[GpuId]) -> None:
        """These are free no more."""
        for gpu in gpus:
            m = self._index[self._places[gpu].machine]
            before = len(self._free[m])
            self._free[m].remove(gpu)
            self._moved(m, before)

    def give_back(self, gpus: Iterable[GpuId]) -> None:
        """These are free (again)."""
        for gpu in gpus:
            m = self._index[self._places[gpu].machine]
            before = len(self._free[m])
            self._free[m].add(gpu)
            self._moved(m, before)

    def _moved(self, m: int, before: int) -> None:
        now = len(self._free[m])
        self._buckets[before].discard(m)
        self._buckets[now].add(m)
        self._rack_free[self._rack_of[m]] += now - before
        self.count += now - before

    # -- looking for a hole

    def find(
        self, job: MarketJob, count: int, beside: Sequence[GpuId] = (), level_max: Locality = Locality.CLUSTER
    ) -> tuple[GpuId, ...] | None:
        """`count` free GPUs for a job, in whole units on each machine; None where none lie within `level_max`.

        Nothing is taken. `beside` are the job's other GPUs, which count for the level and draw the search to them. Of GPUs of
        several types those with which the job is fastest, and of equals those of one type, the slowest.
        """
        speeds = self._supply.topology.speeds(job.gpu_speeds)
        if speeds is None:
            return self._find(job, count, beside, level_max, self._room(job))
        best: tuple[GpuId, ...] | None = None
        best_speed = 0.0
        for only, least in (*speeds.bands, *((None, speed) for speed in reversed(speeds.levels))):
            room = self._room_of_type(job, speeds, only, least)
            found = self._find(job, count, beside, level_max, room)
            if found is not None:
                gpus = (*beside, *found)
                speed = self._slowdowns.speed(job.model, gpus, self._supply.topology) * speeds.slowest(gpus)
                if speed > best_speed * (1 + ROUNDING):
                    best, best_speed = found, speed
        return best

    def _room_of_type(self, job: MarketJob, speeds: Speeds, only: str | None, least: float) -> Room:
        """Its room on machines of one type, or of all that are so fast."""
        room = self._room(job) or {}
        return {
            name: room.get(name, len(gpus)) if speeds.of_machine[name] >= least and only in (None, speeds.type_of[name]) else 0
            for name, gpus in self._supply.by_machine.items()
        }

    def _find(
        self, job: MarketJob, count: int, beside: Sequence[GpuId], level_max: Locality, room: Room
    ) -> tuple[GpuId, ...] | None:
        if count > self.count:
            return None
        near = self._near(beside)
        spread = self._supply.topology.locality(beside)
        if spread > level_max:
            return None
        if spread <= Locality.MACHINE:
            found = self._on_one_machine(job, count, beside, near, room, level_max)
            if found is not None or level_max <= Locality.MACHINE:
                return found
        if spread <= Locality.RACK:
            found = self._within_rack(job, count, beside, near, room)
            if found is not None or level_max == Locality.RACK:
                return found
        return self._anywhere(job, count, near, room)

    def capacity(self, job: MarketJob, least: float = 0.0) -> int:
        """The most free GPUs that the job could take, of types at least so fast."""
        speeds = self._supply.topology.speeds(job.gpu_speeds)
        if speeds is not None and not speeds.levels:
            return 0
        room = self._room(job) if speeds is None else self._room_of_type(job, speeds, None, max(least, speeds.levels[-1]))
        return sum(self._cap(m, job.unit, room) for m in range(len(self._names)))

    def _near(self, beside: Sequence[GpuId]) -> set[int]:
        return {self._index[m] for g in beside if (m := self._places[g].machine) in self._index}

    def _room(self, job: MarketJob) -> Room:
        """What is left of the supply's room for the job: GPUs that it got before use some of it up."""
        room = self._supply.room.get(job.job_id)
        new = [g for g in self._got.get(job.job_id, ()) if g not in job.ending]
        if room is None or not new:
            return room
        left = dict(room)
        for gpu in new:
            machine = self._places[gpu].machine
            left[machine] = left.get(machine, 0) - 1
        return left

    def _cap(self, m: int, unit: int, room: Room) -> int:
        """GPUs of a machine that a job could take."""
        free = len(self._free[m])
        if room is not None:
            free = min(free, room.get(self._names[m], free))
        return max(0, free) // unit * unit

    def _on_one_machine(
        self, job: MarketJob, count: int, beside: Sequence[GpuId], near: set[int], room: Room, level_max: Locality
    ) -> tuple[GpuId, ...] | None:
        if beside:
            # Only a machine that it is on makes one machine of all its GPUs (elsewhere: see the rack's search).
            able = [m for m in sorted(near) if self._cap(m, job.unit, room) >= count]
            if not able:
                return None
            gpus = self._gpus_of(able[0], count, beside)
            return gpus if self._supply.topology.locality((*beside, *gpus)) <= level_max else None
        slows = self._slowdowns.slowdown
        gains_by_slot = slows(job.model, Locality.SLOT) < slows(job.model, Locality.MACHINE)
        if gains_by_slot or level_max == Locality.SLOT:
            found = self._smallest_machine(job, count, room, in_slot=True)
            if found is not None:
                return self._gpus_of(found, count, ())
            if level_max == Locality.SLOT:
                return None
        found = self._smallest_machine(job, count, room, in_slot=False)
        return None if found is None else self._gpus_of(found, count, ())

    def _smallest_machine(self, job: MarketJob, count: int, room: Room, *, in_slot: bool) -> int | None:
        """The machine with the fewest free GPUs that will do; of these one in the fullest rack."""
        if count % job.unit:
            return None
        names = self._names
        for size in range(count, len(self._buckets)):
            able = [
                m
                for m in self._buckets[size]
                if (room is None or room.get(names[m], size) >= count)  # `_cap` in whole units, by hand: it is asked of all
                and (not in_slot or max(len(s) for s in self._by_slot(m).values()) >= count)
            ]
            if able:
                return min(able, key=lambda m: (self._rack_free[self._rack_of[m]], m))
        return None

    def _within_rack(
        self, job: MarketJob, count: int, beside: Sequence[GpuId], near: set[int], room: Room
    ) -> tuple[GpuId, ...] | None:
        racks = range(len(self._in_rack))
        if beside:
            home = self._places[beside[0]].rack
            racks = range(self._rack_index[home], self._rack_index[home] + 1) if home in self._rack_index else range(0)
        able = [r for r in racks if self._rack_free[r] >= count]
        for r in sorted(able, key=lambda r: (self._rack_free[r], r)):
            taken = self._fill(job, count, self._in_rack[r], near, room)
            if taken is not None:
                return taken
        return None

    def _anywhere(self, job: MarketJob, count: int, near: set[int], room: Room) -> tuple[GpuId, ...] | None:
        """Machines of as few racks as can be, racks where it is first."""
        near_racks = {self._rack_of[m] for m in near}
        order = sorted(range(len(self._in_rack)), key=lambda r: (r not in near_racks, -self._rack_free[r], r))
        taken: list[GpuId] = []
        for r in order:
            caps = sum(self._cap(m, job.unit, room) for m in self._in_rack[r])
            part = min(count - len(taken), caps) // job.unit * job.unit
            if part:
                found = self._fill(job, part, self._in_rack[r], near, room)
                assert found is not None, f"rack {r} has {caps} GPUs for {job.job_id}, {part} were asked for"
                taken += found
            if len(taken) == count:
                return tuple(sorted(taken))
        return None

    def _fill(self, job: MarketJob, count: int, machines: list[int], near: set[int], room: Room) -> tuple[GpuId, ...] | None:
        """`count` GPUs of these machines: where it is already first, then few machines, the last one the best fit."""
        caps = {m: cap for m in machines if (cap := self._cap(m, job.unit, room)) > 0}
        if sum(caps.values()) < count or count % job.unit:
            return None
        taken: list[GpuId] = []
        while (left := count - len(taken)) > 0:
            m = min(caps, key=lambda m: (m not in near, caps[m] < left, caps[m] if caps[m] >= left else -caps[m], m))
            taken += self._gpus_of(m, min(left, caps.pop(m)), ())
        return tuple(sorted(taken))

    def _by_slot(self, m: int) -> dict[int, list[GpuId]]:
        slots: dict[int, list[GpuId]] = {}
        for gpu in sorted(self._free[m], key=lambda g: self._places[g].ordinal):
            slots.setdefault(self._places[gpu].slot, []).append(gpu)
        return slots

    def _gpus_of(self, m: int, count: int, beside: Sequence[GpuId]) -> tuple[GpuId, ...]:
        """`count` free GPUs of one machine from as few slots as can be, slots where the job is first."""
        slots = self._by_slot(m)
        near = {self._places[g].slot for g in beside if self._places[g].machine == self._names[m]}
        taken: list[GpuId] = []
        while (left := count - len(taken)) > 0:
            best = min(
                slots,
                key=lambda s: (
                    s not in near,
                    len(slots[s]) < left,
                    len(slots[s]) if len(slots[s]) >= left else -len(slots[s]),
                    s,
                ),
            )
            taken += slots.pop(best)[:left]
        return tuple(sorted(taken))
