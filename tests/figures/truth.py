"""Whole runs in which one app lies, or three in ten do: what that gains and costs (mechanism.md, section 8, target 5).

    python -m tests.figures.truth [--liars 150] [--policies themis,srsf] [--write-docs]

Runs are windows of 100 jobs of both ITP traces. A liar says `factor` times the truth of one thing all the time; its gain is by
how much sooner it is done than in the same run with the truth. What of its lie counts is the engine's business: metered
work, measured slowdown.
"""

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tests.figures.kept import asked, kept, tell
from tests.figures.tables import table
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.topology import Topology
from themis_arbiter.server.models import read_models
from themis_arbiter.sim.clusterfile import read_cluster
from themis_arbiter.sim.figures import app_figures
from themis_arbiter.sim.setkeys import make_settings
from themis_arbiter.sim.simulate import Inputs, Misreport, replay
from themis_arbiter.sim.trace import Trace, read_trace

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = ROOT.parent / "shared/traces"
WINDOWS: Final = tuple((name, cluster, 400 * k) for name, cluster in (("06", "c64"), ("03", "c128")) for k in range(1, 6))
WINDOW_JOBS: Final = 100
RESTART_S: Final = 40.0
FLOOR_S: Final = 600.0
CROWD: Final = "crowd"  # in place of a liar: three apps in ten lie alike
CROWD_SHARE: Final = 0.3
LIES: Final = tuple((about, factor) for about in ("work", "slowdown", "parallelism") for factor in (0.5, 1.5))
POLICIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "themis": ("themis", {}),
    "guard": ("guard", {}),
    "paper": ("paper", {}),
    "paper-unpaid": ("paper", {"payments": False}),
    "srsf": ("srsf", {}),
    "las": ("las", {}),
}


@lru_cache(maxsize=2)
def window(number: int) -> tuple[Trace, Topology, SlowdownModel]:
    """The jobs of a window, from its first arrival on, and where they run."""
    name, cluster, first = WINDOWS[number]
    jobs = read_trace(SHARED / f"itp/itp_cluster{name}_apps.csv").jobs[first : first + WINDOW_JOBS]
    start_s = jobs[0].arrival_s
    moved = tuple(replace(j, arrival_s=j.arrival_s - start_s) for j in jobs)
    slowdowns, problems = read_models(SHARED / "placement/models.csv")
    assert slowdowns is not None, problems
    return Trace(moved), read_cluster(SHARED / f"clusters/{cluster}.yaml"), slowdowns


def apps_of(number: int) -> list[str]:
    """Apps of a window, by arrival."""
    return list(dict.fromkeys(j.app_id for j in window(number)[0].jobs))


