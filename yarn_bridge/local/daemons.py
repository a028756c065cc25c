"""One JVM of the cluster as a child process: started, watched, stopped, always by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from yarn_bridge.local.jars import LocalYarnError

RM_MAIN: Final = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
NM_MAIN: Final = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
LOG_TAIL_BYTES: Final = 4_000
OPENED_PACKAGES: Final = ("java.lang", "java.util", "java.lang.reflect", "java.net")
# Read by Java 9 and later only, so Java 8 never meets a flag that it does not know.
JDK_JAVA_OPTIONS: Final = " ".join(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES)
JVM_FLAGS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Duser.timezone=UTC",
)


class DaemonDiedError(LocalYarnError):
    """A daemon ended by itself; the text has the end of its log."""


class Daemon:
    """A ResourceManager or a NodeManager. What it prints is appended to `log`, over restarts too."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env)
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None
        self.is_wanted = False  # started, and not ended by the harness since

    def start(self) -> None:
        """Starts the JVM in a session of its own, so that a Ctrl-C at the terminal goes to the harness alone."""
        if self.is_alive:
            raise LocalYarnError(f"{self.name} is running already (pid {self.pid})")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                env=self._env,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.is_wanted = True

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The pid while it lives."""
        return self._process.pid if self._process is not None and self.is_alive else None

    def check(self) -> None:
        """Raises DaemonDiedError when it is gone though nobody asked it to go."""
        if self.is_wanted and not self.is_alive:
            code = self._process.returncode if self._process is not None else None
            raise DaemonDiedError(f"{self.name} ended (exit status {code}); {self.log} ends with:\n{self.log_tail()}")

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.is_wanted = False
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        self.is_wanted = False
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it lives and holds its sockets, but does nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, the end of a pause."""
        self._signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def log_tail(self) -> str:
        """The last LOG_TAIL_BYTES of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return "(no log)"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_alive:
            self._process.send_signal(number)


def resident_kb(pid: int) -> int:
    """Resident memory of a process in KB; 0 where it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
