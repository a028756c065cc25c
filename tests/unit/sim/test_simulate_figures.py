import pytest

from tests.support.replays import cluster, job, simulated
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.figures import app_figures, fair_finishes, nearest_rank, summary
from themis_arbiter.sim.idle import idle_gpu_seconds
from themis_arbiter.sim.lower_bound import max_rho_lower_bound
from themis_arbiter.sim.sim_jobs import Declaration, Physics, Run, SimulatedJob
from themis_arbiter.sim.trace import FairApp, TraceJob, fair_app


def app(name: str, arrival: float, work: float, longest: float, weight: float = 1.0) -> FairApp:
    return FairApp(app_id=name, arrival_s=arrival, work_gpu_s=work, longest_s=longest, max_demand=99, weight=weight)


def ran(spec: TraceJob, index: int, *runs: tuple[float, float, int]) -> SimulatedJob:
    one = SimulatedJob(
        spec=spec, index=index, job_id=f"{index}", arrival_ms=0, work=1.0, told=Declaration(work=1.0, model="", max_gpus=1)
    )
    one.runs = [Run(round(s * 1000), e * 1000, tuple(f"m:{k}" for k in range(n)), "G", 1) for s, e, n in runs]
    one.finish_ms = one.runs[-1].end_ms
    return one


def test_the_ideal_share_is_max_min_fair_by_weight_and_by_what_an_app_can_use() -> None:
    ends = fair_finishes([app("narrow", 0, 100, 100), app("wide", 0, 300, 10), app("late", 40, 80, 1)], 4)
    # narrow has 1 GPU of 4; wide the other 3 until 40 s, then 1.5 like late: 180 are left for it, 80 for late.
    assert ends["narrow"] == pytest.approx(100)
    assert ends["late"] == pytest.approx(40 + 80 / 1.5)
    assert ends["wide"] == pytest.approx(100 + (180 - 53.3333333 * 1.5 - 6.6666667 * 3) / 4, abs=1e-3)


def test_weights_double_a_share() -> None:
    ends = fair_finishes([app("a", 0, 120, 1, weight=2.0), app("b", 0, 120, 1)], 3)
    assert [ends["a"], ends["b"]] == pytest.approx([60, 80])


def test_n_avg_is_the_time_average_of_the_apps_present() -> None:
    jobs = [ran(job("a", "1", 0, 1, 100), 0, (0, 100, 1)), ran(job("b", "1", 50, 1, 100), 1, (50, 150, 1))]
    first, second = app_figures(jobs, {"a": 1.0, "b": 1.0}, 2, 10.0)
    assert (first.n_avg, second.n_avg) == (1.5, 1.5)
    assert first.rho == pytest.approx(1.0)
    assert first.rho_own == pytest.approx(100 / max(100, 100 * 1.5 / 2))
    assert first.rho_paper == pytest.approx(100 / (1.5 * 100 / 1))


def test_a_short_apps_rho_is_against_the_floor() -> None:
    (only,) = app_figures([ran(job("a", "1", 0, 1, 10), 0, (0, 10, 1))], {"a": 1.0}, 1, 600.0)
    assert [only.rho, only.t_independent_s, only.n_avg] == pytest.approx([10 / 600, 10, 1.0])


def test_percentiles_are_by_nearest_rank() -> None:
    values = [float(k) for k in range(1, 21)]
    assert [nearest_rank(values, q) for q in (0.5, 0.95, 0.951, 1.0)] == [10, 19, 20, 20]
    assert nearest_rank([], 0.5) == 0.0


def test_idle_counts_what_waiting_gangs_of_the_right_size_would_use() -> None:
    holds = ran(job("a", "1", 0, 6, 100), 0, (0, 100, 6))
    waits = ran(job("b", "1", 10, 2, 10), 1, (30, 40, 2))
    too_big = ran(job("c", "1", 0, 4, 10), 2, (100, 110, 4))
    assert idle_gpu_seconds([holds, waits, too_big], 8) == pytest.approx(20 * 2)


def test_idle_counts_a_pause_too() -> None:
    paused = ran(job("a", "1", 0, 2, 100), 0, (0, 50, 2), (70, 120, 2))
    assert idle_gpu_seconds([paused], 3) == pytest.approx(20 * 2)


def test_renewals_and_moves_are_no_pause() -> None:
    moved = ran(job("a", "1", 0, 2, 100), 0, (0, 50, 2), (50, 120, 3))
    assert idle_gpu_seconds([moved], 8) == 0.0


def test_the_bound_is_the_critical_path_where_an_app_is_no_faster_alone() -> None:
    assert max_rho_lower_bound([app("a", 0, 100, 50)], {"a": 50.0}, 8) == 1.0


def test_the_bound_is_the_flow_where_all_gpus_are_needed() -> None:
    both = [app("a", 0, 100, 1), app("b", 0, 100, 1)]
    # Both end at 100 s on their share of 2 GPUs; nobody can have both done before.
    assert max_rho_lower_bound(both, {"a": 100.0, "b": 100.0}, 2) == pytest.approx(1.0, abs=0.01)
    # With twice the time allowed, half of it is enough.
    assert max_rho_lower_bound(both, {"a": 200.0, "b": 200.0}, 2) == pytest.approx(0.5, abs=0.01)
    # One of them has little time: it goes first, the other then has the rest.
    assert max_rho_lower_bound(both, {"a": 50.0, "b": 100.0}, 2) == pytest.approx(1.0, abs=0.01)


def test_no_replay_beats_the_bound() -> None:
    specs = [job(a, str(k), 3 * k, 2, 50 + 10 * k) for k in range(6) for a in "ab"]
    done, _ = simulated(specs, cluster(1, 8))
    weights = {"a": 1.0, "b": 1.0}
    apps = app_figures(done.jobs, weights, 8, 1.0)
    physics = Physics(cluster(1, 8), SlowdownModel(), 0)
    found = summary(apps, done.jobs, weights, physics, 1.0)
    assert found["max_rho_lower_bound"] <= found["max_rho"] + 0.005
    fair = {a.app_id: a.t_independent_s for a in apps}
    shapes = [fair_app(a, tuple(s for s in specs if s.app_id == a)) for a in "ab"]
    assert found["max_rho_lower_bound"] == max_rho_lower_bound(shapes, fair, 8)
