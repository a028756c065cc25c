"""The closing account of a run: what each app got, and whether the law of leases was kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TextIO

from themis_arbiter.agent.verify import Counts, verify_counts
from themis_arbiter.cli.local import samples as made
from themis_arbiter.cli.local.samples import Sample
from themis_arbiter.cli.local.watch import gpus_text, short_names
from themis_arbiter.cli.tables import NOTHING, print_table
from themis_arbiter.core.types import JobId, Millis
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.sim.run_check import TIMELY, Bounds, Violation, check_run
from themis_arbiter.sim.run_facts import ContainerStay, JournalFacts
from themis_arbiter.sim.stepwise import total

SUCCEEDED: Final = "SUCCEEDED"
VIOLATIONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AppAccount:
    """One app at its end. Times in seconds; `most_held` are its GPUs by node when it held the most."""

    app_id: str
    job_id: JobId
    final_status: str
    rho: float
    t_shared_s: float
    t_independent_s: float
    work_gpu_s: float
    gpu_s: float
    most_held: Mapping[str, int]
    leases_granted: int
    leases_renewed: int
    leases_ended: int
    counts: Counts | None  # None: not an app of ours, it keeps no logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A run as a whole; it is good where `problems` is empty. `slow` is what came late, on a busy machine for example."""

    apps: tuple[AppAccount, ...]
    violations: tuple[Violation, ...]
    problems: tuple[str, ...]
    slow: tuple[str, ...]
    grid_ends: int
    rounds: int
    leases_moved: int  # handed from one app to another
    journal: str


def settle(
    run_dir: Path,
    journal: Path,
    facts: JournalFacts,
    stays: Sequence[ContainerStay],
    views: Mapping[str, admin_pb2.AppView],
    jobs: Mapping[str, JobId],
    is_real: bool,
) -> Account:
    """The account of a run whose apps have ended (or not, which is then a problem). Errors: OSError, ValueError."""
    apps = tuple(_app_account(run_dir, s, views.get(s.app_id), jobs.get(s.name, ""), stays, is_real) for s in made.SAMPLES)
    late = [jobs[s.name] for s in made.SAMPLES if s.is_late and s.name in jobs]
    violations = tuple(check_run(facts, stays, run_bounds(facts, jobs, is_real), late))
    return Account(
        apps=apps,
        violations=violations,
        problems=(
            *(p for app in apps for p in _problems(app)),
            *_broken([v for v in violations if v.rule not in TIMELY], facts.first_ms),
        ),
        slow=tuple(_broken([v for v in violations if v.rule in TIMELY], facts.first_ms)),
        grid_ends=len(facts.grid_ends_ms),
        rounds=facts.rounds,
        leases_moved=moves(facts),
        journal=str(journal),
    )


def run_bounds(facts: JournalFacts, jobs: Mapping[str, JobId], is_real: bool = True) -> Bounds:
    """What counts as in time here."""
    slow = {jobs[s.name]: made.SHELL_HEARTBEAT_MS for s in made.SAMPLES if s.command and s.name in jobs and is_real}
    return Bounds.of(facts.settings, made.HEARTBEAT_MS, slow)


def moves(facts: JournalFacts) -> int:
    """How often a GPU went from one app to another."""
    count = 0
    for gpu in sorted({x.gpu for x in facts.leases}):
        holders = [x.app_id for x in sorted(facts.leases, key=lambda x: x.granted_ms or 0) if x.gpu == gpu and x.granted_ms]
        count += sum(a != b for a, b in pairwise(holders))
    return count


def most_held(stays: Sequence[ContainerStay]) -> dict[str, int]:
    """GPUs by node at the moment when the containers held the most together."""
    held = {n: total((s.allocated_ms, s.left_ms, s.gpus) for s in stays if s.node == n) for n in {s.node for s in stays}}
    times = sorted({t for each in held.values() for t in each.times})
    best_ms: Millis = max(times, key=lambda t: (sum(each.at(t) for each in held.values()), -t), default=0)
    return {node: each.at(best_ms) for node, each in sorted(held.items()) if each.at(best_ms)}


