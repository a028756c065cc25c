"""Small apps that come one after the other to a full cluster: each takes a GPU, and none turns everybody out."""

from random import Random

import pytest

from tests.support.world import World
from themis_arbiter.sim.live_jobs import SimJob, SimNode

NODES = tuple(SimNode(node=f"n{k}", rack=f"r{k // 2}", gpus=gpus) for k, gpus in enumerate((4, 4, 2, 2)))
GPUS = 12
LONG_MS = 6_000_000
RESIDENTS = (("wide", 1, 4), ("gang", 4, 4), ("pair", 2, 2), ("slim", 1, 2))  # gang and most GPUs: together all there are
ASKS = 15
MOVED_MAX = 8  # of the 12 GPUs in one round: the ask's, the gang's that may go without, and one job's that makes room


@pytest.mark.parametrize("seed", range(3))
def test_no_round_turns_everybody_out_for_one_gpu(seed: int) -> None:
    jobs = [
        SimJob(app_id=name, job_id=name, arrival_ms=k * 500, gang=gang, max_gpus=most, work=most * LONG_MS)
        for k, (name, gang, most) in enumerate(RESIDENTS)
    ]
    chance, at_ms = Random(seed), 60_000
    for k in range(ASKS):
        jobs.append(SimJob(app_id=f"ask{k}", job_id=f"ask{k}", arrival_ms=at_ms, gang=1, max_gpus=1, work=1_000.0))
        at_ms += chance.randint(20_000, 60_000)
    world = World(NODES, jobs)
    world.run_until(at_ms + 40_000)
    assert all(job.finish_ms is not None for job in world.cluster.jobs() if job.job_id.startswith("ask"))
    moved = [len(r["moves"]["draining"]) for r in world.rounds.records if r["kind"] in {"grid", "recall"}]
    assert sum(count > 0 for count in moved) >= ASKS, "nobody had to give way, so this shows nothing"
    assert max(moved) <= MOVED_MAX
