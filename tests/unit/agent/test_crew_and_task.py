"""Crew and task over real sockets: the task as the process that a container runs, the crew in this one."""

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from themis_arbiter.agent import crew as crew_module
from themis_arbiter.agent.crew import Crew
from themis_arbiter.agent.job_events import JobEvent, TaskConnected, TaskDisconnected, UnitReported
from themis_arbiter.agent.task import EXIT_DRIVER_GONE, EXIT_USAGE
from themis_arbiter.agent.tasklog import read_log
from themis_arbiter.agent.work import Unit, unit_value

TOKEN = "the-right-one"
PATIENCE_S = 20.0
ROOT = Path(__file__).resolve().parents[3]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew("127.0.0.1", TOKEN, now_ms)
    yield made
    made.close()


def start_task(crew: Crew, job_dir: Path, *, token: str = TOKEN, step_ms: int = 10) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-S", "-m", "themis_arbiter.agent.task", "--driver", crew.address, "--token-env", "TOK"]
    words += ["--container", "c1", "--slot", "0", "--dir", str(job_dir), "--step-ms", str(step_ms)]
    return subprocess.Popen(words, env={"PYTHONPATH": str(ROOT), "TOK": token}, stderr=subprocess.DEVNULL)


def wait_for(crew: Crew, count: int) -> list[JobEvent]:
    events: list[JobEvent] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(events) < count and time.monotonic() < deadline:
        events += crew.wait(100)
    return events


def test_a_task_does_logs_and_reports_its_units_and_stops_when_told(crew: Crew, tmp_path: Path) -> None:
    task = start_task(crew, tmp_path)
    (hello,) = wait_for(crew, 1)
    assert isinstance(hello, TaskConnected)
    assert hello.container_id == "c1"
    for step in range(2):
        crew.assign("c1", Unit(step, 1), checkpoint=4)
        if step == 1:
            crew.stop("c1")  # takes effect after the unit in hand
        (report,) = wait_for(crew, 1)
        assert isinstance(report, UnitReported)
        assert (report.unit, report.value) == (Unit(step, 1), unit_value(Unit(step, 1)))
    (goodbye,) = wait_for(crew, 1)
    assert isinstance(goodbye, TaskDisconnected)
    assert task.wait(PATIENCE_S) == 0
    log = read_log(tmp_path, "c1")
    assert [(line.unit, line.is_done) for line in log.lines] == [
        (Unit(0, 1), False),
        (Unit(0, 1), True),
        (Unit(1, 1), False),
        (Unit(1, 1), True),
    ]
    assert {line.checkpoint for line in log.lines} == {4}
    assert all(line.end_ms >= line.start_ms + 10 for line in log.done)


def test_a_task_ends_at_once_when_its_connection_does_and_does_not_log_its_unit(crew: Crew, tmp_path: Path) -> None:
    task = start_task(crew, tmp_path, step_ms=60_000)
    wait_for(crew, 1)
    crew.assign("c1", Unit(0, 0), checkpoint=0)
    deadline = time.monotonic() + PATIENCE_S
    while not read_log(tmp_path, "c1").lines and time.monotonic() < deadline:
        time.sleep(0.01)
    (goodbye,) = crew.disconnect("c1")
    assert isinstance(goodbye, TaskDisconnected)
    assert task.wait(PATIENCE_S) == EXIT_DRIVER_GONE
    assert [line.is_done for line in read_log(tmp_path, "c1").lines] == [False]


def test_a_task_that_was_frozen_past_its_end_does_not_log_its_unit(crew: Crew, tmp_path: Path) -> None:
    task = start_task(crew, tmp_path, step_ms=300)
    wait_for(crew, 1)
    crew.assign("c1", Unit(0, 0), checkpoint=0)
    deadline = time.monotonic() + PATIENCE_S
    while not read_log(tmp_path, "c1").lines and time.monotonic() < deadline:
        time.sleep(0.01)
    task.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    crew.disconnect("c1")
    task.send_signal(signal.SIGCONT)
    assert task.wait(PATIENCE_S) == EXIT_DRIVER_GONE
    assert read_log(tmp_path, "c1").done == ()


def test_a_killed_task_is_told_as_disconnected(crew: Crew, tmp_path: Path) -> None:
    task = start_task(crew, tmp_path, step_ms=60_000)
    wait_for(crew, 1)
    task.kill()
    task.wait(PATIENCE_S)
    assert [type(each) for each in wait_for(crew, 1)] == [TaskDisconnected]
    assert crew.size == 0


def test_a_wrong_token_is_cut_off_without_a_word(crew: Crew, tmp_path: Path) -> None:
    task = start_task(crew, tmp_path, token="a-wrong-one")
    deadline = time.monotonic() + PATIENCE_S
    events: list[JobEvent] = []
    while task.poll() is None and time.monotonic() < deadline:
        events += crew.wait(50)
    assert (task.wait(PATIENCE_S), events, crew.size) == (EXIT_DRIVER_GONE, [], 0)


def test_wrong_use_of_a_task_is_status_2() -> None:
    words = [sys.executable, "-m", "themis_arbiter.agent.task", "--driver", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == EXIT_USAGE
    assert "--step-ms" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[1]\n",
        b'{"done": [0, 0], "value": 1}\n',
        b'{"hello": "", "token": "the-right-one"}\n',
        b'{"hello": "c1", "token": "\xc3\xa9"}\n',
        b"x" * 5_000,
    ],
)
def test_nonsense_cuts_a_stranger_off(crew: Crew, line: bytes) -> None:
    host, port = crew.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stranger:
        stranger.sendall(line)
        deadline = time.monotonic() + PATIENCE_S
        stranger.settimeout(0.05)
        answer: bytes | None = None
        while answer is None and time.monotonic() < deadline:
            assert crew.wait(10) == []
            try:
                answer = stranger.recv(1)
            except TimeoutError:
                continue
            except ConnectionResetError:
                answer = b""
        assert answer == b""


def test_a_name_is_taken_once_and_silence_has_a_limit(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "HELLO_MS_MAX", 100)
    host, port = crew.address.split(":")
    hello = json.dumps({"hello": "c1", "token": TOKEN}).encode() + b"\n"
    sockets = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(3)]
    first, second, silent = sockets
    first.sendall(hello)
    assert [type(each) for each in wait_for(crew, 1)] == [TaskConnected]
    second.sendall(hello)
    began = time.monotonic()
    while time.monotonic() < began + 0.5:
        assert crew.wait(20) == []
    assert (second.recv(1), silent.recv(1)) == (b"", b"")
    assert crew.size == 1
    for each in sockets:
        each.close()


def test_a_task_starts_lightly(tmp_path: Path, crew: Crew) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    task = start_task(crew, tmp_path)
    wait_for(crew, 1)
    crew.stop("c1")
    assert task.wait(PATIENCE_S) == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # 0.08 s on an idle core; a dozen start within a moment. gRPC or numpy alone would take more than this bound.
    assert cpu_s < 0.25
    loaded = "import themis_arbiter.agent.task, sys; print('grpc' in sys.modules, 'py4j' in sys.modules)"
    words = [sys.executable, "-S", "-c", loaded]
    shown = subprocess.run(words, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]


def test_waking_is_safe_however_often(crew: Crew) -> None:
    for _ in range(100_000):
        crew.wake()
    began = time.monotonic()
    crew.wait(10_000)
    assert time.monotonic() - began < 5
