"""The HTTP port: metrics, health, the admin views as JSON, and a status page. It reads; nothing can be changed here.

Threads, connections and their lives are bounded, so that slow or many clients cost a fixed amount: past
THREADS_MAX a request is answered 503 at once, and a connection older than CONNECTION_S_MAX is cut off.
"""

import contextlib
import logging
import socket
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.obs.logs import RateLimitedLogger
from themis_arbiter.server.documents import (
    Admin,
    BadQueryError,
    Document,
    NotFoundError,
    Stored,
    UnavailableError,
    document,
    dumps,
)
from themis_arbiter.server.page import status_page, stored_page, unavailable_page
from themis_arbiter.server.values import Address

THREADS_MAX: Final = 16
SOCKET_S_MAX: Final = 5.0  # that one read or write may wait
CONNECTION_S_MAX: Final = 20.0
ROUNDS_DEFAULT: Final = 20
ROUNDS_MAX: Final = 1_000
AUDIT_DEFAULT: Final = 50
AUDIT_MAX: Final = 1_000
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = "application/json"
EXPLAIN: Final = "/api/v1/explain/"
PATH_SHOWN_MAX: Final = 200
_BUSY: Final = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_log = logging.getLogger(__name__)


class HttpPortError(Exception):
    """The port cannot be listened on; the message names it and says what to do."""


