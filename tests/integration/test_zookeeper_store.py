"""The lease store on a real ZooKeeper that is large, slow, wiped, foreign or gone."""

import random
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.zookeeper_clients import Connect, OpenStore
from tests.support.zookeeper_server import ZooKeeper, run_zookeeper
from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.adapters.zookeeper import segments, store
from themis_arbiter.adapters.zookeeper.reading import BookReader
from themis_arbiter.adapters.zookeeper.session import Place, Session
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.ports import StaleEpochError, StoreError
from themis_arbiter.server.values import RESERVED, RESERVED_START

pytest_plugins = ["tests.support.zookeeper"]
pytestmark = pytest.mark.zookeeper

LEASES = 20_000
NODE_BYTES_MAX = 300 * 1024  # of 1 MiB that ZooKeeper takes


@pytest.fixture
def place(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Place:
    return Place(hosts=zookeeper.hosts, chroot=f"/{request.node.name}", session_s=2.0)


@pytest.fixture
def session(place: Place, connect: Connect) -> Session:
    return connect(place)


def lease(name: str, **changes: object) -> Lease:
    fields = {"grant_id": f"G{name}", "gpu": f"node-{name}:0", "app_id": f"alice/{name}", "job_id": f"application_1_{name}"}
    figures = {"epoch": 1, "round_no": 1, "start_ms": 1_700_000_000_000, "end_ms": 1_700_000_300_000}
    return replace(Lease(lease_id=name, **fields, **figures), **changes)  # type: ignore[arg-type]


def batch(**changes: object) -> Batch:
    made = Batch(batch_no=1, epoch=1, start_id="s1", last_round=4, last_serial=9)
    return replace(made, **changes)  # type: ignore[arg-type]


def nodes_of(session: Session) -> dict[str, int]:
    """Bytes of every node below the namespace, by path."""
    found: dict[str, int] = {}
    todo = [""]
    while todo:
        path = todo.pop()
        found[path or "/"] = len(session.read(path or "/")[0])
        todo += [f"{path}/{name}" for name in session.children(path or "/")]
    return found


def test_20_000_leases_leave_every_node_far_from_the_limit_and_a_round_is_small(
    place: Place, session: Session, open_store: OpenStore
) -> None:
    opened = open_store(place)
    opened.acquire_epoch()
    puts = tuple(lease(f"{k:05d}") for k in range(LEASES))
    opened.commit(batch(puts=puts))
    before = opened.bytes_written
    some = tuple(replace(one, state=LeaseState.DRAINING) for one in puts[:: LEASES // 500])
    opened.commit(batch(puts=some))
    assert opened.bytes_written - before < 40_000
    renewed = tuple(replace(one, end_ms=one.end_ms + 300_000) for one in puts)
    for _ in range(4):  # every grid end writes all of them: the book is written as one in between
        opened.commit(batch(puts=renewed))
    sizes = nodes_of(session)
    assert max(sizes.values()) <= NODE_BYTES_MAX
    assert sum(sizes.values()) < 8 * 2**20
    fresh = open_store(place)
    assert fresh.load().leases == renewed


def test_what_is_larger_than_a_node_is_split_and_costs_no_session(
    place: Place, session: Session, open_store: OpenStore
) -> None:
    opened = open_store(place)
    opened.acquire_epoch()
    session_id = session.session_id
    chance = random.Random(1)
    noise = "".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(1_200_000))
    opened.commit(batch(admin=noise, puts=(lease("1"),)))
    state = opened.load()
    assert state.admin == noise
    assert state.leases == (lease("1"),)
    assert max(nodes_of(session).values()) <= NODE_BYTES_MAX
    assert session.session_id == session_id


def test_names_of_any_kind_come_back_and_cost_no_session(place: Place, session: Session, open_store: OpenStore) -> None:
    opened = open_store(place)
    opened.acquire_epoch()
    session_id = session.session_id
    names = ["a/b", "..", "x" * 5_000, "\U0001f642", "nul\0", "\u0085", "tab\tline\n", "java\ud800", "java\udc00", '"quoted\\']
    puts = tuple(lease(name) for name in sorted(names))
    opened.commit(batch(puts=puts, meters=tuple((name, Meter(attained=1, done=1, metered_ms=1)) for name in sorted(names))))
    fresh = open_store(place)
    state = fresh.load()
    assert state.leases == puts
    assert [name for name, _ in state.meters] == sorted(names)
    assert session.exists(store.EPOCH) is not None
    assert session.session_id == session_id


def test_a_write_past_the_limit_is_refused_and_the_next_one_goes_through(
    place: Place, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    opened = open_store(place)
    opened.acquire_epoch()
    with monkeypatch.context() as limits:
        limits.setattr(segments, "SEGMENT_BYTES_MAX", 100)
        with pytest.raises(StoreError, match="more than 100"):
            opened.commit(batch(puts=tuple(lease(f"{k}") for k in range(100))))
    opened.commit(batch(puts=(lease("1"),)))
    assert opened.load().leases == (lease("1"),)


def test_years_of_rounds_keep_the_book_short_and_like_a_store_in_memory(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    monkeypatch.setattr(store, "SEGMENTS_MAX", 8)
    opened, memory, chance = open_store(place), MemoryStore(), random.Random(2)
    opened.acquire_epoch()
    memory.acquire_epoch()
    other = open_store(place)
    for number in range(60):
        names = [f"{chance.randrange(40)}" for _ in range(6)]
        meters = tuple(
            (n, None if chance.random() < 0.3 else Meter(attained=number, done=1.5, metered_ms=1)) for n in names[4:]
        )
        one = batch(
            puts=tuple(lease(n, round_no=number + 1) for n in names[:3]),
            deletes=tuple(names[3:4]),
            meters=meters,
            last_round=number,
            admin=str(number // 7),
        )
        opened.commit(one)
        memory.commit(one)
        if number % 10 == 0:
            assert other.load() == memory.load()
    assert opened.load() == other.load() == memory.load()
    assert len(nodes_of(session)) < 20


def test_an_earlier_leaders_broken_write_is_seen_by_nobody_and_swept(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    old = open_store(place)
    old.acquire_epoch()
    (book,) = [name for name in session.children("/") if name.startswith("book-")]
    session.create(f"/{book}/segments/1-dead-1-0", b"half of a batch")
    session.create(f"/{book}/segments/3-next-1-0", b"of a leader that this one does not know of yet")
    new = open_store(place)
    new.acquire_epoch()
    assert new.load().leases == ()
    monkeypatch.setattr(store, "SEGMENTS_MAX", 1)
    for number in range(3):
        new.commit(batch(epoch=2, puts=(lease(str(number)),)))
    there = " ".join(nodes_of(session))
    assert "dead" not in there
    assert "3-next-1-0" in there
    assert len(new.load().leases) == 3


def test_an_arbiter_whose_namespace_was_wiped_cannot_write_into_the_next_one(
    place: Place, zookeeper: ZooKeeper, open_store: OpenStore, connect: Connect
) -> None:
    old = open_store(place)
    old.acquire_epoch()
    old.commit(batch(puts=(lease("1"),)))
    above = connect(Place(hosts=zookeeper.hosts))
    for path in sorted(nodes_of_tree(above, place.chroot), reverse=True):
        above.delete(path)
    with pytest.raises(StaleEpochError, match="gone"):
        old.epoch()
    with pytest.raises(StaleEpochError):
        old.commit(batch(puts=(lease("2"),)))
    new = open_store(place)
    new.acquire_epoch()  # the same number, and a node of the same version
    new.commit(batch(puts=(lease("3"),)))
    with pytest.raises(StaleEpochError, match="another cluster"):
        old.epoch()
    for _ in range(2):
        with pytest.raises(StaleEpochError):
            old.commit(batch(puts=(lease("4"),)))
    assert new.load().leases == (lease("3"),)


def nodes_of_tree(session: Session, root: str) -> list[str]:
    return [root, *(path for name in session.children(root) for path in nodes_of_tree(session, f"{root}/{name}"))]


def test_the_epoch_is_not_taken_without_the_candidates_node(place: Place, session: Session, open_store: OpenStore) -> None:
    opened = open_store(place, candidate=lambda: "/candidate", leader={"name": "me"})
    with pytest.raises(StoreError, match="elected is over"):
        opened.acquire_epoch()
    assert opened.epoch() == 0
    session.create("/candidate", b"")
    assert opened.acquire_epoch() == 1
    reign = store.reader(session)
    assert reign is not None
    assert (reign.epoch, reign.leader) == (1, {"name": "me"})


def test_an_admin_raises_the_epoch_and_the_leader_is_fenced(place: Place, open_store: OpenStore) -> None:
    leading, admin = open_store(place), open_store(place)
    leading.acquire_epoch()
    assert admin.raise_epoch(7) == (1, 7)
    with pytest.raises(StoreError, match="never lowered"):
        admin.raise_epoch(7)
    with pytest.raises(StaleEpochError, match="epoch 1, the store is at 7"):
        leading.commit(batch(puts=(lease("1"),)))


def test_nodes_made_with_credentials_are_for_that_user_alone(place: Place, open_store: OpenStore, connect: Connect) -> None:
    owned = replace(place, credentials=("themis", "secret"))
    opened = open_store(owned)
    opened.acquire_epoch()
    opened.commit(batch(puts=(lease("1"),)))
    mine = connect(owned)
    for path in nodes_of(mine):
        if path != "/":
            assert [acl.id.scheme for acl in mine.acls(path)] == ["digest"], path
    for other in (place, replace(place, credentials=("themis", "wrong"))):
        with pytest.raises(StoreError, match="NoAuth"):
            open_store(other)


def test_a_store_of_a_newer_version_is_left_alone(place: Place, session: Session, open_store: OpenStore) -> None:
    open_store(place)
    data, stat = session.read(store.EPOCH)
    newer = session.transaction()
    newer.set(store.EPOCH, data.replace(b'"readable_by": 1', b'"readable_by": 2'), stat.version)
    newer.commit()
    with pytest.raises(StoreError, match="newer version"):
        open_store(place)


def test_a_place_inside_another_or_around_one_is_refused(place: Place, session: Session, open_store: OpenStore) -> None:
    outer, inner = place, replace(place, chroot=f"{place.chroot}/a/b")
    open_store(inner).acquire_epoch()
    with pytest.raises(StoreError, match=rf"{inner.chroot}, where other arbiters keep their leases, lies inside it"):
        open_store(outer)
    assert session.exists("/epoch") is None
    beneath = replace(place, chroot=f"{inner.chroot}/c/d")
    with pytest.raises(StoreError, match=rf"lies inside {inner.chroot}, where other arbiters keep their leases"):
        open_store(beneath)
    assert session.exists("/a/b/c/d/epoch") is None
    open_store(replace(place, chroot=f"{place.chroot}/a/c")).acquire_epoch()
    assert open_store(inner).epoch() == 1, "what is there already stays usable"


def test_the_names_that_no_path_may_have_are_those_of_the_nodes(place: Place, session: Session, open_store: OpenStore) -> None:
    open_store(place).acquire_epoch()
    made = session.children("/")
    assert [name for name in made if name not in RESERVED and not name.startswith(RESERVED_START)] == []


def test_nobody_there_is_told_in_time(open_store: OpenStore) -> None:
    began_s = time.monotonic()
    with pytest.raises(StoreError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 "):
        open_store(Place(hosts="127.0.0.1:1", chroot="/x"), connect_s=0.5)
    assert time.monotonic() - began_s < 5


def test_a_frozen_and_a_killed_server_fail_commits_in_time_and_lose_none(tmp_path: Path) -> None:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(run_zookeeper(tmp_path))
        server = zookeeper.servers[0]
        # So long that no ping is missed before the commit gives up: kazoo would drop the connection then, which says otherwise.
        place = Place(hosts=zookeeper.hosts, chroot="/x", session_s=10.0)
        # Closed whatever happens: a client that is left looks for its server for ever, beside all later tests.
        opened = stack.enter_context(closing(ZooKeeperStore(place)))
        opened.acquire_epoch()
        opened.commit(batch(puts=(lease("1"),)))
        server.daemon.pause()
        began_s = time.monotonic()
        with pytest.raises(StoreError, match="no answer"):
            opened.commit(batch(puts=(lease("2"),), last_round=5))
        assert time.monotonic() - began_s < 4
        server.daemon.resume()
        commit_again(opened, batch(puts=(lease("2"),), last_round=5))
        commit_again(opened, batch(deletes=("2",), puts=(lease("3"),), last_round=6))
        server.daemon.kill()
        with pytest.raises(StoreError):
            opened.commit(batch(puts=(lease("4"),), last_round=7))
        server.start()
        server.wait_ready(time.monotonic() + 30)
        commit_again(opened, batch(puts=(lease("4"),), last_round=7))
        state = opened.load()
        assert [one.lease_id for one in state.leases] == ["1", "3", "4"]
        assert state.last_round == 7


def commit_again(opened: ZooKeeperStore, one: Batch) -> None:
    """As the core does: the same batch until it is taken."""
    until_s = time.monotonic() + 15
    while True:
        try:
            opened.commit(one)
        except StaleEpochError:
            raise
        except StoreError:
            assert time.monotonic() < until_s, "the store never took it"
            time.sleep(0.2)
        else:
            return


def test_a_reader_makes_nothing_and_follows_the_book_through_its_being_written_as_one(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    monkeypatch.setattr(store, "SEGMENTS_MAX", 3)
    now_s = 0.0
    reader = BookReader(session, clock_s=lambda: now_s)
    assert (reader.read().state.leases, reader.read().written_ms) == ((), 0)
    assert session.exists("/") is None
    opened = open_store(place)
    opened.acquire_epoch()
    for number in range(1, 10):
        opened.commit(batch(puts=(lease(str(number)),), last_round=number))
        shown = reader.read()
        assert len(shown.state.leases) == number - 1, "what is a second old is shown again"
        now_s += 1.0
        assert reader.read().state == opened.load()
    assert abs(reader.read().written_ms - time.time() * 1_000) < 60_000
