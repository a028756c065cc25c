"""The `themis admin` verbs on a lease store itself: raise its epoch, take what it holds into a file, fill an empty one."""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from themis_arbiter.adapters.state_file import StateFileError
from themis_arbiter.cli.admin import YES_OPTION, actor, confirm
from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION, configured
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.obs.logs import AUDIT, configure_logging, log_event
from themis_arbiter.ports import EPOCH_SET_MAX, StoreError
from themis_arbiter.server.config import ServerConfig
from themis_arbiter.server.documents import dumps
from themis_arbiter.server.moving import (
    JUMP_MAX,
    NoStoreError,
    export_state,
    import_state,
    look_for_file,
    raise_epoch,
    reset_cluster,
)
from themis_arbiter.server.values import Origin, StoreAddress, ValueProblem, store

LEVEL: Final = (
    "error"  # of log lines: how a connection comes and goes is not the verb's answer (the audit's line is told at any)
)
F = TypeVar("F", bound=Callable[..., Any])

_CONFIG: Final = click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="The arbiter's TOML file, which names the store."
)
_STORE: Final = click.option(
    "--store", "store_text", metavar="STORE", help="The store itself, as the setting `store` names it."
)
_FILE: Final = click.argument("file", type=click.Path(path_type=Path))


def _on_a_store(command: F) -> F:
    """The options that name it."""
    for option in (JSON_OPTION, _STORE, _CONFIG):
        command = option(command)
    return command


