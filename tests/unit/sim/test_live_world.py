"""The real arbiter, driver and stores on the simulated cluster, in virtual and in real time."""

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.support.sim_apps import START_MS, VirtualWorld, job, nodes, over_leased
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.journal import FileJournal, MemoryJournal
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.core.gpu_speeds import speed_on
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import GpuSpeeds, OnLeaseEnd
from themis_arbiter.engine.driver import Driver
from themis_arbiter.engine.loop import EngineLoop
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.replay import replay, replay_with
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.sim.live_cluster import LiveCluster
from themis_arbiter.sim.live_jobs import SimJob
from themis_arbiter.sim.live_model import SimulatedCluster
from themis_arbiter.sim.run_check import types_kept
from themis_arbiter.sim.run_facts import read_facts

HOUR_MS: Final = 3_600_000
SETTINGS: Final = Settings(
    lease_ms=20_000,
    notice_ms=3_000,
    restart_cost_ms=1_000,
    rho_floor_ms=20_000,
    debounce_ms=500,
    tick_ms=2_000,
    gang_wait_ms=5_000,
)


def drawn_jobs(seed: int, count: int = 12) -> list[SimJob]:
    chance = random.Random(f"{seed}/jobs")
    jobs = []
    for k in range(count):
        unit = chance.choice((1, 1, 1, 2))
        gang = unit * chance.choice((1, 1, 2))
        jobs.append(
            job(
                f"j{k:02d}",
                app_id=f"app{k % 8}",
                unit=unit,
                gang=gang,
                gpus=gang * chance.choice((1, 2)),
                work_s=chance.randrange(5, 90),
                arrival_ms=chance.randrange(60_000),
                on_lease_end=chance.choice((OnLeaseEnd.CHECKPOINT, OnLeaseEnd.CHECKPOINT, OnLeaseEnd.RESTART)),
                is_work_declared=chance.random() < 0.8,
            )
        )
    return jobs


def drawn_world(seed: int, journal: FileJournal | MemoryJournal | None = None) -> VirtualWorld[Arbiter]:
    cluster = SimulatedCluster(nodes(4, 4, 2, 1), drawn_jobs(seed), start_ms=START_MS)

    def check() -> None:
        assert over_leased(cluster) == []

    arbiter = Arbiter(SETTINGS, is_checked=True)
    return VirtualWorld(arbiter, cluster, settings=SETTINGS, journal=journal, check=check)


@pytest.mark.parametrize("seed", range(6))
def test_every_job_finishes_and_replays(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, SETTINGS)
    world = drawn_world(seed, journal)
    world.run_until(world.cluster.is_over, HOUR_MS)
    journal.close()
    result = replay_with(path, Arbiter)
    assert result.steps > 50
    assert result.first_difference is None
    other = Arbiter(replace(SETTINGS, debounce_ms=501))
    assert replay(path, other).first_difference is not None


@pytest.mark.parametrize("seed", range(4))
def test_gpu_types_hold_live_and_every_job_that_can_run_finishes(seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{seed}/types")
    types = dict(zip(("n0", "n1", "n2"), chance.sample(("v100", "K80", "v100"), 3), strict=True))
    speeds: list[GpuSpeeds] = [
        (),
        (("v100", 1.0),),
        (("k80", 0.5),),
        (("k80", 0.5), ("v100", 1.0)),
        (("k80", 0.0), ("v100", 2.0)),
    ]
    # A gang is no larger than what there is of either type.
    jobs = [replace(j, gpu_speeds=chance.choice(speeds)) for j in drawn_jobs(seed) if j.gang <= 2]
    declared = {j.job_id: j.gpu_speeds for j in jobs}
    sim_nodes = tuple(replace(n, gpu_type=types[n.node]) for n in nodes(4, 2, 4))
    cluster = SimulatedCluster(sim_nodes, jobs, start_ms=START_MS)

    def check() -> None:
        for job_id, node in cluster.places():
            assert speed_on(declared[job_id], types[node]) > 0.0, (job_id, node)

    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, SETTINGS)
    world = VirtualWorld(Arbiter(SETTINGS, is_checked=True), cluster, settings=SETTINGS, journal=journal, check=check)
    world.run_until(world.cluster.is_over, HOUR_MS)
    journal.close()
    assert replay_with(path, Arbiter).first_difference is None
    found = read_facts(path)
    assert found.gpu_types == {n: t.lower() for n, t in types.items()}
    assert any(j.gpu_speeds for j in found.jobs)
    assert list(types_kept(found)) == []


