"""An app without a checkpoint, ten leases long, among eight that have one: what it gets, and what it costs the others.

python -m tests.support.uninterruptible      prints the table
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.world import SHORT, World
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.types import AppId, Millis, OnLeaseEnd
from themis_arbiter.core.views_of import apps
from themis_arbiter.sim.live_jobs import SimJob, SimNode

NODES: Final = tuple(SimNode(node=f"n{k}", rack=f"r{k // 2}", gpus=gpus) for k, gpus in enumerate((4, 4, 2, 2)))
LEASES_LONG: Final = 10
LONG: Final = "long"
# Gang and most GPUs of each; a minute of work on all of these. They come every 25 s, so five or six are there at once.
RIVALS: Final = ((1, 6), (1, 4), (2, 4), (4, 4), (1, 8), (2, 2), (1, 4), (4, 4))
RIVAL_MS: Final = 60_000
LIMIT_MS: Final = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. `kind` None: without the long app. `rho` has the others' only."""

    kind: OnLeaseEnd | None
    gang: int
    took_ms: Millis
    long_rho: float
    containers: int  # that the long app was given: its gang, where nothing ever interrupted it
    rho: dict[AppId, float]
    leases_moved: int  # leases of others that ended to somebody else


def run(kind: OnLeaseEnd | None, gang: int) -> Outcome:
    """Everybody to his end."""
    jobs = [
        SimJob(app_id=f"r{k}", job_id=f"r{k}", arrival_ms=k * 25_000, gang=least, max_gpus=most, work=most * RIVAL_MS)
        for k, (least, most) in enumerate(RIVALS)
    ]
    work = gang * LEASES_LONG * SHORT.lease_ms
    if kind is not None:
        own = SimJob(app_id=LONG, job_id=LONG, arrival_ms=5_000, gang=gang, max_gpus=gang, work=work, on_lease_end=kind)
        jobs.append(own)
    world = World(NODES, jobs)
    world.run_to_end(LIMIT_MS)
    assert all(j.finish_ms is not None for j in world.cluster.jobs()), world.cluster.jobs()
    views = {a.app_id: a for a in apps(world.arbiter, world.clock.at_ms)}
    long = views.pop(LONG, None)
    return Outcome(
        kind=kind,
        gang=gang,
        took_ms=(long.finish_ms or 0) - long.arrival_ms if long is not None else 0,
        long_rho=long.rho if long is not None else 0.0,
        containers=len(set(_containers(world.journal.lines))),
        rho={a: v.rho for a, v in sorted(views.items())},
        leases_moved=sum(len(r["moves"].get("promised", ())) for r in world.rounds.records),
    )


def _containers(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith('{"event":{"type":"RmReported"'):
            for container in json.loads(line)["event"]["containers"]:
                if container["job_id"] == LONG:
                    yield container["container_id"]


def table(outcomes: list[Outcome]) -> list[list[str]]:
    """A row an outcome."""
    rows = []
    for each in outcomes:
        others = sorted(each.rho.values())
        worst = max(each.rho, key=lambda a: each.rho[a])
        rows.append(
            [
                str(each.gang),
                each.kind.value if each.kind is not None else "without it",
                f"{each.took_ms / 1_000:.0f} s" if each.kind is not None else "",
                f"{each.long_rho:.2f}" if each.kind is not None else "",
                *(f"{each.rho[a]:.2f}" for a in sorted(each.rho)),
                f"{sum(others) / len(others):.2f}",
                f"{others[-1]:.2f} ({worst})",
            ]
        )
    return rows


def main() -> int:
    """Print the table."""
    kinds = (None, *OnLeaseEnd)
    names = [f"r{k}" for k in range(len(RIVALS))]
    columns = [("GANG", True), ("ON_LEASE_END", False), ("TOOK", True), ("RHO", True), *((n, True) for n in names)]
    rows = table([run(kind, gang) for gang in (2, 4) for kind in kinds])
    print_table([*columns, ("MEAN", True), ("WORST", False)], rows, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
