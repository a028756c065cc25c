"""`themis admin`: what changes a running arbiter. Verbs on a store at rest are in admin_store.py.

Each verb says what will happen and asks, unless `--yes` is given; without a terminal and without `--yes` nothing is done.
"""

import getpass
import socket
import sys
import uuid
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, TypeVar

import click

from themis_arbiter.adapters.grpc.admin import STEP_DOWN
from themis_arbiter.cli.arbiter_client import Where, connected
from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import ARBITER_OPTION, JSON_OPTION
from themis_arbiter.cli.tables import AUDIT_COLUMNS, audit_rows, print_table
from themis_arbiter.core.events import AdminVerb
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.server.documents import document, dumps

F = TypeVar("F", bound=Callable[..., Any])

AUDIT_MAX: Final = 1_000

YES_OPTION: Final = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
_REQUEST_ID: Final = click.option(
    "--request-id",
    metavar="ID",
    help="Name of this request: under the same one it is done once, however often it is asked. [default: a new one]",
)


@click.group()
def admin() -> None:
    """Change a running arbiter; see what was changed."""


def _named(_context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The name of something. Errors: WrongUse where it is empty."""
    if not value.strip():
        raise WrongUse(f"{parameter.human_readable_name}: is empty; write a name")
    return value


def _acts(command: F) -> F:
    """The options of a verb that an arbiter does."""
    for option in (JSON_OPTION, ARBITER_OPTION, _REQUEST_ID, YES_OPTION):
        command = option(command)
    return command


@admin.command(short_help="Hold no more auctions.")
@_acts
def pause(**options: Any) -> None:
    """Hold no more auctions: leases are renewed as they are, and no new ones are given."""
    _act(AdminVerb.PAUSE, "hold no more auctions, and renew leases as they are", **options)


@admin.command()
@_acts
def resume(**options: Any) -> None:
    """Hold auctions again."""
    _act(AdminVerb.RESUME, "hold auctions again", **options)


@admin.command()
@click.argument("target", callback=_named)
@_acts
def revoke(target: str, **options: Any) -> None:
    """End leases with notice.

    TARGET is a lease, or a job or an app for all of its leases. The jobs are offered nothing for one lease.
    """
    _act(AdminVerb.REVOKE, f"end the leases of {target} with notice", target=target, **options)


@admin.command(short_help="Empty a node, lease by lease.")
@click.argument("node", callback=_named)
@click.option("--undo", "is_undone", is_flag=True, help="Give leases on NODE again.")
@_acts
def drain(node: str, is_undone: bool, **options: Any) -> None:
    """Give no new leases on NODE and renew none: it is empty after one lease."""
    if is_undone:
        _act(AdminVerb.UNDRAIN, f"give leases on {node} again", target=node, **options)
    else:
        _act(AdminVerb.DRAIN, f"give no new leases on {node} and renew none", target=node, **options)


@admin.command("set-weight", short_help="Weigh an app in the fair share.")
@click.argument("app", callback=_named)
@click.argument("weight", type=float)
@_acts
def set_weight(app: str, weight: float, **options: Any) -> None:
    """Set the WEIGHT of APP in the fair share, from now on; 1 is usual."""
    if not isfinite(weight):
        raise WrongUse(f"WEIGHT: {weight:g} is no weight; write a number above 0, such as 2")
    _act(AdminVerb.SET_WEIGHT, f"set the weight of {app} to {weight:g}", target=app, value=weight, **options)


@admin.command("observe-only", short_help="Look on only, or lease again.")
@click.argument("state", type=click.Choice(["on", "off"]))
@_acts
def observe_only(state: str, **options: Any) -> None:
    """Look on only (on): decide and record, but lease nothing. Or lease again (off)."""
    does = "give all leases up and look on only" if state == "on" else "adopt what runs and lease GPUs again"
    _act(AdminVerb.OBSERVE_ONLY, does, value=1.0 if state == "on" else 0.0, **options)


@admin.command("step-down", short_help="Let a standby lead.")
@_acts
def step_down(**options: Any) -> None:
    """Let a standby lead in place of this arbiter, which stands by then. Leases and containers stay as they are."""
    _act(STEP_DOWN, "let a standby lead in its place", **options)


@admin.command(short_help="List what admins asked for.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, AUDIT_MAX), help="So many, the newest first.")
@ARBITER_OPTION
@JSON_OPTION
def audit(limit: int, arbiter: Where, as_json: bool) -> None:
    """List what admins asked of this arbiter since it started, and what came of it."""
    with connected(arbiter) as client:
        reply = client.audit(limit)
    if as_json:
        click.echo(dumps(document(reply), indent=2))
    elif reply.entries:
        print_table(AUDIT_COLUMNS, audit_rows(reply))
    else:
        click.echo("none", err=True)


def _act(
    verb: str,
    does: str,
    *,
    arbiter: Where,
    is_sure: bool,
    as_json: bool,
    request_id: str | None,
    target: str = "",
    value: float = 0.0,
) -> None:
    """Confirm, have the arbiter do it, and tell what it answered. Errors: NotSo with its text where it refused."""
    confirm(f"{does}, at the arbiter {arbiter}", is_sure=is_sure)
    request = admin_pb2.ActRequest(verb=str(verb), value=value, actor=actor())
    with connected(arbiter) as client:
        request_id = request_id if request_id is not None else uuid.uuid4().hex
        reply = client.act(request, target=target, request_id=request_id)
    if as_json:
        told = {"request_id": request_id, "verb": str(verb), "target": target, "value": value}
        click.echo(dumps({**document(reply), **told}, indent=2))
    elif reply.is_done:
        click.echo(legible(reply.text))
    if not reply.is_done:
        raise NotSo(legible(reply.text))


def confirm(does: str, *, is_sure: bool) -> None:
    """Go on only where that is meant. Errors: WrongUse without a terminal to ask on, NotSo where the answer is no."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise WrongUse(f"this would {legible(does)}; there is no terminal to ask on, so say that you mean it: --yes")
    if not click.confirm(f"This will {legible(does)}. Go on?", err=True):
        raise NotSo("nothing was done")


def actor() -> str:
    """Who is at the keyboard, as this machine knows; names of users are data, so they are made printable."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for its user
        user = "unknown"
    return visible(f"{user}@{socket.gethostname()}")[:200]
