"""What must never be, seen from outside: the store's nodes, the gate's messages, containers, recorded rounds.

Nothing here uses the core: the book of leases is read from ZooKeeper's nodes by a reader of its own, and the gate's and the
containers' books are kept from what passes by. A claim that fails is kept in `broken`, with the claim's name and the time.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.faults.zookeeper import SimZooKeeper
from themis_arbiter.core.effects import Effect, GrantGpus, RequestDrain, RoundClosed, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.sim.live_gate import Gate, LeaseUpdate
from themis_arbiter.sim.live_jobs import EXIT_PREEMPTED, Container, SimJob

BROKEN_MAX: Final = 20  # kept of one run; the first tells most
CLOCKS_MS: Final = 3_000  # that clocks of arbiters and ResourceManager differ by, with what messages take on their way
# Why a lease may be drained before its end, as its record in the store says.
EARLY: Final = frozenset(
    {"recall", "unwanted", "app_ended", "gang_broken", "node_lost", "node_drained", "no_show", "revoked", "recovery"}
)
Lease = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Broken:
    """A claim that did not hold."""

    claim: str
    at_ms: Millis
    text: str


class StoredBook:
    """The lease book as the nodes say it stands, whoever wrote them."""

    def __init__(self, servers: SimZooKeeper) -> None:
        self._servers = servers
        self._read: list[str] = []  # names of the segments that `leases` is made of
        self.leases: dict[str, Lease] = {}
        self.ever: dict[str, Lease] = {}  # each lease that was ever committed, as last written
        self.epoch = 0

    def take_in(self, paths: Iterable[str]) -> bool:
        """The tree has changed there; whether a write was committed to the book."""
        is_book = False
        for path in paths:
            node = self._servers.nodes.get(path)
            if node is None:
                continue
            if path.endswith("/epoch"):
                self.epoch = int(json.loads(node.data)["epoch"])
            elif path.endswith("/index"):
                self._read_book(path, json.loads(node.data)["segments"])
                is_book = True
        return is_book

    def _read_book(self, index_path: str, segments: list[list[Any]]) -> None:
        names = [str(segment[0]) for segment in segments]
        if names[: len(self._read)] != self._read:
            self.leases, self._read = {}, []
        folder = index_path.removesuffix("index") + "segments/"
        for name, chunks, *_ in segments[len(self._read) :]:
            packed = b"".join(self._servers.nodes[f"{folder}{name}-{k}"].data for k in range(int(chunks)))
            for line in zlib.decompress(packed).decode().split("\n"):
                self._read_line(line.split("\t"))
        self._read = names

    def _read_line(self, fields: list[str]) -> None:
        if fields[0] == "L":
            lease = json.loads(fields[2])
            self.leases[lease["lease_id"]] = self.ever[lease["lease_id"]] = lease
        elif fields[0] == "l":
            self.leases.pop(json.loads(fields[1]), None)


class Watch:
    """All checkers of one run. `is_well` is whether an arbiter leads, unhindered, with the ResourceManager attached."""

    def __init__(self, servers: SimZooKeeper, settings: Settings, jobs: Iterable[SimJob], now_ms: Callable[[], Millis]) -> None:
        self.book = StoredBook(servers)
        self.broken: list[Broken] = []
        self.lines: list[str] = []  # what passed by, for comparing runs
        self.seen: Counter[str] = Counter()  # how often a claim had something to look at
        self._settings, self._now_ms = settings, now_ms
        self._jobs = {job.job_id: job for job in jobs}
        self._gate: dict[str, tuple[str, str]] = {}  # lease -> GPU, job
        self._draining: dict[str, Millis] = {}  # lease -> deadline
        self._ordered: dict[tuple[str, str], Millis] = {}  # job, node -> the earliest deadline of a drain there
        self._gate_epoch = 0
        self._wrong_ms: dict[tuple[str, str], Millis] = {}  # how long something has been so that may be so for a while
        self._lost_ms: dict[str, Millis] = {}  # node -> when it was lost last
        self._held: Counter[tuple[str, str]] = Counter()  # job, node -> GPUs of containers

    def fail(self, claim: str, text: str) -> None:
        """The claim does not hold."""
        if len(self.broken) < BROKEN_MAX:
            self.broken.append(Broken(claim, self._now_ms(), text))

    # -- the store

    def on_store(self, paths: tuple[str, ...]) -> None:
        """The tree has changed there."""
        before = self.book.epoch
        is_book = self.book.take_in(paths)
        if self.book.epoch < before:
            self.fail("epochs never fall", f"the store's went from {before} to {self.book.epoch}")
        if not is_book:
            return
        self.seen["no GPU under two leases"] += 1
        counts = Counter((lease["gpu"], lease["state"] == "waiting") for lease in self.book.leases.values())
        for (gpu, _), count in counts.items():
            if count > 1:
                self.fail("no GPU under two leases", f"{gpu} has {count} in the store: {self._leases_of(gpu)}")
        longest = self._settings.lease_ms + self._settings.notice_ms + self._settings.restart_cost_ms
        for lease in self.book.leases.values():
            left = lease["end_ms"] - max(lease["start_ms"], self._now_ms())
            if left > longest + CLOCKS_MS:
                self.fail("every lease ends", f"{lease['lease_id']} has {left} ms left")

    def _leases_of(self, gpu: str) -> list[Lease]:
        return [lease for lease in self.book.leases.values() if lease["gpu"] == gpu]

    # -- the gate

    def on_gate(self, update: LeaseUpdate) -> None:
        """The gate has taken an update."""
        self.lines.append(f"{self._now_ms()} {type(update).__name__} {update.epoch} {update.seq}")
        self.seen["epochs never fall"] += 1
        if update.epoch < self._gate_epoch:
            self.fail("epochs never fall", f"the gate took epoch {update.epoch} after {self._gate_epoch}")
        self._gate_epoch = max(self._gate_epoch, update.epoch)
        match update:
            case SyncLeases():
                self._gate, self._draining = {}, {}
                self._put(update.leases)
                for lease_id, deadline_ms in update.drains:
                    self._drain(lease_id, deadline_ms)
            case GrantGpus():
                self._put(update.leases)
            case RequestDrain():
                for lease_id in update.lease_ids:
                    self._drain(lease_id, update.deadline_ms)
            case WithdrawLeases():
                for lease_id in update.lease_ids:
                    self._withdraw(lease_id)
        for gpu, count in Counter(gpu for gpu, _ in self._gate.values()).items():
            if count > 1:
                there = sorted(lease_id for lease_id, (at, _) in self._gate.items() if at == gpu)
                self.fail("no GPU under two leases", f"the gate honours {there} on {gpu}")

    def on_restart(self) -> None:
        """The ResourceManager has forgotten its gate and its kill timers."""
        self.lines.append(f"{self._now_ms()} restart")
        self._gate, self._draining = {}, {}

    def _put(self, leases: Iterable[Any]) -> None:
        for lease in leases:
            self.seen["no uncommitted lease"] += 1
            if lease.lease_id not in self.book.ever:
                self.fail("no uncommitted lease", f"the gate was told of {lease.lease_id}, which no store has seen")
            self._gate[lease.lease_id] = (lease.gpu, lease.job_id)

    def _drain(self, lease_id: str, deadline_ms: Millis) -> None:
        if lease_id not in self._gate:
            return
        self._draining[lease_id] = deadline_ms
        gpu, job_id = self._gate[lease_id]
        place = (job_id, gpu.rpartition(":")[0])
        self._ordered[place] = min(deadline_ms, self._ordered.get(place, deadline_ms))
        stored = self.book.ever.get(lease_id)
        self.seen["no GPU lost early"] += 1
        if stored is not None and deadline_ms + CLOCKS_MS < stored["end_ms"] and stored["cause"] not in EARLY:
            text = f"{lease_id} is to go by {deadline_ms} and ends at {stored['end_ms']} ({stored['cause']})"
            self.fail("no GPU lost early", text)

    def _withdraw(self, lease_id: str) -> None:
        """A lease is over: what ran under it must be gone, or its GPU is still in use and yet free for the next lease.

        A lost node ends its leases; where the node is back before that is heard, what has begun there since is adopted.
        """
        self._draining.pop(lease_id, None)
        gpu, job_id = self._gate.pop(lease_id, ("", ""))
        place = (job_id, gpu.rpartition(":")[0])
        was_lost = self._lost_ms.get(place[1], 0) >= self.book.ever.get(lease_id, {"start_ms": 0})["start_ms"] - CLOCKS_MS
        if self._held[place] > self._leased(place) and not was_lost:
            self.fail("no GPU under two leases", f"{lease_id} is over, and {place} holds {self._held[place]} GPUs")

    def _leased(self, place: tuple[str, str]) -> int:
        return sum((job, gpu.rpartition(":")[0]) == place for gpu, job in self._gate.values())

    # -- containers

    def on_placed(self, container: Container) -> None:
        """A container has got GPUs."""
        place = (container.job_id, container.node)
        self._held[place] += container.gpus
        leased = self._leased(place)
        self.seen["no uncommitted lease"] += 1
        if self._held[place] > leased:
            self.fail("no uncommitted lease", f"{place} holds {self._held[place]} GPUs under {leased} leases")

    def on_node_lost(self, node: str) -> None:
        """The node is gone."""
        self._lost_ms[node] = self._now_ms()

    def on_lost(self, container: Container, exit_status: int, *, node_is_lost: bool) -> None:
        """A container has lost its GPUs."""
        place = (container.job_id, container.node)
        self._held[place] -= container.gpus
        self.lines.append(f"{self._now_ms()} lost {container.container_id} {exit_status}")
        self.seen["no GPU lost early"] += 1
        if node_is_lost or (exit_status != EXIT_PREEMPTED and not container.is_told):
            return
        deadline_ms = self._ordered.get(place)
        if deadline_ms is None or (exit_status == EXIT_PREEMPTED and self._now_ms() < deadline_ms):
            self.fail("no GPU lost early", f"{container.container_id} of {place} was taken, drains: {deadline_ms}")

    # -- rounds

    def observe(self, _event: Event, effects: tuple[Effect, ...]) -> None:
        """As the driver's observer: recorded rounds have to add up."""
        for effect in effects:
            if isinstance(effect, RoundClosed):
                self._on_round(effect.record)

    def _on_round(self, record: Mapping[str, Any]) -> None:
        self.seen["rounds add up"] += 1
        offered = Counter(record["offered"])
        parts = [*_gpus(record["kept"]), *record["withheld"], *record["unsold"]]
        handed = [*_gpus(record["leftovers"]), *record["unused"]]
        if Counter(parts) != offered:
            self.fail("rounds add up", f"round {record['round']}: offered {sorted(offered)}, accounted for {sorted(parts)}")
        elif Counter(handed) != Counter([*record["withheld"], *record["unsold"]]):
            self.fail("rounds add up", f"round {record['round']}: {sorted(handed)} was left over or unused of {parts}")

    # -- what may be so for a while

    def on_time(self, passed_ms: Millis, live: Mapping[str, int], *, is_well: bool) -> None:
        """So much time has passed; `live` are jobs that live, with the GPUs that their containers hold."""
        if not is_well:
            self._wrong_ms.clear()
            return
        leases = Counter(lease["job_id"] for lease in self.book.leases.values() if lease["state"] != "draining")
        wrong: dict[tuple[str, str], str] = {}
        for job_id, held in live.items():
            gang = self._jobs[job_id].gang
            self.seen["gangs are whole"] += held >= gang > 1
            if 0 < held < gang or 0 < leases[job_id] < gang:
                wrong["gangs are whole", job_id] = f"{held} GPUs and {leases[job_id]} leases of a gang of {gang}"
        for lease_id, lease in self.book.leases.items():
            self.seen["every lease ends"] += 1
            if lease["end_ms"] + CLOCKS_MS < self._now_ms():
                wrong["every lease ends", lease_id] = f"ended at {lease['end_ms']} and is still {lease['state']}"
        self._wrong_ms = {key: self._wrong_ms.get(key, 0) + passed_ms for key in wrong}
        for (claim, who), ms in self._wrong_ms.items():
            if ms > self.patience_ms[claim]:
                self.fail(claim, f"{who}: {wrong[claim, who]}, for {ms} ms")

    @property
    def patience_ms(self) -> Mapping[str, Millis]:
        """How long that may be so while somebody leads.

        A gang that is not whole: one lease's whole course. A lease past its end: what its holder is given where it could not be
        told in time, after the grace for what may have run there.
        """
        s = self._settings
        late_ms = s.notice_ms + s.recovery_grace_ms + s.restart_cost_ms
        return {"gangs are whole": s.lease_ms + s.gang_wait_ms + late_ms, "every lease ends": late_ms}


class WatchedGate(Gate):
    """The simulated gate, looked at."""

    def __init__(self, start_id: str, watch: Watch) -> None:
        super().__init__(start_id)
        self._watch = watch

    def restart(self, start_id: str) -> None:
        """See Gate."""
        super().restart(start_id)
        self._watch.on_restart()

    def take(self, update: LeaseUpdate) -> tuple[tuple[str, Millis], ...]:
        """See Gate."""
        self._watch.on_gate(update)
        return super().take(update)


def _gpus(nested: Any) -> list[str]:
    """GPU ids of a mapping of mappings of lists."""
    if isinstance(nested, Mapping):
        return [gpu for inner in nested.values() for gpu in _gpus(inner)]
    return [str(gpu) for gpu in nested]
