"""A stream of small bids beside waiting gangs of 8 and 32 (`python -m tests.bench.starvation` makes the table in docs)."""

import pytest

from tests.support.streams import GANGS, Stream, waits

HALF = Stream(gpus=64, hours=3.0, load=1.1)  # the larger gang takes half the cluster
WHOLE = Stream(gpus=32, hours=4.0)  # and all of it
STREAM_ENDS = 42  # leases after the gangs came, in WHOLE
ALL_BID = {"fairness_knob": 0.0}


@pytest.mark.parametrize("policy", ["themis", "guard"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gangs_wait_half_as_long_again_as_their_share_needs_at_most(policy: str, seed: int) -> None:
    found = waits(HALF, policy, seed, {})
    for n in GANGS:
        assert found[n].leases <= 1.5 * found[n].paid_after + 3
    assert found[32].leases > 3, "it would have been served at once, so this shows nothing"


@pytest.mark.parametrize("policy", ["themis", "guard"])
def test_a_gang_of_the_whole_cluster_is_served_while_small_apps_still_come(policy: str) -> None:
    served = waits(WHOLE, policy, 3, {})[32]
    assert served.leases <= 1.5 * served.paid_after + 3
    left_to_the_order = waits(WHOLE, policy, 3, {"starving_above": 1e9, "large_gang": 2.0})[32]
    assert left_to_the_order.leases > STREAM_ENDS > 2 * served.leases


def test_the_papers_auction_alone_starves_a_large_gang_and_aging_serves_it() -> None:
    assert waits(WHOLE, "paper", 1, ALL_BID)[32].leases > STREAM_ENDS
    aged = waits(WHOLE, "paper", 1, {**ALL_BID, "paper.aging": 3.0})
    assert aged[8].leases <= 5
    assert aged[32].leases <= 10
