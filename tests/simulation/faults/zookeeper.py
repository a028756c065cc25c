"""A simulated ZooKeeper: a tree of nodes, sessions that expire, watches, transactions; without a network.

What a client sends comes in by `apply`, which raises kazoo's own errors. Who reaches the servers is the client's to say
(`zookeeper_client.py`); a session whose client does not for its timeout is expired by `pass_time`, unless there is no quorum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    ZookeeperError,
)

from themis_arbiter.core.types import Millis

NODE_BYTES_MAX: Final = 1024 * 1024
Watcher: TypeAlias = Callable[[str], None]


@dataclass(slots=True)
class Node:
    """A node; `owner` is the session that an ephemeral one goes with, 0 for others."""

    data: bytes
    owner: int = 0
    version: int = 0
    made: int = 0  # children ever made with a number


@dataclass(slots=True)
class Stat:
    """What a read tells beside the data."""

    version: int
    owner: int


@dataclass(slots=True)
class Held:
    """A session as the servers see it."""

    session_id: int
    timeout_ms: Millis
    heard_ms: Millis
    is_reached: Callable[[], bool]
    watches: list[tuple[str, Watcher]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node."""

    path: str
    data: bytes
    is_ephemeral: bool = False
    has_number: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Set a node's data."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """The node must be there."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a node away."""

    path: str


Change: TypeAlias = Create | Write | Check | Delete