def write_journal(seed: int, path: Path) -> None:
    journal = FileJournal(path, SETTINGS)
    world = drawn_world(seed, journal)
    world.run_until(world.cluster.is_over, HOUR_MS)
    journal.close()


def test_equal_runs_are_byte_equal_under_three_hash_seeds(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from tests.unit.sim.test_live_world import write_journal; "
        "write_journal(11, pathlib.Path(sys.argv[1]))"
    )
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        path = tmp_path / f"{hash_seed}.jsonl"
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_another_arbiter_takes_over_and_nobody_notices() -> None:
    disk = MemoryDisk()
    cluster = SimulatedCluster(nodes(4, 4, 2, 1), drawn_jobs(3), start_ms=START_MS)
    worlds: list[VirtualWorld[Arbiter]] = []

    def check() -> None:
        assert over_leased(cluster) == []

    for epoch in (1, 2, 3):
        arbiter = Arbiter(SETTINGS, is_checked=True)
        world = VirtualWorld(arbiter, cluster, settings=SETTINGS, store=MemoryStore(disk), check=check)
        worlds.append(world)
        assert disk.epoch == epoch
        until_ms = START_MS + 25_000 * epoch

        def is_time(until_ms: int = until_ms) -> bool:
            return cluster.now_ms >= until_ms or cluster.is_over()

        if epoch < 3:
            world.run_until(is_time, HOUR_MS)
        else:
            world.run_until(cluster.is_over, HOUR_MS)
    assert cluster.gate.epoch == 3


def test_a_fenced_arbiter_stops_by_itself() -> None:
    disk = MemoryDisk()
    cluster = SimulatedCluster(nodes(4), [job("j", work_s=60)], start_ms=START_MS)
    world = VirtualWorld(Arbiter(SETTINGS), cluster, settings=SETTINGS, store=MemoryStore(disk))
    world.run_until(lambda: cluster.used(("j", "n0")) == 1, 60_000)
    disk.epoch += 1
    world.run_until(lambda: world.driver.is_fenced, 120_000)
    told = cluster.gate.seq
    cluster.advance(cluster.now_ms + 120_000)
    assert cluster.gate.seq == told


@pytest.mark.timeout(60)
def test_it_runs_in_real_time_on_threads(tmp_path: Path) -> None:
    quick = Settings(lease_ms=2_000, notice_ms=300, restart_cost_ms=100, rho_floor_ms=2_000, debounce_ms=50, tick_ms=200)
    clock, timers, store = SystemClock(), TimerTable(), SqliteStore(tmp_path / "leases.db")
    jobs = [job(f"j{k}", gpus=2, work_s=1.5, arrival_ms=100 * k, checkpoint_ms=50) for k in range(6)]
    failures: list[Exception] = []
    live = LiveCluster(SimulatedCluster(nodes(2, 2), jobs, start_ms=clock.now_ms()), clock, on_failure=failures.append)
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, quick)
    driver = Driver(Arbiter(quick, is_checked=True), store=store, rm=live, journal=journal, timers=timers, clock=clock)
    loop = EngineLoop(driver, clock, timers, on_failure=failures.append)
    first = take_over(store, clock)
    loop.start()
    loop.submit(lambda _: first)
    live.start(loop.submit)
    try:
        assert live.is_over.wait(40), live.jobs()
    finally:
        live.stop()
        loop.stop()
        journal.close()
        store.close()
    assert failures == []
    assert all(view.finish_ms is not None for view in live.jobs())
    assert replay_with(path, Arbiter).first_difference is None
