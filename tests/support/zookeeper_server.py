"""A real ZooKeeper on loopback: one server, or an ensemble, on free ports, with its data in a folder of the caller's.

Servers are children of the test, started, paused and ended by their pids. Session timeouts down to a second are granted, so
that tests of failover do not wait for production's.
"""

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from yarn_bridge.local.daemons import JVM_FLAGS, Daemon
from yarn_bridge.local.jars import JarSet, fetch_set, find_java

VERSION: Final = "3.8.4"
MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS: Final = 500
SESSION_MS_MIN: Final = 2 * TICK_MS  # ZooKeeper's own rule
START_S_MAX: Final = 40.0  # two slow cores, and a JVM for each server
STOP_S_MAX: Final = 5.0
LOOK_S: Final = 0.1
ANSWER_S: Final = 2.0
MEMORY: Final = "-Xmx192m"
JARS: Final = JarSet(
    name="ZooKeeper",
    version=VERSION,
    pom=Path(__file__).with_name("zookeeper-jars.pom.xml"),
    proof=f"zookeeper-{VERSION}.jar",
    size_mb=8,
)
_LOGBACK: Final = """<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d{ISO8601} %-5p %c{1}: %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="OUT"/></root></configuration>
"""


class ZooKeeperStartError(Exception):
    """A server did not come up in time; the text has the end of its log."""


class ZooKeeperServer:
    """One server: `daemon` is its process, `address` where clients find it."""

    def __init__(self, name: str, folder: Path, port: int, config: str, jars: Path) -> None:
        self.address: Final = f"127.0.0.1:{port}"
        self._port = port
        self._data = folder / "data"
        (folder / "zoo.cfg").write_text(config)
        (folder / "logback.xml").write_text(_LOGBACK)
        argv = [str(find_java()), *JVM_FLAGS, MEMORY, "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.preAllocSize=1024"]
        argv += [f"-Dlogback.configurationFile={folder / 'logback.xml'}", "-cp", f"{jars}/*", MAIN, str(folder / "zoo.cfg")]
        self.daemon: Final = Daemon(name, argv, {}, folder / "server.log", folder)

    @property
    def role(self) -> str:
        """What it says that it is (standalone, leader, follower); "" where it does not serve."""
        words = four_letters(self._port, "srvr").split("Mode: ")
        return words[1].split()[0] if len(words) == 2 else ""

    def start(self) -> None:
        """Start it without waiting."""
        self.daemon.start()

    def wait_ready(self, until_s: float) -> None:
        """Until it serves, in a quorum where it has peers. Errors: ZooKeeperStartError."""
        while not self.role:
            if not self.daemon.is_alive or time.monotonic() > until_s:
                how = "is still not serving" if self.daemon.is_alive else "ended"
                raise ZooKeeperStartError(f"{self.daemon.name} {how}; its log ends with:\n{self.daemon.log_tail()}")
            time.sleep(LOOK_S)

    def keep_state(self, folder: Path) -> None:
        """Copy all that it has on its disk to `folder`, which is made; it must not run."""
        shutil.copytree(self._data / "version-2", folder)

    def lose_state(self, kept: Path | None = None) -> None:
        """All that it has on its disk, which is from then on what `keep_state` put into `kept`; it must not run."""
        shutil.rmtree(self._data / "version-2")
        if kept is not None:
            shutil.copytree(kept, self._data / "version-2")

    def stop(self) -> None:
        """End it, by force where it does not go by itself."""
        self.daemon.resume()
        self.daemon.terminate()
        if not self.daemon.wait(STOP_S_MAX):
            self.daemon.kill()


class ZooKeeper:
    """Running servers. `hosts` is how clients name them all."""

    def __init__(self, servers: Sequence[ZooKeeperServer]) -> None:
        self.servers: Final = tuple(servers)

    @property
    def hosts(self) -> str:
        """Addresses with commas between."""
        return ",".join(server.address for server in self.servers)


def four_letters(port: int, word: str) -> str:
    """The answer to one of ZooKeeper's four-letter words; "" where nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as link:
            link.settimeout(ANSWER_S)
            link.sendall(word.encode())
            parts: list[bytes] = []
            while part := link.recv(65_536):
                parts.append(part)
            return b"".join(parts).decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def run_zookeeper(folder: Path, *, servers: int = 1, extra: str = "") -> Iterator[ZooKeeper]:
    """`servers` of them, ready, until the block ends; `extra` are more lines of zoo.cfg. Errors: ZooKeeperStartError."""
    jars = fetch_set(JARS, progress=lambda text: print(text, flush=True))
    ports = free_ports(3 * servers)
    clients, quorum, election = ports[:servers], ports[servers : 2 * servers], ports[2 * servers :]
    peers = [f"server.{k + 1}=127.0.0.1:{quorum[k]}:{election[k]}" for k in range(servers)] if servers > 1 else []
    made = []
    for k, port in enumerate(clients):
        home = folder / f"zookeeper-{k + 1}"
        (home / "data").mkdir(parents=True)
        (home / "data" / "myid").write_text(f"{k + 1}\n")
        lines = [f"tickTime={TICK_MS}", "initLimit=20", "syncLimit=10", f"dataDir={home / 'data'}", f"clientPort={port}"]
        lines += ["clientPortAddress=127.0.0.1", "maxClientCnxns=0", "4lw.commands.whitelist=*", *peers, extra]
        made.append(ZooKeeperServer(f"zookeeper-{k + 1}", home, port, "\n".join(lines) + "\n", jars))
    with ExitStack() as stack:
        until_s = time.monotonic() + START_S_MAX
        for server in made:
            stack.callback(server.stop)
            server.start()
        for server in made:
            server.wait_ready(until_s)
        yield ZooKeeper(made)


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on now."""
    with ExitStack() as stack:
        links = [stack.enter_context(socket.socket()) for _ in range(count)]
        for link in links:
            link.bind(("127.0.0.1", 0))
        return [int(link.getsockname()[1]) for link in links]


def eventually(is_so: Callable[[], bool], within_s: float, what: str) -> float:
    """Seconds until `is_so`. Errors: AssertionError after `within_s`."""
    began_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - began_s < within_s, f"not within {within_s} s: {what}"
        time.sleep(LOOK_S / 2)
    return time.monotonic() - began_s
