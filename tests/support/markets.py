"""Small markets by hand, random ones from a seed, and what holds of every decision."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.policies.base import Decision, Market, MarketApp, MarketJob
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import AppId, GpuId, JobId, NodeName

NOW_MS = 100_000_000
HOUR = 3_600_000
SLOW = SlowdownModel(by_model={"slow": (1.0, 1.2, 1.6, 2.0)})


def cluster(*machines: tuple[str, str, int]) -> Topology:
    """Machines (name, rack, GPUs) without slots."""
    return Topology(tuple(Machine(name=n, rack=r, gpus=g) for n, r, g in machines))


def job(job_id: JobId, hours: float = 1.0, **more: Any) -> MarketJob:
    """A job named app/number with so many GPU-hours left; it has run if it holds something."""
    values: dict[str, Any] = {
        "job_id": job_id,
        "app_id": job_id.split("/")[0],
        "arrival_ms": NOW_MS - HOUR,
        "gang": 1,
        "unit": 1,
        "model": "",
        "remaining": hours * HOUR,
        "has_run": bool(more.get("ending") or more.get("held")),
        "restart_ms": 40_000,
    }
    values |= more
    values.setdefault("wanted", values["gang"])
    return MarketJob(**values)


def app(*jobs: MarketJob, **more: Any) -> MarketApp:
    """The app of these jobs; it arrived with the first of them and would take two hours on its own share."""
    values: dict[str, Any] = {
        "app_id": jobs[0].app_id,
        "arrival_ms": min(j.arrival_ms for j in jobs),
        "t_independent_ms": 2.0 * HOUR,
        "presence_at_arrival": -2.0 * (NOW_MS - min(j.arrival_ms for j in jobs)),  # two apps all the time
        "work": sum(j.remaining + j.attained for j in jobs),
        "demand": sum(max(j.gang, j.wanted) for j in jobs),
        "weight": 1.0,
        "attained": sum(j.attained for j in jobs),
        "jobs": jobs,
    }
    return MarketApp(**(values | more))


def market(topology: Topology, *apps: MarketApp, **more: Any) -> Market:
    """All GPUs that no job holds are on offer."""
    held = {g for a in apps for j in a.jobs for g in j.held}
    gpus = tuple(sorted(g for g in topology.places if g not in held))
    room = more.pop("room", {})
    values: dict[str, Any] = {"now_ms": NOW_MS, "round_no": 1, "settings": Settings(slowdowns=SLOW)}
    by_id = tuple(sorted(apps, key=lambda a: a.app_id))
    return Market(supply=Supply(topology, gpus, room), apps=by_id, **(values | more))


def random_market(seed: int, gpus_max: int = 24, apps_max: int = 6, *, has_room: bool = False) -> Market:
    """Machines with slots on racks, apps of several jobs, some of which hold GPUs inside or outside the offer.

    With `has_room`, memory and CPU limit nobody.
    """
    chance = Random(f"{seed}/market")
    machines: list[Machine] = []
    while sum(m.gpus for m in machines) < chance.randint(4, gpus_max):
        slot = chance.choice([0, 2])
        size = chance.choice([1, 2, 4, 4, 8])
        machines.append(Machine(name=f"m{len(machines)}", rack=f"r{len(machines) // 3}", gpus=size, gpus_per_slot=slot))
    topology = Topology(tuple(machines))
    free = {m.name: list(m.gpu_ids()) for m in topology.machines}
    apps = []
    room: dict[JobId, dict[NodeName, int]] = {}
    for a in range(chance.randint(1, apps_max)):
        jobs = [_random_job(chance, f"app{a}/{k}", free) for k in range(chance.randint(1, 4))]
        t_independent_ms = chance.uniform(0.2, 20) * HOUR
        apps.append(app(*jobs, t_independent_ms=t_independent_ms, weight=chance.choice([1.0, 1.0, 2.0])))
        for one in jobs:
            if chance.random() < 0.2 and not has_room:
                room[one.job_id] = {m.name: chance.randint(0, m.gpus) for m in topology.machines}
    return market(topology, *apps, room=room, round_no=seed, memory_mb=64_000, vcores=100)


def _random_job(chance: Random, job_id: JobId, free: dict[NodeName, list[GpuId]]) -> MarketJob:
    unit = chance.choice([1, 1, 1, 2])
    gang = unit * chance.choice([1, 1, 2, 4])
    has: list[GpuId] = []
    if chance.random() < 0.5:
        for gpus in free.values():
            while len(gpus) >= unit and len(has) < gang and chance.random() < 0.8:
                has += [gpus.pop() for _ in range(unit)]
    if len(has) < gang:
        for gpu in has:
            free[gpu.split(":")[0]].append(gpu)
        has = []
    held = has if chance.random() < 0.3 else []
    return job(
        job_id,
        chance.choice([0.01, 0.5, 3.0, 40.0]),
        arrival_ms=NOW_MS - chance.randrange(0, 50) * HOUR // 10,
        gang=gang,
        unit=unit,
        wanted=gang + unit * chance.choice([0, 0, 1, 6]) if chance.random() < 0.95 else gang - unit,
        model=chance.choice(["", "slow"]),
        has_run=bool(has) or chance.random() < 0.3,
        held=tuple(sorted(held)),
        ending=() if held else tuple(sorted(has)),
        attained=chance.choice([0.0, 0.3, 2.0]) * HOUR,
        lost=chance.choice([0.0, 0.0, 0.0, 0.1]) * HOUR,
        memory_mb=chance.choice([0, 1_000, 8_000]),
        vcores=chance.choice([0, 1, 8]),
    )


def afterwards(market: Market, decision: Decision) -> Market:
    """The same instant again, with the decision carried out: what was given is on offer once more, by its new holder."""
    won = decision.gpus_by_job()

    def with_win(one: MarketJob) -> MarketJob:
        return replace(one, ending=won.get(one.job_id, ()), has_run=one.has_run or one.job_id in won)

    return replace(market, apps=tuple(replace(a, jobs=tuple(with_win(j) for j in a.jobs)) for a in market.apps))


def got(decision: Decision) -> dict[JobId, int]:
    """How many GPUs each job gets."""
    return {j: len(gpus) for j, gpus in sorted(decision.gpus_by_job().items()) if gpus}


def ranks(decision: Decision) -> list[JobId]:
    """The recorded order."""
    return [e["job_id"] for e in decision.record["order"]]


def jobs_of(market: Market) -> dict[JobId, MarketJob]:
    """All jobs by id."""
    return {j.job_id: j for a in market.apps for j in a.jobs}


def could_use(market: Market, decision: Decision) -> list[JobId]:
    """Jobs for which a whole gang (or, new ones, a unit more) is unused although it has a place for it."""
    won = decision.gpus_by_job()
    used = {g for gpus in won.values() for g in gpus}
    rest = [g for g in market.supply.gpus if g not in used]
    return [j.job_id for j in jobs_of(market).values() if _has_place(market, j, won.get(j.job_id, ()), rest)]


def _has_place(market: Market, one: MarketJob, won: tuple[GpuId, ...], rest: Iterable[GpuId]) -> bool:
    has = len(one.held) + len(won)
    if not one.can_gain or has >= one.wanted or (has >= one.gang and one.has_run):
        return False  # growth has to repay a restart: tested apart
    need = one.unit if has >= one.gang else -(-(one.gang - has) // one.unit) * one.unit
    on: dict[AppId, int] = {}
    for gpu in rest:
        on[gpu.split(":")[0]] = on.get(gpu.split(":")[0], 0) + 1
    room = 0
    for m, k in on.items():
        new = sum(g.split(":")[0] == m for g in won if g not in one.ending)
        room += max(0, min(k, market.supply.room_on(one.job_id, m) - new)) // one.unit * one.unit
    return has + need <= one.wanted and room >= need
