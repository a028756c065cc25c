"""`python -m yarn_bridge.local up`: a cluster that stays until Ctrl-C or SIGTERM, for people and for scripts."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from yarn_bridge.local.cluster import LocalYarn
from yarn_bridge.local.config import DEFAULT_NODES, LocalYarnConfig, NodeSpec
from yarn_bridge.local.jars import HADOOP_VERSION, LocalYarnError, fetch_jars

CHECK_EVERY_S: Final = 2.0
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _StopAskedError(Exception):
    """A signal came during the start."""


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an asked-for stop, 1 when the cluster failed, 2 for wrong use."""
    options = _parser().parse_args(argv)
    try:
        if options.verb == "fetch":
            print(fetch_jars(options.cache_dir, _tell, version=options.hadoop).lib_dir)
            return 0
        return _up(_config(options))
    except LocalYarnError as err:
        _tell(str(err))
        return 1


def _up(config: LocalYarnConfig) -> int:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _StopAskedError(number)

    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    try:
        with LocalYarn(config, _tell) as yarn:
            # From here signals wait for sigtimedwait, so that none falls into the middle of the stop.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            print(json.dumps(yarn.describe()), flush=True)
            while signal.sigtimedwait(STOP_SIGNALS, CHECK_EVERY_S) is None:
                yarn.check()
            _tell("stopping")
    except _StopAskedError:
        _tell("stopped while starting")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m yarn_bridge.local", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start a cluster, print its addresses as one line of JSON, stay until a signal")
    up.add_argument("--plugin", type=Path, metavar="JAR", help="run ThemisScheduler from this jar (default: plain YARN)")
    up.add_argument("--gateway-dir", type=Path, metavar="DIR", help="where the plugin writes gateway.json")
    up.add_argument("--work-dir", type=Path, metavar="DIR", help="conf, logs and state; kept (default: a temporary one)")
    up.add_argument(
        "--nodes", type=_nodes, default=DEFAULT_NODES, metavar="GPUS:RACK,...", help="4:rack0,4:rack0,2:rack1,2:rack1"
    )
    up.add_argument("--set", type=_pair, action="append", default=[], metavar="KEY=VALUE", help="into yarn-site.xml")
    fetch = verbs.add_parser("fetch", help="fetch the jars only, print their folder")
    for verb in (up, fetch):
        verb.add_argument("--hadoop", default=HADOOP_VERSION, metavar="VERSION", help=f"default {HADOOP_VERSION}")
        verb.add_argument("--cache-dir", type=Path, metavar="DIR", help="where the jars are kept")
    return parser


def _config(options: argparse.Namespace) -> LocalYarnConfig:
    config = LocalYarnConfig(
        nodes=options.nodes,
        work_dir=options.work_dir,
        cache_dir=options.cache_dir,
        hadoop_version=options.hadoop,
        yarn_site=dict(options.set),
    )
    return config.with_plugin(options.plugin, options.gateway_dir) if options.plugin else config


def _nodes(text: str) -> tuple[NodeSpec, ...]:
    pairs = [part.partition(":") for part in text.split(",")]
    if not all(gpus.isdigit() and rack for gpus, _, rack in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 4:rack0,2:rack1")
    return tuple(NodeSpec(gpus=int(gpus), rack=rack) for gpus, _, rack in pairs)


def _pair(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not (key and mark):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
