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
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from themis_arbiter import __version__
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.grpc.admin import About, AdminService
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.audit import AuditTrail
from themis_arbiter.adapters.grpc.cluster import ClusterService
from themis_arbiter.adapters.grpc.seams import Engine, Views
from themis_arbiter.adapters.grpc.server import GrpcServer
from themis_arbiter.adapters.memory_store import MemoryStore
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.core import explain, views_of
from themis_arbiter.core.auction.solver import prepare
from themis_arbiter.core.effects import Effect, RoundClosed
from themis_arbiter.core.events import EpochAcquired, Event
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, JobId, Millis
from themis_arbiter.core.views import AppView, NodeState
from themis_arbiter.engine.driver import Driver
from themis_arbiter.engine.loop import EngineError, EngineLoop
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.obs.logs import AUDIT, log_event
from themis_arbiter.obs.metrics import MetricsObserver, new_registry, scrape_text
from themis_arbiter.obs.snapshot import Snapshot, SnapshotUnavailableError
from themis_arbiter.ports import Clock, Journal, LeaseStore, ResourceManager, StoreError
from themis_arbiter.server.config import ServerConfig
from themis_arbiter.server.documents import dumps
from themis_arbiter.server.http import HttpPort, HttpPortError
from themis_arbiter.server.journals import LimitedJournal, open_journal, remove_old
from themis_arbiter.server.local_admin import LocalAdmin
from themis_arbiter.server.values import Address, StoreAddress

SCRAPE_S_MAX: Final = 1.0  # that a scrape waits for the engine; then it shows the last state
STOP_ENGINE_S_MAX: Final = 1.0
AUCTION_POLICIES: Final = ("themis", "paper")
LINGER_S_MAX: Final = 0.5  # that the process waits for threads that should have ended

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

ViewT = TypeVar("ViewT")

_log = logging.getLogger(__name__)


class StartError(Exception):
    """The arbiter cannot start; the message says what is in the way and what to do."""


def _apps(arbiter: Arbiter, now_ms: Millis, include_ended: bool) -> tuple[AppView, ...]:
    return views_of.apps(arbiter, now_ms, include_ended=include_ended)


def _has_job(arbiter: Arbiter, app_id: AppId, job_id: JobId) -> bool:
    job = arbiter.state.jobs.get(job_id)
    return job is not None and job.report.app_id == app_id and not job.report.is_finished


VIEWS: Final[Views[Arbiter]] = Views(
    apps=_apps,
    leases=views_of.leases,
    nodes=views_of.nodes,
    status=views_of.status,
    explain=explain.explain,
    rounds=views_of.rounds,
    is_stored=views_of.is_stored,
    has_job=_has_job,
)


def no_notes(_app_id: AppId) -> tuple[str, ...]:
    """Nothing is known of an app's tags where no bridge reads them."""
    return ()


def make_admin(
    engine: Engine[Arbiter],
    clock: Clock,
    config: ServerConfig,
    http_address: Address,
    audit: AuditTrail,
    *,
    notes: Callable[[AppId], tuple[str, ...]] = no_notes,
) -> AdminService:
    """The admin service of an arbiter; `audit` has to be among its driver's observers."""
    about = About(version=__version__, http_address=str(http_address))
    return AdminService(engine, VIEWS, clock, config.settings, about, notes=notes, audit=audit)


