"""Auctions whose rows ask for GPU types, against the twin that tries every set of GPUs."""

from dataclasses import replace
from random import Random

import pytest

from tests.property.test_auction import check_against_brute_force
from tests.support.auctions import Auction, seeded_auction
from themis_arbiter.core.auction.bid import Part
from themis_arbiter.core.topology import Topology

SEEDS = 600
CHUNK = 100
TYPES = ("k80", "p100", "v100")


def typed(seed: int) -> Auction:
    """The random auction of that seed with a type for each machine, and types that most parts ask for."""
    chance, auction = Random(f"{seed}/types"), seeded_auction(seed, gpus_max=10)
    topology = auction.supply.topology
    machines = tuple(replace(m, gpu_type=chance.choice(TYPES).upper()) for m in topology.machines)
    wishes = {p.job_id: chance.choices(TYPES, k=2) for bid in auction.bids for row in bid.rows for p in row.parts}

    def asking(part: Part) -> Part:
        some = wishes[part.job_id][: chance.randint(0, 2)]
        return replace(part, types=tuple(sorted(set(some))))

    bids = tuple(
        replace(bid, rows=tuple(replace(row, parts=tuple(asking(p) for p in row.parts)) for row in bid.rows))
        for bid in auction.bids
    )
    return replace(auction, bids=bids, supply=replace(auction.supply, topology=Topology(machines)))


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_winners_and_payments_are_those_of_brute_force(first: int) -> None:
    asked = 0
    for seed in range(first, first + CHUNK):
        auction = typed(seed)
        asked += sum(bool(p.types) for bid in auction.bids for row in bid.rows for p in row.parts)
        check_against_brute_force(auction)
    assert asked > CHUNK
