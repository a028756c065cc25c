"""`themis compare`: several policies on one input, a process each, as many at once as there are processors."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.simulation import Loaded, Request, Tell, processors, simulate, with_policy

PROCESSES_MAX: Final = 16


def compare(
    request: Request, loaded: Loaded, policies: Sequence[str], out: Path, tell: Tell | None
) -> dict[str, dict[str, Any]]:
    """Simulate `policies`, each into `out`/<policy>; summaries in the order asked for. Errors: those of `simulate`."""
    count = min(len(policies), processors(), PROCESSES_MAX)
    done: dict[str, dict[str, Any]] = {}
    # Started anew, not forked: a fork would carry threads' locks along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=count, mp_context=context) as pool:
        futures = {pool.submit(simulate, with_policy(request, p), loaded, out / p): p for p in policies}
        for future in as_completed(futures):
            policy = futures[future]
            done[policy] = future.result()
            if tell is not None:
                tell(f"{policy}: done in {done[policy]['wall_s']:.0f} s")
    return {policy: done[policy] for policy in policies}
