"""`make sim`: run seeds of the fault simulation, and say what came of them."""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.simulation.faults.campaign import Tally, run_here, run_twice, to_line
from tests.simulation.faults.world import World

SEEDS_DEFAULT: Final = 10_000
SEED_MAX: Final = 10**9
SEEDS_MAX: Final = 1_000_000  # of one run
JOBS_MAX: Final = 256


def _number(text: str, least: int, most: int) -> int:
    """Errors: ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from {least} to {most}")
    return int(text)


def _seed(text: str) -> int:
    return _number(text, 0, SEED_MAX)


def _jobs(text: str) -> int:
    return _number(text, 1, JOBS_MAX)


def _first(text: str) -> list[int]:
    return list(range(_number(text, 1, SEEDS_MAX)))


def _seeds(text: str) -> list[int]:
    first, dash, last = text.partition("-")
    a, b = _seed(first), _seed(last if dash else first)
    if not a <= b < a + SEEDS_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no A-B with B from A on, {SEEDS_MAX} seeds at most")
    return list(range(a, b + 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0: every claim held."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=_seed, metavar="N", help="one seed, with its story; make's SEED")
    what.add_argument("--count", type=_first, metavar="N", help=f"the first N (default: {SEEDS_DEFAULT}); make's SEEDS")
    what.add_argument("--seeds", type=_seeds, metavar="A-B", help="many, each twice")
    what.add_argument("--worker", type=_seeds, metavar="A-B", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=_jobs, default=2, help="processes at once (default: %(default)s)")
    asked = parser.parse_args(arguments)
    if asked.worker is not None:
        for outcome in run_here(asked.worker):
            print(to_line(outcome), flush=True)
        return 0
    if asked.seed is not None:
        return _tell_story(asked.seed)
    return _run_many(asked.seeds or asked.count or _first(str(SEEDS_DEFAULT)), asked.jobs)


def _tell_story(seed: int) -> int:
    world = World(seed)
    for job in world.plan.jobs:
        print(
            f"{job.job_id} of {job.app_id}: gang {job.gang} of containers with {job.unit}, {job.on_lease_end}, {job.work:g} ms"
        )
    outcome = world.run()
    print("\n".join(world.story))
    tally = run_twice([seed], 2)
    for text in tally.failed.get(seed, []):
        print(f"seed {seed}: {text}", file=sys.stderr)
    if not tally.failed:
        print(f"seed {seed}: every claim held; {outcome.terms} terms in {outcome.ended_ms / 1_000:g} s, twice the same")
    return 1 if tally.failed else 0


def _run_many(seeds: list[int], jobs: int) -> int:
    began_s = time.monotonic()

    def tell(tally: Tally) -> None:
        print(f"{tally.seeds}/{len(seeds)} seeds, {len(tally.failed)} failed, {time.monotonic() - began_s:.0f} s", flush=True)

    tally = run_twice(seeds, jobs, tell)
    print(tally.table())
    print(tally.summary())
    for seed, texts in tally.failed.items():
        for text in texts:
            print(f"seed {seed}: {text}", file=sys.stderr)
        print(f"  reproduce: make sim SEED={seed}", file=sys.stderr)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
