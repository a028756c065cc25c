"""The ledger: every unit counted once, whatever is claimed, done, given back, saved and loaded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.agent.steps import LedgerError, StepLedger
from themis_arbiter.agent.work import Unit, all_units, expected_sum, unit_value


def test_units_are_handed_out_in_order_and_a_returned_one_comes_first() -> None:
    ledger = StepLedger(4)
    assert [ledger.claim_next("a"), ledger.claim_next("b")] == [Unit(0, 0), Unit(1, 0)]
    assert ledger.give_back(Unit(0, 0), "a")
    assert [ledger.claim_next("b") for _ in range(4)] == [Unit(0, 0), Unit(2, 0), Unit(3, 0), None]


def test_a_step_of_several_parts_is_a_barrier() -> None:
    ledger = StepLedger(2, parts=2)
    first, second = ledger.claim_next("a"), ledger.claim_next("b")
    assert (first, second, ledger.claim_next("c")) == (Unit(0, 0), Unit(0, 1), None)
    ledger.commit(Unit(0, 1), 5, "b")
    assert ledger.claim_next("c") is None
    ledger.commit(Unit(0, 0), 7, "a")
    assert ledger.claim_next("c") == Unit(1, 0)
    assert (ledger.done, ledger.left, ledger.running_sum) == (2, 2, 12)


def test_only_the_holder_commits_and_only_once() -> None:
    ledger = StepLedger(2)
    unit = ledger.claim_next("a")
    assert unit is not None
    with pytest.raises(LedgerError, match="in the hand of a"):
        ledger.commit(unit, 1, "b")
    ledger.commit(unit, 1, "a")
    with pytest.raises(LedgerError, match="in the hand of None"):
        ledger.commit(unit, 1, "a")
    assert not ledger.adopt(unit, 1)
    assert ledger.running_sum == 1
    assert not ledger.give_back(unit, "a")


@pytest.mark.parametrize("unit", [Unit(2, 0), Unit(0, 1), Unit(-1, 0)])
def test_a_log_of_another_job_is_refused(unit: Unit) -> None:
    with pytest.raises(LedgerError, match="not a unit of this job"):
        StepLedger(2).adopt(unit, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 9}, "is of 9 steps of 2 parts"),
        ({"prefix": 4}, "contradicts itself"),
        ({"extras": [[0, 1]], "prefix": 1}, "contradicts itself"),
        ({"sum": None}, "cannot be read"),
        ({"extras": [3]}, "cannot be read"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(change: dict[str, object], message: str) -> None:
    saved = StepLedger(3, 2).checkpoint() | change
    with pytest.raises(LedgerError, match=message):
        StepLedger.from_checkpoint(saved, 3, 2)


@given(
    steps=st.integers(1, 6),
    parts=st.integers(1, 3),
    moves=st.lists(st.tuples(st.sampled_from(["claim", "commit", "return", "adopt", "reload"]), st.integers(0, 17))),
)
def test_ledger_agrees_with_a_plain_set(steps: int, parts: int, moves: list[tuple[str, int]]) -> None:
    ledger = StepLedger(steps, parts)
    units = list(all_units(steps, parts))
    done: set[Unit] = set()
    hands: dict[Unit, str] = {}
    for move, number in moves:
        unit = units[number % len(units)]
        holder = hands.get(unit)
        if move == "claim":
            free = [each for each in units if each not in done and each not in hands]
            is_open = parts == 1 or all(other in done for other in units if free and other.step < free[0].step)
            assert ledger.claim_next("h") == (free[0] if free and is_open else None)
            if free and is_open:
                hands[free[0]] = "h"
        elif move == "commit" and holder is not None:
            ledger.commit(unit, unit_value(unit), holder)
            del hands[unit]
            done.add(unit)
        elif move == "return":
            assert ledger.give_back(unit, "h") == (hands.pop(unit, None) is not None)
        elif move == "adopt":
            assert ledger.adopt(unit, unit_value(unit)) == (unit not in done)
            done.add(unit)
            hands.pop(unit, None)
        elif move == "reload":
            ledger = StepLedger.from_checkpoint(json.loads(json.dumps(ledger.checkpoint())), steps, parts)
            hands.clear()
        assert ledger.done == len(done)
        assert ledger.running_sum == sum(map(unit_value, done))
        assert all(ledger.is_done(each) == (each in done) for each in units)


def test_the_work_is_a_function_of_its_number_alone() -> None:
    values = {unit_value(unit) for unit in all_units(200, 4)}
    assert len(values) == 800
    assert expected_sum(200, 4) == sum(values)
    # Changing the function makes every running job's checkpoint wrong, so its value is pinned.
    assert unit_value(Unit(3, 1)) == 1_887_061_644
