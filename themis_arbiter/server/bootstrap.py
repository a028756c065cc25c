"""Composition root: builds the arbiter's process from its settings, starts it, and ends it within seconds.

Everything that listens is bound before leadership is taken, so that a second arbiter on the same ports fails before it
fences the first one off the store.
"""

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from themis_arbiter import __version__
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.grpc.admin import About
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.audit import AuditTrail
from themis_arbiter.adapters.grpc.cluster import ClusterService
from themis_arbiter.adapters.grpc.server import GrpcServer
from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.core.events import EpochAcquired, Event
from themis_arbiter.core.kernels.flowing import cheapest_flow
from themis_arbiter.core.kernels.jit import is_compiled
from themis_arbiter.core.kernels.search import run
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.driver import Fence
from themis_arbiter.engine.loop import EngineError, NotLeading
from themis_arbiter.obs.logs import AUDIT, log_event
from themis_arbiter.obs.metrics import MetricsObserver, new_registry, scrape_text
from themis_arbiter.obs.snapshot import Snapshot, SnapshotUnavailableError
from themis_arbiter.obs.store_log import StoreLog
from themis_arbiter.ports import Clock, Journal, LeaseStore, ResourceManager, StoreError
from themis_arbiter.server.alike import told
from themis_arbiter.server.candidacy import Candidacy, callable_from_elsewhere, place_of
from themis_arbiter.server.config import ServerConfig
from themis_arbiter.server.documents import dumps
from themis_arbiter.server.http import HttpPort, HttpPortError
from themis_arbiter.server.journals import RotatingJournal, open_journal, remove_old
from themis_arbiter.server.local_admin import LocalAdmin
from themis_arbiter.server.stored_views import StoredViews
from themis_arbiter.server.term import Seat, Term, TimedArbiter
from themis_arbiter.server.values import Address, StoreAddress
from themis_arbiter.server.views import VIEWS, make_admin, no_notes, nothing_led, take_snapshot

SCRAPE_S_MAX: Final = 1.0  # that a scrape waits for the engine; then it shows the last state
STOP_ENGINE_S_MAX: Final = 1.0
STAND_DOWN_S_MAX: Final = 15.0  # that a term's end waits for a step: a commit that ZooKeeper does not answer takes some seconds
ZOOKEEPER: Final = "zookeeper"  # a store's kind
# By policy: the kernel that it solves with.
KERNELS: Final[Mapping[str, Callable[..., Any]]] = {"themis": run, "paper": run, "quincy": cheapest_flow}
LINGER_S_MAX: Final = 0.5  # that the process waits for threads that should have ended

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

ViewT = TypeVar("ViewT")

_log = logging.getLogger(__name__)