class SimZooKeeper:
    """The servers, as one. `on_change` is called after each change of the tree with the paths that it touched."""

    def __init__(self, now_ms: Callable[[], Millis]) -> None:
        self._now_ms = now_ms
        self.nodes: dict[str, Node] = {"/": Node(b"")}
        self.sessions: dict[int, Held] = {}
        self.has_quorum = True
        self.refuses_writes = False
        self.on_change: Callable[[tuple[str, ...]], None] = lambda _paths: None
        self._sessions_made = 0

    # -- sessions

    def begin(self, timeout_ms: Millis, is_reached: Callable[[], bool]) -> int:
        """A new session's id."""
        self._sessions_made += 1
        session_id = 0x100000 + self._sessions_made
        self.sessions[session_id] = Held(session_id, timeout_ms, self._now_ms(), is_reached)
        return session_id

    def pass_time(self) -> None:
        """Sessions that are reached have been heard of just now; those that were not for too long are over.

        Call this before anything changes whom the servers reach, and often.
        """
        if not self.has_quorum:
            return
        now_ms = self._now_ms()
        for held in list(self.sessions.values()):
            if held.is_reached():
                held.heard_ms = now_ms
            elif now_ms - held.heard_ms >= held.timeout_ms:
                self.end(held.session_id)

    def set_quorum(self, has_quorum: bool) -> None:
        """With a quorum back, every session has its whole timeout again: the new leader of the servers knows no better."""
        self.pass_time()
        self.has_quorum = has_quorum
        if has_quorum:
            for held in self.sessions.values():
                held.heard_ms = self._now_ms()

    def end(self, session_id: int) -> None:
        """The session is over, and its nodes are gone."""
        if self.sessions.pop(session_id, None) is None:
            return
        gone = [path for path, node in self.nodes.items() if node.owner == session_id]
        for path in gone:
            del self.nodes[path]
        self._changed(gone)

    # -- requests

    def apply(self, session_id: int, change: Change) -> Any:
        """Do one change. Errors: kazoo's."""
        return self.apply_all(session_id, (change,))[0]

    def apply_all(self, session_id: int, changes: tuple[Change, ...]) -> list[Any]:
        """Do all changes or none. Errors: kazoo's, of the first that cannot be done."""
        self._check_session(session_id)
        if self.refuses_writes:
            raise ZookeeperError("the disk is full")
        before = {path: self._copy(path) for change in changes for path in (change.path, _parent(change.path))}
        results: list[Any] = []
        try:
            for change in changes:
                results.append(self._apply(session_id, change))  # noqa: PERF401 - what was done before a failure counts
        except ZookeeperError as err:
            err.index = len(results)
            for path in results:
                if isinstance(path, str):
                    self.nodes.pop(path, None)
            for path, node in before.items():
                if node is None:
                    self.nodes.pop(path, None)
                else:
                    self.nodes[path] = node
            raise
        self._changed([r if isinstance(r, str) else c.path for c, r in zip(changes, results, strict=True)])
        return results

    def transact(self, session_id: int, changes: tuple[Change, ...]) -> list[Any]:
        """As kazoo tells of a transaction: failures are items of the list. Errors: SessionExpiredError."""
        try:
            return self.apply_all(session_id, changes)
        except SessionExpiredError:
            raise
        except ZookeeperError as err:
            at = int(getattr(err, "index", 0))
            after = len(changes) - at - 1
            return [RolledBackError()] * at + [err] + [RuntimeInconsistency()] * max(0, after)

    def read(self, session_id: int, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Data and stat. Errors: kazoo's."""
        self._check_session(session_id)
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        self._watch(session_id, path, watch)
        return node.data, Stat(node.version, node.owner)

    def exists(self, session_id: int, path: str, watch: Watcher | None = None) -> Stat | None:
        """The stat, or None. Errors: kazoo's."""
        self._check_session(session_id)
        self._watch(session_id, path, watch)
        node = self.nodes.get(path)
        return None if node is None else Stat(node.version, node.owner)

    def children(self, session_id: int, path: str) -> list[str]:
        """Names below. Errors: kazoo's."""
        self._check_session(session_id)
        if path not in self.nodes:
            raise NoNodeError
        start = path.rstrip("/") + "/"
        return [p[len(start) :] for p in self.nodes if p.startswith(start) and p != "/" and "/" not in p[len(start) :]]

    def ensure(self, session_id: int, path: str) -> bool:
        """Make what is missing. Errors: kazoo's."""
        parts = path.strip("/").split("/")
        for k in range(len(parts)):
            one = "/" + "/".join(parts[: k + 1])
            if one != "/" and one not in self.nodes:
                self.apply(session_id, Create(one, b""))
        return True

    # -- within

    def _check_session(self, session_id: int) -> None:
        if session_id not in self.sessions:
            raise SessionExpiredError

    def _copy(self, path: str) -> Node | None:
        node = self.nodes.get(path)
        return None if node is None else Node(node.data, node.owner, node.version, node.made)

    def _watch(self, session_id: int, path: str, watch: Watcher | None) -> None:
        if watch is not None:
            self.sessions[session_id].watches.append((path, watch))

    def _apply(self, session_id: int, change: Change) -> Any:
        if isinstance(change, Create):
            return self._create(session_id, change)
        node = self.nodes.get(change.path)
        if node is None:
            raise NoNodeError
        if isinstance(change, Delete):
            if self.children(session_id, change.path):
                raise NotEmptyError
            del self.nodes[change.path]
            return True
        if change.version not in (-1, node.version):
            raise BadVersionError
        if isinstance(change, Write):
            assert len(change.data) < NODE_BYTES_MAX, "real servers cut the connection"
            self.nodes[change.path] = Node(change.data, node.owner, node.version + 1, node.made)
            return Stat(node.version + 1, node.owner)
        return True

    def _create(self, session_id: int, change: Create) -> str:
        assert len(change.data) < NODE_BYTES_MAX, "real servers cut the connection"
        parent = self.nodes.get(_parent(change.path))
        if parent is None:
            raise NoNodeError
        path = f"{change.path}{parent.made:010d}" if change.has_number else change.path
        if path in self.nodes:
            raise NodeExistsError
        parent.made += 1
        self.nodes[path] = Node(change.data, session_id if change.is_ephemeral else 0)
        return path

    def _changed(self, paths: list[str]) -> None:
        touched = set(paths)
        for held in self.sessions.values():
            fired = [(path, watch) for path, watch in held.watches if path in touched]
            held.watches = [(path, watch) for path, watch in held.watches if path not in touched]
            for path, watch in fired:
                watch(path)
        self.on_change(tuple(paths))


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
