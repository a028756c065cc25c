"""A cluster of two GPU types under three policies, worked out by hand.

Two V100s on one machine and two K80s on another; x can use both types, at half the speed on K80s, y V100s only, z K80s only
and at half the speed. Each is one gang of 2 with 1,200 GPU-seconds of work; all come at 0; nothing costs a restart. By the
fluid share they would take 800, 1,000 and 1,600 s (tests/unit/core/test_fluid_types.py).
"""

import pytest

from tests.support.replays import job, simulated
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuSpeeds
from themis_arbiter.sim.clusterfile import Capacity
from themis_arbiter.sim.figures import app_figures, fair_finishes
from themis_arbiter.sim.stock import Stock
from themis_arbiter.sim.trace import TraceError, fair_app

CLUSTER = Topology(
    (
        Machine(name="fast", rack="r", gpus=2, gpu_type="v100"),
        Machine(name="slow", rack="r", gpus=2, gpu_type="k80"),
    )
)
DECLARED: dict[str, GpuSpeeds] = {
    "x": (("k80", 0.5), ("v100", 1.0)),
    "y": (("v100", 1.0),),
    "z": (("k80", 0.5),),
}

Stays = list[tuple[str, float, float]]  # on which machine, from and to when


def replayed(policy: str, order: str = "xyz") -> tuple[dict[str, float], dict[str, Stays], dict[str, float]]:
    """Finishes, stays and rho of each app; `order` is that of their ids, which decides where nothing else does."""
    jobs = [job(f"{k}{name}", "1", 0, 2, 600, gpu_speeds=DECLARED[name]) for k, name in enumerate(order)]
    done, _ = simulated(jobs, CLUSTER, policy=policy, restart_cost_ms=0)
    finishes: dict[str, float] = {}
    stays: dict[str, Stays] = {}
    for each in done.jobs:
        name = each.spec.app_id[1]
        assert each.finish_ms is not None
        finishes[name] = each.finish_ms / 1000
        stays[name] = []
        for run in each.runs:
            machine, start, end = run.gpus[0].split(":")[0], run.start_ms / 1000, run.end_ms / 1000
            if stays[name] and stays[name][-1][0] == machine and stays[name][-1][2] == start:
                start = stays[name].pop()[1]
            stays[name].append((machine, start, end))
    figures = app_figures(done.jobs, done.weights, 4, 1.0, CLUSTER.gpus_by_type)
    return finishes, stays, {f.app_id[1]: f.rho for f in figures}


def test_fifo_serves_in_order_and_passes_over_who_may_not_have_what_is_left() -> None:
    # x is first and takes what it is fastest on; y waits for it although K80s are free, and these go to z: at rate 1.
    finishes, stays, rho = replayed("fifo")
    assert finishes == {"x": 600, "y": 1_200, "z": 1_200}
    assert stays == {"x": [("fast", 0, 600)], "y": [("fast", 600, 1_200)], "z": [("slow", 0, 1_200)]}
    assert rho == {"x": pytest.approx(0.75), "y": pytest.approx(1.2), "z": pytest.approx(0.75)}


def test_fifo_moves_to_faster_gpus_when_they_come_free_and_the_lease_ends() -> None:
    # y first: x has the K80s and does 1 GPU-second a second. The V100s come free at 600; x's leases end at 900, decided at 840,
    # when 360 are left; they take 180 s. z takes over then, at rate 1.
    finishes, stays, _ = replayed("fifo", "yxz")
    assert finishes == {"y": 600, "x": 1_020, "z": 2_040}
    assert stays["x"] == [("slow", 0, 840), ("fast", 840, 1_020)]
    assert stays["z"] == [("slow", 840, 2_040)]


