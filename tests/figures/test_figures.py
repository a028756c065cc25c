"""The figures' own arithmetic, and their quick form: a real run of every step, small."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.figures.__main__ import main
from tests.figures.charts import Group, bar_chart
from tests.figures.experiments import EXPERIMENTS, Inputs, liar, targets
from tests.figures.tables import (
    Runs,
    by_policy,
    by_workload,
    estimate_verdicts,
    geometric,
    geometric_interval,
    halving_verdicts,
    order_exceptions,
    verdicts,
)
from themis_arbiter.sim.sweep import interval


def summary(max_rho: float, **more: Any) -> dict[str, Any]:
    plain = {"p95_rho": 1.0, "frac_rho_le_1_05": 0.9, "avg_jct_s": 100.0, "gpu_hours": 10.0, "restarts": 10}
    return {"max_rho": max_rho, "max_rho_lower_bound": 1.0, **plain, **more}


def test_geometric_means_and_their_intervals() -> None:
    assert geometric([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_interval([2.0]) == "2.000"
    assert geometric_interval([2.0, 2.0, 2.0]) == "2.000 [2.000, 2.000]"
    assert geometric_interval([]) == "-"


def test_systems_in_another_order_than_the_papers_are_told_pair_by_pair() -> None:
    papers = {"themis": 1.3, "srsf": 1.8, "slaq": 3.9}
    assert order_exceptions({"themis": 1.0, "srsf": 1.5, "slaq": 2.0}, papers) == []
    assert order_exceptions({"themis": 1.6, "srsf": 1.5, "slaq": 1.4}, papers) == [
        ("themis", "srsf"),
        ("themis", "slaq"),
        ("srsf", "slaq"),
    ]


def test_targets_are_met_or_missed_by_their_figures() -> None:
    runs = Runs(
        {
            ("a", "guard"): summary(1.1),
            ("b", "guard"): summary(1.6),
            ("a", "themis"): summary(1.12),
            ("b", "themis"): summary(1.62, avg_jct_s=103.0),
            ("a", "srsf"): summary(1.5),
            ("b", "srsf"): summary(1.55),
            ("a", "las"): summary(4.0),
            ("b", "las"): summary(5.0),
        }
    )
    found = {v.target: v for v in verdicts(runs)}
    assert not found["1: guard, max rho never above 1.5"].is_met
    assert found["1: themis at most .03 above guard, mean"].is_met
    assert not found["2: guard, max rho no more than .01 above srsf's"].is_met
    assert found["2: guard, max rho no more than .01 above srsf's"].figure == "+0.05 (b)"
    assert found["2: guard, max rho 2.25x lower than las's"].is_met
    assert not found["3: themis, mean JCT within .5 % of SRSF's"].is_met
    assert found["3: themis, mean JCT within 4 % of SRSF's on each"].is_met
    assert "| b | 1.00 | 1.60 | 1.62 | 1.55 | 5.00 |" in by_workload(runs)
    assert by_policy(runs).count("\n") == 2 + 4


def test_targets_with_estimates_and_halving_are_of_ours_only() -> None:
    runs = Runs(
        {("a", "guard"): summary(1.5), ("b", "guard"): summary(1.2), ("a", "srsf"): summary(1.4), ("b", "srsf"): summary(1.3)}
    )
    mean, each = estimate_verdicts(runs)
    assert mean.is_met
    assert (each.target, each.is_met, each.figure) == (
        "4: guard, max rho no more than 2 % above SRSF's on each",
        False,
        "1.071x",
    )
    (only,) = halving_verdicts({"themis": [summary(1.2), summary(1.5)], "srsf": [summary(1.0)]})
    assert (only.target, only.is_met) == ("4: themis, successive halving, max rho, mean <= 1.3", False)


def test_a_chart_has_a_bar_for_each_of_ours_and_one_for_each_of_the_papers() -> None:
    groups = [Group("x", {"a": interval([1.0, 2.0]), "b": interval([3.0])}, {"a": 2.5})]
    text = bar_chart("t", "y", groups, ("a", "b"))
    assert text.count('width="13"') == 3
    assert text.count('stroke="#1d2733"') == 1  # a single seed has no interval


def test_the_nineteen_workloads_of_the_targets(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path, tmp_path / "traces", (0,))
    points = targets(inputs, ("guard",))
    assert len(points) == len({p.key for p in points}) == 19
    judged, papers = {"targets", "estimates", "halving"}, {"systems", "contention", "network", "bid_error", "lying", "knob"}
    assert set(EXPERIMENTS) == judged | papers


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "nope"], "there is no experiment 'nope'"),
        (["--only", ","], "there is no experiment ''"),
        (["--only", "targets", "--policies", "nope"], "there is no policy 'nope'"),
        (["--jobs", "0"], "at least 1"),
        ([], "the shared traces are not at"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setattr("tests.figures.__main__.SHARED", tmp_path / "nowhere")
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(300)
def test_quick_form_runs_every_step_and_then_has_nothing_left_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    (shared / "placement").mkdir(parents=True)
    (shared / "clusters").mkdir()
    models = ("vgg19", "vgg16", "vgg11", "alexnet", "resnet50", "resnet152", "inception3", "googlenet")
    rows = "".join(f"{m},1,1,1.2,1.5\n" for m in models)
    (shared / "placement/models.csv").write_text("model,slot,machine,rack,cluster\n" + rows, encoding="utf-8")
    cluster = {"racks": [{"machines": [{"count": 4, "gpus": 4}]}]}
    (shared / "clusters/c16.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    monkeypatch.setattr("tests.figures.__main__.SHARED", shared)
    monkeypatch.setattr("tests.figures.__main__.QUICK", {"apps": 2, "gpus": 16, "cluster": "c16"})
    monkeypatch.setattr("tests.figures.experiments.LIES", (80,))
    arguments = ["--quick", "--only", "lying", "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert first.err.count("[") == 8  # with and without the lie, two policies, two seeds
    assert "| paper | +80 % |" in first.out
    (trace,) = (tmp_path / "out/traces").glob("w1*_s0.csv")
    assert liar(trace) == "app1"
    assert main(arguments) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert again.out == first.out
