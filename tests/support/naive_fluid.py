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
    owners: tuple[tuple[str, float], ...] = ()


def naive_finishes(apps: list[NaiveApp], gpus: float, step_ms: float) -> dict[str, float]:
    """When each app's fluid work is gone, in ms; exact to a step."""
    left = {a.name: a.work for a in apps}
    ends: dict[str, float] = {}
    now = min(a.arrival_ms for a in apps)
    while len(ends) < len(apps):
        live = [a for a in apps if a.arrival_ms <= now and a.name not in ends]
        rates = _rates(live, gpus, 0)
        for app in live:
            rate = rates[app.name]
            if left[app.name] <= rate * step_ms:
                ends[app.name] = now + left[app.name] / rate
            left[app.name] -= rate * step_ms
        now += step_ms
    return ends


def _rates(live: list[NaiveApp], gpus: float, depth: int) -> dict[str, float]:
    """GPUs of each app: outer owners fill up side by side, then what is inside each of them."""
    if not live:
        return {}
    if depth == len(live[0].owners):
        level = _water_level([(a.parallelism, a.weight) for a in live], gpus)
        return {a.name: min(a.parallelism, level * a.weight) for a in live}
    inside = {owner: [a for a in live if a.owners[depth] == owner] for owner in {a.owners[depth] for a in live}}
    caps = {owner: sum(a.parallelism for a in apps) for owner, apps in inside.items()}
    level = _water_level([(caps[owner], owner[1]) for owner in inside], gpus)
    rates: dict[str, float] = {}
    for owner, apps in inside.items():
        rates |= _rates(apps, min(caps[owner], level * owner[1]), depth + 1)
    return rates


def _water_level(pools: list[tuple[float, float]], gpus: float) -> float:
    """GPUs a unit of weight at which everything is handed out, or nobody can use more; pools have a size and a weight."""
    low, high = 0.0, max(size / weight for size, weight in pools)
    if sum(size for size, _ in pools) <= gpus:
        return high
    for _ in range(60):
        middle = (low + high) / 2
        if sum(min(size, middle * weight) for size, weight in pools) > gpus:
            high = middle
        else:
            low = middle
    return low
