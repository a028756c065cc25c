"""`themis admin export-state` and `import-state` on files; tests/integration/test_moving_stores.py has them on a ZooKeeper."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from tests.support.arbiters import SERVE
from tests.support.logs import logging_kept
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.adapters.state_file import StateFileError, read_state, write_state
from themis_arbiter.cli.main import run
from themis_arbiter.core.events import Batch, JobReport, Meter
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.ports import StoredState, StoreError
from themis_arbiter.server.config import ZooKeeperConfig
from themis_arbiter.server.moving import NoStoreError, export_state, raise_epoch
from themis_arbiter.server.values import StoreAddress

SETTINGS = {"THEMIS_GRPC_ADDRESS": "127.0.0.1:0", "THEMIS_HTTP_ADDRESS": "127.0.0.1:0"}


def a_state() -> StoredState:
    """With every kind of thing in it, and names that no line and no encoding may break."""
    names = ("a/b", "tab\tline\n", "\u0085\u00e9", '"quoted\\')
    leases = tuple(
        Lease(
            lease_id=f"L{k:08d}",
            grant_id="G1",
            gpu=f"n{k}:0",
            app_id=name,
            job_id=f"application_1_{k}",
            epoch=3,
            round_no=2,
            start_ms=1_000,
            end_ms=301_000,
            state=LeaseState.DRAINING if k else LeaseState.ACTIVE,
        )
        for k, name in enumerate(names)
    )
    ended = Meter(attained=5.5, done=5.0, metered_ms=9, app_id="a/b", ended=JobReport(job_id="j2", app_id="a/b", arrival_ms=3))
    meters = (("application_1_0", Meter(attained=1.0, done=1.0, metered_ms=7, app_id="a/b", arrival_ms=3)), ("j2", ended))
    admin = '{"is_paused":true}'
    return StoredState(epoch=7, start_id="s1", leases=leases, meters=meters, last_round=12, last_serial=40, admin=admin)


def fill(path: Path, state: StoredState) -> None:
    with closing(SqliteStore(path)) as store:
        store.raise_epoch(state.epoch)
        figures = {"start_id": state.start_id, "last_round": state.last_round, "last_serial": state.last_serial}
        store.commit(Batch(batch_no=1, epoch=7, puts=state.leases, meters=state.meters, admin=state.admin, **figures))  # type: ignore[arg-type]


def loaded(path: Path) -> StoredState:
    with closing(SqliteStore(path)) as store:
        return store.load()


def admin(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    with logging_kept():
        status = run(["admin", *arguments])
    return status, *capfd.readouterr()


def test_a_store_goes_through_a_file_into_another_under_a_higher_epoch(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    state, backup = a_state(), tmp_path / "backup"
    fill(tmp_path / "old.db", state)
    status, out, _ = admin(capfd, "export-state", str(backup), "--store", f"sqlite:{tmp_path}/old.db", "--json")
    told = json.loads(out)
    assert (status, told["leases"], told["accounts"], told["epoch"], told["is_in_use"]) == (0, 4, 2, 7, False)
    assert read_state(backup) == state
    assert backup.stat().st_mode & 0o777 == 0o600
    status, out, err = admin(capfd, "import-state", str(backup), "--yes", "--store", f"sqlite:{tmp_path}/new.db")
    assert (status, "4 leases and 2 accounts" in out, "its epoch is 8" in out) == (0, True, True)
    assert "verb=import-state" in err
    moved = loaded(tmp_path / "new.db")
    assert moved.epoch == 8
    assert (moved.leases, moved.meters, moved.admin) == (state.leases, state.meters, state.admin)
    assert (moved.start_id, moved.last_round, moved.last_serial) == ("s1", 12, 40)
    # What holds something is not filled again, and a file that is there is not written again.
    status, _, err = admin(capfd, "import-state", str(backup), "--yes", "--store", f"sqlite:{tmp_path}/new.db")
    assert (status, "is not empty (round 12, 4 leases and 2 accounts); name a new place" in err) == (1, True)
    assert loaded(tmp_path / "new.db") == moved
    status, _, err = admin(capfd, "export-state", str(backup), "--store", f"sqlite:{tmp_path}/new.db")
    assert (status, "is there already; name a new file" in err) == (1, True)
    assert read_state(backup) == state


def test_a_store_with_an_arbiter_on_it_is_copied_and_never_filled(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state, backup, store = a_state(), tmp_path / "backup", f"sqlite:{tmp_path}/live.db"
    write_state(backup, state, origin="a test", made_ms=0)
    environment = {**os.environ, **SETTINGS, "THEMIS_STORE": store}
    command = [sys.executable, "-m", *SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as arbiter:
        try:
            assert arbiter.stdout is not None
            assert json.loads(arbiter.stdout.readline())["epoch"] == 1
            status, _, err = admin(capfd, "import-state", str(backup), "--yes", "--store", store)
            assert (status, "in use by another process: stop the arbiter on it first" in err) == (1, True)
            status, out, _ = admin(capfd, "export-state", str(tmp_path / "copy"), "--store", store)
            assert (status, "an arbiter runs on that store" in out) == (0, True)
            assert arbiter.poll() is None
        finally:
            arbiter.terminate()
            arbiter.wait(30)
    assert loaded(tmp_path / "live.db").leases == ()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: b"", "is not a file of `themis admin export-state`"),
        (lambda data: b"{}\n", "is not a file of `themis admin export-state`"),
        (gzip.compress, "is not a file of `themis admin export-state`"),
        (lambda data: b"some words\n" * 9_999, "is not a file of `themis admin export-state`"),
        (lambda data: b"SQLite format 3\0" + bytes(99_999), "this is a store: take its state into a file first"),
        (lambda data: b'{"kind": "themis-state", ' + b"[" * 60_000 + b"\n", "none of this program's records"),
        (lambda data: b'{"kind": "themis-state", \xff' + data, "none of this program's records"),
        (lambda data: data[:-20], "damaged"),
        (lambda data: data.replace(b"L00000001", b"L00000009"), "damaged"),
        (lambda data: data.replace(b'"readable_by": 1', b'"readable_by": 2'), "newer version"),
        (lambda data: data.replace(b'"themis-state"', b'"other"'), "is not a file of `themis admin export-state`"),
        (lambda data: data.replace(b'"crc"', b'"crk"'), "the checksum is another"),
        (lambda data: data.replace(b'"epoch": 7', b'"epoch": 9', 1), "the checksum is another"),
        (lambda data: data.replace(b'"last_serial": 40', b'"last_serial": 41'), "the checksum is another"),
        (lambda data: data.replace(b'"last_round": 12', b'"last_round": 11'), "the checksum is another"),
        (lambda data: data.replace(b'"start_id": "s1"', b'"start_id": "s2"'), "the checksum is another"),
        (lambda data: data.replace(b'"leases": 4', b'"leases": 5'), "the checksum is another"),
    ],
)
def test_a_file_that_is_not_whole_fills_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, spoil: "object", says: str
) -> None:
    backup = tmp_path / "backup"
    write_state(backup, a_state(), origin="a test", made_ms=0)
    assert callable(spoil)
    backup.write_bytes(spoil(backup.read_bytes()))
    with pytest.raises(StateFileError, match=says):
        read_state(backup)
    status, out, err = admin(capfd, "import-state", str(backup), "--yes", "--store", f"sqlite:{tmp_path}/new.db")
    assert (status, out, says in err, len(err) < 500) == (2, "", True, True)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("epoch", 10**15, "no epoch, a whole number"),
        ("epoch", -1, "no epoch, a whole number"),
        ("last_serial", "40", "no last_serial, a whole number"),
        ("last_round", True, "no last_round, a whole number"),
        ("start_id", 5, "no start_id"),
        ("leases", 5, "tells of 5 leases and 2 accounts, 4 and 2 follow it"),
        ("accounts", 1, "tells of 4 leases and 1 accounts, 4 and 2 follow it"),
    ],
)
def test_a_first_line_that_another_program_wrote_is_looked_at(tmp_path: Path, field: str, value: object, says: str) -> None:
    backup = tmp_path / "backup"
    write_state(backup, a_state(), origin="a test", made_ms=0)
    head_line, _, body = backup.read_bytes().partition(b"\n")
    head = {key: x for key, x in json.loads(head_line).items() if key != "crc"} | {field: value}
    crc = zlib.crc32(json.dumps(head).encode() + b"\n" + body)
    backup.write_bytes(json.dumps(head | {"crc": crc}).encode() + b"\n" + body)
    with pytest.raises(StateFileError, match=says):
        read_state(backup)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    for odd in (Path(os.devnull), Path("/dev/zero")):
        with pytest.raises(StateFileError, match="is not a file of"):
            read_state(odd)
    with pytest.raises(StateFileError, match="cannot be read"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu": "n1:0"}, "n1:0: already leased under L00000000 of application_1_0, cannot also be under L00000001 of"),
        ({"state": LeaseState.WAITING, "gpu": "n9:0"}, "n9:0: a next lease needs a current one before it: L00000000 of"),
        ({"state": LeaseState.ENDED}, "n0:0: L00000000 has ended"),
    ],
    ids=["two on one GPU", "next of nothing", "ended"],
)
def test_a_book_that_no_arbiter_could_lead_with_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, object], says: str
) -> None:
    state = a_state()
    first, *others = state.leases
    spoilt = replace(state, leases=(replace(first, **change), *others))  # type: ignore[arg-type]
    write_state(tmp_path / "backup", spoilt, origin="a test", made_ms=0)
    command = ("import-state", str(tmp_path / "backup"), "--yes", "--store", f"sqlite:{tmp_path}/new.db")
    status, out, err = admin(capfd, *command)
    assert (status, out, says in err, "Lease(" in err) == (2, "", True, False)
    assert not (tmp_path / "new.db").exists()
    write_state(tmp_path / "settings", replace(state, admin='{"x":1}'), origin="a test", made_ms=0)
    status, _, err = admin(capfd, "import-state", str(tmp_path / "settings"), *command[2:])
    assert (status, "no arbiter could lead with it" in err) == (2, True)


def test_an_import_that_fails_leaves_no_store_behind(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path / "backup", a_state(), origin="a test", made_ms=0)

    def fails(_store: SqliteStore, _batch: Batch) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(SqliteStore, "commit", fails)
    arguments = ("import-state", str(tmp_path / "backup"), "--yes", "--store", f"sqlite:{tmp_path}/new.db")
    status, _, err = admin(capfd, *arguments)
    assert (status, "the disk is full" in err) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]
    with closing(SqliteStore(tmp_path / "new.db")):
        pass
    assert admin(capfd, *arguments)[0] == 1
    assert (tmp_path / "new.db").exists()


def test_any_name_comes_back_from_a_file(tmp_path: Path) -> None:
    state = a_state()
    odd = replace(state, leases=(replace(state.leases[0], app_id="java\ud800", lease_id="nul\0"),), admin="\U0001f642")
    write_state(tmp_path / "backup", odd, origin="\ud800", made_ms=0)
    assert read_state(tmp_path / "backup") == odd


def test_the_audits_line_comes_after_the_answer_and_only_where_it_may_be_kept(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path / "backup", a_state(), origin="a test", made_ms=0)
    command = [sys.executable, "-m", "themis_arbiter.cli", "admin", "import-state", str(tmp_path / "backup"), "--yes"]
    store = f"--store=sqlite:{tmp_path}/1.db"
    done = subprocess.run([*command, store], check=True, stdout=PIPE, stderr=STDOUT, text=True, timeout=60)
    answer, audit = done.stdout.splitlines()
    assert (answer.startswith("4 leases and 2 accounts are in"), "verb=import-state" in audit) == (True, True)
    # What comes of nothing is one line, as for every verb.
    failed = subprocess.run([*command, store], check=False, stdout=PIPE, stderr=STDOUT, text=True, timeout=60)
    assert (failed.returncode, failed.stdout.count("\n"), "is not empty" in failed.stdout) == (1, 1, True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for arguments in (("import-state", str(tmp_path / "backup")), ("reset-epoch",)):
        status, out, err = admin(capfd, *arguments, "--yes", "--store", f"sqlite:{tmp_path}/2.db")
        assert (status, out.count("\n"), err) == (0, 1, "")


def an_empty_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


@pytest.mark.parametrize("verb", ["export-state", "reset-epoch"])
@pytest.mark.parametrize(
    ("make", "status", "says"),
    [
        (Path.touch, 2, "there is no store; name the file that the arbiter keeps its leases in"),
        (an_empty_database, 2, "there is no store; name the file that the arbiter keeps its leases in"),
        (Path.mkdir, 2, "there is no store; name the file that the arbiter keeps its leases in"),
        (foreign_database, 1, "a database, but not a lease store of this program"),
        (lambda path: path.write_text("some words\n" * 99), 1, "SQLITE_NOTADB"),
    ],
    ids=["empty file", "empty database", "folder", "another program's", "text"],
)
def test_a_store_that_is_none_is_not_made_one(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, verb: str, make: Callable[[Path], None], status: int, says: str
) -> None:
    path = tmp_path / "not a store?.db"
    make(path)
    if not path.is_dir():
        path.chmod(0o644)
    before = (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
    arguments = [str(tmp_path / "backup")] if verb == "export-state" else ["--yes"]
    found, out, err = admin(capfd, verb, *arguments, "--store", f"sqlite:{path}")
    assert (found, out, err.count("\n"), says in err) == (status, "", 1, True), err
    assert (path.stat().st_mode, path.read_bytes() if path.is_file() else b"") == before
    assert list(tmp_path.iterdir()) == [path]


def test_those_who_move_stores_without_the_verbs_make_none_either(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    address, config = StoreAddress("sqlite", path), ZooKeeperConfig(session_ms=10_000)
    with pytest.raises(NoStoreError):
        export_state(address, config, tmp_path / "backup", now_ms=0)
    with pytest.raises(NoStoreError):
        raise_epoch(address, config, None)
    assert (list(tmp_path.iterdir()), path.stat().st_size) == ([path], 0)


def test_an_empty_file_may_be_filled_and_is_empty_where_that_fails(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.db"
    path.touch()
    write_state(tmp_path / "backup", a_state(), origin="a test", made_ms=0)
    arguments = ("import-state", str(tmp_path / "backup"), "--yes", "--store", f"sqlite:{path}")
    with monkeypatch.context() as patched:

        def fails(_store: SqliteStore, _batch: Batch) -> None:
            raise StoreError("the disk is full")

        patched.setattr(SqliteStore, "commit", fails)
        status, _, err = admin(capfd, *arguments)
    assert (status, "the disk is full" in err, path.read_bytes()) == (1, True, b"")
    assert sorted(other.name for other in tmp_path.iterdir()) == ["backup", "new.db"]
    assert admin(capfd, *arguments)[0] == 0
    assert len(loaded(path).leases) == 4
    # Another program's is left alone, its mode too.
    other = tmp_path / "recipes.db"
    foreign_database(other)
    other.chmod(0o644)
    before = other.read_bytes()
    status, _, err = admin(capfd, *arguments[:-1], f"sqlite:{other}")
    assert (status, "not a lease store of this program" in err) == (1, True)
    assert (other.read_bytes(), other.stat().st_mode & 0o777) == (before, 0o644)


def test_wrong_use_is_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, says in (
        (("export-state", "x"), "export-state: name the store"),
        (("export-state", "x", "--store", "memory:"), "does not outlive its arbiter"),
        (("export-state", "x", "--store", f"sqlite:{tmp_path}/none.db"), "there is no store"),
        (("import-state", "x", "--store", f"sqlite:{tmp_path}/new.db"), "--yes"),
        (("import-state", f"{tmp_path}/none", "--yes", "--store", f"sqlite:{tmp_path}/new.db"), "cannot be read"),
    ):
        status, out, err = admin(capfd, *words)
        assert (status, out) == (2, ""), err
        assert says in err
    assert list(tmp_path.iterdir()) == []
