"""The whole arbiter in random worlds, with and without faults: invariants after each step, every job done in the end."""

import random
from dataclasses import replace

import pytest

from tests.support.recorded import are_in_order, faults, read_round
from tests.support.world import SHORT, World
from themis_arbiter.core.lease import LeaseState
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.views_of import apps, leases
from themis_arbiter.sim.live_jobs import SimJob, SimNode

ENOUGH_MS = 4_000_000


def random_world(seed: int, policy: str = "", admission_max_rho: float = 0.0) -> World:
    chance = random.Random(seed)
    nodes = [
        SimNode(node=f"n{k}", rack=f"r{k // 2}", gpus=chance.choice([1, 2, 4, 4, 8]), gpus_per_slot=chance.choice([0, 2]))
        for k in range(chance.randint(1, 4))
    ]
    gpus = sum(n.gpus for n in nodes)
    jobs = []
    for k in range(chance.randint(2, 8)):
        unit = chance.choice([1, 1, 1, 2])
        gang = unit * chance.choice([1, 1, 2, 4])
        if gang > gpus or unit > min(n.gpus for n in nodes):
            continue
        jobs.append(
            SimJob(
                app_id=f"app{k % 4}",
                job_id=f"job{k}",
                arrival_ms=chance.randrange(0, 40_000),
                gang=gang,
                unit=unit,
                max_gpus=gang + unit * chance.choice([0, 0, 2, 8]),
                work=chance.choice([0.2, 1.0, 3.0]) * gpus * chance.randrange(1_000, 30_000),
                is_work_declared=chance.random() < 0.7,
                model=chance.choice(["", "vgg16"]),
            )
        )
    policy = policy or chance.choice(["themis", "themis", "paper"])
    settings = replace(SHORT, policy=policy, payments=chance.random() < 0.8, admission_max_rho=admission_max_rho)
    return World(nodes, jobs, settings)


def assert_all_done_and_books_closed(world: World) -> None:
    unfinished = [j for j in world.cluster.jobs() if j.finish_ms is None]
    assert not unfinished, unfinished
    assert leases(world.arbiter) == ()
    assert all(a.state.value == "ENDED" for a in apps(world.arbiter, world.clock.at_ms))
    assert not world.arbiter.state.pending
    assert not world.arbiter.state.queued
    assert world.arbiter.state.admin.admitted == ()


@pytest.mark.parametrize("seed", range(40))
def test_every_job_finishes_and_every_round_is_right(seed: int) -> None:
    world = random_world(seed)
    world.run_to_end(ENOUGH_MS)
    assert_all_done_and_books_closed(world)
    rounds = [read_round(r) for r in world.rounds.records]
    assert are_in_order(rounds)
    for one in rounds[:25]:
        if len(one.supply.gpus) <= 12:
            assert faults(one) == [], one.record["round"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_gets_every_job_through(policy: str) -> None:
    for seed in range(200, 204):
        world = random_world(seed, policy)
        world.run_to_end(ENOUGH_MS)
        assert_all_done_and_books_closed(world)
        assert are_in_order([read_round(r) for r in world.rounds.records])


@pytest.mark.parametrize("seed", range(100, 160))
def test_faults_break_no_invariant_and_all_finish_when_they_stop(seed: int) -> None:
    chance = random.Random(f"{seed}/faults")
    world = random_world(seed, admission_max_rho=1.2 * (seed % 2))
    nodes = sorted(world.gpus_of_node)
    for _ in range(chance.randint(1, 6)):
        world.run_until(world.clock.at_ms + chance.randrange(100, 30_000))
        match chance.choice(["crash", "rm", "store", "node", "freeze"]):
            case "crash":
                world.crash()
                world.run_until(world.clock.at_ms + chance.randrange(0, 40_000))
                world.boot()
            case "rm":
                world.cluster.restart()
            case "store":
                world.store.refuse = chance.randint(1, 4)
            case "freeze":
                world.freeze(chance.randrange(1_000, 60_000))
            case _:
                node = chance.choice(nodes)
                world.cluster.lose_node(node)
                world.run_until(world.clock.at_ms + chance.randrange(0, 20_000))
                world.cluster.restore_node(node)
    world.run_to_end(ENOUGH_MS)
    assert_all_done_and_books_closed(world)
    # Whatever came late, nobody is told to go in the moment in which it is taken.
    assert all(2 * notice_ms >= world.settings.notice_ms for notice_ms in world.rounds.notices_ms), world.rounds.notices_ms


def test_a_crash_keeps_leases_their_ids_and_their_ends() -> None:
    world = World(
        [SimNode(node="n0", rack="r0", gpus=4)],
        [SimJob(app_id="a", job_id="a", gang=1, max_gpus=4, work=400_000)],
    )
    world.run_until(12_000)
    before = {x.lease_id: (x.gpu, x.end_ms) for x, _ in leases(world.arbiter)}
    assert len(before) == 4
    world.crash()
    world.run_until(14_000)
    world.boot()
    world.run_until(16_000)
    after = {x.lease_id: (x.gpu, x.end_ms) for x, _ in leases(world.arbiter) if x.state is LeaseState.ACTIVE}
    assert after == before
    assert world.arbiter.state.epoch == 2
