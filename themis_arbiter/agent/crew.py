"""The driver's end of its tasks' connections: accepts, checks tokens, frames lines, turns them into job events.

One thread, one selector; another thread may call `wake`. A peer that does not say hello in time, sends a line that is
too long or is no JSON of ours is cut off, and that is all that it can do.
"""

import contextlib
import hmac
import json
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from themis_arbiter.agent.job_events import JobEvent, TaskConnected, TaskDisconnected, UnitReported
from themis_arbiter.agent.work import Unit

LINE_BYTES_MAX: Final = 4_096
STRANGERS_MAX: Final = 64
HELLO_MS_MAX: Final = 5_000
_BACKLOG: Final = 64


@dataclass(slots=True, eq=False)
class _Peer:
    socket: socket.socket
    since_ms: int
    container_id: str = ""
    buffer: bytes = b""
    is_closed: bool = False


class Crew:
    """The connections of one job's tasks."""

    def __init__(self, host: str, token: str, clock_ms: Callable[[], int]) -> None:
        self._token = token
        self._clock_ms = clock_ms
        self._strangers: list[_Peer] = []
        self._members: dict[str, _Peer] = {}
        self._listener = socket.create_server((host, 0), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    @property
    def address(self) -> str:
        """HOST:PORT for tasks to connect to."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def size(self) -> int:
        """How many tasks are connected."""
        return len(self._members)

    def wake(self) -> None:
        """End a running `wait` early. Safe from any thread."""
        # A full pipe has so many wake-ups waiting already that this one would add nothing.
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"w")

    def wait(self, timeout_ms: int) -> list[JobEvent]:
        """What the tasks said; waits up to `timeout_ms` for something to happen."""
        events: list[JobEvent] = []
        for key, _ in self._selector.select(timeout_ms / 1000):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(LINE_BYTES_MAX)
            elif not key.data.is_closed:
                self._read(key.data, events)
        oldest_ms = self._clock_ms() - HELLO_MS_MAX
        for peer in [each for each in self._strangers if each.since_ms < oldest_ms]:
            self._close(peer, events)
        return events

    def assign(self, container_id: str, unit: Unit, checkpoint: int) -> None:
        """Hand a unit to a task."""
        self._send(container_id, {"do": list(unit), "checkpoint": checkpoint})

    def stop(self, container_id: str) -> None:
        """Tell a task to end after what it has in hand."""
        self._send(container_id, {"stop": True})

    def disconnect(self, container_id: str) -> list[JobEvent]:
        """Cut a task off; it ends by itself when it notices."""
        events: list[JobEvent] = []
        peer = self._members.get(container_id)
        if peer is not None:
            self._close(peer, events)
        return events

    def close(self) -> None:
        """Cut off everyone and stop listening."""
        for peer in [*self._members.values(), *self._strangers]:
            self._close(peer, [])
        self._selector.close()
        for each in (self._listener, self._waker, self._woken):
            each.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        if len(self._strangers) >= STRANGERS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = _Peer(connection, self._clock_ms())
        self._strangers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer, events: list[JobEvent]) -> None:
        try:
            chunk = peer.socket.recv(LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        *lines, peer.buffer = (peer.buffer + chunk).split(b"\n")
        for line in lines:
            if peer.is_closed:
                return
            self._take_line(peer, line, events)
        if not chunk or len(peer.buffer) > LINE_BYTES_MAX:
            self._close(peer, events)

    def _take_line(self, peer: _Peer, line: bytes, events: list[JobEvent]) -> None:
        try:
            message = json.loads(line)
            if peer.container_id:
                events.append(self._reported(peer, message))
            else:
                events.append(self._welcome(peer, message))
        except (ValueError, KeyError, TypeError):
            self._close(peer, events)

    def _reported(self, peer: _Peer, message: dict[str, Any]) -> JobEvent:
        step, part = message["done"]
        return UnitReported(
            at_ms=self._clock_ms(),
            container_id=peer.container_id,
            unit=Unit(int(step), int(part)),
            value=int(message["value"]),
        )

    def _welcome(self, peer: _Peer, message: dict[str, Any]) -> JobEvent:
        container_id, token = str(message["hello"]), str(message["token"])
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise ValueError("wrong token")
        if not container_id or container_id in self._members:
            raise ValueError("no name, or a name that is taken")
        self._strangers.remove(peer)
        peer.container_id = container_id
        self._members[container_id] = peer
        return TaskConnected(at_ms=self._clock_ms(), container_id=container_id)

    def _send(self, container_id: str, message: dict[str, Any]) -> None:
        peer = self._members.get(container_id)
        if peer is None:
            return
        try:
            peer.socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            # Reading finds the end of the connection and tells; a half-sent line is never acted on.
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)

    def _close(self, peer: _Peer, events: list[JobEvent]) -> None:
        if peer.is_closed:
            return
        peer.is_closed = True
        self._selector.unregister(peer.socket)
        peer.socket.close()
        if not peer.container_id:
            self._strangers.remove(peer)
        elif self._members.get(peer.container_id) is peer:
            del self._members[peer.container_id]
            events.append(TaskDisconnected(at_ms=self._clock_ms(), container_id=peer.container_id))
