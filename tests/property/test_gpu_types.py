"""Laws of GPU types under every policy, on random traces and clusters of several types.

Every replay checks the core's invariants after each step, refuses at the job what it must not have (`Physics.speed`), and is
judged again from the runs alone (tests.support.replays). Here: who may have what, that everybody ends, and the speed.
"""

import io
from dataclasses import replace
from random import Random

import pytest

from tests.property.test_standstill import Forgetful, Lines
from tests.support.replays import SLOW, job, simulated
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuSpeeds, OnLeaseEnd, node_of
from themis_arbiter.sim import simulate
from themis_arbiter.sim.trace import Trace, TraceJob

SEEDS = range(6)
TYPES = ("v100", "k80", "p100", "")


def typed_cluster(chance: Random) -> Topology:
    """Machines of mixed sizes, each of a type, in two racks; names of types in whatever case."""
    machines = []
    for k in range(chance.randint(4, 8)):
        gpu_type = chance.choice(TYPES)
        size = chance.choice([2, 4, 4])
        written = gpu_type.upper() if chance.random() < 0.3 else gpu_type
        machines.append(Machine(name=f"m{k}", rack=f"r{k % 2}", gpus=size, gpus_per_slot=2, gpu_type=written))
    return Topology(tuple(machines))


def declaration(chance: Random) -> GpuSpeeds:
    """Nothing, one type, or several; sometimes speed 0, above 1, or of a type that the cluster does not have."""
    if chance.random() < 0.25:
        return ()
    named = chance.sample(("v100", "k80", "p100", "a100"), chance.randint(1, 4))
    speeds = {name: chance.choice([0.0, 0.25, 0.5, 1.0, 1.0, 2.0]) for name in named}
    return tuple(sorted(speeds.items())) if any(speeds.values()) else ()


def typed_jobs(chance: Random) -> list[TraceJob]:
    jobs = []
    for app in range(chance.randint(5, 9)):
        arrival = chance.choice([0.0, chance.uniform(0, 6_000)])
        of_app = declaration(chance)
        for number in range(chance.choice([1, 1, 3])):
            gang = chance.choice([1, 1, 2, 3, 4, 6])
            ending = chance.choice([OnLeaseEnd.CHECKPOINT] * 6 + [OnLeaseEnd.RESTART, OnLeaseEnd.NEVER])
            jobs.append(
                job(
                    f"app{app}",
                    f"j{number}",
                    round(arrival, 3),
                    gang,
                    chance.uniform(300, 5_000),
                    max_gpus=gang * chance.choice([1, 1, 2]),
                    model=chance.choice(["", "vgg"]),
                    on_lease_end=ending,
                    gpu_speeds=of_app if chance.random() < 0.8 else declaration(chance),
                )
            )
    return jobs


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_gpu_goes_to_who_must_not_have_its_type_and_everybody_who_fits_ends(policy: str) -> None:
    for seed in SEEDS:
        chance = Random(f"{policy}/{seed}")
        topology, jobs = typed_cluster(chance), typed_jobs(chance)
        types = {m.name: m.gpu_type.lower() for m in topology.machines}
        able = [j for j in jobs if j.gang <= sum(m.gpus for m in topology.machines if may(j.gpu_speeds, types[m.name]))]
        if not able:
            continue
        done, _ = simulated(jobs, topology, policy=policy, restart_cost_ms=chance.choice([0, 40_000]))
        assert {j.spec.key for j in done.jobs} == {j.key for j in able}, seed
        assert {j.key for j in done.rejected} == {j.key for j in jobs} - {j.key for j in able}, seed
        for one in done.jobs:
            assert one.finish_ms is not None, seed
            for run in one.runs:
                assert all(may(one.spec.gpu_speeds, types[node_of(g)]) for g in run.gpus), (seed, one.spec, run)


def may(declared: GpuSpeeds, gpu_type: str) -> bool:
    return not declared or dict(declared).get(gpu_type, 0.0) > 0.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_declaration_of_speed_1_on_all_types_is_none(policy: str) -> None:
    chance = Random(policy)
    topology, jobs = typed_cluster(chance), typed_jobs(chance)
    plain = [replace(j, gpu_speeds=()) for j in jobs if j.gang <= 4]
    one = tuple((m.gpu_type.lower(), 1.0) for m in topology.machines if m.gpu_type)
    topology = Topology(tuple(replace(m, gpu_type=m.gpu_type or "v100") for m in topology.machines))
    all_types = tuple(sorted({*one, ("v100", 1.0)}))
    typed = [replace(j, gpu_speeds=all_types) for j in plain]
    runs = [
        [(j.spec.key, j.runs, j.finish_ms) for j in simulated(js, topology, policy=policy)[0].jobs] for js in (plain, typed)
    ]
    assert runs[0] == runs[1]


def test_a_job_runs_at_the_speed_of_its_slowest_gpu() -> None:
    topology = Topology(
        (
            Machine(name="a", rack="r", gpus=2, gpu_type="v100"),
            Machine(name="b", rack="r", gpus=2, gpu_type="k80"),
        )
    )
    both = (("k80", 0.25), ("v100", 1.0))
    done, _ = simulated([job("x", "1", 0, 4, 100, gpu_speeds=both)], topology, policy="fifo", slowdowns=SLOW)
    assert done.jobs[0].finish_ms == 400_000.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_is_kept_of_typed_jobs_while_only_time_passes_changes_nothing(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def journals() -> list[list[str]]:
        found = []
        for seed in range(3):
            chance = Random(f"kept/{seed}")
            jobs = tuple(sorted(typed_jobs(chance), key=lambda j: (j.arrival_s, j.key)))
            inputs = simulate.Inputs(
                trace=Trace(jobs),
                topology=typed_cluster(chance),
                slowdowns=SLOW,
                settings=Settings(policy=policy, debounce_ms=0),
            )
            lines = Lines()
            simulate.replay(inputs, io.StringIO(), open_journal=lambda _, lines=lines: lines)  # type: ignore[misc]
            found.append(lines.lines)
        return found

    kept = journals()
    monkeypatch.setattr(simulate, "Arbiter", Forgetful)
    assert journals() == kept
