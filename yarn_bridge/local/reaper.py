"""Ends every process of one local cluster, also when the process that started it was killed.

Containers run in sessions of their own and outlive a NodeManager that is killed, so no process group
and no parent link leads to them. All processes of a cluster carry the cluster's mark in their
environment instead, which children inherit: the mark is how they are found.

Run as a program it is the cluster's watchdog: it reads its standard input, a pipe whose other end
only the harness holds. End of file means that the harness is gone, however it went.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

MARK_VARIABLE: Final = "THEMIS_LOCAL_YARN"
SWEEPS_MAX: Final = 100  # a sweep may race with a fork, so it is repeated until it finds nothing
SWEEP_PAUSE_S: Final = 0.1


def marked_pids(mark: str) -> list[int]:
    """The live processes that carry `mark`, lowest pid first, without the caller."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return sorted(found)


def end_marked(mark: str) -> list[int]:
    """Kills all processes that carry `mark`; answers those that are still there after SWEEPS_MAX tries."""
    for _ in range(SWEEPS_MAX):
        pids = marked_pids(mark)
        if not pids:
            return []
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(SWEEP_PAUSE_S)
    return marked_pids(mark)


def watch(mark: str, scratch: Path | None) -> int:
    """Waits for the harness to go, then ends what it left and removes `scratch`.

    Any byte on the pipe means that the harness has done so itself.
    """
    if sys.stdin.buffer.read(1):
        return 0
    left = end_marked(mark)
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(watch(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None))
