import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from themis_arbiter.cli.main import run

TRACE = """app_id,job_id,arrival_s,n_gpus,duration_s,model,user
a,a0,0,4,900.25,vgg,ann
a,a1,0,4,600,vgg,ann
b,b0,10.5,8,400,,bob
b,b1,700,2,1200,vgg,bob
c,c0,20,1,30,,ann
c,big,20,99,30,,ann
"""
MODELS = "model,slot,machine,rack,cluster\nvgg,1,1.1,1.5,2\n"
CLUSTER = "racks: [{count: 2, machines: [{gpus: 4, gpus_per_slot: 2}]}]\n"
FILES = {"allocations.csv", "jobs.csv", "apps.csv", "rounds.jsonl", "summary.json", "report.html"}
MEASURED = ("wall_s", "auction_ms")
# What scripts read (contracts): more may come, nothing may go.
SUMMARY = {
    *("policy", "seed", "n_apps", "n_jobs", "rejected_jobs", "max_rho", "p95_rho", "median_rho", "frac_rho_le_1"),
    *("frac_rho_le_1_05", "max_rho_lower_bound", "jain", "avg_jct_s", "p99_jct_s", "makespan_s", "gpu_hours"),
    *("placement_score", "restarts", "idle_while_demand", "reserved_gpu_seconds", "auction_ms", "wall_s"),
}
COLUMNS = {
    "allocations.csv": {"app_id", "job_id", "gpus", "start_s", "end_s", "grant_id", "round"},
    "jobs.csv": {"app_id", "job_id", "arrival_s", "start_s", "finish_s", "gpu_seconds", "restarts"},
    "apps.csv": {
        *("app_id", "arrival_s", "finish_s", "t_shared_s", "t_independent_s", "n_avg", "rho", "rho_own", "rho_paper"),
        *("gpu_seconds", "restarts"),
    },
}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    for name, text in (("t.csv", TRACE), ("m.csv", MODELS), ("c.yaml", CLUSTER)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def arguments(inputs: Path, verb: str = "simulate", **more: str) -> list[str]:
    given = {"trace": str(inputs / "t.csv"), "cluster": str(inputs / "c.yaml"), "models": str(inputs / "m.csv")}
    given |= {"restart-cost": "40", "out": str(inputs / "out")} | more
    return [verb, *(part for key, value in given.items() for part in (f"--{key}", value))]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_simulation_writes_what_the_contracts_say(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments(inputs), "--json"]) == 0
    out = inputs / "out"
    assert {p.name for p in out.iterdir()} >= FILES
    printed = json.loads(capsys.readouterr().out)
    summary = json.loads((out / "summary.json").read_text())
    assert printed == summary
    assert summary["rejected_jobs"] == [["c", "big"]]
    assert (summary["n_apps"], summary["n_jobs"], summary["policy"], summary["seed"]) == (3, 5, "themis", 0)
    assert summary.keys() >= SUMMARY
    assert [rows(out / name)[0].keys() >= columns for name, columns in COLUMNS.items()] == [True] * len(COLUMNS)
    assert [r["app_id"] for r in rows(out / "apps.csv")] == ["a", "b", "c"]
    jobs = {r["job_id"]: r for r in rows(out / "jobs.csv")}
    assert float(jobs["a0"]["finish_s"]) >= 900.25
    runs = rows(out / "allocations.csv")
    assert {r["job_id"] for r in runs} == set(jobs)
    held = sum((float(r["end_s"]) - float(r["start_s"])) * len(r["gpus"].split(";")) for r in runs)
    assert summary["gpu_hours"] == pytest.approx(held / 3600, rel=1e-6)
    records = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert {"offered", "bidders", "bids", "payments", "leftovers", "work", "gap"} <= records[0].keys()
    assert [r["round"] for r in records] == list(range(1, len(records) + 1))


def test_a_key_that_the_policy_does_not_read_is_told_of(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments(inputs, policy="fifo"), "--set", "recall=false"]) == 0
    told = "themis: --set recall: policy fifo does not read it, so it changes nothing; --list-settings --policy NAME lists"
    assert told in capsys.readouterr().err
    assert run([*arguments(inputs, "compare", policy="fifo,srsf"), "--set", "recall=false"]) == 0
    assert "none of these policies reads it" in capsys.readouterr().err
    assert run([*arguments(inputs, "compare", policy="fifo,guard"), "--set", "recall=false"]) == 0
    assert "reads it" not in capsys.readouterr().err