def liars(number: int, count: int) -> list[str]:
    """Apps of a window, evenly by arrival; the first and the last meet few rivals."""
    apps = apps_of(number)
    return [apps[(2 * k + 1) * len(apps) // (2 * count)] for k in range(min(count, len(apps)))]


def crowd(number: int) -> set[str]:
    """Three apps in ten of a window, evenly by arrival."""
    apps = apps_of(number)
    return {app for k, app in enumerate(apps) if int((k + 1) * CROWD_SHARE) > int(k * CROWD_SHARE)}


def outcome(key: str) -> dict[str, Any]:
    """The run `policy|window|liar|about|factor`; no liar: everybody tells the truth.

    Seconds that the liar took, without one every app; "": the others, or all, together. Where many lie: what the honest took
    together, and the largest rho among them; without a liar these are of who is honest where many lie.
    """
    policy, number, liar, about, factor = key.split("|")
    name, sets = POLICIES[policy]
    trace, topology, slowdowns = window(int(number))
    many = crowd(int(number))
    who = many if liar == CROWD else {liar} if liar else set()
    lies = tuple(Misreport(app, about, float(factor)) for app in sorted(who))
    settings = make_settings(name, lease_s=None, restart_cost_s=RESTART_S, rho_floor_s=FLOOR_S, knob=None, sets=sets)
    inputs = Inputs(trace=trace, topology=topology, slowdowns=slowdowns, settings=settings, misreports=lies)
    done = replay(inputs, io.StringIO())
    found = app_figures(done.jobs, done.weights, topology.gpu_count, FLOOR_S)
    times = {f.app_id: f.t_shared_s for f in found}
    honest = {
        "honest_s": sum(t for a, t in times.items() if a not in many),
        "honest_max_rho": max(f.rho for f in found if f.app_id not in many),
    }
    if liar == CROWD:
        return honest
    if not liar:
        return {**times, "": sum(times.values()), **honest}
    return {liar: times[liar], "": sum(t for a, t in times.items() if a != liar)}


def gains(found: Iterable[tuple[str, Mapping[str, float]]]) -> dict[tuple[str, str, str], list[tuple[float, float]]]:
    """By policy, what the lie is about and its factor: each liar's gain and what the others lost by it, as shares."""
    honest: dict[tuple[str, str], Mapping[str, float]] = {}
    out: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for key, times in found:
        policy, number, liar, about, factor = key.split("|")
        if not liar:
            honest[policy, number] = times
        if liar in ("", CROWD):
            continue
        truth = honest[policy, number]
        others = truth[""] - truth[liar]
        out.setdefault((policy, about, factor), []).append((1 - times[liar] / truth[liar], times[""] / others - 1))
    return out


def rows(found: Mapping[tuple[str, str, str], Sequence[tuple[float, float]]]) -> list[list[str]]:
    """A row for each policy and thing lied about, at the factor that gains most on average."""
    out = []
    for policy, about in dict.fromkeys((p, a) for p, a, _ in found):
        by_factor = {f: [g for g, _ in pairs] for (p, a, f), pairs in found.items() if (p, a) == (policy, about)}
        best = max(by_factor, key=lambda f: sum(by_factor[f]) / len(by_factor[f]))
        mine = sorted(by_factor[best], reverse=True)
        quarter = mine[: -(-len(mine) // 4)]
        most = max(g for values in by_factor.values() for g in values)
        harm = [h for (p, a, _), pairs in found.items() if (p, a) == (policy, about) for _, h in pairs]
        out.append(
            [
                *(policy, about, f"x {best}", str(len(mine)), _percent(sum(mine) / len(mine))),
                *(_percent(sum(quarter) / len(quarter)), _percent(most), _percent(sum(harm) / len(harm))),
            ]
        )
    return out


def error_rows(found: Mapping[tuple[str, str, str], Sequence[tuple[float, float]]]) -> list[list[str]]:
    """What an honest app pays whose work is estimated that far off: who lies about work, seen from the other side."""
    out = []
    for (policy, about, factor), pairs in found.items():
        if about == "work":
            paid = [-g for g, _ in pairs]
            out.append([policy, f"x {factor}", str(len(paid)), _percent(sum(paid) / len(paid)), _percent(max(paid))])
    return out


def crowd_rows(found: Iterable[tuple[str, Mapping[str, float]]]) -> list[list[str]]:
    """A row for each policy and lie that three in ten tell: what the honest lose by it over all windows, and their rho."""
    truths: dict[tuple[str, str], Mapping[str, float]] = {}
    lied: dict[tuple[str, str, str], list[tuple[Mapping[str, float], Mapping[str, float]]]] = {}
    for key, run in found:
        policy, number, liar, about, factor = key.split("|")
        if not liar:
            truths[policy, number] = run
        elif liar == CROWD:
            lied.setdefault((policy, about, factor), []).append((truths[policy, number], run))
    out = []
    for (policy, about, factor), pairs in lied.items():
        lost = [run["honest_s"] / truth["honest_s"] - 1 for truth, run in pairs]
        before, after = (max(run["honest_max_rho"] for run in runs) for runs in zip(*pairs, strict=True))
        mean = _percent(sum(lost) / len(lost))
        out.append([policy, about, f"x {factor}", str(len(pairs)), mean, _percent(max(lost)), f"{before:.2f}", f"{after:.2f}"])
    return out


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


HEADER: Final = (
    *(
        "policy",
        "lie about",
        "best factor",
        "liars",
        "gain, mean",
        "of the best quarter",
        "most, any factor",
        "others lose, mean",
    ),
)

ERROR_HEADER: Final = ("policy", "work declared", "apps", "it takes longer by, mean", "most")
CROWD_HEADER: Final = (
    *("policy", "three in ten lie about", "factor", "windows", "the honest lose, mean", "in the worst window"),
    *("their max rho with the truth", "and so"),
)


def keys(policies: Sequence[str], count: int) -> list[str]:
    """Runs of all windows, the one with the truth first; liars are dealt to the windows evenly."""
    found = []
    each = -(-count // len(WINDOWS))
    for policy in policies:
        for number in range(len(WINDOWS)):
            found.append(f"{policy}|{number}|||")
            mine = liars(number, each)[: max(0, count - number * each)]
            found += [f"{policy}|{number}|{liar}|{about}|{factor:g}" for liar in (*mine, CROWD) for about, factor in LIES]
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table; 2 where the traces are missing."""
    given = asked(arguments, name="truth", text=__doc__, count=("liars", 150), policies=POLICIES, default=",".join(POLICIES))
    if not SHARED.is_dir():
        print(f"the shared traces are not at {SHARED}", file=sys.stderr)
        return 2
    found = list(kept(given.out / "runs.jsonl", keys(given.policies, given.liars), outcome, given.jobs, "runs"))
    by_lie = gains(found)
    parts = [
        table(HEADER, rows(by_lie)),
        "An honest app whose work is estimated that far off, and nobody else's:\n",
        table(ERROR_HEADER, error_rows(by_lie)),
        "Three apps in ten tell the same lie:\n",
        table(CROWD_HEADER, crowd_rows(found)),
    ]
    tell(given, "truth", "\n\n".join(part.strip() for part in parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
