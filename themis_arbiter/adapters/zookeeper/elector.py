"""The election's hands in ZooKeeper: core/election.py decides, this does it and tells what came of it.

    /election/c-SESSION-NUMBER    a candidate: ephemeral; its data says who it is

kazoo's own Election and Lock do not serve: they do not interrupt a leader whose session is lost, they leave nodes behind
where an answer is lost, and after a freeze kazoo says CONNECTED though the session is over. Here nothing rests on kazoo's
states: leading rests on lists of candidates that were answered, and ends by itself when none is (`why_not`, which the engine
asks before each deed). Every request is asynchronous, so that no wait delays the thread that has to notice silence.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, assert_never

from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError

from themis_arbiter.adapters.zookeeper.segments import FormatError
from themis_arbiter.adapters.zookeeper.session import Place, Refused, Session, explained
from themis_arbiter.adapters.zookeeper.store import EPOCH, Reign, decode_reign
from themis_arbiter.core.election import (
    Action,
    Changed,
    Election,
    Enter,
    Input,
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
)
from themis_arbiter.core.types import Millis

ELECTION: Final = "/election"
INPUTS_MAX: Final = 10_000  # that wait; the thread takes microseconds for each
IDLE_S: Final = 1.0  # the longest sleep
PATIENCE_MS: Final[Millis] = 5_000  # that the first connection may take before the log says that there is none
JOIN_S: Final = 1.0

_log = logging.getLogger(__name__)


def boot_ms() -> Millis:
    """Milliseconds since the machine started, its sleep included: a leader that slept must not think that no time passed."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first one is Linux's
    return time.clock_gettime_ns(clock) // 1_000_000


def candidates(session: Session) -> int:
    """How many arbiters stand at the place of `session`, who leads among them. Errors: ZooKeeperError."""
    try:
        return len(session.children(ELECTION))
    except Refused as err:
        if isinstance(err.cause, NoNodeError):
            return 0
        raise


