"""`make chaos`: the campaign.

    python -m tests.chaos [--only bridge-kill,rm-stop,fall-back] [--count 10] [--stop-s 30] [--seed N] [--dir DIR]
    python -m tests.chaos --arbiters 3 --only arbiter-kill --count 50

Exit status 0 where no promise was broken, 1 where one was, 2 for wrong use. DIR holds chaos.json, chaos.txt and all logs.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos import ensemble, fallback, report
from tests.chaos.campaign import Campaign, Record
from tests.chaos.faults import OF_ENSEMBLES, SCENARIOS
from tests.chaos.stage import ChaosError, Stage
from themis_arbiter.cli.local_run import ends_on_signals
from yarn_bridge.local import LocalYarnError

ALL: Final = (*SCENARIOS, fallback.SCENARIO)
ALONE: Final = tuple(name for name in ALL if name not in OF_ENSEMBLES)  # of one arbiter with a store of its own
TOGETHER: Final = SCENARIOS  # of several on a ZooKeeper ensemble
FALLBACK_AFTER_MS: Final = 240_000  # longer than any stop
FALLBACKS: Final = 3  # of a default campaign: they cost a minute each
COUNT: Final = 10
STOP_S: Final = 30.0
ARBITERS_MAX: Final = 5


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Kill and stop the parts of a live system, and judge.")
    parser.add_argument("--only", default="", help=f"of {', '.join(ALL)}, with commas between; without: all that apply")
    parser.add_argument("--arbiters", type=int, default=1, help="several: on a ZooKeeper ensemble, and the leader is hit")
    parser.add_argument("--count", type=int, default=COUNT, help="faults of each scenario")
    parser.add_argument("--fallbacks", type=int, default=FALLBACKS, help=f"faults of {fallback.SCENARIO}")
    parser.add_argument("--stop-s", type=float, default=STOP_S, help="how long a stop lasts")
    parser.add_argument("--seed", type=int, default=None, help="without: one from the clock, which is printed")
    parser.add_argument("--start-at", type=int, default=1, help="place in the seed's order to begin at (1: all of it)")
    parser.add_argument("--dir", type=Path, default=None, help="folder of the run; without: a new one in .run")
    parsed = parser.parse_args(given)
    known = ALONE if parsed.arbiters == 1 else TOGETHER
    parsed.only = tuple(name.strip() for name in parsed.only.split(",") if name.strip()) or known
    unknown = [name for name in parsed.only if name not in known]
    if unknown or parsed.count < 1 or parsed.stop_s <= 0 or not 1 <= parsed.arbiters <= ARBITERS_MAX:
        many = f"1 to {ARBITERS_MAX} arbiters, a count and a length above 0"
        parser.error(f"not with --arbiters {parsed.arbiters}: {', '.join(unknown)}" if unknown else f"give {many}")
    return parsed


def run(given: argparse.Namespace) -> int:
    """A whole campaign; the exit status. What is known so far is written after every fault, and whatever ends the campaign."""
    seed = given.seed if given.seed is not None else time.time_ns() % 1_000_000
    run_dir = (given.dir or Path(".run") / f"chaos-{time.strftime('%Y%m%dT%H%M%S')}").absolute()
    run_dir.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    records: list[Record] = []
    closing: list[str] = []

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.0f} s  {text}", flush=True)

    def write() -> str:
        facts = report.Facts(seed=seed, stop_s=given.stop_s, wall_s=round(time.monotonic() - began_s, 1), run_dir=run_dir)
        leaderless = ensemble.leaderless(records, stage.journals()) if given.arbiters > 1 else {}
        return report.write(facts, records, closing, leaderless, ensemble.SESSION_MS)

    tell(f"seed {seed}, run {run_dir}")
    stage = (
        Stage(run_dir, fallback_after_ms=FALLBACK_AFTER_MS)
        if given.arbiters == 1
        else ensemble.Ensemble(run_dir, given.arbiters, fallback_after_ms=FALLBACK_AFTER_MS)
    )
    try:
        stage.start()
        campaign = Campaign(stage, seed, given.stop_s, tell)
        campaign.work.submit_all()
        tell("four apps submitted")
        try:
            for record in _faults(campaign, given):
                records.append(record)
                _tell(campaign, record)
                write()
        except (ChaosError, LocalYarnError, OSError) as err:
            closing.append(f"the campaign broke off: {err}")
        closing += [*campaign.checks(), *campaign.closing()]
    except KeyboardInterrupt as err:
        closing.append(f"the campaign was ended by {str(err) or 'a signal'}")
        raise
    finally:
        stage.stop()
        text = write()
    print(text)
    return 1 if closing or any(r.violations for r in records) else 0


def _faults(campaign: Campaign, given: argparse.Namespace) -> Iterator[Record]:
    plan = campaign.plan([name for name in given.only if name in SCENARIOS], given.count)
    for place, fault in enumerate(plan, start=1):
        if place >= given.start_at:
            campaign.tell(f"{place} of {len(plan)}: {fault.scenario} {fault.number + 1}")
            yield campaign.one(fault)
    if fallback.SCENARIO in given.only:
        fallback.prepare(campaign)
        for number in range(given.fallbacks):
            campaign.tell(f"{fallback.SCENARIO} {number + 1} of {given.fallbacks}")
            yield fallback.one(campaign, number)
        campaign.await_ready()  # the app that was submitted anew too


def _tell(campaign: Campaign, record: Record) -> None:
    on = f"{record.apps_running} apps on {record.gpus_running} GPUs"
    campaign.tell(f"  {on}; settled {record.settle_s:.1f} s, ask served {record.ask_s:.1f} s after it was over")
    for line in record.notes:
        campaign.tell(f"  {line}")
    for line in record.violations:
        campaign.tell(f"  VIOLATED {line}")


def main() -> int:
    """Run the command line; the exit status."""
    given = arguments()
    try:
        with ends_on_signals():
            return run(given)
    except KeyboardInterrupt as err:
        print(f"chaos: ended by {str(err) or 'a signal'}; everything was stopped", file=sys.stderr)
    return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
