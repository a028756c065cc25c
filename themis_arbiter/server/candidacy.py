"""An arbiter among several: stands for election in ZooKeeper, opens the store of the term it won, and knows who leads else."""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from themis_arbiter.adapters.zookeeper.elector import ZooKeeperElector
from themis_arbiter.adapters.zookeeper.premises import CLUSTER_LENGTH_MAX, cluster_of, keep_for, why_another
from themis_arbiter.adapters.zookeeper.reading import BookReader, Stored
from themis_arbiter.adapters.zookeeper.segments import FormatError
from themis_arbiter.adapters.zookeeper.session import Place, Session, ZooKeeperError, explained
from themis_arbiter.adapters.zookeeper.store import Reign, ZooKeeperStore
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.ports import LeaseStore, StoreError
from themis_arbiter.server.alike import differences
from themis_arbiter.server.config import ZooKeeperConfig
from themis_arbiter.server.values import Address, StoreAddress

PROBLEM_LENGTH_MAX: Final = 300  # of an error's text, to whoever asks
STEP_DOWN_REST_MS: Final[Millis] = 5_000  # that an arbiter which stepped down leaves to the others
OTHERS_REST_MS: Final[Millis] = 10_000  # that one leaves to them which may not lead, because the place is another cluster's


def place_of(store: StoreAddress, config: ZooKeeperConfig) -> Place:
    """Where in which ZooKeeper, and as whom."""
    who = config.credentials
    return Place(
        hosts=store.hosts,
        chroot=store.chroot,
        session_s=config.session_ms / 1_000,
        credentials=(who.user, who.password) if who is not None else None,
    )


def callable_from_elsewhere(address: Address) -> str:
    """`address` as others can call it: one that listens everywhere is called by this machine's name."""
    return str(Address(socket.gethostname(), address.port) if address.is_everywhere else address)


_log = logging.getLogger(__name__)


