r"""What a container of the sample app runs: takes units from the driver, does them, reports them.

    python -S -m themis_arbiter.agent.task --driver HOST:PORT --token-env NAME \
        --container ID --slot K --dir DIR --step-ms MS

Standard library only and few modules of it, since a dozen of these start at once. Talks newline-delimited JSON:
`hello` once, then `done` for each `do`. It ends when it is told to stop (status 0) or when its connection ends (status
3), whichever way the driver went, so no task outlives its job. A `stop` that comes while a unit is in hand takes effect
after it.
"""

import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from themis_arbiter.agent.tasklog import LogWriter
from themis_arbiter.agent.work import Unit, unit_value

CONNECT_S_MAX: Final = 10.0
LINE_BYTES_MAX: Final = 4_096
EXIT_USAGE: Final = 2
EXIT_DRIVER_GONE: Final = 3
_OPTIONS: Final = ("driver", "token-env", "container", "slot", "dir", "step-ms")


class DriverGone(Exception):
    """The connection to the driver ended."""


class Connection:
    """Lines to and from the driver."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=CONNECT_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)
        self._buffer = b""

    def send(self, what: dict[str, Any]) -> None:
        """Send one line. Raises DriverGone."""
        try:
            self._socket.sendall(json.dumps(what, separators=(",", ":")).encode() + b"\n")
        except OSError as err:
            raise DriverGone(str(err)) from err

    def receive(self) -> dict[str, Any]:
        """Wait for one line. Raises DriverGone."""
        while b"\n" not in self._buffer:
            self._fill()
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def hold_until(self, end_ms: int) -> None:
        """Let time pass, but notice at once when the driver goes; looks at the connection at least once."""
        while True:
            left_ms = max(0, end_ms - now_ms())
            readable, _, _ = select.select([self._socket], [], [], left_ms / 1000)
            if readable:
                self._fill()
            elif left_ms == 0:
                return

    def _fill(self) -> None:
        try:
            chunk = self._socket.recv(LINE_BYTES_MAX)
        except OSError as err:
            raise DriverGone(str(err)) from err
        if not chunk or len(self._buffer) > LINE_BYTES_MAX:
            raise DriverGone("the connection ended")
        self._buffer += chunk


def now_ms() -> int:
    """Wall clock, milliseconds."""
    return time.time_ns() // 1_000_000


def serve(connection: Connection, log: LogWriter, step_ms: int) -> None:
    """Do units until told to stop. Raises DriverGone."""
    while True:
        message = connection.receive()
        if "stop" in message:
            return
        step, part = message["do"]
        unit = Unit(step, part)
        checkpoint = int(message["checkpoint"])
        start_ms = now_ms()
        log.begun(unit, start_ms, checkpoint)
        value = unit_value(unit)
        # The unit's length is set by its pace, not by this machine. The look at the connection at the end keeps a task
        # that was frozen past its container's end from committing a unit that another one has by now.
        connection.hold_until(start_ms + step_ms)
        log.done(unit, value, start_ms, now_ms(), checkpoint)
        connection.send({"done": [step, part], "value": value})


def parse(argv: list[str]) -> dict[str, str]:
    """`--name value` pairs; argparse alone would double the start-up. Raises ValueError."""
    options = dict(zip((name.removeprefix("--") for name in argv[::2]), argv[1::2], strict=False))
    if len(argv) % 2 or sorted(options) != sorted(_OPTIONS):
        raise ValueError("needed, each with a value: " + " ".join("--" + name for name in _OPTIONS))
    return options


def main(argv: list[str]) -> int:
    """Run one task; the process's exit status."""
    try:
        options = parse(argv)
        host, _, port = options["driver"].rpartition(":")
        token = os.environ[options["token-env"]]
        container, slot, step_ms = options["container"], int(options["slot"]), int(options["step-ms"])
        address = (host, int(port))
    except (ValueError, KeyError) as err:
        print(f"task: {err}", file=sys.stderr)
        return EXIT_USAGE
    try:
        connection = Connection(*address)
        connection.send({"hello": container, "token": token})
        serve(connection, LogWriter(Path(options["dir"]), container, slot), step_ms)
    except (DriverGone, OSError) as err:
        print(f"task: the driver is gone: {err}", file=sys.stderr)
        return EXIT_DRIVER_GONE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
