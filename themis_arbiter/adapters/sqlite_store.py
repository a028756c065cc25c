"""The embedded lease store: one SQLite file, one transaction a batch, on the disk before `commit` returns.

The epoch is data in the file and is checked inside every transaction. A second arbiter on the same file takes a higher
one, and the first one's next commit fails: two processes can have the file open, only one can write leases.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from themis_arbiter.core.codec import dumps, from_plain
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import CoreError, Epoch, JobId
from themis_arbiter.ports import EPOCH_MAX, StaleEpochError, StoredState, StoreError

SCHEMA_VERSION: Final = 2  # 1 kept of each job what it had attained, and no more
APPLICATION_ID: Final = 0x7E3515  # in the file's header, so that no other program's database is taken for ours
BUSY_SECONDS: Final = 2.0  # how long to wait for another process's transaction
FILE_MODE: Final = 0o600

_SCHEMA: Final = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE term (
  epoch INTEGER NOT NULL, start_id TEXT NOT NULL, last_round INTEGER NOT NULL, last_serial INTEGER NOT NULL,
  admin TEXT NOT NULL
);
CREATE TABLE leases (lease_id TEXT PRIMARY KEY, lease TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE accounts (job_id TEXT PRIMARY KEY, account TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO term VALUES (0, '', 0, 0, '')
"""


def holds_store(path: Path) -> bool:
    """Whether the file `path` holds a store: False where it is missing or empty. It is not made, written or given another mode.

    Errors: StoreError where it is another program's, or cannot be read.
    """
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)) as db:
            return _is_ours(db, path)
    except sqlite3.Error as err:
        raise _store_error(path, err) from err


def _is_ours(db: sqlite3.Connection, path: Path) -> bool:
    """False where there is nothing in it. Errors: StoreError where it is another program's."""
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    if application_id == APPLICATION_ID:
        return True
    if not _is_empty(db):
        raise StoreError(f"{path}: a database, but not a lease store of this program; name another file")
    return False


def _is_empty(db: sqlite3.Connection) -> bool:
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables) == 0


def _store_error(path: Path, err: sqlite3.Error) -> StoreError:
    kind: Any = getattr(err, "sqlite_errorname", type(err).__name__)
    return StoreError(f"{path}: {kind}: {err}")


