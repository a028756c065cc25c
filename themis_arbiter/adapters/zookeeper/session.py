"""One connection to ZooKeeper, with every wait bounded and every answer either a result or one of three errors.

kazoo waits for ever by default: a request made while the connection is down is kept and sent when it is up again. So each
answer is waited for with a limit, and past it nobody knows what came of the request: `Unsure`, which the caller has to settle
by reading. What a server refused is known: `Refused`. Of a transaction kazoo returns failures as list items and raises
nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL

OPERATION_S: Final = 2.0  # that one answer is waited for
RECONNECT_S_MIN: Final = 0.1
RECONNECT_S_MAX: Final = 1.0  # ZooKeeper coming back is found within so long
CLOSE_S: Final = 1.0
FORGET_SHARE: Final = 2  # of the granted timeout without a connection: by then the session is over, whatever it had seen
REQUEST_BYTES_MAX: Final = 512 * 1024  # servers cut the connection at about 1 MiB and say nothing of size

WRONG_USERS: Final = frozenset({AuthFailedError.__name__, NoAuthError.__name__})
WRONG_USER: Final = (
    "its nodes are for another user: name the file of the credentials that they were made with, zookeeper.credentials in the "
    "file of --config, or THEMIS_ZOOKEEPER_CREDENTIALS"
)
REPEAT_S: Final = 60.0  # within which one of kazoo's lines about its tries to connect is told once
TRIES: Final = ("Connecting to", "Connection dropped", "Connection time-out", "Cannot resolve")  # how they begin
TRIES_KEPT_MAX: Final = 100

_log = logging.getLogger(__name__)


class _HeldBack(logging.Filter):
    """kazoo tells each of its tries, several a second for as long as nobody answers."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be told."""
        text, now_s = record.getMessage(), time.monotonic()
        if not text.startswith(TRIES):
            return True
        if now_s - self._told_s.get(text, -REPEAT_S) < REPEAT_S:
            return False
        if len(self._told_s) >= TRIES_KEPT_MAX:
            self._told_s.clear()
        self._told_s[text] = now_s
        return True


_kazoo_log = _log.getChild("kazoo")
_kazoo_log.addFilter(_HeldBack())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A namespace in a ZooKeeper: `hosts` as HOST:PORT with commas between, `chroot` an absolute path or "".

    `credentials` are user and password of ZooKeeper's digest scheme; nodes made with them are for that user alone.
    """

    hosts: str
    chroot: str = ""
    session_s: float = 10.0  # asked for; the server may grant another
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.hosts}{self.chroot}"


def explained(error: str) -> str:
    """The name of one of kazoo's errors, with what to do where that is one thing."""
    return f"{error} ({WRONG_USER})" if error in WRONG_USERS else error


class ZooKeeperError(Exception):
    """ZooKeeper did not do what was asked."""


class Unsure(ZooKeeperError):
    """No answer came: it may have been done, and may yet be."""


class Refused(ZooKeeperError):
    """It was not done and will not be; `cause` is kazoo's error."""

    def __init__(self, cause: Exception) -> None:
        name = explained(type(cause).__name__)
        super().__init__(f"{name}: {cause}" if str(cause) else name)
        self.cause: Final = cause


