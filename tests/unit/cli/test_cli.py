"""The command line against an AdminService on a real socket."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from themis_arbiter import __version__
from themis_arbiter.cli import arbiter_client, tables
from themis_arbiter.cli.main import run
from themis_arbiter.gen.themis.v1 import admin_pb2, admin_pb2_grpc, types_pb2

LONG = "x" * 300
NOW_MS = 1_000_000


class FakeAdmin(admin_pb2_grpc.AdminServiceServicer):
    """Answers with canned views and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.delay_s = 0.0
        self.is_empty = False
        self.standing_by = ""

    def ListApps(self, request: admin_pb2.ListAppsRequest, context: grpc.ServicerContext) -> admin_pb2.ListAppsReply:  # noqa: N802
        self.asked.append(request.include_ended)
        time.sleep(self.delay_s)
        if self.is_empty:
            return admin_pb2.ListAppsReply(now_ms=NOW_MS)
        app = admin_pb2.AppView(
            app_id="[bold]a\nb[/bold]",
            user=LONG,
            state="RUNNING",
            rho=1.234,
            rho_forecast=2.5,
            gpus_held=3,
            gpus_by_node={"n2": 1, "n1": 2},
            gpus_wanted=8,
            attained_gpu_s=10.4,
            work_gpu_s=100,
            is_work_estimated=True,
            leases_granted=4,
            leases_renewed=5,
            leases_ended=6,
        )
        return admin_pb2.ListAppsReply(apps=[app], now_ms=NOW_MS)

    def ListLeases(self, request: admin_pb2.ListLeasesRequest, context: grpc.ServicerContext) -> admin_pb2.ListLeasesReply:  # noqa: N802
        self.asked.append(request.app_id)
        ends = {"L1": NOW_MS + 190_000, "L2": NOW_MS - 5_000, "L3": NOW_MS + 1}
        leases = [
            types_pb2.Lease(lease_id=i, app_id="a", node="n1", gpu=k, state="active", end_ms=end, is_next=i == "L3")
            for k, (i, end) in enumerate(ends.items())
        ]
        return admin_pb2.ListLeasesReply(leases=leases, now_ms=NOW_MS)

    def ListRounds(self, request: admin_pb2.ListRoundsRequest, context: grpc.ServicerContext) -> admin_pb2.ListRoundsReply:  # noqa: N802
        self.asked.append(request.limit)
        record = {
            "round": 7,
            "at_ms": 3_723_000,
            "kind": "grid",
            "policy": "themis",
            "offered": ["n1:0", "n1:1", "n1:2"],
            "bids": [{}, {}],
            "kept": {"a": {"j": ["n1:0"]}},
            "leftovers": {"b": {"k": ["n1:1"]}, "a": {"j": []}},
            "unused": ["n1:2"],
        }
        return admin_pb2.ListRoundsReply(decision_json=[json.dumps(record), "5", "{}"])

    def ListNodes(self, request: admin_pb2.ListNodesRequest, context: grpc.ServicerContext) -> admin_pb2.ListNodesReply:  # noqa: N802
        node = admin_pb2.NodeView(node="n1", rack="/r", state="RUNNING", gpus_total=4, gpus_used=5, is_oversubscribed=True)
        return admin_pb2.ListNodesReply(nodes=[node])

    def Explain(self, request: admin_pb2.ExplainRequest, context: grpc.ServicerContext) -> admin_pb2.ExplainReply:  # noqa: N802
        if request.app_id != "a":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no app {request.app_id!r}")
        return admin_pb2.ExplainReply(app_id="a", lines=["first", "second\x1b"])

    def Act(self, request: admin_pb2.ActRequest, context: grpc.ServicerContext) -> admin_pb2.ActReply:  # noqa: N802
        time.sleep(self.delay_s)
        self.asked.append((request.verb, request.target, request.value, request.request_id))
        assert request.actor
        return admin_pb2.ActReply(is_done=not self.is_empty, text="no such thing\x1b" if self.is_empty else "done so")

    def ListAudit(self, request: admin_pb2.ListAuditRequest, context: grpc.ServicerContext) -> admin_pb2.ListAuditReply:  # noqa: N802
        self.asked.append(request.limit)
        if self.is_empty:
            return admin_pb2.ListAuditReply()
        entry = admin_pb2.AuditEntry(
            at_ms=3_723_000,
            request_id="r",
            actor="me\x1b",
            verb="set-weight",
            target="a",
            value=2.5,
            is_done=True,
            text="it is",
        )
        return admin_pb2.ListAuditReply(entries=[entry, admin_pb2.AuditEntry(at_ms=0, verb="pause", text="no")])

    def GetStatus(self, request: admin_pb2.StatusRequest, context: grpc.ServicerContext) -> admin_pb2.StatusReply:  # noqa: N802
        return admin_pb2.StatusReply(is_leader=not self.standing_by, version="1", standing_by=self.standing_by)


