"""Bad and odd traces from the command line to the results (field faults G): told, counted, left out; the rest is right."""

import csv
import json
import math
from pathlib import Path
from random import Random
from typing import Final

import pytest

from themis_arbiter.cli.main import run
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.sim.clusterfile import read_cluster
from themis_arbiter.sim.shares import read_shares
from themis_arbiter.sim.trace import TraceError, read_trace

HEADER: Final = "app_id,job_id,arrival_s,n_gpus,duration_s"
CLUSTER: Final = "racks: [{count: 2, machines: [{count: 1, gpus: 4, gpus_per_slot: 2}]}]\n"
GOOD: Final = (
    "a,a0,0,4,900.25",
    "a,a1,0,4,600",
    "b,b0,10.5,8,400",
    "b,b1,10.5,2,1200",
    "c,c0,10.5,1,30",
    "c,c1,700,1,0.000001",
    "d,d0,700,3,0.5",
    "e,e0,1e4,8,1e3",
)
# An end before the start is a negative duration here, an end of 0 a duration far below it.
BAD: Final = (
    "x,x0,-1,1,5",
    "x,x1,0,1,-100",
    "x,x2,0,1,-1.6e9",
    "x,x3,0,1,0",
    "x,x4,,1,5",
    "x,x5,0,0,5",
    "a,a0,3,1,5",
    "x,x6,0,1,1e300",
)


