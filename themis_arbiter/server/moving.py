"""Stores at rest: taking what one holds into a file, and a file into an empty one. For admins; no arbiter does this."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.adapters.sqlite_store import SqliteStore, holds_store
from themis_arbiter.adapters.state_file import StateFileError, as_batch, read_state, write_state
from themis_arbiter.adapters.zookeeper.elector import candidates
from themis_arbiter.adapters.zookeeper.premises import forget_cluster
from themis_arbiter.adapters.zookeeper.reading import BookReader
from themis_arbiter.adapters.zookeeper.segments import FormatError
from themis_arbiter.adapters.zookeeper.session import Place, Session, ZooKeeperError
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore, reader
from themis_arbiter.core.lease import LeaseState
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import CoreError, Epoch, Millis
from themis_arbiter.engine.recovery import first_event
from themis_arbiter.ports import StaleEpochError, StoredState, StoreError
from themis_arbiter.server.candidacy import place_of
from themis_arbiter.server.config import ZooKeeperConfig
from themis_arbiter.server.values import StoreAddress

CONNECT_S: Final = 10.0
PROBLEM_LENGTH_MAX: Final = 300
JUMP_MAX: Final = 1_000_000  # by which an epoch is raised without a second word: more is a slip of the hand


class NoStoreError(StoreError):
    """The file that was named for a store is missing or empty. Nothing was made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What went over. `is_in_use`: an arbiter runs on the store that it came from, and goes on."""

    leases: int
    accounts: int
    epoch: Epoch  # of the store that it came from, or of the one where it is now
    is_in_use: bool = False


def look_for_file(path: Path) -> None:
    """Errors: NoStoreError where `path` is none, and opening it would make one; StoreError where it is another program's."""
    if not holds_store(path):
        raise NoStoreError(f"{path}: there is no store; name the file that the arbiter keeps its leases in")


def export_state(address: StoreAddress, zookeeper: ZooKeeperConfig, path: Path, *, now_ms: Millis) -> Moved:
    """What the store at `address` holds at one moment, into the new file `path`. Errors: StoreError, StateFileError."""
    state, is_in_use = _of_file(address.path) if address.path else _of_zookeeper(place_of(address, zookeeper))
    write_state(path, state, origin=str(address), made_ms=now_ms)
    return Moved(leases=len(state.leases), accounts=len(state.meters), epoch=state.epoch, is_in_use=is_in_use)


def raise_epoch(
    address: StoreAddress, zookeeper: ZooKeeperConfig, to: Epoch | None, *, is_far_meant: bool = False
) -> tuple[Epoch, Epoch]:
    """Raise the epoch of the store at `address` to `to` (one more); returns the one before and the one now.

    Errors: StoreError, also where that would be by more than JUMP_MAX and not `is_far_meant`; nothing is changed then.
    """
    if address.path is None:
        with _connected(place_of(address, zookeeper)) as session:
            _look_for_epoch(session)  # the store would be made where there is none
    else:
        look_for_file(address.path)
    with closing(SqliteStore(address.path) if address.path else ZooKeeperStore(place_of(address, zookeeper))) as store:
        before = store.epoch()
        if to is not None and to - before > JUMP_MAX and not is_far_meant:
            text = f"the epoch is {before}, and {to} is more than {JUMP_MAX:,} above it: it can never be lowered again"
            raise StoreError(f"{address}: {text}; if that is meant, add --far")
        return store.raise_epoch(to)


def reset_cluster(address: StoreAddress, zookeeper: ZooKeeperConfig) -> str:
    """Let the place in ZooKeeper be whose bridge attaches to a leader next; returns whose it was, "": nobody's.

    Errors: StoreError, also where nobody ever led there.
    """
    place = place_of(address, zookeeper)
    with _connected(place) as session:
        _look_for_epoch(session)
        try:
            return forget_cluster(session)
        except FormatError as err:
            raise StoreError(f"{place}: {err}") from err


