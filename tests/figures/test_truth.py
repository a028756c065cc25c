"""Whole runs with liars: who lies, what is compared with what."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.figures import truth
from tests.figures.truth import CROWD, LIES, WINDOWS, crowd, crowd_rows, error_rows, gains, keys, liars, outcome, rows


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small ones of our own: every few minutes a job that keeps a GPU or two for half an hour, on four."""
    for folder in ("itp", "placement", "clusters"):
        (tmp_path / folder).mkdir()
    jobs = [f"app{k:03},j,{240 * k},{1 + k % 2},{600 + 37 * k % 2400},m" for k in range(40)]
    for name in ("06", "03"):
        text = "\n".join(["app_id,job_id,arrival_s,n_gpus,duration_s,model", *jobs])
        (tmp_path / f"itp/itp_cluster{name}_apps.csv").write_text(text, encoding="utf-8")
    (tmp_path / "placement/models.csv").write_text("model,slot,machine,rack,cluster\nm,1,1,1.2,1.5\n", encoding="utf-8")
    racks = '{"racks": [{"count": 2, "machines": [{"count": 1, "gpus": 2}]}]}'
    for cluster in ("c64", "c128"):
        (tmp_path / f"clusters/{cluster}.yaml").write_text(racks, encoding="utf-8")
    monkeypatch.setattr(truth, "SHARED", tmp_path)
    monkeypatch.setattr(truth, "WINDOWS", tuple((name, cluster, 2 * k) for k, (name, cluster, _) in enumerate(WINDOWS)))
    truth.window.cache_clear()
    yield
    truth.window.cache_clear()


def test_gains_are_against_the_same_run_with_the_truth() -> None:
    found = [
        ("srsf|0|||", {"a": 100.0, "b": 200.0, "": 300.0}),
        ("srsf|0|a|work|0.5", {"a": 80.0, "": 210.0}),
        ("srsf|0|b|work|0.5", {"b": 220.0, "": 90.0}),
        ("srsf|0|a|work|1.5", {"a": 130.0, "": 200.0}),
    ]
    by_lie = gains(found)
    assert by_lie["srsf", "work", "0.5"] == [pytest.approx((0.2, 0.05)), pytest.approx((-0.1, -0.1))]
    (row,) = rows(by_lie)
    assert row == ["srsf", "work", "x 0.5", "2", "+5.0 %", "+20.0 %", "+20.0 %", "-1.7 %"]


def test_liars_are_dealt_to_all_windows() -> None:
    asked = keys(["srsf", "las"], 2 * len(WINDOWS))
    assert len(asked) == len(set(asked)) == 2 * len(WINDOWS) * (1 + 3 * len(LIES))
    assert asked[0] == "srsf|0|||"
    assert len(set(liars(0, 15))) == 15


def test_a_run_has_every_app_with_the_truth_and_else_the_liar_alone() -> None:
    truth = outcome("srsf|0|||")
    one = liars(0, 15)[7]
    lied = outcome(f"srsf|0|{one}|work|1.5")
    assert truth[""] == pytest.approx(sum(t for a, t in truth.items() if a.startswith("app")))
    assert set(lied) == {one, ""}
    assert lied[one] >= 0.9 * truth[one], "who says that it has more to do comes later under srsf"


def test_an_error_costs_what_the_same_lie_loses() -> None:
    by_lie = {("srsf", "work", "0.5"): [(0.2, 0.0), (-0.1, 0.0)], ("srsf", "slowdown", "0.5"): [(0.3, 0.0)]}
    assert error_rows(by_lie) == [["srsf", "x 0.5", "2", "-5.0 %", "+10.0 %"]]


def test_the_honest_are_the_same_apps_with_and_without_the_lies_of_the_others() -> None:
    many = crowd(0)
    assert len(many) == 0.3 * len(liars(0, 1000))
    truth, lied = outcome("srsf|0|||"), outcome(f"srsf|0|{CROWD}|work|0.5")
    assert truth["honest_s"] == pytest.approx(sum(t for a, t in truth.items() if a.startswith("app") and a not in many))
    (row,) = crowd_rows([("srsf|0|||", truth), (f"srsf|0|{CROWD}|work|0.5", lied)])
    assert row[:4] == ["srsf", "work", "x 0.5", "1"]
    assert row[4] == row[5] == f"{100 * (lied['honest_s'] / truth['honest_s'] - 1):+.1f} %"
    assert lied["honest_s"] > truth["honest_s"], "who says that it has half to do goes first under srsf"