def simulate(folder: Path, lines: list[str], *arguments: str, out: str = "out") -> int:
    (folder / "t.csv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    (folder / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    files = [f"--trace={folder / 't.csv'}", f"--cluster={folder / 'c.yaml'}", f"--out={folder / out}"]
    return run(["simulate", *files, "--restart-cost=40", "--no-report", *arguments])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_bad_rows_are_told_and_the_rest_has_finite_figures(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = [*GOOD, *BAD]
    Random(policy).shuffle(mixed)
    assert simulate(tmp_path, mixed, "--policy", policy) == 0
    told = capsys.readouterr().err.splitlines()
    # Of the two rows of job a0 of app a, the later one is bad, whichever that is.
    assert len([line for line in told if ": column " in line]) == len(BAD)
    assert told[len(BAD)].endswith(f"{len(mixed)} rows, {len(BAD)} bad and left out, {len(GOOD)} used")
    out = tmp_path / "out"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["n_jobs"], summary["n_apps"], summary["rejected_jobs"]) == (len(GOOD), 5, [])
    assert all(math.isfinite(v) for v in summary.values() if isinstance(v, int | float))
    for job in rows(out / "jobs.csv"):
        assert 0 <= float(job["arrival_s"]) <= float(job["start_s"]) <= float(job["finish_s"])
    for app in rows(out / "apps.csv"):
        assert all(math.isfinite(float(app[name])) and float(app[name]) >= 0 for name in app if name != "app_id")
        assert float(app["rho"]) > 0


def test_strict_stops_at_the_first_bad_row_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(tmp_path, [*GOOD[:3], BAD[1], *GOOD[3:], BAD[0]], "--strict") == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert "line 5: column duration_s: '-100'" in told[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("column", HEADER.split(","))
def test_a_column_that_is_not_there_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    text = "\n".join([HEADER.replace(column, "delay_s"), *GOOD]) + "\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    files = [f"--trace={tmp_path / 't.csv'}", f"--cluster={tmp_path / 'c.yaml'}", f"--out={tmp_path / 'out'}"]
    assert run(["simulate", *files]) == 2
    assert f"line 1: no column {column}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("policy", ["themis", "fifo", "drf", "paper", "quincy", "gandiva"])
def test_a_shuffled_trace_gives_the_bytes_of_the_sorted_one(policy: str, tmp_path: Path) -> None:
    """Jobs of one instant are served in order of app and job, wherever their rows stand."""
    written = []
    for seed in (None, 1, 2):
        lines = sorted(GOOD) if seed is None else list(GOOD)
        if seed is not None:
            Random(seed).shuffle(lines)
        assert simulate(tmp_path, lines, "--policy", policy, "--journal", out=f"out{seed}") == 0
        names = ("allocations.csv", "jobs.csv", "apps.csv", "rounds.jsonl", "arbiter.journal")
        written.append([(tmp_path / f"out{seed}" / name).read_bytes() for name in names])
    assert written[0] == written[1] == written[2]


def test_nobody_runs_before_its_arrival_and_counts_never_fall_below_zero(tmp_path: Path) -> None:
    """Out-of-order rows and a job that is stopped as soon as it starts."""
    lines = [f"{line}," for line in reversed(GOOD)] + ["s,s0,650,2,500,0.001"]
    (tmp_path / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    (tmp_path / "t.csv").write_text("\n".join([f"{HEADER},stop_after_s", *lines]) + "\n", encoding="utf-8")
    files = [f"--trace={tmp_path / 't.csv'}", f"--cluster={tmp_path / 'c.yaml'}", f"--out={tmp_path / 'out'}"]
    assert run(["simulate", *files]) == 0
    arrivals = {(r["app_id"], r["job_id"]): float(r["arrival_s"]) for r in rows(tmp_path / "out" / "jobs.csv")}
    changes = []
    for row in rows(tmp_path / "out" / "allocations.csv"):
        assert float(row["start_s"]) >= arrivals[row["app_id"], row["job_id"]] - 1e-9
        assert float(row["end_s"]) >= float(row["start_s"])
        gpus = len(row["gpus"].split(";"))
        changes += [(float(row["start_s"]), gpus), (float(row["end_s"]), -gpus)]
    used = 0
    for _, change in sorted(changes, key=lambda c: (c[0], c[1])):
        used += change
        assert 0 <= used <= 8
    figures = tmp_path / "out" / "figures"
    for name in ("queue", "contention"):
        (path,) = figures.glob(f"{name}*.csv")
        numbers = [float(v) for row in rows(path) for k, v in row.items() if k not in {"run", "policy"} and v]
        assert numbers
        assert min(numbers) >= 0


NAMES: Final = (
    "a/b",
    "..",
    "a,b",
    'say "hi"',
    "a\u00a0b",
    "x" * 5_000,
    "\U0001f600",
    "a\u200bb",
    "=1+1",
    "%2F",
    "-",
    "a;b",
)


def test_hostile_names_stay_apart_in_every_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER.split(","))
        for name in NAMES:
            writer.writerows([[name, "j", 0, 1, 50], [name, name, 5, 2, 60]])
        for name in ("two\nlines", "a\u0085b", "a\u2028b", "a\x1bb"):  # would break the lines of files and logs
            writer.writerow([name, "j", 0, 1, 50])
    files = [f"--trace={tmp_path / 't.csv'}", f"--cluster={tmp_path / 'c.yaml'}", f"--out={tmp_path / 'out'}"]
    assert run(["simulate", *files, "--journal"]) == 0
    assert {r["app_id"] for r in rows(tmp_path / "out" / "apps.csv")} == set(NAMES)
    assert {(r["app_id"], r["job_id"]) for r in rows(tmp_path / "out" / "allocations.csv")} == {
        (name, job) for name in NAMES for job in ("j", name)
    }
    assert run(["replay", str(tmp_path / "out" / "arbiter.journal"), "--check"]) == 0


@pytest.mark.parametrize("seed", range(60))
def test_spoilt_files_are_refused_in_one_line_or_read(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    shares = "user,weight\nann,2\nbob,1\n"
    trace = "\n".join([f"{HEADER},user", *(f"{line},ann" for line in GOOD)]) + "\n"
    whole = {"t.csv": trace, "c.yaml": CLUSTER, "s.csv": shares}
    for name, text in whole.items():
        raw = bytearray(text.encode() + b" " * 200)
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(text))
            match chance.randrange(3):
                case 0:
                    raw[min(at, len(raw) - 1)] = chance.choice(b"\x00\xff\"',;\r\n\t {}[]:-e0")
                case 1:
                    del raw[at : at + chance.randint(1, 30)]
                case _:
                    raw[at:at] = chance.choice(
                        [b"\x00", b"\xef\xbb\xbf", b'"', b"1" * 400, b"nan", b"\xe2\x80\xa8", b"!!python/none "]
                    )
        (tmp_path / name).write_bytes(bytes(raw).rstrip(b" "))
    told: list[str] = []
    problems: list[str] = []
    try:
        found = read_trace(tmp_path / "t.csv", tell=told.append)
        assert len(found.jobs) + found.bad_rows == found.rows
        assert len(told) == found.bad_rows
        read_shares(tmp_path / "s.csv", found.apps())
    except TraceError as problem:
        problems.append(str(problem))
    try:
        assert read_cluster(tmp_path / "c.yaml").gpu_count > 0
    except TraceError as problem:
        problems.append(str(problem))
    assert all(problem.count("\n") == 0 and str(tmp_path) in problem for problem in problems)
