"""Random small traces under every policy: the cluster's rules hold, and the core's invariants after every step."""

from random import Random
from typing import Any

import pytest

from tests.support.replays import cluster, job, simulated
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.sim.idle import idle_gpu_seconds
from themis_arbiter.sim.trace import TraceJob

SEEDS = range(3)
IDLE_SHARE_MAX = 0.01  # of all GPU time


def random_jobs(chance: Random) -> list[TraceJob]:
    """Some apps: short and long, wide and narrow, rigid and elastic, of all kinds."""
    jobs, now = [], 0.0
    for app in range(chance.randint(3, 8)):
        now += chance.expovariate(1 / chance.choice([30, 300, 1500]))
        for number in range(chance.choice([1, 1, 2, 5])):
            gang = chance.choice([1, 1, 2, 3, 4, 8])
            jobs.append(
                job(
                    f"app{app}",
                    f"j{number}",
                    round(now + chance.choice([0, 0, chance.uniform(0, 200)]), 4),
                    gang,
                    chance.choice([chance.uniform(0.001, 2), chance.uniform(5, 200), chance.uniform(300, 3000)]),
                    max_gpus=gang * chance.choice([1, 1, 2]),
                    model=chance.choice(["", "vgg"]),
                    on_lease_end=chance.choice([OnLeaseEnd.CHECKPOINT] * 3 + [OnLeaseEnd.RESTART, OnLeaseEnd.NEVER]),
                )
            )
    return jobs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_rules_of_the_cluster_hold(policy: str, seed: int) -> None:
    chance = Random(seed)
    jobs = random_jobs(chance)
    settings: dict[str, Any] = {"notice_ms": chance.choice([0, 10_000, 60_000]), "restart_cost_ms": chance.choice([0, 40_000])}
    done, records = simulated(jobs, cluster(2, 4, racks=2, gpus_per_slot=2), policy=policy, **settings)
    assert done.rounds == len(records) > 0
    span = max(j.finish_ms or 0 for j in done.jobs) / 1000 - min(j.spec.arrival_s for j in done.jobs)
    assert idle_gpu_seconds(done.jobs, 16) <= IDLE_SHARE_MAX * 16 * span + 16


@pytest.mark.parametrize("policy", ["themis", "guard", "paper"])
def test_equal_inputs_give_equal_replays(policy: str) -> None:
    one, first = simulated(random_jobs(Random(7)), cluster(1, 8), policy=policy)
    other, second = simulated(random_jobs(Random(7)), cluster(1, 8), policy=policy)
    assert first == second
    assert [j.runs for j in one.jobs] == [j.runs for j in other.jobs]
