"""`themis serve` that freezes itself at the worst moment: before its last look, with a grant and a write both to be sent next.

    python -m tests.support.worst_moment FOLDER [blind]

It does so when FOLDER/armed is there: the next grant waits for the next write, and then it stops itself. FOLDER/deeds tells of
both, and of what it wrote to ZooKeeper and sent to a bridge since it woke. Its store's own connection outlives the freeze,
so that no lost session can stand for the refusal. `blind` takes away all that would keep it from acting then: the look at its
right to act before each deed, the election's word that it is over, the look at the store's epoch every two seconds. What is
left are the two fences.
"""

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from themis_arbiter.adapters.grpc import cluster
from themis_arbiter.adapters.zookeeper.elector import ZooKeeperElector
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.main import main
from themis_arbiter.core.effects import Effect, GrantGpus, PersistLeases
from themis_arbiter.core.election import StandDown
from themis_arbiter.core.events import Batch
from themis_arbiter.engine import driver, loop
from themis_arbiter.ports import StoreError

STORE_SESSION_S: Final = 120.0
NEVER_MS: Final = 10**12
WRITE_S_MAX: Final = 30.0
GRANT: Final = "a grant waits"  # lines of FOLDER/deeds
FROZEN: Final = "frozen"


def put(owner: Any, name: str, value: Any) -> None:
    """In place of what the program has there."""
    assert hasattr(owner, name), name
    setattr(owner, name, value)


class Deeds:
    """What it does, a line each; one write each, so that threads cannot mix them."""

    def __init__(self, folder: Path) -> None:
        self._armed, self._path = folder / "armed", folder / "deeds"
        self._is_freezing = self._has_woken = False
        self._has_write, self._go = threading.Event(), threading.Event()

    def note(self, text: str) -> None:
        """Of what follows its waking."""
        if self._has_woken:
            self._write(text)

    def at_grant(self) -> None:
        """On the stream's thread. Freezes where it is armed, once."""
        if not self._armed.exists():
            return
        self._armed.unlink()
        self._is_freezing = True
        self._write(GRANT)
        assert self._has_write.wait(WRITE_S_MAX), "no write came"
        self._has_woken = True  # before: the other thread may run first when it wakes
        self._write(FROZEN)
        # At this thread: one sent to the process may be taken by another, and this one go on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        self._go.set()

    def at_write(self) -> None:
        """On the engine's thread. Waits for the end of the freeze that begins."""
        if self._is_freezing:
            self._has_write.set()
            self._go.wait()

    def _write(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(text + "\n")


def freeze_before_the_last_look(deeds: Deeds) -> None:
    take, perform = cluster._Stream.take, driver.Driver._perform

    def taking(stream: cluster._Stream, timeout_s: float) -> Any:
        what = take(stream, timeout_s)
        if isinstance(what, GrantGpus):
            deeds.at_grant()
        return what

    def performing(acting: driver.Driver[Any], effect: Effect) -> Any:
        if isinstance(effect, PersistLeases):
            deeds.at_write()
        return perform(acting, effect)

    put(cluster._Stream, "take", taking)
    put(driver.Driver, "_perform", performing)


def note_messages(deeds: Deeds) -> None:
    next_message = cluster.ClusterService._next_message

    def noting(service: cluster.ClusterService, stream: cluster._Stream) -> Any:
        message = next_message(service, stream)
        if message is not None:
            deeds.note(f"message of epoch {message.leases.epoch} with {len(message.leases.leases)} leases")
        return message

    put(cluster.ClusterService, "_next_message", noting)


def note_writes(deeds: Deeds) -> None:
    commit, open_store = ZooKeeperStore.commit, ZooKeeperStore.__init__

    def opening(store: ZooKeeperStore, place: Place, **others: Any) -> None:
        open_store(store, replace(place, session_s=STORE_SESSION_S), **others)

    def noting(store: ZooKeeperStore, batch: Batch) -> None:
        try:
            commit(store, batch)
        except StoreError as err:
            deeds.note(f"write of epoch {batch.epoch}: {type(err).__name__}: {err}")
            raise
        deeds.note(f"write of epoch {batch.epoch}: taken")

    put(ZooKeeperStore, "__init__", opening)
    put(ZooKeeperStore, "commit", noting)


def make_blind() -> None:
    perform: Callable[[ZooKeeperElector, Any], None] = ZooKeeperElector._perform

    def performing(elector: ZooKeeperElector, action: Any) -> None:
        if not isinstance(action, StandDown):
            perform(elector, action)

    put(ZooKeeperElector, "_perform", performing)
    put(ZooKeeperElector, "why_not", lambda _elector: "")
    put(loop, "FENCE_CHECK_MS", NEVER_MS)


if __name__ == "__main__":
    made = Deeds(Path(sys.argv[1]))
    freeze_before_the_last_look(made)
    note_messages(made)
    note_writes(made)
    if "blind" in sys.argv[2:]:
        make_blind()
    sys.argv = ["themis", "serve"]
    main()
