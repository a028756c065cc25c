"""The paper's figures and our own targets, computed anew (mechanism.md, sections 4 and 8): `make figures`.

    python -m tests.figures [--quick] [--only targets,systems] [--policies guard,srsf] [--out build/figures] [--write-docs]

Started again, it does only what is not done. `--quick`: two small generated workloads and two seeds, for the tests.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.figures import measured
from tests.figures.charts import Group, bar_chart
from tests.figures.experiments import EXPERIMENTS, VARIANTS, Inputs, liar, targets
from tests.figures.tables import (
    DOCS,
    Runs,
    by_policy,
    by_workload,
    estimate_verdicts,
    halving_verdicts,
    order_exceptions,
    table,
    verdict_table,
    verdicts,
    write_docs,
)
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.sim.sweep import Interval, Point, interval
from themis_arbiter.sim.sweep_run import Outcome, Work, core_count, cores, run_all

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared/traces"
KEPT: Final = frozenset({"summary.json", "apps.csv", "stderr.txt", "done.json"})
QUICK: Final = {"apps": 4, "gpus": 64, "cluster": "c64"}
QUICK_EXPERIMENTS: Final = ("systems", "bid_error", "lying")
SEEDS: Final = 10
FAILED_SHOWN_MAX: Final = 5


def main(arguments: Sequence[str]) -> int:
    """Run, draw, write; 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.figures", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small workloads, two seeds")
    parser.add_argument("--only", default="", help=f"of {', '.join(EXPERIMENTS)}")
    parser.add_argument("--policies", default="", help="of the targets' policies")
    parser.add_argument("--out", type=Path, default=ROOT / "build/figures")
    parser.add_argument("--jobs", type=int, default=core_count(), help="runs at a time")
    parser.add_argument("--write-docs", action="store_true", help=f"put tables and charts into {DOCS.name}")
    given = parser.parse_args(arguments)
    wrong = next((n for n in given.only.split(",") if given.only and n not in EXPERIMENTS), None)
    if wrong is not None:
        parser.error(f"--only: there is no experiment {wrong!r:.40}; there are {', '.join(EXPERIMENTS)}")
    unknown = next((p for p in given.policies.split(",") if given.policies and p not in {*POLICIES, *VARIANTS}), None)
    if unknown is not None:
        parser.error(f"--policies: there is no policy {unknown!r:.40}")
    if given.jobs < 1:
        parser.error(f"--jobs: at least 1, not {given.jobs}")
    if not (SHARED / "placement/models.csv").is_file():
        parser.error(f"the shared traces are not at {SHARED}: clusters, slowdowns and workloads come from there")
    out = given.out.absolute()
    size: dict[str, Any] = dict(QUICK) if given.quick else {}
    inputs = Inputs(SHARED, out / "traces", tuple(range(2 if given.quick else SEEDS)), **size)
    names = given.only.split(",") if given.only else QUICK_EXPERIMENTS if given.quick else tuple(EXPERIMENTS)
    plans: dict[str, list[Point]] = {}
    for name in names:
        if name == "targets" and given.policies:
            plans[name] = targets(inputs, given.policies.split(","))
        else:
            plans[name] = EXPERIMENTS[name](inputs)
    outcomes = run(plans, out, given.jobs)
    failed = [o for found in outcomes.values() for o in found if o.summary is None]
    for outcome in failed[:FAILED_SHOWN_MAX]:
        print(f"FAILED ({outcome.reason}): {outcome.point.command(out)}", file=sys.stderr)
    parts = {name: show(name, found, out, inputs) for name, found in outcomes.items()}
    (out / "figures.md").write_text("\n\n".join(f"## {n}\n\n{text}" for n, text in parts.items()), encoding="utf-8")
    print("\n\n".join(f"{n}\n{text}" for n, text in parts.items()))
    if given.write_docs:
        write_docs(parts, out)
    return 1 if failed else 0


