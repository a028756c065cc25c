"""The lease store in ZooKeeper: one transaction a batch that checks the epoch, adds what changed and moves the index on.

    /epoch                    number, cluster id, who leads; the node's version is what every write checks
    /book-CLUSTER/index       which segments are the book (segments.py)
    /book-CLUSTER/segments/   their chunks

The cluster id is drawn when the namespace is first used and is in the book's path: an arbiter of a ZooKeeper that lost its
state finds nothing where it writes, rather than another cluster's book with, by chance, the same versions.

A batch of more than a chunk goes up chunk by chunk, each checked against the epoch, before the transaction that commits. What
is left of a write that broke off is in no index and is swept away later. Where the answer to a commit is lost, the index is
read again before the next write; the index's version keeps an old write that arrives late from undoing a newer one.
"""

import json
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from themis_arbiter.adapters.zookeeper.premises import OccupiedError, look_around
from themis_arbiter.adapters.zookeeper.segments import (
    FORMAT,
    READABLE_BY,
    Book,
    FormatError,
    Index,
    Segment,
    lines_of,
    pack,
    record,
    unpack,
)
from themis_arbiter.adapters.zookeeper.session import Place, Refused, Session, Unsure, ZooKeeperError
from themis_arbiter.core.events import Batch
from themis_arbiter.core.types import CoreError, Epoch
from themis_arbiter.ports import EPOCH_MAX, StaleEpochError, StoredState, StoreError

EPOCH: Final = "/epoch"
CONNECT_S: Final = 10.0
SEGMENTS_MAX: Final = 128  # in the index; then the book is written as one
SEGMENTS_HARD_MAX: Final = 512  # where that keeps failing: past it nothing else is written
LOG_BYTES_MIN: Final = 512 * 1024  # changes since the snapshot; more, and more than the snapshot, is written as one
TRIES_MAX: Final = 3
SWEEP_MAX: Final = 2_000  # nodes that one sweep deletes


@dataclass(frozen=True, slots=True)
class Reign:
    """The epoch's node: `version` is the node's; `leader` what its holder wanted known of itself."""

    epoch: Epoch
    cluster_id: str
    leader: dict[str, str]
    version: int

    def encode(self) -> bytes:
        """As the node's data."""
        plain = {"format": FORMAT, "readable_by": READABLE_BY, "epoch": self.epoch, "cluster_id": self.cluster_id}
        return json.dumps(plain | {"leader": self.leader}, sort_keys=True).encode()


def decode_reign(data: bytes, version: int) -> Reign:
    """The epoch's node. Errors: FormatError."""
    plain = record(data, "the epoch")
    try:
        leader = {str(k): str(v) for k, v in plain["leader"].items()}
        return Reign(int(plain["epoch"]), str(plain["cluster_id"]), leader, version)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise FormatError(f"the epoch cannot be read: {err!r}") from err


