"""The checks after a fault, each from outside: the ResourceManager's log, the store's file, what `themis leases` says.

A check answers with lines; a system that keeps its promises gives none.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.rm_log import Container, GateLease, RmLog
from tests.chaos.stage import HEARTBEAT_MS, LEASE_MS, NOTICE_MS
from themis_arbiter.core.codec import untagged
from themis_arbiter.core.effects import GrantGpus, LeaseMoved
from themis_arbiter.core.events import EpochAcquired
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.journal_format import parse_header, parse_steps

KILL_LATE_MS: Final = 10_000  # a container that is killed at a lease's end may take so long to be gone (a loaded machine)
CLOCK_MS: Final = 100  # two stamps of one moment in one log
CUT_SHORT_MS: Final = 300  # a drain's deadline is told as a time from now and comes to the gate a little later
HELD: Final = (LeaseState.GRANTED, LeaseState.ACTIVE)


@dataclass
class Kept:
    """What became of the leases that were held before a fault."""

    compared: int = 0
    error_ms: Millis = 0  # by which an end differs from the grid point that it had, or a whole number of leases later
    told_error_ms: Millis = 0  # by which the gate's deadline of a lease that ended differs from its end
    lost: list[str] = field(default_factory=list)


def leases_kept(before: Mapping[str, Lease], told: Mapping[str, Millis], log: RmLog, watched: Collection[str]) -> Kept:
    """Every lease of the `watched` jobs that was held before is told of with the same id and its end on the same grid, or was
    drained at its end."""
    kept = Kept()
    for lease_id, lease in sorted(before.items()):
        if lease.state not in HELD or lease.job_id not in watched:
            continue
        kept.compared += 1
        gate = log.leases.get(lease_id)
        if gate is not None and gate.drained_ms is not None:
            _drained(kept, lease, gate)
        elif lease_id in told:
            moved_ms = told[lease_id] - lease.end_ms
            error_ms = abs((moved_ms + LEASE_MS // 2) % LEASE_MS - LEASE_MS // 2)
            kept.error_ms = max(kept.error_ms, error_ms)
            if moved_ms < 0 or error_ms:
                kept.lost.append(f"{lease_id} of {lease.job_id}: its end moved by {moved_ms} ms")
        else:
            kept.lost.append(f"{lease_id} of {lease.job_id} on {lease.gpu} is gone without a drain")
    return kept


def _drained(kept: Kept, lease: Lease, gate: GateLease) -> None:
    if gate.deadline_ms is None:
        return  # its drain is being told anew
    early_ms = lease.end_ms - gate.deadline_ms
    if early_ms > CUT_SHORT_MS:
        kept.lost.append(f"{lease.lease_id} of {lease.job_id} on {lease.gpu} was to end {early_ms} ms before its time")
    # It may have been renewed before it was drained: the distance to the grid is what counts.
    off_ms = abs((gate.deadline_ms + LEASE_MS // 2) % LEASE_MS - LEASE_MS // 2)
    if off_ms < LEASE_MS // 4:  # held past its end, it drains a notice from the moment when it can be told
        kept.told_error_ms = max(kept.told_error_ms, off_ms)


class Endings:
    """Finds containers that ended though a lease covered them. Each drained lease accounts for one container."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._spent: set[str] = set()

    def unexplained(self, log: RmLog, gangs: Mapping[str, int]) -> list[str]:
        """Those of the watched jobs, with their gangs, that ended since the last call."""
        fresh = [c for c in log.containers.values() if c.ended_ms is not None and c.container_id not in self._seen]
        found = []
        for container in sorted(fresh, key=lambda c: (c.ended_ms or 0, c.container_id)):
            self._seen.add(container.container_id)
            if container.job_id in gangs:
                why = self._why(container, log)
                if why and not _is_handed_back(container, gangs[container.job_id], log):
                    found.append(f"{container.container_id} on {container.node} {container.end}: {why}")
        return found

    def _why(self, container: Container, log: RmLog) -> str:
        ended_ms = container.ended_ms or 0
        due = [
            x
            for x in log.leases.values()
            if (x.job_id, x.node) == (container.job_id, container.node)
            and x.lease_id not in self._spent
            and x.drained_ms is not None
            and x.drained_ms <= ended_ms + CLOCK_MS
        ]
        due.sort(key=lambda x: (x.deadline_ms or 0, x.lease_id))
        if not due:
            return "its lease was valid"
        lease = due[-1]
        self._spent.add(lease.lease_id)
        if lease.notice_ms is not None and 2 * lease.notice_ms < NOTICE_MS:
            return f"the end of {lease.lease_id} was told {lease.notice_ms} ms before it came"
        if container.end == "KILLED" and lease.deadline_ms is not None and ended_ms < lease.deadline_ms - CLOCK_MS:
            return f"killed {lease.deadline_ms - ended_ms} ms before the end of {lease.lease_id}"
        return ""


