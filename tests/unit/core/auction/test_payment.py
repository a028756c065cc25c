"""Hidden payments: what is proved about them, and what rounding to whole gangs makes of them."""

import pytest

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply, Win
from themis_arbiter.core.auction.payment import keep_share, partial_allocation
from themis_arbiter.core.settings import Rounding
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, JobId, Locality

TOPOLOGY = Topology(tuple(Machine(name=f"m{k}", rack="r", gpus=4) for k in range(1, 4)))


def linear_bid(app: str, gpus: int) -> Bid:
    """An app of one job that is k times as fast on k GPUs, on any number of them."""
    rows = (Row(parts=(Part(job_id=f"{app}/j", more=k),), rho=1 / k) for k in range(1, gpus + 1))
    return Bid(app_id=app, rows=(Row(parts=(), rho=1000.0), *rows))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_identical_linear_bidders_keep_the_share_that_the_paper_proves(n: int) -> None:
    gpus = n * (n - 1)  # so that everybody's share is whole with and without each
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places))[:gpus])
    outcome = partial_allocation(tuple(linear_bid(f"a{k}", gpus) for k in range(n)), supply, {})
    for payment in outcome.payments:
        assert payment.won == n - 1
        assert payment.share == payment.share_max == pytest.approx(((n - 1) / n) ** (n - 1), abs=1e-9)
    assert len(outcome.payments) == n


def test_a_lone_bidder_pays_nothing() -> None:
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places)))
    outcome = partial_allocation((linear_bid("a", 12),), supply, {})
    assert [(p.share, p.won, p.kept) for p in outcome.payments] == [(1.0, 12, 12)]
    assert outcome.withheld == outcome.unsold == ()


def test_without_payments_winners_keep_all() -> None:
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places)))
    bids = tuple(linear_bid(f"a{k}", 12) for k in range(3))
    free = partial_allocation(bids, supply, {}, payments=False)
    assert free.withheld == ()
    assert [(p.share, p.kept) for p in free.payments] == [(1.0, 4)] * 3
    paid = partial_allocation(bids, supply, {})
    assert paid.solution == free.solution
    assert len(paid.withheld) == 12 - sum(p.kept for p in paid.payments) == 6


def test_one_gang_cannot_pay() -> None:
    """Both gangs cost each other dearly, and still neither is cut below what it runs on."""
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places))[:4])
    outcome = partial_allocation(tuple(linear_bid(f"a{k}", 4) for k in range(2)), supply, {"a0/j": 2, "a1/j": 2})
    assert [(p.share < 1, p.kept) for p in outcome.payments] == [(True, 2)] * 2


def test_shares_are_rounded_down_or_by_lot_where_that_is_asked_for() -> None:
    """Three alike on 12 GPUs win four each and keep 4/9 of that in the paper: 1.78 GPUs, of jobs that run on any number."""
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places)))
    bids = tuple(linear_bid(f"a{k}", 12) for k in range(3))

    def kept(rounding: Rounding, lot: str = "") -> list[int]:
        payments = partial_allocation(bids, supply, {}, rounding=rounding, lot=lot).payments
        assert all(p.share * p.won == pytest.approx(16 / 9, abs=1e-6) for p in payments)
        return [p.kept for p in payments]

    assert kept(Rounding.UP) == [2, 2, 2]
    assert kept(Rounding.DOWN) == [1, 1, 1]
    draws = [count for k in range(200) for count in kept(Rounding.LOTTERY, str(k))]
    assert set(draws) == {1, 2}
    assert sum(draws) / len(draws) == pytest.approx(16 / 9, abs=0.08)
    assert kept(Rounding.LOTTERY, "7") == kept(Rounding.LOTTERY, "7")


def test_a_gang_that_is_rounded_down_may_leave_with_nothing() -> None:
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places))[:4])
    outcome = partial_allocation(
        tuple(linear_bid(f"a{k}", 4) for k in range(2)), supply, {"a0/j": 2, "a1/j": 2}, rounding=Rounding.DOWN
    )
    assert [p.kept for p in outcome.payments] == [0, 0]
    assert len(outcome.withheld) == 4


def machine_bid(k: int) -> Bid:
    parts = [Part(job_id=f"a{k}/j", more=more, level=Locality.MACHINE) for more in (2, 3, 4)]
    rows = (Row(parts=(one,), rho=9.0 / (one.more + k)) for one in parts)
    return Bid(app_id=f"a{k}", rows=(Row(parts=(), rho=9.0), *rows))


