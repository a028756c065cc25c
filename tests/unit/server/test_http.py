"""The HTTP port on a real socket, in front of canned views."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from themis_arbiter.gen.themis.v1 import admin_pb2, types_pb2
from themis_arbiter.server import http as http_module
from themis_arbiter.server.documents import BadQueryError, Document, NotFoundError, UnavailableError
from themis_arbiter.server.http import THREADS_MAX, HttpPort, HttpPortError
from themis_arbiter.server.page import status_page
from themis_arbiter.server.values import Address

HOSTILE = '<script>alert("x")</script>\u202e'


class CannedAdmin:
    """Views that a test sets. `gate` holds every answer back until it is open."""

    def __init__(self) -> None:
        self.is_down = False
        self.is_leader = True
        self.is_odd = False
        self.standing_by = ""
        self.asked: list[object] = []
        self.gate = threading.Event()
        self.gate.set()

    def _check(self, asked: object) -> None:
        self.asked.append(asked)
        assert self.gate.wait(30)
        if self.is_down:
            raise UnavailableError("the engine is stuck")

    def apps(self, *, include_ended: bool) -> admin_pb2.ListAppsReply:
        self._check(include_ended)
        app = admin_pb2.AppView(app_id=HOSTILE, rho=1.5, rho_forecast=float("inf"), gpus_by_node={"n1": 2})
        return admin_pb2.ListAppsReply(apps=[app], now_ms=7)

    def leases(self, app_id: str) -> admin_pb2.ListLeasesReply:
        self._check(app_id)
        return admin_pb2.ListLeasesReply(leases=[types_pb2.Lease(lease_id="L1")])

    def rounds(self, limit: int) -> admin_pb2.ListRoundsReply:
        self._check(limit)
        return admin_pb2.ListRoundsReply(decision_json=['{"round":3}', "[broken", '{"x":NaN}'])

    def nodes(self) -> admin_pb2.ListNodesReply:
        self._check("nodes")
        odd = admin_pb2.NodeView(node=HOSTILE, state="DRAINED", gpus_total=3, gpus_used=4, is_oversubscribed=True)
        return admin_pb2.ListNodesReply(nodes=[admin_pb2.NodeView(node="n1", state="RUNNING", gpus_total=4), odd])

    def audit(self, limit: int) -> admin_pb2.ListAuditReply:
        self._check(limit)
        return admin_pb2.ListAuditReply(entries=[admin_pb2.AuditEntry(verb="pause", actor=HOSTILE, is_done=True)])

    def status(self) -> admin_pb2.StatusReply:
        self._check("status")
        reply = admin_pb2.StatusReply(version="1", policy="themis", is_leader=self.is_leader, lease_ms=20_000)
        reply.standing_by = self.standing_by
        reply.is_paused = reply.is_observing = self.is_odd
        return reply

    def explain(self, app_id: str) -> admin_pb2.ExplainReply:
        self._check(app_id)
        if app_id == "nobody":
            raise NotFoundError("no app 'nobody'")
        if app_id == "bad":
            raise BadQueryError("bad name")
        if app_id == "broken":
            raise RuntimeError("a bug")
        return admin_pb2.ExplainReply(app_id=app_id, lines=["because"])


class CannedStore:
    """What is stored, for a standby to show."""

    is_standby = True

    def apps(self, *, include_ended: bool) -> Document:
        app = {"app_id": HOSTILE, "user": None, "state": "RUNNING", "gpus_by_node": {HOSTILE: 2}, "attained_gpu_s": 3.0}
        marks = {"now_ms": 9_000, "stored_at_ms": 2_000, "note": f"{HOSTILE} leads"}
        return {"apps": [app], "is_leader": False, "include_ended": include_ended, **marks}

    def leases(self, app_id: str) -> Document:
        return {"leases": [], "is_leader": False, "app": app_id}


class Port:
    def __init__(self, admin: CannedAdmin, stored: CannedStore | None = None) -> None:
        self.admin = admin
        self.problem = ""
        self.port = HttpPort(Address("127.0.0.1", 0))
        self.port.start(admin=admin, metrics=lambda: b"themis_max_rho 1.0\n", health=lambda: self.problem, stored=stored)

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port.address.port, timeout=20)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode(), response
        finally:
            connection.close()


@pytest.fixture
def port() -> Iterator[Port]:
    port = Port(CannedAdmin())
    yield port
    port.admin.gate.set()
    port.port.stop()


def test_what_is_stored_is_shown_by_a_standby_alone() -> None:
    admin, stored = CannedAdmin(), CannedStore()
    port = Port(admin, stored)
    try:
        assert "is_leader" not in json.loads(port.ask("/api/v1/apps")[1])
        admin.is_down = True
        assert json.loads(port.ask("/api/v1/apps?all=1")[1])["include_ended"] is True
        assert json.loads(port.ask("/api/v1/leases?app=a%2Fb")[1]) == {"leases": [], "is_leader": False, "app": "a/b"}
        status, page, _ = port.ask("/")
        assert (status, "NOT the leader" in page, "7 s ago" in page, "<script>" in page) == (200, True, True, False)
        assert port.ask("/readyz")[0] == port.ask("/api/v1/rounds")[0] == 503
        stored.is_standby = False  # it leads, and its engine is stuck
        assert [port.ask(path)[0] for path in ("/", "/api/v1/apps", "/api/v1/leases")] == [503, 503, 503]
    finally:
        port.port.stop()


def test_metrics_are_what_the_registry_says(port: Port) -> None:
    status, body, response = port.ask("/metrics")
    assert (status, body) == (200, "themis_max_rho 1.0\n")
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_views_are_json_documents(port: Port) -> None:
    status, body, response = port.ask("/api/v1/apps?all=1")
    assert status == 200
    assert response.headers["Content-Type"] == "application/json"
    (app,) = json.loads(body, parse_constant=pytest.fail)["apps"]
    assert app["app_id"] == HOSTILE
    assert (app["rho"], app["rho_forecast"], app["gpus_by_node"], app["arrival_ms"]) == (1.5, None, {"n1": 2}, 0)
    assert json.loads(port.ask("/api/v1/leases?app=a%2Fb")[1])["leases"][0]["lease_id"] == "L1"
    assert json.loads(port.ask("/api/v1/nodes")[1])["nodes"][0]["gpus_total"] == 4
    assert json.loads(port.ask("/api/v1/status")[1])["policy"] == "themis"
    (entry,) = json.loads(port.ask("/api/v1/audit?limit=7")[1])["entries"]
    assert (entry["verb"], entry["actor"], entry["is_done"], entry["target"]) == ("pause", HOSTILE, True, "")
    assert json.loads(port.ask("/api/v1/explain/a%2Fb/%C3%A9")[1])["app_id"] == "a/b/é"
    rounds = json.loads(port.ask("/api/v1/rounds?limit=3")[1])["rounds"]
    assert rounds[0] == {"round": 3}
    assert "not a decision record" in rounds[1]["error"]
    assert rounds[2] == {"x": None}
    assert port.admin.asked == [True, "a/b", "nodes", "status", 7, "a/b/é", 3]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/nope%0a", 404, "no such path: /nope\\\\x0a"),
        ("/api/v1/explain/", 404, "no such path"),
        ("/api/v1/explain/nobody", 404, "no app 'nobody'"),
        ("/api/v1/explain/bad", 400, "bad name"),
        ("/api/v1/explain/%ff", 400, "error"),
        ("/api/v1/rounds?limit=0", 400, "limit must be a whole number from 1 to 1000"),
        ("/api/v1/rounds?limit=%D9%A3", 400, "limit must be"),
        ("/api/v1/audit?limit=1001", 400, "limit must be a whole number from 1 to 1000"),
        ("/api/v1/apps?all=maybe", 400, "all must be 0 or 1"),
        ("/api/v1/apps?" + "a=1&" * 20, 400, "Max number of fields exceeded"),
        ("/api/v1/explain/broken", 500, "internal error"),
    ],
)
def test_wrong_question_gets_a_clear_answer(port: Port, path: str, status: int, text: str) -> None:
    got, body, _ = port.ask(path)
    assert got == status
    assert text in body
    assert "error" in json.loads(body)


def test_engine_that_does_not_answer_is_503_but_metrics_stay(port: Port) -> None:
    port.admin.is_down = True
    for path in ("/api/v1/apps", "/readyz", "/"):
        status, body, _ = port.ask(path)
        assert status == 503
        assert "the engine is stuck" in body
    assert port.ask("/metrics")[0] == 200
    assert port.ask("/healthz")[0] == 200


def test_health_and_readiness_tell_apart_dead_and_not_leading(port: Port) -> None:
    assert port.ask("/readyz")[:2] == (200, '{"status": "ready"}\n')
    port.admin.is_leader = False
    assert port.ask("/healthz")[0] == 200
    assert "does not lead" in port.ask("/readyz")[1]
    port.admin.standing_by = "this arbiter does not lead: it does not reach ZooKeeper at zk:1"
    assert json.loads(port.ask("/readyz")[1])["reason"] == port.admin.standing_by
    assert json.loads(port.ask("/api/v1/status")[1])["standing_by"] == port.admin.standing_by
    port.problem = "the engine failed: disk"
    assert port.ask("/healthz")[0] == 503
    assert "the engine failed: disk" in port.ask("/readyz")[1]


def test_page_escapes_names_and_lists_links(port: Port) -> None:
    status, body, response = port.ask("/")
    assert status == 200
    assert "<script" not in body
    assert "&lt;script&gt;" in body
    assert "\u202e" not in body
    assert 'http-equiv="refresh"' in body
    assert 'href="/metrics"' in body
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_page_says_what_is_not_as_usual(port: Port) -> None:
    body = port.ask("/")[1]
    assert "Paused by an admin" not in body
    assert "DRAINED, 3 GPUs, fewer than the 4 leased or used" in body
    assert "Node n1" not in body
    port.admin.is_odd = True
    body = port.ask("/")[1]
    assert "Paused by an admin" in body
    assert "Looking on only" in body


def test_page_says_that_apps_wait_to_be_let_in() -> None:
    apps = admin_pb2.ListAppsReply(apps=[admin_pb2.AppView(app_id=a, state="QUEUED") for a in "ab"])
    body = status_page(admin_pb2.StatusReply(), apps, admin_pb2.ListNodesReply())
    assert "2 apps wait to be let in" in body
    assert "<td>QUEUED</td>" in body
    del apps.apps[0]
    assert "1 app waits to be let in" in status_page(admin_pb2.StatusReply(), apps, admin_pb2.ListNodesReply())
    del apps.apps[0]
    assert "let in" not in status_page(admin_pb2.StatusReply(), apps, admin_pb2.ListNodesReply())


def test_only_reading_methods_are_answered(port: Port) -> None:
    status, body, _ = port.ask("/metrics", "POST")
    assert status == 405
    assert "GET and HEAD" in body
    status, body, response = port.ask("/metrics", "HEAD")
    assert (status, body) == (200, "")
    assert response.headers["Content-Length"] == "19"


def test_taken_port_is_refused_by_name(port: Port) -> None:
    with pytest.raises(HttpPortError, match=f"http_address 127.0.0.1:{port.port.address.port}: Address already in use"):
        HttpPort(port.port.address)


def test_host_that_is_not_here_is_refused_by_name() -> None:
    with pytest.raises(HttpPortError, match=r"http_address 192\.0\.2\.1:0"):
        HttpPort(Address("192.0.2.1", 0))


def test_more_requests_than_threads_are_told_to_come_again(port: Port) -> None:
    port.admin.gate.clear()
    slow = [threading.Thread(target=port.ask, args=("/api/v1/nodes",)) for _ in range(THREADS_MAX)]
    for thread in slow:
        thread.start()
    deadline = time.monotonic() + 20
    while len(port.admin.asked) < THREADS_MAX and time.monotonic() < deadline:
        time.sleep(0.01)
    status, _, response = port.ask("/metrics")
    assert status == 503
    assert response.headers["Retry-After"] == "1"
    port.admin.gate.set()
    for thread in slow:
        thread.join(20)
    assert port.ask("/metrics")[0] == 200


def test_connection_that_says_nothing_is_cut_off(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "CONNECTION_S_MAX", 0.2)
    with socket.create_connection(("127.0.0.1", port.port.address.port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HT")
        started = time.monotonic()
        assert connection.recv(100) == b""
        assert time.monotonic() - started < http_module.SOCKET_S_MAX


def test_port_that_was_never_started_can_be_stopped() -> None:
    port = HttpPort(Address("127.0.0.1", 0))
    port.stop()
    again = HttpPort(port.address)
    again.stop()