@click.command("reset-epoch", short_help="Raise the epoch of a store at rest.")
@click.option("--to", "to_epoch", metavar="N", type=click.IntRange(1, EPOCH_SET_MAX), help="New epoch. [default: one more]")
@click.option("--far", "is_far_meant", is_flag=True, help=f"N may be more than {JUMP_MAX:,} above the present epoch.")
@YES_OPTION
@_on_a_store
def reset_epoch(
    config_file: Path | None,
    store_text: str | None,
    to_epoch: int | None,
    is_far_meant: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Raise a store's epoch: of a file while no arbiter runs on it, in ZooKeeper at any time (who leads then does so anew).

    For a store that came back from a backup: the ResourceManager's plugin refuses an arbiter whose epoch is below
    one that it has seen. An epoch is never lowered.
    """
    address, config = _store_address("reset-epoch", config_file, store_text)
    path = str(address.path or address)
    confirm("raise the epoch of " + path + (f" to {to_epoch}" if to_epoch is not None else " by one"), is_sure=is_sure)
    configure_logging(level=LEVEL)
    try:
        before, after = raise_epoch(address, config.zookeeper, to_epoch, is_far_meant=is_far_meant)
    except StoreError as error:
        raise NotSo(legible(str(error))) from error
    text = f"the epoch of {path} is {after} instead of {before}; the next arbiter on it takes {after + 1}"
    _tell(text, {"store": path, "epoch_before": before, "epoch": after}, as_json=as_json)
    _audit_line("reset-epoch", path, text)


@click.command("reset-cluster", short_help="Let a path in ZooKeeper be another YARN cluster's.")
@YES_OPTION
@_on_a_store
def reset_cluster_command(config_file: Path | None, store_text: str | None, is_sure: bool, as_json: bool) -> None:
    """Forget which YARN cluster a path in ZooKeeper serves: the next bridge that a leader there takes says its own.

    For a cluster whose yarn.resourcemanager.cluster-id has changed, or one that takes over another's path: leases there that
    its ResourceManager does not know end after `recovery_grace`.
    """
    address, config = _store_address("reset-cluster", config_file, store_text, must_exist=False)
    if address.kind != "zookeeper":
        raise WrongUse(
            f"{visible(str(address))}: only stores in ZooKeeper are a cluster's; on any other nothing has to be done"
        )
    confirm(f"forget which YARN cluster {address} serves", is_sure=is_sure)
    configure_logging(level=LEVEL)
    try:
        before = reset_cluster(address, config.zookeeper)
    except StoreError as error:
        raise NotSo(legible(str(error))) from error
    text = f"{address} served {before or 'no cluster that has an id'}; it is whose bridge comes next"
    _tell(text, {"store": str(address), "cluster_before": before or None}, as_json=as_json)
    _audit_line("reset-cluster", str(address), text)


@click.command("export-state", short_help="Take what a store holds into a file.")
@_FILE
@_on_a_store
def export_command(file: Path, config_file: Path | None, store_text: str | None, as_json: bool) -> None:
    """Take what a store holds at one moment into the new FILE, for a backup or for another store.

    Whoever leads goes on. To move to another store, end the arbiters first, or what they do afterwards is not in FILE.
    """
    address, config = _store_address("export-state", config_file, store_text)
    configure_logging(level=LEVEL)
    try:
        moved = export_state(address, config.zookeeper, file, now_ms=time.time_ns() // 1_000_000)
    except (StoreError, StateFileError) as error:
        raise NotSo(legible(str(error))) from error
    text = f"{moved.leases} leases and {moved.accounts} accounts of {address} (epoch {moved.epoch}) are in {file}"
    if moved.is_in_use:
        text += "; an arbiter runs on that store: what it does from now on is not in the file"
    fields = {"store": str(address), "file": str(file), "leases": moved.leases, "accounts": moved.accounts}
    _tell(text, {**fields, "epoch": moved.epoch, "is_in_use": moved.is_in_use}, as_json=as_json)


@click.command("import-state", short_help="Fill an empty store from a file.")
@_FILE
@YES_OPTION
@_on_a_store
def import_command(file: Path, config_file: Path | None, store_text: str | None, is_sure: bool, as_json: bool) -> None:
    """Fill an empty store, on which no arbiter runs, with what `themis admin export-state` took into FILE.

    Its epoch is then above the old store's. What ended since FILE was made ends when an arbiter leads and the
    ResourceManager does not name it; what began since is adopted.
    """
    address, config = _store_address("import-state", config_file, store_text, must_exist=False)
    confirm(f"fill {address} with what is in {file}", is_sure=is_sure)
    configure_logging(level=LEVEL)
    try:
        moved = import_state(address, config.zookeeper, file)
    except StateFileError as error:
        raise WrongUse(legible(str(error))) from error
    except StoreError as error:
        raise NotSo(legible(str(error))) from error
    text = f"{moved.leases} leases and {moved.accounts} accounts are in {address}; its epoch is {moved.epoch}"
    fields = {"store": str(address), "file": str(file), "leases": moved.leases, "accounts": moved.accounts}
    _tell(text, {**fields, "epoch": moved.epoch}, as_json=as_json)
    _audit_line("import-state", str(address), text)


VERBS: Final[tuple[click.Command, ...]] = (reset_epoch, reset_cluster_command, export_command, import_command)


def _tell(text: str, fields: dict[str, Any], *, as_json: bool) -> None:
    click.echo(dumps({"is_done": True, "text": text, **fields}, indent=2) if as_json else legible(text))


def _store_address(
    verb: str, config_file: Path | None, store_text: str | None, *, must_exist: bool = True
) -> tuple[StoreAddress, ServerConfig]:
    """Where the store is, and the settings that it is opened with. Errors: WrongUse."""
    if (config_file is None) == (store_text is None):
        raise WrongUse(f"{verb}: name the store: --config FILE, or --store sqlite:PATH or zookeeper:HOSTS/PATH, one of them")
    config = configured(config_file, {})
    address = config.store
    if store_text is not None:
        try:
            address = store(store_text, Origin(Path.cwd()))
        except ValueProblem as problem:
            raise WrongUse(f"--store: {problem}") from None
    if address.kind == "memory":
        raise WrongUse("a store in memory does not outlive its arbiter; name one with sqlite:PATH or zookeeper:HOSTS/PATH")
    if must_exist and address.path is not None:
        try:
            look_for_file(address.path)
        except NoStoreError as problem:
            raise WrongUse(legible(str(problem))) from None
        except StoreError as problem:
            raise NotSo(legible(str(problem))) from None
    return address, config


def _audit_line(verb: str, path: str, text: str) -> None:
    """What was done, for the log that stderr goes into; on a terminal the answer has said it, and nobody keeps the line."""
    if not sys.stderr.isatty():
        fields = {"actor": actor(), "verb": verb, "target": path, "is_done": True, "text": text}
        log_event(logging.getLogger(AUDIT), logging.INFO, "admin request", **fields)
