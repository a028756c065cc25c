"""Tables for people. Names are escaped, and nothing is wrapped or cut where the output is not a terminal."""

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import IO, Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.obs.labels import visible

PIPED_WIDTH: Final = 10_000  # columns; a line in a pipe is as long as its text
NOTHING: Final = "-"
VALUED: Final = frozenset({"set-weight", "observe-only"})  # verbs whose value says something


def print_table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], out: TextIO | None = None) -> None:
    """Print `rows` under `columns`, each a title and whether it holds numbers."""
    stream = out if out is not None else sys.stdout
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title, is_number in columns:
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if stream.isatty():
        _console(stream, None).print(table)
        return
    # Rich fills every line up to its columns' ends; whoever reads a pipe wants none of that.
    text = io.StringIO()
    _console(text, PIPED_WIDTH).print(table)
    stream.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines()))


def _console(stream: IO[str], width: int | None) -> Console:
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def seconds(milliseconds: float) -> str:
    """A duration for people: 45s, 3m10s, 2h05m."""
    whole = round(abs(milliseconds) / 1_000)
    sign = "-" if milliseconds < 0 and whole else ""
    if whole < 60:
        return f"{sign}{whole}s"
    if whole < 3_600:
        return f"{sign}{whole // 60}m{whole % 60:02d}s"
    return f"{sign}{whole // 3_600}h{whole % 3_600 // 60:02d}m"


def _known(number: float, form: str) -> str:
    return format(number, form) if isfinite(number) else NOTHING  # of an app that only the store knows


APP_COLUMNS: Final = (
    *(("APP", False), ("USER", False), ("STATE", False), ("RHO", True), ("FORECAST", True), ("GPUS", True)),
    *(("BY NODE", False), ("WANTED", True), ("GPU-S DONE", True), ("OF", True), ("GRANTED", True), ("RENEWED", True)),
    ("ENDED", True),
)


def app_rows(reply: admin_pb2.ListAppsReply) -> list[list[str]]:
    """One row an app, as the arbiter orders them. Work that nobody declared is marked with a tilde."""
    return [
        [
            app.app_id,
            app.user or NOTHING,
            app.state if not app.final_status else f"{app.state} {app.final_status}",
            _known(app.rho, ".2f"),
            _known(app.rho_forecast, ".2f"),
            str(app.gpus_held),
            ",".join(f"{node}:{app.gpus_by_node[node]}" for node in sorted(app.gpus_by_node)) or NOTHING,
            str(app.gpus_wanted),
            f"{app.attained_gpu_s:.0f}",
            f"{'~' if app.is_work_estimated else ''}{_known(app.work_gpu_s, '.0f')}",
            str(app.leases_granted),
            str(app.leases_renewed),
            str(app.leases_ended),
        ]
        for app in reply.apps
    ]


LEASE_COLUMNS: Final = (
    *(("LEASE", False), ("APP", False), ("JOB", False), ("GPU", False), ("STATE", False), ("REMAINING", True)),
    *(("GRANT", False), ("ROUND", True), ("EPOCH", True)),
)


def lease_rows(reply: admin_pb2.ListLeasesReply) -> list[list[str]]:
    """One row a lease. A lease that waits for its GPU has no time running yet; one past its end counts below zero."""
    return [
        [
            lease.lease_id,
            lease.app_id,
            lease.job_id,
            f"{lease.node}:{lease.gpu}",
            f"{lease.state} (next)" if lease.is_next else lease.state,
            NOTHING if lease.is_next else seconds(lease.end_ms - reply.now_ms),
            lease.grant_id,
            str(lease.round),
            str(lease.epoch),
        ]
        for lease in reply.leases
    ]


NODE_COLUMNS: Final = (
    *(("NODE", False), ("RACK", False), ("STATE", False), ("GPUS", True), ("LEASED", True), ("USED", True), ("FREE", True)),
    ("NOTE", False),
)


def node_rows(reply: admin_pb2.ListNodesReply) -> list[list[str]]:
    """One row a node."""
    return [
        [
            node.node,
            node.rack or NOTHING,
            node.state,
            str(node.gpus_total),
            str(node.gpus_leased),
            str(node.gpus_used),
            str(node.gpus_free),
            ", ".join([node.gpu_type] * bool(node.gpu_type) + ["oversubscribed"] * node.is_oversubscribed) or NOTHING,
        ]
        for node in reply.nodes
    ]


AUDIT_COLUMNS: Final = (
    *(("TIME (UTC)", False), ("WHO", False), ("VERB", False), ("TARGET", False), ("VALUE", True), ("DONE", False)),
    ("TEXT", False),
)


def audit_rows(reply: admin_pb2.ListAuditReply) -> list[list[str]]:
    """One row a request."""
    return [
        [
            datetime.fromtimestamp(entry.at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            entry.actor,
            entry.verb,
            entry.target or NOTHING,
            f"{entry.value:g}" if entry.verb in VALUED else NOTHING,
            "yes" if entry.is_done else "no",
            entry.text,
        ]
        for entry in reply.entries
    ]


ROUND_COLUMNS: Final = (
    *(
        ("ROUND", True),
        ("TIME (UTC)", False),
        ("KIND", False),
        ("POLICY", False),
        ("OFFERED", True),
        ("BIDS", True),
        ("WON", True),
    ),
    *(("LEFTOVER", True), ("UNUSED", True), ("WINNERS", False)),
)


def round_rows(records: Sequence[Any]) -> list[list[str]]:
    """One row a decision record; a field that a policy does not have is a dash."""
    return [_round_row(record if isinstance(record, Mapping) else {}) for record in records]


def _round_row(record: Mapping[str, Any]) -> list[str]:
    kept, leftovers = _gpus_by_app(record.get("kept")), _gpus_by_app(record.get("leftovers"))
    together = {app: kept.get(app, 0) + leftovers.get(app, 0) for app in sorted({*kept, *leftovers})}
    at_ms = record.get("at_ms")
    at = datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%H:%M:%S") if isinstance(at_ms, int) else NOTHING
    return [
        str(record.get("round", NOTHING)),
        at,
        str(record.get("kind", NOTHING)),
        str(record.get("policy", NOTHING)),
        _count(record.get("offered")),
        _count(record.get("bids")),
        str(sum(kept.values())),
        str(sum(leftovers.values())),
        _count(record.get("unused")),
        ",".join(f"{app}:{count}" for app, count in together.items()) or NOTHING,
    ]


def _gpus_by_app(placements: Any) -> dict[str, int]:
    """GPUs by app of {app: {job: [GPU, ...]}}."""
    if not isinstance(placements, Mapping):
        return {}
    return {str(app): sum(len(gpus) for gpus in jobs.values()) for app, jobs in placements.items()}


def _count(entries: Any) -> str:
    return str(len(entries)) if isinstance(entries, Sequence) and not isinstance(entries, str) else NOTHING
