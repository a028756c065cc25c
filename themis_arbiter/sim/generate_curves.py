"""Learning curves for tuning apps that stop jobs early: real ones from a CSV file, or synthetic ones.

A curve is the best metric seen by each epoch (larger is better). Jobs are stopped by the median rule: at each checkpoint after
the grace period, a job whose best so far is below the median of all its app's jobs at that epoch is stopped.
"""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from themis_arbiter.sim.convert_rows import BadField, Unconvertible, check_width, number, table_rows

COLUMNS: Final = ("dataset", "network", "batch_size", "optimizer", "learning_rate", "run", "target_metric", "target_epoch")
SYNTHETIC_EPOCHS: Final = 50
CHECKPOINTS: Final = 20  # looks at the curves over a full run
GRACE: Final = 0.1  # of a full run: nothing is stopped before
EPOCHS_MAX: Final = 100_000

Curve = Sequence[float]  # best metric by the end of epoch 1, 2, ...


def read_curves(path: Path) -> Mapping[str, tuple[Curve, ...]]:
    """Curves by dataset and network, each group padded to its longest run: what one tuning app chooses among.

    The file has one row a run and target: the epoch at which the run first reached that metric (nan: never).
    Errors: Unconvertible.
    """
    reached: dict[str, dict[tuple[str, ...], dict[int, float]]] = {}
    for line, row in table_rows(path, COLUMNS):
        try:
            check_width(row, COLUMNS)
            runs = reached.setdefault(f"{row['dataset']}/{row['network']}", {})
            steps = runs.setdefault(tuple(row[c] for c in COLUMNS[2:6]), {})
            if row["target_epoch"].lower() == "nan":
                continue
            epoch, metric = number(row, "target_epoch"), number(row, "target_metric")
            if not 1 <= epoch <= EPOCHS_MAX:
                raise BadField("target_epoch", f"{epoch:g} is no epoch from 1 to {EPOCHS_MAX}")
        except BadField as problem:
            raise Unconvertible(f"{path}: line {line}: {problem}") from problem
        steps[math.ceil(epoch)] = max(metric, steps.get(math.ceil(epoch), 0.0))
    groups: dict[str, tuple[Curve, ...]] = {}
    for name, runs in sorted(reached.items()):
        epochs = max((max(steps, default=1) for steps in runs.values()), default=1)
        groups[name] = tuple(_filled(steps, epochs) for _, steps in sorted(runs.items()))
    if not groups:
        raise Unconvertible(f"{path}: no curve in it; give a file with rows")
    return groups


def _filled(steps: Mapping[int, float], epochs: int) -> Curve:
    best, curve = 0.0, []
    for epoch in range(1, epochs + 1):
        best = max(best, steps.get(epoch, 0.0))
        curve.append(best)
    return curve


def synthetic_curves(jobs: int, draw: random.Random) -> tuple[Curve, ...]:
    """Saturating power laws: some learn fast to little, some slowly to much, one in ten does not learn."""
    curves: list[Curve] = []
    for _ in range(jobs):
        top = 0.05 if draw.random() < 0.1 else draw.uniform(0.4, 0.95)
        pace = draw.uniform(0.3, 1.2)
        curves.append([top * (1 - (1 + e) ** -pace) for e in range(1, SYNTHETIC_EPOCHS + 1)])
    return tuple(curves)


def stop_shares(curves: Sequence[Curve]) -> list[float]:
    """For each curve the share of a full run after which the median rule stops it; 1 for those that run to the end."""
    epochs = max(len(c) for c in curves)
    shares = [1.0] * len(curves)
    for k in range(1, CHECKPOINTS):
        share = k / CHECKPOINTS
        if share < GRACE:
            continue
        at = max(0, math.ceil(share * epochs) - 1)
        level = median(c[min(at, len(c) - 1)] for c in curves)
        for n, curve in enumerate(curves):
            if shares[n] == 1.0 and curve[min(at, len(curve) - 1)] < level:
                shares[n] = share
    return shares
