"""Who ran where and when, as the judge wants it, from the ResourceManager's log."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from themis_arbiter.core.types import Millis
from themis_arbiter.sim.run_facts import ContainerStay
from yarn_bridge.local import ContainerRun, container_runs

MOVED: Final = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*RMContainerImpl: (container_\S+) Container Transitioned from \w+ to (\w+)"
)
OVER: Final = frozenset({"COMPLETED", "EXPIRED", "RELEASED", "KILLED"})
CONTAINER: Final = re.compile(r"container_(?:e\d+_)?(\d+)_(\d+)_\d+_\d+")


def read_stays(rm_log: Path) -> list[ContainerStay]:
    """Every container of `rm_log` that held GPUs. Errors: OSError, ValueError for a name that is no container's."""
    with rm_log.open(errors="replace") as lines:
        runs = [run for run in container_runs(lines) if run.gpus]
    with rm_log.open(errors="replace") as lines:
        running, over = transitions(lines)
    return [_stay(run, running.get(run.container_id), over.get(run.container_id)) for run in runs]


def transitions(lines: Iterable[str]) -> tuple[dict[str, Millis], dict[str, Millis]]:
    """When each container was first seen running, and when it was over for its application; ms since 1970."""
    running: dict[str, Millis] = {}
    over: dict[str, Millis] = {}
    for line in lines:
        if match := MOVED.match(line):
            book = running if match[3] == "RUNNING" else over if match[3] in OVER else None
            if book is not None:
                moment = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                book.setdefault(match[2], round(moment.timestamp() * 1_000))
    return running, over


def application_of(container_id: str) -> str:
    """The application that a container belongs to. Errors: ValueError."""
    match = CONTAINER.fullmatch(container_id)
    if match is None:
        raise ValueError(f"{container_id!r} is no container's id")
    return f"application_{match[1]}_{match[2]}"


def _stay(run: ContainerRun, ran_ms: Millis | None, over_ms: Millis | None) -> ContainerStay:
    return ContainerStay(
        container_id=run.container_id,
        job_id=application_of(run.container_id),
        node=run.host,
        gpus=run.gpus,
        allocated_ms=run.start_ms,
        running_ms=ran_ms,
        released_ms=over_ms,
        ended_ms=run.end_ms,
    )
