"""Several real `themis serve` processes on one ZooKeeper, each with ports of its own, ended by their pids."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from tests.support.zookeeper_server import eventually

SESSION_S: Final = 2.0
ELECTED_S_MAX: Final = 15.0  # of a machine with two slow cores, on which all of them start at once
HTTP_S: Final = 5.0
SERVE: Final = ("themis_arbiter.cli", "serve")


class ArbiterProcess:
    """One of them. `log` has what it said on stderr."""

    def __init__(self, name: str, store: str, folder: Path, program: Sequence[str] = SERVE, **settings: str) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        loose = {"THEMIS_GRPC_ADDRESS": "127.0.0.1:0", "THEMIS_HTTP_ADDRESS": "127.0.0.1:0", "THEMIS_STORE": store}
        loose |= {"THEMIS_ZOOKEEPER_SESSION": f"{SESSION_S} s", "THEMIS_JOURNAL_FOLDER": str(folder / f"{name}-journals")}
        loose |= {f"THEMIS_{key.upper()}": value for key, value in settings.items()}
        with self.log.open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program],
                env={**os.environ, **loose},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> None:
        """Until it listens. Errors: AssertionError."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text(encoding="utf-8")
        self.ready = json.loads(line)

    @property
    def grpc_address(self) -> str:
        return str(self.ready["grpc_address"])

    def get(self, path: str) -> tuple[int, str]:
        """HTTP status and body; (0, "") where nobody answers in time."""
        try:
            with urllib.request.urlopen(f"http://{self.ready['http_address']}{path}", timeout=HTTP_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def document(self, view: str) -> dict[str, Any]:
        """What /api/v1/VIEW says. Errors: AssertionError where it does not answer."""
        code, body = self.get(f"/api/v1/{view}")
        assert code == HTTPStatus.OK, f"{self.name}: {code} {body}"
        return dict(json.loads(body))

    def status(self) -> dict[str, Any]:
        """Its /api/v1/status; empty where it does not answer."""
        code, body = self.get("/api/v1/status")
        return json.loads(body) if code == 200 else {}

    @property
    def leads(self) -> bool:
        return bool(self.status().get("is_leader"))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        """However it is, it is gone after this."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Arbiters:
    """Those of one test; a context manager."""

    def __init__(self, store: str, folder: Path, **settings: str) -> None:
        self._store, self._folder, self._settings = store, folder, settings
        self._stack = ExitStack()
        self.all: list[ArbiterProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *names: str, program: Sequence[str] = SERVE, store: str = "", **settings: str) -> None:
        """Start some more, and wait until they listen. `store` and `settings` go before those of all."""
        settings = {**self._settings, **settings}
        started = [ArbiterProcess(name, store or self._store, self._folder, program, **settings) for name in names]
        for one in started:
            self._stack.callback(one.end)
        for one in started:
            one.wait_ready()
        self.all += started

    def forget(self, one: ArbiterProcess) -> None:
        """One that is gone."""
        one.end()
        self.all.remove(one)

    def wait_leader(self, but: ArbiterProcess | None = None, within_s: float = ELECTED_S_MAX) -> ArbiterProcess:
        """The one that leads, which is not `but`. Errors: AssertionError."""
        found: list[ArbiterProcess] = []

        def is_found() -> bool:
            found[:] = [one for one in self.all if one is not but and one.leads]
            return bool(found)

        logs = "\n".join(f"{one.name}: {one.log}" for one in self.all)
        eventually(is_found, within_s, f"one of them leads\n{logs}")
        assert len(found) == 1, [one.name for one in found]
        return found[0]
