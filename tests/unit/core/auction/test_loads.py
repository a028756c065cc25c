"""What counts alone say cannot fit does not, as a whole search for places finds."""

from random import Random

import pytest

from tests.support.auctions import seeded_auction
from tests.support.large_auctions import large_auction
from themis_arbiter.core.auction.bid import Bid, Supply
from themis_arbiter.core.auction.market import Market
from themis_arbiter.core.kernels import packing
from themis_arbiter.core.kernels.layout import CHOSEN, N_APPS, N_STATE, NOBODY, OPTION_START, Ints
from themis_arbiter.core.kernels.loads import LOADS, add_option, fill_room, has_room
from themis_arbiter.core.kernels.packing import CANNOT, FITS, pack
from themis_arbiter.core.kernels.placing import clear

EVERYTHING = 1 << 40  # nodes


def ints(values: list[int]) -> Ints:
    """Kernels run as Python take lists."""
    return values  # type: ignore[return-value]


def verdicts(bids: tuple[Bid, ...], supply: Supply, chance: Random, draws: int, nodes_max: int) -> list[tuple[bool, int]]:
    """Of options drawn at random, one of some apps each: whether they may fit by counts, and what a search finds."""
    m, found = ints(Market(bids, supply).array), []
    for _ in range(draws):
        state, wanted = ints([0] * m[N_STATE]), ints([0] * m[N_STATE])
        clear(m, state)
        clear(m, wanted)
        room, loads, loaded = ints([0] * LOADS), ints([0] * LOADS), ints([0] * 2 * LOADS)
        fill_room(m, state, room)
        for app in range(m[N_APPS]):
            first, last = m[m[OPTION_START] + app], m[m[OPTION_START] + app + 1]
            if first < last and chance.random() < 0.7:
                wanted[m[CHOSEN] + app] = chance.randrange(first, last)
                add_option(m, wanted[m[CHOSEN] + app], loads, 0)
        may_fit = has_room(loads, 0, loaded, 0, room)
        found.append((may_fit, pack(m, state, wanted, nodes_max, ints([0]))))
    return found


def test_counts_never_rule_out_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots, units, room, pins and several jobs among them; the search is told nothing of counts."""
    monkeypatch.setattr(packing, "_has_room", lambda *_: True)
    found: list[tuple[bool, int]] = []
    for seed in range(400):
        one = seeded_auction(seed, gpus_max=4 + seed % 20)
        found += verdicts(one.bids, one.supply, Random(seed), 12, EVERYTHING)
    assert {fit for _, fit in found} == {FITS, CANNOT}
    assert all(may_fit for may_fit, fit in found if fit == FITS)
    ruled_out = sum(not may_fit for may_fit, fit in found if fit == CANNOT)
    assert ruled_out > len(found) // 10


def test_a_search_that_asks_counts_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one = large_auction("A", 8, 1.0, 3)
    asking = verdicts(one.bids, one.supply, Random(3), 60, EVERYTHING)
    monkeypatch.setattr(packing, "_has_room", lambda *_: True)
    assert asking == verdicts(one.bids, one.supply, Random(3), 60, EVERYTHING)
    assert len(set(asking)) > 1


def test_nothing_is_nothing() -> None:
    loads = ints([0] * LOADS)
    add_option(ints([]), NOBODY, loads, 0)
    assert list(loads) == [0] * LOADS
