"""What results say of themselves: how they were made, what was left out, and where seeds change nothing."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from themis_arbiter import __version__
from themis_arbiter.cli.main import run
from themis_arbiter.sim.sweep import is_seedless, over_seeds

TRACE = "app_id,job_id,arrival_s,n_gpus,duration_s\na,a0,0,1,100\nb,b0,5,2,100\nb,big,6,9,100\n"
CLUSTER = "racks: [{machines: [{gpus: 2}]}]\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    Path("c.yaml").write_text(CLUSTER)
    Path("s.csv").write_text("app_id,weight\na,2\n")
    return tmp_path


def command(verb: str, *more: str) -> list[str]:
    return [verb, "--trace", "t.csv", "--cluster", "c.yaml", "--out", "out", "--no-report", *more]


def made(place: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(place, "summary.json").read_text())["made_with"]
    return found


def test_a_summary_says_how_it_was_made() -> None:
    more = ["--policy", "paper", "--shares", "s.csv", "--misreport", "a:work:2", "--estimate-error", "0.5", "--lease", "120"]
    sets = ["--set", "min_runtime=30", "--set", "leftover=service", "--set", "payments=no"]
    assert run([*command("simulate", *more, *sets), "--restart-cost", "40", "--rho-floor", "60"]) == 0
    assert made() == {
        "version": __version__,
        "trace": {"path": "t.csv", "sha256": hashlib.sha256(TRACE.encode()).hexdigest()},
        "cluster": {"path": "c.yaml", "sha256": hashlib.sha256(CLUSTER.encode()).hexdigest()},
        "models": None,
        "shares": {"path": "s.csv", "sha256": hashlib.sha256(b"app_id,weight\na,2\n").hexdigest()},
        "lease_s": 120.0,
        "restart_cost_s": 40.0,
        "rho_floor_s": 60.0,
        "fairness_knob": 0.8,
        "set": {"leftover": "service", "min_runtime": 30.0, "payments": False},
        "misreports": ["a:work:2"],
        "estimate_error": 0.5,
    }


def test_jobs_that_do_not_fit_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command("simulate")) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "1 jobs want more than the cluster can give them and are left out" in line
    assert "'b/big' needs 9 GPUs, the cluster has 2" in line


@pytest.mark.parametrize(("seconds", "is_told"), [("6200000", True), ("5000000", False)])
def test_a_trace_that_takes_long_is_told(seconds: str, *, is_told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text(f"app_id,job_id,arrival_s,n_gpus,duration_s\na,a0,0,1,10\na,a1,{seconds},1,10\n")
    assert run(command("simulate", "--policy", "fifo", "--lease", "61")) == 0
    assert ("leases of 61 s or more, which takes long" in capsys.readouterr().err) is is_told


@pytest.mark.slow
def test_a_comparison_shows_leases_that_differ_and_seeds_that_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command("compare", "--policy", "fifo,paper", "--seeds", "0-1")) == 0
    told = capsys.readouterr()
    head, *lines = told.out.splitlines()
    assert head.split()[:3] == ["POLICY", "LEASE", "S"]
    assert [line.split()[:2] for line in lines] == [["fifo", "300"], ["paper", "600"]]
    assert "themis: fifo: the seed changes nothing" in told.err
    found = json.loads(Path("out/intervals.json").read_text())["fifo"]
    assert (found["max_rho"]["n"], found["max_rho"]["low"]) == (1, None)
    assert found["wall_s"]["n"] == 2


def test_runs_are_one_where_only_measured_figures_differ() -> None:
    same = [{"max_rho": 1.0, "wall_s": 2.0}, {"max_rho": 1.0, "wall_s": 3.0}]
    assert is_seedless(same)
    assert {name: found.n for name, found in over_seeds(same).items()} == {"max_rho": 1, "wall_s": 2}
    other = [*same, {"max_rho": 2.0, "wall_s": 3.0}]
    assert not is_seedless(other)
    assert over_seeds(other)["max_rho"].n == 3
    assert not is_seedless(same[:1])


def test_a_trace_of_one_job_has_no_load(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("app_id,job_id,arrival_s,n_gpus,duration_s\na,a0,0,1,10\n")
    assert run(["trace", "stats", "t.csv", "--cluster", "c.yaml"]) == 0
    told = capsys.readouterr().out
    assert "None" not in told
    assert ["cluster:", "load", "-"] in [line.split() for line in told.splitlines()]