class HttpPort:
    """The listening port. `start` begins to answer, `stop` ends it; `address` is where it listens, port chosen.

    Errors of the constructor: HttpPortError.
    """

    def __init__(self, address: Address) -> None:
        try:
            self._server = _Server(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise HttpPortError(f"http_address {address}: {reason}; choose another, or end what listens there") from error
        self.address: Final = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="http", daemon=True
        )

    def start(
        self, *, admin: Admin, metrics: Callable[[], bytes], health: Callable[[], str], stored: Stored | None = None
    ) -> None:
        """Answer from now on. `health` says what is wrong with the process, "" for nothing; `metrics` is a scrape.

        `stored` has the views of apps and leases for when `admin` has none.
        """
        self._server.routes = Routes(admin, metrics, health, stored)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; what is being answered is cut off. May be called more than once, or without a start."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    routes: "Routes"  # set before the first request is taken

    def __init__(self, address: Address) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._slots = threading.BoundedSemaphore(THREADS_MAX)
        self._opened_s: dict[Any, float] = {}
        self.flood = RateLimitedLogger(_log)
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that one asks the name service for this machine's name, which can take half a minute.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.flood.log("busy", logging.WARNING, "too many HTTP requests at once", threads_max=THREADS_MAX)
            with contextlib.suppress(OSError):
                request.settimeout(0.1)
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        self._opened_s[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._opened_s.pop(request, None)
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._opened_s.pop(request, None)
            self._slots.release()

    def service_actions(self) -> None:
        """Cut connections that are too old: a client that sends a byte a second never meets a read's time limit."""
        now_s = time.monotonic()
        for request, opened_s in list(self._opened_s.items()):
            if now_s - opened_s > CONNECTION_S_MAX:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients that hang up are everyday; anything else is told with its traceback, at a bounded rate too.
        error = sys.exception()
        if isinstance(error, OSError):
            self.flood.log("client", logging.INFO, "HTTP client broke off", error=str(error))
        else:
            self.flood.log("request", logging.ERROR, "HTTP request failed", story=traceback.format_exc())


class _Reply:
    def __init__(self, status: HTTPStatus, body: str | bytes, content_type: str) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else body.encode("utf-8", "backslashreplace")
        self.content_type = content_type


def _json(value: Document, status: HTTPStatus = HTTPStatus.OK) -> _Reply:
    return _Reply(status, dumps(value) + "\n", JSON_TYPE)


class Routes:
    """From a path to an answer; knows nothing of sockets."""

    def __init__(
        self, admin: Admin, metrics: Callable[[], bytes], health: Callable[[], str], stored: Stored | None = None
    ) -> None:
        self._admin, self._metrics, self._health, self._stored = admin, metrics, health, stored

    def answer(self, target: str) -> _Reply:
        """The reply to GET `target`."""
        try:
            split = urlsplit(target)
            path = unquote(split.path, errors="strict")
            query = parse_qs(split.query, errors="strict", max_num_fields=10)
            return self._route(path, query)
        except UnavailableError as error:
            return _json({"error": f"the arbiter does not answer: {error}"}, HTTPStatus.SERVICE_UNAVAILABLE)
        except NotFoundError as error:
            return _json({"error": legible(str(error))}, HTTPStatus.NOT_FOUND)
        except (BadQueryError, ValueError) as error:
            return _json({"error": legible(str(error)) or "not a path"}, HTTPStatus.BAD_REQUEST)

    def _route(self, path: str, query: dict[str, list[str]]) -> _Reply:
        if path.startswith(EXPLAIN) and path != EXPLAIN:
            return _json(document(self._admin.explain(path.removeprefix(EXPLAIN))))
        answers: dict[str, Callable[[], _Reply]] = {
            "/": self._page,
            "/metrics": lambda: _Reply(HTTPStatus.OK, self._metrics(), METRICS_TYPE),
            "/healthz": self._is_healthy,
            "/readyz": self._is_ready,
            "/api/v1/apps": lambda: _json(self._apps(_flag(query, "all"))),
            "/api/v1/leases": lambda: _json(self._leases(query.get("app", [""])[-1])),
            "/api/v1/rounds": lambda: _json(document(self._admin.rounds(_limit(query, ROUNDS_DEFAULT, ROUNDS_MAX)))),
            "/api/v1/nodes": lambda: _json(document(self._admin.nodes())),
            "/api/v1/audit": lambda: _json(document(self._admin.audit(_limit(query, AUDIT_DEFAULT, AUDIT_MAX)))),
            "/api/v1/status": lambda: _json(document(self._admin.status())),
        }
        if path not in answers:
            text = f"no such path: {visible(path)[:PATH_SHOWN_MAX]}"
            return _json({"error": text, "paths": [*answers, EXPLAIN + "APP"]}, HTTPStatus.NOT_FOUND)
        return answers[path]()

    def _apps(self, include_ended: bool) -> Document:
        try:
            return document(self._admin.apps(include_ended=include_ended))
        except UnavailableError:
            if self._stored is None or not self._stored.is_standby:
                raise
            return self._stored.apps(include_ended=include_ended)

    def _leases(self, app_id: str) -> Document:
        try:
            return document(self._admin.leases(app_id))
        except UnavailableError:
            if self._stored is None or not self._stored.is_standby:
                raise
            return self._stored.leases(app_id)

    def _page(self) -> _Reply:
        try:
            admin = self._admin
            text, status = status_page(admin.status(), admin.apps(include_ended=True), admin.nodes()), HTTPStatus.OK
        except UnavailableError as error:
            text, status = self._page_without_engine(str(error))
        return _Reply(status, text, "text/html; charset=utf-8")

    def _page_without_engine(self, reason: str) -> tuple[str, HTTPStatus]:
        try:
            if self._stored is not None and self._stored.is_standby:
                return stored_page(self._stored.apps(include_ended=False)), HTTPStatus.OK
        except UnavailableError as error:
            reason = str(error)
        return unavailable_page(reason), HTTPStatus.SERVICE_UNAVAILABLE

    def _is_healthy(self) -> _Reply:
        problem = self._health()
        if problem:
            return _json({"status": "failed", "reason": legible(problem)}, HTTPStatus.SERVICE_UNAVAILABLE)
        return _json({"status": "ok"})

    def _is_ready(self) -> _Reply:
        """Ready: the process is well, the engine answers and this arbiter leads."""
        problem = self._health()
        if not problem:
            try:
                status = self._admin.status()
                problem = "" if status.is_leader else status.standing_by or "this arbiter does not lead"
            except UnavailableError as error:
                problem = str(error)
        if problem:
            return _json({"status": "not ready", "reason": legible(problem)}, HTTPStatus.SERVICE_UNAVAILABLE)
        return _json({"status": "ready"})


def _flag(query: dict[str, list[str]], name: str) -> bool:
    word = query.get(name, ["0"])[-1].lower()
    if word not in {"0", "1", "true", "false"}:
        raise BadQueryError(f"{name} must be 0 or 1")
    return word in {"1", "true"}


def _limit(query: dict[str, list[str]], default: int, most: int) -> int:
    word = query.get("limit", [str(default)])[-1]
    if not (word.isascii() and word.isdigit() and len(word) <= 6 and 1 <= int(word) <= most):
        raise BadQueryError(f"limit must be a whole number from 1 to {most}")
    return int(word)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SOCKET_S_MAX
    server_version = "themis-arbiter"
    sys_version = ""

    def do_GET(self) -> None:
        self._send(self._answer(), with_body=True)

    def do_HEAD(self) -> None:
        self._send(self._answer(), with_body=False)

    def _answer(self) -> _Reply:
        try:
            return self.server.routes.answer(self.path)
        except Exception:  # noqa: BLE001 - one view that fails must not take the others' port away; it is told in full
            self.server.flood.log("view", logging.ERROR, "HTTP view failed", story=traceback.format_exc())
            return _json({"error": "internal error; the log has its story"}, HTTPStatus.INTERNAL_SERVER_ERROR)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the protocol, as JSON like all others; the client's own words are not repeated."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED  # what the base class calls a method that has no `do_` of its own
        self._send(_json({"error": f"{status.phrase}: this port answers GET and HEAD"}, status), with_body=True)

    def _send(self, reply: _Reply, *, with_body: bool) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.end_headers()
        if with_body:
            self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        _log.debug("http: %s", visible(format % args))
