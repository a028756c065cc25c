"""What `themis trace stats` says of small traces, worked out by hand."""

import json
from pathlib import Path

import pytest

from themis_arbiter.cli.main import run
from themis_arbiter.sim.clusterfile import read_cluster
from themis_arbiter.sim.trace import read_trace
from themis_arbiter.sim.tracestats import quantiles, trace_stats

TRACE = """app_id,job_id,arrival_s,n_gpus,duration_s,max_gpus,model,stop_after_s,user
a,1,0,2,3600,,vgg16,,u1
a,2,0,2,7200,4,vgg16,3600,u1
b,1,1800,1,3600,,,,u2
c,1,7200,4,1800,,vgg16,,
c,2,7200,4,0,,vgg16,,
"""
CLUSTER = '{"racks": [{"count": 2, "machines": [{"gpus": 2}]}]}'


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    trace, cluster = tmp_path / "trace.csv", tmp_path / "cluster.json"
    trace.write_text(TRACE)
    cluster.write_text(CLUSTER)
    return trace, cluster


def test_figures_by_hand(files: tuple[Path, Path]) -> None:
    found = trace_stats(read_trace(files[0]), read_cluster(files[1]))
    assert (found["rows"], found["bad_rows"], found["apps"], found["jobs"]) == (5, 1, 3, 4)
    assert found["work_gpu_h"] == 2 + 2 + 1 + 2  # the stopped job counts up to its stop
    assert found["span_h"] == 2
    assert found["jobs_per_app"] == {"p10": 1, "median": 1, "p90": 2, "max": 2}
    assert found["work_gpu_h_per_app"] == {"p10": 1, "median": 2, "p90": 4, "max": 4}
    assert found["arrival_gap_s"] == {"p10": 1800, "median": 1800, "p90": 5400, "max": 5400, "mean": 3600}
    assert found["jobs_by_gang"] == {"1": 1, "2": 2, "4": 1}
    assert found["jobs_by_model"] == {"vgg16": 3, "(none)": 1}
    assert (found["largest_gang"], found["elastic_jobs"], found["users"], found["queues"]) == (4, 1, 2, 0)
    assert found["cluster"] == {
        "gpus": 4,
        "machines": 2,
        "racks": 2,
        "load": 7 / (4 * 2),
        "work_h_of_whole_cluster": 7 / 4,
        "jobs_too_large": 0,
    }


def test_load_and_jobs_too_large_go_by_types_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, cluster = tmp_path / "t.csv", tmp_path / "c.yaml"
    cluster.write_text(
        "racks: [{machines: [{gpus: 8, gpu_type: V100, memory_gb: 64}, {gpus: 8, gpu_type: k80, memory_gb: 64},"
        " {gpus: 4, memory_gb: 64}]}]"
    )
    trace.write_text(
        "app_id,job_id,arrival_s,n_gpus,duration_s,gpu_speeds,memory_gb\n"
        "a,1,0,16,900,v100=1;k80=0.25,\n"  # 3,600 s on 16 GPUs, or all the time between arrivals
        "b,1,0,8,1800,v100=2,\n"  # 900 s on 8 of these
        "c,1,3600,9,10,v100=1,\n"
        "d,1,3600,1,10,a100=1,\n"
        "e,1,3600,4,10,,32\n"  # two on each machine
        "f,1,3600,7,10,,32\n"
    )
    assert run(["trace", "stats", str(trace), "--cluster", str(cluster), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["cluster"]
    assert found["jobs_too_large"] == 3
    assert found["load"] == pytest.approx((16 * 3600 + 8 * 900 + 9 * 10) / (16 * 3600))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], {}),
        ([5.0], {"p10": 5, "median": 5, "p90": 5, "max": 5}),
        ([4.0, 1.0, 3.0, 2.0], {"p10": 1, "median": 2, "p90": 4, "max": 4}),
    ],
)
def test_quantiles_by_nearest_rank(values: list[float], expected: dict[str, float]) -> None:
    assert quantiles(values) == expected


def test_many_gangs_and_models_are_cut_to_the_most_frequent(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"a{k},1,0,{k},10,m{k}" for k in range(1, 41)] + ["b,1,0,40,10,m40"]
    path.write_text("app_id,job_id,arrival_s,n_gpus,duration_s,model\n" + "\n".join(rows) + "\n")
    found = trace_stats(read_trace(path))
    assert (len(found["jobs_by_gang"]), found["jobs_by_gang"]["40"], found["jobs_by_model"]["(others)"]) == (21, 2, 20)
    assert sum(found["jobs_by_gang"].values()) == 41
    assert found["cluster"] is None


def test_app_arriving_alone_has_no_load(tmp_path: Path, files: tuple[Path, Path]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("app_id,job_id,arrival_s,n_gpus,duration_s\na,1,5,8,10\n")
    found = trace_stats(read_trace(path), read_cluster(files[1]))
    assert found["arrival_gap_s"] == {}
    assert (found["cluster"]["load"], found["cluster"]["jobs_too_large"]) == (None, 1)


def test_command_prints_a_table_or_json(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "stats", str(files[0]), "--cluster", str(files[1]), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["cluster"]["load"] == 0.875
    assert "line 6: column duration_s" in told.err
    assert run(["trace", "stats", str(files[0])]) == 0
    assert "work_gpu_h " in capsys.readouterr().out


def test_command_refuses_a_trace_without_its_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text("app_id,job_id,delay,n_gpus,duration_s\na,1,5,8,10\n")
    assert run(["trace", "stats", str(path)]) == 2
    assert "arrival_s" in capsys.readouterr().err


def test_command_is_strict_on_request(files: tuple[Path, Path]) -> None:
    assert run(["trace", "stats", str(files[0]), "--strict"]) == 2