class TimedArbiter(Arbiter):
    """An arbiter that tells how long the steps took that closed a round. The core itself has no clock."""

    def __init__(self, settings: Settings, tell_seconds: Callable[[float], None]) -> None:
        super().__init__(settings)
        self._tell_seconds = tell_seconds

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event."""
        started_ns = time.perf_counter_ns()
        effects = super().step(event)
        if any(isinstance(effect, RoundClosed) for effect in effects):
            self._tell_seconds((time.perf_counter_ns() - started_ns) / 1e9)
        return effects


class _Seat:
    """Where services find the engine: they are made before it, because its driver acts through them."""

    def __init__(self) -> None:
        self.loop: EngineLoop[Arbiter] | None = None

    def submit(self, make: Callable[[Millis], Event]) -> None:
        self._loop().submit(make)

    def call(self, fn: Callable[[Arbiter], ViewT]) -> ViewT:
        return self._loop().call(fn)

    def _loop(self) -> EngineLoop[Arbiter]:
        if self.loop is None:
            raise EngineError("the engine has not started yet")
        return self.loop


class Server:
    """One arbiter with its ports. `start`, then `wait` for a reason to end, then `stop`; each is called once.

    Without `rm` it acts on the ResourceManager whose bridge attaches over gRPC.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        clock: Clock,
        store: LeaseStore,
        journal: Journal,
        http: HttpPort,
        rm: ResourceManager | None = None,
    ) -> None:
        self._config, self._clock, self._store, self._journal, self._http = config, clock, store, journal, http
        # A SimpleQueue, because signal handlers may put to it at any moment.
        self._reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failed = ""
        self._seat = _Seat()
        self.metrics: Final = MetricsObserver(self._snapshot)
        self.registry: Final[CollectorRegistry] = new_registry(self.metrics)
        # Where the ResourceManager is in this process a bridge would be a second one.
        cluster = None
        if rm is None:
            rm = cluster = ClusterService(self._seat, clock)
        audit = AuditTrail(logging.getLogger(AUDIT))
        self._admin = make_admin(self._seat, clock, config, http.address, audit, notes=cluster.notes if cluster else no_notes)
        agent = AgentService(self._seat, VIEWS, clock)
        self._grpc = GrpcServer(str(config.grpc_address), cluster=cluster, admin=self._admin, agent=agent)
        timers = TimerTable()
        driver: Driver[Arbiter] = Driver(
            TimedArbiter(config.settings, self.metrics.time_step),
            store=store,
            rm=rm,
            journal=journal,
            timers=timers,
            clock=clock,
            observers=(self.metrics, audit),
            on_stale_epoch=self._fail,
        )
        self._loop: EngineLoop[Arbiter] = EngineLoop(
            driver, clock, timers, on_failure=lambda error: self._fail(f"the engine failed: {error}")
        )
        self.grpc_address = config.grpc_address

    @property
    def http_address(self) -> Address:
        """Where the HTTP port listens."""
        return self._http.address

    def start(self) -> dict[str, Any]:
        """Listen, take leadership and run; returns what the ready line tells. Errors: StartError, nothing is left on."""
        try:
            self._seat.loop = self._loop
            port = self._grpc.start()
            self.grpc_address = Address(self._config.grpc_address.host, port)
            first = take_over(self._store, self._clock)
            self._loop.start()
            self._loop.submit(lambda now_ms: replace(first, at_ms=now_ms))
            self._loop.call(lambda _arbiter: None)  # answered after the first step: from here on it leads
            self._http.start(admin=LocalAdmin(self._admin), metrics=lambda: scrape_text(self.registry), health=self.health)
            self._grpc.set_ready(True)
        except OSError as error:
            self._discard_journal()
            self.stop()
            raise StartError(f"grpc_address {self._config.grpc_address}: {error}; choose another") from error
        except (StoreError, EngineError) as error:
            self._discard_journal()
            self.stop()
            raise StartError(self._failed or f"store {self._config.store}: {error}") from error
        if self._config.journal is not None:
            remove_old(self._config.journal.folder, keep=self._config.journal.files_max)
        return self._story_of_start(first)

    def _discard_journal(self) -> None:
        if isinstance(self._journal, LimitedJournal):
            self._journal.discard()

    def _story_of_start(self, first: EpochAcquired) -> dict[str, Any]:
        return {
            "event": "ready",
            "version": __version__,
            "pid": os.getpid(),
            "epoch": first.epoch,
            "leases": len(first.leases),
            "policy": self._config.settings.policy,
            "store": str(self._config.store),
            "grpc_address": str(self.grpc_address),
            "http_address": str(self.http_address),
            "http_url": f"http://{self.http_address}/",
        }

    def submit(self, make: Callable[[Millis], Event]) -> None:
        """Hand the engine an event. Errors: EngineError."""
        self._loop.submit(make)

    def call(self, look: Callable[[Arbiter], ViewT]) -> ViewT:
        """What `look` says of the arbiter, asked between two steps. Errors: EngineError."""
        return self._loop.call(look)

    def ask_to_end(self, reason: str) -> None:
        """Let `wait` return. Any thread and any signal handler may call this."""
        self._reasons.put(reason)

    def wait(self) -> str:
        """Sleep until somebody asks to end or the engine fails; returns the failure, "" where there is none."""
        reason = self._reasons.get()
        log_event(_log, logging.INFO, "stopping", reason=reason)
        return self._failed

    def health(self) -> str:
        """What is wrong with this process, "" for nothing."""
        if self._failed:
            return self._failed
        return "" if self._loop.is_running else "the engine does not run"

    def stop(self) -> bool:
        """End everything, bounded in time (under 5 s); whether all of it ended in order. May follow a failed start."""
        self._http.stop()
        self._grpc.stop()
        try:
            self._loop.stop(STOP_ENGINE_S_MAX)
        except EngineError as error:
            # Its thread may still be in the store, so neither that nor the journal can be closed under it.
            log_event(_log, logging.ERROR, "the engine did not stop", error=str(error))
            return False
        try:
            self._journal.close()
        except OSError as error:
            log_event(_log, logging.ERROR, "the journal could not be closed", error=str(error))
            return False
        finally:
            self._store.close()
        return True

    def _fail(self, reason: str) -> None:
        self._failed = self._failed or reason
        log_event(_log, logging.ERROR, "the arbiter has to end", reason=reason)
        self._reasons.put(reason)

    def _snapshot(self) -> Snapshot:
        now_ms = self._clock.now_ms()
        try:
            return self._loop.call(lambda arbiter: take_snapshot(arbiter, now_ms), SCRAPE_S_MAX)
        except EngineError as error:
            raise SnapshotUnavailableError(str(error)) from error


