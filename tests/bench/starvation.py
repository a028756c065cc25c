"""`python -m tests.bench.starvation [SEEDS]`: leases until gangs of 8 and 32 are served beside a stream of small bids."""

import sys
from collections.abc import Mapping
from typing import Any, Final

from tests.support.streams import GANGS, Stream, Waited, waits

STREAMS: Final = {
    "64 GPUs, load 1.1": Stream(gpus=64, load=1.1, hours=4.0),
    "32 GPUs, load 1": Stream(gpus=32, load=1.0, hours=4.0),
}
RULES: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    ("guard", "guard", {}),
    ("themis", "themis", {}),
    ("themis, nobody starves", "themis", {"starving_above": 1e9}),
    ("paper (f = .8)", "paper", {}),
    ("paper, all bid (f = 0)", "paper", {"fairness_knob": 0.0}),
    ("... aging 1", "paper", {"fairness_knob": 0.0, "paper.aging": 1.0}),
    ("... aging 2", "paper", {"fairness_knob": 0.0, "paper.aging": 2.0}),
    ("... aging 3", "paper", {"fairness_knob": 0.0, "paper.aging": 3.0}),
)


def main(seeds: int) -> None:
    """Print the table, row by row as it is known."""
    for title, stream in STREAMS.items():
        print(f"\n| {title} | gang of 8: leases | gang of 32: leases | largest rho of either | of small apps |")
        print("|---|---|---|---|---|")
        for name, policy, sets in RULES:
            found = [waits(stream, policy, seed, sets) for seed in range(1, seeds + 1)]
            cells = [_leases([f[n] for f in found]) for n in GANGS]
            gangs = max(f[n].rho for f in found for n in GANGS)
            small = max(f[n].small_max_rho for f in found for n in GANGS)
            print(f"| {name} | {cells[0]} | {cells[1]} | {gangs:.2f} | {small:.2f} |", flush=True)
        paid = [waits(stream, "fifo", seed, {}) for seed in range(1, seeds + 1)]
        shares = [", ".join(f"{f[n].paid_after:.0f}" for f in paid) for n in GANGS]
        print(f"| its ideal share would be done after | {shares[0]} | {shares[1]} | | |", flush=True)


def _leases(waited: list[Waited]) -> str:
    return ", ".join(f"{w.leases:.0f}" for w in waited)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
