"""Outcomes as tables (Markdown) and as verdicts on the targets of mechanism.md, section 8."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.figures.experiments import BASELINES, CHOSEN_ON
from themis_arbiter.sim.sweep import interval

Summary = Mapping[str, Any]
# Of target 2: who is to be beaten by the paper's headline.
FAR_BEHIND: Final = ("paper", "drf", "gandiva", "tiresias", "las", "optimus", "slaq", "fifo")
HEADLINE: Final = 2.25
OURS: Final = ("guard", "themis")
DOCS: Final = Path(__file__).resolve().parents[2] / "docs/fairness.md"


class Runs:
    """Summaries by workload and policy."""

    def __init__(self, by_key: Mapping[tuple[str, str], Summary]) -> None:
        self._by_key = by_key
        self.workloads = tuple(dict.fromkeys(w for w, _ in by_key))
        self.policies = tuple(dict.fromkeys(p for _, p in by_key))

    def of(self, policy: str, workloads: Iterable[str] | None = None) -> list[tuple[str, Summary]]:
        """Its runs, with their workloads."""
        chosen = self.workloads if workloads is None else tuple(workloads)
        return [(w, self._by_key[w, policy]) for w in chosen if (w, policy) in self._by_key]

    def get(self, workload: str, policy: str) -> Summary | None:
        """One run, if it is there."""
        return self._by_key.get((workload, policy))

    def ratios(self, policy: str, figure: str, against: Callable[[str], float | None]) -> list[float]:
        """The policy's figure over what it is measured against, for each workload that has both."""
        pairs = ((float(run[figure]), against(w)) for w, run in self.of(policy))
        return [mine / other for mine, other in pairs if other]

    def of_policy(self, policy: str, figure: str) -> Callable[[str], float | None]:
        """The policy's figure by workload."""
        return lambda workload: None if (run := self.get(workload, policy)) is None else float(run[figure])

    def best(self, workload: str, figure: str) -> float | None:
        """The least that any policy has of a figure."""
        found = [float(run[figure]) for p in self.policies if (run := self.get(workload, p)) is not None]
        return min(found, default=None)


def geometric(values: Sequence[float]) -> float:
    """Geometric mean; nan of nothing."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else math.nan


def geometric_interval(values: Sequence[float]) -> str:
    """Geometric mean with the 95 % interval that its spread over workloads gives."""
    if not values:
        return "-"
    found = interval([math.log(v) for v in values])
    if found.low is None or found.high is None:
        return f"{math.exp(found.mean):.3f}"
    return f"{math.exp(found.mean):.3f} [{math.exp(found.low):.3f}, {math.exp(found.high):.3f}]"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" for _ in header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def by_policy(runs: Runs) -> str:
    """A row a policy: what the targets ask for, over all workloads and over those that judge only."""
    judging = [w for w in runs.workloads if w not in CHOSEN_ON]
    rows = []
    for policy in runs.policies:
        rhos = [float(run["max_rho"]) for _, run in runs.of(policy)]
        judged = [float(run["max_rho"]) for _, run in runs.of(policy, judging)]
        p95 = [float(run["p95_rho"]) for _, run in runs.of(policy)]
        times = runs.ratios(policy, "avg_jct_s", runs.of_policy("srsf", "avg_jct_s"))
        packed = runs.ratios(policy, "gpu_hours", lambda w: runs.best(w, "gpu_hours"))
        restarts = runs.ratios(policy, "restarts", runs.of_policy("srsf", "restarts"))
        bound = [float(r["max_rho"]) / float(r["max_rho_lower_bound"]) for _, r in runs.of(policy)]
        rows.append(
            [
                policy,
                *(geometric_interval(rhos), f"{max(rhos):.2f}", geometric_interval(judged)),
                f"{max(p95):.2f}",
                f"{min(float(run['frac_rho_le_1_05']) for _, run in runs.of(policy)):.2f}",
                *(f"{geometric(times):.3f} / {max(times):.3f}" if times else "-",),
                *(f"{geometric(packed):.3f}", f"{geometric(restarts):.2f}" if restarts else "-", f"{geometric(bound):.2f}"),
            ]
        )
    header = ("policy", "max rho, mean [95 %]", "worst", "judged on only", "p95, worst", "rho <= 1.05, least")
    return table((*header, "JCT / SRSF, mean / worst", "GPU time / best", "restarts / SRSF", "max rho / bound"), rows)


def by_workload(runs: Runs, policies: Sequence[str] = (*OURS, *BASELINES)) -> str:
    """Maximum rho by workload, with the lower bound; `*` marks workloads that parameters were chosen on."""
    shown = [p for p in policies if p in runs.policies]
    rows = []
    for workload in runs.workloads:
        cells = [f"{float(run['max_rho']):.2f}" if (run := runs.get(workload, p)) is not None else "-" for p in shown]
        bounds = [float(run["max_rho_lower_bound"]) for p in shown if (run := runs.get(workload, p)) is not None]
        rows.append([workload + ("*" if workload in CHOSEN_ON else ""), f"{max(bounds):.2f}" if bounds else "-", *cells])
    return table(("workload", "bound", *shown), rows)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target's part, whether it is met, and the figure that says so."""

    target: str
    is_met: bool
    figure: str


