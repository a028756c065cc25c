"""Options that several verbs share, made from the one table of settings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from themis_arbiter.cli.arbiter_client import Arbiters, Where
from themis_arbiter.cli.failures import WrongUse
from themis_arbiter.obs.labels import legible
from themis_arbiter.server.config import SETTINGS, ConfigError, ServerConfig, Setting, load_config
from themis_arbiter.server.values import Origin, ValueProblem, addresses

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_ARBITER: Final = "127.0.0.1:7650"
JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def parse_arbiter(_context: click.Context, _parameter: click.Parameter, value: str) -> Where:
    """HOST:PORT of an arbiter that can be called, or several with commas between."""
    try:
        parsed = addresses(value, Origin(Path()))
    except ValueProblem as problem:
        raise WrongUse(f"--arbiter: {problem}") from None
    return parsed[0] if len(parsed) == 1 else Arbiters(parsed)


ARBITER_OPTION: Final = click.option(
    "--arbiter",
    envvar="THEMIS_ARBITER",
    default=DEFAULT_ARBITER,
    show_default=True,
    metavar="HOST:PORT",
    callback=parse_arbiter,
    help="The arbiter to ask, or all with commas between (or THEMIS_ARBITER).",
)

CONFIG_OPTION: Final = click.option(
    "--config",
    "config_file",
    envvar="THEMIS_CONFIG",
    type=click.Path(path_type=Path),
    help="TOML file with settings (or THEMIS_CONFIG).",
)


def setting_options(wanted: Callable[[Setting], bool]) -> Callable[[F], F]:
    """A flag for each setting that is `wanted`; values arrive as text, by key, in the command's keywords."""

    def decorate(command: F) -> F:
        for setting in reversed([s for s in SETTINGS if wanted(s)]):
            default = "none" if setting.default is None else str(setting.default).lower()
            command = click.option(
                setting.flag,
                keyword_of(setting.key),
                metavar="VALUE",
                help=f"{setting.meaning} [default: {default}]".replace("`", ""),
            )(command)
        return command

    return decorate


def keyword_of(key: str) -> str:
    """The Python name of a setting's flag."""
    return "set_" + key.replace(".", "__")


def configured(config_file: Path | None, flags: dict[str, Any]) -> ServerConfig:
    """The settings that hold. Errors: WrongUse with a line for each problem."""
    by_key = {s.key: flags.get(keyword_of(s.key)) for s in SETTINGS}
    try:
        return load_config(config_file, os.environ, by_key)
    except ConfigError as error:
        raise WrongUse("\nthemis: ".join(legible(problem) for problem in error.problems)) from error
