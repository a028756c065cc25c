"""Laws of the auction, on random small auctions, against a twin that tries every set of GPUs."""

import os
import subprocess
import sys
from dataclasses import replace
from math import ceil, exp
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings

from tests.support.auctions import Auction, seeded_auction, small_auctions
from tests.support.brute_force import accepts, best_welfare, brute_force
from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.auction.payment import Outcome, partial_allocation
from themis_arbiter.core.auction.solver import solve
from themis_arbiter.core.types import GpuId

SEEDS = 2000
CHUNK = 100
TOLERANCE = 1e-9  # of log values: the solver counts in steps of 1e-10


def hold(auction: Auction, nodes_max: int | None = None) -> Outcome:
    if nodes_max is None:
        return partial_allocation(auction.bids, auction.supply, auction.gangs)
    return partial_allocation(auction.bids, auction.supply, auction.gangs, nodes_max=nodes_max)


def check_outcome(auction: Auction, outcome: Outcome) -> None:
    """What holds whatever the budget was."""
    bids = {bid.app_id: bid for bid in auction.bids}
    solution = outcome.solution
    assert [win.app_id for win in solution.wins] == sorted(bids)
    assert solution.welfare == pytest.approx(sum(bids[w.app_id].rows[w.row].log_value for w in solution.wins))
    won: list[GpuId] = []
    for win in solution.wins:
        row = bids[win.app_id].rows[win.row]
        assert set(win.gpus) == {part.job_id for part in row.parts}
        for part in row.parts:
            gpus = win.gpus[part.job_id]
            more = tuple(gpu for gpu in gpus if gpu not in part.keep)
            assert set(part.keep) <= set(gpus)
            assert len(more) == part.more
            assert accepts(part, more, auction.supply)
            won += gpus
    assert len(set(won)) == len(won)
    kept = [gpu for placement in outcome.kept.values() for gpus in placement.values() for gpu in gpus]
    assert sorted((*kept, *outcome.withheld, *outcome.unsold)) == list(auction.supply.gpus)
    assert sorted((*kept, *outcome.withheld)) == sorted(won)
    check_kept(auction, outcome)


def with_holders(auction: Auction, seed: int) -> Auction:
    """The auction with somebody on most of the GPUs: what jobs keep by their bids, and others, bidders or not."""
    chance = Random(seed)
    kept = {g: p.job_id for bid in auction.bids for row in bid.rows for p in row.parts for g in p.keep}
    others = ["out/0", "out/1", "out/2", *(p.job_id for bid in auction.bids for row in bid.rows for p in row.parts)]
    ending = {g: kept.get(g, chance.choice(others)) for g in auction.supply.gpus if g in kept or chance.random() < 0.8}
    return replace(auction, supply=replace(auction.supply, ending=ending))


def put_out(auction: Auction, outcome: Outcome) -> int:
    """GPUs taken from those who win nothing."""
    winner = {g: j for win in outcome.solution.wins for j, gpus in win.gpus.items() for g in gpus}
    ending = auction.supply.ending
    return sum(ending[g] not in winner.values() for g in winner if g in ending)


