"""`make sim`: run seeds of the fault simulation, and say what came of them."""

import argparse
import sys
import time

from tests.simulation.faults.campaign import Tally, run_here, run_twice, to_line
from tests.simulation.faults.world import World


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Exit status 0: every claim held."""
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="one seed, with its story")
    what.add_argument("--seeds", type=_seeds, metavar="A-B", help="many, each twice")
    what.add_argument("--worker", type=_seeds, metavar="A-B", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default: %(default)s)")
    asked = parser.parse_args()
    if asked.worker is not None:
        for outcome in run_here(asked.worker):
            print(to_line(outcome), flush=True)
        return 0
    if asked.seed is not None:
        return _tell_story(asked.seed)
    return _run_many(asked.seeds, asked.jobs)


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
