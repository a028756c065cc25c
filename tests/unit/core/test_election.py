"""The election of one arbiter step by step, and of three in a simulated ZooKeeper with everything going wrong."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from themis_arbiter.core.election import (
    REST_MS,
    Action,
    Changed,
    Election,
    Enter,
    Lead,
    List,
    Listed,
    ListFailed,
    Phase,
    Resigned,
    SessionDown,
    SessionGone,
    SessionUp,
    StandDown,
    TermEnded,
    Tick,
    Watch,
    Withdraw,
    sequence,
)

TIMEOUT = 6_000
UP = SessionUp("s1-", TIMEOUT)
MINE, OTHER, THIRD = "s1-0000000005", "s2-0000000003", "s3-0000000004"


def elected(now_ms: int = 1_000) -> Election:
    election = Election()
    election.step(UP, now_ms - 3)
    assert election.step(Listed((), now_ms - 3), now_ms - 2) == [Enter("s1-")]
    assert election.step(Changed(), now_ms - 1) == [List()]
    assert election.step(Listed((MINE,), now_ms - 1), now_ms) == [Lead(MINE)]
    return election


def test_the_lowest_number_leads_and_others_watch_the_one_before() -> None:
    election = Election()
    assert election.step(UP, 0) == [List()]
    assert election.step(Listed((OTHER,), 0), 1) == [Enter("s1-")]
    assert election.step(Changed(), 2) == [List()]
    assert election.step(Listed((MINE, THIRD, OTHER), 2), 3) == [Watch(THIRD)]
    assert (election.phase, election.others, election.acting_until_ms) == (Phase.WAITING, 2, 0)
    election.step(Changed(), 4)
    assert election.step(Listed((MINE, OTHER), 4), 5) == [Watch(OTHER)]
    election.step(Changed(), 6)
    assert election.step(Listed((MINE,), 6), 9) == [Lead(MINE)]
    assert election.acting_until_ms == 6 + 4_000


def test_numbers_decide_not_names() -> None:
    election = Election()
    election.step(SessionUp("a-", TIMEOUT), 0)
    election.step(Listed(("a-0000000010", "z-0000000009", "no candidate"), 0), 1)
    assert election.phase is Phase.WAITING
    assert sequence("no candidate") is sequence("0000000001") is None


def test_a_leader_that_hears_nothing_stops_before_its_session_can_end() -> None:
    election = elected(1_000)
    until_ms = election.acting_until_ms
    assert until_ms == 999 + TIMEOUT * 2 // 3
    assert election.step(SessionDown(), 1_100) == []
    assert election.due_ms == until_ms
    assert election.step(Tick(), until_ms - 1) == []
    (action,) = election.step(Tick(), until_ms)
    assert isinstance(action, StandDown)
    assert election.acting_until_ms == 0
    assert election.step(Tick(), until_ms + 1) == []


def test_each_list_prolongs_and_is_asked_for_six_times_a_timeout() -> None:
    election = elected(1_000)
    assert election.due_ms == 2_000
    assert election.step(Tick(), 2_000) == [List()]
    assert election.step(Tick(), 2_500) == []  # one at a time
    assert election.step(Listed((MINE, OTHER.replace("03", "08")), 2_000), 2_600) == []
    assert election.acting_until_ms == 2_000 + 4_000
    assert election.others == 1
    assert election.due_ms == 3_600


def test_an_answer_that_comes_late_proves_only_the_time_of_its_question() -> None:
    election = elected(1_000)
    election.step(Tick(), 2_000)
    late_ms = 2_000 + 4_000
    (action,) = election.step(Listed((MINE,), 2_000), late_ms)
    assert isinstance(action, StandDown)


@pytest.mark.parametrize(
    "happened",
    [
        SessionGone(),
        SessionUp("s9-", TIMEOUT),
        Listed((), 1_500),
        Listed(("s0-0000000001", MINE), 1_500),
        Resigned(5_000),
    ],
)
def test_what_ends_a_term_ends_it_at_once_and_the_node_stays_until_it_has_ended(happened: object) -> None:
    election = elected()
    actions = election.step(happened, 1_600)  # type: ignore[arg-type]
    assert isinstance(actions[0], StandDown)
    assert election.acting_until_ms == 0
    assert not any(isinstance(action, Withdraw) for action in election.step(Listed((MINE,), 1_650), 1_700))
    election.step(UP, 1_750)
    election.step(TermEnded(), 1_800)
    assert Withdraw(MINE) in election.step(Listed((MINE,), 1_800), 1_900)
    assert election.phase is Phase.IDLE


def test_a_connection_that_comes_back_in_time_leaves_the_term_alone() -> None:
    election = elected()
    election.step(SessionDown(), 1_100)
    assert election.step(UP, 2_000) == [List()]
    assert election.step(Listed((MINE,), 2_000), 2_100) == []
    assert election.acting_until_ms == 2_000 + 4_000


def test_after_a_term_it_rests_so_that_another_is_elected_and_enters_again() -> None:
    election = elected()
    election.step(Resigned(5_000), 2_000)
    assert election.step(TermEnded(), 2_100) == []  # the list that is under way shows the node
    assert election.step(Listed((MINE, OTHER.replace("03", "08")), 2_000), 2_200) == [Withdraw(MINE)]
    assert election.step(Listed((OTHER.replace("03", "08"),), 6_000), 6_999) == []
    assert election.step(Listed((OTHER.replace("03", "08"),), 7_000), 7_000) == [Enter("s1-")]


def test_a_term_that_could_not_begin_is_tried_again_after_a_rest() -> None:
    election = elected()
    assert election.step(TermEnded(), 1_100) == [List()]
    assert election.step(Listed((MINE,), 1_100), 1_110) == [Withdraw(MINE)]
    assert election.step(Listed((), 1_100), 1_100 + REST_MS) == [Enter("s1-")]


def test_nodes_of_lost_answers_are_found_and_removed() -> None:
    election = Election()
    election.step(UP, 0)
    second = "s1-0000000009"
    assert election.step(Listed((second, MINE), 0), 1) == [Withdraw(second), Lead(MINE)]


def test_a_list_that_fails_is_asked_for_again() -> None:
    election = Election()
    election.step(UP, 0)
    assert election.step(ListFailed(), 10) == []
    assert election.due_ms == 1_010
    assert election.step(Tick(), 1_010) == [List()]


# -- three of them in a simulated ZooKeeper

SIM_MS = 120_000
CALM_MS = 40_000  # at the end, without faults


@dataclass
class Server:
    """Sessions expire when nothing was heard from them for the timeout; requests of expired ones are refused."""

    heard_ms: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)  # name -> session
    number: int = 0

    def expire(self, now_ms: int) -> None:
        for session in [s for s, heard in self.heard_ms.items() if now_ms - heard >= TIMEOUT]:
            del self.heard_ms[session]
            self.nodes = {name: owner for name, owner in self.nodes.items() if owner != session}


@dataclass
class Peer:
    name: str
    election: Election = field(default_factory=Election)
    session: str = ""
    sessions: int = 0
    is_cut_until_ms: int = 0
    frozen_until_ms: int = 0
    leads: bool = False


class World:
    """Three arbiters, one ZooKeeper; requests and answers take time, are lost and come late."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/faults")
        self.server, self.now_ms, self.count = Server(), 0, 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.peers = [Peer(name) for name in "abc"]
        self.terms = self.faults = 0
        self.leaderless_ms = 0
        for peer in self.peers:
            self.after(self.chance.randrange(100), lambda peer=peer: self.connect(peer))  # type: ignore[misc]
            self.after(50, lambda peer=peer: self.tick(peer))  # type: ignore[misc]

    def after(self, delay_ms: int, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.queue, (self.now_ms + delay_ms, self.count, act))

    def run(self) -> None:
        while self.queue[0][0] < SIM_MS:
            at_ms, _, act = heapq.heappop(self.queue)
            self.now_ms = at_ms
            self.server.expire(at_ms)
            act()
            acting = [peer for peer in self.peers if at_ms < peer.election.acting_until_ms]
            assert len(acting) <= 1, f"{[peer.name for peer in acting]} act at {at_ms}"
            for peer in acting:
                assert peer.session in self.server.heard_ms, f"{peer.name} acts at {at_ms} without a session"

    def is_out(self, peer: Peer) -> bool:
        return self.now_ms < max(peer.is_cut_until_ms, peer.frozen_until_ms)

    def later(self, peer: Peer, act: Callable[[], None]) -> None:
        """Over the network to or from `peer`: late, or (only when cut) never."""
        if self.is_out(peer) and self.chance.random() < 0.7:
            return
        self.after(self.chance.choice((1, 5, 5, 20, 400, 2_500)) if self.now_ms < SIM_MS - CALM_MS else 5, act)

    def tell(self, peer: Peer, happened: object) -> None:
        if self.now_ms < peer.frozen_until_ms:  # it sees this when it thaws
            self.after(peer.frozen_until_ms - self.now_ms + 1, lambda: self.tell(peer, happened))
            return
        for action in peer.election.step(happened, self.now_ms):  # type: ignore[arg-type]
            self.perform(peer, action)

    def tick(self, peer: Peer) -> None:
        self.after(25, lambda: self.tick(peer))
        if self.now_ms < SIM_MS - CALM_MS and self.chance.random() < 0.002:
            self.faults += 1
            until_ms = self.now_ms + self.chance.choice((500, 3_000, 7_000, 20_000))
            if self.chance.random() < 0.5:
                peer.frozen_until_ms = until_ms
            else:
                peer.is_cut_until_ms = until_ms
                self.tell(peer, SessionDown())
        if self.now_ms < peer.frozen_until_ms:
            return
        if not self.is_out(peer) and peer.session:
            if peer.session not in self.server.heard_ms:
                peer.session = ""
                self.tell(peer, SessionGone())
                self.connect(peer)
            elif self.chance.random() < 0.3:
                self.server.heard_ms[peer.session] = self.now_ms  # a ping
                if self.chance.random() < 0.1:
                    self.tell(peer, SessionUp(peer.session, TIMEOUT))
        if peer.election.due_ms is not None and self.now_ms >= peer.election.due_ms:
            self.tell(peer, Tick())

    def connect(self, peer: Peer) -> None:
        peer.sessions += 1
        peer.session = f"{peer.name}{peer.sessions}-"
        self.server.heard_ms[peer.session] = self.now_ms
        self.tell(peer, SessionUp(peer.session, TIMEOUT))

    def perform(self, peer: Peer, action: Action) -> None:
        session, sent_ms = peer.session, self.now_ms
        match action:
            case Lead():
                self.terms += 1
                peer.leads = True
            case StandDown():
                self.after(self.chance.choice((1, 50, 900)), lambda: self.tell(peer, TermEnded()))
            case _:
                self.later(peer, lambda: self.serve(peer, session, sent_ms, action))

    def serve(self, peer: Peer, session: str, sent_ms: int, action: Action) -> None:
        """At the server."""
        if session not in self.server.heard_ms:
            return
        self.server.heard_ms[session] = self.now_ms
        match action:
            case List():
                names = tuple(self.server.nodes)
                self.later(peer, lambda: self.tell(peer, Listed(names, sent_ms)) if peer.session == session else None)
            case Enter(prefix=prefix):
                self.server.number += 1
                self.server.nodes[f"{prefix}{self.server.number:010d}"] = session
                self.later(peer, lambda: self.tell(peer, Changed()))
            case Withdraw(name=name):
                self.server.nodes.pop(name, None)
            case Watch(name=name):
                if name not in self.server.nodes:
                    self.later(peer, lambda: self.tell(peer, Changed()))
            case Lead() | StandDown():
                raise AssertionError("not ZooKeeper's")


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_two_act_at_once_and_in_the_end_one_leads(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.faults > 2
    assert world.terms > 1
    assert [peer.election.phase for peer in world.peers].count(Phase.LEADING) == 1
    assert [peer.election.phase for peer in world.peers].count(Phase.WAITING) == 2


def test_the_simulation_catches_a_leader_that_acts_for_longer_than_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("themis_arbiter.core.election.ACTING_SHARE", Fraction(3, 2))
    caught = 0
    for seed in range(4):
        try:
            World(seed).run()
        except AssertionError:
            caught += 1
    assert caught > 0
