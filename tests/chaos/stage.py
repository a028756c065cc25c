"""A local YARN with the plugin, and arbiter and bridge as processes that can be killed, stopped and started again.

Restarting is the caller's business, as it is systemd's elsewhere: the processes know nothing of each other. The arbiter's
address stays the same over its restarts.
"""

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from themis_arbiter.agent.launch import TrainingApp, py4j_jar, submit_arguments
from themis_arbiter.cli.arbiter_client import ArbiterClient, Where, connected
from themis_arbiter.cli.failures import NotSo
from themis_arbiter.cli.local.children import clean_environment
from themis_arbiter.cli.local.samples import CLUSTER
from themis_arbiter.cli.local.stage import APP_JAR, CAPACITY, PLUGIN_JAR, SUBMIT_MAIN
from themis_arbiter.core.codec import from_plain
from themis_arbiter.core.lease import Lease
from themis_arbiter.server.values import Address
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.daemons import Daemon
from yarn_bridge.local.reaper import MARK_VARIABLE

LEASE_MS: Final = 20_000
NOTICE_MS: Final = 3_000
HEARTBEAT_MS: Final = 500
FALLBACK_KEY: Final = "themis.fallback.after-ms"
POLL_S: Final = 0.2
UP_S_MAX: Final = 60.0
STOP_S_MAX: Final = 8.0
SUBMIT_S_MAX: Final = 90.0
CALL_S_MAX: Final = 2.0


class ChaosError(Exception):
    """The campaign cannot go on; the message says why."""