class SqliteStore:
    """A `LeaseStore` in the file `path`, which is made where it is missing.

    One thread at a time may call it, any thread (opened by the one that starts the process, used by the engine's); two
    at once are a programming error and raise CoreError.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file. Errors: StoreError where it is corrupt, foreign, of a newer version or not writable."""
        self._path = path
        self._busy = threading.Lock()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
            path.chmod(FILE_MODE)  # SQLite gives its -wal and -shm files the same mode
            opened = path.stat()
            self._identity = (opened.st_dev, opened.st_ino)
        except OSError as err:
            raise StoreError(f"{path}: cannot open the lease store: {err.strerror}") from err
        with self._guarded():
            self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def acquire_epoch(self) -> Epoch:
        """Raise the epoch by one and return it. Errors: StoreError."""
        with self._transaction() as db:
            (before,) = db.execute("SELECT epoch FROM term").fetchone()
            return self._raise(db, before, before + 1)

    def raise_epoch(self, to: Epoch | None = None) -> tuple[Epoch, Epoch]:
        """Raise the epoch to `to` (one more) where nobody else has the file open; returns the one before and the one now.

        An arbiter that opens the file in the same moment is fenced by the higher epoch, as by any other arbiter's. Errors:
        StoreError where another process uses the file (seen by its locks, so not across a network's file system), or the
        epoch is that high already; nothing is changed.
        """
        if self.is_in_use():
            raise StoreError(f"{self._path}: in use by another process: stop the arbiter on it first")
        with self._transaction() as db:
            (before,) = db.execute("SELECT epoch FROM term").fetchone()
            after = self._raise(db, before, before + 1 if to is None else to)
        return before, after

    def _raise(self, db: sqlite3.Connection, before: Epoch, after: Epoch) -> Epoch:
        if not before < after <= EPOCH_MAX:
            raise StoreError(f"{self._path}: the epoch is {before}: it can be raised, up to {EPOCH_MAX}, never lowered")
        db.execute("UPDATE term SET epoch = ?", (after,))
        return after

    def is_in_use(self) -> bool:
        """Whether another process has the file open, seen by its locks, so not across a network. Errors: StoreError."""
        with self._guarded():
            try:
                # SQLite leaves the write-ahead log only where no other connection is open.
                (mode,) = self._db.execute("PRAGMA journal_mode = DELETE").fetchone()
            except sqlite3.OperationalError as err:
                if err.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                return True
            self._db.execute("PRAGMA journal_mode = WAL")
        return bool(mode != "delete")

    def epoch(self) -> Epoch:
        """The highest epoch taken. Errors: StaleEpochError where the file is gone or another one stands in its place."""
        try:
            there = self._path.stat()
        except OSError as err:
            raise StaleEpochError(f"{self._path}: the lease store is gone: {err.strerror}") from err
        if (there.st_dev, there.st_ino) != self._identity:
            raise StaleEpochError(f"{self._path}: another file stands where the lease store was")
        with self._guarded():
            return int(self._db.execute("SELECT epoch FROM term").fetchone()[0])

    def load(self) -> StoredState:
        """Everything stored, as of one moment. Errors: StoreError."""
        with self._transaction() as db:
            term = db.execute("SELECT epoch, start_id, last_round, last_serial, admin FROM term").fetchone()
            leases = db.execute("SELECT lease_id, lease FROM leases ORDER BY lease_id").fetchall()
            meters = db.execute("SELECT job_id, account FROM accounts ORDER BY job_id").fetchall()
        return StoredState(
            epoch=term[0],
            start_id=term[1],
            leases=tuple(self._parse_lease(lease_id, text) for lease_id, text in leases),
            meters=tuple((job_id, self._parse_meter(job_id, text)) for job_id, text in meters),
            last_round=term[2],
            last_serial=term[3],
            admin=term[4],
        )

    def commit(self, batch: Batch) -> None:
        """Write `batch`; it is on the disk when this returns. Errors: StaleEpochError, StoreError; nothing is changed."""
        with self._transaction() as db:
            (epoch,) = db.execute("SELECT epoch FROM term").fetchone()
            if batch.epoch != epoch:
                raise StaleEpochError(f"the batch is of epoch {batch.epoch}, the store is at {epoch}")
            db.executemany(
                "INSERT OR REPLACE INTO leases VALUES (?, ?)", [(lease.lease_id, dumps(lease)) for lease in batch.puts]
            )
            db.executemany("DELETE FROM leases WHERE lease_id = ?", [(i,) for i in batch.deletes])
            db.executemany(
                "INSERT OR REPLACE INTO accounts VALUES (?, ?)", [(j, dumps(m)) for j, m in batch.meters if m is not None]
            )
            db.executemany("DELETE FROM accounts WHERE job_id = ?", [(j,) for j, m in batch.meters if m is None])
            db.execute(
                "UPDATE term SET start_id = ?, last_round = ?, last_serial = ?, admin = ?",
                (batch.start_id, batch.last_round, batch.last_serial, batch.admin),
            )

    def close(self) -> None:
        """Close the file; later calls raise StoreError."""
        with self._guarded():
            self._db.close()

    def _prepare(self) -> None:
        _is_ours(self._db, self._path)  # before anything is written
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if _is_empty(self._db):  # asked again inside the transaction: two processes may start at once
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO schema_version VALUES (?)", (SCHEMA_VERSION,))
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._upgrade()
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        (version,) = self._db.execute("SELECT version FROM schema_version").fetchone()
        if version != SCHEMA_VERSION:
            raise StoreError(f"{self._path}: schema version {version}; this program reads {SCHEMA_VERSION}")
        (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(f"{self._path}: the lease store is damaged: {verdict}")

    def _upgrade(self) -> None:
        """Take over what version 1 kept, inside the caller's transaction."""
        (version,) = self._db.execute("SELECT version FROM schema_version").fetchone()
        if version != 1:
            return
        self._db.execute("CREATE TABLE accounts (job_id TEXT PRIMARY KEY, account TEXT NOT NULL) WITHOUT ROWID")
        for job_id, attained in self._db.execute("SELECT job_id, attained_gpu_ms FROM meters").fetchall():
            meter = Meter(attained=attained, done=attained, metered_ms=0)
            self._db.execute("INSERT INTO accounts VALUES (?, ?)", (job_id, dumps(meter)))
        self._db.execute("DROP TABLE meters")
        self._db.execute("UPDATE schema_version SET version = ?", (SCHEMA_VERSION,))

    def _parse_lease(self, lease_id: str, text: str) -> Lease:
        try:
            lease: Lease = from_plain(Lease, json.loads(text))
        except (CoreError, ValueError) as err:
            raise StoreError(f"{self._path}: lease {lease_id} cannot be read: {err}") from err
        return lease

    def _parse_meter(self, job_id: JobId, text: str) -> Meter:
        try:
            meter: Meter = from_plain(Meter, json.loads(text))
        except (CoreError, ValueError) as err:
            raise StoreError(f"{self._path}: the account of {job_id} cannot be read: {err}") from err
        return meter

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # the first error tells what is wrong
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One caller at a time; SQLite's errors become the port's."""
        if not self._busy.acquire(blocking=False):
            raise CoreError("two threads use the lease store at once")
        try:
            yield
        except sqlite3.Error as err:
            raise _store_error(self._path, err) from err
        finally:
            self._busy.release()
