"""Generated workloads: the paper's facts, the asked load, and the same bytes for the same seed."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from themis_arbiter.cli.main import run
from themis_arbiter.sim.convert import TraceRow, Unconvertible, trace_text
from themis_arbiter.sim.generate import MODELS, WorkloadSpec, generate, load_of
from themis_arbiter.sim.generate_curves import read_curves, stop_shares

HOUR_S = 3_600
REPOSITORY = Path(__file__).resolve().parents[3]


def by_app(jobs: tuple[TraceRow, ...]) -> dict[str, list[TraceRow]]:
    apps: dict[str, list[TraceRow]] = {}
    for job in jobs:
        apps.setdefault(job.app_id, []).append(job)
    return apps


def gang_shares(jobs: tuple[TraceRow, ...]) -> dict[int, float]:
    return {gang: n / len(jobs) for gang, n in Counter(j.n_gpus for j in jobs).items()}


@pytest.mark.parametrize("seed", range(4))
def test_workload_1_has_the_papers_figures(seed: int) -> None:
    jobs = generate(WorkloadSpec(workload="w1", seed=seed))
    apps = by_app(jobs)
    sizes = [len(a) for a in apps.values()]
    hours = [j.duration_s / HOUR_S for j in jobs]
    service_h = [sum(j.work_gpu_s for j in a) / HOUR_S for a in apps.values()]
    assert len(apps) == 85
    assert sizes.count(1) / 85 == pytest.approx(0.1, abs=0.02)
    assert median(sizes) == pytest.approx(77, abs=3)
    assert 90 <= max(sizes) <= 100
    assert median(hours) == pytest.approx(3.75, rel=0.1)
    assert quantiles(hours, n=10)[0] == pytest.approx(1.3, rel=0.25)
    assert quantiles(hours, n=10)[8] == pytest.approx(7.6, rel=0.1)
    assert gang_shares(jobs) == pytest.approx({1: 0.7, 2: 0.3}, abs=0.01)
    assert median(service_h) == pytest.approx(11 * 24, rel=0.12)
    assert max(service_h) == pytest.approx(733, rel=0.12)


@pytest.mark.parametrize("seed", range(4))
def test_workload_2_has_the_papers_gangs_durations_and_service(seed: int) -> None:
    jobs = generate(WorkloadSpec(workload="w2", seed=seed))
    hours = [j.duration_s / HOUR_S for j in jobs]
    service_h = [sum(j.work_gpu_s for j in a) / HOUR_S for a in by_app(jobs).values()]
    assert gang_shares(jobs) == pytest.approx({1: 0.23, 2: 0.16, 4: 0.61}, abs=0.02)
    assert median(hours) == pytest.approx(3.75, rel=0.05)
    assert quantiles(hours, n=10)[0] == pytest.approx(1.3, rel=0.1)
    assert quantiles(hours, n=10)[8] == pytest.approx(7.6, rel=0.1)
    assert median(service_h) == pytest.approx(11 * 24, rel=0.12)


@pytest.mark.parametrize("workload", ["w1", "w2"])
def test_arrivals_without_a_load_are_bursty_over_two_months(workload: str) -> None:
    starts = sorted(a[0].arrival_s for a in by_app(generate(WorkloadSpec(workload=workload, seed=5))).values())
    gaps = [b - a for a, b in pairwise(starts)]
    assert starts[0] == 0
    assert sum(gaps) / len(gaps) == pytest.approx(18 * HOUR_S, rel=1e-3)
    assert median(gaps) == pytest.approx(180, rel=0.1)


@pytest.mark.parametrize("workload", ["w1", "w2"])
@pytest.mark.parametrize("load", [0.3, 0.8, 3.2])
@pytest.mark.parametrize("styles", [{"parallel": 1.0}, {"halving": 1.0, "curves": 1.0, "single": 1.0}])
def test_load_is_met(workload: str, load: float, styles: dict[str, float]) -> None:
    jobs = generate(WorkloadSpec(workload=workload, load=load, gpus=128, seed=7, styles=styles))
    assert load_of(jobs, 128) == pytest.approx(load, rel=0.02)
    starts = [a[0].arrival_s for a in by_app(jobs).values()]
    assert starts == sorted(starts)


def test_bursts_that_would_fill_the_span_are_squeezed() -> None:
    jobs = generate(WorkloadSpec(load=50.0, burst=0.95, burst_gap_s=10_000.0, seed=1))
    assert load_of(jobs, 256) == pytest.approx(50.0, rel=0.02)


def test_models_and_styles_get_their_shares_of_apps() -> None:
    styles = {"single": 0.25, "halving": 0.25, "curves": 0.5}
    apps = by_app(generate(WorkloadSpec(apps=200, models={"vgg16": 3, "resnet50": 1}, styles=styles)))
    assert Counter(a[0].model for a in apps.values()) == {"vgg16": 150, "resnet50": 50}
    assert sum(len(a) == 1 for a in apps.values()) >= 50
    assert {m for a in by_app(generate(WorkloadSpec(apps=400))).values() for m in {j.model for j in a}} == set(MODELS)


def test_halving_keeps_one_in_eta_and_rungs_grow_by_eta() -> None:
    apps = by_app(generate(WorkloadSpec(apps=40, styles={"halving": 1.0}, halving_eta=3, seed=2)))
    (app, *_) = sorted(apps.values(), key=len, reverse=True)
    shares = Counter(round((j.stop_after_s or j.duration_s) / j.duration_s, 3) for j in app)
    n = len(app)
    assert n >= 81
    assert shares == {
        0.012: n - n // 3,
        0.037: n // 3 - n // 9,
        0.111: n // 9 - n // 27,
        0.333: n // 27 - n // 81,
        1.0: n // 81,
    }
    assert len({j.duration_s for j in app}) == 1


@pytest.mark.parametrize("jobs", [1, 2, 3, 7])
def test_halving_of_few_jobs_leaves_a_survivor(jobs: int) -> None:
    apps = by_app(generate(WorkloadSpec(apps=300, workload="w2", styles={"halving": 1.0})))
    small = [a for a in apps.values() if len(a) == jobs]
    assert small
    assert all(sum(j.stop_after_s is None for j in a) == 1 for a in small)


CURVES = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"


def curve_rows(run_name: str, *epochs: str) -> str:
    return "".join(f"d,n,32,sgd,0.1,{run_name},{k / 10},{e}\n" for k, e in enumerate(epochs, start=1))


def test_real_curves_stop_the_slow_ones(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(
        CURVES
        + curve_rows("fast", "1", "5", "20")
        + curve_rows("slow", "15", "nan", "nan")
        + curve_rows("mid", "1", "10", "nan")
    )
    (group,) = read_curves(path).values()
    assert [len(c) for c in group] == [20, 20, 20]
    by_run = dict(zip(("fast", "mid", "slow"), group, strict=True))
    assert (by_run["fast"][4], by_run["mid"][4], by_run["slow"][4], by_run["slow"][14]) == (0.2, 0.1, 0.0, 0.1)
    assert stop_shares(group) == [1.0, 1.0, 0.1]  # at epoch 2 the slow one has nothing, the median has 0.1
    jobs = generate(WorkloadSpec(apps=30, styles={"curves": 1.0}, curves=read_curves(path)))
    assert 0 < sum(j.stop_after_s is not None for j in jobs) < len(jobs)


@pytest.mark.parametrize("row", ["d,n,32,sgd,0.1,1,0.1,0", "d,n,32,sgd,0.1,1,x,3", "d,n"])
def test_curves_that_cannot_be_used_are_refused(tmp_path: Path, row: str) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(f"{CURVES}{row}\n")
    with pytest.raises(Unconvertible, match="line 2: column"):
        read_curves(path)
    path.write_text(CURVES)
    with pytest.raises(Unconvertible, match="no curve"):
        read_curves(path)


@settings(max_examples=40, deadline=None)
@given(
    apps=st.integers(2, 30),
    load=st.floats(0.01, 100),
    burst=st.floats(0, 0.99),
    seed=st.integers(),
    style=st.sampled_from(["single", "parallel", "halving", "curves"]),
    workload=st.sampled_from(["w1", "w2"]),
)
def test_any_workload_is_a_trace(apps: int, load: float, burst: float, seed: int, style: str, workload: str) -> None:
    spec = WorkloadSpec(apps=apps, load=load, burst=burst, seed=seed, styles={style: 1.0}, workload=workload)
    jobs = generate(spec)
    assert len({(j.app_id, j.job_id) for j in jobs}) == len(jobs)
    assert len({j.app_id for j in jobs}) == apps
    assert all(j.arrival_s >= 0 and j.duration_s > 0 and 0 < (j.stop_after_s or 1) <= j.duration_s for j in jobs)
    assert load_of(jobs, spec.gpus) == pytest.approx(load, rel=0.02)


def test_bytes_depend_on_seed_and_options_alone(tmp_path: Path) -> None:
    texts = set()
    for hash_seed in ("0", "1", "4711"):
        out = tmp_path / f"{hash_seed}.csv"
        command = [sys.executable, "-m", "themis_arbiter.cli", "trace", "generate", str(out), "--seed", "3", "--load", "1.2"]
        command += ["--styles", "parallel=1,halving=1,curves=1"]
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, cwd=REPOSITORY
        )
        texts.add(out.read_bytes())
    assert len(texts) == 1
    assert trace_text(generate(WorkloadSpec(seed=3))) != trace_text(generate(WorkloadSpec(seed=4)))


def test_other_gangs_do_not_move_the_sizes_of_apps() -> None:
    one, four = (by_app(generate(WorkloadSpec(gangs={g: 1.0}, seed=9))) for g in (1, 4))
    assert {name: len(a) for name, a in one.items()} == {name: len(a) for name, a in four.items()}


@pytest.mark.parametrize(
    "options",
    [
        ["--apps", "1"],
        ["--load", "0"],
        ["--load", "nan"],
        ["--burst", "1"],
        ["--burst-gap", "0"],
        ["--styles", "magic=1"],
        ["--styles", "parallel=0"],
        ["--gangs", "many=1"],
        ["--gangs", "1000=1"],
        ["--models", "a=-1"],
        ["--eta", "1"],
        ["--curves", "/nonexistent.csv"],
        ["--workload", "w3"],
    ],
)
def test_command_refuses_what_cannot_be(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.csv"
    assert run(["trace", "generate", str(out), *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_command_tells_what_it_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "generate", "-", "--apps", "4", "--gangs", "2", "--models", "vgg16", "--load", "2"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0] == "app_id,job_id,arrival_s,n_gpus,duration_s,model"
    assert "load" in told.err
