"""The lease book as a standby reads it: nothing is made, nothing is written, and what is known is not fetched again."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kazoo.exceptions import NoNodeError

from themis_arbiter.adapters.zookeeper.segments import Book, FormatError, Index, unpack
from themis_arbiter.adapters.zookeeper.session import Refused, Session, ZooKeeperError
from themis_arbiter.adapters.zookeeper.store import EPOCH, Reign, chunk_paths, decode_reign, index_path, state_of
from themis_arbiter.core.types import Millis
from themis_arbiter.ports import StoredState, StoreError

READ_EVERY_S: Final = 1.0  # what is younger is shown again, however often it is asked for
TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store held when its newest batch was written, at `written_ms` by ZooKeeper's clock (0: nothing ever was)."""

    state: StoredState
    written_ms: Millis


class BookReader:
    """Reads the book below `session`'s place. Any thread may call it; one reads at a time."""

    def __init__(self, session: Session, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._session, self._clock_s = session, clock_s
        self._turn = threading.Lock()
        self._read_s: float | None = None
        self._known: Stored | None = None
        self._stamp: tuple[str, int, int] | None = None  # cluster id, epoch, version of the index: what `_known` is of

    def read(self) -> Stored:
        """What stands, at most READ_EVERY_S old. Errors: StoreError."""
        with self._turn:
            now_s = self._clock_s()
            if self._known is not None and self._read_s is not None and now_s - self._read_s < READ_EVERY_S:
                return self._known
            if not self._session.is_connected:  # nothing is left waiting for it to come back
                raise StoreError(f"{self._session.place}: ZooKeeper is not reached")
            try:
                self._known = self._read()
            except (ZooKeeperError, FormatError) as err:
                raise StoreError(f"{self._session.place}: {err}") from err
            self._read_s = now_s
            return self._known

    def _read(self) -> Stored:
        for _ in range(TRIES_MAX):
            try:
                data, stat = self._session.read(EPOCH)
                reign = decode_reign(data, int(stat.version))
                data, stat = self._session.read(index_path(reign))
            except Refused as err:
                if isinstance(err.cause, NoNodeError):  # nobody has led here yet
                    return _NOTHING
                raise
            stamp = (reign.cluster_id, reign.epoch, int(stat.version))
            if self._known is not None and stamp == self._stamp:
                return self._known
            index = Index.decode(data)
            book = self._book(reign, index)
            if book is not None:
                self._stamp = stamp
                return Stored(state_of(reign, index, book), int(stat.mtime) if index.segments else 0)
        raise StoreError(f"{self._session.place}: the lease book was written as one while it was read")

    def _book(self, reign: Reign, index: Index) -> Book | None:
        """None: the leader wrote the book as one meanwhile, and took away what had been it."""
        book = Book()
        try:
            for segment in index.segments:
                book.add(unpack(segment, self._session.read_all(chunk_paths(reign, segment))))
        except Refused as err:
            if isinstance(err.cause, NoNodeError):
                return None
            raise
        return book


_NOTHING: Final = Stored(
    StoredState(epoch=0, start_id="", leases=(), meters=(), last_round=0, last_serial=0, admin=""), written_ms=0
)
