"""The election on a real ZooKeeper whose servers freeze, die and come back, and whose clients do."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.support.zookeeper_clients import Connect, OpenStore
from tests.support.zookeeper_server import ZooKeeper, eventually, run_zookeeper
from themis_arbiter.adapters.zookeeper.elector import ELECTION, ZooKeeperElector
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import EPOCH, Reign
from themis_arbiter.core.election import Phase

pytest_plugins = ["tests.support.zookeeper"]
pytestmark = pytest.mark.zookeeper

SESSION_S: Final = 2.0
SOON_S: Final = 1.0  # an orderly hand-over, on a busy machine
FAILOVER_S: Final = 3 * SESSION_S


class Candidate:
    """An arbiter without its arbiter: it only counts its terms, and ends each as soon as it is told to."""

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.led: list[str] = []
        self.reasons: list[str] = []
        self.elector = ZooKeeperElector(place, {"name": name}, on_lead=self.led.append, on_stand_down=self._stand_down)
        self.elector.start()

    def _stand_down(self, reason: str) -> None:
        self.reasons.append(reason)
        self.elector.term_ended()

    @property
    def acts(self) -> bool:
        return self.elector.why_not() == ""


@pytest.fixture
def place(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Place:
    return Place(hosts=zookeeper.hosts, chroot=f"/{request.node.name}", session_s=SESSION_S)


@pytest.fixture
def enter() -> Iterator[Callable[[Place, str], Candidate]]:
    with ExitStack() as stack:

        def make(place: Place, name: str) -> Candidate:
            candidate = Candidate(place, name)
            stack.callback(candidate.elector.stop)
            return candidate

        yield make


def the_one_that_acts(candidates: list[Candidate]) -> Candidate:
    acting = [one for one in candidates if one.acts]
    assert len(acting) <= 1, [one.name for one in acting]
    return acting[0] if acting else candidates[0]


def one_acts(candidates: list[Candidate]) -> bool:
    return the_one_that_acts(candidates).acts


def test_one_leads_the_next_follows_at_once_and_resigning_hands_over(
    place: Place, enter: Callable[[Place, str], Candidate]
) -> None:
    first = enter(place, "first")
    eventually(lambda: first.acts, FAILOVER_S, "the first leads")
    second = enter(place, "second")
    eventually(lambda: second.elector.phase is Phase.WAITING, FAILOVER_S, "the second waits")
    eventually(lambda: first.elector.others == 1, FAILOVER_S, "the first knows of the second")
    first.elector.resign(3_000)
    eventually(lambda: second.acts, SOON_S, "the second leads")
    assert not first.acts
    assert first.reasons == ["it was asked to"]
    eventually(lambda: first.elector.phase is Phase.WAITING, FAILOVER_S + 3, "the first stands again")
    second.elector.stop()
    eventually(lambda: first.acts, SOON_S, "the first leads again")
    assert len(first.led) == 2


def test_a_leaders_epoch_rests_on_its_candidate_and_all_see_who_leads(
    place: Place, enter: Callable[[Place, str], Candidate], open_store: OpenStore
) -> None:
    leader, standby = enter(place, "leader"), enter(place, "standby")
    eventually(lambda: one_acts([leader, standby]), FAILOVER_S, "one leads")
    leader, standby = (leader, standby) if leader.acts else (standby, leader)
    store = open_store(place, leader={"name": leader.name}, candidate=lambda: leader.led[0])
    assert store.acquire_epoch() == 1
    eventually(lambda: standby.elector.reign() is not None, FAILOVER_S, "the epoch is read")
    eventually(lambda: getattr(standby.elector.reign(), "leader", {}) == {"name": leader.name}, FAILOVER_S, "its leader too")


def test_a_candidate_whose_node_is_deleted_stands_down_and_stands_again(
    place: Place, enter: Callable[[Place, str], Candidate], connect: Connect
) -> None:
    candidate = enter(place, "only")
    eventually(lambda: candidate.acts, FAILOVER_S, "it leads")
    admin = connect(place)
    admin.delete(candidate.led[0])
    eventually(lambda: len(candidate.led) == 2, FAILOVER_S, "it leads again")
    assert candidate.reasons == ["its candidate's node is gone"]
    assert admin.children(ELECTION) == [candidate.led[1].rpartition("/")[2]]


def test_an_unreachable_zookeeper_ends_the_lead_before_the_session_and_the_session_outlives_a_hiccup(
    tmp_path: Path, enter: Callable[[Place, str], Candidate], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with run_zookeeper(tmp_path) as zookeeper:
        server = zookeeper.servers[0].daemon
        candidate = enter(Place(hosts=zookeeper.hosts, chroot="/x", session_s=4.0), "only")
        eventually(lambda: candidate.acts, 12, "it leads")
        server.pause()  # a hiccup: seven tenths of a second of four
        time.sleep(0.7)
        server.resume()
        time.sleep(1.0)
        assert candidate.acts
        assert candidate.reasons == []
        server.pause()
        paused_s = time.monotonic()
        eventually(lambda: not candidate.acts, 4.0, "it stops acting before its session can end")
        eventually(lambda: candidate.reasons != [], 1.0, "it stands down")
        assert time.monotonic() - paused_s < 4.0
        assert "not confirmed" in candidate.reasons[0]
        eventually(lambda: "this arbiter does not reach ZooKeeper" in caplog.text, 10.0, "the log says why")
        server.resume()
        eventually(lambda: candidate.acts, 15, "it leads again")
    assert caplog.text.count("ZooKeeper is reached") == 2


def test_a_server_that_dies_again_and_again_leaves_one_leader_and_no_ghosts(
    tmp_path: Path, enter: Callable[[Place, str], Candidate], connect: Connect
) -> None:
    with run_zookeeper(tmp_path) as zookeeper:
        server = zookeeper.servers[0]
        place = Place(hosts=zookeeper.hosts, chroot="/x", session_s=SESSION_S)
        candidates = [enter(place, name) for name in "abc"]
        eventually(lambda: one_acts(candidates), FAILOVER_S, "one leads")
        stop = threading.Event()
        both: list[str] = []

        def watch() -> None:
            while not stop.wait(0.02):
                acting = [one.name for one in candidates if one.acts]
                if len(acting) > 1:
                    both.extend(acting)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for round_no in range(3):
            time.sleep(0.2 * round_no)
            server.daemon.kill()
            time.sleep(0.5 + SESSION_S * (round_no % 2))
            server.start()
            server.wait_ready(time.monotonic() + 30)
            eventually(lambda: one_acts(candidates), 3 * FAILOVER_S, "one leads again")
        stop.set()
        watcher.join()
        assert both == []
        admin = connect(place)
        eventually(lambda: len(admin.children(ELECTION)) == 3, 3 * FAILOVER_S, "nodes of live candidates alone")


def test_candidates_come_back_to_a_server_that_lost_its_state(
    tmp_path: Path, enter: Callable[[Place, str], Candidate], connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with run_zookeeper(tmp_path) as zookeeper:
        server = zookeeper.servers[0]
        place = Place(hosts=zookeeper.hosts, chroot="/x", session_s=SESSION_S)
        candidates = [enter(place, name) for name in "abc"]
        eventually(lambda: one_acts(candidates), FAILOVER_S, "one leads")
        eventually(lambda: all(one.elector.others == 2 for one in candidates), FAILOVER_S, "all stand")
        server.daemon.kill()
        server.lose_state()
        server.start()
        server.wait_ready(time.monotonic() + 30)
        eventually(lambda: one_acts(candidates), 3 * FAILOVER_S, "one leads on the empty server")
        eventually(lambda: all(one.elector.is_connected for one in candidates), 2 * FAILOVER_S, "all are back")
        admin = connect(place)
        eventually(lambda: len(admin.children(ELECTION)) == 3, FAILOVER_S, "each with one node, of its new session")
        assert all(one.elector.phase in {Phase.LEADING, Phase.WAITING} for one in candidates)
    assert caplog.text.count("may have lost its state") == 3


def test_candidates_come_back_to_a_server_that_was_restored_from_a_backup(
    tmp_path: Path, enter: Callable[[Place, str], Candidate], connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with run_zookeeper(tmp_path) as zookeeper:
        server, kept = zookeeper.servers[0], tmp_path / "kept"
        place = Place(hosts=zookeeper.hosts, chroot="/x", session_s=SESSION_S)
        candidates = [enter(place, name) for name in "ab"]
        eventually(lambda: one_acts(candidates), FAILOVER_S, "one leads")
        server.daemon.kill()
        server.keep_state(kept)  # with their sessions and nodes in it
        server.start()
        server.wait_ready(time.monotonic() + 30)
        eventually(lambda: one_acts(candidates), 3 * FAILOVER_S, "one leads again")
        admin = connect(place)
        for number in range(20):
            admin.create(f"/later-{number}", b"")
        time.sleep(SESSION_S / 2)  # all have listed since, and so seen the latest transaction
        server.daemon.kill()
        server.lose_state(kept)
        server.start()
        server.wait_ready(time.monotonic() + 30)
        eventually(lambda: one_acts(candidates), 3 * FAILOVER_S, "one leads on what was restored")
        eventually(lambda: all(one.elector.is_connected for one in candidates), 2 * FAILOVER_S, "both are back")
        again = connect(place)
        eventually(lambda: len(again.children(ELECTION)) == 2, 2 * FAILOVER_S, "nodes of live candidates alone")
        assert again.exists("/later-19") is None
        eventually(lambda: one_acts(candidates), FAILOVER_S, "one leads, still or again")
    assert "may have lost its state, or come back from a backup" in caplog.text


def test_the_granted_timeout_counts_not_the_one_asked_for(tmp_path: Path, enter: Callable[[Place, str], Candidate]) -> None:
    with run_zookeeper(tmp_path, extra="maxSessionTimeout=1500") as zookeeper:
        candidate = enter(Place(hosts=zookeeper.hosts, chroot="/x", session_s=30.0), "only")
        eventually(lambda: candidate.acts, FAILOVER_S, "it leads")
        zookeeper.servers[0].daemon.pause()
        eventually(lambda: not candidate.acts, 1.5, "it stops in time")
        zookeeper.servers[0].daemon.resume()


def test_contenders_that_come_and_go_while_zookeeper_hesitates_leave_no_ghosts(
    tmp_path: Path, enter: Callable[[Place, str], Candidate], connect: Connect
) -> None:
    with run_zookeeper(tmp_path) as zookeeper:
        place, server = Place(hosts=zookeeper.hosts, chroot="/x", session_s=SESSION_S), zookeeper.servers[0].daemon
        stays = enter(place, "stays")
        eventually(lambda: stays.acts, FAILOVER_S, "it leads")
        for number in range(4):
            passing = enter(place, f"passing-{number}")
            time.sleep(0.05 * number)
            server.pause()
            time.sleep(0.7 * SESSION_S)
            if number % 2:
                passing.elector.stop()
            server.resume()
            time.sleep(0.2)
            passing.elector.stop()
        eventually(lambda: one_acts([stays]), 3 * FAILOVER_S, "it leads, still or again")
        admin = connect(place)
        eventually(lambda: len(admin.children(ELECTION)) == 1, 3 * FAILOVER_S, "its own node alone is left")


def test_a_lost_server_costs_no_lead_and_a_lost_quorum_does(tmp_path: Path, enter: Callable[[Place, str], Candidate]) -> None:
    with run_zookeeper(tmp_path, servers=3) as zookeeper:
        candidates = [enter(Place(hosts=zookeeper.hosts, chroot="/x", session_s=6.0), name) for name in "ab"]
        eventually(lambda: one_acts(candidates), 18, "one leads")
        leader = the_one_that_acts(candidates)
        follower = next(one for one in zookeeper.servers if one.role == "follower")
        follower.daemon.kill()
        until_s = time.monotonic() + 6
        while time.monotonic() < until_s:
            assert leader.acts
            time.sleep(0.1)
        other = next(one for one in zookeeper.servers if one is not follower and one.role == "follower")
        other.daemon.kill()
        eventually(lambda: not leader.acts, 6.0, "without a quorum nothing is proved")
        assert not any(one.acts for one in candidates)
        for server in (follower, other):
            server.start()
        eventually(lambda: one_acts(candidates), 40, "with a quorum one leads again")


def test_a_candidate_with_other_credentials_says_why_it_is_none(place: Place, enter: Callable[[Place, str], Candidate]) -> None:
    owner = enter(replace(place, credentials=("themis", "right")), "owner")
    eventually(lambda: owner.acts, FAILOVER_S, "it leads")
    stranger = enter(replace(place, credentials=("themis", "wrong")), "stranger")
    eventually(lambda: stranger.elector.problem == "NoAuthError", FAILOVER_S, "it says what is wrong")
    assert owner.acts
    assert not stranger.acts
    assert owner.elector.problem == ""


def test_a_record_of_a_newer_version_is_told_once(
    place: Place, enter: Callable[[Place, str], Candidate], connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    admin = connect(place)
    admin.ensure("/")
    admin.create(EPOCH, b'{"format": 9, "readable_by": 9}')
    candidate = enter(place, "older")
    eventually(lambda: "newer version" in candidate.elector.unreadable, FAILOVER_S, "it says what is wrong")
    time.sleep(SESSION_S)  # several lists
    assert caplog.text.count("who leads cannot be read") == 1
    admin.delete(EPOCH)
    admin.create(EPOCH, Reign(1, "a cluster", {}, 0).encode())
    eventually(lambda: candidate.elector.unreadable == "", FAILOVER_S, "it reads again")
