"""`themis admin` against a real arbiter with a simulated cluster, over its real ports; and on a store without an arbiter."""

import http.client
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.logs import logging_kept
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.cli.main import run
from themis_arbiter.obs.logs import configure_logging
from themis_arbiter.ports import EPOCH_SET_MAX
from themis_arbiter.server.bootstrap import Server, build
from themis_arbiter.server.config import load_config
from themis_arbiter.sim.live_cluster import LiveCluster
from themis_arbiter.sim.live_jobs import SimJob, SimNode
from themis_arbiter.sim.live_model import SimTiming, SimulatedCluster

WAIT_S_MAX = 20.0
SETTINGS = {
    "THEMIS_GRPC_ADDRESS": "127.0.0.1:0",
    "THEMIS_HTTP_ADDRESS": "127.0.0.1:0",
    "THEMIS_STORE": "memory:",
    "THEMIS_LEASE": "20 s",
    "THEMIS_NOTICE": "1 s",
    "THEMIS_RESTART_COST": "0",
    "THEMIS_DEBOUNCE": "50 ms",
}
COMMAND = (sys.executable, "-m", "themis_arbiter.cli", "admin")


class Cli:
    """The command line, in this process; `server` is the arbiter that it talks to."""

    def __init__(self, capfd: pytest.CaptureFixture[str], server: Server) -> None:
        self._capfd, self.server = capfd, server

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        status = run(arguments)
        out, err = self._capfd.readouterr()
        return status, out, err

    def json(self, *arguments: str) -> Any:
        status, out, err = self(*arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what the cluster and the arbiter do meanwhile."""
        deadline_s = time.monotonic() + WAIT_S_MAX
        while not is_so():
            assert time.monotonic() < deadline_s, self.server.call(lambda arbiter: str(arbiter.state.ledger))
            time.sleep(0.05)

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection(str(self.server.http_address), timeout=10)
        with closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    clock = SystemClock()
    nodes = [SimNode(node=name, rack="r", gpus=2) for name in ("n1", "n2")]
    jobs = [SimJob(app_id="a", job_id="job-a", max_gpus=2, work=1e9)]
    model = SimulatedCluster(nodes, jobs, start_ms=clock.now_ms(), timing=SimTiming(heartbeat_ms=50, start_delay_ms=50))
    cluster = LiveCluster(model, clock)
    server = build(load_config(None, SETTINGS), clock=clock, rm=cluster)
    server.start()
    cluster.start(server.submit)
    monkeypatch.setenv("THEMIS_ARBITER", str(server.grpc_address))
    cli = Cli(capfd, server)
    cli.until(lambda: [x["state"] for x in cli.json("leases")["leases"]] == ["active"] * 2)
    yield cli
    cluster.stop()
    assert server.stop()


def test_pause_and_resume(cli: Cli) -> None:
    assert cli("admin", "pause", "--yes") == (0, "no more rounds are held; leases are renewed as they are\n", "")
    assert "Paused by an admin" in cli.get("/")
    assert "\nthemis_paused 1.0\n" in cli.get("/metrics")
    assert json.loads(cli.get("/api/v1/status"))["is_paused"]
    assert "An admin has paused auctions" in cli("explain", "a")[1]
    assert cli("admin", "pause", "--yes") == (1, "", "themis: it is paused already\n")
    answer = cli.json("admin", "resume", "--yes")
    assert (answer["is_done"], answer["text"], answer["verb"]) == (True, "rounds are held again", "resume")
    assert "\nthemis_paused 0.0\n" in cli.get("/metrics")


def test_refusal_as_json_is_a_document_and_status_1(cli: Cli) -> None:
    status, out, err = cli("admin", "resume", "--yes", "--json")
    assert status == 1
    assert json.loads(out)["is_done"] is False
    assert err == "themis: it is not paused\n"


def test_revoke_takes_the_leases_of_an_app_with_notice(cli: Cli) -> None:
    assert cli("admin", "revoke", "a", "--yes")[0] == 0
    assert "is being drained (revoked)" in cli("explain", "a")[1]
    cli.until(lambda: not cli.json("leases")["leases"])
    assert "An admin took leases of job-a back" in cli("explain", "a")[1]
    metrics = cli.get("/metrics")
    assert 'themis_container_ends_total{cause="given_back",was_due="true"} 2.0' in metrics
    assert 'themis_lease_transitions_total{cause="revoked",from="active",to="draining"} 2.0' in metrics
    assert cli("admin", "revoke", "a", "--yes")[0] == 1


def test_drain_and_undo(cli: Cli) -> None:
    assert cli("admin", "drain", "n1", "--yes")[0] == 0
    assert {n["node"]: (n["state"], n["gpus_free"]) for n in cli.json("nodes")["nodes"]}["n1"] == ("DRAINED", 0)
    assert "Node n1: DRAINED" in cli.get("/")
    assert 'themis_nodes{state="drained"} 1.0' in cli.get("/metrics")
    held = cli.json("apps")["apps"][0]["gpus_by_node"]
    if "n1" in held:
        assert "n1 is being drained by an admin" in cli("explain", "a")[1]
    assert cli("admin", "drain", "n1", "--undo", "--yes")[0] == 0
    assert {n["state"] for n in cli.json("nodes")["nodes"]} == {"RUNNING"}
    assert cli("admin", "drain", "n7", "--yes")[2] == "themis: no node is called 'n7'; see `themis nodes`\n"


def test_set_weight(cli: Cli) -> None:
    assert cli("admin", "set-weight", "a", "2.5", "--yes")[0] == 0
    assert "Its weight is 2.5, set by an admin." in cli("explain", "a")[1]
    assert "a weight lies between" in cli("admin", "set-weight", "a", "0", "--yes")[2]
    assert cli("admin", "set-weight", "a", "much", "--yes")[0] == 2
    for wrong in ("nan", "inf"):
        status, _, err = cli("admin", "set-weight", "a", wrong, "--yes")
        assert status == 2
        assert f"WEIGHT: {wrong} is no weight; write a number above 0" in err
    for verb in (("revoke", ""), ("drain", " "), ("set-weight", "", "2")):
        status, _, err = cli("admin", *verb, "--yes")
        assert status == 2
        assert "is empty; write a name" in err


def test_observe_only(cli: Cli) -> None:
    assert cli("admin", "observe-only", "on", "--yes")[0] == 0
    assert cli.json("leases")["leases"] == []
    assert "\nthemis_observing 1.0\n" in cli.get("/metrics")
    assert "looks on only" in cli("explain", "a")[1]
    assert cli("admin", "observe-only", "off", "--yes")[0] == 0
    cli.until(lambda: len(cli.json("leases")["leases"]) == 2)
    assert "adopted: it ran before the arbiter knew of it" in cli("explain", "a")[1]


def test_request_under_the_same_id_is_done_once(cli: Cli) -> None:
    for _ in range(2):
        assert cli.json("admin", "pause", "--yes", "--request-id", "maintenance-7")["is_done"]
    assert [e["request_id"] for e in cli.json("admin", "audit")["entries"]] == ["maintenance-7"]


def test_audit_lists_what_was_asked_and_what_came_of_it(cli: Cli) -> None:
    assert cli("admin", "audit") == (0, "", "none\n")
    cli("admin", "set-weight", "a", "3", "--yes")
    cli("admin", "drain", "n7", "--yes")
    rows = cli("admin", "audit")[1].splitlines()[1:]
    assert rows[0].split()[3:7] == ["drain", "n7", "-", "no"]
    assert rows[1].split()[3:7] == ["set-weight", "a", "3", "yes"]
    assert "@" in rows[0].split()[2]
    (entry,) = json.loads(cli.get("/api/v1/audit?limit=1"))["entries"]
    assert (entry["verb"], entry["target"], entry["is_done"]) == ("drain", "n7", False)


def test_a_name_in_an_answer_is_escaped_once(cli: Cli) -> None:
    name, shown = "a\u00adb\\c", r"'a\xadb\\c'"  # as Python writes it
    revoke, weigh = ("admin", "revoke", name, "--yes"), ("admin", "set-weight", name, "2", "--yes")
    for arguments in (revoke, weigh, ("explain", name), ("leases", "--app", name)):
        status, _, err = cli(*arguments)
        assert (status, shown in err) == (1, True), err
    for path in ("explain/", "leases?app="):
        assert shown in json.loads(cli.get(f"/api/v1/{path}{quote(name)}"))["error"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["pause"], "this would hold no more auctions"),
        (["revoke", "a\x1b"], "\\x1b"),
        (["observe-only", "maybe", "--yes"], "'maybe' is not one of 'on', 'off'"),
        (["revoke", "\udcff", "--yes"], "is not UTF-8"),
        (["reset-epoch", "--yes"], "name the store"),
        (["reset-epoch", "--store", "memory:", "--yes"], "a store in memory does not outlive its arbiter"),
        (["reset-epoch", "--store", "sqlite:/nonexistent/x.db", "--yes"], "there is no store"),
        (["reset-cluster", "--store", f"sqlite:{__file__}", "--yes"], "only stores in ZooKeeper are a cluster's"),
        (["reset-epoch", "--store", "leases.db", "--yes"], "--store: 'leases.db' is not a store"),
    ],
)
def test_wrong_use_is_status_2(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull, encoding="utf-8"))  # noqa: SIM115, PTH123 - closed with the test
    monkeypatch.setenv("THEMIS_ARBITER", "127.0.0.1:1")
    status = run(["admin", *arguments])
    out, err = capfd.readouterr()
    assert (status, out) == (2, "")
    assert text in err
    sys.stdin.close()


@pytest.mark.parametrize(("reply", "status"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_at_a_terminal_it_asks(cli: Cli, reply: bytes, status: int) -> None:
    ours, its = pty.openpty()
    try:
        os.write(ours, reply)
        done = subprocess.run([*COMMAND, "pause"], stdin=its, capture_output=True, text=True, check=False, timeout=60)
    finally:
        os.close(ours)
        os.close(its)
    assert done.returncode == status
    assert "This will hold no more auctions" in done.stderr
    assert bool(json.loads(cli.get("/api/v1/status"))["is_paused"]) == (status == 0)
    assert ("nothing was done" in done.stderr) == (status == 1)


# -- the epoch of a store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "leases.db"
    with closing(SqliteStore(path)) as opened:
        assert opened.acquire_epoch() == 1
    return path


def epoch_of(path: Path) -> int:
    with closing(SqliteStore(path)) as opened:
        return opened.load().epoch


def reset(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    with logging_kept():
        status = run(["admin", "reset-epoch", "--yes", *arguments])
    return status, *capfd.readouterr()


def test_epoch_is_raised_and_never_lowered(capfd: pytest.CaptureFixture[str], store: Path) -> None:
    status, out, err = reset(capfd, "--store", f"sqlite:{store}")
    assert (status, epoch_of(store)) == (0, 2)
    assert "is 2 instead of 1; the next arbiter on it takes 3" in out
    assert 'message="admin request"' in err
    assert "verb=reset-epoch" in err
    answer = json.loads(reset(capfd, "--store", f"sqlite:{store}", "--to", "40", "--json")[1])
    assert (answer["epoch_before"], answer["epoch"], epoch_of(store)) == (2, 40, 40)
    for to in ("40", "7"):
        status, out, err = reset(capfd, "--store", f"sqlite:{store}", "--to", to)
        assert (status, out, epoch_of(store)) == (1, "", 40)
        assert "never lowered" in err
        assert err.count("\n") == 1  # nothing was done, so there is nothing for the audit
    assert reset(capfd, "--store", f"sqlite:{store}", "--to", str(EPOCH_SET_MAX + 1))[0] == 2


def test_a_far_jump_of_the_epoch_is_asked_for_twice_and_leaves_room_for_terms(
    capfd: pytest.CaptureFixture[str], store: Path
) -> None:
    jump = ("--store", f"sqlite:{store}", "--to", str(EPOCH_SET_MAX))
    status, out, err = reset(capfd, *jump)
    assert (status, out, epoch_of(store), "more than 1,000,000 above it" in err) == (1, "", 1, True)
    assert reset(capfd, *jump, "--far")[0] == 0
    with closing(SqliteStore(store)) as opened:
        assert opened.acquire_epoch() == EPOCH_SET_MAX + 1


def test_store_of_a_settings_file(capfd: pytest.CaptureFixture[str], store: Path) -> None:
    file = store.parent / "themis.toml"
    file.write_text('store = "sqlite:leases.db"\n', encoding="utf-8")
    assert reset(capfd, "--config", str(file))[0] == 0
    assert epoch_of(store) == 2


def test_store_that_an_arbiter_runs_on_is_left_alone(capfd: pytest.CaptureFixture[str], store: Path) -> None:
    environment = {**os.environ, **SETTINGS, "THEMIS_STORE": f"sqlite:{store}"}
    command = [sys.executable, "-m", "themis_arbiter.cli", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as arbiter:
        try:
            assert arbiter.stdout is not None
            assert json.loads(arbiter.stdout.readline())["epoch"] == 2
            status, _, err = reset(capfd, "--store", f"sqlite:{store}")
            assert status == 1
            assert "in use by another process: stop the arbiter on it first" in err
            assert arbiter.poll() is None
        finally:
            arbiter.terminate()
            arbiter.wait(30)
    assert reset(capfd, "--store", f"sqlite:{store}")[0] == 0
    assert epoch_of(store) == 3


def test_audit_is_logged_whatever_the_level(capfd: pytest.CaptureFixture[str], cli: Cli) -> None:
    capfd.readouterr()
    with logging_kept():
        configure_logging("json", "error")
        run(["admin", "pause", "--yes"])
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    (line,) = (line for line in lines if line["message"] == "admin request")
    assert (line["logger"], line["verb"], line["is_done"]) == ("themis_arbiter.audit", "pause", True)