class ZooKeeperStore:
    """A `LeaseStore` at `place`, made there where it is missing.

    `leader` is what others may read of who took the epoch; `candidate` names a node without which the epoch is not taken
    (the elector's: whoever lost its session cannot become leader with what it read before). One thread at a time may call
    it; two at once are a programming error and raise CoreError.
    """

    def __init__(
        self,
        place: Place,
        *,
        leader: dict[str, str] | None = None,
        candidate: Callable[[], str] | None = None,
        connect_s: float = CONNECT_S,
        connect: Callable[[Place], Session] = Session,
    ) -> None:
        """Connect. Errors: StoreError where ZooKeeper cannot be reached or the namespace is not ours to use."""
        self._place, self._leader, self._candidate = place, dict(leader or {}), candidate
        self._busy = threading.Lock()
        self._nonce = secrets.token_hex(4)
        self._written = 0  # segments that this store began, so that no two have one name
        self._reign: Reign | None = None  # as last read; None: to be read
        self._index: tuple[Index, int] | None = None  # with its node's version; None: to be read
        self._admin: str | None = None  # as last written; None: unknown
        self._is_swept = False
        self.bytes_written = 0  # data sent in transactions, for measurements
        self._session: Session | None = connect(place)
        try:
            with self._guarded() as session:
                session.open()
                session.wait_connected(connect_s)
                self._prepare(session)
        except BaseException:
            self.close()
            raise

    def acquire_epoch(self) -> Epoch:
        """Raise the epoch by one and return it. Errors: StoreError (also where the candidate's node is gone)."""
        with self._guarded() as session:
            return self._raise(session, None, self._leader).epoch

    def raise_epoch(self, to: Epoch | None = None) -> tuple[Epoch, Epoch]:
        """Raise the epoch to `to` (one more); returns the one before and the one now. An arbiter that leads is fenced by it.

        Errors: StoreError, also where the epoch is that high already; nothing is changed.
        """
        with self._guarded() as session:
            before = self._read_reign(session).epoch
            return before, self._raise(session, to, {}).epoch

    def reign(self) -> Reign:
        """Who leads, or led last. Errors: StoreError, StaleEpochError where the store is gone."""
        with self._guarded() as session:
            return self._read_reign(session)

    def epoch(self) -> Epoch:
        """The highest epoch taken. Errors: StaleEpochError where the namespace is gone or made anew, StoreError."""
        with self._guarded() as session:
            known = self._reign
            now = self._read_reign(session)
            if known is not None and known.cluster_id != now.cluster_id:
                raise StaleEpochError(f"{self._place}: another cluster's leases stand where this store was")
            return now.epoch

    def load(self) -> StoredState:
        """Everything stored, as of one moment. Errors: StoreError."""
        with self._guarded() as session:
            reign = self._read_reign(session)
            index, book = self._read_book(session, reign)
            state = state_of(reign, index, book)
        self._admin = state.admin
        return state

    def commit(self, batch: Batch) -> None:
        """Write `batch`; a quorum has it on disk when this returns. Errors: StaleEpochError, StoreError.

        Nothing is changed then, unless the answer was lost: the same batch may be committed again in any case.
        """
        with self._guarded() as session:
            reign = self._reign or self._read_reign(session)
            if batch.epoch != reign.epoch:
                self._refuse(session, batch.epoch)
            index, version = self._index or self._read_index(session, reign)
            if len(index.segments) >= SEGMENTS_HARD_MAX:
                index, version = self._compact(session, reign, index, version)
            lines = lines_of(batch, with_admin=batch.admin != self._admin)
            segment, chunks = pack(self._new_name(reign), lines)
            for _ in range(TRIES_MAX):
                after = index.with_batch(batch, segment)
                if self._publish(session, reign, segment, chunks, after, version):
                    break
                # A write of ours that was thought lost has come through: go on from there.
                index, version = self._read_index(session, reign)
                segment, chunks = pack(self._new_name(reign), lines)
            else:
                raise StoreError(f"{self._place}: the index changed under {TRIES_MAX} writes")
            self._index, self._admin = (after, version + 1), batch.admin
            self._tidy(session, reign, after, version + 1)

    def close(self) -> None:
        """End the session; later calls raise StoreError."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # -- the epoch

    def _prepare(self, session: Session) -> None:
        """Make the namespace where it is missing, and see that it is ours to read and to write."""
        session.ensure("/")
        if session.exists(EPOCH) is None:
            look_around(session)
            fresh = Reign(0, uuid.uuid4().hex, {}, 0)
            try:
                session.create(EPOCH, fresh.encode())
            except Refused as err:
                if not isinstance(err.cause, NodeExistsError):  # another arbiter made it in the same moment
                    raise
        reign = self._read_reign(session)
        session.ensure(f"{_book(reign)}/segments")
        if session.exists(index_path(reign)) is None:
            try:
                session.create(index_path(reign), Index().encode())
            except Refused as err:
                if not isinstance(err.cause, NodeExistsError):
                    raise
        self._read_index(session, reign)

    def _raise(self, session: Session, to: Epoch | None, leader: dict[str, str]) -> Reign:
        for _ in range(TRIES_MAX):
            before = self._read_reign(session)
            epoch = before.epoch + 1 if to is None else to
            if not before.epoch < epoch <= EPOCH_MAX:
                text = f"the epoch is {before.epoch}: it can be raised, up to {EPOCH_MAX}, never lowered"
                raise StoreError(f"{self._place}: {text}")
            after = Reign(epoch, before.cluster_id, leader, before.version + 1)
            raising = session.transaction()
            candidate = self._candidate() if self._candidate is not None else ""
            if candidate:
                raising.check(candidate)
            raising.set(EPOCH, after.encode(), before.version)
            try:
                raising.commit()
            except Refused as err:
                if isinstance(err.cause, BadVersionError):
                    continue  # another was faster
                if candidate and isinstance(err.cause, NoNodeError):
                    raise StoreError(f"{self._place}: the session that was elected is over: the epoch was not taken") from err
                raise
            self._reign, self._index, self._admin, self._is_swept = after, None, None, False
            return after
        raise StoreError(f"{self._place}: others took {TRIES_MAX} epochs in the same moment")

    def _read_reign(self, session: Session) -> Reign:
        session.sync(EPOCH)
        try:
            data, stat = session.read(EPOCH)
        except Refused as err:
            if isinstance(err.cause, NoNodeError):
                raise StaleEpochError(f"{self._place}: the lease store is gone") from err
            raise
        reign = decode_reign(data, int(stat.version))
        if self._reign is None:
            self._reign = reign
        return reign

    def _refuse(self, session: Session, epoch: Epoch) -> None:
        """Errors: StaleEpochError unless the store is, after all, at `epoch`."""
        known, now = self._reign, self._read_reign(session)
        if known is not None and known.cluster_id != now.cluster_id:
            raise StaleEpochError(f"{self._place}: another cluster's leases stand where this store was")
        if now.epoch == epoch:  # committed for another store's term: one that took the epoch on the same namespace
            self._reign, self._index, self._admin = now, None, None
            return
        raise StaleEpochError(f"the batch is of epoch {epoch}, the store is at {now.epoch}")

    # -- the book

    def _read_index(self, session: Session, reign: Reign) -> tuple[Index, int]:
        try:
            data, stat = session.read(index_path(reign))
        except Refused as err:
            if isinstance(err.cause, NoNodeError):
                raise StaleEpochError(f"{self._place}: the lease book is gone") from err
            raise
        self._index = (Index.decode(data), int(stat.version))
        return self._index

    def _read_book(self, session: Session, reign: Reign) -> tuple[Index, Book]:
        """What stands; read again where a leader wrote the book as one meanwhile and took away what had been it."""
        for _ in range(TRIES_MAX):
            index, _version = self._read_index(session, reign)
            book = Book()
            try:
                for segment in index.segments:
                    book.add(unpack(segment, session.read_all(chunk_paths(reign, segment))))
            except Refused as err:
                if isinstance(err.cause, NoNodeError):
                    continue
                raise
            return index, book
        raise StoreError(f"{self._place}: segments of the lease book are missing")

    def _publish(
        self, session: Session, reign: Reign, segment: Segment, chunks: list[bytes], after: Index, version: int
    ) -> bool:
        """Commit `after`, whose newest segment this is; False: the index is no longer in this version, nothing was done.

        Errors: StaleEpochError, Refused, Unsure.
        """
        paths = chunk_paths(reign, segment)
        try:
            for path, chunk in zip(paths[:-1], chunks[:-1], strict=True):
                staging = session.transaction()
                staging.check(EPOCH, reign.version)
                staging.create(path, chunk)
                staging.commit()
                self.bytes_written += len(chunk)
            data = after.encode()
            commit = session.transaction()
            commit.check(EPOCH, reign.version)
            commit.set(index_path(reign), data, version)
            commit.create(paths[-1], chunks[-1])
            commit.commit()
        except Unsure:
            self._index = self._admin = None
            raise
        except Refused as err:
            self._index = self._admin = None
            if isinstance(err.cause, BadVersionError | NoNodeError):
                self._refuse(session, reign.epoch)
            if isinstance(err.cause, BadVersionError):
                return False
            raise
        self.bytes_written += len(data) + len(chunks[-1])
        return True

    def _tidy(self, session: Session, reign: Reign, index: Index, version: int) -> None:
        """After a commit: write the book as one where its changes are many. That may fail; the next commit tries again."""
        is_long = len(index.segments) > SEGMENTS_MAX
        is_large = index.log_bytes > max(LOG_BYTES_MIN, index.snapshot_bytes)
        if not (is_long or is_large):
            return
        try:
            self._compact(session, reign, index, version)
        except (ZooKeeperError, StoreError):
            self._index = None  # the batch itself is committed, whatever came of this

    def _compact(self, session: Session, reign: Reign, index: Index, version: int) -> tuple[Index, int]:
        book = Book()
        for segment in index.segments:
            book.add(unpack(segment, session.read_all(chunk_paths(reign, segment))))
        snapshot, chunks = pack(self._new_name(reign), book.lines())
        after = index.compacted(snapshot)
        if not self._publish(session, reign, snapshot, chunks, after, version):
            raise StoreError(f"{self._place}: the index changed while the book was written as one")
        self._index = (after, version + 1)
        gone = [path for segment in index.segments for path in chunk_paths(reign, segment)]
        if not self._is_swept:
            gone += self._strays(session, reign, after, gone)
            self._is_swept = True
        self._delete(session, gone)
        return self._index

    def _strays(self, session: Session, reign: Reign, index: Index, known: Iterable[str]) -> list[str]:
        """Chunks of writes that broke off, of this epoch and of those before.

        Never a later one's: another may lead by now without this store knowing, and what it wrote is in its index.
        """
        counts = {path for segment in index.segments for path in chunk_paths(reign, segment)} | set(known)
        folder = f"{_book(reign)}/segments"
        names = [name for name in session.children(folder) if _epoch_of(name) <= reign.epoch]
        return [f"{folder}/{name}" for name in names if f"{folder}/{name}" not in counts][:SWEEP_MAX]

    def _delete(self, session: Session, paths: Iterable[str]) -> None:
        for path in paths:
            session.delete(path)

    def _new_name(self, reign: Reign) -> str:
        self._written += 1
        return f"{reign.epoch}-{self._nonce}-{self._written}"

    @contextmanager
    def _guarded(self) -> Iterator[Session]:
        """One caller at a time; ZooKeeper's errors become the port's."""
        if not self._busy.acquire(blocking=False):
            raise CoreError("two threads use the lease store at once")
        try:
            session = self._session
            if session is None:
                raise StoreError("the store is closed")
            yield session
        except OccupiedError as err:
            raise StoreError(str(err)) from err
        except (ZooKeeperError, FormatError) as err:
            raise StoreError(f"{self._place}: {err}") from err
        finally:
            self._busy.release()


def _book(reign: Reign) -> str:
    return f"/book-{reign.cluster_id}"


def index_path(reign: Reign) -> str:
    """Where the index of a reign's book is."""
    return f"{_book(reign)}/index"


def chunk_paths(reign: Reign, segment: Segment) -> list[str]:
    """Where the chunks of a segment are, in order."""
    return [f"{_book(reign)}/segments/{name}" for name in segment.nodes]


def _epoch_of(chunk: str) -> int:
    """Of a chunk's name; a name that no version of this program gives counts as old."""
    number = chunk.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def reader(session: Session, watch: Callable[[Any], None] | None = None) -> Reign | None:
    """Who leads or led last, None where nobody ever did; `watch` is called once when that changes. Errors: ZooKeeperError."""
    try:
        data, stat = session.read(EPOCH, watch)
    except Refused as err:
        if isinstance(err.cause, NoNodeError):
            return None
        raise
    try:
        return decode_reign(data, int(stat.version))
    except FormatError as err:
        raise ZooKeeperError(str(err)) from err


def state_of(reign: Reign, index: Index, book: Book) -> StoredState:
    """What a term inherits. Errors: FormatError."""
    leases, meters, admin = book.parse()
    return StoredState(
        epoch=reign.epoch,
        start_id=index.start_id,
        leases=leases,
        meters=meters,
        last_round=index.last_round,
        last_serial=index.last_serial,
        admin=admin,
    )
