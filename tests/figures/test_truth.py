"""Whole runs with liars: who lies, what is compared with what."""

import pytest

from tests.figures.truth import LIES, WINDOWS, gains, keys, liars, outcome, rows


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
    assert len(asked) == len(set(asked)) == 2 * len(WINDOWS) * (1 + 2 * len(LIES))
    assert asked[0] == "srsf|0|||"
    assert len(set(liars(0, 15))) == 15


def test_a_run_has_every_app_with_the_truth_and_else_the_liar_alone() -> None:
    truth = outcome("srsf|0|||")
    one = liars(0, 15)[7]
    lied = outcome(f"srsf|0|{one}|work|1.5")
    assert truth[""] == pytest.approx(sum(t for a, t in truth.items() if a))
    assert set(lied) == {one, ""}
    assert lied[one] >= 0.9 * truth[one], "who says that it has more to do comes later under srsf"