class StartError(Exception):
    """The arbiter cannot start; the message says what is in the way and what to do."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The process is to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Elected:
    """This arbiter leads, as the node `candidate`."""

    candidate: str


@dataclass(frozen=True, slots=True)
class _Over:
    """The term is to end."""

    reason: str


class Server:
    """One arbiter with its ports. `start`, then `wait` for a reason to end, then `stop`; each is called once.

    Without `rm` it acts on the ResourceManager whose bridge attaches over gRPC. With `kept` (a store of its own, and a journal)
    it leads from its start to its end; with `candidacy` while it is elected, and stands by else. What happens comes through
    one queue to the thread that waits, so that terms begin and end one after the other.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        clock: Clock,
        http: HttpPort,
        kept: tuple[LeaseStore, Journal] | None = None,
        candidacy: Candidacy | None = None,
        rm: ResourceManager | None = None,
    ) -> None:
        assert (kept is None) != (candidacy is None), "a store of its own, or an election"
        self._config, self._clock, self._http, self._kept, self._candidacy = config, clock, http, kept, candidacy
        # A SimpleQueue, because signal handlers may put to it at any moment.
        self._posts: queue.SimpleQueue[_Ending | _Elected | _Over] = queue.SimpleQueue()
        self._failed = ""
        self._term: Term | None = None
        why_not, serve = (candidacy.why_not, candidacy.serve) if candidacy else (None, None)
        empty = candidacy.standing_by if candidacy else lambda: EngineError("the engine has not started yet")
        self._seat = Seat(empty, why_not)
        self.metrics: Final = MetricsObserver(self._snapshot)
        self.registry: Final[CollectorRegistry] = new_registry(self.metrics)
        # Where the ResourceManager is in this process a bridge would be a second one.
        self._cluster: ClusterService | None = None
        if rm is None:
            self._cluster = ClusterService(self._seat, clock, why_not=why_not, serve=serve, types=config.gpu_types)
        self._rm: ResourceManager = rm if rm is not None else self._cluster  # type: ignore[assignment]
        self._audit = AuditTrail(logging.getLogger(AUDIT))
        about = About(
            version=__version__,
            http_address=str(http.address),
            grpc_address=lambda: callable_from_elsewhere(self.grpc_address),
            step_down=candidacy.step_down if candidacy else None,
            differences=candidacy.differences if candidacy else None,
        )
        notes = self._cluster.notes if self._cluster else no_notes
        self._admin = make_admin(self._seat, clock, config, self._audit, about, notes=notes)
        agent = AgentService(self._seat, VIEWS, clock)
        self._grpc = GrpcServer(str(config.grpc_address), cluster=self._cluster, admin=self._admin, agent=agent)
        self.grpc_address = config.grpc_address

    @property
    def http_address(self) -> Address:
        """Where the HTTP port listens."""
        return self._http.address

    def start(self) -> dict[str, Any]:
        """Listen, and lead or stand for election; returns what the ready line tells. Errors: StartError, nothing is left on."""
        first, candidacy = None, self._candidacy
        try:
            port = self._grpc.start()
            self.grpc_address = Address(self._config.grpc_address.host, port)
            if self._kept is not None:
                first = self._begin(*self._kept)
            self._http.start(
                admin=LocalAdmin(self._admin),
                metrics=lambda: scrape_text(self.registry),
                health=self.health,
                stored=self._stored_views(candidacy) if candidacy is not None else None,
            )
        except OSError as error:
            self._give_up_start()
            raise StartError(f"grpc_address {self._config.grpc_address}: {error}; choose another") from error
        except (StoreError, EngineError) as error:
            self._give_up_start()
            raise StartError(self._failed or f"store {self._config.store}: {error}") from error
        if candidacy is not None:
            candidacy.start(
                self.grpc_address,
                self.http_address,
                on_lead=lambda candidate: self._posts.put(_Elected(candidate)),
                on_stand_down=lambda reason: self._posts.put(_Over(reason)),
            )
        return self._story_of_start(first)

    def _stored_views(self, candidacy: Candidacy) -> StoredViews:
        return StoredViews(candidacy.stored, candidacy.standing_by, lambda: self._seat.is_taken, self._clock)

    def _begin(self, store: LeaseStore, journal: Journal) -> EpochAcquired:
        """Begin a term. Errors: StoreError, EngineError; the term is then still there, to be ended."""
        term = self._term = Term(
            TimedArbiter(self._config.settings, self.metrics.time_step),
            self._clock,
            store=store,
            journal=journal,
            rm=self._rm,
            observers=(self.metrics, self._audit, StoreLog(_log)),
            fence=self._fence(),
            on_failed=self._fail,
        )
        self._seat.loop = term.loop
        first = term.begin()
        self._grpc.set_ready(True)
        if self._config.journal is not None:
            remove_old(self._config.journal.folder, keep=self._config.journal.files_max)
        return first

    def _fence(self) -> Fence:
        if self._candidacy is None:
            return Fence(on_stale_epoch=self._fail)
        return Fence(on_stale_epoch=lambda reason: self._posts.put(_Over(reason)), why_not=self._candidacy.why_not)

    def _give_up_start(self) -> None:
        if self._term is not None:
            self._term.discard_journal()
        elif self._kept is not None:
            store, journal = self._kept
            if isinstance(journal, RotatingJournal):
                journal.discard()
            store.close()
        self.stop()

    def _story_of_start(self, first: EpochAcquired | None) -> dict[str, Any]:
        return {
            "event": "ready",
            "version": __version__,
            "pid": os.getpid(),
            "is_leader": first is not None,
            "epoch": first.epoch if first is not None else 0,
            "leases": len(first.leases) if first is not None else 0,
            "policy": self._config.settings.policy,
            "store": str(self._config.store),
            "grpc_address": str(self.grpc_address),
            "http_address": str(self.http_address),
            "http_url": f"http://{self.http_address}/",
        }

    def submit(self, make: Callable[[Millis], Event]) -> None:
        """Hand the engine an event. Errors: EngineError."""
        self._seat.submit(make)

    def call(self, look: Callable[[Arbiter], ViewT]) -> ViewT:
        """What `look` says of the arbiter, asked between two steps. Errors: EngineError."""
        return self._seat.call(look)

    def ask_to_end(self, reason: str) -> None:
        """Let `wait` return. Any thread and any signal handler may call this."""
        self._posts.put(_Ending(reason))

    def wait(self) -> str:
        """Lead and stand by as the election goes, until somebody asks to end or the engine fails; returns the failure or ""."""
        while True:
            match self._posts.get():
                case _Ending(reason=reason):
                    log_event(_log, logging.INFO, "stopping", reason=reason)
                    return self._failed
                case _Elected(candidate=candidate):
                    self._lead(candidate)
                case _Over(reason=reason):
                    self._stand_by(reason)

    def _lead(self, candidate: str) -> None:
        """Begin the term that was won; one that cannot begin is given back."""
        assert self._candidacy is not None, "nobody else elects"
        began_s = time.monotonic()
        if isinstance(self._clock, SystemClock):
            self._clock.anchor()
        try:
            store = self._candidacy.open_store(candidate)
            try:
                journal = open_journal(self._config.journal, self._config.settings, self._clock.now_ms())
            except OSError:
                store.close()
                raise
            first = self._begin(store, journal)
        except (StoreError, EngineError, OSError) as error:
            if self._term is not None:
                self._term.discard_journal()
            log_event(_log, logging.ERROR, "elected, but the term could not begin", error=str(error))
            self._candidacy.note_begin(str(error))
            self._end_term(str(error))
            return
        self._candidacy.note_begin()
        took_ms = round((time.monotonic() - began_s) * 1_000)
        log_event(_log, logging.INFO, "leading", epoch=first.epoch, leases=len(first.leases), took_ms=took_ms)

    def _stand_by(self, reason: str) -> None:
        if self._term is not None:
            log_event(_log, logging.WARNING, "no longer leading", reason=reason)
            self._end_term(f"this arbiter no longer leads: {reason}")

    def _end_term(self, reason: str) -> None:
        """End the term, so far as there is one, and stand for election again."""
        assert self._candidacy is not None, "with a store of its own it leads to its end"
        self._grpc.set_ready(False)
        term, self._term, self._seat.loop = self._term, None, None
        if self._cluster is not None:
            self._cluster.release(reason)
        if term is not None and not term.end(STAND_DOWN_S_MAX):
            self._fail("the engine did not end with its term")  # which would leave it beside the next one
            return
        self._audit.forget_all()
        self._candidacy.term_ended()

    def health(self) -> str:
        """What is wrong with this process, "" for nothing. To stand by is nothing wrong."""
        if self._failed or self._candidacy is not None:
            return self._failed
        return "" if self._term is not None and self._term.loop.is_running else "the engine does not run"

    def stop(self) -> bool:
        """End everything, bounded in time (under 5 s); whether all of it ended in order. May follow a failed start."""
        term, is_clean = self._term, True
        if self._candidacy is not None:
            # The lead first: whoever stands by need not wait for our ports.
            self._seat.loop = None
            is_clean = term is None or term.end(STOP_ENGINE_S_MAX)
            self._candidacy.stop()
        self._http.stop()
        self._grpc.stop()
        if self._candidacy is None and term is not None:
            is_clean = term.end(STOP_ENGINE_S_MAX)
        return is_clean

    def _fail(self, reason: str) -> None:
        self._failed = self._failed or reason
        log_event(_log, logging.ERROR, "the arbiter has to end", reason=reason)
        self._posts.put(_Ending(reason))

    def _snapshot(self) -> Snapshot:
        now_ms = self._clock.now_ms()
        try:
            return self._seat.taken().call(lambda arbiter: take_snapshot(arbiter, now_ms), SCRAPE_S_MAX)
        except NotLeading as error:
            return nothing_led(error.epoch)
        except EngineError as error:
            raise SnapshotUnavailableError(str(error)) from error


