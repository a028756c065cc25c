"""The auctions that are measured: generated ones of every size, and rounds recorded from simulated runs."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.auctions import Auction
from tests.support.large_auctions import cluster_of, large_auction
from tests.support.recorded import read_round
from tests.support.replays import Records, generated
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.generate import WorkloadSpec
from themis_arbiter.sim.simulate import Inputs, replay

# Size, bidders, instances (seeds from 0); each at both shares of the GPUs on offer.
SIZES: Final = (("A", 8, 10), ("B", 17, 8), ("B", 85, 5), ("C", 100, 3), ("C", 500, 3), ("D", 500, 2), ("D", 1000, 2))
SHARES: Final = (0.1, 1.0)
LP_ONLY: Final = "D"  # other solvers find nothing there within any limit worth waiting for: their bound alone
ROUNDS_MAX: Final = 8  # of a recorded run, evenly among those with bids of at least two apps, the one with most rows first
QUICK: Final = 2  # sizes, instances of each and rounds of a quick run

GANGS: Final = {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.2}
SLOWDOWNS: Final = SlowdownModel(by_model={}, default=(1.0, 1.0, 1.1, 1.3))


@dataclass(frozen=True)
class Case:
    """Auctions of one kind. `has_others`: whether other solvers solve them as well, not only bound them."""

    name: str
    count: int
    auctions: Callable[[], Iterator[Auction]]
    has_others: bool = True


def cases(is_quick: bool) -> list[Case]:
    """All of them, small ones first."""
    found = []
    for size, bidders, instances in SIZES[: QUICK if is_quick else None]:
        count = min(instances, QUICK) if is_quick else instances
        for share in SHARES:
            name = f"{size}-{bidders} {share:.0%}"
            found.append(Case(name, count, _generated(size, bidders, share, count), size != LP_ONLY))
    rounds = QUICK if is_quick else ROUNDS_MAX
    single = WorkloadSpec(apps=40, gpus=64, load=1.6, seed=1, styles={"single": 1.0}, gangs=GANGS)
    tuning = WorkloadSpec(apps=5, gpus=64, load=1.6, seed=1)
    found.append(Case("recorded, gangs", rounds, _recorded(single, rounds)))
    if not is_quick:
        found.append(Case("recorded, tuning", rounds, _recorded(tuning, rounds)))
    return found


def _generated(size: str, bidders: int, share: float, count: int) -> Callable[[], Iterator[Auction]]:
    def auctions() -> Iterator[Auction]:
        for seed in range(count):
            yield large_auction(size, bidders, share, seed)

    return auctions


def _recorded(spec: WorkloadSpec, count: int) -> Callable[[], Iterator[Auction]]:
    """Rounds of a run of the workload on the machines of A under `paper`, where everybody bids."""

    def auctions() -> Iterator[Auction]:
        told = Records()
        inputs = Inputs(
            trace=generated(spec),
            topology=cluster_of("A"),
            slowdowns=SLOWDOWNS,
            settings=Settings(policy="paper", fairness_knob=0.0),
        )
        replay(inputs, io.StringIO(), open_journal=lambda _: told)
        contested = [record for record in told.records if len(record["bids"]) > 1]
        contested.sort(key=lambda record: -sum(len(bid["rows"]) for bid in record["bids"]))
        for k in range(min(count, len(contested))):
            one = read_round(contested[k * len(contested) // count])
            yield Auction(one.bids, one.supply, one.gangs)

    return auctions
