"""What the benchmark of auctions compares with is right, and agrees. `make bench-auction` prints the tables."""

import pytest

from tests.bench.auction import SLACK, measured, others_cells, own_cells, verdict
from tests.bench.auction_cases import cases
from tests.support.large_auctions import large_auction

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("size", "bidders", "share"), [("A", 8, 1.0), ("B", 17, 0.1), ("B", 17, 1.0), ("B", 40, 0.1)])
def test_what_highs_and_cp_sat_prove_optimal_is_found(size: str, bidders: int, share: float) -> None:
    found = [measured(large_auction(size, bidders, share, seed), has_others=True) for seed in range(3)]
    for one in found:
        assert one.faults() == []
        assert {other.is_proved for other in one.others.values()} == {True}
        assert {abs(other.gain - one.gain) <= SLACK for other in one.others.values()} == {True}
        assert one.lp_bound is not None
        assert one.lp_bound >= one.gain - SLACK
    assert own_cells("any", found)[0] == others_cells("any", found)[0] == "any"
    assert all("on 3 of them ours is that optimum, on 0 less" in line for line in verdict(found))


def test_a_bound_that_does_not_hold_is_told() -> None:
    one = measured(large_auction("A", 8, 0.1, 0), has_others=True)
    one.others["HiGHS"] = type(one.others["HiGHS"])(1.0, True, one.bound + 1.0)
    assert len(one.faults()) == 1


def test_every_case_has_as_many_auctions_as_it_says() -> None:
    for case in cases(is_quick=True):
        assert len(list(case.auctions())) == case.count
