"""A small real YARN with the plugin, and `themis serve` and `themis bridge` as an admin starts them."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from themis_arbiter.cli.arbiter_client import ArbiterClient, connected
from themis_arbiter.cli.local.children import clean_environment
from themis_arbiter.cli.local.stage import PLUGIN_JAR
from themis_arbiter.core.effects import ContainerLost
from themis_arbiter.core.events import EndCause
from themis_arbiter.engine.journal_format import parse_steps
from themis_arbiter.server.documents import document
from themis_arbiter.server.values import Address
from yarn_bridge.gateway import read_gateway_file
from yarn_bridge.local import LocalYarn, LocalYarnConfig
from yarn_bridge.local.reaper import MARK_VARIABLE

WAIT_S: Final = 90.0
POLL_S: Final = 0.1
READY_S_MAX: Final = 40.0
# What a test need not wait for, and no move before an hour: what moves is what the test moves.
CALM: Final[Mapping[str, str | bool]] = {
    "lease": "3600 s",
    "notice": "3 s",
    "debounce": "200 ms",
    "rho_floor": "20 s",
    "restart_cost": "1 s",
    "recall": False,
    "gang_wait": "8 s",
    "no_show": "6 s",
}


def until(holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not so after {timeout_s} s"
        time.sleep(POLL_S)


class Part:
    """A `themis` process."""

    def __init__(self, verb: str, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "themis_arbiter.cli", verb, *arguments]
        with log.open("ab") as err:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def first_line(self) -> dict[str, Any]:
        """The JSON line that `serve` prints when it listens."""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self.process.stdout is not None
        threading.Thread(target=lambda out: lines.put(out.readline()), args=(self.process.stdout,), daemon=True).start()
        line = lines.get(timeout=READY_S_MAX)
        assert line, self.log.read_text()
        return dict(json.loads(line))

    def terminate(self, timeout_s: float) -> int:
        """SIGTERM; the exit status. Fails where it takes longer."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        finally:
            self.end()

    def end(self) -> None:
        """Gone, whatever it takes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Live:
    """Cluster, arbiter and bridge; the two processes may be ended and started by the test."""

    def __init__(self, run_dir: Path, yarn: LocalYarn, settings: Mapping[str, str | bool]) -> None:
        self.run_dir, self.yarn = run_dir, yarn
        self.address = ""
        self.parts: dict[str, Part] = {}
        values = {
            **CALM,
            "store": "sqlite:arbiter.db",
            "grpc_address": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            **settings,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        lines += ["[journal]", 'folder = "journal"', "[bridge]", f"gateway_dir = {json.dumps(str(self.gateway_dir))}"]
        (run_dir / "themis.toml").write_text("\n".join(lines) + "\n")

    @property
    def gateway_dir(self) -> Path:
        assert self.yarn.config.gateway_dir is not None
        return self.yarn.config.gateway_dir

    def serve(self) -> None:
        self.address = str(self._start("serve").first_line()["grpc_address"])

    def bridge(self) -> None:
        """One beside each ResourceManager."""
        for number, folder in enumerate(self.yarn.gateway_dirs, 1):
            name = "bridge" if number == 1 else f"bridge{number}"
            self._start("bridge", "--bridge-arbiter", self.address, "--bridge-gateway-dir", str(folder), name=name)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """What a listing verb of `themis` prints as JSON."""
        command = [sys.executable, "-m", "themis_arbiter.cli", *arguments, "--json", "--arbiter", self.address]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    @contextmanager
    def asking(self) -> Iterator[ArbiterClient]:
        """The arbiter's AdminService, for what is asked often: a `themis` process a time would be most of the test."""
        host, _, port = self.address.rpartition(":")
        with connected(Address(host, int(port))) as client:
            yield client

    def leases(self, job_id: str = "") -> list[dict[str, Any]]:
        with self.asking() as client:
            return [x for x in document(client.leases(""))["leases"] if job_id in {"", x["job_id"]}]

    def node(self, index: int) -> dict[str, Any]:
        """What the arbiter says of node `index` (from 0)."""
        host = self.yarn.config.host(index)
        with self.asking() as client:
            return dict(next(n for n in document(client.nodes())["nodes"] if n["node"] == host))

    def explained(self, name: str) -> str:
        """What `themis explain` says of an app or an application."""
        with self.asking() as client:
            return "\n".join(client.explain(name).lines)

    def counters(self) -> dict[str, Any]:
        """What the plugin says of itself, of two the active ResourceManager's."""
        folders = self.yarn.gateway_dirs
        address = read_gateway_file(folders[self.yarn.active_rm() if len(folders) > 1 else 0])
        parameters = GatewayParameters(address=address.host, port=address.port, auth_token=address.token)
        gateway = JavaGateway(gateway_parameters=parameters)
        try:
            return dict(json.loads(bytes(gateway.entry_point.counters())))
        finally:
            gateway.close()

    def lost(self, job_id: str) -> list[tuple[EndCause, bool]]:
        """Cause of each container's end that the journals tell of a job, and whether its lease was being drained."""
        found = []
        for journal in sorted((self.run_dir / "journal").glob("*.journal")):
            with journal.open(encoding="utf-8") as lines:
                lines.readline()
                for step in parse_steps(lines):
                    found += [e for e in effects_of(step.effects_line) if e["job_id"] == job_id]
        return [(EndCause(e["cause"]), bool(e["was_due"])) for e in found]

    def _start(self, verb: str, *arguments: str, name: str = "") -> Part:
        # The mark makes the cluster's watchdog end it, should we be killed.
        env = clean_environment({MARK_VARIABLE: self.yarn.mark})
        config = ["--config", str(self.run_dir / "themis.toml"), *arguments]
        name = name or verb
        self.parts[name] = Part(verb, config, env, self.run_dir / f"{name}.log")
        return self.parts[name]


def effects_of(line: str) -> list[dict[str, Any]]:
    """The ContainerLost effects of a journal's effects line."""
    if ContainerLost.__name__ not in line:
        return []
    return [dict(e) for e in json.loads(line)["effects"] if e["type"] == ContainerLost.__name__]


@contextmanager
def live(run_dir: Path, config: LocalYarnConfig, **settings: str | bool) -> Iterator[Live]:
    """All of it, attached and in step, for as long as the block lasts."""
    assert PLUGIN_JAR.is_file(), "make plugin"
    run_dir.mkdir(parents=True, exist_ok=True)
    with LocalYarn(config.with_plugin(PLUGIN_JAR), progress=print) as yarn:
        live = Live(run_dir, yarn, settings)
        try:
            live.serve()
            live.bridge()
            until(lambda: live.counters()["mode"] in {"LEASES", "OBSERVING"}, "the arbiter's first update")
            yield live
        finally:
            for part in live.parts.values():
                part.end()


def command_lines() -> str:
    """Command lines of all processes, as `ps` shows them to everybody."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue  # it has ended meanwhile
    return "\n".join(found)
