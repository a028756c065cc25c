"""Exporting and importing what a store holds, with a real ZooKeeper at one end; test_moving_on_yarn.py has it with YARN."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.logs import logging_kept
from tests.support.zookeeper_clients import Connect, OpenStore
from tests.support.zookeeper_server import ZooKeeper
from tests.unit.cli.test_admin_state import a_state
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.adapters.state_file import as_batch, read_state, write_state
from themis_arbiter.adapters.zookeeper.elector import ELECTION
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.cli.main import run
from themis_arbiter.ports import StaleEpochError, StoredState, StoreError
from themis_arbiter.server import moving
from themis_arbiter.server.config import ZooKeeperConfig
from themis_arbiter.server.moving import export_state, import_state, raise_epoch
from themis_arbiter.server.values import Origin, StoreAddress, store

pytest_plugins = ["tests.support.zookeeper"]
pytestmark = pytest.mark.zookeeper

LEASES = 5_000
CONFIG = ZooKeeperConfig(session_ms=4_000)


@pytest.fixture
def place(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Place:
    return Place(hosts=zookeeper.hosts, chroot=f"/{request.node.name}", session_s=4.0)


def address(text: object) -> StoreAddress:
    return store(str(text), Origin(Path()))


def large_state() -> StoredState:
    state = a_state()
    leases = tuple(replace(state.leases[0], lease_id=f"L{k:08d}", gpu=f"n{k}:0") for k in range(LEASES))
    return replace(state, leases=leases)


def test_a_state_goes_into_zookeeper_and_back_whole(place: Place, open_store: OpenStore, tmp_path: Path) -> None:
    state = large_state()
    write_state(tmp_path / "1", state, origin="a test", made_ms=0)
    assert import_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1").epoch == state.epoch + 1
    with pytest.raises(StoreError, match="more than 1,000,000 above it"):
        raise_epoch(address(f"zookeeper:{place}"), CONFIG, 2_000_000)
    assert open_store(place).load() == replace(state, epoch=state.epoch + 1)
    moved = export_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "2", now_ms=0)
    assert (moved.leases, moved.accounts, moved.epoch, moved.is_in_use) == (LEASES, 2, state.epoch + 1, False)
    assert read_state(tmp_path / "2") == replace(state, epoch=state.epoch + 1)
    assert import_state(address(f"sqlite:{tmp_path}/x.db"), CONFIG, tmp_path / "2").epoch == state.epoch + 2
    with closing(SqliteStore(tmp_path / "x.db")) as file:
        assert file.load() == replace(state, epoch=state.epoch + 2)


def test_the_verbs_say_what_came_of_them_and_nothing_of_their_connections(
    place: Place, open_store: OpenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(place).acquire_epoch()
    with logging_kept():
        assert run(["admin", "export-state", str(tmp_path / "1"), "--store", f"zookeeper:{place}"]) == 0
        told = capsys.readouterr()
        assert (told.err, "0 leases and 0 accounts" in told.out) == ("", True)
        assert run(["admin", "reset-epoch", "--yes", "--store", f"zookeeper:{place}"]) == 0
        (audit,) = capsys.readouterr().err.splitlines()
        assert "logger=themis_arbiter.audit" in audit
        assert run(["admin", "export-state", str(tmp_path / "2"), "--store", f"zookeeper:{place}/none"]) == 1
        (problem,) = capsys.readouterr().err.splitlines()
        assert problem.startswith(f"themis: {place}/none: no arbiter ever led there")


def test_a_path_where_nobody_led_is_told_and_nothing_is_made_there(place: Place, connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no arbiter ever led there"):
        export_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1", now_ms=0)
    with pytest.raises(StoreError, match="no arbiter ever led there"):
        raise_epoch(address(f"zookeeper:{place}"), CONFIG, 7)
    assert connect(place).exists("/") is None
    assert not (tmp_path / "1").exists()


def test_a_path_with_an_arbiter_on_it_or_with_leases_is_not_filled(
    place: Place, connect: Connect, open_store: OpenStore, tmp_path: Path
) -> None:
    write_state(tmp_path / "1", a_state(), origin="a test", made_ms=0)
    session = connect(place)
    session.ensure(ELECTION)
    standing = session.create(f"{ELECTION}/c-1-", b"{}", ephemeral=True, sequence=True)
    with pytest.raises(StoreError, match="an arbiter stands for election there"):
        import_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1")
    session.delete(standing.removeprefix(place.chroot))
    import_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1")
    before = open_store(place).load()
    with pytest.raises(StoreError, match="is not empty"):
        import_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1")
    assert open_store(place).load() == before


def test_an_arbiter_that_starts_in_the_same_moment_wins(
    place: Place, open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state(tmp_path / "1", a_state(), origin="a test", made_ms=0)
    leading = open_store(place)

    def too_late(state: StoredState, epoch: int) -> object:
        leading.acquire_epoch()
        return as_batch(state, epoch)

    monkeypatch.setattr(moving, "as_batch", too_late)
    with pytest.raises(StaleEpochError):
        import_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1")
    assert leading.load().leases == ()


def test_who_has_not_the_credentials_is_told_where_they_are_given(place: Place, open_store: OpenStore, tmp_path: Path) -> None:
    open_store(replace(place, credentials=("themis", "secret"))).acquire_epoch()
    for act in (
        lambda: export_state(address(f"zookeeper:{place}"), CONFIG, tmp_path / "1", now_ms=0),
        lambda: raise_epoch(address(f"zookeeper:{place}"), CONFIG, None),
    ):
        with pytest.raises(StoreError, match=r"NoAuthError .*--config, or THEMIS_ZOOKEEPER_CREDENTIALS"):
            act()
    assert not (tmp_path / "1").exists()