def verdicts(runs: Runs) -> list[Verdict]:
    """Targets 1 to 3 on what was run."""
    found: list[Verdict] = []

    def say(target: str, is_met: bool, figure: str) -> None:
        found.append(Verdict(target, is_met, figure))

    def figures(policy: str, figure: str) -> list[float]:
        return [float(run[figure]) for _, run in runs.of(policy)]

    guard, themis = figures("guard", "max_rho"), figures("themis", "max_rho")
    if guard:
        say("1: guard, max rho, mean <= 1.12", geometric(guard) <= 1.12, f"{geometric(guard):.3f}")
        share = sum(r <= 1.25 for r in guard) / len(guard)
        say("1: guard, max rho <= 1.25 on nine of ten", share >= 0.9, f"{share:.2f}")
        say("1: guard, max rho never above 1.5", max(guard) <= 1.5, f"{max(guard):.2f}")
        p95 = max(figures("guard", "p95_rho"))
        say("1: guard, p95 <= 1.06", p95 <= 1.06, f"{p95:.3f}")
        least = min(figures("guard", "frac_rho_le_1_05"))
        say("1: guard, share with rho <= 1.05 >= .85", least >= 0.85, f"{least:.2f}")
    both = [(w, t, g) for w, t in runs.of("themis") if (g := runs.get(w, "guard")) is not None]
    if both:
        more = geometric(themis) - geometric(guard)
        say("1: themis at most .03 above guard, mean", more <= 0.03, f"{more:+.3f}")
        worst = max((float(t["max_rho"]) - float(g["max_rho"]), w) for w, t, g in both)
        say("1: themis at most .10 above guard, worst", worst[0] <= 0.10, f"{worst[0]:+.2f} ({worst[1]})")
    for policy in OURS:
        for baseline in (p for p in BASELINES if p in runs.policies):
            pairs = [(w, m, b) for w, m in runs.of(policy) if (b := runs.get(w, baseline)) is not None]
            if not pairs:
                continue
            over = max((float(m["max_rho"]) - float(b["max_rho"]), w) for w, m, b in pairs)
            say(f"2: {policy}, max rho no more than .01 above {baseline}'s", over[0] <= 0.01, f"{over[0]:+.2f} ({over[1]})")
            if baseline in FAR_BEHIND:
                times = geometric([float(b["max_rho"]) / float(m["max_rho"]) for _, m, b in pairs])
                say(f"2: {policy}, max rho {HEADLINE}x lower than {baseline}'s", times >= HEADLINE, f"{times:.2f}x")
        against = [(w, m, b) for w, m in runs.of(policy) if (b := runs.get(w, "srsf")) is not None]
        if against:
            times_ = [float(m["avg_jct_s"]) / float(b["avg_jct_s"]) for _, m, b in against]
            say(f"3: {policy}, mean JCT within .5 % of SRSF's", geometric(times_) <= 1.005, f"{geometric(times_):.4f}")
            say(f"3: {policy}, mean JCT within 4 % of SRSF's on each", max(times_) <= 1.04, f"{max(times_):.3f}")
            restarts = geometric([float(m["restarts"]) / float(b["restarts"]) for _, m, b in against if b["restarts"]])
            say(f"3: {policy}, restarts at most 1.5x SRSF's", restarts <= 1.5, f"{restarts:.2f}x")
        packed = runs.ratios(policy, "gpu_hours", lambda w: runs.best(w, "gpu_hours"))
        if packed:
            say(f"3: {policy}, GPU time within 1 % of the best packer's", geometric(packed) <= 1.01, f"{geometric(packed):.4f}")
    return found


def estimate_verdicts(runs: Runs) -> list[Verdict]:
    """Target 4's first half; `runs`: of each workload and policy the worst of its seeds."""
    found: list[Verdict] = []
    for policy in OURS:
        rhos = [float(run["max_rho"]) for _, run in runs.of(policy)]
        if not rhos:
            continue
        found.append(Verdict(f"4: {policy}, max rho, mean <= 1.4", geometric(rhos) <= 1.4, f"{geometric(rhos):.3f}"))
        times = runs.ratios(policy, "max_rho", runs.of_policy("srsf", "max_rho"))
        if times:
            most = max(times)
            found.append(Verdict(f"4: {policy}, max rho no more than 2 % above SRSF's on each", most <= 1.02, f"{most:.3f}x"))
    return found


def halving_verdicts(runs: Mapping[str, Sequence[Summary]]) -> list[Verdict]:
    """Target 4's second half; `runs`: each policy's, over workloads and seeds."""
    rhos = {policy: [float(run["max_rho"]) for run in runs[policy]] for policy in OURS if runs.get(policy)}
    return [
        Verdict(f"4: {p}, successive halving, max rho, mean <= 1.3", geometric(r) <= 1.3, f"{geometric(r):.3f}")
        for p, r in rhos.items()
    ]


def verdict_table(found: Sequence[Verdict]) -> str:
    """Met or missed, with the figure."""
    return table(("target", "", "figure"), [[v.target, "met" if v.is_met else "**missed**", v.figure] for v in found])


def order_exceptions(ours: Mapping[str, float], papers: Mapping[str, float]) -> list[tuple[str, str]]:
    """Pairs of systems that stand in another order than in the paper: each named once, better one in the paper first."""
    names = sorted(papers.keys() & ours.keys(), key=lambda n: papers[n])
    return [(a, b) for k, a in enumerate(names) for b in names[k + 1 :] if papers[a] < papers[b] and ours[a] > ours[b]]


def write_docs(parts: Mapping[str, str], out: Path) -> None:
    """Replace what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; charts go beside the page."""
    text = DOCS.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if begin in text and end in text:
            head, rest = text.split(begin, 1)
            text = head + begin + "\n" + part.strip() + "\n" + end + rest.split(end, 1)[1]
    DOCS.write_text(text, encoding="utf-8")
    for chart in sorted(out.glob("*.svg")):
        (DOCS.parent / "images" / f"fairness-{chart.name}").write_bytes(chart.read_bytes())
