"""A sweep: every combination of some flags of `themis simulate`, under several seeds: its points, and what they say together.

A point is a command line and nothing else: its key is a digest of its arguments, so a sweep that is started again knows what is
done, and whoever doubts a figure runs the command. `{seed}` in an argument stands for the point's seed, so that each seed can
have its trace.
"""

import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any, Final

POINTS_MAX: Final = 100_000
SEEDS_MAX: Final = 10_000
POINTS_FOLDER: Final = "points"
RESULTS: Final = ("points.csv", "results.csv", "results.json")
PROGRAM: Final = (sys.executable, "-m", "themis_arbiter.cli")
SEED_MARK: Final = "{seed}"
CONFIDENCE: Final = 0.95
# Student's t, two-sided 95 %, by degrees of freedom from 1; beyond them the normal's with its first correction.
T_95: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
MEASURED: Final = frozenset({"wall_s", "auction_ms.p50", "auction_ms.p95"})  # figures that differ between equal runs
OURS: Final = frozenset({"out", "seed"})  # flags that the sweep itself sets


class SweepError(Exception):
    """A sweep that cannot be planned or run: what and what to do, in one line."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A flag of `themis simulate` without its dashes (or `set:KEY`), and the values that it takes."""

    name: str
    values: tuple[str, ...]

    def arguments(self, value: str) -> tuple[str, ...]:
        """The flag with that value."""
        return ("--set", f"{self.name[4:]}={value}") if self.name.startswith("set:") else (f"--{self.name}", value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run. `settings` are its values on the axes; `arguments` are those of `themis`, less --out."""

    settings: tuple[tuple[str, str], ...]
    seed: int
    arguments: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its folder's name: equal for equal arguments, different for others."""
        return blake2b("\0".join(self.arguments).encode("utf-8", "surrogateescape"), digest_size=10).hexdigest()

    def folder(self, out: Path) -> Path:
        """Where its run directory is."""
        return out / POINTS_FOLDER / self.key

    def command(self, out: Path) -> str:
        """What to type to run it again."""
        return shlex.join(("themis", *self.arguments, "--out", str(self.folder(out))))


def parse_axis(text: str) -> Axis:
    """`lease=300,600` as an axis. Errors: SweepError."""
    name, separator, values = text.partition("=")
    name = name.strip().removeprefix("--")
    found = tuple(dict.fromkeys(v.strip() for v in values.split(",") if v.strip()))
    if not separator or not name.removeprefix("set:") or not found:
        raise SweepError(f"{text!r:.80} is not NAME=VALUE,VALUE; write --grid lease=300,600 or --grid set:KEY=a,b")
    if name in OURS:
        raise SweepError(
            f"{name} cannot be on the grid: {'use --seeds' if name == 'seed' else 'the sweep names the folders itself'}"
        )
    return Axis(name, found)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0-4,7` as seeds. Errors: SweepError."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        try:
            low, high = int(first), int(last) if separator else int(first)
        except ValueError:
            raise SweepError(f"{part!r:.40} is no seed and no range of them; write --seeds 0-4,7") from None
        if high < low or high - low >= SEEDS_MAX or len(seeds) + high - low >= SEEDS_MAX:
            raise SweepError(f"{part!r:.40}: a sweep has 1 to {SEEDS_MAX} seeds, ranges from small to large")
        seeds |= dict.fromkeys(range(low, high + 1))
    return tuple(seeds)


def plan(axes: Sequence[Axis], seeds: Sequence[int], fixed: Sequence[str]) -> tuple[Point, ...]:
    """Every point, combinations in the order of the grid, seeds innermost. Errors: SweepError."""
    names = [axis.name for axis in axes]
    if len(set(names)) != len(names):
        raise SweepError("a flag is on the grid twice; put all its values in one --grid")
    taken = {a.partition("=")[0].removeprefix("--") for a in fixed if a.startswith("--")}
    clash = sorted(taken & ({n for n in names if not n.startswith("set:")} | OURS))
    if clash:
        raise SweepError(f"--{clash[0]} after -- is what the sweep itself sets; leave it out there")
    count = math.prod(len(a.values) for a in axes) * len(seeds)
    if count > POINTS_MAX:
        raise SweepError(f"{count} points, more than {POINTS_MAX}; take fewer values")
    points: list[Point] = []
    for values in product(*(a.values for a in axes)):
        flags = [part for axis, value in zip(axes, values, strict=True) for part in axis.arguments(value)]
        for seed in seeds:
            arguments = ("simulate", *(a.replace(SEED_MARK, str(seed)) for a in (*fixed, *flags)), "--seed", str(seed))
            points.append(Point(settings=tuple(zip(names, values, strict=True)), seed=seed, arguments=arguments))
    return tuple(points)


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with its 95 % confidence interval by Student's t; without a second seed there is none."""

    n: int
    mean: float
    low: float | None
    high: float | None


def interval(values: Sequence[float]) -> Interval:
    """Mean and confidence interval of at least one value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(n, mean, None, None)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    freedom = n - 1
    t = T_95[freedom - 1] if freedom <= len(T_95) else 1.96 + 2.4 / freedom
    return Interval(n, mean, mean - t * spread, mean + t * spread)


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The plain numbers of a summary by name; of mappings (`auction_ms`) the numbers inside; not `seed`, `made_with`."""
    found: dict[str, float] = {}
    for key, value in summary.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for name, number in inner:
            is_number = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
            if is_number and key not in {"seed", "made_with"}:
                found[f"{key}.{name}" if name else key] = float(number)
    return found


def combined(results: Iterable[tuple[Point, Mapping[str, Any]]]) -> list[tuple[dict[str, str], dict[str, Interval]]]:
    """For each combination of the grid, in the plan's order, its figures over seeds."""
    by_settings: dict[tuple[tuple[str, str], ...], list[dict[str, float]]] = {}
    for point, summary in results:
        by_settings.setdefault(point.settings, []).append(figures(summary))
    out: list[tuple[dict[str, str], dict[str, Interval]]] = []
    for settings, runs in by_settings.items():
        out.append((dict(settings), over_seeds(runs)))
    return out


def is_seedless(runs: Sequence[Mapping[str, float]]) -> bool:
    """Whether the seed changes no figure: then several runs are one, and say nothing about how figures vary."""
    plain = [{name: value for name, value in run.items() if name not in MEASURED} for run in runs]
    return len(plain) > 1 and all(run == plain[0] for run in plain)


def over_seeds(runs: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Each figure over runs under different seeds; over one of them where the seed changes nothing."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    differing = runs[:1] if is_seedless(runs) else runs
    return {name: interval([run[name] for run in (runs if name in MEASURED else differing) if name in run]) for name in names}
