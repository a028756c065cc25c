"""Sweeps: their points, their figures, and that they go on where they stopped. A small program stands in for the simulator."""

import csv
import json
import sys
import types
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.cli.main import run
from themis_arbiter.sim import sweep_run
from themis_arbiter.sim.sweep import Axis, Point, SweepError, combined, figures, interval, parse_axis, parse_seeds, plan
from themis_arbiter.sim.sweep_run import Outcome, Work, cores, dask, run_all, write_results

# Writes what `themis simulate` would: max_rho = lease + seed / 10, and one line a start into starts.txt.
FAKE = """
import json, pathlib, sys
arguments = sys.argv[1:]
flags = dict(zip(arguments[1::2], arguments[2::2]))
out = pathlib.Path(flags["--out"])
with open(out.parent.parent / "starts.txt", "a") as file:
    file.write(" ".join(arguments) + "\\n")
if flags.get("--policy") == "broken":
    sys.exit("themis: no policy is called broken")
(out / "allocations.csv").write_text("much")
(out / "figures").mkdir()
if flags.get("--policy") != "mute":
    rho = float(flags.get("--lease", 1)) + int(flags["--seed"]) / 10
    summary = {"policy": "x", "seed": 5, "max_rho": rho, "auction_ms": {"p50": 1.5}, "wall_s": None}
    (out / "summary.json").write_text(json.dumps(summary))
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    program = tmp_path / "fake.py"
    program.write_text(FAKE)
    monkeypatch.chdir(tmp_path)
    return (sys.executable, str(program))


def works(points: Sequence[Point], folder: Path, fake: tuple[str, ...], *, is_summary_only: bool = False) -> list[Work]:
    out = folder / "out"
    out.mkdir(exist_ok=True)
    return [Work(point=p, out=out, folder=folder, program=fake, is_summary_only=is_summary_only) for p in points]


def starts(folder: Path) -> int:
    path = folder / "out" / "starts.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def go(items: Sequence[Work], heard: list[Outcome] | None = None) -> list[Outcome]:
    return run_all(items, cores(2), (heard if heard is not None else []).append)


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_points_are_every_combination_with_seeds_innermost() -> None:
    axes = [Axis("policy", ("a", "b")), Axis("set:payments", ("on", "off"))]
    points = plan(axes, (0, 7), ("--trace", "t_{seed}.csv"))
    assert len(points) == 8
    assert points[1].arguments == (
        "simulate",
        *("--trace", "t_7.csv", "--policy", "a", "--set", "payments=on", "--seed", "7"),
    )
    assert points[-1].settings == (("policy", "b"), ("set:payments", "off"))
    assert len({p.key for p in points}) == 8
    assert [p.key for p in plan(axes, (0, 7), ("--trace", "t_{seed}.csv"))] == [p.key for p in points]


def test_command_of_a_point_can_be_typed() -> None:
    (point,) = plan([Axis("trace", ("my trace.csv",))], (3,), ())
    assert point.command(Path("/o")) == f"themis simulate --trace 'my trace.csv' --seed 3 --out /o/points/{point.key}"


@pytest.mark.parametrize(("text", "seeds"), [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("5,1-2,2", (5, 1, 2))])
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-99999999", "1,,2"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(SweepError):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["lease", "=3", "lease=", "set:=3", "seed=1", "out=x"])
def test_wrong_axes_are_refused(text: str) -> None:
    with pytest.raises(SweepError):
        parse_axis(text)


def test_axis_values_are_named_once() -> None:
    assert parse_axis("--lease=300, 600,300") == Axis("lease", ("300", "600"))


@pytest.mark.parametrize(
    ("axes", "fixed"),
    [
        ([Axis("lease", ("1",)), Axis("lease", ("2",))], ()),
        ([Axis("lease", ("1",))], ("--lease=3",)),
        ([], ("--seed", "3")),
        ([], ("--out", "x")),
        ([Axis("a", tuple(map(str, range(400)))), Axis("b", tuple(map(str, range(400))))], ()),
    ],
)
def test_plans_that_contradict_themselves_are_refused(axes: list[Axis], fixed: tuple[str, ...]) -> None:
    with pytest.raises(SweepError):
        plan(axes, (0,), fixed)


# --- figures ----------------------------------------------------------------------------------------------------------


def test_interval_by_hand() -> None:
    found = interval([1.0, 2.0, 3.0, 6.0])
    assert (found.n, found.mean) == (4, 3.0)
    half = 3.182 * (14 / 3 / 4) ** 0.5
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half))
    assert interval([4.0]).low is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_interval_holds_its_mean(values: list[float]) -> None:
    found = interval(values)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high


def test_figures_are_the_plain_numbers() -> None:
    summary = {
        "policy": "x",
        "seed": 3,
        "n": 2,
        "ok": True,
        "gap": float("inf"),
        "auction_ms": {"p50": 1, "p95": 2},
        "rejected_jobs": [],
    }
    assert figures(summary) == {"n": 2.0, "auction_ms.p50": 1.0, "auction_ms.p95": 2.0}


def test_figures_are_put_together_over_seeds_only() -> None:
    points = plan([Axis("lease", ("1", "2"))], (0, 1), ())
    found = combined((p, {"max_rho": float(dict(p.settings)["lease"]) + p.seed}) for p in points)
    assert [(s["lease"], f["max_rho"].mean, f["max_rho"].n) for s, f in found] == [("1", 1.5, 2), ("2", 2.5, 2)]


# --- running ----------------------------------------------------------------------------------------------------------


def test_sweep_goes_on_where_it_stopped(tmp_path: Path, fake: tuple[str, ...]) -> None:
    points = plan([Axis("lease", ("1", "2"))], (0, 1), ())
    items = works(points, tmp_path, fake)
    go(items[:3])
    assert starts(tmp_path) == 3
    heard: list[Outcome] = []
    outcomes = go(items, heard)
    assert starts(tmp_path) == 4
    assert [o.is_from_before for o in outcomes] == [True, True, True, False]
    assert [o.summary and o.summary["max_rho"] for o in outcomes] == [1.0, 1.1, 2.0, 2.1]
    assert len(heard) == 4


def test_point_that_was_cut_off_runs_again(tmp_path: Path, fake: tuple[str, ...]) -> None:
    items = works(plan([], (0, 1), ()), tmp_path, fake)
    go(items)
    (items[0].point.folder(items[0].out) / sweep_run.MARKER).unlink()
    assert [o.is_from_before for o in go(items)] == [False, True]


def test_point_runs_again_when_its_trace_has_changed(tmp_path: Path, fake: tuple[str, ...]) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("one")
    items = works(plan([], (0,), ("--trace", "t.csv")), tmp_path, fake)
    go(items)
    assert go(items)[0].is_from_before
    trace.write_text("other")
    assert not go(items)[0].is_from_before


def test_point_that_fails_spoils_no_other(tmp_path: Path, fake: tuple[str, ...]) -> None:
    items = works(plan([Axis("policy", ("good", "broken", "mute"))], (0,), ()), tmp_path, fake)
    outcomes = go(items)
    assert [o.reason for o in outcomes] == ["", "themis: no policy is called broken", "no readable summary.json"]
    document = write_results(tmp_path / "out", outcomes)
    assert len(document["failed"]) == 2
    assert [r["settings"]["policy"] for r in document["results"]] == ["good"]
    go(items)
    assert starts(tmp_path) == 5  # both again, the good one not


def test_only_summaries_are_kept_on_request(tmp_path: Path, fake: tuple[str, ...]) -> None:
    items = works(plan([], (0,), ()), tmp_path, fake, is_summary_only=True)
    go(items)
    kept = {p.name for p in items[0].point.folder(items[0].out).iterdir()}
    assert kept == {"summary.json", "stderr.txt", "done.json"}
    assert go(items)[0].is_from_before


def test_results_as_tables(tmp_path: Path, fake: tuple[str, ...]) -> None:
    write_results(tmp_path / "out", go(works(plan([Axis("lease", ("1", "2"))], (0, 2), ()), tmp_path, fake)))
    points = list(csv.DictReader((tmp_path / "out" / "points.csv").read_text().splitlines()))
    assert [(r["lease"], r["seed"], r["max_rho"], r["auction_ms.p50"]) for r in points][:2] == [
        ("1", "0", "1.0", "1.5"),
        ("1", "2", "1.2", "1.5"),
    ]
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").read_text().splitlines()))
    (row,) = [r for r in rows if r["lease"] == "2" and r["figure"] == "max_rho"]
    assert row["seeds"] == "2"
    assert float(row["mean"]) == pytest.approx(2.1)
    assert float(row["ci95_low"]) == pytest.approx(2.1 - 12.706 * 0.1)
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["results"][1]["figures"]["max_rho"]["n"] == 2


# --- Dask -------------------------------------------------------------------------------------------------------------


class FakeClient:
    """Dask's client as far as it is used: a context that gives an executor."""

    def __init__(self, address: str, timeout: float) -> None:
        assert timeout > 0
        if address == "tcp://nobody:1":
            raise OSError("timed out")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def get_executor(self, **_: Any) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1)


