"""GPU time that stood idle although waiting gangs would have used it; places and elastic growth are left aside."""

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from themis_arbiter.sim.sim_jobs import SimulatedJob


class _What(IntEnum):
    """Changes of one instant, in the order in which they count."""

    STOPS = 0
    STARTS = 1
    ARRIVES = 2


def idle_gpu_seconds(jobs: Iterable[SimulatedJob], gpus: int) -> float:
    """GPU-seconds; smaller gangs are thought to be served first."""
    changes: list[tuple[float, _What, int, int, bool]] = []  # time, what, gang, GPUs that run, waits from then on
    for job in jobs:
        gang, runs = job.spec.gang, job.runs
        changes.append((job.spec.arrival_s, _What.ARRIVES, gang, 0, True))
        for k, run in enumerate(runs):
            is_resumed_at_once = k + 1 < len(runs) and runs[k + 1].start_ms <= run.end_ms
            waits_on = k + 1 < len(runs) and not is_resumed_at_once
            was_waiting = k == 0 or runs[k - 1].end_ms < run.start_ms
            changes.append((run.start_ms / 1000.0, _What.STARTS, gang, len(run.gpus), was_waiting))
            changes.append((run.end_ms / 1000.0, _What.STOPS, gang, len(run.gpus), waits_on))
    waiting: Counter[int] = Counter()
    free, idle, now = gpus, 0.0, 0.0
    for at, what, gang, count, flag in sorted(changes):
        if at > now and free > 0:
            idle += (at - now) * (free - _left_by(waiting, free))
        now = max(now, at)
        if what is _What.STARTS:
            free -= count
            waiting[gang] -= flag
        else:
            free += count
            waiting[gang] += flag
    return idle


def _left_by(waiting: Counter[int], free: int) -> int:
    """GPUs that even the waiting gangs could not use."""
    for gang in sorted(g for g, count in waiting.items() if count > 0):
        free -= min(waiting[gang], free // gang) * gang
    return free