def take_snapshot(arbiter: Arbiter, now_ms: Millis) -> Snapshot:
    """What a scrape shows; called between two steps."""
    status, nodes = views_of.status(arbiter, now_ms), views_of.nodes(arbiter)
    return Snapshot(
        epoch=status.epoch,
        is_leader=status.epoch > 0,
        is_bridge_connected=status.is_rm_attached,
        apps=_apps(arbiter, now_ms, False),
        lease_counts=Counter(lease.state for lease, _is_next in views_of.leases(arbiter)),
        max_rho=status.max_rho,
        gpus_leased=status.gpus_leased,
        gpus_free=status.gpus_free,
        gpus_lost=sum(node.gpus_total for node in nodes if node.state is NodeState.LOST),
        gpus_oversubscribed=sum(node.gpus_over for node in nodes),
        node_counts=Counter(node.state for node in nodes),
        is_paused=status.is_paused,
        is_observing=status.is_observing,
    )


def build(config: ServerConfig, *, clock: Clock | None = None, rm: ResourceManager | None = None) -> Server:
    """Open what the process needs and put it together; nothing runs yet. Errors: StartError, nothing is left open.

    `rm` is a ResourceManager in this process (the simulated cluster); without it, the one behind the bridge.
    """
    clock = clock if clock is not None else SystemClock()
    try:
        http = HttpPort(config.http_address)
    except HttpPortError as error:
        raise StartError(str(error)) from error
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
    return Server(config, clock=clock, store=store, journal=journal, http=http, rm=rm)


def open_store(address: StoreAddress) -> LeaseStore:
    """The lease store at `address`. Errors: StoreError."""
    return MemoryStore() if address.path is None else SqliteStore(address.path)


def run_until_signal(config: ServerConfig) -> int:
    """Run an arbiter until SIGTERM or SIGINT, and return the exit status. Errors: StartError."""
    for note in config.notes:
        log_event(_log, logging.WARNING, "note on the settings", note=note)
    if config.settings.policy in AUCTION_POLICIES:
        log_event(_log, logging.INFO, "auction kernels", are_compiled=prepare())
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
