"""LocalYarn: a ResourceManager (or two, with failover) and several NodeManagers as processes on the loopback network.

Theory of operation. Every NodeManager has a loopback address of its own (127.0.1.K), so YARN sees several hosts
and, by a table, several racks. NodeManagers listen on ports that the kernel draws; only the ResourceManager's
are chosen before. A mark in the environment runs from the harness to the daemons to the containers; the watchdog
(reaper.py) ends all that carry it when this process goes, whatever way it goes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from yarn_bridge.local import reaper
from yarn_bridge.local.client import YarnClient, YarnRestError
from yarn_bridge.local.config import THEMIS_SCHEDULER, LocalYarnConfig, draw_ports, node_arguments, write_conf
from yarn_bridge.local.daemons import JDK_JAVA_OPTIONS, JVM_FLAGS, NM_MAIN, RM_MAIN, Daemon, resident_kb
from yarn_bridge.local.jars import (
    CLIENT_VERSIONS,
    HADOOP_VERSION,
    HadoopJars,
    LocalYarnError,
    Progress,
    fetch_jars,
    fetch_set,
    find_java,
)
from yarn_bridge.local.pair import CLIENT_JARS, RM_NAMES, gateway_dirs, pair_site, rm_arguments
from yarn_bridge.local.rmlog import ContainerRun, container_runs

STOP_TIMEOUT_S: Final = 10.0
NODES_GRACE_S: Final = 1.5  # an idle NodeManager needs half a second to end
POLL_S: Final = 0.1
STAMP_CHARS: Final = len("2026-01-01 00:00:00,000")
PROGRESS_EVERY_S: Final = 2.0


class LocalYarn:
    """A cluster from `start` to `stop`; also a context manager. Not for use by several threads at once."""

    def __init__(self, config: LocalYarnConfig | None = None, progress: Progress = lambda _: None) -> None:
        self._progress = progress
        self._given = config or LocalYarnConfig()
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._daemons: dict[str, Daemon] = {}
        self._client: YarnClient | None = None
        self._is_own_work_dir = self._given.work_dir is None
        self.mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.work_dir = Path()
        self.config = self._given

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def conf_dir(self) -> Path:
        """What HADOOP_CONF_DIR of a client is set to."""
        return self.work_dir / "conf"

    @property
    def rm_log(self) -> Path:
        """Log and audit log of the (first) ResourceManager, over its restarts; UTC, milliseconds."""
        return self.work_dir / "logs" / "rm.log"

    @property
    def gateway_dirs(self) -> tuple[Path, ...]:
        """Where each ResourceManager's plugin puts its gateway.json while that one is active; empty without the plugin."""
        return gateway_dirs(self.config.gateway_dir, len(self._rm_names))

    @property
    def client(self) -> YarnClient:
        """REST and Java clients of this cluster. Raises LocalYarnError before `start`."""
        if self._client is None:
            raise LocalYarnError("the cluster has not been started")
        return self._client

    @property
    def rm(self) -> Daemon:
        """The ResourceManager; the first where there are two."""
        return self.daemon("rm")

    def active_rm(self) -> int:
        """Which of the ResourceManagers is active, from 0. Raises YarnRestError while none is."""
        self.client.metrics()  # a standby does not answer this
        return self.client.rm_webs.index(self.client.rm_web)

    @property
    def _rm_names(self) -> tuple[str, ...]:
        return RM_NAMES if self.config.zookeeper else RM_NAMES[:1]

    def node(self, index: int) -> Daemon:
        """The NodeManager of node `index` (from 0)."""
        return self.daemon(f"nm{index + 1}")

    def daemon(self, name: str) -> Daemon:
        """`rm`, `rm2` where there are two, `nm1` for the first node, and so on.

        It can be killed, paused, resumed and started again.
        """
        try:
            return self._daemons[name]
        except KeyError:
            raise LocalYarnError(f"no daemon {name!r} among {sorted(self._daemons)}") from None

    @property
    def pids(self) -> dict[str, int]:
        """Pids of the daemons that live."""
        return {name: daemon.pid for name, daemon in self._daemons.items() if daemon.pid is not None}

    def resident_mb(self) -> dict[str, int]:
        """Resident memory of each living daemon in MB."""
        return {name: resident_kb(pid) // 1024 for name, pid in self.pids.items()}

    def container_runs(self) -> list[ContainerRun]:
        """Who ran where and when, by the ResourceManagers' logs."""
        lines: list[str] = []
        for name in self._rm_names:
            lines += self.daemon(name).log.read_text(errors="replace").splitlines()
        # Each log begins its lines with the time; what does not is of no event.
        return container_runs(sorted(lines, key=lambda line: line[:STAMP_CHARS]) if len(self._rm_names) > 1 else lines)

    def container_log(self, container_id: str, name: str = "stdout") -> str:
        """What a container wrote to `stdout` or `stderr`. Raises LocalYarnError where there is no such file."""
        found = sorted(self.work_dir.glob(f"nm*/containers/application_*/{container_id}/{name}"))
        if not found:
            raise LocalYarnError(f"no {name} of {container_id} in {self.work_dir}")
        return found[0].read_text(errors="replace")

    def start(self) -> None:
        """Starts all and returns when every node is RUNNING.

        Raises MissingToolError, JarFetchError, DaemonDiedError, or LocalYarnError after
        `start_timeout_s`; whatever was started is ended then. The first start may fetch the jars.
        """
        if self._watchdog is not None:
            raise LocalYarnError("the cluster has been started already")
        java = find_java()
        try:
            self._prepare(java)
            self._start_watchdog()
            began = time.monotonic()  # the fetching of jars told of itself
            for daemon in self._daemons.values():
                daemon.start()
            self.wait_for_nodes(self._given.start_timeout_s)
            self._progress(f"YARN is up after {time.monotonic() - began:.1f} s: {self.client.rm_web}")
        except BaseException:  # a Ctrl-C too: nothing may stay behind
            self.stop(keep_files=True)
            raise

    def stop(self, *, keep_files: bool = False) -> None:
        """Ends the daemons (SIGTERM, after STOP_TIMEOUT_S SIGKILL), containers and clients of this cluster.

        May be called twice. A work dir that the harness made itself is removed unless `keep_files`.
        """
        for daemon in self._daemons.values():
            daemon.resume()
            daemon.terminate()
        self._await_end()
        for daemon in self._daemons.values():
            daemon.kill()
        left = reaper.end_marked(self.mark)
        self._stop_watchdog()
        if left:
            raise LocalYarnError(f"processes {left} of the cluster would not end")
        if self._is_own_work_dir and not keep_files and self.work_dir != Path():
            shutil.rmtree(self.work_dir, ignore_errors=True)

    def kill_rm(self) -> None:
        """SIGKILL to the ResourceManager, of two the active one; NodeManagers and containers go on."""
        self.daemon(self._rm_names[self.active_rm() if len(self._rm_names) > 1 else 0]).kill()

    def restart_rm(self, *, kill: bool = True, timeout_s: float = 60.0) -> None:
        """Ends the (first) ResourceManager (SIGKILL, or SIGTERM when not `kill`) and starts it on the same ports and store.

        Returns when its nodes are back. Raises as `start` does.
        """
        if not kill:
            self.rm.terminate()
            self.rm.wait(STOP_TIMEOUT_S)
        self.rm.kill()
        self.rm.start()
        self.wait_for_nodes(timeout_s)

    def wait_for_nodes(self, timeout_s: float) -> list[dict[str, Any]]:
        """The RUNNING nodes, once each NodeManager that was started and not ended is one. Raises as `start` does."""
        began = last_told = time.monotonic()
        while True:
            self.check()
            wanted = {self.config.host(i) for i in range(len(self.config.nodes)) if self.node(i).is_wanted}
            running = self._running_nodes()
            if wanted <= {node["nodeHostName"] for node in running}:
                return running
            now = time.monotonic()
            if now - began > timeout_s:
                raise LocalYarnError(f"{len(running)} of {len(wanted)} nodes after {timeout_s} s; see {self.rm_log}")
            if now - last_told > PROGRESS_EVERY_S:
                last_told = now
                self._progress(f"YARN is starting: {len(running)} of {len(wanted)} nodes after {now - began:.0f} s")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Raises DaemonDiedError when a daemon ended by itself."""
        for daemon in self._daemons.values():
            daemon.check()

    def describe(self) -> dict[str, Any]:
        """Addresses, folders and pids, ready for JSON."""
        return {
            "rm_web": self.client.rm_web,
            "rm_webs": list(self.client.rm_webs),
            "conf_dir": str(self.conf_dir),
            "work_dir": str(self.work_dir),
            "gateway_dir": str(self.config.gateway_dir) if self.config.gateway_dir else None,
            "rm_log": str(self.rm_log),
            "client_version": self.client.jars.version,
            "jars_dir": str(self.client.jars.lib_dir),
            "mark": self.mark,
            "java_home": self.client.env["JAVA_HOME"],
            "nodes": [
                {"host": self.config.host(i), "rack": f"/{node.rack}", "gpus": node.gpus}
                for i, node in enumerate(self.config.nodes)
            ],
            "pids": self.pids,
            "resident_mb": self.resident_mb(),
        }

    def _prepare(self, java: Path) -> None:
        given = self._given
        jars = fetch_jars(given.cache_dir, self._progress, version=given.hadoop_version)
        client_version = given.hadoop_version if given.hadoop_version in CLIENT_VERSIONS else HADOOP_VERSION
        client_jars = fetch_jars(given.cache_dir, self._progress, version=client_version)
        made = tempfile.mkdtemp(prefix="themis-yarn-") if given.work_dir is None else given.work_dir
        self.work_dir = Path(made).resolve()
        for name in ("logs", "home", "state"):
            (self.work_dir / name).mkdir(parents=True, exist_ok=True)
        gateway_dir = given.gateway_dir
        if gateway_dir is None and given.scheduler_class == THEMIS_SCHEDULER:
            gateway_dir = self.work_dir / "gateway"
        self.config = replace(given, gateway_dir=gateway_dir and gateway_dir.resolve(), work_dir=self.work_dir)
        ports = [draw_ports()]
        rm_jars = jars.classpath
        if given.zookeeper:
            ports.append(draw_ports(ports))
            site = pair_site(ports, given.zookeeper) | dict(given.yarn_site)
            self.config = replace(self.config, yarn_site=site)
            rm_jars = f"{fetch_set(CLIENT_JARS, given.cache_dir, self._progress)}/*:{rm_jars}"
        classpath = client_jars.classpath
        write_conf(self.conf_dir, self.config, ports=ports[0], state_dir=self.work_dir / "state", container_classpath=classpath)
        env = _environment(java.parent.parent, self.conf_dir, self.mark)
        self._client = YarnClient(
            rm_webs=[f"http://127.0.0.1:{its.web}" for its in ports],
            conf_dir=self.conf_dir,
            jars=client_jars,
            java=java,
            env=env,
            work_dir=self.work_dir,
        )
        self._build_daemons(java, env, jars.classpath, rm_jars)

    def _build_daemons(self, java: Path, env: dict[str, str], jars: str, rm_jars: str) -> None:
        plugin = [str(jar.resolve()) for jar in self.config.plugin_jars]
        home = f"-Dhadoop.home.dir={self.work_dir}"
        logs = self.work_dir / "logs"

        def command(heap_mb: int, classpath: list[str], main: str) -> list[str]:
            return [str(java), f"-Xmx{heap_mb}m", *JVM_FLAGS, home, "-cp", ":".join(classpath), main]

        rm = command(self.config.rm_heap_mb, [str(self.conf_dir), *plugin, rm_jars], RM_MAIN)
        folders = self.gateway_dirs or (None,) * len(self._rm_names)
        for name, folder in zip(self._rm_names, folders, strict=True):
            argv = [*rm, *rm_arguments(name, folder)] if self.config.zookeeper else rm
            self._daemons[name] = Daemon(name, argv, env, logs / f"{name}.log", self.work_dir)
        for index in range(len(self.config.nodes)):
            name = f"nm{index + 1}"
            node_dir = self.work_dir / name
            node_dir.mkdir(exist_ok=True)
            nm = command(self.config.nm_heap_mb, [str(self.conf_dir), jars], NM_MAIN)
            nm += node_arguments(self.config, index, node_dir)
            self._daemons[name] = Daemon(name, nm, env, logs / f"{name}.log", self.work_dir)

    def _running_nodes(self) -> list[dict[str, Any]]:
        try:
            nodes = self.client.nodes()
        except YarnRestError:
            return []
        # A node is RUNNING a moment before the scheduler knows it; until then it has no memory, used or free.
        return [n for n in nodes if n["state"] == "RUNNING" and n["availMemoryMB"] + n["usedMemoryMB"] > 0]

    def _await_end(self) -> None:
        """Gives the daemons time to end by themselves, but no more than is of use.

        A NodeManager ends its containers at once and then waits up to 17 s for applications that it
        will not hear of again: once the ResourceManager and the containers are gone, so may it be.
        """
        began = time.monotonic()
        while self.pids and (passed_s := time.monotonic() - began) < STOP_TIMEOUT_S:
            pids = self.pids
            has_containers = bool(set(reaper.marked_pids(self.mark)) - set(pids.values()))
            if passed_s > NODES_GRACE_S and not set(self._rm_names) & set(pids) and not has_containers:
                return
            time.sleep(POLL_S)

    def _start_watchdog(self) -> None:
        command = [sys.executable, "-I", "-S", reaper.__file__, self.mark]
        command += [str(self.work_dir)] if self._is_own_work_dir else []
        self._watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.communicate(b".")
            self._watchdog = None


def attach(description: Mapping[str, Any]) -> YarnClient:
    """A client of a cluster that another process holds, from the JSON that `describe` made there.

    What the client starts carries the cluster's mark, so it ends with the cluster.
    """
    java_home, conf_dir = Path(description["java_home"]), Path(description["conf_dir"])
    return YarnClient(
        rm_webs=description["rm_webs"],
        conf_dir=conf_dir,
        jars=HadoopJars(version=description["client_version"], lib_dir=Path(description["jars_dir"])),
        java=java_home / "bin" / "java",
        env=_environment(java_home, conf_dir, description["mark"]),
        work_dir=Path(description["work_dir"]),
    )


def _environment(java_home: Path, conf_dir: Path, mark: str) -> dict[str, str]:
    added = {
        "JAVA_HOME": str(java_home),
        "JDK_JAVA_OPTIONS": JDK_JAVA_OPTIONS,
        "HADOOP_CONF_DIR": str(conf_dir),
        reaper.MARK_VARIABLE: mark,
    }
    return {**os.environ, **added}
