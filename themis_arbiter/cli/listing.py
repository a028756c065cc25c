"""The verbs that show what the arbiter sees: apps, leases, rounds, nodes, explain."""

from collections.abc import Sequence

import click
from google.protobuf.message import Message

from themis_arbiter.cli.arbiter_client import Where, connected
from themis_arbiter.cli.options import ARBITER_OPTION, JSON_OPTION
from themis_arbiter.cli.tables import (
    APP_COLUMNS,
    LEASE_COLUMNS,
    NODE_COLUMNS,
    ROUND_COLUMNS,
    app_rows,
    lease_rows,
    node_rows,
    print_table,
    round_rows,
)
from themis_arbiter.obs.labels import legible
from themis_arbiter.server.documents import document, dumps

ROUNDS_MAX = 1_000


@click.command()
@click.option("--all", "include_ended", is_flag=True, help="Ended apps too.")
@ARBITER_OPTION
@JSON_OPTION
def apps(include_ended: bool, arbiter: Where, as_json: bool) -> None:
    """List apps: rho, GPUs by node, work, leases.

    RHO is of the time so far, FORECAST at the app's end as things are now. Work is in GPU-seconds; ~ marks work that
    nobody declared. GRANTED, RENEWED and ENDED count leases.
    """
    with connected(arbiter) as client:
        reply = client.apps(include_ended=include_ended)
    _show(reply, APP_COLUMNS, app_rows(reply), as_json=as_json)


@click.command()
@click.option("--app", "app_id", default="", metavar="APP", help="Only this app's.")
@ARBITER_OPTION
@JSON_OPTION
def leases(app_id: str, arbiter: Where, as_json: bool) -> None:
    """List leases and the time each has left."""
    with connected(arbiter) as client:
        reply = client.leases(app_id)
    _show(reply, LEASE_COLUMNS, lease_rows(reply), as_json=as_json)


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, ROUNDS_MAX), help="So many, the newest first.")
@ARBITER_OPTION
@JSON_OPTION
def rounds(limit: int, arbiter: Where, as_json: bool) -> None:
    """List auction rounds: offers, bids, winners."""
    with connected(arbiter) as client:
        reply = client.rounds(limit)
    _show(reply, ROUND_COLUMNS, round_rows(document(reply)["rounds"]), as_json=as_json)


@click.command()
@ARBITER_OPTION
@JSON_OPTION
def nodes(arbiter: Where, as_json: bool) -> None:
    """List nodes and their GPUs."""
    with connected(arbiter) as client:
        reply = client.nodes()
    _show(reply, NODE_COLUMNS, node_rows(reply), as_json=as_json)


@click.command()
@click.argument("app")
@ARBITER_OPTION
@JSON_OPTION
def explain(app: str, arbiter: Where, as_json: bool) -> None:
    """Say why APP holds what it holds."""
    with connected(arbiter) as client:
        reply = client.explain(app)
    if as_json:
        click.echo(dumps(document(reply), indent=2))
        return
    for line in reply.lines:
        click.echo(legible(line))


def _show(reply: Message, columns: Sequence[tuple[str, bool]], rows: list[list[str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(dumps(document(reply), indent=2))
    elif rows:
        print_table(columns, rows)
    else:
        # On stderr, so that a pipe that counts lines counts none.
        click.echo("none", err=True)
