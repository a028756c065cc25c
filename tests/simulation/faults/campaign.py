"""Many seeds, each twice: in processes with different hash seeds, whose journals have to be equal; and the table of it all."""

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tests.simulation.faults.plan import DEEDS, FAULTS
from tests.simulation.faults.watch import Broken
from tests.simulation.faults.world import Outcome, World

BATCH: Final = 50  # seeds of one process
HASH_SEEDS: Final = ("0", "4242")
REPOSITORY: Final = Path(__file__).parents[3]
SECONDS_MAX: Final = 1_800  # of one batch


@dataclass
class Tally:
    """What came of many seeds."""

    seeds: int = 0
    overlapped: int = 0
    terms: int = 0
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        """One more seed."""
        self.seeds += 1
        self.overlapped += outcome.overlapped
        self.terms += outcome.terms
        self.fired.update(outcome.fired)
        self.seen.update(outcome.seen)
        if outcome.broken:
            self.failed[outcome.seed] = [f"at {one.at_ms}: {one.claim}: {one.text}" for one in outcome.broken[:3]]

    def table(self) -> str:
        """How often each fault came at each kind of deed."""
        lines = [f"{'fault':<14}" + "".join(f"{deed:>10}" for deed in DEEDS)]
        lines += [f"{kind:<14}" + "".join(f"{self.fired[kind, deed]:>10}" for deed in DEEDS) for kind in FAULTS]
        return "\n".join(lines)

    def summary(self) -> str:
        """In a few lines."""
        least = min(self.fired[kind, deed] for kind in FAULTS for deed in DEEDS)
        share = self.overlapped / max(1, self.seeds)
        checks = ", ".join(f"{claim} {count}" for claim, count in sorted(self.seen.items()))
        return (
            f"{self.seeds} seeds, {self.terms} terms of leaders, {self.fired.total()} faults, the rarest pair {least} times; "
            f"faults overlap in {share:.0%} of the seeds\nlooked at: {checks}\n{len(self.failed)} seeds failed"
        )


def run_here(seeds: Sequence[int]) -> Iterator[Outcome]:
    """Run seeds in this process."""
    logging.disable(logging.CRITICAL)  # faults make the product complain, as it should
    try:
        for seed in seeds:
            yield World(seed).run()
    finally:
        logging.disable(logging.NOTSET)


def to_line(outcome: Outcome) -> str:
    """As a line of JSON."""
    plain = {f.name: getattr(outcome, f.name) for f in fields(outcome)}
    plain["broken"] = [asdict(one) for one in outcome.broken]
    plain["fired"] = [[kind, deed, count] for (kind, deed), count in sorted(outcome.fired.items())]
    return json.dumps(plain)


def from_line(line: str) -> Outcome:
    """Of `to_line`'s."""
    plain: dict[str, Any] = json.loads(line)
    plain["fired"] = Counter({(kind, deed): count for kind, deed, count in plain["fired"]})
    plain["broken"] = [Broken(**one) for one in plain["broken"]]
    plain["seen"] = Counter(plain["seen"])
    return Outcome(**plain)


def run_elsewhere(seeds: Sequence[int], hash_seed: str) -> list[Outcome]:
    """Run seeds in a process of their own. Errors: RuntimeError where it fails."""
    command = [sys.executable, "-m", "tests.simulation.faults", "--worker", f"{seeds[0]}-{seeds[-1]}"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    if done.returncode != 0:
        raise RuntimeError(f"seeds {seeds[0]}-{seeds[-1]}: {done.stderr[-2_000:]}")
    return [from_line(line) for line in done.stdout.splitlines()]


def run_twice(seeds: Sequence[int], jobs: int, tell: Callable[[Tally], None] = lambda _tally: None) -> Tally:
    """Run seeds in batches, each twice; `tell` is called after each batch. Errors: RuntimeError."""
    tally = Tally()
    batches = [seeds[k : k + BATCH] for k in range(0, len(seeds), BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        under = [[pool.submit(run_elsewhere, batch, hash_seed) for hash_seed in HASH_SEEDS] for batch in batches]
        for first, second in under:
            for one, other in zip(first.result(), second.result(), strict=True):
                tally.add(one)
                if one.digest != other.digest:
                    tally.failed.setdefault(one.seed, []).append("its journals differ under another PYTHONHASHSEED")
            tell(tally)
    return tally
