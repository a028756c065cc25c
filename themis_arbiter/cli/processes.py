"""The verbs that start a process, and the one that checks what it would be started with."""

from pathlib import Path
from typing import Any

import click

from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.cli.options import CONFIG_OPTION, JSON_OPTION, configured, setting_options
from themis_arbiter.cli.tables import print_table
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.obs.logs import configure_logging
from themis_arbiter.server.documents import dumps


@click.command()
@CONFIG_OPTION
@setting_options(lambda setting: not setting.key.startswith("bridge."))
def serve(config_file: Path | None, **flags: Any) -> None:
    """Run the arbiter until SIGTERM or SIGINT.

    When it listens it prints one line of JSON on stdout with its addresses. Settings come from the file, then from
    THEMIS_* variables, then from flags; the last one wins.
    """
    from themis_arbiter.server.bootstrap import StartError, run_until_signal

    config = configured(config_file, flags)
    configure_logging(config.log_format, config.log_level)
    try:
        status = run_until_signal(config)
    except StartError as error:
        raise NotSo(legible(str(error))) from error
    raise SystemExit(status)


@click.command()
@CONFIG_OPTION
@setting_options(lambda setting: setting.key.startswith(("bridge.", "log.")))
def bridge(config_file: Path | None, **flags: Any) -> None:
    """Run the bridge beside a ResourceManager."""
    config = configured(config_file, flags)
    if config.bridge.gateway_dir is None:
        raise WrongUse("bridge.gateway_dir: not set; name the folder where the plugin leaves its gateway")
    configure_logging(config.log_format, config.log_level)
    from yarn_bridge import daemon

    raise SystemExit(daemon.run(config.bridge.gateway_dir, ",".join(map(str, config.bridge.arbiters))))


@click.command("check-config")
@click.argument("file", required=False, envvar="THEMIS_CONFIG", type=click.Path(path_type=Path))
@JSON_OPTION
def check_config(file: Path | None, as_json: bool) -> None:
    """Check settings and print them.

    FILE and the THEMIS_* variables are read; the settings that would hold are shown with where each was said.

    Without FILE: that of THEMIS_CONFIG, else the defaults. Exit status 2 where anything is wrong, with a line for each problem.
    """
    config = configured(file, {})
    for note in config.notes:
        click.echo(f"themis: note: {legible(note)}", err=True)
    if as_json:
        settings = {r.key: {"value": r.value, "source": visible(r.source)} for r in config.resolved}
        click.echo(dumps({"settings": settings, "notes": [legible(n) for n in config.notes]}, indent=2))
        return
    rows = [[r.key, r.value, r.source] for r in config.resolved]
    print_table((("SETTING", False), ("VALUE", False), ("FROM", False)), rows)
