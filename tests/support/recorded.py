"""Recorded rounds, read back as auctions: for checks by brute force that trust nothing but the record itself."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

from tests.support.brute_force import brute_force
from themis_arbiter.core.auction.bid import Bid, Supply
from themis_arbiter.core.codec import from_plain
from themis_arbiter.core.topology import Machine, Topology

TOLERANCE = 1e-9


@dataclass(frozen=True)
class RecordedRound:
    """One round: its record, and the auction that it was about."""

    record: Mapping[str, Any]
    bids: tuple[Bid, ...]
    supply: Supply

    @property
    def gangs(self) -> dict[str, int]:
        """Each bidding job's fewest GPUs, by its bid: what its smallest row would bring it to."""
        found: dict[str, int] = {}
        for bid in self.bids:
            for row in bid.rows[1:]:
                for part in row.parts:
                    total = part.gpu_count + len(part.anchor)
                    found[part.job_id] = min(found.get(part.job_id, total), total)
        return found


def recorded_rounds(journal: Path) -> Iterator[RecordedRound]:
    """All rounds of a journal, in order."""
    with journal.open(encoding="utf-8") as lines:
        for line in lines:
            for effect in json.loads(line).get("effects", ()):
                if effect["type"] == "RoundClosed":
                    yield read_round(effect["record"])


def read_round(record: Mapping[str, Any]) -> RecordedRound:
    """A record as an auction."""
    machines = [
        Machine(name=name, rack=rack, gpus=gpus, gpus_per_slot=slot) for name, (rack, gpus, slot) in record["machines"].items()
    ]
    supply = Supply(Topology(tuple(machines)), tuple(record["offered"]), record["room"], record["ending"])
    return RecordedRound(record, tuple(from_plain(Bid, b) for b in record["bids"]), supply)


def faults(one: RecordedRound) -> list[str]:
    """What in the record does not agree with a brute-force solution of its own bids. Empty: it is right."""
    record, out = one.record, []
    best, without = brute_force(one.bids, one.supply)
    if abs(best - record["welfare"]) > TOLERANCE or record["bound"] < best - TOLERANCE:
        out.append(f"welfare {record['welfare']} (bound {record['bound']}), by brute force {best}")
    rho_won = {w["app_id"]: w["rho"] for w in record["wins"]}
    if abs(sum(-log(r) for r in rho_won.values()) - record["welfare"]) > TOLERANCE:
        out.append("the winners' rho do not make the welfare")
    for payment in record["payments"]:
        others = sum(-log(r) for app, r in rho_won.items() if app != payment["app_id"])
        exact = min(1.0, exp(others - without[payment["app_id"]])) if record["has_payments"] else 1.0
        if not payment["share"] - TOLERANCE <= exact <= payment["share_max"] + TOLERANCE:
            out.append(f"c of {payment['app_id']} is {payment['share']}..{payment['share_max']}, by brute force {exact}")
        if payment["kept"] < min(payment["won"], exact * payment["won"]) - TOLERANCE:
            out.append(f"{payment['app_id']} keeps {payment['kept']} of {payment['won']}, less than c = {exact}")
    return out + _books_faults(record)


def _books_faults(record: Mapping[str, Any]) -> list[str]:
    """Offered = kept + withheld + unsold, and leftovers + unused = withheld + unsold, each GPU once."""

    def gpus_of(placements: Mapping[str, Mapping[str, list[str]]]) -> list[str]:
        return [g for placement in placements.values() for gpus in placement.values() for g in gpus]

    out = []
    if sorted([*gpus_of(record["kept"]), *record["withheld"], *record["unsold"]]) != sorted(record["offered"]):
        out.append("kept + withheld + unsold is not what was offered")
    if sorted([*gpus_of(record["leftovers"]), *record["unused"]]) != sorted([*record["withheld"], *record["unsold"]]):
        out.append("leftovers + unused is not withheld + unsold")
    return out


def are_in_order(rounds: list[RecordedRound]) -> bool:
    """Round numbers rise by one, times do not fall."""
    return all(
        b.record["round"] == a.record["round"] + 1 and b.record["at_ms"] >= a.record["at_ms"] for a, b in pairwise(rounds)
    )