class Session:
    """A kazoo client and its rules, connecting from `open` on. Any thread may call it; answers are waited for on the caller's.

    `on_state` is told kazoo's states (CONNECTED, SUSPENDED, LOST) on kazoo's own thread: it must return at once.
    """

    def __init__(
        self, place: Place, *, on_state: Callable[[str], None] | None = None, client: Callable[..., Any] = KazooClient
    ) -> None:
        """`client` makes kazoo's client, or what stands for it in a simulation."""
        self.place: Final = place
        self._client: Any = client(
            hosts=place.hosts,  # not with its chroot: kazoo does not make one whose parents are missing
            timeout=place.session_s,
            connection_retry=KazooRetry(max_tries=-1, delay=RECONNECT_S_MIN, max_delay=RECONNECT_S_MAX),
            auth_data=[("digest", ":".join(place.credentials))] if place.credentials else None,
            default_acl=CREATOR_ALL_ACL if place.credentials else None,
            logger=_kazoo_log,
        )
        self._granted_ms = int(place.session_s * 1_000)
        self._silent_since_s: float | None = None  # None: connected, or never was
        self._refused_with: int | None = None  # the transaction that the last handshake named which was not answered
        self._client.add_listener(self._note_silence)
        self._look_at_handshakes()
        if on_state is not None:
            self._client.add_listener(lambda state: on_state(str(state)))

    def open(self) -> None:
        """Begin to connect; that nobody answers is no error, and is tried for as long as it takes."""
        self._client.start_async()

    @property
    def granted_s(self) -> float:
        """The session timeout that the server granted (before it did: that was asked for)."""
        return self._granted_ms / 1_000

    def _note_silence(self, state: Any) -> None:
        if str(state) == "CONNECTED":
            self._silent_since_s = None
        elif self._silent_since_s is None:
            self._silent_since_s = time.monotonic()

    def _look_at_handshakes(self) -> None:
        """Note what the server grants, which kazoo forgets; and forget in time what no server can be asked for any more.

        A client names the last transaction that it has seen, and a server which has not got so far closes the connection
        without an answer. One that has lost its state never gets there, so that kazoo would try for ever. Past the session's
        life nothing rests on that number, and the server is told 0, every second time: it answers that the session is over,
        and all is as after any session that has expired.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def looking(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            refused_with, self._refused_with = self._refused_with, request.last_zxid_seen
            forgets = bool(refused_with) and self._silent_s() > FORGET_SHARE * self.granted_s
            if forgets:
                self._refused_with = 0
                request = request._replace(last_zxid_seen=0)
            result = invoke(timeout, request, xid)
            if forgets:
                _log.warning(
                    "ZooKeeper at %s may have lost its state, or come back from a backup: for %.0f s it refused this arbiter's "
                    "session, which had seen later transactions (up to %#x) than it has; going on with a new session",
                    *(self.place.hosts, self._silent_s(), refused_with),
                )
            self._refused_with = None
            self._granted_ms = int(result[0].time_out) or self._granted_ms  # 0: the session was over
            return result

        connection._invoke = looking

    def _silent_s(self) -> float:
        since_s = self._silent_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    @property
    def session_id(self) -> int:
        """The present session's id, 0 where there is none."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id is not None else 0

    @property
    def is_connected(self) -> bool:
        """Whether kazoo believes that it is; after a freeze it does so wrongly."""
        return bool(self._client.connected)

    def wait_connected(self, timeout_s: float) -> None:
        """Errors: Unsure where there is no connection in time."""
        self._client._live.wait(timeout_s)  # what kazoo's own `start` waits for
        if not self.is_connected:
            advice = "see that its servers run and have a quorum, and that these are their hosts and client ports"
            raise Unsure(f"no ZooKeeper answers at {self.place.hosts} within {timeout_s:g} s: {advice}")

    def at(self, path: str) -> str:
        """The whole path of a node of the namespace; "/": the namespace's own."""
        return (self.place.chroot + path).rstrip("/") or "/"

    def read(self, path: str, watch: Callable[[Any], None] | None = None) -> tuple[bytes, Any]:
        """Data and stat of a node. `watch` is called once, on kazoo's thread. Errors: Refused, Unsure."""
        data, stat = self.answer(self._client.get_async(self.at(path), watch))
        return bytes(data), stat

    def read_all(self, paths: list[str]) -> list[bytes]:
        """The data of many nodes, asked for at once. Errors: Refused, Unsure."""
        asked = [self._client.get_async(self.at(path)) for path in paths]
        return [bytes(self.answer(one)[0]) for one in asked]

    def exists(self, path: str, watch: Callable[[Any], None] | None = None) -> Any:
        """The node's stat, None where it is not there. Errors: Refused, Unsure."""
        return self.answer(self._client.exists_async(self.at(path), watch))

    def exists_at(self, whole_path: str) -> bool:
        """Whether there is a node outside of the namespace. Errors: Refused, Unsure."""
        return self.answer(self._client.exists_async(whole_path, None)) is not None

    def children(self, path: str) -> list[str]:
        """Names below a node, sorted. Errors: Refused, Unsure."""
        return sorted(self.answer(self._client.get_children_async(self.at(path))))

    def sync(self, path: str) -> None:
        """Later reads see all that was written before this call. Errors: Refused, Unsure."""
        self.answer(self._client.sync_async(self.at(path)))

    def ensure(self, path: str) -> None:
        """Make a node and those above it where they are missing. Errors: Refused, Unsure."""
        self.answer(self._client.ensure_path_async(self.at(path)))

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Make a node; returns its whole path, number included. Errors: Refused, Unsure."""
        assert len(data) <= REQUEST_BYTES_MAX, f"{path}: {len(data)} bytes in one request"
        return str(self.answer(self._client.create_async(self.at(path), data, ephemeral=ephemeral, sequence=sequence)))

    def delete(self, path: str) -> None:
        """Delete a node; that it is gone already is no error. Errors: Refused, Unsure."""
        try:
            self.answer(self._client.delete_async(self.at(path)))
        except Refused as err:
            if not isinstance(err.cause, NoNodeError):
                raise

    def transaction(self) -> "Transaction":
        """An empty transaction."""
        return Transaction(self, self._client.transaction())

    def answer(self, asked: Any) -> Any:
        """What came of an asynchronous call. Errors: Refused, Unsure."""
        try:
            return asked.get(timeout=OPERATION_S)
        except (ConnectionLoss, SessionExpiredError) as err:  # ConnectionClosedError too, which is a SessionExpiredError
            raise Unsure(f"{self.place.hosts}: {type(err).__name__}") from err
        except ZookeeperError as err:
            raise Refused(err) from err
        except self._client.handler.timeout_exception as err:
            raise Unsure(f"{self.place.hosts}: no answer within {OPERATION_S:g} s") from err
        except KazooException as err:
            raise Unsure(f"{self.place.hosts}: {type(err).__name__}: {err}") from err

    def create_later(self, path: str, data: bytes, tell: Callable[[Any], None]) -> None:
        """Make an ephemeral node with a number; `tell` gets its path, or the error, on kazoo's thread."""
        _link(self._client.create_async(self.at(path), data, ephemeral=True, sequence=True), tell)

    def children_later(self, path: str, tell: Callable[[Any], None]) -> None:
        """`tell` gets the names below a node, or the error, on kazoo's thread."""
        _link(self._client.get_children_async(self.at(path)), tell)

    def read_later(self, path: str, tell: Callable[[Any], None]) -> None:
        """`tell` gets data and stat, or the error, on kazoo's thread."""
        _link(self._client.get_async(self.at(path)), tell)

    def exists_later(self, path: str, watch: Callable[[Any], None], tell: Callable[[Any], None]) -> None:
        """`tell` gets the stat, None or the error, `watch` what happens to the node, both on kazoo's threads."""
        _link(self._client.exists_async(self.at(path), watch), tell)

    def delete_later(self, path: str) -> None:
        """Delete a node; nobody is told what came of it."""
        self._client.delete_async(self.at(path))

    def ensure_later(self, path: str) -> None:
        """Make a node and those above it; nobody is told what came of it."""
        self._client.ensure_path_async(self.at(path))

    def acls(self, path: str) -> list[ACL]:
        """Who may do what with a node. Errors: Refused, Unsure."""
        found, _stat = self.answer(self._client.get_acls_async(self.at(path)))
        return list(found)

    def close(self) -> None:
        """End the session; its ephemeral nodes go with it where the server hears of it. Bounded in time, repeatable."""
        closing = threading.Thread(target=self._close, name="themis-zookeeper-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)  # kazoo waits as long as a server that does not answer lets it

    def _close(self) -> None:
        with suppress(Exception):  # nobody can do anything about a connection that does not end
            self._client.stop()
            self._client.close()


def _link(asked: Any, tell: Callable[[Any], None]) -> None:
    asked.rawlink(lambda done: tell(done.value if done.exception is None else done.exception))


class Transaction:
    """Operations that are done all or none."""

    def __init__(self, session: Session, request: TransactionRequest) -> None:
        self._session, self._request = session, request
        self._bytes = 0

    def check(self, path: str, version: int = -1) -> None:
        """The node must be there, in this version unless it is -1."""
        self._request.check(self._session.at(path), version)

    def create(self, path: str, data: bytes) -> None:
        """Make a node."""
        self._bytes += len(data)
        self._request.create(self._session.at(path), data)

    def set(self, path: str, data: bytes, version: int) -> None:
        """Write a node that is in this version."""
        self._bytes += len(data)
        self._request.set_data(self._session.at(path), data, version)

    def commit(self) -> list[Any]:
        """The results in order. Errors: Refused with the first operation that failed, Unsure."""
        assert self._bytes <= 2 * REQUEST_BYTES_MAX - REQUEST_BYTES_MAX // 2, f"{self._bytes} bytes in one transaction"
        results: list[Any] = self._session.answer(self._request.commit_async())
        failures = [one for one in results if isinstance(one, Exception)]
        for failure in failures:
            if not isinstance(failure, RolledBackError | RuntimeInconsistency):
                raise Refused(failure)
        if failures:
            raise Refused(failures[0])
        return results
