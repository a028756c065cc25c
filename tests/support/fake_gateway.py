"""A plugin in Python: its calls (`FakePlugin`) and, for tests of the wire, a Py4J server in front of them.

`FakePlugin` keeps the rules of docs/reference/plugin-protocol.md that a bridge and an arbiter can notice: sequence
numbers, waiting, resync, fencing. It gates no containers.
"""

import base64
import json
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any, Final

LISTS: Final = ("nodes", "applications", "containers")
KEYS: Final = {"nodes": "node", "applications": "application_id", "containers": "container_id"}
TOKEN: Final = "a-token-that-is-long-enough-0123456789"


class FakePlugin:
    """One activation of the plugin; entities are plain JSON objects. Any thread may call it."""

    def __init__(self, start_id: str = "start-1", protocol: int = 1, cluster_id: str = "") -> None:
        self.start_id, self.protocol, self.cluster_id = start_id, protocol, cluster_id
        self.updates: list[dict[str, Any]] = []  # accepted ones with content
        self.signs_of_life = 0
        self.diagnostics_seen: list[dict[str, Any]] = []
        self.snapshots = 0
        self.kept_from_seq = 0  # changes before it are no longer kept
        self.rm_now_ms = 1_000_000
        self._seq, self._epoch, self._lease_seq = 0, 0, -1
        self._entities: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self._changed = threading.Condition()

    def put(self, kind: str, **entity: Any) -> None:
        """Change an entity; `kind` is one of LISTS."""
        with self._changed:
            self._seq += 1
            self._entities[kind, str(entity[KEYS[kind]])] = (self._seq, entity)
            self._changed.notify_all()

    def wait(self, what: Any, timeout_s: float = 10.0) -> bool:
        """Whether `what()` becomes true in time."""
        with self._changed:
            return bool(self._changed.wait_for(what, timeout_s))

    def hello(self) -> bytes:
        hello = {"protocol": self.protocol, "start_id": self.start_id, "rm_now_ms": self.rm_now_ms, "later": [1]}
        hello |= {"cluster_id": self.cluster_id} if self.cluster_id else {}
        return json.dumps(hello).encode()

    def snapshot(self) -> bytes:
        with self._changed:
            self.snapshots += 1
            return self._report(0, is_full=True)

    def changes(self, after_seq: int, wait_ms: int) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._seq > after_seq, min(wait_ms, 1_000) / 1_000)
            if after_seq < self.kept_from_seq:
                return json.dumps({"start_id": self.start_id, "seq": self._seq, "needs_resync": True}).encode()
            return self._report(after_seq, is_full=False)

    def _report(self, after_seq: int, *, is_full: bool) -> bytes:
        lists: dict[str, list[dict[str, Any]]] = {kind: [] for kind in LISTS}
        for (kind, _), (seq, entity) in self._entities.items():
            if seq > after_seq:
                lists[kind].append(entity)
        head = {"start_id": self.start_id, "seq": self._seq, "is_full": is_full, "rm_now_ms": self.rm_now_ms}
        head |= {"lease_epoch": self._epoch, "lease_seq": max(self._lease_seq, 0)}
        return json.dumps(head | lists).encode()

    def apply(self, lease_update: bytes) -> bytes:
        update = json.loads(lease_update)
        epoch, seq = int(update.get("epoch", 0)), int(update.get("seq", 0))
        has_content = any(update.get(k) for k in ("is_full", "leases", "drains", "removed_lease_ids"))
        with self._changed:
            if update.get("start_id") != self.start_id:
                return self._reply("WRONG_START")
            if epoch < self._epoch:
                return self._reply("OLD_EPOCH")
            if has_content and not update.get("is_full") and (epoch, seq) != (self._epoch, self._lease_seq + 1):
                return self._reply("GAP")
            if has_content:
                self._epoch, self._lease_seq = epoch, seq
                self.updates.append(update)
            else:
                self.signs_of_life += 1
            self._changed.notify_all()
            return self._reply("")

    def diagnostics(self, diagnostics: bytes) -> bytes:
        with self._changed:
            self.diagnostics_seen.append(json.loads(diagnostics))
            self._changed.notify_all()
            return self._reply("")

    def close(self) -> None:
        """Nothing: the plugin outlives its connections."""

    def _reply(self, reason: str) -> bytes:
        reply = {"is_accepted": not reason, "reason": reason, "epoch": self._epoch, "start_id": self.start_id}
        return json.dumps(reply | {"seq": max(self._lease_seq, 0)}).encode()


class FakePy4JServer:
    """Serves a plugin as Py4J would, on a port of 127.0.0.1; the parts of its protocol that a bridge uses."""

    def __init__(self, plugin: FakePlugin, token: str = TOKEN) -> None:
        self.plugin, self.token = plugin, token
        self.is_hung = threading.Event()  # set: takes connections and calls, answers nothing
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}  # method -> text of the Java exception that it throws
        self.forgotten: list[str] = []  # ids of Java objects that the bridge gave up
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer.serve(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, block_on_close, allow_reuse_address = True, False, True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A peer that went away in mid-answer is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._connections: list[socket.socket] = []
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def write_file(self, folder: Path, **changes: Any) -> Path:
        """Write gateway.json into `folder`, owner-only as the plugin does."""
        folder.mkdir(mode=0o700, exist_ok=True)
        plain = {"host": "127.0.0.1", "port": self.port, "token": self.token, "start_id": self.plugin.start_id}
        path = folder / "gateway.json"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(plain | {"pid": 1} | changes))
        return path

    def close(self) -> None:
        """Stop listening and cut all connections, as a killed ResourceManager does."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it is gone already
        self._thread.join()

    def serve(self, handler: socketserver.StreamRequestHandler) -> None:
        """One connection."""
        self._connections.append(handler.connection)
        lines = (line.decode().rstrip("\n") for line in handler.rfile)
        if (next(lines, ""), next(lines, "")) != ("A", self.token):
            handler.wfile.write(b"!x\n")
            return
        self._answer(handler, "yv")
        command: list[str] = []
        for line in lines:
            command.append(line)
            if line == "e":
                self._answer(handler, self._run(command))
                command = []

    def _answer(self, handler: socketserver.StreamRequestHandler, answer: str) -> None:
        while self.is_hung.is_set():
            threading.Event().wait(0.05)
        handler.wfile.write(f"!{answer}\n".encode())

    def _run(self, command: list[str]) -> str:
        if command[0] == "m":
            self.forgotten.append(command[2])
            return "yv"
        target, method, arguments = command[1], command[2], command[3:-1]
        if target != "t":
            return f"ys{self.fails[target.removeprefix('o-')]}"
        self.calls.append(method)
        if method in self.fails:
            return f"xro-{method}"
        values = [base64.b64decode(a[1:]) if a[0] == "j" else int(a[1:]) for a in arguments]
        if method == "changes":
            assert [a[0] for a in arguments] == ["L", "i"], "Java's parameters are a long and an int"
        return f"yj{base64.b64encode(getattr(self.plugin, method)(*values)).decode()}"
