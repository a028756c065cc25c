"""The bridge as a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_gateway import TOKEN, FakePlugin, FakePy4JServer
from tests.support.serving import Serving, serve
from themis_arbiter.core.events import RmReported

Launch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serving() -> Iterator[Serving]:
    with serve() as serving:
        yield serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakePy4JServer]:
    server = FakePy4JServer(FakePlugin())
    server.write_file(tmp_path / "gateway")
    yield server
    server.is_hung.clear()
    server.close()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    started: list[subprocess.Popen[str]] = []

    def launcher(arbiter: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "yarn_bridge.daemon", "--gateway-dir", str(tmp_path / "gateway")]
        command += ["--arbiter", arbiter, "--log-level", "DEBUG"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield launcher
    for process in started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    began_s = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=10)
    assert time.monotonic() - began_s < 3
    return process.returncode, output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_soon_when_told_and_says_no_secret(
    serving: Serving, server: FakePy4JServer, launch: Launch, number: int
) -> None:
    process = launch(f"127.0.0.1:{serving.port}")
    serving.engine.wait_for(RmReported, timeout_s=30)
    command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
    status, output = end(process, number)
    assert status == 0
    assert "the bridge has stopped" in output
    assert TOKEN not in output + command_line.decode(errors="replace")
    assert "Traceback" not in output


def test_it_ends_soon_also_where_everything_hangs(serving: Serving, server: FakePy4JServer, launch: Launch) -> None:
    process = launch(f"127.0.0.1:{serving.port}")
    serving.engine.wait_for(RmReported, timeout_s=30)
    server.is_hung.set()
    time.sleep(1.2)
    assert end(process, signal.SIGTERM)[0] == 0


def test_open_files_and_bad_addresses_are_wrong_use(server: FakePy4JServer, launch: Launch, tmp_path: Path) -> None:
    output, _ = launch("nowhere").communicate(timeout=30)
    assert "'nowhere' is no arbiter's address" in output
    (tmp_path / "gateway" / "gateway.json").chmod(0o644)
    process = launch("127.0.0.1:1")
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "is open to others than its owner: chmod 600" in output
    assert TOKEN not in output
