"""kazoo's client as far as `adapters/zookeeper/session.py` uses it, on a simulated ZooKeeper and in virtual time.

It does as kazoo does: requests made while the connection is down are sent when it is up again, those under way when it
breaks fail with ConnectionLoss whether they were done or not, answers come on a thread of its own (`Wire.deliver`), and a
session that is over is followed by a new one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.protocol.serialization import Connect
from kazoo.security import OPEN_ACL_UNSAFE

from tests.simulation.faults.schedule import Pipe, Schedule
from tests.simulation.faults.zookeeper import Change, Check, Create, Delete, SimZooKeeper, Write
from themis_arbiter.core.types import Millis

RECONNECT_MS: Final = 300
CONNECTED, SUSPENDED, LOST = "CONNECTED", "SUSPENDED", "LOST"


class SimTimeout(Exception):
    """What kazoo's handler raises where no answer came in time."""


@dataclass(slots=True, kw_only=True)
class Wire:
    """What lies between one process and the servers; the world's to change.

    `delay_ms` is drawn anew for each way of each request. `goes_out` and `comes_in` are whether anything does; `is_running`
    whether the process does (a frozen or dead one hears nothing), and `deliver` calls it when it runs.
    """

    delay_ms: Callable[[], Millis] = lambda: 0
    goes_out: bool = True
    comes_in: bool = True
    is_running: Callable[[], bool] = lambda: True
    is_dead: Callable[[], bool] = lambda: False
    deliver: Callable[[Callable[[], None]], None] = lambda do: do()
    wait: Callable[[Callable[[], bool], Millis], bool] = lambda is_done, _ms: is_done()
    lose_request: bool = False  # the next change is cut off before the servers have it
    lose_answer: bool = False  # likewise, after they have done it


class Result:
    """kazoo's asynchronous result."""

    def __init__(self, client: "SimClient") -> None:
        self._client = client
        self.value: Any = None
        self.exception: Exception | None = None
        self.is_ready = False
        self._links: list[Callable[[Result], None]] = []

    def rawlink(self, link: Callable[["Result"], None]) -> None:
        """Call `link` when there is an answer."""
        if self.is_ready:
            link(self)
        else:
            self._links.append(link)

    def get(self, timeout: float) -> Any:
        """Wait for the answer. Errors: SimTimeout, kazoo's."""
        if not self._client.wire.wait(lambda: self.is_ready, round(timeout * 1_000)):
            raise SimTimeout
        if self.exception is not None:
            raise self.exception
        return self.value

    def settle(self, value: Any, exception: Exception | None) -> None:
        """The answer is here; a second one is not."""
        if self.is_ready:
            return
        self.value, self.exception, self.is_ready = value, exception, True
        for link in self._links:
            link(self)


class _Connection:
    """The part of kazoo's connection that Session looks into."""

    def __init__(self, granted_ms: Callable[[Millis], Millis]) -> None:
        self._granted_ms = granted_ms

    def _invoke(self, _timeout: float, request: Connect, _xid: int | None = None) -> Any:
        return (SimpleNamespace(time_out=self._granted_ms(request.time_out)), 0)


