"""`themis serve` and `themis bridge` as processes of their own, the way an admin runs them."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 8.0
TAIL_BYTES: Final = 2_000


class ChildError(Exception):
    """A process did not start or ended by itself; the message has the end of its log."""


class Child:
    """A `themis` process in a session of its own, so that a Ctrl-C at the terminal goes to us alone."""

    def __init__(self, verb: str, arguments: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.verb, self._log = verb, log
        command = [sys.executable, "-m", "themis_arbiter.cli", verb, *arguments]
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )

    def ready_line(self) -> dict[str, Any]:
        """The JSON line that it prints when it listens. Errors: ChildError."""
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=lambda out: lines.put(out.readline()), args=(self._process.stdout,), daemon=True).start()
        try:
            line = lines.get(timeout=READY_S_MAX)
            return dict(json.loads(line))
        except queue.Empty:
            raise ChildError(self._story(f"was not ready in {READY_S_MAX:g} s")) from None
        except ValueError:
            raise ChildError(self._story("ended before it was ready")) from None

    def check(self) -> None:
        """Errors: ChildError where it is gone."""
        status = self._process.poll()
        if status is not None:
            raise ChildError(self._story(f"ended by itself (exit status {status})"))

    def stop(self) -> None:
        """SIGTERM, after STOP_S_MAX SIGKILL; waits until it is gone."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _story(self, what: str) -> str:
        tail = self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
        return f"`themis {self.verb}` {what}; {self._log} ends with:\n{tail or '(nothing)'}"


def clean_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Our environment without settings of another arbiter, and with `added`."""
    return {k: v for k, v in os.environ.items() if not k.startswith("THEMIS_")} | dict(added)
