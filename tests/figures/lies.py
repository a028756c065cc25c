"""What a lie in one bid gains within its round, over contested rounds of simulated runs, with hidden payments and without.

    python -m tests.figures.lies [--rounds 50] [--policies themis,paper] [--write-docs]

Contested rounds are rare on the real traces, so these are generated: apps of many jobs (w2) and mixed ones at .8 and 1.6 of
what 64 GPUs can take. Each run is audited as `themis audit` does it (`engine.audit`). `paper-rows` bids a row for every
number of GPUs, where bids have 16 numbers else: what a lie gains there is not by rows that the honest bid leaves out.
"""

import io
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.figures.kept import asked, kept, tell
from tests.figures.tables import table
from tests.support.large_auctions import cluster_of
from tests.support.replays import generated
from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.cli.audit import best_of_any, figures
from themis_arbiter.core import bidding
from themis_arbiter.core.misreports import About
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.engine.audit import Gain, Ground, audit_journal
from themis_arbiter.sim.generate import WorkloadSpec
from themis_arbiter.sim.simulate import Inputs, replay

GPUS: Final = 64
SLOWDOWNS: Final = SlowdownModel(by_model={}, default=(1.0, 1.0, 1.1, 1.3))
MIXED: Final[Mapping[str, Any]] = {
    "apps": 60,
    "styles": {"single": 0.7, "parallel": 0.15, "halving": 0.15},
    "gangs": {1: 0.4, 2: 0.2, 4: 0.2, 8: 0.2},
}
MANY: Final[Mapping[str, Any]] = {"workload": "w2", "apps": 20}
SOURCES: Final[Mapping[str, tuple[Mapping[str, Any], float, int]]] = {  # workload, load and seed
    "w2 at 0.8, seed 1": (MANY, 0.8, 1),
    "w2 at 0.8, seed 2": (MANY, 0.8, 2),
    "w2 at 1.6, seed 1": (MANY, 1.6, 1),
    "mixed at 0.8, seed 1": (MIXED, 0.8, 1),
}
SPLITS_MANY: Final = 63  # of one bid; a bid has 64 rows
POLICIES: Final[Mapping[str, tuple[str, int]]] = {
    "themis": ("themis", bidding.SPLITS_MAX),
    "paper": ("paper", bidding.SPLITS_MAX),
    "paper-rows": ("paper", SPLITS_MANY),
}
GROUNDS: Final = (Ground.UNPAID, Ground.PAID, Ground.PAID_REST, Ground.EXACT)

Found = Mapping[str, Any]


def outcome(key: str) -> Found:
    """The audit of the run `policy|source|rounds`: counts, and of each bid and kind of lie what the best lie gains."""
    policy, source, rounds = key.split("|")
    name, splits_max = POLICIES[policy]
    spec, load, seed = SOURCES[source]
    trace = generated(WorkloadSpec(gpus=GPUS, load=load, seed=seed, **spec))
    inputs = Inputs(trace=trace, topology=cluster_of("A"), slowdowns=SLOWDOWNS, settings=Settings(policy=name))
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(bidding, "SPLITS_MAX", splits_max):
        journal = Path(folder) / "journal"
        replay(inputs, io.StringIO(), open_journal=lambda settings: FileJournal(journal, settings))
        audit, replayed = audit_journal(journal, int(rounds), lambda _: None)
    assert replayed.first_difference is None, f"{key}: step {replayed.steps} is decided otherwise in a replay"
    return {
        "rounds": audit.rounds,
        "contested": audit.contested,
        "audited": audit.audited,
        "auctions": audit.auctions,
        "gains": [[g.round_no, g.app_id, g.about, g.ground, g.gain, g.factor, g.open_share] for g in audit.gains],
    }


def gains_of(found: Found) -> list[Gain]:
    """As the audit had them."""
    return [
        Gain(
            round_no=round_no,
            app_id=app_id,
            about=About(about),
            ground=Ground(ground),
            gain=gain,
            factor=factor,
            rho_true=1.0,
            rho_lied=1.0,
            open_share=open_share,
        )
        for round_no, app_id, about, ground, gain, factor, open_share in found["gains"]
    ]


def rows(found: Iterable[tuple[str, Found]]) -> list[list[str]]:
    """A row for each policy, what counts as value, and thing lied about; lies that gain nothing anywhere are left out."""
    by_policy: dict[str, list[list[Gain]]] = {}
    for key, one in found:
        by_policy.setdefault(key.split("|")[0], []).append(gains_of(one))
    out = []
    for policy, runs in by_policy.items():
        for ground in GROUNDS:
            here = [[g for g in run if g.ground is ground] for run in runs]
            kinds = [(str(about), [g for run in here for g in run if g.about is about]) for about in About]
            for lie, gains in (*kinds, ("any", [g for run in here for g in best_of_any(run)])):
                f = figures(gains)
                if f["gaining"] or lie == "any":
                    shares = [f["gaining"] / max(1, f["bids"]), *(f[name] for name in ("mean", "p95", "max"))]
                    out.append([policy, str(ground), lie, str(f["bids"]), *(f"{100 * share:.2f} %" for share in shares)])
    return out


def counts(found: Iterable[tuple[str, Found]]) -> list[list[str]]:
    """How many rounds of which source."""
    out = []
    for key, one in found:
        policy, source, _ = key.split("|")
        out.append([policy, source, *(f"{one[name]:,}" for name in ("rounds", "contested", "audited", "auctions"))])
    return out


HEADER: Final = ("policy", "value is of", "lie about", "bids", "with a gain", "mean", "95 %", "largest")
COUNTS_HEADER: Final = ("policy", "run", "rounds", "contested", "audited", "auctions held")


def main(arguments: Sequence[str]) -> int:
    """Print both tables."""
    given = asked(arguments, name="lies", text=__doc__, count=("rounds", 50), policies=POLICIES, default="themis,paper")
    keys = [f"{policy}|{source}|{given.rounds}" for policy in given.policies for source in SOURCES]
    found = list(kept(given.out / "runs.jsonl", keys, outcome, given.jobs, "runs"))
    tell(given, "lies", table(COUNTS_HEADER, counts(found)) + "\n" + table(HEADER, rows(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
