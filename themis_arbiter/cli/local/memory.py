"""Memory of a process and all that it started, sampled."""

import os
import threading
from pathlib import Path
from typing import Final

SAMPLE_S: Final = 1.0
PROCESSES_MAX: Final = 100_000


def resident_tree_mb(root: int) -> int:
    """Resident memory of process `root` and its descendants in MB; pages that they share count for each."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in list(Path("/proc").iterdir())[:PROCESSES_MAX]:
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold anything; the fields after it start with the state and the parent.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it has ended meanwhile
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        total += pages.get(pid, 0)
        todo += children.get(pid, [])
    return total * os.sysconf("SC_PAGE_SIZE") // 1_048_576


class PeakMemory:
    """Samples this process and its descendants every SAMPLE_S until `stop`."""

    def __init__(self) -> None:
        self.peak_mb = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak-memory", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The largest sample, MB."""
        self._done.set()
        self._thread.join()
        return self.peak_mb

    def _run(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, resident_tree_mb(os.getpid()))
            if self._done.wait(SAMPLE_S):
                return