def import_state(address: StoreAddress, zookeeper: ZooKeeperConfig, path: Path) -> Moved:
    """What the file `path` holds, into the store at `address`, which must hold nothing and have no arbiter on it.

    Its epoch is then above the file's and above its own before, so that the ResourceManager listens to who leads next and no
    more to who led on the old store. Errors: StoreError, StateFileError; nothing is changed but, at most, the epoch.
    """
    state = read_state(path)
    _try_term(state, path)
    if address.path is not None:
        return _fill_file(address.path, state, address)
    place = place_of(address, zookeeper)
    with _connected(place) as session:
        standing = candidates(session)
    if standing:
        who = "an arbiter stands" if standing == 1 else f"{standing} arbiters stand"
        advice = f"end all arbiters first; one that was killed goes with its session, after up to {place.session_s:g} s"
        raise StoreError(f"{place}: {who} for election there: {advice}")
    with closing(ZooKeeperStore(place)) as store:
        return _fill(store, state, address)


def _try_term(state: StoredState, path: Path) -> None:
    """Errors: StateFileError where no arbiter could begin its term with `state`: two leases of one GPU, say."""
    ended = [lease for lease in state.leases if lease.state is LeaseState.ENDED]
    if ended:
        raise StateFileError(f"{path}: {ended[0].gpu}: {ended[0].lease_id} has ended, and no book holds such a lease")
    try:
        Arbiter(Settings()).step(first_event(state, 0))
    except CoreError as err:
        raise StateFileError(f"{path}: no arbiter could lead with it: {str(err)[:PROBLEM_LENGTH_MAX]}") from err


def _fill_file(path: Path, state: StoredState, address: StoreAddress) -> Moved:
    """Likewise, and a file is as it was, missing or empty, where nothing came of that."""
    is_new, is_ours = not holds_store(path), False
    was_there = path.exists()
    try:
        with closing(SqliteStore(path)) as file:
            try:
                return _fill(file, state, address)
            except StoreError as error:
                is_ours = is_new and not isinstance(error, StaleEpochError) and not file.is_in_use()
                raise
    except StoreError:
        if is_ours:
            for name in (Path(f"{path}-wal"), Path(f"{path}-shm")):
                name.unlink(missing_ok=True)
            if was_there:
                os.truncate(path, 0)
            else:
                path.unlink(missing_ok=True)
        raise


def _fill(store: SqliteStore | ZooKeeperStore, state: StoredState, address: StoreAddress) -> Moved:
    there = store.load()
    if there.leases or there.meters or there.admin or there.last_serial or there.last_round:
        held = f"{len(there.leases)} leases and {len(there.meters)} accounts"
        raise StoreError(f"{address}: is not empty (round {there.last_round}, {held}); name a new place")
    _, epoch = store.raise_epoch(max(there.epoch, state.epoch) + 1)
    store.commit(as_batch(state, epoch))
    return Moved(leases=len(state.leases), accounts=len(state.meters), epoch=epoch)


def _of_file(path: Path) -> tuple[StoredState, bool]:
    look_for_file(path)
    with closing(SqliteStore(path)) as store:
        return store.load(), store.is_in_use()


def _of_zookeeper(place: Place) -> tuple[StoredState, bool]:
    with _connected(place) as session:
        _look_for_epoch(session)
        return BookReader(session).read().state, candidates(session) > 0


def _look_for_epoch(session: Session) -> None:
    """Errors: StoreError where nobody has taken one: a path that was mistyped, most likely. ZooKeeperError."""
    reign = reader(session)
    if reign is None or not reign.epoch:
        raise StoreError(f"{session.place}: no arbiter ever led there; look at the path after the hosts")


@contextmanager
def _connected(place: Place) -> Iterator[Session]:
    """A connection that makes nothing. Errors: StoreError."""
    session = Session(place)
    try:
        session.open()
        session.wait_connected(CONNECT_S)
        yield session
    except ZooKeeperError as err:
        raise StoreError(f"{place}: {err}") from err
    finally:
        session.close()