class Cli:
    def __init__(self, capfd: pytest.CaptureFixture[str], admin: FakeAdmin, port: int) -> None:
        self._capfd = capfd
        self.admin = admin
        self.address = f"127.0.0.1:{port}"

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capfd.readouterr()
        status = run(arguments)
        out, err = self._capfd.readouterr()
        return status, out, err


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    admin = FakeAdmin()
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("THEMIS_ARBITER", f"127.0.0.1:{port}")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    yield Cli(capfd, admin, port)
    server.stop(None).wait()


def test_apps_as_a_table(cli: Cli) -> None:
    status, out, err = cli("apps")
    assert (status, err) == (0, "")
    head, row = out.splitlines()
    assert head.split()[:6] == ["APP", "USER", "STATE", "RHO", "FORECAST", "GPUS"]
    assert "[bold]a\\x0ab[/bold]" in row
    assert LONG in row
    assert row.split()[2:] == ["RUNNING", "1.23", "2.50", "3", "n1:2,n2:1", "8", "10", "~100", "4", "5", "6"]
    assert cli.admin.asked == [False]


def test_several_arbiters_of_which_none_leads_say_why(cli: Cli) -> None:
    cli.admin.standing_by = "this arbiter does not lead: it does not reach ZooKeeper at zk:2181"
    status, out, err = cli("apps", "--arbiter", f"{cli.address},127.0.0.1:1")
    assert (status, out) == (1, "")
    assert f"{cli.address}: {cli.admin.standing_by}; no arbiter answers at 127.0.0.1:1" in err


def test_apps_as_json(cli: Cli) -> None:
    status, out, err = cli("apps", "--all", "--json")
    assert (status, err) == (0, "")
    (app,) = json.loads(out)["apps"]
    assert app["app_id"] == "[bold]a\nb[/bold]"
    assert app["gpus_by_node"] == {"n1": 2, "n2": 1}
    assert cli.admin.asked == [True]


def test_no_apps_leave_stdout_empty(cli: Cli) -> None:
    cli.admin.is_empty = True
    assert cli("apps") == (0, "", "none\n")
    assert json.loads(cli("apps", "--json")[1])["apps"] == []


def test_leases_show_the_time_left(cli: Cli) -> None:
    _, out, _ = cli("leases", "--app", "a")
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["L1", "L2", "L3"]
    assert rows[0][3:5] == ["active", "3m10s"]
    assert rows[1][3:5] == ["active", "-5s"]
    assert rows[2][3:6] == ["active", "(next)", "-"]
    assert cli.admin.asked == ["a"]
    assert json.loads(cli("leases", "--json")[1])["now_ms"] == NOW_MS


def test_rounds_show_offers_and_winners(cli: Cli) -> None:
    _, out, _ = cli("rounds", "--limit", "3")
    rows = [line.split() for line in out.splitlines()[1:]]
    assert rows[0] == ["7", "01:02:03", "grid", "themis", "3", "2", "1", "1", "1", "a:1,b:1"]
    assert rows[1] == rows[2] == ["-", "-", "-", "-", "-", "-", "0", "0", "-", "-"]
    assert json.loads(cli("rounds", "--json")[1])["rounds"][0]["unused"] == ["n1:2"]
    assert cli.admin.asked == [3, 20]


def test_nodes(cli: Cli) -> None:
    assert cli("nodes")[1].splitlines()[1].split() == ["n1", "/r", "RUNNING", "4", "0", "5", "0", "oversubscribed"]
    both = admin_pb2.NodeView(node="n2", state="RUNNING", gpu_type="v100", is_oversubscribed=True)
    some = admin_pb2.NodeView(node="n3", state="RUNNING", gpu_type="v100")
    notes = [row[-1] for row in tables.node_rows(admin_pb2.ListNodesReply(nodes=[both, some, admin_pb2.NodeView()]))]
    assert notes == ["v100, oversubscribed", "v100", tables.NOTHING]
    assert json.loads(cli("nodes", "--json")[1])["nodes"][0]["gpus_total"] == 4


def test_explain(cli: Cli) -> None:
    assert cli("explain", "a") == (0, "first\nsecond\\x1b\n", "")
    assert json.loads(cli("explain", "a", "--json")[1])["lines"] == ["first", "second\x1b"]


def test_app_that_is_not_there_is_status_1(cli: Cli) -> None:
    assert cli("explain", "ü") == (1, "", "themis: no app 'ü'\n")


