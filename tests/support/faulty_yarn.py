"""The plugin's test build in a real ResourceManager: its switches, and a load on that ResourceManager.

The build is `FaultyThemisScheduler` in the plugin's test jar; what it does and how it is steered stands in Faults.java.
"""

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec

TARGET: Final = Path(__file__).parents[2] / "yarn_bridge" / "java" / "plugin" / "target"
PLUGIN_JAR: Final = TARGET / "themis-yarn-plugin-0.1.0.jar"
FAULTY_JAR: Final = TARGET / "themis-yarn-plugin-0.1.0-tests.jar"
FAULTY_SCHEDULER: Final = "org.themis.yarn.FaultyThemisScheduler"
WAIT_S: Final = 60.0
POLL_S: Final = 0.02


def until(holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not so after {timeout_s} s"
        time.sleep(POLL_S)


def faulty_config(folder: Path, nodes: tuple[NodeSpec, ...], host_net: int) -> LocalYarnConfig:
    """A cluster whose plugin fails on demand; its files are in `folder`."""
    assert PLUGIN_JAR.is_file(), "make plugin"
    assert FAULTY_JAR.is_file(), "make plugin"
    return LocalYarnConfig(
        nodes=nodes,
        host_net=host_net,
        heartbeat_ms=100,
        scheduler_class=FAULTY_SCHEDULER,
        plugin_jars=(PLUGIN_JAR, FAULTY_JAR),
        gateway_dir=folder / "gateway",
        # No fall-back in this time: what is not known stays shut.
        yarn_site={"themis.test.faults": str(folder / "faults"), "themis.fallback.after-ms": "3600000"},
    )


class Switches:
    """Which points of the build are faulty."""

    def __init__(self, folder: Path) -> None:
        self._control, self._answer = folder / "faults", folder / "faults.ack"
        self._number = 0

    def set(self, *faults: str) -> None:
        """Each is `POINT MODE`; returns once they are in force."""
        # A number that no line has: the answer to this text is no earlier one's.
        self._number += 1
        text = "\n".join([*faults, f"#{self._number}"])
        new = self._control.with_suffix(".next")
        new.write_text(text)
        new.replace(self._control)
        until(lambda: self._told()["said"] == text, f"{faults} in force")

    def hits(self, point: str) -> int:
        """How often the point was come by since it is faulty."""
        return int(self._told()["hits"].get(point, 0))

    def _told(self) -> dict[str, Any]:
        if not self._answer.exists():
            return {"said": "", "hits": {}}
        return dict(json.loads(self._answer.read_text()))


class Load:
    """Load.java as a child: what it told so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.batches_ms: list[int] = []
        self.hungry = ""
        self.gpus = 0
        self.guests = 0
        self.errors: list[str] = []
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            match word:
                case "batch":
                    self.batches_ms.append(int(rest))
                case "hungry":
                    self.hungry = rest
                case "gpus":
                    self.gpus = int(rest)
                case "churn":
                    self.guests = int(rest)
                case "error":
                    self.errors.append(rest)
                case _:
                    self.errors.append(f"what is {line!r}?")

    def close(self) -> None:
        """Waits for the end of the child, which somebody has told to end."""
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def give_back(self) -> None:
        """The hungry application returns its containers, and asks for as many again."""
        assert self._process.stdin is not None
        self._process.stdin.write("return\n")
        self._process.stdin.flush()

    def pace_ms(self, batches: int) -> float:
        """Median of the next `batches`, each begun after this call."""
        first = len(self.batches_ms) + 1  # the one that is on began before
        until(lambda: self.errors != [] or len(self.batches_ms) >= first + batches, f"{batches} batches of containers")
        assert self.errors == []
        return statistics.median(self.batches_ms[first : first + batches])


@contextmanager
def load_on(yarn: LocalYarn) -> Iterator[Load]:
    """The load, for as long as the block lasts."""
    command = yarn.client.java_command("org.themis.yarn.load.Load", jars=[FAULTY_JAR])
    with (yarn.work_dir / "logs" / "load.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=yarn.client.env,
            cwd=yarn.work_dir,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    load = Load(process)
    try:
        until(lambda: load.errors != [] or len(load.batches_ms) > 3, "the load runs")
        yield load
    finally:
        process.kill()
        load.close()
