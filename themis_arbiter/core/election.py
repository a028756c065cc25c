"""Who leads, decided from lists of candidates. One instance is one arbiter's view; its shell talks to ZooKeeper.

Candidates are ephemeral nodes with a rising number; the lowest one leads. The shell lists them every `list_every_ms`, and at
once when the one before ours is gone. Each list is also the proof that leading rests on: it shows our node, so ZooKeeper heard
from our session after the list was asked for, and cannot let the session expire before that time + timeout. A leader acts until
ACTING_SHARE of that, and no longer unless a newer list came: it has stopped before another can be elected.

    IDLE --listed, none of ours--> (Enter) --listed--> WAITING --listed, ours is first--> LEADING
    LEADING --no proof in time | node or session gone | asked--> STANDING_DOWN --TermEnded--> IDLE (rests a while)

Everything is decided on a list as a whole, so nothing has to be remembered of requests whose answers were lost: a node that was
made without our knowing is in the next list, under the session's prefix. Times are of a clock that no one sets.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from themis_arbiter.core.types import Millis

# ZooKeeper's own view of a session may be half a tick old where a follower serves it, and a tick is at most half the timeout.
ACTING_SHARE: Final = Fraction(2, 3)
LISTS_A_TIMEOUT: Final = 6
LIST_EVERY_MS_MIN: Final = 50
REST_MS: Final = 1_000  # after a term that ended by itself: time for another to be elected
SEQUENCE_DIGITS: Final = 10


class Phase(StrEnum):
    """Where this arbiter is."""

    IDLE = "idle"  # no session, no node, or resting
    WAITING = "waiting"  # another is before us
    LEADING = "leading"
    STANDING_DOWN = "standing_down"  # its term is being ended


@dataclass(frozen=True, slots=True)
class SessionUp:
    """There is a connection. `prefix` begins the names of this session's nodes; `timeout_ms` is what the server granted."""

    prefix: str
    timeout_ms: Millis


@dataclass(frozen=True, slots=True)
class SessionDown:
    """The connection is lost; the session may go on."""


@dataclass(frozen=True, slots=True)
class SessionGone:
    """The session has expired or was ended."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The candidates' names, in any order, asked for at `sent_ms`."""

    names: tuple[str, ...]
    sent_ms: Millis


@dataclass(frozen=True, slots=True)
class ListFailed:
    """No list came."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Our node was made, or the one before it is gone."""


@dataclass(frozen=True, slots=True)
class TermEnded:
    """Nothing of the term runs any more (or it could not begin)."""


@dataclass(frozen=True, slots=True)
class Resigned:
    """Somebody asked this arbiter not to lead for `rest_ms`."""

    rest_ms: Millis


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Input: TypeAlias = SessionUp | SessionDown | SessionGone | Listed | ListFailed | Changed | TermEnded | Resigned | Tick


@dataclass(frozen=True, slots=True)
class List:
    """Ask for the candidates; answer with Listed or ListFailed."""


@dataclass(frozen=True, slots=True)
class Enter:
    """Make a node under `prefix`; answer with Changed, or with nothing where that failed."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Answer with Changed when this node is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete a node of ours; nothing is to be answered."""

    name: str


@dataclass(frozen=True, slots=True)
class Lead:
    """Begin a term; `name` is the node that it rests on. Answer with TermEnded when it is over, whatever ended it."""

    name: str


@dataclass(frozen=True, slots=True)
class StandDown:
    """End the term."""

    reason: str


Action: TypeAlias = List | Enter | Watch | Withdraw | Lead | StandDown


def sequence(name: str) -> int | None:
    """The number that ZooKeeper put at the end of a candidate's name; None: no candidate's name."""
    digits = name[-SEQUENCE_DIGITS:]
    return int(digits) if len(name) > SEQUENCE_DIGITS and digits.isascii() and digits.isdigit() else None


