"""`themis admin`: what changes a running arbiter, and what raises a store's epoch while none runs.

Each verb says what will happen and asks, unless `--yes` is given; without a terminal and without `--yes` nothing is done.
"""

import getpass
import logging
import socket
import sys
import uuid
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from themis_arbiter.adapters.grpc.admin import STEP_DOWN
from themis_arbiter.adapters.sqlite_store import EPOCH_MAX, SqliteStore
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.arbiter_client import Where, connected
from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import ARBITER_OPTION, JSON_OPTION, configured
from themis_arbiter.cli.tables import AUDIT_COLUMNS, audit_rows, print_table
from themis_arbiter.core.events import AdminVerb
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.obs.labels import visible
from themis_arbiter.obs.logs import AUDIT, configure_logging, log_event
from themis_arbiter.ports import StoreError
from themis_arbiter.server.candidacy import place_of
from themis_arbiter.server.config import ServerConfig
from themis_arbiter.server.documents import document, dumps
from themis_arbiter.server.values import Origin, StoreAddress, ValueProblem, store

F = TypeVar("F", bound=Callable[..., Any])

AUDIT_MAX: Final = 1_000

_YES: Final = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
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
    for option in (JSON_OPTION, ARBITER_OPTION, _REQUEST_ID, _YES):
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


@admin.command("reset-epoch", short_help="Raise the epoch of a store at rest.")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The arbiter's TOML file, which names the store."
)
@click.option("--store", "store_text", metavar="STORE", help="The store itself, as the setting `store` names it.")
@click.option("--to", "to_epoch", metavar="N", type=click.IntRange(1, EPOCH_MAX), help="New epoch. [default: one more]")
@_YES
@JSON_OPTION
def reset_epoch(config_file: Path | None, store_text: str | None, to_epoch: int | None, is_sure: bool, as_json: bool) -> None:
    """Raise a store's epoch: of a file while no arbiter runs on it, in ZooKeeper at any time (who leads then does so anew).

    For a store that came back from a backup: the ResourceManager's plugin refuses an arbiter whose epoch is below
    one that it has seen. An epoch is never lowered.
    """
    address, config = _store_address(config_file, store_text)
    path = str(address.path or address)
    _confirm("raise the epoch of " + path + (f" to {to_epoch}" if to_epoch is not None else " by one"), is_sure=is_sure)
    configure_logging()
    try:
        opened = SqliteStore(address.path) if address.path else ZooKeeperStore(place_of(address, config.zookeeper))
        try:
            before, after = opened.raise_epoch(to_epoch)
        finally:
            opened.close()
    except StoreError as error:
        _audit_line(path, is_done=False, text=str(error))
        raise NotSo(visible(str(error))) from error
    text = f"the epoch of {path} is {after} instead of {before}; the next arbiter on it takes {after + 1}"
    _audit_line(path, is_done=True, text=text)
    if as_json:
        click.echo(dumps({"is_done": True, "text": text, "store": path, "epoch_before": before, "epoch": after}, indent=2))
    else:
        click.echo(visible(text))


def _store_address(config_file: Path | None, store_text: str | None) -> tuple[StoreAddress, ServerConfig]:
    """Where the store is, and the settings that it is opened with. Errors: WrongUse."""
    if (config_file is None) == (store_text is None):
        raise WrongUse("reset-epoch: name the store: --config FILE or --store sqlite:PATH, one of them")
    config = configured(config_file, {})
    address = config.store
    if store_text is not None:
        try:
            address = store(store_text, Origin(Path.cwd()))
        except ValueProblem as problem:
            raise WrongUse(f"--store: {problem}") from None
    if address.kind == "memory":
        raise WrongUse("a store in memory has no epoch that outlives its arbiter; name one with sqlite:PATH")
    if address.path is not None and not address.path.is_file():
        raise WrongUse(f"{visible(str(address.path))}: there is no store; name the file that the arbiter keeps its leases in")
    return address, config


def _audit_line(path: str, *, is_done: bool, text: str) -> None:
    fields = {"actor": _actor(), "verb": "reset-epoch", "target": path, "is_done": is_done, "text": text}
    log_event(logging.getLogger(AUDIT), logging.INFO, "admin request", **fields)


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
    _confirm(f"{does}, at the arbiter {arbiter}", is_sure=is_sure)
    request = admin_pb2.ActRequest(verb=str(verb), value=value, actor=_actor())
    with connected(arbiter) as client:
        request_id = request_id if request_id is not None else uuid.uuid4().hex
        reply = client.act(request, target=target, request_id=request_id)
    if as_json:
        told = {"request_id": request_id, "verb": str(verb), "target": target, "value": value}
        click.echo(dumps({**document(reply), **told}, indent=2))
    elif reply.is_done:
        click.echo(visible(reply.text))
    if not reply.is_done:
        raise NotSo(visible(reply.text))


def _confirm(does: str, *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise WrongUse(f"this would {visible(does)}; there is no terminal to ask on, so say that you mean it: --yes")
    if not click.confirm(f"This will {visible(does)}. Go on?", err=True):
        raise NotSo("nothing was done")


def _actor() -> str:
    """Who is at the keyboard, as this machine knows; names of users are data, so they are made printable."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for its user
        user = "unknown"
    return visible(f"{user}@{socket.gethostname()}")[:200]
