"""What the ResourceManager's log tells, followed as it grows: who runs where, and which leases the gate was told of.

This is the word of the other side: containers by YARN's own scheduler, leases as the plugin applied them. Nothing here is
taken from the arbiter.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from themis_arbiter.cli.local.stays import application_of
from themis_arbiter.core.types import Millis

STAMP: Final = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
ASSIGNED: Final = re.compile(
    STAMP + r".*Assigned container (container_\S+) of capacity <[^>]*yarn\.io/gpu: (\d+)[^>]*> on host ([^:, ]+)"
)
MOVED: Final = re.compile(STAMP + r".*RMContainerImpl: (container_\S+) Container Transitioned from (\w+) to (\w+)")
REGISTERED: Final = re.compile(
    STAMP + r".*RMAppImpl: (application_\S+) State change from \w+ to RUNNING on event = ATTEMPT_REGISTERED"
)
LISTENS: Final = re.compile(STAMP + r".*Themis gateway listens")
LEASE: Final = re.compile(
    STAMP + r".*Themis lease (granted|listed as draining|drained|removed): lease=(\S+) application=(\S+) node=(\S+) gpus=(\d+)"
    r"(?: kill_in_ms=(\d+))? epoch=(\d+) seq=(\d+)"
)
MODE: Final = re.compile(STAMP + r".*Themis gate: (\w+) \(was")
FALLS: Final = re.compile(STAMP + r".*Themis falls back to (\w+): no accepted message for (\d+) ms")
FAILED: Final = re.compile(STAMP + r".*Themis failed in")
REFUSES: Final = re.compile(STAMP + r".*Themis refuses a lease update: (\w+)")
ENDS: Final = frozenset({"COMPLETED", "EXPIRED", "RELEASED", "KILLED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with GPUs. None: not (yet)."""

    container_id: str
    job_id: str
    node: str
    gpus: int
    since_ms: Millis
    is_running: bool = False
    ended_ms: Millis | None = None
    end: str = ""  # COMPLETED, EXPIRED, RELEASED, KILLED; LOST where a restarted ResourceManager never heard of it again


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLease:
    """A lease as the gate knows it. `deadline_ms` is when its container would be killed."""

    lease_id: str
    job_id: str
    node: str
    gpus: int
    granted_ms: Millis
    drained_ms: Millis | None = None
    deadline_ms: Millis | None = None
    notice_ms: Millis | None = None  # that its holder had when the gate first heard of its drain
    removed_ms: Millis | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it admits a container."""
        return self.drained_ms is None and self.removed_ms is None


@dataclass
class RmLog:
    """The log at `path`, read on by each `poll`."""

    path: Path
    containers: dict[str, Container] = field(default_factory=dict)
    leases: dict[str, GateLease] = field(default_factory=dict)  # every one there ever was, over restarts
    in_gate: dict[str, GateLease] = field(default_factory=dict)  # of this activation, not removed
    mode: str = ""
    fallbacks: list[tuple[Millis, str, Millis]] = field(default_factory=list)  # when, to what, after which silence
    modes: list[tuple[Millis, str]] = field(default_factory=list)
    activations: list[Millis] = field(default_factory=list)
    registered: dict[str, Millis] = field(default_factory=dict)  # when an application's master came, and began to ask
    failures: list[str] = field(default_factory=list)  # lines in which the plugin says that it failed
    refusals: Counter[str] = field(default_factory=Counter)
    awaited: set[str] = field(default_factory=set)  # containers that a restarted ResourceManager has yet to hear of
    over_leased: list[str] = field(default_factory=list)  # moments at which a node had more leases than GPUs
    gpus_of: dict[str, int] = field(default_factory=dict)
    _offset: int = 0
    _update: tuple[int, int] = (0, 0)  # epoch and number of the update that the last line was about

    def poll(self) -> None:
        """Take in what was written since the last call."""
        with self.path.open("rb") as log:
            log.seek(self._offset)
            text = log.read()
        whole = text.rfind(b"\n") + 1
        self._offset += whole
        for line in text[:whole].decode(errors="replace").splitlines():
            self._take(line)

    def running(self) -> Counter[tuple[str, str]]:
        """GPUs that run, by application and node."""
        found: Counter[tuple[str, str]] = Counter()
        for c in self.containers.values():
            if c.is_running and c.ended_ms is None:
                found[c.job_id, c.node] += c.gpus
        return found

    def live(self) -> dict[str, Container]:
        """Containers that have not ended, running or about to."""
        return {i: c for i, c in self.containers.items() if c.ended_ms is None}

    def give_up_awaited(self, at_ms: Millis) -> None:
        """What the restarted ResourceManager has not heard of by now is lost."""
        for container_id in sorted(self.awaited):
            self._end(container_id, at_ms, "LOST")
        self.awaited.clear()

    def _take(self, line: str) -> None:
        if match := MOVED.match(line):
            self._move(match[2], match[4], _millis(match[1]))
        elif match := ASSIGNED.match(line):
            self._assign(match[2], int(match[3]), match[4], _millis(match[1]))
        elif match := LEASE.match(line):
            self._lease(match)
        elif match := MODE.match(line):
            self.mode = match[2]
            self.modes.append((_millis(match[1]), match[2]))
        elif match := FALLS.match(line):
            self.mode = match[2]
            self.fallbacks.append((_millis(match[1]), match[2], int(match[3])))
        elif match := LISTENS.match(line):
            self.activations.append(_millis(match[1]))
            self.in_gate.clear()
            self._update = (0, 0)
            self.mode = "WAITING"
            self.awaited = set(self.live())
        elif match := REGISTERED.match(line):
            self.registered[match[2]] = _millis(match[1])
        elif FAILED.match(line):
            self.failures.append(line)
        elif match := REFUSES.match(line):
            self.refusals[match[2]] += 1

    def _assign(self, container_id: str, gpus: int, node: str, at_ms: Millis) -> None:
        self.awaited.discard(container_id)
        if container_id not in self.containers:
            job_id = application_of(container_id)
            fresh = Container(container_id=container_id, job_id=job_id, node=node, gpus=gpus, since_ms=at_ms)
            self.containers[container_id] = fresh

    def _move(self, container_id: str, to: str, at_ms: Millis) -> None:
        known = self.containers.get(container_id)
        if known is None:
            return
        if to == "RUNNING":
            self.containers[container_id] = replace(known, is_running=True)
        elif to in ENDS:
            self._end(container_id, at_ms, to)

    def _end(self, container_id: str, at_ms: Millis, how: str) -> None:
        known = self.containers[container_id]
        self.awaited.discard(container_id)
        if known.ended_ms is None:
            self.containers[container_id] = replace(known, ended_ms=at_ms, end=how)

    def _lease(self, match: re.Match[str]) -> None:
        at_ms, kind, lease_id = _millis(match[1]), match[2], match[3]
        update = (int(match[8]), int(match[9]))
        if update != self._update:  # an update is applied whole, so it is judged when the next one begins
            self._count_leases(match[1])
        if update[0] < self._update[0]:
            self.failures.append(f"the epoch fell from {self._update[0]}: {match[0]}")
        self._update = update
        known = self.leases.get(lease_id) or GateLease(
            lease_id=lease_id, job_id=match[4], node=match[5], gpus=int(match[6]), granted_ms=at_ms
        )
        match kind:
            case "drained":
                kill_in_ms = int(match[7])
                notice_ms = kill_in_ms if known.notice_ms is None else known.notice_ms
                first_ms = known.drained_ms or at_ms
                known = replace(known, drained_ms=first_ms, deadline_ms=at_ms + kill_in_ms, notice_ms=notice_ms)
            case "listed as draining":
                known = replace(known, drained_ms=known.drained_ms or at_ms)
            case "removed":
                known = replace(known, removed_ms=at_ms)
            case _:
                known = replace(known, drained_ms=None, deadline_ms=None, notice_ms=None, removed_ms=None)
        self.leases[lease_id] = known
        if known.removed_ms is None:
            self.in_gate[lease_id] = known
        else:
            self.in_gate.pop(lease_id, None)

    def _count_leases(self, stamp: str) -> None:
        """A node never has more leases than GPUs, draining ones included: they still hold theirs."""
        by_node: Counter[str] = Counter()
        for lease in self.in_gate.values():
            by_node[lease.node] += lease.gpus
        self.over_leased += [
            f"before {stamp}: {n} has {k} GPUs under lease and {self.gpus_of[n]} in all"
            for n, k in sorted(by_node.items())
            if k > self.gpus_of.get(n, k)
        ]


def _millis(stamp: str) -> Millis:
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)