def _is_handed_back(container: Container, gang: int, log: RmLog) -> bool:
    """Whether its own master gave it up while the job's valid leases were fewer than its gang.

    A gang that is told to leave a part of its GPUs stops as a whole and asks anew. While nobody leads, nothing is granted to
    it; containers that start under what it kept cannot train, and after a while it hands them back, and asks again.
    """
    at_ms = container.ended_ms or 0
    valid = sum(
        x.gpus
        for x in log.leases.values()
        if x.job_id == container.job_id
        and x.granted_ms <= at_ms
        and (x.drained_ms is None or x.drained_ms > at_ms)
        and (x.removed_ms is None or x.removed_ms > at_ms)
    )
    return container.end == "RELEASED" and valid < gang


def used_without_lease(log: RmLog, at_ms: Millis) -> list[str]:
    """Applications that use more of a node than the gate has leases for, beyond what is on its way out."""
    allowed: Counter[tuple[str, str]] = Counter()
    for lease in log.in_gate.values():
        if lease.deadline_ms is None or at_ms <= lease.deadline_ms + KILL_LATE_MS + 2 * HEARTBEAT_MS:
            allowed[lease.job_id, lease.node] += lease.gpus
    used: Counter[tuple[str, str]] = Counter()
    for c in log.live().values():
        used[c.job_id, c.node] += c.gpus
    return [f"{j} uses {k} GPUs of {n} under {allowed[j, n]} leases" for (j, n), k in sorted(used.items()) if k > allowed[j, n]]


def over_used(log: RmLog) -> list[str]:
    """Nodes with more GPUs in containers than they have."""
    used: Counter[str] = Counter()
    for c in log.live().values():
        used[c.node] += c.gpus
    return [f"{n}: {k} GPUs in containers, {log.gpus_of[n]} in all" for n, k in sorted(used.items()) if k > log.gpus_of[n]]


def leased_twice(journals: Iterable[Path]) -> list[str]:
    """GPUs that an arbiter, or two terms of it, told the gate to be two leases' at once. By GPU, over all terms."""
    holder: dict[str, str] = {}
    found: list[str] = []
    for path in journals:
        with path.open(encoding="utf-8") as lines:
            parse_header(lines.readline())
            for step in parse_steps(lines):
                if isinstance(step.event, EpochAcquired):
                    found += _inherit(holder, step.event, path.name)
                for effect in untagged_effects(step.effects_line):
                    found += _tell(holder, effect, f"{path.name}:{step.line_no}")
    return found


def untagged_effects(line: str) -> Iterable[GrantGpus | LeaseMoved]:
    """The effects of a step that say who holds what."""
    import json

    for plain in json.loads(line)["effects"]:
        if plain["type"] in ("GrantGpus", "LeaseMoved"):
            yield untagged(json.dumps(plain))


def _inherit(holder: dict[str, str], event: EpochAcquired, where: str) -> list[str]:
    """A new term holds what the store holds: no GPU twice."""
    fresh: dict[str, str] = {}
    found = []
    for lease in event.leases:
        if lease.state in (*HELD, LeaseState.DRAINING):
            if lease.gpu in fresh:
                found.append(f"{where}: the store has {lease.gpu} under {fresh[lease.gpu]} and {lease.lease_id}")
            fresh[lease.gpu] = lease.lease_id
    holder.clear()
    holder.update(fresh)
    return found


def _tell(holder: dict[str, str], effect: GrantGpus | LeaseMoved, where: str) -> list[str]:
    if isinstance(effect, LeaseMoved):
        if effect.lease.state is LeaseState.ENDED and holder.get(effect.lease.gpu) == effect.lease.lease_id:
            del holder[effect.lease.gpu]
        return []
    found = []
    for lease in effect.leases:
        other = holder.get(lease.gpu, lease.lease_id)
        if other != lease.lease_id:
            found.append(f"{where}: {lease.gpu} granted as {lease.lease_id} while {other} has it")
        holder[lease.gpu] = lease.lease_id
    return found


def adopted(stored: Mapping[str, Lease], log: RmLog) -> tuple[list[Lease], list[str]]:
    """Leases of what ran without one, each to a grid end; and what still runs without."""
    found = [x for x in stored.values() if x.cause is Cause.ADOPTED]
    wrong = [f"{x.lease_id} was adopted to {x.end_ms}, which is no grid end" for x in found if x.end_ms % LEASE_MS]
    leased: Counter[tuple[str, str]] = Counter()
    for lease in stored.values():
        if lease.state is not LeaseState.WAITING:
            leased[lease.job_id, lease.node_of_gpu] += 1
    for (job_id, node), count in sorted(log.running().items()):
        if count > leased[job_id, node]:
            wrong.append(f"{job_id} runs on {count} GPUs of {node} under {leased[job_id, node]} leases")
    return found, wrong
