"""The whole process: starts on ports that the system chooses, answers, and ends in time with the right status."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from themis_arbiter.core.events import Event, RmAttached
from themis_arbiter.core.types import Millis
from themis_arbiter.server.bootstrap import Server, StartError, build
from themis_arbiter.server.config import ServerConfig, load_config

STOP_S_MAX = 5.0
COMMAND = (sys.executable, "-m", "themis_arbiter.cli")
LOOSE = {"THEMIS_GRPC_ADDRESS": "127.0.0.1:0", "THEMIS_HTTP_ADDRESS": "127.0.0.1:0", "THEMIS_STORE": "memory:"}


def configure(**settings: str) -> ServerConfig:
    return load_config(None, LOOSE | {f"THEMIS_{key.upper()}": value for key, value in settings.items()})


def http_get(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Process:
    """`themis serve` with what it said."""

    def __init__(self, started: "subprocess.Popen[str]", log: Path) -> None:
        assert started.stdout is not None
        self.started = started
        self.log = log
        self.ready: dict[str, Any] = json.loads(started.stdout.readline() or log.read_text(encoding="utf-8"))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        begun = time.monotonic()
        self.started.send_signal(number)
        status = self.started.wait(30)
        assert time.monotonic() - begun < STOP_S_MAX, self.log.read_text(encoding="utf-8")
        return status

    def get(self, path: str) -> str:
        return http_get(self.ready["http_address"], path)


@contextmanager
def serving(folder: Path, *arguments: str, **settings: str) -> Iterator[Process]:
    environment = {**os.environ, **LOOSE, **settings}
    log = folder / "log"
    with log.open("w", encoding="utf-8") as stderr:
        command = [*COMMAND, "serve", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment) as started:
            try:
                yield Process(started, log)
            finally:
                if started.poll() is None:
                    started.kill()


def test_arbiter_without_a_bridge_answers_and_stops(tmp_path: Path) -> None:
    with serving(tmp_path) as process:
        done = subprocess.run(
            [*COMMAND, "apps", "--json", "--arbiter", process.ready["grpc_address"]],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert json.loads(done.stdout)["apps"] == []
        values = {s.name: s.value for f in text_string_to_metric_families(process.get("/metrics")) for s in f.samples}
        assert values["themis_leader"] == 1
        assert values["themis_epoch"] == process.ready["epoch"] == 1
        assert values["themis_bridge_connected"] == 0
        assert values["themis_state_age_seconds"] == 0
        assert json.loads(process.get("/readyz")) == {"status": "ready"}
        assert json.loads(process.get("/api/v1/apps"))["apps"] == []
        assert json.loads(process.get("/api/v1/status"))["http_address"] == process.ready["http_address"]
        assert process.stop() == 0
        assert "message=stopped status=0" in process.log.read_text(encoding="utf-8")


def test_interrupt_ends_it_too(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as process:
        assert process.stop(signal.SIGINT) == 0
        lines = [json.loads(line) for line in process.log.read_text(encoding="utf-8").splitlines()]
        assert [line["reason"] for line in lines if line["message"] == "stopping"] == ["SIGINT"]


def test_next_process_on_a_store_takes_the_next_epoch(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'leases.db'}"
    for epoch in (1, 2):
        with serving(tmp_path, THEMIS_STORE=store) as process:
            assert process.ready["epoch"] == epoch
            assert process.stop() == 0


@pytest.mark.parametrize("setting", ["THEMIS_GRPC_ADDRESS", "THEMIS_HTTP_ADDRESS"])
def test_taken_port_is_status_1_and_one_line(setting: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        environment = {**os.environ, **LOOSE, setting: address}
        done = subprocess.run([*COMMAND, "serve"], capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("themis: ")]
    assert address in line
    assert "choose another" in line


def test_store_that_cannot_be_opened_is_told_and_leaves_no_port_taken(tmp_path: Path) -> None:
    (tmp_path / "leases.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StartError, match=r"store sqlite:.*leases\.db"):
        build(configure(store=f"sqlite:{tmp_path / 'leases.db'}"))


def test_journal_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"journal\.folder"):
        build(configure(journal_folder=str(tmp_path / "file" / "x")))


@pytest.fixture
def server() -> Iterator[Server]:
    server = build(configure())
    server.start()
    yield server
    server.stop()


def test_engine_that_fails_ends_the_process_with_its_story(server: Server) -> None:
    def broken(_now_ms: Millis) -> Event:
        raise RuntimeError("no such thing can happen")

    server.submit(broken)
    assert server.wait() == "the engine failed: no such thing can happen"
    assert server.health() == "the engine failed: no such thing can happen"
    assert "themis_epoch" in http_get(str(server.http_address), "/metrics")  # the last state is still told


def test_fenced_arbiter_knows_why_it_ends(tmp_path: Path) -> None:
    config = configure(store=f"sqlite:{tmp_path / 'leases.db'}")
    first, second = build(config), build(config)
    try:
        assert first.start()["epoch"] == 1
        assert second.start()["epoch"] == 2
        first.submit(lambda now_ms: RmAttached(at_ms=now_ms, start_id="s1"))  # makes it write, and so notice
        assert "another arbiter" in first.wait()
        assert first.health() != ""
        assert second.health() == ""
    finally:
        assert second.stop()
        assert first.stop()


def test_each_start_journals_to_its_own_file_and_old_ones_go(tmp_path: Path) -> None:
    (tmp_path / "notes.journal").touch()
    config = configure(journal_folder=str(tmp_path), journal_files_max="2")
    for _ in range(3):
        server = build(config)
        server.start()
        assert server.stop()
    journals = sorted(tmp_path.glob("arbiter-*.journal"))
    assert len(journals) == 2
    assert (tmp_path / "notes.journal").exists()
    for path in journals:
        assert '"EpochAcquired"' in path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o077 == 0
