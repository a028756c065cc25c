"""A naive twin of the ideal fluid share: walks in small steps, finds each step's water level by bisection."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NaiveApp:
    """An app by its own numbers: milliseconds, GPU-milliseconds, GPUs."""

    name: str
    arrival_ms: float
    work: float
    parallelism: float
    weight: float = 1.0


def naive_finishes(apps: list[NaiveApp], gpus: float, step_ms: float) -> dict[str, float]:
    """When each app's fluid work is gone, in ms; exact to a step."""
    left = {a.name: a.work for a in apps}
    ends: dict[str, float] = {}
    now = min(a.arrival_ms for a in apps)
    while len(ends) < len(apps):
        live = [a for a in apps if a.arrival_ms <= now and a.name not in ends]
        level = _water_level(live, gpus)
        for app in live:
            rate = min(app.parallelism, level * app.weight)
            if left[app.name] <= rate * step_ms:
                ends[app.name] = now + left[app.name] / rate
            left[app.name] -= rate * step_ms
        now += step_ms
    return ends


def _water_level(live: list[NaiveApp], gpus: float) -> float:
    """GPUs a unit of weight at which everything is handed out, or nobody can use more."""
    low, high = 0.0, max((a.parallelism / a.weight for a in live), default=0.0)
    if sum(a.parallelism for a in live) <= gpus:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if sum(min(a.parallelism, middle * a.weight) for a in live) > gpus:
            high = middle
        else:
            low = middle
    return low
