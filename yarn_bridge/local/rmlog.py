"""Who ran where and when, read from the ResourceManager's log: the cluster's own word, for black-box tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

STAMP: Final = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) "
ASSIGNED: Final = re.compile(
    STAMP + r".*Assigned container (container_\S+) of capacity <memory:(\d+), vCores:(\d+)([^>]*)> on host ([^:, ]+)"
)
RELEASED: Final = re.compile(STAMP + r".*Released container (container_\S+) of capacity <[^>]*> on host ")
GPUS: Final = re.compile(r"yarn\.io/gpu: (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One container's stay on a node, by the scheduler's books. `end_ms` is None while it stays."""

    container_id: str
    host: str
    gpus: int
    memory_mb: int
    start_ms: int
    end_ms: int | None = None


def container_runs(lines: Iterable[str]) -> list[ContainerRun]:
    """The stays in order of their start. Times are milliseconds since 1970, UTC.

    A restarted ResourceManager assigns recovered containers once more; that continues the stay.
    """
    runs: dict[str, ContainerRun] = {}
    for line in lines:
        if found := ASSIGNED.match(line):
            stamp, container_id, memory, _, rest, host = found.groups()
            gpus = GPUS.search(rest)
            fresh = ContainerRun(
                container_id=container_id,
                host=host,
                gpus=int(gpus[1]) if gpus else 0,
                memory_mb=int(memory),
                start_ms=_millis(stamp),
            )
            runs.setdefault(container_id, fresh)
        elif (found := RELEASED.match(line)) and found[2] in runs:
            runs[found[2]] = replace(runs[found[2]], end_ms=_millis(found[1]))
    return list(runs.values())


def _millis(stamp: str) -> int:
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