def run(plans: Mapping[str, list[Point]], out: Path, jobs: int) -> dict[str, list[Outcome]]:
    """Every experiment's outcomes; runs that several share are made once. Of each run only small files are kept."""
    unique = {point.key: point for points in plans.values() for point in points}
    works = [Work(point=point, out=out, folder=ROOT) for point in unique.values()]
    count = 0

    def tell(outcome: Outcome) -> None:
        nonlocal count
        count += 1
        for path in outcome.point.folder(out).iterdir():
            if path.is_file() and path.name not in KEPT:
                path.unlink()
        if not outcome.is_from_before:
            of = " ".join(v for _, v in outcome.point.settings)
            print(f"[{count}/{len(works)}] {of}, seed {outcome.point.seed}", file=sys.stderr)

    out.mkdir(parents=True, exist_ok=True)
    done = {o.point.key: o for o in run_all(works, cores(jobs), tell)}
    # A run that several experiments share has its own settings in each.
    return {name: [replace(done[p.key], point=p) for p in points] for name, points in plans.items()}


# --- what each experiment shows -------------------------------------------------------------------------------------------


def show(name: str, outcomes: Sequence[Outcome], out: Path, inputs: Inputs) -> str:
    """Its tables as Markdown; charts are written into `out`."""
    good = [o for o in outcomes if o.summary is not None]
    if name in {"targets", "estimates"}:
        return _show_targets(name, good)
    if name == "halving":
        return _show_halving(good)
    if name == "lying":
        return _show_lying(good, out, inputs)
    if name == "systems":
        return _show_systems(good, out)
    axis = {"contention": "load", "network": "network", "bid_error": "error", "knob": "f"}[name]
    return _show_axis(name, good, out, axis)


def _show_targets(name: str, good: Sequence[Outcome]) -> str:
    by_key: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for o in good:
        settings = dict(o.point.settings)
        by_key.setdefault((settings["workload"], settings["policy"]), []).append(o.summary or {})
    worst = {key: max(runs, key=lambda run: float(run["max_rho"])) for key, runs in by_key.items()}
    runs = Runs(worst)
    met = verdicts(runs) if name == "targets" else estimate_verdicts(runs)
    return "\n".join([by_policy(runs), by_workload(runs), verdict_table(met)])


def _show_halving(good: Sequence[Outcome]) -> str:
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for o in good:
        by_policy.setdefault(dict(o.point.settings)["policy"], []).append(o.summary or {})
    rows = []
    for key, rho in _means(good, ("workload", "policy"), "max_rho").items():
        mine = [o.summary or {} for o in good if tuple(dict(o.point.settings)[k] for k in ("workload", "policy")) == key]
        worst, p95 = (max(float(run[figure]) for run in mine) for figure in ("max_rho", "p95_rho"))
        rows.append([*key, _cell(rho), f"{worst:.2f}", f"{p95:.2f}", f"{min(float(r['frac_rho_le_1_05']) for r in mine):.2f}"])
    header = ("workload", "policy", "max rho", "worst seed", "p95, worst", "rho <= 1.05, least")
    return "\n".join([table(header, rows), verdict_table(halving_verdicts(by_policy))])


def _means(good: Sequence[Outcome], keys: Sequence[str], figure: str) -> dict[tuple[str, ...], Interval]:
    values: dict[tuple[str, ...], list[float]] = {}
    for o in good:
        settings = dict(o.point.settings)
        values.setdefault(tuple(settings[k] for k in keys), []).append(float((o.summary or {})[figure]))
    return {key: interval(found) for key, found in values.items()}


def _cell(found: Interval | None) -> str:
    if found is None:
        return "-"
    half = "" if found.low is None or found.high is None else f" ±{(found.high - found.low) / 2:.2f}"
    return f"{found.mean:.2f}{half}"


def _show_systems(good: Sequence[Outcome], out: Path) -> str:
    parts = []
    for workload, papers in measured.MAX_RHO.items():
        mine = [o for o in good if dict(o.point.settings)["workload"] == workload]
        if not mine:
            continue
        rho = _means(mine, ("policy",), "max_rho")
        fair = _means(mine, ("policy",), "frac_rho_le_1")
        hours = _means(mine, ("policy",), "gpu_hours")
        score = _means(mine, ("policy",), "placement_score")
        names = [policy for (policy,) in rho]
        rows = [
            [
                *(p, _cell(rho[p,]), f"{papers[p]:.2f}" if p in papers else "-", _cell(fair[p,])),
                *(_cell(hours[p,]), f"{100 * (1 - score[p,].mean):.1f} %"),
            ]
            for p in sorted(names, key=lambda p: rho[p,].mean)
        ]
        header = ("system", "max rho", "the paper's", "rho <= 1", "GPU hours", "1 - placement score")
        parts.append(f"Workload {workload[1]}\n\n" + table(header, rows))
        swapped = order_exceptions({p: rho[p,].mean for p in names}, papers)
        told = ", ".join(f"{a} before {b}" for a, b in swapped) or "none"
        parts.append(f"In another order than in the paper (which has): {told}.\n")
        groups = [Group(p, {"max rho": rho[p,]}, {"max rho": papers[p]} if p in papers else {}) for p in names]
        chart = bar_chart(f"Maximum rho, workload {workload[1]}", "max rho", groups, ("max rho",))
        (out / f"max_rho_{workload}.svg").write_text(chart, encoding="utf-8")
    return "\n".join(parts)


