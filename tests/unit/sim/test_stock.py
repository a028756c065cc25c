"""CPU and memory in a simulated cluster: they weigh in dominant shares and bound where containers fit."""

import io
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.support.replays import SLOW, check, cluster, job
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.topology import Topology
from themis_arbiter.sim.clusterfile import Capacity, read_whole_cluster
from themis_arbiter.sim.simulate import Inputs, Replayed, replay
from themis_arbiter.sim.stock import Stock
from themis_arbiter.sim.trace import Trace, TraceError, TraceJob


def replayed(jobs: list[TraceJob], topology: Topology, beside: Capacity, policy: str) -> Replayed:
    inputs = Inputs(
        trace=Trace(tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key)))),
        topology=topology,
        slowdowns=SLOW,
        capacity={m.name: beside for m in topology.machines},
        settings=Settings(policy=policy, debounce_ms=0),
    )
    done = replay(inputs, io.StringIO(), is_checked=True)
    check(done.jobs, topology, SLOW, inputs.settings)
    return done


@pytest.mark.parametrize(
    ("beside", "shares"),
    [
        # Of 64 GB a's job takes a quarter, b's a sixteenth; of 8 GPUs each an eighth. Next is who has less: a b b a b b a b.
        (Capacity(memory_gb=64), {"a": 3, "b": 5}),
        (Capacity(cpu=16), {"a": 4, "b": 4}),  # GPUs dominate: an eighth against a sixteenth
        (Capacity(cpu=4), {"a": 5, "b": 3}),  # a's job an eighth, b's a quarter
        (Capacity(), {"a": 4, "b": 4}),
    ],
)
def test_drf_shares_by_the_dominant_resource(beside: Capacity, shares: dict[str, int]) -> None:
    many = [job("a", f"a{k}", 0, 1, 5_000, memory_gb=16, cpu=0.1) for k in range(8)]
    many += [job("b", f"b{k}", 0, 1, 5_000, memory_gb=4, cpu=1) for k in range(8)]
    done = replayed([job("z", "z", 0, 8, 50), *many], cluster(1, 8), beside, "drf")
    running = Counter(j.spec.app_id for j in done.jobs if any(r.start_ms <= 400_000 < r.end_ms for r in j.runs))
    assert running == shares


def test_a_job_that_no_machine_can_hold_is_rejected_and_no_other() -> None:
    jobs = [
        job("a", "fits", 0, 4, 10, memory_gb=32),
        job("a", "too-wide", 0, 5, 10, memory_gb=32),  # two of its containers fit on a machine of four GPUs
        job("a", "too-large", 0, 1, 10, memory_gb=64.1),
    ]
    done = replayed(jobs, cluster(2, 4), Capacity(memory_gb=64), "themis")
    assert [j.job_id for j in done.rejected] == ["too-large", "too-wide"]
    (fits,) = done.jobs
    assert Counter(gpu[:4] for gpu in fits.runs[0].gpus) == {"r0m0": 2, "r0m1": 2}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["themis", "drf", "carbyne", "quincy", "fifo"])
def test_everything_finishes_and_everything_is_given_back(policy: str, seed: int) -> None:
    chance = Random(seed)
    topology = cluster(2, 4, racks=2)
    jobs = [
        job(
            f"a{k % 5}",
            f"j{k}",
            chance.uniform(0, 2_000),
            chance.choice([1, 1, 2, 4, 8]),
            chance.uniform(20, 900),
            memory_gb=chance.choice([0, 8, 16, 16, 30]),
            cpu=chance.choice([0, 1.5, 4]),
            model=chance.choice(["", "vgg"]),
        )
        for k in range(16)
    ]
    done = replayed(jobs, topology, Capacity(cpu=16, memory_gb=64), policy)
    assert len(done.jobs) + len(done.rejected) == len(jobs)
    assert all(j.finish_ms is not None for j in done.jobs)


def test_books_balance() -> None:
    topology = cluster(1, 4)
    stock = Stock(topology, {"r0m0": Capacity(cpu=8, memory_gb=10)})
    some = job("a", "a", 0, 1, 1, cpu=2.5, memory_gb=3)
    before = stock.reports()
    assert (before[0].memory_free_mb, before[0].vcores_free) == (10_240, 8_000)
    for gpu in ("r0m0:0", "r0m0:1"):
        stock.use(gpu, some, +1)
    (changed,) = stock.changes()
    assert (changed.memory_free_mb, changed.vcores_free) == (4_096, 3_000)
    assert stock.changes() == ()
    for gpu in ("r0m0:0", "r0m0:1"):
        stock.use(gpu, some, -1)
    assert stock.reports() == before == stock.changes()


@pytest.mark.parametrize(
    ("machine", "what"),
    [
        ("{gpus: 1, cpu: 0}", "`cpu` must be a number above 0"),
        ("{gpus: 1, cpu: many}", "`cpu` must be a number above 0"),
        ("{gpus: 1, memory_gb: -1}", "`memory_gb` must be a number above 0"),
        ("{gpus: 1, memory_gb: .inf}", "`memory_gb` must be a number above 0"),
        ("{gpus: 1, memory_gb: 5}, {gpus: 1}", "some machines have `memory_gb` and some do not"),
    ],
)
def test_amounts_that_cannot_be_are_refused(tmp_path: Path, machine: str, what: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"racks: [{{machines: [{machine}]}}]", encoding="utf-8")
    with pytest.raises(TraceError, match=what):
        read_whole_cluster(path)


def test_a_cluster_file_says_what_machines_have(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("racks: [{machines: [{count: 2, gpus: 4, cpu: 32, memory_gb: 256}]}]", encoding="utf-8")
    assert read_whole_cluster(path).capacity == dict.fromkeys(("r0m0", "r0m1"), Capacity(cpu=32.0, memory_gb=256.0))
