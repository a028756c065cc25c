"""What is run for which figure: experiments as data, each a list of points of `themis simulate`.

Traces of the paper's workloads are generated, ten seeds each; the targets are judged on the workloads that mechanism.md,
section 8, names. On which of these parameters were chosen, and which judge only, is said here, once.
"""

import csv
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.sim.sweep import PROGRAM, Point

RESTART_COST_S: Final = "40"
PAPER_SYSTEMS: Final = ("themis", "paper", "srsf", "srtf", "gandiva", "tiresias", "slaq", "optimus")
# Names of rows that are a policy with other settings.
VARIANTS: Final = {"srsf+recall": ("srsf", "--set", "srsf_recall=true")}
BASELINES: Final = (
    *(
        "srsf",
        "srsf+recall",
        "srtf",
        "las",
        "fifo",
        "drf",
        "tiresias",
        "gandiva",
        "optimus",
        "slaq",
        "quincy",
        "carbyne",
        "strawman",
        "paper",
    ),
)
LOAD: Final = "1.6"  # of the generated workloads, where a figure is not about load
LOADS: Final = {"1x": "0.8", "2x": "1.6", "4x": "3.2"}
NETWORK_SHARES: Final = (0, 20, 40, 60, 80, 100)  # per cent of apps whose model suffers from distance
BID_ERRORS: Final = (0, 5, 10, 20)  # per cent
LIES: Final = (10, 20, 34, 50, 80)  # per cent that one app inflates its slowdown by
KNOBS: Final = tuple(f"{k / 10:g}" for k in range(11))
KNOB_LEASES_S: Final = ("300", "600", "1200", "2400")


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace and its cluster; `is_chosen_on`: parameters were chosen with it in sight, so it judges nothing."""

    name: str
    trace: Path
    cluster: Path
    is_chosen_on: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where everything is: shared traces, the folder for generated ones, how many seeds and how large."""

    shared: Path
    folder: Path
    seeds: tuple[int, ...]
    apps: int = 85
    gpus: int = 256
    cluster: str = "c256"

    @property
    def models(self) -> Path:
        """Slowdowns of all runs."""
        return self.shared / "placement/models.csv"

    def cluster_file(self, name: str) -> Path:
        """A cluster of the shared ones."""
        return self.shared / f"clusters/{name}.yaml"


# The second study chose the rule on windows of both clusters (policy-study.md); the bars of urgent and starving were chosen
# here, with these nine in sight. The two whole traces contain the windows, so of the real ones none is unseen.
CHOSEN_ON: Final = frozenset(
    {
        *("c06_days0-14", "c06_days20-34", "c06_days40-54", "c03_days20-34", "c03_days35-49"),
        *("w1_load1.6_s1", "w2_load1.6_s1", "w1_load3.2_s1", "w2_load3.2_s1"),
    }
)


def target_workloads(inputs: Inputs) -> Iterator[Workload]:
    """The nineteen workloads of mechanism.md, section 8."""
    itp = {"c03_days20-34": "c128", "c03_days35-49": "c128", "itp_cluster03_apps": "c128"}
    itp |= {"c06_days0-14": "c64", "c06_days20-34": "c64", "c06_days40-54": "c64", "itp_cluster06_apps": "c64"}
    for name, cluster in itp.items():
        yield Workload(name, inputs.shared / f"itp/{name}.csv", inputs.cluster_file(cluster), name in CHOSEN_ON)
    for which in ("w1", "w2"):
        for load in LOADS.values():
            for seed in (1, 2):
                name = f"{which}_load{load}_s{seed}"
                trace = inputs.shared / f"paper/{name}.csv"
                yield Workload(name, trace, inputs.cluster_file("c256"), name in CHOSEN_ON)


def point(settings: Mapping[str, str], workload: Workload, inputs: Inputs, seed: int = 0, flags: Sequence[str] = ()) -> Point:
    """One run of a policy (`settings["policy"]`, or a variant of one) on a workload."""
    policy, *variant = VARIANTS.get(settings["policy"], (settings["policy"],))
    arguments = (
        *("simulate", "--policy", policy, *variant, "--trace", str(workload.trace), "--cluster", str(workload.cluster)),
        *("--models", str(inputs.models), "--restart-cost", RESTART_COST_S, "--no-report", *flags, "--seed", str(seed)),
    )
    return Point(settings=tuple(settings.items()), seed=seed, arguments=arguments)


def generated(
    inputs: Inputs, which: str, seed: int, load: str = LOAD, network: int | None = None, styles: str = ""
) -> Workload:
    """A workload of the paper's, generated if it is not there yet; `network` per cent of the apps suffer from distance.

    `styles` are shares of tuning styles; all jobs of all apps run to their end unless they say otherwise.
    """
    name = f"{which}_load{load}_n{'-' if network is None else network}_{inputs.apps}{styles and '_' + styles}_s{seed}"
    trace = inputs.folder / f"{name}.csv"
    if not trace.exists():
        inputs.folder.mkdir(parents=True, exist_ok=True)
        mix: tuple[str, ...] = () if network is None else ("--models", _mix(network / 100))
        mix += ("--styles", styles) if styles else ()
        size = ("--apps", str(inputs.apps), "--gpus", str(inputs.gpus))
        command = (*PROGRAM, "trace", "generate", "--workload", which, "--seed", str(seed), "--load", load, *size, *mix)
        half_made = trace.with_suffix(f".{os.getpid()}.new")  # another command may be at it too
        subprocess.run([*command, str(half_made)], check=True, stdout=subprocess.DEVNULL)
        half_made.replace(trace)
    return Workload(name, trace, inputs.cluster_file(inputs.cluster))