def test_option_wins_over_the_variable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_ARBITER", "127.0.0.1:1")
    assert cli("nodes")[0] == 1
    assert cli("nodes", "--arbiter", cli.address)[0] == 0


def test_of_several_arbiters_the_one_that_leads_is_asked(cli: Cli) -> None:
    assert cli("nodes", "--arbiter", f"127.0.0.1:1,{cli.address}")[0] == 0
    status, out, err = cli("nodes", "--arbiter", "127.0.0.1:1,127.0.0.1:2")
    assert (status, out) == (1, "")
    assert err.startswith("themis: none of 127.0.0.1:1,127.0.0.1:2 leads: no arbiter answers at 127.0.0.1:1 (")


def test_arbiter_that_is_not_there_is_one_line_to_act_on(cli: Cli) -> None:
    status, out, err = cli("apps", "--json", "--arbiter", "127.0.0.1:1")
    assert (status, out) == (1, "")
    assert err.startswith("themis: no arbiter answers at 127.0.0.1:1 (")
    assert "themis serve" in err
    assert err.count("\n") == 1


def test_arbiter_that_hangs_is_given_up(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.admin.delay_s = 2.0
    monkeypatch.setattr(arbiter_client.ArbiterClient.__init__, "__defaults__", (0.2,))
    monkeypatch.setattr(arbiter_client.connected.__wrapped__, "__defaults__", (0.2,))  # type: ignore[attr-defined]
    status, _, err = cli("apps")
    assert status == 1
    assert "did not answer within 0.2 s" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["aps"], "No such command 'aps'"),
        (["explain"], "Missing argument 'APP'"),
        (["apps", "--jsn"], "No such option"),
        (["apps", "--arbiter", "7650"], "--arbiter: '7650' is not HOST:PORT"),
        (["apps", "--arbiter", "127.0.0.1:0"], "has port 0"),
        (["rounds", "--limit", "0"], "0 is not in the range"),
        (["explain", "\udcff"], "is not UTF-8"),
        (["check-config", "/nonexistent.toml"], "/nonexistent.toml: cannot be read"),
        (["bridge"], "bridge.gateway_dir: not set"),
        (["serve", "--lease", "soon", "--policy", "x"], "--lease: lease: 'soon' is not a duration"),
    ],
)
def test_wrong_use_is_status_2(cli: Cli, arguments: list[str], text: str) -> None:
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert text in err
    assert all(line.startswith("themis: ") for line in err.splitlines())


def test_check_config_shows_values_and_sources(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "arbiter.toml"
    file.write_text('lease = "20 s"\nrestart_cost = 0\nnotice = 3\n', encoding="utf-8")
    monkeypatch.setenv("THEMIS_NOTICE", "4 s")
    status, out, err = cli("check-config", str(file))
    assert (status, err) == (0, "")
    rows = {line.split()[0]: line.split(maxsplit=1)[1].split("  ") for line in out.splitlines()[1:]}
    assert [part.strip() for part in rows["lease"] if part] == ["20 s", str(file)]
    settings = json.loads(cli("check-config", str(file), "--json")[1])["settings"]
    assert settings["notice"] == {"value": "4 s", "source": "THEMIS_NOTICE"}
    assert settings["store"]["source"] == "default"
    monkeypatch.setenv("THEMIS_CONFIG", str(file))
    assert json.loads(cli("check-config", "--json")[1])["settings"]["lease"] == {"value": "20 s", "source": str(file)}
    other = tmp_path / "other.toml"
    other.write_text('lease = "30 s"\nrestart_cost = 0\nnotice = 3\n', encoding="utf-8")
    assert json.loads(cli("check-config", str(other), "--json")[1])["settings"]["lease"]["value"] == "30 s"


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"themis {__version__}\n", "")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (59_400, "59s"), (59_600, "1m00s"), (3_600_000, "1h00m"), (-400, "0s"), (-61_000, "-1m01s")],
)
def test_durations_for_people(milliseconds: int, text: str) -> None:
    assert tables.seconds(milliseconds) == text


def test_output_that_nobody_reads_is_no_traceback(cli: Cli) -> None:
    command = f"'{sys.executable}' -m themis_arbiter.cli leases | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=os.environ, capture_output=True, text=True, check=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() in {"0", "1"}


def test_terminal_without_unicode_gets_escapes(cli: Cli) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "latin-1", "THEMIS_ARBITER": cli.address}
    command = [sys.executable, "-m", "themis_arbiter.cli", "explain", "Ω"]
    done = subprocess.run(command, env=env, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == b"themis: no app '\\u03a9'\n"
