"""The status page: plain HTML without scripts that asks for itself again; every name in it is escaped."""

from collections.abc import Iterator
from html import escape
from math import isfinite
from typing import Final

from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.obs.labels import visible
from themis_arbiter.server.documents import Document

REFRESH_S: Final = 2
ROWS_MAX: Final = 500
NODES_SHOWN_MAX: Final = 50  # that are out of service or oversubscribed

LINKS: Final = (
    ("/metrics", "metrics"),
    ("/healthz", "health"),
    ("/readyz", "readiness"),
    ("/api/v1/status", "status"),
    ("/api/v1/apps?all=1", "apps"),
    ("/api/v1/leases", "leases"),
    ("/api/v1/rounds", "rounds"),
    ("/api/v1/nodes", "nodes"),
    ("/api/v1/audit", "audit"),
)
COLUMNS: Final = ("app", "user", "state", "rho so far", "forecast", "GPUs by node", "wanted", "GPU-s done", "of", "leases")
STORED_COLUMNS: Final = ("app", "user", "state", "GPUs by node", "GPU-s had")

_STYLE: Final = (
    "body{font:15px/1.4 sans-serif;margin:2em;color-scheme:light dark}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #8884}td.n{text-align:right}"
)


def status_page(status: admin_pb2.StatusReply, apps: admin_pb2.ListAppsReply, nodes: admin_pb2.ListNodesReply) -> str:
    """The page for this moment."""
    role = "leads" if status.is_leader else "does not lead"
    bridge = "connected" if status.is_bridge_connected else "not connected"
    rows = [_row(app) for app in sorted(apps.apps, key=_rank)[:ROWS_MAX]]
    if len(apps.apps) > ROWS_MAX:
        rows.append(f'<tr><td colspan="{len(COLUMNS)}">and {len(apps.apps) - ROWS_MAX} more</td></tr>')
    if not rows:
        rows.append(f'<tr><td colspan="{len(COLUMNS)}">no apps</td></tr>')
    summary = (
        f"Version {_text(status.version)}, policy {_text(status.policy)}: {role}, epoch {status.epoch}; "
        f"bridge {bridge}; leases of {status.lease_ms / 1000:g} s, notice {status.notice_ms / 1000:g} s."
    )
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    notices = "".join(f"<p><b>{notice}</b></p>" for notice in _notices(status, apps, nodes))
    return _page(f"<p>{summary}</p>{notices}<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")


def _notices(status: admin_pb2.StatusReply, apps: admin_pb2.ListAppsReply, nodes: admin_pb2.ListNodesReply) -> Iterator[str]:
    """What is not as usual."""
    queued = sum(a.state == "QUEUED" for a in apps.apps)
    if queued:
        yield f"{queued} {'app waits' if queued == 1 else 'apps wait'} to be let in: themis explain APP tells why and how long."
    if status.is_paused:
        yield "Paused by an admin: leases are renewed as they are, no new ones given."
    if status.is_observing:
        yield "Looking on only: YARN schedules as if the arbiter were not there; decisions are recorded, nothing is leased."
    odd = [n for n in nodes.nodes if n.state != "RUNNING" or n.is_oversubscribed]
    for node in odd[:NODES_SHOWN_MAX]:
        over = f", fewer than the {max(node.gpus_leased, node.gpus_used)} leased or used" if node.is_oversubscribed else ""
        yield f"Node {_text(node.node)}: {_text(node.state)}, {node.gpus_total} GPUs{over}."
    if len(odd) > NODES_SHOWN_MAX:
        yield f"And {len(odd) - NODES_SHOWN_MAX} more nodes like these."


def stored_page(apps: Document) -> str:
    """The page of an arbiter that stands by: apps as they stand in the store."""
    rows = [_stored_row(app) for app in apps["apps"][:ROWS_MAX]]
    if len(apps["apps"]) > ROWS_MAX:
        rows.append(f'<tr><td colspan="{len(STORED_COLUMNS)}">and {len(apps["apps"]) - ROWS_MAX} more</td></tr>')
    if not rows:
        rows.append(f'<tr><td colspan="{len(STORED_COLUMNS)}">no apps</td></tr>')
    stored_ms = apps["stored_at_ms"]
    age = f", {max(0, apps['now_ms'] - stored_ms) / 1_000:.0f} s ago" if stored_ms is not None else ""
    head = "".join(f"<th>{column}</th>" for column in STORED_COLUMNS)
    return _page(
        f"<p><b>NOT the leader.</b> {_text(apps['note'])}{age}.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _stored_row(app: Document) -> str:
    held = ", ".join(f"{_text(node)}: {app['gpus_by_node'][node]}" for node in sorted(app["gpus_by_node"])) or "–"
    texts = "".join(f"<td>{_text(app[key] or '')}</td>" for key in ("app_id", "user", "state"))
    return f"<tr>{texts}<td class=n>{held}</td><td class=n>{app['attained_gpu_s']:.0f}</td></tr>"


def unavailable_page(reason: str) -> str:
    """The page while the engine does not answer."""
    return _page(f"<p>The arbiter does not answer: {_text(reason)}</p>")


def _page(content: str) -> str:
    links = " · ".join(f'<a href="{escape(target)}">{label}</a>' for target, label in LINKS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>themis-arbiter</title>'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><style>{_STYLE}</style></head><body>'
        f"<h1>themis-arbiter</h1>{content}<p>{links}</p></body></html>\n"
    )


def _text(value: str) -> str:
    return escape(visible(value))


def _rank(app: admin_pb2.AppView) -> tuple[bool, bool, float, str]:
    """The worst off first; apps that only the store knows have no rho."""
    is_known = isfinite(app.rho)
    return app.state == "ENDED", not is_known, -app.rho if is_known else 0.0, app.app_id


def _known(number: float, form: str) -> str:
    return format(number, form) if isfinite(number) else "–"


def _row(app: admin_pb2.AppView) -> str:
    held = ", ".join(f"{node}: {app.gpus_by_node[node]}" for node in sorted(app.gpus_by_node)) or "–"
    cells = (_text(app.app_id), _text(app.user), _text(app.state))
    numbers = (
        _known(app.rho, ".2f"),
        _known(app.rho_forecast, ".2f"),
        _text(held),
        str(app.gpus_wanted),
        f"{app.attained_gpu_s:.0f}",
        f"{'about ' if app.is_work_estimated else ''}{_known(app.work_gpu_s, '.0f')}",
        f"{app.leases_granted} / {app.leases_renewed} / {app.leases_ended}",
    )
    texts = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr>{texts}{''.join(f'<td class=n>{cell}</td>' for cell in numbers)}</tr>"