class Candidacy:
    """Made before the ports are bound; `start` needs to know them."""

    def __init__(self, place: Place, told: Mapping[str, str] | None = None) -> None:
        """`told` is what others may know of how this arbiter decides (see alike.py)."""
        self._place, self._told = place, dict(told or {})
        self._card: dict[str, str] = {}
        self._unlike: tuple[str, ...] = ()  # as logged last
        self._elector: ZooKeeperElector | None = None
        self._reader: BookReader | None = None
        self._failed_term = ""
        self._cluster = ""  # YARN's id of the cluster whose bridge this arbiter took last, or, before that, heard last
        self._served = ""  # the one that the place serves, as read when the term began or a bridge came
        self._foreign = ""  # why this arbiter may not lead there

    def start(
        self,
        grpc_address: Address,
        http_address: Address,
        *,
        on_lead: Callable[[str], None],
        on_stand_down: Callable[[str], None],
    ) -> None:
        """Stand for election; see ZooKeeperElector for the callbacks."""
        self._card = {
            "name": f"{socket.gethostname()}:{os.getpid()}",
            "grpc": callable_from_elsewhere(grpc_address),
            "http": callable_from_elsewhere(http_address),
            **self._told,
        }
        self._elector = ZooKeeperElector(
            self._place, self._card, on_lead=on_lead, on_stand_down=on_stand_down, on_reign=self._compare_with
        )
        self._reader = BookReader(self._elector.session)
        self._elector.start()

    def stop(self) -> None:
        """Leave the election. A term has to be over before."""
        if self._elector is not None:
            self._elector.stop()

    def open_store(self, candidate: str) -> LeaseStore:
        """The store for a term that rests on the node `candidate`. Errors: StoreError, also where it is another cluster's."""
        assert self._elector is not None, "whoever was elected has an elector"
        try:
            self._compare(self._elector.session, cluster_of(self._elector.session))
        except (ZooKeeperError, FormatError) as err:
            raise StoreError(f"{self._place}: {err}") from err
        if self._foreign:
            self._elector.resign(OTHERS_REST_MS)
            raise StoreError(self._foreign)
        return ZooKeeperStore(self._place, leader=self._card, candidate=lambda: candidate)

    def stored(self) -> Stored:
        """What whoever leads, or led last, has stored; for people to look at. Errors: StoreError."""
        if self._reader is None:
            raise StoreError("this arbiter has not started yet")
        return self._reader.read()

    def term_ended(self) -> None:
        """Nothing of the term runs any more, or it could not begin."""
        if self._elector is not None:
            self._elector.term_ended()

    def serve(self, cluster: str) -> str:
        """Why a bridge is not taken that says YARN's id of its cluster, "": because of that it need not be refused.

        The first one that a leader takes says whose the place is from then on. Who leads for another cluster stands down.
        """
        elector, cluster = self._elector, cluster[:CLUSTER_LENGTH_MAX]
        if elector is None or not cluster or cluster == self._cluster == self._served:
            return ""
        is_leading = not elector.why_not()
        if not is_leading and not elector.is_connected:  # it takes no bridge, and says why not
            return ""
        try:
            served = keep_for(elector.session, cluster) if is_leading else cluster_of(elector.session)
        except (ZooKeeperError, FormatError) as err:
            return f"whose {self._place} is cannot be read: {err}"
        if self._cluster and served == self._cluster != cluster:  # a bridge that has come to the wrong arbiter
            return why_another(elector.session, served, cluster)
        self._cluster = cluster
        self._compare(elector.session, served)
        if self._foreign and is_leading:
            elector.resign(OTHERS_REST_MS)
        return self._foreign

    def _compare(self, session: Session, served: str) -> None:
        before, self._served = self._foreign, served
        self._foreign = why_another(session, served, self._cluster)
        if self._foreign and self._foreign != before:
            _log.error("this arbiter may not lead: %s", self._foreign)

    def differences(self) -> tuple[str, ...]:
        """In what version and settings this arbiter is not like the one that leads, or led last."""
        reign = self._elector.reign() if self._elector is not None else None
        return self._unlike_in(reign) if reign is not None else ()

    def _unlike_in(self, reign: Reign) -> tuple[str, ...]:
        if not self._told or reign.leader == self._card:
            return ()
        return differences(self._told, reign.leader, reign.leader.get("grpc", "the leader"))

    def _compare_with(self, reign: Reign) -> None:
        """On kazoo's thread: another leads, or has led."""
        unlike = self._unlike_in(reign)
        if unlike and unlike != self._unlike:
            _log.warning(
                "this arbiter would decide otherwise than the one that took epoch %d: %s", reign.epoch, "; ".join(unlike)
            )
        self._unlike = unlike

    def note_begin(self, problem: str = "") -> None:
        """Whether the term that was won could begin: "" where it did, else what was in its way."""
        self._failed_term = problem

    def why_not(self) -> str:
        """Why this arbiter may not act as leader now, "" where it may."""
        return self._elector.why_not() if self._elector is not None else "this arbiter has not started yet"

    def step_down(self) -> str:
        """Let another lead; why not, "" where it is under way."""
        elector = self._elector
        if elector is None or elector.others == 0:
            return "no other arbiter stands by: nobody would lead; to stop this one, end its process"
        elector.resign(STEP_DOWN_REST_MS)
        return ""

    def standing_by(self) -> NotLeading:
        """What to tell whoever asks this arbiter to act."""
        elector = self._elector
        reign = elector.reign() if elector is not None else None
        is_reached = elector is not None and elector.is_connected
        epoch = reign.epoch if reign is not None else 0
        leader = reign.leader.get("grpc", "") if reign is not None and reign.leader != self._card else ""
        if not is_reached:
            text = f"this arbiter does not lead: it does not reach ZooKeeper at {self._place.hosts}"
            return NotLeading(text, leader=leader, epoch=epoch)
        text = f"{leader} leads" if leader else "nobody is known to lead yet"
        if elector is not None and elector.problem:
            text += f"; ZooKeeper answers it {explained(elector.problem)}"
        if elector is not None and elector.unreadable:
            text += f"; {elector.unreadable}"
        unlike = self.differences()
        if unlike:
            text += f"; this arbiter is not like it: {', '.join(unlike)[:PROBLEM_LENGTH_MAX]}"
        if self._foreign:
            text += f"; this arbiter may not: {self._foreign}"
        elif self._failed_term:
            text += f"; when it was elected last its term could not begin: {self._failed_term[:PROBLEM_LENGTH_MAX]}"
        return NotLeading(f"this arbiter stands by: {text}", leader=leader, epoch=epoch)