class ZooKeeperElector:
    """Stands for election at `place` as the arbiter that `card` describes.

    `on_lead(candidate)` and `on_stand_down(reason)` are called on the elector's thread and must return at once: the first
    begins a term that rests on the node `candidate`, the second ends it. However it ends, `term_ended` has to follow.
    `on_reign` is called on kazoo's thread when another epoch has been taken, or is first seen.
    """

    def __init__(
        self,
        place: Place,
        card: dict[str, str],
        *,
        on_lead: Callable[[str], None],
        on_stand_down: Callable[[str], None],
        on_reign: Callable[[Reign], None] | None = None,
        clock: Callable[[], Millis] = boot_ms,
        connect: Callable[..., Session] = Session,
    ) -> None:
        self._card, self._clock = json.dumps(card, sort_keys=True).encode(), clock
        self._hosts: Final = place.hosts
        self._on_lead, self._on_stand_down, self._tell_reign = on_lead, on_stand_down, on_reign
        self._election = Election()
        self._inputs: queue.Queue[Input | None] = queue.Queue(INPUTS_MAX)
        self._until_ms: Millis = 0
        self._reign: Reign | None = None
        self._problem = self._unreadable = ""
        self._is_reached = self._is_stopping = False
        self._told_by_ms: Millis | None = None  # when it is told that nobody answers; None: it was, or somebody does
        self._session: Final = connect(place, on_state=self._on_state)
        self._thread = threading.Thread(target=self._run, name="themis-election", daemon=True)

    def start(self) -> None:
        """Connect and stand. That nobody answers is no error: it is tried for as long as it takes."""
        self._thread.start()
        self.open()

    def stop(self) -> None:
        """Leave the election; its node goes with the session. A term has to be over before."""
        self._is_stopping = True
        self._put(None)
        self._session.close()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)

    def term_ended(self) -> None:
        """Nothing of the term that `on_lead` began runs any more, or it could not begin."""
        self._put(TermEnded())

    def resign(self, rest_ms: Millis) -> None:
        """Do not lead for so long; a term is ended by `on_stand_down` first."""
        self._put(Resigned(rest_ms))

    def why_not(self) -> str:
        """Why this arbiter may not act as leader now; "": it may. Cheap, and right after any freeze of the process."""
        silent_ms = self._clock() - self._until_ms
        if silent_ms < 0:
            return ""
        return "ZooKeeper has not confirmed the session of this arbiter in time: another may lead by now"

    @property
    def phase(self) -> Phase:
        """Where this arbiter is in the election."""
        return self._election.phase

    @property
    def others(self) -> int:
        """How many candidates there were beside this one, when last seen."""
        return self._election.others

    @property
    def is_connected(self) -> bool:
        """Whether ZooKeeper seems to be there."""
        return self._session.is_connected

    @property
    def problem(self) -> str:
        """What ZooKeeper answers instead of a list of candidates; "" where it gives one, or nothing."""
        return self._problem

    @property
    def unreadable(self) -> str:
        """Why what ZooKeeper has of who leads cannot be read; "" where it can."""
        return self._unreadable

    @property
    def session(self) -> Session:
        """The connection that it stands with; to read through, by any thread."""
        return self._session

    def reign(self) -> Reign | None:
        """Who took the epoch last, as last read; None: nobody is known to have."""
        return self._reign

    # -- the elector's thread, or whoever drives it in virtual time

    def open(self) -> None:
        """`start` without the thread: whoever calls this calls `turn`, when `has_inputs` and when `due_ms` has come."""
        self._told_by_ms = self._clock() + PATIENCE_MS
        self._session.open()

    @property
    def has_inputs(self) -> bool:
        """Whether a turn would do something at once."""
        return not self._inputs.empty()

    @property
    def due_ms(self) -> Millis | None:
        """By the elector's clock: when a turn has to be taken though nothing happened; None: never."""
        return self._election.due_ms

    def turn(self, wait_s: float = 0.0) -> bool:
        """Take what happened next, or after `wait_s` that time has passed, and act on it; False: it is to end."""
        try:
            happened = self._inputs.get(wait_s > 0, wait_s)
        except queue.Empty:
            happened = Tick()
        if happened is None:
            return False
        if self._told_by_ms is not None and self._clock() >= self._told_by_ms:
            self._tell_unreached()
        actions = self._election.step(happened, self._clock())
        self._until_ms = self._election.acting_until_ms
        for action in actions:
            self._perform(action)
        return True

    def _run(self) -> None:
        while self.turn(self._sleep_s()):
            pass

    def _sleep_s(self) -> float:
        due_ms = self._election.due_ms
        return IDLE_S if due_ms is None else min(IDLE_S, max(0, due_ms - self._clock()) / 1_000)

    def _perform(self, action: Action) -> None:
        session = self._session
        match action:
            case Lead(name=name):
                _log.info("elected, with the node %s", name)
                self._on_lead(f"{ELECTION}/{name}")
            case StandDown(reason=reason):
                _log.warning("standing down: %s", reason)
                self._on_stand_down(reason)
            case List():
                self._list(session)
            case Enter(prefix=prefix):
                session.create_later(f"{ELECTION}/{prefix}", self._card, lambda _result: self._put(Changed()))
            case Watch(name=name):
                session.exists_later(f"{ELECTION}/{name}", self._on_watch, self._on_exists)
            case Withdraw(name=name):
                session.delete_later(f"{ELECTION}/{name}")
            case _:
                assert_never(action)

    def _list(self, session: Session) -> None:
        sent_ms = self._clock()

        def tell(result: Any) -> None:
            if isinstance(result, NoNodeError):
                session.ensure_later(ELECTION)  # the namespace is new
            if isinstance(result, Exception):
                self._note_problem(result)
                self._put(ListFailed())
            else:
                self._problem = ""
                self._put(Listed(tuple(result), sent_ms))

        session.children_later(ELECTION, tell)
        session.read_later(EPOCH, self._on_reign)

    # -- kazoo's threads

    def _note_problem(self, error: Exception) -> None:
        """Told once, until lists come again: what goes on is asked for several times a second."""
        if isinstance(error, NoNodeError | ConnectionLoss | SessionExpiredError):
            return  # everyday: a new namespace, a server that went away
        problem = type(error).__name__
        if problem != self._problem:
            self._problem = problem
            _log.error("cannot stand for election: ZooKeeper answers %s to who stands", explained(problem))

    def _on_state(self, state: str) -> None:
        is_reached = state == "CONNECTED"
        if is_reached != self._is_reached and not self._is_stopping:
            self._is_reached = is_reached
            if is_reached:
                self._told_by_ms = None
                granted_s, asked_s = self._session.granted_s, self._session.place.session_s
                _log.info("ZooKeeper is reached; it granted a session of %g s, asked for were %g s", granted_s, asked_s)
            else:
                self._tell_unreached()
        if is_reached:
            self._put(SessionUp(f"c-{self._session.session_id:x}-", int(self._session.granted_s * 1_000)))
        else:
            self._put(SessionGone() if state == "LOST" else SessionDown())

    def _tell_unreached(self) -> None:
        self._told_by_ms = None
        _log.warning("this arbiter does not reach ZooKeeper at %s; it goes on trying", self._hosts)

    def _on_watch(self, _event: Any) -> None:
        self._put(Changed())

    def _on_exists(self, result: Any) -> None:
        if result is None:  # it went before the watch was set
            self._put(Changed())

    def _on_reign(self, result: Any) -> None:
        if isinstance(result, NoNodeError):  # nobody has led here yet, or what was here is gone
            self._reign = None
        if isinstance(result, Exception):
            return
        data, stat = result
        before = self._reign
        try:
            self._reign, problem = decode_reign(bytes(data), int(stat.version)), ""
        except FormatError as error:
            self._reign, problem = None, f"who leads cannot be read: {error}"
        if problem and problem != self._unreadable:  # once: it is read several times a second
            _log.warning("%s", problem)
        self._unreadable = problem
        if self._tell_reign is not None and self._reign is not None and self._reign != before:
            self._tell_reign(self._reign)

    def _put(self, happened: Input | None) -> None:
        try:
            self._inputs.put_nowait(happened)
        except queue.Full:  # the thread is stuck; then nothing is proved any more, and the lead ends by itself
            _log.error("the election's thread does not keep up")