class Election:
    """The state of one arbiter. `step` takes inputs in order; `due_ms` says when it wants a Tick."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.others = 0  # candidates beside ours, as last listed
        self._prefix = ""  # of the session's nodes; "": no session
        self._is_connected = False
        self._timeout_ms: Millis = 0
        self._proved_ms: Millis = 0  # when the list was asked for that last showed our node as the first
        self._listing = False
        self._list_ms: Millis = 0  # when the next list is due
        self._rest_until_ms: Millis = 0
        self._withdrawn: set[str] = set()  # of this session: a list that is late still shows them
        self._actions: list[Action] = []

    @property
    def acting_until_ms(self) -> Millis:
        """The time until which this arbiter may act as leader; 0: it may not."""
        return self._proved_ms + int(self._timeout_ms * ACTING_SHARE) if self.phase is Phase.LEADING else 0

    @property
    def due_ms(self) -> Millis | None:
        """When the next Tick is wanted; None: nothing waits for time."""
        due = [self._list_ms] if self._is_connected and not self._listing else []
        if self.phase is Phase.LEADING:
            due.append(self.acting_until_ms)
        return min(due, default=None)

    def step(self, happened: Input, now_ms: Millis) -> list[Action]:
        """What is to be done, in this order."""
        self._actions = []
        match happened:
            case SessionUp(prefix=prefix, timeout_ms=timeout_ms):
                self._on_session(prefix, timeout_ms, now_ms)
            case SessionDown():
                self._is_connected = self._listing = False
            case SessionGone():
                self._on_session_gone()
            case Listed() | ListFailed():
                self._listing = False
                self._list_ms = now_ms + self._list_every_ms()
                if isinstance(happened, Listed) and self._is_connected:
                    self._on_list(happened.names, happened.sent_ms, now_ms)
            case Changed():
                self._list_ms = now_ms
            case TermEnded():
                self._on_term_ended(now_ms)
            case Resigned(rest_ms=rest_ms):
                self._rest_until_ms = now_ms + rest_ms
                self._stand_down("it was asked to")
                self._list_ms = now_ms
            case Tick():
                pass
        self._on_time(now_ms)
        return self._actions

    def _on_session(self, prefix: str, timeout_ms: Millis, now_ms: Millis) -> None:
        if self._prefix and prefix != self._prefix:
            self._stand_down("its ZooKeeper session was replaced by another")
        if prefix != self._prefix:
            self._withdrawn.clear()
            if self.phase is Phase.WAITING:
                self.phase = Phase.IDLE
        self._prefix, self._timeout_ms = prefix, timeout_ms
        self._is_connected, self._listing = True, False
        self._list_ms = now_ms

    def _on_session_gone(self) -> None:
        self._is_connected = self._listing = False
        self._prefix = ""
        self._stand_down("its ZooKeeper session is over")
        if self.phase is Phase.WAITING:
            self.phase = Phase.IDLE

    def _on_term_ended(self, now_ms: Millis) -> None:
        if self.phase in (Phase.LEADING, Phase.STANDING_DOWN):
            self.phase = Phase.IDLE
            self._rest_until_ms = max(self._rest_until_ms, now_ms + REST_MS)
            self._list_ms = now_ms

    def _on_list(self, names: tuple[str, ...], sent_ms: Millis, now_ms: Millis) -> None:
        in_order = sorted((number, name) for name in names if (number := sequence(name)) is not None)
        made = [name for _, name in in_order if name.startswith(self._prefix)]
        self.others = len(in_order) - len(made)
        ours = [name for name in made if name not in self._withdrawn]
        self._withdraw([name for name in made if name in self._withdrawn])  # again: the request may have been lost
        if self.phase is Phase.STANDING_DOWN:
            return  # the node stays until the term has ended: whoever is next would only have to fence us
        if now_ms < self._rest_until_ms:
            self._withdraw(ours)
            self.phase = Phase.IDLE
            return
        if not ours:
            if not self._stand_down("its candidate's node is gone"):
                self.phase = Phase.IDLE
                self._actions.append(Enter(self._prefix))
            return
        self._withdraw(ours[1:])  # made by requests whose answers were lost
        place = [name for _, name in in_order].index(ours[0])
        if place > 0:
            if not self._stand_down("another candidate is before it"):
                self.phase = Phase.WAITING
                self._actions.append(Watch(in_order[place - 1][1]))
            return
        self._proved_ms = max(self._proved_ms, sent_ms)
        if self.phase is not Phase.LEADING:
            self.phase = Phase.LEADING
            self._proved_ms = sent_ms
            self._actions.append(Lead(ours[0]))

    def _withdraw(self, names: list[str]) -> None:
        self._withdrawn.update(names)
        self._actions += [Withdraw(name) for name in names]

    def _on_time(self, now_ms: Millis) -> None:
        if self.phase is Phase.LEADING and now_ms >= self.acting_until_ms:
            silent_ms = now_ms - self._proved_ms
            self._stand_down(f"ZooKeeper has not confirmed its session for {silent_ms} ms, and may give the lead to another")
        if self._is_connected and not self._listing and now_ms >= self._list_ms:
            self._listing = True
            self._actions.append(List())

    def _stand_down(self, reason: str) -> bool:
        """End the term, where there is one; whether there was."""
        if self.phase is not Phase.LEADING:
            return False
        self.phase = Phase.STANDING_DOWN
        self._actions.append(StandDown(reason))
        return True

    def _list_every_ms(self) -> Millis:
        return max(LIST_EVERY_MS_MIN, self._timeout_ms // LISTS_A_TIMEOUT)