def _app_account(
    run_dir: Path,
    sample: Sample,
    view: admin_pb2.AppView | None,
    job_id: JobId,
    stays: Sequence[ContainerStay],
    is_real: bool,
) -> AppAccount:
    view = view or admin_pb2.AppView(app_id=sample.app_id)
    folder = made.job_dir(run_dir, sample)
    return AppAccount(
        app_id=sample.app_id,
        job_id=job_id,
        final_status=view.final_status,
        rho=view.rho,
        t_shared_s=max(0, view.finish_ms - view.arrival_ms) / 1_000,
        t_independent_s=view.t_independent_s,
        work_gpu_s=view.work_gpu_s,
        gpu_s=view.attained_gpu_s,
        most_held=most_held([s for s in stays if s.job_id == job_id]),
        leases_granted=view.leases_granted,
        leases_renewed=view.leases_renewed,
        leases_ended=view.leases_ended,
        counts=verify_counts(folder) if is_real and not sample.command and folder.exists() else None,
    )


def _problems(app: AppAccount) -> list[str]:
    found = []
    if app.final_status != SUCCEEDED:
        found.append(f"{app.app_id} ({app.job_id or 'not submitted'}) ended {app.final_status or 'not at all'}")
    if app.counts is not None and not app.counts.is_exact:
        found.append(f"{app.app_id}: its tasks' logs do not add up: {app.counts}")
    return found


def _broken(violations: Sequence[Violation], first_ms: Millis) -> list[str]:
    lines = [
        f"{(v.start_ms - first_ms) / 1_000:.1f}-{(v.end_ms - first_ms) / 1_000:.1f} s: {v.rule.value}: {v.what}"
        for v in violations[:VIOLATIONS_SHOWN_MAX]
    ]
    more = len(violations) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


COLUMNS: Final = (
    *(("APP", False), ("STATUS", False), ("RHO", True), ("T_SHARED", True), ("T_INDEPENDENT", True), ("GPU-S", True)),
    *(("MOST HELD", False), ("GRANTED", True), ("RENEWED", True), ("ENDED", True), ("UNITS OF WORK", False)),
)


def print_account(account: Account, out: TextIO) -> None:
    """The closing table."""
    nodes = short_names({n for app in account.apps for n in app.most_held})
    print_table(COLUMNS, [_row(app, nodes) for app in account.apps], out)
    moved = f"{account.leases_moved} times a GPU went from one app to another"
    print(f"{account.rounds} rounds, {account.grid_ends} lease ends, {moved}", file=out)


def _row(app: AppAccount, nodes: Mapping[str, str]) -> list[str]:
    held = sum(app.most_held.values())
    where = gpus_text({nodes[n]: count for n, count in app.most_held.items()})
    return [
        app.app_id,
        app.final_status or NOTHING,
        f"{app.rho:.2f}",
        f"{app.t_shared_s:.1f} s",
        f"{app.t_independent_s:.1f} s",
        f"{app.gpu_s:.0f}",
        f"{held} ({where})" if held else NOTHING,
        str(app.leases_granted),
        str(app.leases_renewed),
        str(app.leases_ended),
        _counts_text(app.counts),
    ]


def _counts_text(counts: Counts | None) -> str:
    if counts is None:
        return NOTHING
    exact = "exact" if counts.is_exact else "NOT exact"
    return f"{counts.done_once} once, {counts.done_twice} twice, {counts.missing} missing: {exact}"


def as_json(account: Account, more: Mapping[str, Any]) -> str:
    """The account as one JSON document."""
    plain = asdict(account)
    for app, was in zip(plain["apps"], account.apps, strict=True):
        if was.counts is not None:
            app["counts"]["is_exact"] = was.counts.is_exact
    return json.dumps(plain | dict(more), indent=2)
