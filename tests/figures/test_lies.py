"""Lies in single bids: what is audited and how it is counted."""

import pytest

from tests.figures import lies
from tests.figures.lies import counts, gains_of, outcome, rows
from themis_arbiter.engine.audit import Ground


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One short run."""
    few = {"apps": 60, "styles": {"single": 1.0}, "gangs": {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.2}}
    monkeypatch.setattr(lies, "SOURCES", {"few": (few, 1.6, 1)})


def test_a_run_is_audited_on_every_ground() -> None:
    found = outcome("paper|few|2")
    assert found["audited"] == 2 <= found["contested"] <= found["rounds"]
    gains = gains_of(found)
    assert {g.ground for g in gains} == set(Ground)
    assert all(g.gain >= 0 for g in gains)


def test_the_best_lie_of_any_kind_counts_once_for_each_bid() -> None:
    def run(*gains: tuple[str, str, float]) -> dict[str, object]:
        listed = [[1, app, about, "paid", gain, 1.4, 0.0] for app, about, gain in gains]
        return {"gains": listed, "rounds": 1200, "contested": 9, "audited": 1, "auctions": 7}

    found = [("paper|one|1", run(("a", "work", 0.2), ("a", "parallelism", 0.1))), ("paper|two|1", run(("a", "work", 0.0)))]
    paid = [row for row in rows(found) if row[1] == "paid"]
    assert paid == [
        ["paper", "paid", "work", "2", "50.00 %", "10.00 %", "20.00 %", "20.00 %"],
        ["paper", "paid", "parallelism", "1", "100.00 %", "10.00 %", "10.00 %", "10.00 %"],
        ["paper", "paid", "any", "2", "50.00 %", "10.00 %", "20.00 %", "20.00 %"],
    ]
    assert counts(found)[0] == ["paper", "one", "1,200", "9", "1", "7"]