def build(config: ServerConfig, *, clock: Clock | None = None, rm: ResourceManager | None = None) -> Server:
    """Open what the process needs and put it together; nothing runs yet. Errors: StartError, nothing is left open.

    `rm` is a ResourceManager in this process (the simulated cluster); without it, the one behind the bridge.
    """
    clock = clock if clock is not None else SystemClock()
    try:
        http = HttpPort(config.http_address)
    except HttpPortError as error:
        raise StartError(str(error)) from error
    if config.store.kind == ZOOKEEPER:
        candidacy = Candidacy(place_of(config.store, config.zookeeper), told(config))
        return Server(config, clock=clock, http=http, candidacy=candidacy, rm=rm)
    try:
        store = open_store(config.store)
    except StoreError as error:
        http.stop()
        raise StartError(f"store {config.store}: {error}") from error
    try:
        journal = open_journal(config.journal, config.settings, clock.now_ms())
    except OSError as error:
        http.stop()
        store.close()
        raise StartError(f"journal.folder: {error}; name a folder that can be written to") from error
    return Server(config, clock=clock, http=http, kept=(store, journal), rm=rm)


def open_store(address: StoreAddress) -> LeaseStore:
    """The lease store at `address`, one that is this process's own. Errors: StoreError."""
    if address.kind == ZOOKEEPER:
        raise StoreError(f"{address}: leases in ZooKeeper belong to whom it elects; name a store of this process's own")
    return MemoryStore() if address.path is None else SqliteStore(address.path)


