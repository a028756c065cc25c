"""The ideal fluid share of a cluster with several GPU types: each app has its part of every type that it can use.

Of the G_t GPUs of type t an app of weight w is due G_t * w / W_t, where W_t is the weight of all apps present that can use t:
of N equal apps that can use everything, 1/N of each type, as Gavel's isolated allocation has it (Narayanan et al., OSDI 2020,
section 4.2). It takes what it is due fastest type first, up to its parallelism; what is not taken is divided in the same way
among those who can use more, until nobody can. GPUs are divisible and time is too, so its rate is the sum over types of GPUs
x speed: a gang runs on each type a part of the time, never on several at once. With one type of speed 1 that is
the share by water-filling (`fluid`). Where apps have owners these divide first, as they do there.
"""

from collections.abc import Sequence
from typing import TypeAlias

from themis_arbiter.core.gpu_speeds import ANY_TYPE, speed_on
from themis_arbiter.core.owners import Owners
from themis_arbiter.core.types import GpuSpeeds

Types: TypeAlias = tuple[tuple[str, int], ...]  # GPUs by type
Order: TypeAlias = list[tuple[int, float]]  # types that one can use by their place among `Types`, with speeds, fastest first


def are_typed(declared: Sequence[GpuSpeeds], types: Types) -> bool:
    """Whether any of the declarations says of any of the types that it runs at another speed than 1 there."""
    return any(speed_on(speeds, name) != 1.0 for speeds in dict.fromkeys(declared) if speeds for name, _ in types)


def order_of(speeds: GpuSpeeds, types: Types) -> Order:
    """The types that who declares these can use, the fastest first."""
    return orders_of([speeds], types)[0]


def orders_of(declared: Sequence[GpuSpeeds], types: Types) -> list[Order]:
    """`order_of` each of these; a cluster may have thousands of types, of which each names few, and many name the same."""
    place = {name: k for k, (name, _) in enumerate(types)}
    made: dict[GpuSpeeds, Order] = {}
    for speeds in dict.fromkeys(declared):
        known = dict(speeds)
        if not speeds or ANY_TYPE in known:
            found = [(k, speed_on(speeds, name)) for k, (name, _) in enumerate(types)]
        else:
            found = [(place[name], speed) for name, speed in speeds if name in place]
        made[speeds] = sorted([one for one in found if one[1] > 0.0], key=lambda one: (-one[1], one[0]))
    return [made[speeds] for speeds in declared]


def share_rate(speeds: GpuSpeeds, types: Types, weight: float, total: float, parallelism: float) -> float:
    """Work a millisecond of an app that has `weight` of `total` of every type that it can use."""
    rate = 0.0
    for k, speed in order_of(speeds, types):
        gpus = min(parallelism, types[k][1] * weight / total)
        rate += gpus * speed
        parallelism -= gpus
    return rate


def typed_rates(
    caps: Sequence[float], weights: Sequence[float], owners: Sequence[Owners], orders: Sequence[Order], types: Types
) -> list[float]:
    """Work a millisecond of each app: `caps` are their parallelisms."""
    gpus = _shared(list(caps), list(weights), list(owners), list(orders), [float(count) for _, count in types])
    return [sum(has[k] * speed for k, speed in order) for has, order in zip(gpus, orders, strict=True)]


def _shared(
    caps: list[float], weights: list[float], owners: list[Owners], orders: list[Order], pool: list[float], depth: int = 0
) -> list[list[float]]:
    """GPUs of each app by type: by owner from the outermost in, and then by app."""
    if not owners or depth == len(owners[0]):
        return _filled(caps, weights, orders, pool)
    members: dict[str, list[int]] = {}
    for k, path in enumerate(owners):
        members.setdefault(path[depth][0], []).append(k)
    names = sorted(members)
    shares = _filled(
        [sum(caps[k] for k in members[name]) for name in names],
        [owners[members[name][0]][depth][1] for name in names],
        [_joint([orders[k] for k in members[name]]) for name in names],
        pool,
    )
    found: list[list[float]] = [[] for _ in caps]
    for name, share in zip(names, shares, strict=True):
        ks = members[name]
        inner = _shared(
            [caps[k] for k in ks], [weights[k] for k in ks], [owners[k] for k in ks], [orders[k] for k in ks], share, depth + 1
        )
        for k, has in zip(ks, inner, strict=True):
            found[k] = has
    return found


def _joint(orders: Sequence[Order]) -> Order:
    """What an owner can use: of each type what that of its apps can which is fastest there."""
    best: dict[int, float] = {}
    for order in orders:
        for k, speed in order:
            best[k] = max(best.get(k, 0.0), speed)
    return sorted(best.items(), key=lambda one: (-one[1], one[0]))


def _filled(caps: list[float], weights: list[float], orders: list[Order], pool: list[float]) -> list[list[float]]:
    """Each turn but the last fills somebody to the brim, so there are at most as many as there are sharers, and one."""
    got = [[0.0] * len(pool) for _ in caps]
    room, left = list(caps), list(pool)
    able = [k for k in range(len(caps)) if room[k] > 0.0]
    while able:
        due = [0.0] * len(pool)
        for k in able:
            for t, _ in orders[k]:
                due[t] += weights[k]
        whole, left = left, list(left)
        for k in able:
            for t, _ in orders[k]:
                take = min(room[k], whole[t] * (weights[k] / due[t]))
                got[k][t] += take
                room[k] -= take
                left[t] = max(0.0, left[t] - take)
        still = [k for k in able if room[k] > 0.0]
        if len(still) == len(able):
            break
        able = still
    return got