def test_a_rival_optimum_that_is_not_proved_leaves_a_bracket() -> None:
    supply = Supply(TOPOLOGY, tuple(sorted(TOPOLOGY.places)))
    bids = tuple(machine_bid(k) for k in range(1, 6))
    rough = partial_allocation(bids, supply, {}, nodes_max=0).payments
    assert any(0 < p.share < p.share_max < 1 for p in rough)
    exact = partial_allocation(bids, supply, {}).payments
    assert len(exact) == 5
    assert all(0 < p.share == p.share_max < 1 for p in exact)


def gpus(machine: str, count: int) -> tuple[GpuId, ...]:
    return tuple(f"{machine}:{k}" for k in range(count))


def kept_sizes(
    parts: tuple[Part, ...], won: dict[JobId, tuple[GpuId, ...]], target: int, gangs: dict[JobId, int]
) -> dict[str, int]:
    win = Win(app_id="a", row=1, gpus=won)
    return {job: len(kept) for job, kept in keep_share(parts, win, target, gangs, TOPOLOGY).items()}


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        (8, {"j": 4, "k": 4}),
        (7, {"j": 3, "k": 4}),
        (6, {"j": 2, "k": 4}),
        (5, {"j": 2, "k": 4}),
        (4, {"j": 4}),
        (3, {"j": 3}),
        (1, {"j": 2}),
    ],
)
def test_jobs_go_before_growth_and_gangs_stay_whole(target: int, kept: dict[str, int]) -> None:
    parts = (Part(job_id="j", more=4), Part(job_id="k", more=4))
    won = {"j": gpus("m1", 4), "k": gpus("m2", 4)}
    assert kept_sizes(parts, won, target, {"j": 2, "k": 4}) == kept


def test_an_earlier_job_goes_where_the_last_is_too_large_to_go() -> None:
    parts = (Part(job_id="j", more=2), Part(job_id="k", more=4))
    won = {"j": gpus("m1", 2), "k": gpus("m2", 4)}
    assert kept_sizes(parts, won, 4, {"j": 2, "k": 4}) == {"k": 4}


def test_growth_is_cut_in_whole_units() -> None:
    parts = (Part(job_id="j", more=4, unit=2),)
    assert kept_sizes(parts, {"j": gpus("m1", 4)}, 3, {"j": 2}) == {"j": 4}
    assert kept_sizes(parts, {"j": gpus("m1", 4)}, 2, {"j": 2}) == {"j": 2}


def test_a_job_that_runs_elsewhere_may_go_back_to_that() -> None:
    grown = Part(job_id="j", more=4, anchor=gpus("m1", 2))
    fresh = Part(job_id="k", more=2)
    won = {"j": gpus("m2", 4), "k": gpus("m3", 2)}
    assert kept_sizes((grown, fresh), won, 4, {"j": 2, "k": 2}) == {"j": 4}
    assert kept_sizes((fresh, grown), won, 2, {"j": 2, "k": 2}) == {"k": 2}
    assert kept_sizes((grown,), {"j": won["j"]}, 1, {"j": 2}) == {"j": 1}


@pytest.mark.parametrize(("target", "kept"), [(4, 4), (3, 3), (2, 3), (1, 3)])
def test_what_a_job_has_elsewhere_may_be_less_than_its_gang(target: int, kept: int) -> None:
    """It holds one GPU whose lease ends later: of a gang of four it needs three more (a replay ended on that)."""
    part = Part(job_id="j", more=4, anchor=gpus("m1", 1))
    assert kept_sizes((part,), {"j": gpus("m2", 4)}, target, {"j": 4}) == {"j": kept}


def test_what_the_job_holds_and_where_it_has_most_is_kept() -> None:
    part = Part(job_id="j", keep=("m1:0", "m1:1"), more=4)
    won = {"j": ("m1:0", "m1:1", "m2:0", "m3:0", "m3:1", "m3:2")}
    for target, kept in ((5, ("m1:0", "m1:1", "m3:0", "m3:1", "m3:2")), (3, ("m1:0", "m1:1", "m3:0"))):
        win = Win(app_id="a", row=1, gpus=won)
        assert keep_share((part,), win, target, {"j": 2}, TOPOLOGY) == {"j": kept}