def _mix(network: float) -> str:
    parts = {"vgg16": network / 2, "vgg19": network / 2, "resnet50": (1 - network) / 2, "inception3": (1 - network) / 2}
    return ",".join(f"{model}={share:g}" for model, share in parts.items() if share > 0)


# --- the experiments ----------------------------------------------------------------------------------------------------


def targets(inputs: Inputs, policies: Sequence[str] = ("guard", "themis", *BASELINES)) -> list[Point]:
    """Every policy on every workload of the targets."""
    return [point({"workload": w.name, "policy": policy}, w, inputs) for w in target_workloads(inputs) for policy in policies]


def estimates(inputs: Inputs) -> list[Point]:
    """Targets with declared work off by up to a factor of two, three seeds."""
    return [
        point({"workload": w.name, "policy": policy}, w, inputs, seed, ("--estimate-error", "1"))
        for w in target_workloads(inputs)
        for policy in ("guard", "themis", "srsf")
        for seed in range(3)
    ]


def halving(inputs: Inputs) -> list[Point]:
    """Successive halving: jobs declare their whole work, and all but one in two stop after each rung."""
    return [
        point({"workload": which, "policy": policy}, generated(inputs, which, seed, styles="halving=1"), inputs, seed)
        for which in ("w1", "w2")
        for policy in ("guard", "themis", "srsf")
        for seed in inputs.seeds
    ]


def systems(inputs: Inputs) -> list[Point]:
    """Figures 9, 10, 12 and 13, and the share of apps with rho of at most 1: both workloads under every system."""
    return [
        point({"workload": which, "policy": policy}, generated(inputs, which, seed), inputs, seed)
        for which in ("w1", "w2")
        for policy in PAPER_SYSTEMS
        for seed in inputs.seeds
    ]


def contention(inputs: Inputs) -> list[Point]:
    """Figure 14: workload 1 at one, two and four times the load."""
    return [
        point({"load": name, "policy": policy}, generated(inputs, "w1", seed, load), inputs, seed)
        for name, load in LOADS.items()
        for policy in PAPER_SYSTEMS
        for seed in inputs.seeds
    ]


def network(inputs: Inputs) -> list[Point]:
    """Figure 15: apps that suffer from distance, from none to all."""
    return [
        point({"network": str(share), "policy": policy}, generated(inputs, "w1", seed, LOAD, share), inputs, seed)
        for share in NETWORK_SHARES
        for policy in ("themis", "paper", "tiresias", "gandiva", "srsf")
        for seed in inputs.seeds
    ]


def bid_error(inputs: Inputs) -> list[Point]:
    """Figure 17: what is declared is off by some per cent."""
    return [
        point(
            {"error": str(error), "policy": policy},
            *(generated(inputs, "w1", seed), inputs, seed, ("--estimate-error", f"{error / 100:g}")),
        )
        for error in BID_ERRORS
        for policy in ("themis", "paper")
        for seed in inputs.seeds
    ]


def lying(inputs: Inputs) -> list[Point]:
    """Figure 18: one app inflates its slowdown."""
    points = []
    for seed in inputs.seeds:
        workload = generated(inputs, "w1", seed)
        for lie in (0, *LIES):
            flags = ("--misreport", f"{liar(workload.trace)}:slowdown:{1 + lie / 100:g}") if lie else ()
            points += [
                point({"lie": str(lie), "policy": policy}, workload, inputs, seed, flags) for policy in ("themis", "paper")
            ]
    return points


def liar(trace: Path) -> str:
    """The app that lies: the one in the middle by arrival, for the first and last ones meet no rivals."""
    with trace.open(encoding="utf-8", newline="") as file:
        arrivals = {row["app_id"]: float(row["arrival_s"]) for row in csv.DictReader(file)}
    return sorted(arrivals, key=lambda app_id: (arrivals[app_id], app_id))[len(arrivals) // 2]


def knob(inputs: Inputs) -> list[Point]:
    """Figure 19: the fairness knob f with leases of ten minutes, and other leases at f = .8; the paper's mechanism."""
    pairs = [(f, "600") for f in KNOBS] + [("0.8", lease) for lease in KNOB_LEASES_S if lease != "600"]
    return [
        point(
            {"f": f, "lease": lease, "policy": "paper"},
            *(generated(inputs, "w1", seed), inputs, seed, ("--fairness-knob", f, "--lease", lease)),
        )
        for f, lease in pairs
        for seed in inputs.seeds
    ]


EXPERIMENTS: Final = {
    "targets": targets,
    "estimates": estimates,
    "halving": halving,
    "systems": systems,
    "contention": contention,
    "network": network,
    "bid_error": bid_error,
    "lying": lying,
    "knob": knob,
}
