"""Parts of decision records that are written out by hand are what the codec would make of them."""

import pytest

from tests.support.markets import random_market
from themis_arbiter.core.codec import to_plain
from themis_arbiter.core.policies.paper import PaperPolicy


@pytest.mark.parametrize("seed", range(20))
def test_bids_are_recorded_as_the_codec_would_write_them(seed: int) -> None:
    market = random_market(seed)
    policy = PaperPolicy()
    assert policy.decide(market).record["bids"] == [to_plain(bid) for bid in policy.call(market).bids]