@pytest.mark.parametrize("first", range(0, SEEDS // 4, CHUNK))
def test_who_runs_where_decides_between_equal_places_only_and_for_those_who_run(first: int) -> None:
    spared = 0
    for seed in range(first, first + CHUNK):
        auction = with_holders(seeded_auction(seed), seed)
        outcome, blind = hold(auction), hold(seeded_auction(seed))
        check_outcome(auction, outcome)
        assert [w.row for w in outcome.solution.wins] == [w.row for w in blind.solution.wins]
        places = auction.supply.topology.locality
        for win, other in zip(outcome.solution.wins, blind.solution.wins, strict=True):
            for job_id, gpus in win.gpus.items():
                assert places(gpus) == places(other.gpus[job_id])
        assert put_out(auction, outcome) <= put_out(auction, blind)
        spared += put_out(auction, blind) - put_out(auction, outcome)
    assert spared > 0


def check_kept(auction: Auction, outcome: Outcome) -> None:
    """Winners keep their share at least, in whole gangs and units, of what they won."""
    rows = {bid.app_id: bid.rows for bid in auction.bids}
    winners = [win for win in outcome.solution.wins if win.row]
    assert [payment.app_id for payment in outcome.payments] == [win.app_id for win in winners] == sorted(outcome.kept)
    for win, payment in zip(winners, outcome.payments, strict=True):
        kept = outcome.kept[win.app_id]
        assert payment.won == sum(map(len, win.gpus.values()))
        assert payment.kept == sum(map(len, kept.values())) >= 1
        assert payment.share_max * payment.won - 1e-6 <= payment.kept <= payment.won
        for part in rows[win.app_id][win.row].parts:
            gpus = kept.get(part.job_id, ())
            assert set(gpus) <= set(win.gpus[part.job_id])
            if gpus and not part.anchor:
                assert len(gpus) >= min(part.gpu_count, auction.gangs[part.job_id])
            if gpus:
                assert (part.gpu_count - len(gpus)) % part.unit == 0
                new = tuple(gpu for gpu in gpus if gpu not in part.keep)
                assert accepts_fewer(part, new, gpus, auction.supply)


def accepts_fewer(part: Part, more: tuple[GpuId, ...], gpus: tuple[GpuId, ...], supply: Supply) -> bool:
    keep = tuple(gpu for gpu in gpus if gpu in part.keep)
    fewer = Part(job_id=part.job_id, keep=keep, more=len(more), unit=part.unit, level=part.level, anchor=part.anchor)
    return accepts(fewer, more, supply)


def check_against_brute_force(auction: Auction) -> None:
    outcome = hold(auction)
    check_outcome(auction, outcome)
    best, without = brute_force(auction.bids, auction.supply)
    assert outcome.solution.gap == 0.0
    assert outcome.solution.welfare == pytest.approx(best, abs=TOLERANCE)
    rows = {bid.app_id: bid.rows for bid in auction.bids}
    values = {win.app_id: rows[win.app_id][win.row].log_value for win in outcome.solution.wins}
    for payment in outcome.payments:
        others = sum(value for app_id, value in values.items() if app_id != payment.app_id)
        assert payment.share == payment.share_max
        assert payment.share == pytest.approx(min(1.0, exp(others - without[payment.app_id])), abs=TOLERANCE)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_winners_and_payments_are_those_of_brute_force(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check_against_brute_force(seeded_auction(seed, gpus_max=12 if seed % 2 == 0 else 9))


@settings(max_examples=60)
@given(small_auctions())
def test_any_small_auction_is_solved_as_by_brute_force(auction: Auction) -> None:
    check_against_brute_force(auction)


@pytest.mark.parametrize("nodes_max", [0, 1, 5, 30])
def test_a_spent_budget_gives_a_valid_allocation_and_bound(nodes_max: int) -> None:
    gaps = 0
    for seed in range(80):
        auction = seeded_auction(seed, gpus_max=9)
        outcome = hold(auction, nodes_max)
        check_outcome(auction, outcome)
        best = best_welfare(auction.bids, auction.supply)
        assert outcome.solution.welfare <= best + TOLERANCE
        assert outcome.solution.bound >= best - TOLERANCE
        gaps += outcome.solution.gap > 0
        exact = {payment.app_id: payment.share for payment in hold(auction).payments}
        if outcome.solution.wins == hold(auction).solution.wins:
            for payment in outcome.payments:
                assert payment.share - TOLERANCE <= exact[payment.app_id] <= payment.share_max + TOLERANCE
    assert gaps > 0 or nodes_max >= 30


def test_a_bracket_is_rounded_in_the_apps_favour() -> None:
    wide = 0
    for seed in (20, 21, 27, 63, 116, 124):
        auction = seeded_auction(seed)
        outcome = hold(auction, nodes_max=0)
        check_outcome(auction, outcome)
        wide += sum(ceil(p.share * p.won) < ceil(p.share_max * p.won - 1e-6) for p in outcome.payments)
    assert wide > 0


def test_more_nodes_never_hurt() -> None:
    for seed in range(60):
        auction = seeded_auction(seed)
        few, many = (solve(auction.bids, auction.supply, nodes_max=n) for n in (3, 3_000))
        assert few.welfare <= many.welfare + TOLERANCE <= few.bound + 2 * TOLERANCE


def test_the_order_of_bids_does_not_matter() -> None:
    for seed in range(100):
        auction = seeded_auction(seed)
        bids = list(auction.bids)
        Random(seed).shuffle(bids)
        shuffled = Auction(tuple(bids), auction.supply, auction.gangs)
        assert hold(shuffled) == hold(auction)


def test_the_scale_of_one_apps_rho_changes_nothing() -> None:
    for seed in range(100):
        auction = seeded_auction(seed)
        liar = Random(seed).randrange(len(auction.bids))
        bids = tuple(
            Bid(app_id=bid.app_id, rows=tuple(Row(parts=r.parts, rho=r.rho * (7.0 if k == liar else 1.0)) for r in bid.rows))
            for k, bid in enumerate(auction.bids)
        )
        scaled, plain = hold(Auction(bids, auction.supply, auction.gangs)), hold(auction)
        assert scaled.solution.wins == plain.solution.wins
        assert scaled.kept == plain.kept
        assert [p.share for p in scaled.payments] == pytest.approx([p.share for p in plain.payments])


def test_random_auctions_are_worth_testing_on() -> None:
    """A generator that made only easy auctions would make every law above hollow."""
    outcomes = [hold(seeded_auction(seed)) for seed in range(100)]
    assert sum(len(outcome.payments) > 1 for outcome in outcomes) > 30
    assert sum(any(p.share < 1 for p in outcome.payments) for outcome in outcomes) > 25
    assert sum(bool(outcome.withheld) for outcome in outcomes) > 3
    assert sum(bool(outcome.unsold) for outcome in outcomes) > 30


PROGRAM = """
from hashlib import sha256
from tests.property.test_auction import hold
from tests.support.auctions import seeded_auction
print(sha256("".join(repr(hold(seeded_auction(seed))) for seed in range(60)).encode()).hexdigest())
"""


def test_hash_seeds_change_nothing() -> None:
    root = Path(__file__).parents[2]
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(digests) == 1