def run_until_signal(config: ServerConfig) -> int:
    """Run an arbiter until SIGTERM or SIGINT, and return the exit status. Errors: StartError."""
    for note in config.notes:
        log_event(_log, logging.WARNING, "note on the settings", note=note)
    if config.settings.policy in KERNELS:  # loaded now, not in the first round
        log_event(_log, logging.INFO, "kernels", are_compiled=is_compiled(KERNELS[config.settings.policy]))
    server = build(config)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        server.ask_to_end(signal.Signals(number).name)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        story = server.start()
        log_event(_log, logging.INFO, "ready", **{k: v for k, v in story.items() if k != "event"})
        print(dumps(story), flush=True)
        failure = server.wait()
        is_clean = server.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    status = EXIT_OK if is_clean and not failure else EXIT_FAILED
    log_event(_log, logging.INFO, "stopped", status=status)
    _leave_stuck_threads(status)
    return status


def _leave_stuck_threads(status: int) -> None:
    """End the process at once where a call still hangs in a pool's thread, for Python would wait for it for ever."""
    deadline_s = time.monotonic() + LINGER_S_MAX
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join(max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                log_event(_log, logging.WARNING, "a thread did not end", thread=thread.name)
                logging.shutdown()
                sys.stdout.flush()
                os._exit(status)