def test_same_sweep_runs_on_dask(tmp_path: Path, fake: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("distributed")
    module.Client = FakeClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "distributed", module)
    monkeypatch.setattr(sweep_run, "find_spec", lambda _name: object())
    items = works(plan([Axis("lease", ("1", "2"))], (0, 1), ()), tmp_path, fake)
    there = run_all(items, dask("tcp://somewhere:8786"), lambda _: None)
    assert [o.summary for o in there] == [o.summary for o in go(items)]
    with pytest.raises(SweepError, match="no scheduler answers at tcp://nobody:1"), dask("tcp://nobody:1"):
        raise AssertionError("nobody is there")


def test_missing_dask_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_run, "find_spec", lambda _name: None)
    with pytest.raises(SweepError, match=r"themis-arbiter\[sweep\]"), dask("tcp://x:1"):
        raise AssertionError("nobody is there")


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(fake: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def with_fake(**given: Any) -> Work:
        return Work(**given, program=fake)

    monkeypatch.setattr(sweep_run, "Work", with_fake)
    monkeypatch.setattr("themis_arbiter.cli.sweep.check_points", lambda *_: None)  # the program takes what simulate would not
    return ["sweep", "--out", "out", "--jobs", "2"]


def test_command_prints_each_points_command_and_the_means(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--grid", "lease=1,2", "--seeds", "0-1", "--", "--trace", "t.csv"]) == 0
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert [line.split("]")[0] for line in lines] == [f"[{k}/4" for k in range(1, 5)]
    assert f"done: themis simulate --trace t.csv --lease 1 --seed 0 --out {tmp_path / 'out'}/points/" in told.err
    assert told.out.splitlines()[0].split()[:2] == ["LEASE", "MAX_RHO"]
    assert "2.05 ±0.635" in told.out


def test_command_says_json_and_fails_with_a_failed_point(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--grid", "policy=good,broken", "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["failed"][0]["reason"] == "themis: no policy is called broken"
    assert "1 of 2 points failed" in told.err


def test_command_only_shows_what_it_would_do(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--grid", "lease=1,2", "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [["--grid", "lease"], ["--seeds", "x"], ["--", "--seed", "1"], ["--jobs", "0"]])
def test_command_refuses_what_cannot_be(command: list[str], options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, *options]) == 2
    assert capsys.readouterr().err.startswith("themis: ")


def test_interrupted_sweep_starts_nothing_more(tmp_path: Path, fake: tuple[str, ...]) -> None:
    def interrupt(_: Outcome) -> None:
        raise KeyboardInterrupt

    items = works(plan([Axis("lease", tuple("123456789"))], (0,), ()), tmp_path, fake)
    with ThreadPoolExecutor(max_workers=1) as pool, pytest.raises(KeyboardInterrupt):
        run_all(items, nullcontext(pool), interrupt)
    assert starts(tmp_path) <= 3


def test_interrupted_sweep_says_what_is_done_and_keeps_it(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_whole = sweep_run.run_all

    def interrupted(items: Sequence[Work], executor: Any, tell: Any) -> list[Outcome]:
        def tell_once(outcome: Outcome) -> None:
            tell(outcome)
            raise KeyboardInterrupt

        return run_whole(items, executor, tell_once)

    given = [*command, "--jobs", "1", "--grid", "lease=" + ",".join(str(k) for k in range(1, 30)), "--", "--trace", "t.csv"]
    monkeypatch.setattr(sweep_run, "run_all", interrupted)
    assert run(given) == 130
    last = capsys.readouterr().err.splitlines()[-1]
    done = len((tmp_path / "out" / "points.csv").read_text().splitlines()) - 1
    assert 1 <= done < 29
    assert f"interrupted; {done} of 29 points are done, their results in " in last
    assert json.loads((tmp_path / "out" / "results.json").read_text())["failed"] == []


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--grid", "speed=1,2"], "No such option '--speed'"),
        (["--grid", "set:speed=1,2"], "there is no key 'speed'"),
        (["--grid", "policy=fifo,best"], "no policy is called 'best'"),
        (["--grid", "lease=300,nan"], "'--lease': 'nan' is not finite"),
        (["--grid", "lease=300,50"], "leave nothing of --lease 50 s"),
        (["--grid", "set:urgent_above=1,inf"], "urgent_above takes a finite number"),
        (["--seeds", "0-1", "--", "--trace", "t{seed}.csv"], "--trace t1.csv: is not there"),
        (["--", "--cluster", "no.yaml"], "--cluster no.yaml: is not there"),
        (["--", "--shares", "out/points.csv"], "--shares out/points.csv would be overwritten"),
    ],
)
def test_a_grid_is_checked_before_any_point_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for name in ("t.csv", "t0.csv", "c.yaml", "out/points.csv"):
        (tmp_path / name).write_text("x")
    mark = options.index("--") if "--" in options else len(options)
    fixed = ["--trace", "t.csv", "--cluster", "c.yaml", *options[mark + 1 :]]
    assert run(["sweep", "--out", "out", *options[:mark], "--", *fixed]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert what in line
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["points.csv"]