class SimClient:
    """See the module's text."""

    def __init__(self, servers: SimZooKeeper, schedule: Schedule, wire: Wire, *, granted_ms: Millis, **_kazoo: Any) -> None:
        self.wire: Final = wire
        self.handler = SimpleNamespace(timeout_exception=SimTimeout)
        self.client_id: tuple[int, bytes] | None = None
        self.connected = False
        self._servers, self._schedule, self._granted = servers, schedule, granted_ms
        self._connection = _Connection(lambda _asked: granted_ms)
        self._live = SimpleNamespace(wait=self._wait_live)
        self._listeners: list[Callable[[str], None]] = []
        self._is_open = self._is_closed = False
        self._waiting: list[tuple[Callable[[int], Any], bool, Result]] = []  # to be sent when connected
        self._under_way: dict[Result, None] = {}
        self._connection_no = 0
        self._silent_since_ms: Millis = 0
        self._lay_pipes()

    # -- the connection

    def _lay_pipes(self) -> None:
        """A new connection; what is in the old one's pipes may still come out of them."""
        servers, wire = self._servers, self.wire
        self._out = Pipe(self._schedule, wire.delay_ms, lambda: wire.goes_out and servers.has_quorum)
        self._in = Pipe(self._schedule, wire.delay_ms, lambda: wire.comes_in)

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Tell states to it."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """Connect, now and whenever that is needed."""
        self._is_open = True
        self._connect()

    def stop(self) -> None:
        """End the session, where the servers hear of it."""
        self._is_open, self._is_closed = False, True
        if self.connected and self._is_reached() and self.client_id is not None:
            self._servers.end(self.client_id[0])
        self._break(SessionExpiredError())

    def close(self) -> None:
        """Nothing is left to be let go of."""

    def cut(self) -> None:
        """The connection breaks; another is made where the servers can be reached."""
        if not self.connected:
            return
        self._break(ConnectionLoss())
        self._tell(SUSPENDED)

    def _break(self, error: Exception) -> None:
        self.connected = False
        self._connection_no += 1
        under_way, self._under_way = list(self._under_way), {}
        for result in under_way:
            self._deliver(partial(result.settle, None, error))
        if self._is_open:
            self._schedule.after(RECONNECT_MS, self._connect)

    def _wait_live(self, timeout_s: float) -> None:
        self.wire.wait(lambda: self.connected, round(timeout_s * 1_000))

    def _is_reached(self) -> bool:
        wire = self.wire
        return self._servers.has_quorum and wire.goes_out and wire.comes_in and wire.is_running()

    def _hears(self) -> bool:
        return self.connected and self._is_open and self._is_reached()

    def _connect(self) -> None:
        if not self._is_open or self.connected or self.wire.is_dead():
            return
        if not self._is_reached():
            self._schedule.after(RECONNECT_MS, self._connect)
            return
        self._servers.pass_time()
        known = self.client_id[0] if self.client_id is not None else 0
        if known and known not in self._servers.sessions:
            self.client_id = None
            waiting, self._waiting = self._waiting, []
            for _, _, result in waiting:
                result.settle(None, SessionExpiredError())
            self._tell(LOST)
            known = 0
        self._connection._invoke(0.0, Connect(0, 0, self._granted, known, b"", False))
        self._lay_pipes()
        self.connected = True
        self._silent_since_ms = self._schedule.now_ms
        self._connection_no += 1
        if not known:
            self.client_id = (self._servers.begin(self._granted, lambda: False), b"")
        assert self.client_id is not None
        held = self._servers.sessions[self.client_id[0]]
        held.is_reached, held.heard_ms = self._hears, self._schedule.now_ms
        self._tell(CONNECTED)
        waiting, self._waiting = self._waiting, []
        for request, is_change, result in waiting:
            self._send(request, is_change, result)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            self._deliver(partial(listener, state))

    def _deliver(self, do: Callable[[], None]) -> None:
        self.wire.deliver(do)

    def look(self, patience_ms: Millis) -> None:
        """What kazoo's own thread would notice: a session that is over, a connection on which nothing came for so long."""
        if not self.connected or not self.wire.is_running() or self.client_id is None:
            return
        if self._is_reached():
            self._silent_since_ms = self._schedule.now_ms
            if self.client_id[0] not in self._servers.sessions:
                self.cut()
        elif self._schedule.now_ms - self._silent_since_ms >= patience_ms:
            self.cut()

    # -- requests

    def _ask(self, request: Callable[[int], Any], *, is_change: bool) -> Result:
        result = Result(self)
        if self._is_closed:
            result.settle(None, SessionExpiredError())
        elif self.connected:
            self._send(request, is_change, result)
        else:
            self._waiting.append((request, is_change, result))
        return result

    def _send(self, request: Callable[[int], Any], is_change: bool, result: Result) -> None:
        self._under_way[result] = None
        connection_no = self._connection_no
        self._out.put(lambda: self._arrive(request, is_change, result, connection_no))

    def _arrive(self, request: Callable[[int], Any], is_change: bool, result: Result, connection_no: int) -> None:
        """The servers have it. What was sent before a connection broke may still arrive after."""
        if self.client_id is None:
            return
        if is_change and self.wire.lose_request:
            self.wire.lose_request = False
            self.cut()
            return
        self._servers.pass_time()
        value, error = None, None
        try:
            value = request(self.client_id[0])
        except Exception as err:  # noqa: BLE001 - kazoo's errors are the answer; others are seen by who asked
            error = err
        if is_change and self.wire.lose_answer:
            self.wire.lose_answer = False
            self.cut()
            return
        if connection_no == self._connection_no:
            self._in.put(lambda: self._answer(result, value, error, connection_no))

    def _answer(self, result: Result, value: Any, error: Exception | None, connection_no: int) -> None:
        if connection_no != self._connection_no or not self.connected:
            return
        self._under_way.pop(result, None)
        self._deliver(lambda: result.settle(value, error))

    def _watch(self, watch: Callable[[Any], None] | None) -> Callable[[str], None] | None:
        if watch is None:
            return None
        connection_no = self._connection_no

        def fire(path: str) -> None:
            def come() -> None:
                if connection_no == self._connection_no:
                    self._deliver(lambda: watch(path))

            self._in.put(come)

        return fire

    def get_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        """Data and stat."""
        return self._ask(lambda who: self._servers.read(who, path, self._watch(watch)), is_change=False)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        """The stat, or None."""
        return self._ask(lambda who: self._servers.exists(who, path, self._watch(watch)), is_change=False)

    def get_children_async(self, path: str) -> Result:
        """Names below."""
        return self._ask(lambda who: self._servers.children(who, path), is_change=False)

    def sync_async(self, path: str) -> Result:
        """Nothing to do: reads are never stale here."""
        return self._ask(lambda _who: path, is_change=False)

    def get_acls_async(self, path: str) -> Result:
        """Everybody may do everything."""
        return self._ask(lambda who: (OPEN_ACL_UNSAFE, self._servers.read(who, path)[1]), is_change=False)

    def ensure_path_async(self, path: str) -> Result:
        """Make what is missing."""
        return self._ask(lambda who: self._servers.ensure(who, path), is_change=True)

    def create_async(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> Result:
        """Make a node."""
        return self._ask(lambda who: self._servers.apply(who, Create(path, data, ephemeral, sequence)), is_change=True)

    def delete_async(self, path: str) -> Result:
        """Take a node away."""
        return self._ask(lambda who: self._servers.apply(who, Delete(path)), is_change=True)

    def transaction(self) -> "SimTransaction":
        """An empty one."""
        return SimTransaction(self)

    def send_transaction(self, changes: tuple[Change, ...]) -> Result:
        """All or none of it."""
        return self._ask(lambda who: self._servers.transact(who, changes), is_change=True)


class SimTransaction:
    """kazoo's TransactionRequest."""

    def __init__(self, client: SimClient) -> None:
        self._client = client
        self._changes: list[Change] = []

    def check(self, path: str, version: int) -> None:
        """The node must be there."""
        self._changes.append(Check(path, version))

    def create(self, path: str, data: bytes) -> None:
        """Make a node."""
        self._changes.append(Create(path, data))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        """Write a node."""
        self._changes.append(Write(path, data, version))

    def commit_async(self) -> Result:
        """All or none of it."""
        return self._client.send_transaction(tuple(self._changes))
