"""What is SQLite's own: files, transactions that break in the middle, processes that are killed."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import CoreError
from themis_arbiter.ports import EPOCH_MAX, StaleEpochError, StoreError

WRITER: Final = """
import sys
from pathlib import Path
from tests.unit.adapters.test_sqlite_store import batch_of
from themis_arbiter.adapters.sqlite_store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
epoch = store.acquire_epoch()
number = 0
while True:
    number += 1
    store.commit(batch_of(epoch, number))
    print(number, flush=True)
"""
LEASES_A_BATCH: Final = 40


def lease(name: str, end_ms: int = 1) -> Lease:
    return Lease(
        lease_id=name,
        grant_id="g",
        gpu=f"{name}:0",
        app_id="a",
        job_id="j",
        epoch=1,
        round_no=1,
        start_ms=0,
        end_ms=end_ms,
    )


def batch_of(epoch: int, number: int) -> Batch:
    """All leases with the batch's number in them, so that half a batch would show."""
    puts = tuple(lease(f"l{k:02d}", end_ms=number) for k in range(LEASES_A_BATCH))
    return Batch(batch_no=number, epoch=epoch, start_id="s", last_round=number, last_serial=number, puts=puts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as opened:
        yield opened


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def test_a_batch_that_breaks_in_the_middle_changes_nothing(store: SqliteStore, path: Path) -> None:
    epoch = store.acquire_epoch()
    store.commit(batch_of(epoch, 1))
    before = store.load()
    edit(
        path,
        "CREATE TRIGGER fault BEFORE INSERT ON leases WHEN NEW.lease_id = 'l20' BEGIN SELECT RAISE(ABORT, 'disk on fire'); END",
    )
    with pytest.raises(StoreError, match="disk on fire"):
        store.commit(batch_of(epoch, 2))
    assert store.load() == before
    edit(path, "DROP TRIGGER fault")
    store.commit(batch_of(epoch, 2))
    assert {x.end_ms for x in store.load().leases} == {2}


def test_a_killed_writer_leaves_whole_batches(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )
    assert writer.stdout is not None
    with writer.stdout:
        told = 0
        while told < 5:
            told = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    writer.wait()
    with closing(SqliteStore(path)) as store:
        state = store.load()
    assert len(state.leases) == LEASES_A_BATCH
    assert {x.end_ms for x in state.leases} == {state.last_round}
    # What was told as committed is there; one more may be, whose answer the kill cut off.
    assert state.last_round in {told, told + 1}


def test_files_are_their_owners_only(store: SqliteStore, path: Path) -> None:
    store.acquire_epoch()
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes == {"leases.db": 0o600, "leases.db-wal": 0o600, "leases.db-shm": 0o600}


def test_an_open_file_is_made_private(path: Path) -> None:
    path.touch(mode=0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_writes_reach_the_disk_before_a_commit_returns(store: SqliteStore) -> None:
    db = store._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_what_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"app_id,job_id\n" * 200)
    with pytest.raises(StoreError, match=r"leases\.db: SQLITE_NOTADB"):
        SqliteStore(path)
    assert path.read_bytes() == b"app_id,job_id\n" * 200


def test_a_database_of_others_is_refused_and_left_alone(path: Path) -> None:
    edit(path, "CREATE TABLE recipes (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a lease store of this program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(store: SqliteStore, path: Path) -> None:
    edit(path, "UPDATE schema_version SET version = 3")
    with pytest.raises(StoreError, match="schema version 3; this program reads 2"):
        SqliteStore(path)


def test_what_version_1_kept_is_taken_over(store: SqliteStore, path: Path) -> None:
    store.commit(batch_of(store.acquire_epoch(), 1))
    store.close()
    edit(path, "DROP TABLE accounts")
    edit(path, "CREATE TABLE meters (job_id TEXT PRIMARY KEY, attained_gpu_ms REAL NOT NULL) WITHOUT ROWID")
    edit(path, "INSERT INTO meters VALUES ('j1', 12.5)")
    edit(path, "UPDATE schema_version SET version = 1")
    for _ in range(2):
        with closing(SqliteStore(path)) as opened:
            state = opened.load()
        assert state.meters == (("j1", Meter(attained=12.5, done=12.5, metered_ms=0)),)
        assert len(state.leases) == LEASES_A_BATCH


def test_an_account_that_cannot_be_read_is_named(store: SqliteStore, path: Path) -> None:
    edit(path, "INSERT INTO accounts VALUES ('j1', '{}')")
    with pytest.raises(StoreError, match="the account of j1 cannot be read"):
        store.load()


def test_a_damaged_file_is_refused(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.commit(batch_of(store.acquire_epoch(), 1))
    content = bytearray(path.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"leases\.db: (SQLITE_CORRUPT|the lease store is damaged)"):
        SqliteStore(path)


def test_a_lease_that_cannot_be_read_is_named(store: SqliteStore, path: Path) -> None:
    store.commit(batch_of(store.acquire_epoch(), 1))
    edit(path, "UPDATE leases SET lease = '{\"state\": \"confused\"}' WHERE lease_id = 'l07'")
    with pytest.raises(StoreError, match=r"lease l07 cannot be read: Lease\.state"):
        store.load()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open the lease store: No such file"):
        SqliteStore(tmp_path / "missing" / "leases.db")


def test_a_store_that_another_process_holds_says_busy(store: SqliteStore, path: Path) -> None:
    epoch = store.acquire_epoch()
    store._db.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="SQLITE_BUSY"):
            store.commit(batch_of(epoch, 1))
        other.execute("ROLLBACK")
    store.commit(batch_of(epoch, 1))
    assert store.load().last_round == 1


def test_another_thread_may_use_it_but_not_two_at_once(store: SqliteStore) -> None:
    epochs: list[int] = []
    thread = threading.Thread(target=lambda: epochs.append(store.acquire_epoch()))
    thread.start()
    thread.join()
    assert epochs == [1]
    with store._busy, pytest.raises(CoreError, match="two threads"):
        store.load()


def test_raised_epoch_fences_who_had_the_one_before_and_leaves_leases_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as first:
        epoch = first.acquire_epoch()
        first.commit(batch_of(epoch, 1))
    with closing(SqliteStore(path)) as admin:
        assert admin.raise_epoch(7) == (1, 7)
        for to in (7, 3):
            with pytest.raises(StoreError, match="never lowered"):
                admin.raise_epoch(to)
        assert admin.raise_epoch() == (7, 8)
        with pytest.raises(StaleEpochError):
            admin.commit(batch_of(epoch, 2))
        assert len(admin.load().leases) == LEASES_A_BATCH
        assert admin.acquire_epoch() == 9


def test_no_epoch_goes_over_the_bound_a_terms_neither(store: SqliteStore) -> None:
    store.raise_epoch(EPOCH_MAX)
    with pytest.raises(StoreError, match="it can be raised, up to"):
        store.acquire_epoch()
    assert store.epoch() == EPOCH_MAX


def test_epoch_of_a_store_in_use_is_not_raised(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(SqliteStore(path)) as arbiter, closing(SqliteStore(path)) as admin:
        epoch = arbiter.acquire_epoch()
        with pytest.raises(StoreError, match="in use by another process"):
            admin.raise_epoch()
        arbiter.commit(batch_of(epoch, 1))


def test_a_store_whose_file_is_gone_or_replaced_says_so(tmp_path: Path) -> None:
    path = tmp_path / "leases.db"
    store = SqliteStore(path)
    store.acquire_epoch()
    assert store.epoch() == 1
    path.rename(tmp_path / "moved.db")
    with pytest.raises(StaleEpochError, match="is gone"):
        store.epoch()
    SqliteStore(path).acquire_epoch()
    with pytest.raises(StaleEpochError, match="another file"):
        store.epoch()