@pytest.mark.slow
def test_equal_inputs_give_equal_bytes_whatever_the_hash_seed(inputs: Path) -> None:
    texts = []
    for seed in ("1", "2"):
        out = inputs / seed
        command = [sys.executable, "-m", "themis_arbiter.cli", *arguments(inputs, out=str(out))]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100)
        summary = json.loads((out / "summary.json").read_text())
        files = {p.name: p.read_bytes() for p in out.iterdir() if p.name.endswith((".csv", ".jsonl"))}
        texts.append((files, {k: v for k, v in summary.items() if k not in MEASURED}))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_compare_runs_policies_side_by_side_and_prints_one_table(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments(inputs, "compare", policy="srsf,paper")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["POLICY", "srsf", "paper"]
    out = inputs / "out"
    assert (out / "report.html").is_file()
    single = inputs / "single"
    assert run(arguments(inputs, policy="srsf", out=str(single))) == 0
    assert (single / "allocations.csv").read_bytes() == (out / "srsf" / "allocations.csv").read_bytes()


@pytest.mark.slow
def test_compare_over_seeds_tells_means_and_intervals(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, text in ((3, TRACE), (5, TRACE.replace("700,2,1200", "700,2,1500"))):
        (inputs / f"t{seed}.csv").write_text(text, encoding="utf-8")
    more = {"policy": "srsf,fifo", "trace": str(inputs / "t{seed}.csv"), "seeds": "3,5", "jobs": "2"}
    assert run([*arguments(inputs, "compare", **more), "--no-report"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "POLICY"
    assert [line.split()[0] for line in lines] == ["srsf", "fifo"]
    assert all("±" in line for line in lines)
    out = inputs / "out"
    assert not (out / "report.html").exists()
    values = [json.loads((out / "srsf" / place / "summary.json").read_text())["avg_jct_s"] for place in (".", "seed-5")]
    assert values[0] < values[1]
    (row,) = (r for r in rows(out / "intervals.csv") if (r["policy"], r["figure"]) == ("srsf", "avg_jct_s"))
    assert row["seeds"] == "2"
    assert float(row["mean"]) == pytest.approx(sum(values) / 2)
    half = 12.706 * abs(values[1] - values[0]) / 2  # Student's t for one degree of freedom
    assert float(row["ci95_high"]) - float(row["mean"]) == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"policy": "best"}, "no policy is called 'best'"),
        ({"policy": "srsf,fifo"}, "`themis compare` takes several"),
        ({"trace": "nowhere.csv"}, "nowhere.csv: cannot be read"),
        ({"set": "speed=3"}, "there is no key 'speed'"),
        ({"set": "notice=soon"}, "notice takes seconds"),
        ({"set": "notice"}, "is not key=value"),
        ({"set": "leftover=best"}, "leftover takes one of random, service"),
        ({"set": "first_queue_max=-1"}, "first_queue_max takes GPU-seconds, at least 0"),
        ({"set": "notice=290"}, "the settings contradict each other"),
        ({"misreport": "a:luck:2"}, "is not APP:work"),
        ({"misreport": "nobody:work:2"}, "no app is called 'nobody'"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    inputs: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], what: str
) -> None:
    assert run(arguments(inputs, **change)) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert what in told[-1]
    assert not (inputs / "out" / "summary.json").exists()


def test_a_model_that_the_models_file_lacks_ends_the_run(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "m.csv").write_text("model,slot,machine,rack,cluster\nresnet,1,1,1,1\n", encoding="utf-8")
    assert run(arguments(inputs)) == 2
    assert "models not in" in capsys.readouterr().err
    assert not (inputs / "out").exists()


def test_bad_rows_are_counted_and_strict_refuses_them(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (inputs / "t.csv").open("a", encoding="utf-8") as file:
        file.write("d,d0,-1,1,5,,\nd,d0,0,1,0,,\n")
    assert run(arguments(inputs)) == 0
    told = capsys.readouterr().err
    assert "line 8: column arrival_s" in told
    assert "8 rows, 2 bad and left out, 6 used" in told
    assert run([*arguments(inputs), "--strict"]) == 2


def test_shares_are_resolved_and_written(inputs: Path) -> None:
    (inputs / "s.csv").write_text("user,weight\nann,3\n", encoding="utf-8")
    assert run(arguments(inputs, shares=str(inputs / "s.csv"))) == 0
    assert {r["app_id"]: float(r["weight"]) for r in rows(inputs / "out" / "shares.csv")} == {"a": 1.5, "b": 1.0, "c": 1.5}


def test_what_set_takes_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--list-settings"]) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert {"notice", "debounce", "payments", "urgent_above"} <= set(listed)
    assert "60 s" in listed["notice"]
    assert "first_queue_max" not in listed


@pytest.mark.parametrize(
    ("policy", "own", "shown"),
    [("tiresias", {"first_queue_max"}, "3600 GPU-s"), ("paper", {"f", "filter", "tie", "leftover", "rounding", "t_id"}, "0.8")],
)
def test_what_set_takes_is_listed_by_policy(capsys: pytest.CaptureFixture[str], policy: str, own: set[str], shown: str) -> None:
    listed = []
    for name in ("fifo", policy):
        assert run(["simulate", "--list-settings", "--policy", name]) == 0
        listed.append({line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]})
    assert own <= listed[1].keys() - listed[0].keys()
    assert any(shown in listed[1][key] for key in own)


def test_every_key_that_is_listed_is_taken_with_its_default(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--list-settings", "--policy", "paper"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    sets = [f"--set={key}={default}" for key, default in (line.split()[:2] for line in lines)]
    given = arguments(inputs, policy="paper")
    assert run([*given, "--no-report"]) == 0
    plain = (inputs / "out" / "allocations.csv").read_bytes()
    assert run([*given, *sets, "--no-report"]) == 0
    assert (inputs / "out" / "allocations.csv").read_bytes() == plain
    assert run([*given, "--set", "leftover=service", "--set", "t_id=fluid", "--no-report"]) == 0
    assert (inputs / "out" / "allocations.csv").read_bytes() != plain
