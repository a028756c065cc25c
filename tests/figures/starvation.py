"""Long random runs in which gangs of 8 and 32 wait among a stream of small apps: how long until each app is served.

    python -m tests.figures.starvation [--runs 1000] [--policies themis,guard] [--write-docs]

An app's share has paid for a lease once its ideal fluid share since its arrival adds up to one lease of its gang (or to all of
its work, if that is less), and for all at its fair finish. Each run is made from its number alone, and is not made again where
its line is there already.
"""

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tests.figures.kept import asked, kept, tell
from tests.figures.tables import table
from tests.support.replays import cluster, job
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.figures import fair_finishes
from themis_arbiter.sim.setkeys import make_settings
from themis_arbiter.sim.simulate import Inputs, replay
from themis_arbiter.sim.trace import Trace, TraceJob, fair_app

ROOT: Final = Path(__file__).resolve().parents[2]
LEASE_S: Final = 300.0
RESTART_S: Final = 40.0
SMALL: Final = (1, 1, 2, 4)  # GPUs of small apps
GANGS: Final = (8, 32)
LATE_MAX: Final = {8: 3.0, 32: 5.0}  # leases, from being paid for to the start: what is aimed at


@dataclass(frozen=True, slots=True)
class Served:
    """When an app was served, in leases since its arrival, and when its share had paid for a lease of its gang, and for all."""

    gang: int
    waited: float
    lease_paid: float
    all_paid: float


def random_run(number: int) -> tuple[int, Trace]:
    """GPUs, and jobs: small apps at .7 to 1.2 of what the cluster takes, and gangs that come all the while."""
    chance = Random(f"{number}/starvation")
    gpus = chance.choice((32, 64))
    hours, load = chance.uniform(3.0, 6.0), chance.uniform(0.7, 1.2)
    small_s, mean_size = 600.0 * 4.0 ** chance.random(), sum(SMALL) / len(SMALL)
    gangs = [(n, chance.uniform(0.0, 0.8 * hours * 3600.0)) for n in GANGS for _ in range(chance.randint(1, 3))]
    jobs = [job(f"gang{n}-{k}", "j", at, n, LEASE_S * chance.uniform(0.5, 4.0)) for k, (n, at) in enumerate(gangs)]
    work = sum(j.gang * j.duration_s for j in jobs)
    rate = max(0.0, load * gpus - work / (hours * 3600.0)) / (mean_size * small_s)
    at, small = 0.0, list[TraceJob]()
    while at < hours * 3600.0:
        size, lasts = chance.choice(SMALL), max(120.0, chance.expovariate(1.0 / small_s))
        small.append(job(f"small{len(small)}", "j", at, size, lasts))
        at += chance.expovariate(rate) if len(small) > gpus // mean_size else 0.0  # it starts full
    return gpus, Trace(tuple(sorted([*jobs, *small], key=lambda j: (j.arrival_s, j.key))))


def paid_after(jobs: Sequence[TraceJob], one: TraceJob, lasts_s: float, gpus: int) -> float:
    """Seconds from the job's arrival until the ideal share has paid for so much of it: others flow on as they are."""
    apps = [fair_app(j.app_id, (replace(j, duration_s=min(j.duration_s, lasts_s)) if j is one else j,), 1.0) for j in jobs]
    return fair_finishes(apps, gpus)[one.app_id] - one.arrival_s


def served(number: int, policy: str) -> tuple[Served, ...]:
    """Every gang of the run, and of the small apps the one that waited longest."""
    gpus, trace = random_run(number)
    settings = make_settings(policy, lease_s=LEASE_S, restart_cost_s=RESTART_S, rho_floor_s=600.0, knob=None, sets={})
    inputs = Inputs(trace=trace, topology=cluster(gpus // 8, 8), slowdowns=SlowdownModel(), settings=settings)
    waited = {j.spec.app_id: (j.first_start_ms - j.arrival_ms) / 1000.0 for j in replay(inputs, io.StringIO()).jobs}
    small = max((j for j in trace.jobs if j.gang not in GANGS), key=lambda j: (waited[j.app_id], j.app_id))
    return tuple(
        Served(
            gang=j.gang,
            waited=waited[j.app_id] / LEASE_S,
            lease_paid=paid_after(trace.jobs, j, LEASE_S, gpus) / LEASE_S,
            all_paid=paid_after(trace.jobs, j, j.duration_s, gpus) / LEASE_S,
        )
        for j in trace.jobs
        if j.gang in GANGS or j is small
    )


def plain(policy: str, number: str) -> list[dict[str, float]]:
    """`served`, as plain values."""
    return [asdict(s) for s in served(int(number), policy)]


def rows(policy: str, found: Iterable[tuple[int, tuple[Served, ...]]]) -> list[list[str]]:
    """A row a kind of app."""
    by_kind: dict[str, list[tuple[Served, int]]] = {}
    for number, apps in found:
        for app in apps:
            kind = f"gang of {app.gang}" if app.gang in GANGS else "small, the last one served"
            by_kind.setdefault(kind, []).append((app, number))
    out = []
    for kind, members in sorted(by_kind.items()):
        after_a_lease = [(a.waited - a.lease_paid, n) for a, n in members]
        after_all = [(a.waited - a.all_paid, n) for a, n in members]
        aim = LATE_MAX.get(members[0][0].gang, 0.0)
        longest = f"{max(a.waited for a, _ in members):.0f}"
        out.append([policy, kind, str(len(members)), longest, *_late(after_a_lease, aim), *_late(after_all, aim)])
    return out


def _late(found: list[tuple[float, int]], aim: float) -> tuple[str, str]:
    """The most, with its run, and how many are within what is aimed at."""
    most, number = max(found)
    share = sum(late <= aim for late, _ in found) / len(found)
    return f"{most:.1f} (run {number})", f"{100 * share:.1f} %" if aim else "-"


HEADER: Final = (
    *("policy", "app", "apps", "waited, most", "after a lease was paid for, most", "within 3 (5)"),
    *("after all was paid for, most", "within 3 (5)"),
)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    given = asked(arguments, name="starvation", text=__doc__, count=("runs", 1000), policies=POLICIES, default="themis,guard")
    tell(given, "starvation", table(HEADER, show(given.policies, range(given.runs), given.out, given.jobs)))
    return 0


def show(policies: Sequence[str], numbers: Sequence[int], out: Path, jobs: int) -> list[list[str]]:
    """Rows of all policies."""
    shown: list[list[str]] = []
    for policy in policies:
        runs = kept(out / f"{policy}.jsonl", [str(n) for n in numbers], partial(plain, policy), jobs, policy)
        shown += rows(policy, ((int(number), tuple(Served(**s) for s in found)) for number, found in runs))
    return shown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
