"""The shares file: weights of apps, or of users or queues, which then are split among their apps (contracts.md)."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from themis_arbiter.core.types import AppId
from themis_arbiter.sim.plain_numbers import finite
from themis_arbiter.sim.trace import WEIGHT_MAX, TraceError, TraceJob, check_width, open_table

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
OWNERS: Final = ("app_id", "user", "queue")


def read_shares(path: Path, apps: Mapping[AppId, tuple[TraceJob, ...]]) -> dict[AppId, float]:
    """The weight of every app of the trace, by name: what the file gives, else that of its first row. Errors: TraceError."""
    reader = open_table(path, ("weight",), FILE_BYTES_MAX)
    owners = [column for column in OWNERS if column in (reader.fieldnames or ())]
    if len(owners) != 1:
        raise TraceError(f"{path}: line 1: the header must name one of {', '.join(OWNERS)}, and weight")
    owner = owners[0]
    try:
        given = _given(reader, owner, path)
    except csv.Error as problem:
        raise TraceError(f"{path}: line {reader.line_num}: not CSV: {problem}; put it right") from None
    own = {app_id: _owner(jobs, owner) for app_id, jobs in apps.items()}
    strangers = sorted(set(given) - set(own.values()))
    if strangers:
        raise TraceError(f"{path}: {owner} {strangers[0][:60]!r} has no app in the trace; remove it, or name another trace")
    count: dict[str, int] = {}
    for name in own.values():
        count[name] = count.get(name, 0) + 1
    return {
        app_id: given[own[app_id]] / count[own[app_id]] if own[app_id] in given else jobs[0].weight
        for app_id, jobs in apps.items()
    }


def _given(reader: "csv.DictReader[str]", owner: str, path: Path) -> dict[str, float]:
    given: dict[str, float] = {}
    for row in reader:
        where = f"{path}: line {reader.line_num}"
        surplus = check_width(row)
        if surplus:
            raise TraceError(f"{where}: {surplus}")
        name = (row.get(owner) or "").strip()
        if not name or name in given:
            raise TraceError(f"{where}: column {owner}: {'there already' if name else 'empty'}; write each name once")
        given[name] = _weight(row.get("weight"), where)
    return given


def _owner(jobs: tuple[TraceJob, ...], owner: str) -> str:
    """Who owns an app: what its first row says."""
    first = jobs[0]
    return {"app_id": first.app_id, "user": first.user, "queue": first.queue}[owner]


def _weight(text: str | None, where: str) -> float:
    try:
        value = finite(text or "")
    except ValueError:
        value = math.nan
    if not 0 < value <= WEIGHT_MAX:
        raise TraceError(f"{where}: column weight: {(text or '')[:60]!r} is not a number above 0; write one")
    return value