class Process:
    """A `themis` process in a session of its own, started as often as it takes."""

    def __init__(self, verb: str, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self.verb = verb
        self._command = [sys.executable, "-m", "themis_arbiter.cli", verb, *arguments]
        self._env, self._log = dict(env), log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it says is appended to its log."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal; after SIGKILL it is gone when this returns. Errors: ChaosError where it was gone already."""
        if self._process is None or self._process.poll() is not None:
            status = None if self._process is None else self._process.returncode
            raise ChaosError(f"`themis {self.verb}` ended by itself (exit status {status}); see {self._log}")
        self._process.send_signal(number)
        if number is signal.SIGKILL:
            self._process.wait()

    def end(self) -> None:
        """Let it go for good."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Stage:
    """Everything that runs. `fallback_after_ms` is the plugin's until `set_fallback` says otherwise.

    `more_site` goes into yarn-site.xml.
    """

    def __init__(self, run_dir: Path, *, fallback_after_ms: int, more_site: Mapping[str, str] | None = None) -> None:
        self.run_dir = run_dir
        address = Address("127.0.0.1", free_port())
        self.where: Where = address
        (run_dir / "themis.toml").write_text(_toml(address))
        config = LocalYarnConfig(
            nodes=tuple(NodeSpec(gpus=gpus, rack=rack) for gpus, rack in CLUSTER),
            work_dir=run_dir / "yarn",
            heartbeat_ms=HEARTBEAT_MS,
            capacity=CAPACITY,
            yarn_site={FALLBACK_KEY: str(fallback_after_ms), **(more_site or {})},
        )
        self.yarn = LocalYarn(config.with_plugin(PLUGIN_JAR, run_dir / "yarn" / "gateway"))
        self.arbiter = self.process("serve", "arbiter")
        self.bridge = self.process("bridge", "bridge", "--bridge-arbiter", str(address))

    def start(self) -> None:
        """YARN, arbiter, bridge; returns when the arbiter knows the nodes. After an error nothing is left."""
        for jar in (PLUGIN_JAR, APP_JAR):
            if not jar.is_file():
                raise ChaosError(f"{jar} is not built: make plugin")
        try:
            self.yarn.start()
            self.start_arbiters()
            self.bridge.start()
            deadline_s = time.monotonic() + UP_S_MAX
            while len(self.nodes()) < len(CLUSTER):
                if time.monotonic() > deadline_s:
                    raise ChaosError(f"the arbiter knew {len(self.nodes())} nodes after {UP_S_MAX:g} s")
                time.sleep(POLL_S)
        except BaseException:  # a Ctrl-C too
            self.stop()
            raise

    def stop(self) -> None:
        """End everything; may be called twice."""
        self.bridge.end()
        self.stop_arbiters()
        self.yarn.stop()

    def start_arbiters(self) -> None:
        """All of them, and what they keep their leases in."""
        self.arbiter.start()

    def stop_arbiters(self) -> None:
        """The same; may be called twice."""
        self.arbiter.end()

    def leader(self) -> Process:
        """The arbiter that leads now. Errors: ChaosError."""
        return self.arbiter

    def zookeeper_servers(self) -> Sequence[Daemon]:
        """Where leases are kept by an ensemble; none here."""
        return ()

    @contextmanager
    def asking(self) -> Iterator[ArbiterClient]:
        """The arbiter's AdminService."""
        with connected(self.where, CALL_S_MAX) as client:
            yield client

    def nodes(self) -> list[str]:
        """Names of the nodes that the arbiter knows; none while it does not answer."""
        with suppress(NotSo), self.asking() as client:
            return [n.node for n in client.nodes().nodes]
        return []

    def told_leases(self) -> dict[str, int] | None:
        """What `themis leases` says: the end of each live lease by id; None where the arbiter or its bridge is away."""
        with suppress(NotSo), self.asking() as client:
            if client.status().is_bridge_connected:
                return {x.lease_id: x.end_ms for x in client.leases("").leases}
        return None

    def stored_leases(self) -> dict[str, Lease]:
        """The leases in the arbiter's store, read past it."""
        database = sqlite3.connect(f"file:{self.run_dir / 'arbiter.db'}?mode=ro", uri=True, timeout=5.0)
        try:
            rows = database.execute("SELECT lease_id, lease FROM leases").fetchall()
        finally:
            database.close()
        return {lease_id: from_plain(Lease, json.loads(text)) for lease_id, text in rows}

    def journals(self) -> list[Path]:
        """One journal a term of the arbiter, oldest first."""
        return sorted(self.run_dir.glob("journal*/*.journal"), key=lambda path: path.name)  # their names begin with the time

    def submit_training(self, app: TrainingApp, user: str) -> str:
        """Submit a sample training app; its application's id."""
        client = self.yarn.client
        done = subprocess.run(
            client.java_command(SUBMIT_MAIN, submit_arguments(app, app_jar=APP_JAR), [APP_JAR, py4j_jar()]),
            env=client.env | {"HADOOP_USER_NAME": user},
            cwd=self.run_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SUBMIT_S_MAX,
            check=False,
        )
        if done.returncode:
            raise ChaosError(f"{SUBMIT_MAIN} ended with {done.returncode}:\n{done.stderr[-2_000:]}")
        return str(json.loads(done.stdout)["application_id"])

    def set_fallback(self, after_ms: int) -> None:
        """Another time to fall back after, for the next start of the ResourceManager."""
        site = self.yarn.conf_dir / "yarn-site.xml"
        pattern = rf"(<name>{re.escape(FALLBACK_KEY)}</name><value>)\d+(</value>)"
        text, count = re.subn(pattern, rf"\g<1>{after_ms}\g<2>", site.read_text())
        assert count == 1, f"{FALLBACK_KEY} stands {count} times in {site}"
        site.write_text(text)

    def process(self, verb: str, name: str, *arguments: str) -> Process:
        """A `themis` process of this stage, not started; `name` is its log's."""
        # The mark makes the cluster's watchdog end it, should we be killed.
        env = clean_environment({MARK_VARIABLE: self.yarn.mark})
        return Process(verb, ["--config", str(self.run_dir / "themis.toml"), *arguments], env, self.run_dir / f"{name}.log")


class Ask:
    """A small app that asks for one GPU container, submitted beside whatever else happens."""

    def __init__(self, stage: Stage, name: str, *, seconds: int = 1, containers: int = 1) -> None:
        self.application_id = ""
        self.failure = ""
        self.submitted_s = time.time()
        job = ShellJob(command=f"sleep {seconds}", n_containers=containers, gpus=1, tags=(f"themis.app={name}",))
        self._thread = threading.Thread(target=self._submit, args=(stage, job), daemon=True)
        self._thread.start()

    def _submit(self, stage: Stage, job: ShellJob) -> None:
        try:
            self.application_id = stage.yarn.client.submit_distributed_shell(job, user="asker")
        except Exception as err:  # noqa: BLE001 - whatever it is, the campaign tells it
            self.failure = f"{type(err).__name__}: {str(err)[:500]}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _toml(address: Address) -> str:
    settings: dict[str, Any] = {
        "lease": f"{LEASE_MS} ms",
        "notice": f"{NOTICE_MS} ms",
        "debounce": "500 ms",
        "rho_floor": "20 s",
        "restart_cost": "1 s",
        "recall": False,  # so that no lease ends before its time but by a fault
        "gang_wait": "8 s",
        "store": "sqlite:arbiter.db",
        "grpc_address": str(address),
        "http_address": "127.0.0.1:0",
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    sections = (
        '[journal]\nfolder = "journal"\nfiles_max = 1000',
        '[log]\nformat = "json"',
        '[bridge]\ngateway_dir = "yarn/gateway"',
    )
    return "\n".join([*lines, *sections, ""])
