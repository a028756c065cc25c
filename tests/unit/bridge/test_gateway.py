import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_gateway import TOKEN, FakePlugin, FakePy4JServer
from yarn_bridge.gateway import GatewayError, GatewayMissing, InsecureGatewayError, Py4JGateway, read_gateway_file


@pytest.fixture
def server() -> Iterator[FakePy4JServer]:
    server = FakePy4JServer(FakePlugin())
    yield server
    server.is_hung.clear()
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "gateway"


def connect(server: FakePy4JServer, folder: Path, call_s: float = 5.0) -> Py4JGateway:
    server.write_file(folder)
    return Py4JGateway(read_gateway_file(folder), call_s)


def test_calls_carry_bytes_both_ways(server: FakePy4JServer, folder: Path) -> None:
    gateway = connect(server, folder)
    assert json.loads(gateway.hello())["start_id"] == "start-1"
    assert json.loads(gateway.snapshot())["is_full"] is True
    assert json.loads(gateway.changes(0, 0))["seq"] == 0
    assert json.loads(gateway.apply(b'{"start_id": "start-1", "epoch": "1", "seq": "1", "is_full": true}'))["is_accepted"]
    assert json.loads(gateway.diagnostics(b"{}"))["is_accepted"]
    gateway.close()
    assert server.calls == ["hello", "snapshot", "changes", "apply", "diagnostics"]


def test_the_token_shows_nowhere(server: FakePy4JServer, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "py4j"):
        gateway = connect(server, folder)
        gateway.hello()
        assert TOKEN not in repr(read_gateway_file(folder))
        server.token = "another-one-that-is-long-enough"
        with pytest.raises(GatewayError, match="does not take the token") as err:
            Py4JGateway(read_gateway_file(folder)).hello()
    assert TOKEN not in caplog.text + str(err.value)
    gateway.close()


def test_a_java_exception_is_told_and_forgotten_there(server: FakePy4JServer, folder: Path) -> None:
    gateway = connect(server, folder)
    server.fails["snapshot"] = "java.lang.IllegalStateException: é"
    with pytest.raises(GatewayError, match=r"snapshot failed: 'java.lang.IllegalStateException: \\xe9'"):
        gateway.snapshot()
    assert server.forgotten == ["o-snapshot"]
    assert gateway.hello()  # the connection goes on
    gateway.close()


def test_a_call_without_an_answer_ends_in_time_and_is_not_repeated(server: FakePy4JServer, folder: Path) -> None:
    gateway = connect(server, folder, call_s=0.3)
    gateway.hello()
    server.is_hung.set()
    began_s = time.monotonic()
    with pytest.raises(GatewayError, match="too long"):
        gateway.apply(b"{}")
    assert time.monotonic() - began_s < 2
    server.is_hung.clear()
    with pytest.raises(GatewayError, match="closed"):
        gateway.hello()
    assert server.calls.count("apply") == 1


def test_a_hung_server_is_noticed_while_connecting_too(server: FakePy4JServer, folder: Path) -> None:
    server.is_hung.set()
    with pytest.raises(GatewayError):
        connect(server, folder, call_s=0.3).hello()


def test_closing_wakes_a_call(server: FakePy4JServer, folder: Path) -> None:
    gateway = connect(server, folder, call_s=30)
    gateway.hello()
    server.is_hung.set()
    threading.Timer(0.2, gateway.close).start()
    began_s = time.monotonic()
    with pytest.raises(GatewayError):
        gateway.hello()
    assert time.monotonic() - began_s < 5


def test_nobody_listens(server: FakePy4JServer, folder: Path) -> None:
    gateway = connect(server, folder)
    server.close()
    with pytest.raises(GatewayError, match="cannot connect"):
        gateway.hello()


def test_no_file_is_no_gateway(folder: Path) -> None:
    with pytest.raises(GatewayMissing):
        read_gateway_file(folder)
    folder.mkdir(mode=0o700)
    with pytest.raises(GatewayMissing):
        read_gateway_file(folder)


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o750, 0o600), (0o701, 0o600), (0o700, 0o640), (0o700, 0o604)])
def test_what_others_can_open_is_refused(server: FakePy4JServer, folder: Path, folder_mode: int, file_mode: int) -> None:
    path = server.write_file(folder)
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    with pytest.raises(InsecureGatewayError, match="open to others than its owner: chmod"):
        read_gateway_file(folder)


def test_links_and_what_is_no_file_are_refused(server: FakePy4JServer, folder: Path) -> None:
    path = server.write_file(folder)
    path.rename(folder / "real.json")
    path.symlink_to(folder / "real.json")
    with pytest.raises(GatewayError):
        read_gateway_file(folder)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises((GatewayError, InsecureGatewayError)):
        read_gateway_file(folder)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"host": "10.0.0.1"}, "loopback"),
        ({"host": 7}, "loopback"),
        ({"port": 0}, "port"),
        ({"port": "40123"}, "port"),
        ({"token": ""}, "token"),
        ({"token": "secret\nsecret-secret"}, "token"),
        ({"start_id": ""}, "start_id"),
    ],
)
def test_content_that_cannot_be_used(server: FakePy4JServer, folder: Path, changes: dict[str, object], why: str) -> None:
    server.write_file(folder, **changes)
    with pytest.raises(GatewayError, match=why) as err:
        read_gateway_file(folder)
    assert "secret" not in str(err.value)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b"\xff", b"{" * 20_000, b'"' + b"x" * 20_000 + b'"'])
def test_content_that_is_none(server: FakePy4JServer, folder: Path, content: bytes) -> None:
    server.write_file(folder).write_bytes(content)
    with pytest.raises(GatewayError, match="cannot be used"):
        read_gateway_file(folder)