PAPER_SERIES: Final[Mapping[str, Mapping[str, measured.Series]]] = {
    "contention": measured.CONTENTION,
    "network": measured.NETWORK,
    "bid_error": {"themis": measured.BID_ERROR},
    "knob": {"paper": measured.KNOB},
}


def _show_axis(name: str, good: Sequence[Outcome], out: Path, axis: str) -> str:
    extra = _show_leases(good) if name == "knob" else ""
    if name == "knob":
        good = [o for o in good if dict(o.point.settings)["lease"] == "600"]
    found = _means(good, (axis, "policy"), "max_rho")
    steps = list(dict.fromkeys(step for step, _ in found))
    policies = list(dict.fromkeys(policy for _, policy in found))
    papers = PAPER_SERIES[name]
    rows = []
    for policy in policies:
        rows.append([policy, *(_cell(found.get((step, policy))) for step in steps)])
        if policy in papers:
            rows.append([f"{policy}, the paper's", *(f"{papers[policy].get(step, float('nan')):.2f}" for step in steps)])
    groups = [
        Group(
            step,
            {p: found[step, p] for p in policies if (step, p) in found},
            {p: papers[p][step] for p in policies if step in papers.get(p, {})},
        )
        for step in steps
    ]
    (out / f"{name}.svg").write_text(bar_chart(f"Maximum rho by {axis}", "max rho", groups, policies), encoding="utf-8")
    return table((axis, *steps), rows) + extra


def _show_leases(good: Sequence[Outcome]) -> str:
    at = [o for o in good if dict(o.point.settings)["f"] == "0.8"]
    rho, hours = _means(at, ("lease",), "max_rho"), _means(at, ("lease",), "gpu_hours")
    leases = sorted((lease for (lease,) in rho), key=float)
    rows = [[s, _cell(rho[s,]), f"{measured.KNOB_LEASES[s]:.2f}", _cell(hours[s,])] for s in leases]
    return "\n" + table(("lease at f = .8 (s)", "max rho", "the paper's", "GPU hours"), rows)


def _show_lying(good: Sequence[Outcome], out: Path, inputs: Inputs) -> str:
    """The liar's completion time against its own with the truth, and the mean of the honest apps'."""
    times: dict[tuple[str, int, str], tuple[float, float]] = {}
    for o in good:
        settings = dict(o.point.settings)
        trace = Path(o.point.arguments[o.point.arguments.index("--trace") + 1])
        times[settings["policy"], o.point.seed, settings["lie"]] = _times(o.point.folder(out) / "apps.csv", liar(trace))
    rows = []
    for policy in dict.fromkeys(p for p, _, _ in times):
        for lie in dict.fromkeys(x for _, _, x in times):
            seeds = [s for p, s, x in times if p == policy and x == lie and (policy, s, "0") in times]
            if lie == "0" or not seeds:
                continue
            own = interval([times[policy, s, lie][0] / times[policy, s, "0"][0] for s in seeds])
            honest = interval([times[policy, s, lie][1] / times[policy, s, "0"][1] for s in seeds])
            rows.append([policy, f"+{lie} %", _cell(own), _cell(honest)])
    return table(("policy", "lie on S", "liar's completion time / with the truth", "honest apps' mean / with the truth"), rows)


def _times(apps: Path, app_id: str) -> tuple[float, float]:
    with apps.open(encoding="utf-8", newline="") as file:
        times = {row["app_id"]: float(row["t_shared_s"]) for row in csv.DictReader(file)}
    others = [t for a, t in times.items() if a != app_id]
    return times[app_id], sum(others) / len(others)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
