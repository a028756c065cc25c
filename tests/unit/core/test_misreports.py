"""Lies in bids, and their outcome by the true table."""

import pytest

from tests.support.markets import HOUR, app, cluster, job, market, random_market
from themis_arbiter.core.auction.solver import solve
from themis_arbiter.core.bidding import build_bid
from themis_arbiter.core.misreports import FACTORS, About, Lie, ending_rho, lied_bid, true_rho
from themis_arbiter.core.types import Locality

FLAT = cluster(("m0", "r0", 4), ("m1", "r0", 4), ("m2", "r1", 4))


def test_the_factors_are_those_of_the_issue() -> None:
    off = sorted(round(abs(f - 1.0), 9) for f in FACTORS)
    assert off == [0.1, 0.1, 0.2, 0.2, 0.4, 0.4, 0.8, 0.8]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("about", [About.WORK, About.SLOWDOWN, About.PARALLELISM])
def test_who_tells_the_truth_as_a_lie_bids_as_the_honest(seed: int, about: About) -> None:
    arena = random_market(seed)
    for one in arena.apps:
        if all(j.wanted >= j.gang for j in one.jobs):  # one that wants less than a gang cannot say so
            told, honest = lied_bid(arena, one, Lie(about, 1.0)), build_bid(arena, one)
            assert [r.parts for r in told.rows] == [r.parts for r in honest.rows]
            assert [r.rho for r in told.rows] == pytest.approx([r.rho for r in honest.rows])


def test_each_lie_changes_what_it_is_about() -> None:
    liar = app(job("a/1", 2.0, gang=2, wanted=4, model="slow", done=0.5 * HOUR))
    arena = market(FLAT, liar)
    honest = {(r.gpu_count, r.parts[0].level): r.rho for r in build_bid(arena, liar).rows[1:]}

    def rho(lie: Lie, gpus: int, level: Locality) -> float:
        rows = lied_bid(arena, liar, lie).rows[1:]
        return next(r.rho for r in rows if (r.gpu_count, r.parts[0].level) == (gpus, level))

    # One hour since its arrival, two hours for itself alone: rho is (1 h + what is left / 4) / 2 h.
    assert honest[4, Locality.SLOT] == pytest.approx((1 + 2 / 4) / 2)
    assert rho(Lie(About.WORK, 1.4), 4, Locality.SLOT) == pytest.approx((1 + (2.5 * 1.4 - 0.5) / 4) / 2)
    # In one rack "slow" takes 1.6 times as long; S - 1 of .6 becomes 1.08.
    assert honest[4, Locality.RACK] == pytest.approx((1 + 2 / 4 * 1.6) / 2)
    assert rho(Lie(About.SLOWDOWN, 1.8), 4, Locality.RACK) == pytest.approx((1 + 2 / 4 * 2.08) / 2)
    assert max(r.gpu_count for r in lied_bid(arena, liar, Lie(About.PARALLELISM, 1.8)).rows) == 7
    assert max(r.gpu_count for r in lied_bid(arena, liar, Lie(About.PARALLELISM, 0.2)).rows) == 2


def test_used_up_work_counts_twofold_in_a_lie_too() -> None:
    liar = app(job("a/1", 1.0, done=3.0 * HOUR))
    arena = market(FLAT, liar)
    told = lied_bid(arena, liar, Lie(About.WORK, 0.2))  # of four hours: .8, then 1.6, then 3.2 where three are done
    assert told.rows[1].rho == pytest.approx((1 + 0.2) / 2)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_won_is_worth_what_its_row_says_or_more(seed: int) -> None:
    arena = random_market(seed)
    bids = tuple(build_bid(arena, a) for a in arena.apps if all(j.wanted >= j.gang for j in a.jobs))
    by_id = {a.app_id: a for a in arena.apps}
    rows = {b.app_id: b.rows for b in bids}
    for win in solve(bids, arena.supply).wins:
        found = true_rho(arena, by_id[win.app_id], win.gpus)
        assert found <= rows[win.app_id][win.row].rho * (1 + 1e-12)
        if win.row == 0:
            assert found == rows[win.app_id][0].rho


def test_gpus_beyond_what_an_app_can_use_are_worth_nothing_to_it() -> None:
    liar = app(job("a/1", 2.0, gang=2, wanted=4, model="slow"))
    arena = market(FLAT, liar)
    four = tuple(f"m1:{k}" for k in range(4))
    on_four = true_rho(arena, liar, {"a/1": four})
    assert true_rho(arena, liar, {"a/1": ("m0:0", *four, "m2:1")}) == on_four  # it leaves the others idle
    assert true_rho(arena, liar, {"a/1": four[:2]}) > on_four
    assert true_rho(arena, liar, {"a/1": four[:1]}) == true_rho(arena, liar, {}) > on_four  # no gang: nothing runs


def test_bids_let_the_job_grow_that_would_be_done_last() -> None:
    """Any other order leaves out rows that are worth more, and one lie about parallelism then wins them."""
    two = app(job("a/1", 40.0, gang=2, wanted=8), job("a/2", 40.0, wanted=2), job("a/3", 1.0, wanted=8))
    arena = market(FLAT, two)
    splits = {tuple(p.more for p in row.parts): row.rho for row in build_bid(arena, two).rows[1:]}
    assert list(splits)[:4] == [(2,), (2, 1), (2, 1, 1), (2, 2, 1)]  # gangs first, then what would be done last
    assert splits[8, 2, 1] == min(splits.values())  # the short job's growth is worth nothing
    assert splits[8, 2, 1] == pytest.approx((1 + 40 / 2) / 2)


def test_who_leaves_its_longest_job_out_does_not_end_before_that() -> None:
    liar = app(job("a/1", 1.0), job("a/2", 6.0), job("a/3", 1.0))
    arena = market(FLAT, liar)
    short, longest = {"a/1": ("m0:0",), "a/3": ("m0:1",)}, {"a/1": ("m0:0",), "a/2": ("m0:1",)}
    assert true_rho(arena, liar, short) < true_rho(arena, liar, longest)  # by the table, 8 hours of work on 2 GPUs: 4 hours
    assert ending_rho(arena, liar, short) == ending_rho(arena, liar, longest) == true_rho(arena, liar, longest)
