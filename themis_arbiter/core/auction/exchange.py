"""Which of equally good GPUs winners get: their own first, and those of others last.

Bids know shapes only, and so does the search: the GPUs of a slot are one as good as another to it, as are slots of a machine
and machines of a rack that offer as many. To who runs there they are not. So what was won afresh is exchanged among equal
places until no exchange puts out fewer holders who win nothing here. Locality, and so every rho bid, stays what it was.

Left where it is: what a job has that keeps some of its GPUs or holds others, or that has no room everywhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from themis_arbiter.core.auction.bid import Bid, Placement, Row, Solution, Supply
from themis_arbiter.core.types import GpuId, JobId, NodeName

PASSES_MAX: Final = 4  # over all places; the second seldom finds anything
CANDIDATES_MAX: Final = 8  # places that a content is tried at beside those where its jobs are

SlotKey: TypeAlias = tuple[NodeName, int]
Content: TypeAlias = dict[JobId, int]  # GPUs won in a slot, by job; what is fixed there not counted
Cost: TypeAlias = tuple[int, int]  # holders' GPUs taken from those who stay, minus GPUs that winners have already


def spare_holders(solution: Solution, bids: Sequence[Bid], supply: Supply) -> Solution:
    """The solution with GPUs exchanged for equal ones. `bids` in any order; nothing changes where `supply` names no holders."""
    if not supply.ending:
        return solution
    rows_of = {bid.app_id: bid.rows for bid in bids}
    names = _Names([rows_of[win.app_id][win.row] for win in solution.wins], [win.gpus for win in solution.wins], supply)
    wins = (replace(win, gpus=gpus) for win, gpus in zip(solution.wins, names.placements(), strict=True))
    return replace(solution, wins=tuple(wins))


Place = TypeVar("Place", SlotKey, NodeName)


def _exchange(
    equal: Sequence[Place],
    cost: Callable[[Place, Place], Cost],
    swap: Callable[[Place, Place], None],
    candidates: Callable[[Place, Sequence[Place]], Iterable[Place]],
) -> None:
    """Swap contents of equal places as long as a swap costs less. `cost(where, what)` is of the content of `what`."""
    for _ in range(PASSES_MAX):
        is_better = False
        now = {place: cost(place, place) for place in equal}
        for one in equal:
            best: tuple[Cost, Place] | None = None
            for other in candidates(one, equal):
                if other == one:
                    continue
                here, there, then = now[one], now[other], _sum(cost(other, one), cost(one, other))
                gain = then[0] - here[0] - there[0], then[1] - here[1] - there[1]
                if gain < (0, 0) and (best is None or gain < best[0]):
                    best = gain, other
            if best is not None:
                swap(one, best[1])
                now |= {place: cost(place, place) for place in (one, best[1])}
                is_better = True
        if not is_better:
            return


def _sum(one: Cost, other: Cost) -> Cost:
    return one[0] + other[0], one[1] + other[1]


class _Names:
    """One exchange: contents of slots, moved about among slots and machines of equal size."""

    def __init__(self, rows: Sequence[Row], placed: Sequence[Placement], supply: Supply) -> None:
        self._placed = placed
        self._holder = supply.ending
        winner = {gpu: job_id for placement in placed for job_id, gpus in placement.items() for gpu in gpus}
        self._winners = set(winner.values())
        bound = {p.job_id for row in rows for p in row.parts if p.keep or p.anchor or p.types or p.job_id in supply.room}
        self._fixed = {gpu for gpu, job_id in winner.items() if job_id in bound}
        self._slots: dict[SlotKey, list[GpuId]] = {}  # GPUs that may change hands, by ordinal
        self._slots_of: dict[NodeName, list[SlotKey]] = {}
        self._contents: dict[SlotKey, Content] = {}
        places = supply.topology.places
        for name, gpus in supply.by_machine.items():
            for gpu in gpus:
                key = (name, places[gpu].slot)
                if key not in self._slots:
                    self._slots_of.setdefault(name, []).append(key)
                    self._slots[key], self._contents[key] = [], {}
                if gpu in self._fixed:
                    continue
                self._slots[key].append(gpu)
                if gpu in winner:
                    content = self._contents[key]
                    content[winner[gpu]] = content.get(winner[gpu], 0) + 1
        self._has_fixed = {places[gpu].machine for gpu in self._fixed}
        self._rack_of = {name: places[gpus[0]].rack for name, gpus in supply.by_machine.items()}
        self._home: dict[JobId, list[SlotKey]] = {}  # slots where winners run now
        self._held: dict[SlotKey, Content] = {}  # GPUs that may change hands, by who holds them
        self._spare: dict[SlotKey, int] = {}  # of these, how many cost nobody anything who stays
        for key, free in self._slots.items():
            self._held[key] = held = Counter([self._holder.get(gpu, "") for gpu in free])
            self._spare[key] = sum([count for job_id, count in held.items() if not job_id or job_id in self._winners])
            for job_id in sorted(held):
                if job_id:
                    self._home.setdefault(job_id, []).append(key)
        self._by_size = {name: sorted(slots, key=lambda k: (len(self._slots[k]), k)) for name, slots in self._slots_of.items()}

    def placements(self) -> list[Placement]:
        """Exchange, then name."""
        machines: dict[tuple[object, ...], list[NodeName]] = {}
        for name, slots in self._slots_of.items():
            if name not in self._has_fixed:
                sizes = tuple(sorted(len(self._slots[k]) for k in slots))
                machines.setdefault((self._rack_of[name], sizes), []).append(name)
        for names in machines.values():
            names.sort(key=lambda name: (self._staying(name), name))
            _exchange(names, self._machine_cost, self._swap_machines, self._machine_candidates)
        for slots in self._slots_of.values():
            by_size: dict[int, list[SlotKey]] = {}
            if slots[0][0] not in self._has_fixed and any(self._contents[key] for key in slots):
                for key in slots:
                    by_size.setdefault(len(self._slots[key]), []).append(key)
            for equal in by_size.values():
                _exchange(equal, self._cost, self._swap, lambda _, equal: equal)
        return self._named()

    def _staying(self, name: NodeName) -> int:
        """GPUs of a machine whose holders win nothing."""
        holders = [self._holder.get(gpu, "") for key in self._slots_of[name] for gpu in self._slots[key]]
        return sum(bool(job_id) and job_id not in self._winners for job_id in holders)

    # -- what a content costs where

    def _cost(self, where: SlotKey, what: SlotKey) -> Cost:
        """What the content that is at `what` now would cost at `where`."""
        content = self._contents[what]
        if not content:
            return 0, 0
        held, won, own = self._held[where], 0, 0
        for job_id, count in content.items():
            won += count
            own += min(count, held.get(job_id, 0))
        return max(0, won - self._spare[where]), -own

    def _machine_cost(self, where: NodeName, what: NodeName) -> Cost:
        taken = own = 0
        for there, here in zip(self._by_size[where], self._by_size[what], strict=True):
            cost = self._cost(there, here)
            taken += cost[0]
            own += cost[1]
        return taken, own

    def _machine_candidates(self, name: NodeName, equal: Sequence[NodeName]) -> Iterable[NodeName]:
        jobs = {job_id for key in self._slots_of[name] for job_id in self._contents[key]}
        if not jobs:
            return ()
        homes = {key[0] for job_id in jobs for key in self._home.get(job_id, ())}
        return (*(n for n in equal if n in homes), *equal[:CANDIDATES_MAX])

    def _swap(self, one: SlotKey, other: SlotKey) -> None:
        contents = self._contents
        contents[one], contents[other] = contents[other], contents[one]

    def _swap_machines(self, one: NodeName, other: NodeName) -> None:
        for here, there in zip(self._by_size[one], self._by_size[other], strict=True):
            self._swap(here, there)

    # -- names

    def _named(self) -> list[Placement]:
        got: dict[JobId, list[GpuId]] = {}
        for key, content in self._contents.items():
            left = list(self._slots[key])
            for job_id in sorted(content):  # everybody's own, before anybody takes another's
                own = [g for g in left if self._holder.get(g) == job_id][: content[job_id]]
                left = [g for g in left if g not in own]
                got.setdefault(job_id, []).extend(own)
                content[job_id] -= len(own)
            left.sort(key=self._harm)
            for job_id in sorted(content):
                got[job_id] += left[: content[job_id]]
                left = left[content[job_id] :]
        return [
            {j: tuple(sorted((*(g for g in gpus if g in self._fixed), *got.get(j, ())))) for j, gpus in placement.items()}
            for placement in self._placed
        ]

    def _harm(self, gpu: GpuId) -> tuple[bool, bool, JobId]:
        """Free GPUs first, then those of holders who win others, then of one holder after the other. Sorting is stable."""
        holder = self._holder.get(gpu, "")
        return bool(holder) and holder not in self._winners, bool(holder), holder