@pytest.mark.parametrize("policy", ["guard", "themis"])
def test_who_waits_for_a_type_becomes_urgent_by_it_and_is_served_by_recall(policy: str) -> None:
    # Nobody is urgent at 0: regrets are 660/800, 660/1000 and 1260/1600. y waits; its regret (t + 660) / 1000 is above 1.02
    # after 360, so the tick at 420 recalls the V100s by 480. x, with 240 left, comes before z by remaining work and goes on on
    # the K80s at rate 1 until 720; z has done 480 and does the rest from then on.
    finishes, stays, rho = replayed(policy)
    assert finishes == {"x": 720, "y": 1_080, "z": 1_440}
    assert stays == {
        "x": [("fast", 0, 480), ("slow", 480, 720)],
        "y": [("fast", 480, 1_080)],
        "z": [("slow", 0, 480), ("slow", 720, 1_440)],
    }
    assert rho == {"x": pytest.approx(0.9), "y": pytest.approx(1.08), "z": pytest.approx(0.9)}


WIDE = Topology(
    (
        *(Machine(name=f"v{k}", rack="r", gpus=4, gpu_type="v100") for k in range(2)),
        *(Machine(name=f"k{k}", rack="r", gpus=4, gpu_type="k80") for k in range(2)),
        Machine(name="n", rack="r", gpus=4),
    )
)
SLOW: GpuSpeeds = (("k80", 0.25), ("v100", 1.0))


@pytest.mark.parametrize("policy", ["guard", "themis"])
def test_a_gang_of_both_types_is_measured_by_what_it_can_do_and_lets_others_in(policy: str) -> None:
    # 16 GPUs at .25, the slowest's: 3,600 s at best. Another app of 50 s comes for 8 V100s: it waits for a lease's end or a
    # recall, as it would for any gang that is not starving.
    jobs = [job("wide", "1", 0, 16, 900, gpu_speeds=SLOW), job("short", "1", 30, 8, 50, gpu_speeds=(("v100", 1.0),))]
    done, _ = simulated(jobs, WIDE, policy=policy)
    figures = {f.app_id: f for f in app_figures(done.jobs, done.weights, 20, 600.0, WIDE.gpus_by_type)}
    assert figures["wide"].t_independent_s == pytest.approx(3_600, rel=0.01)
    assert figures["wide"].rho < 1.1
    assert figures["short"].rho < 1.1


def test_two_such_gangs_share_what_one_can_do() -> None:
    apps = [job(name, "1", 0, 16, 900, gpu_speeds=SLOW) for name in ("a", "b")]
    fair = [fair_app(j.app_id, (j,), types=WIDE.gpus_by_type) for j in apps]
    assert fair_finishes(fair, 20, WIDE.gpus_by_type) == {"a": pytest.approx(7_200), "b": pytest.approx(7_200)}


def test_no_app_is_due_less_time_than_its_longest_job_takes() -> None:
    jobs = (job("a", "1", 0, 16, 900, gpu_speeds=SLOW), job("a", "2", 0, 1, 50, gpu_speeds=SLOW))
    (end,) = fair_finishes([fair_app("a", jobs, types=WIDE.gpus_by_type)], 20, WIDE.gpus_by_type).values()
    assert end >= 3_600 * (1 - 1e-9)


def test_who_is_rejected_by_type_is_told_what_it_may_have() -> None:
    jobs = [
        job("a", "1", 0, 4, 10, gpu_speeds=(("a100", 1.0),)),
        job("b", "1", 0, 9, 10, gpu_speeds=(("v100", 1.0),)),
        job("c", "1", 0, 21, 10),
    ]
    with pytest.raises(TraceError) as told:
        simulated(jobs, WIDE)
    has = "(4 of no type, 8 k80, 8 v100)"
    assert str(told.value) == (
        "no job of the trace fits the cluster: "
        f"'a/1' declares a100=1 and needs 4 GPUs, the cluster has 0 that it may have {has}; "
        f"'b/1' declares v100=1 and needs 9 GPUs, the cluster has 8 that it may have {has}; "
        "'c/1' needs 21 GPUs, the cluster has 20; name another cluster"
    )


def test_who_is_rejected_by_memory_is_told_so() -> None:
    stock = Stock(WIDE, {m.name: Capacity(memory_gb=16) for m in WIDE.machines})
    assert stock.why_not(job("a", "1", 0, 8, 10, memory_gb=16)) == (
        "needs 8 GPUs, the memory and CPUs of the cluster's machines are enough for 5"
    )
    assert stock.why_not(job("a", "1", 0, 5, 10, memory_gb=16)) == ""
