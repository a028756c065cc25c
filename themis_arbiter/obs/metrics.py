"""The arbiter's Prometheus metrics (docs/reference/cli.md, Metrics): what happened is counted from steps, what is, is asked.

Numbers are kept here and not in the client library's own metric objects: those write to files where an environment
variable says so, and a collector that yields whole families at each scrape has no series of an ended app to forget.
Nothing in a scrape can fail on a user's name or on an engine that does not answer: the last state known is shown, and
`themis_state_age_seconds` says how old it is.
"""

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from themis_arbiter.core.effects import AppEnded, ContainerLost, Effect, LeasesMoved, RoundClosed
from themis_arbiter.core.events import EndCause, Event, StoreFailed
from themis_arbiter.core.lease import LeaseState
from themis_arbiter.core.types import Millis
from themis_arbiter.core.views import AppState, NodeState
from themis_arbiter.obs.labels import visible
from themis_arbiter.obs.snapshot import Snapshot, SnapshotUnavailableError, TakeSnapshot

RHO_SERIES_MAX: Final = 5_000  # of live apps; past it the largest rhos are shown and the rest is counted
AUCTION_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATENCY_BUCKETS_S: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
GAP_LOG_MAX: Final = 50.0  # of the logarithm; more is as bad and would only overflow
LEASE_STATES_LIVE: Final = tuple(s for s in LeaseState if s is not LeaseState.ENDED)


class RoundOutcome(StrEnum):
    """How an auction round ended; labels of `themis_rounds_total`."""

    GRANTED = "granted"
    RENEWED = "renewed"  # nothing but renewals
    NOTHING = "nothing"


class BidErrorKind(StrEnum):
    """Why a bid was not taken; labels of `themis_bid_errors_total`."""

    LATE = "late"
    MALFORMED = "malformed"
    NOT_ITS_APP = "not_its_app"


class StoreErrorKind(StrEnum):
    """Why the store did not take a batch; labels of `themis_store_errors_total`."""

    STALE_EPOCH = "stale_epoch"
    WRITE = "write"


class Histogram:
    """Counts by upper bound. The caller holds the lock."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, amount: float) -> None:
        """Count one amount; what is not a finite number of at least 0 is left out, for a NaN would stay for ever."""
        if math.isfinite(amount) and amount >= 0.0:
            self._counts[bisect_left(self._bounds, amount)] += 1
            self._sum += amount

    def family(self, name: str, documentation: str) -> HistogramMetricFamily:
        """The counts as Prometheus wants them: each bucket holds those before it."""
        total, buckets = 0, []
        for bound, count in zip((*(str(b) for b in self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return HistogramMetricFamily(name, documentation, buckets=buckets, sum_value=self._sum)


def round_outcome(effects: Iterable[Effect]) -> RoundOutcome:
    """What a step that closed a round did with leases."""
    moves = [e for e in effects if isinstance(e, LeasesMoved)]
    if any(m.state_from is None for m in moves):
        return RoundOutcome.GRANTED
    return RoundOutcome.RENEWED if any(m.state_from is m.state for m in moves) else RoundOutcome.NOTHING


class MetricsObserver(Collector):
    """An `Observer` and a collector in one; register it in a registry of its own with `new_registry`.

    `take_snapshot` is called at each scrape and raises SnapshotUnavailableError where the engine does not answer;
    it bounds its own waiting. Every method may be called from any thread.
    """

    def __init__(self, take_snapshot: TakeSnapshot, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._take_snapshot = take_snapshot
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._transitions: Counter[tuple[str, str, str]] = Counter()
        self._rounds: Counter[RoundOutcome] = Counter()
        self._container_ends: Counter[tuple[EndCause, bool]] = Counter()
        self._bid_errors: Counter[BidErrorKind] = Counter()
        self._store_errors: Counter[StoreErrorKind] = Counter()
        self._apps_ended = 0
        self._gap_ratio = 0.0
        self._auctions = Histogram(AUCTION_BUCKETS_S)
        self._latencies = Histogram(LATENCY_BUCKETS_S)
        self._last: Snapshot | None = None
        self._last_taken_s = monotonic_s()

    def observe(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Count one step of the engine."""
        with self._lock:
            if isinstance(event, StoreFailed):
                is_stale = event.reason.startswith("StaleEpoch")
                self._store_errors[StoreErrorKind.STALE_EPOCH if is_stale else StoreErrorKind.WRITE] += 1
            for effect in effects:
                if isinstance(effect, LeasesMoved):
                    self._count_moves(effect, event.at_ms)
                elif isinstance(effect, RoundClosed):
                    self._rounds[round_outcome(effects)] += 1
                    self._gap_ratio = _gap_ratio(effect.record)
                elif isinstance(effect, AppEnded):
                    self._apps_ended += 1
                elif isinstance(effect, ContainerLost):
                    self._container_ends[effect.cause, effect.was_due] += 1

    def time_step(self, seconds: float) -> None:
        """The core took `seconds` for a step that closed an auction round."""
        with self._lock:
            self._auctions.add(seconds)

    def bid_error(self, kind: BidErrorKind) -> None:
        """A bid was not taken."""
        with self._lock:
            self._bid_errors[kind] += 1

    def _count_moves(self, moved: LeasesMoved, at_ms: Millis) -> None:
        state, state_from = moved.state, moved.state_from
        before = "new" if state_from is None else state_from.value
        self._transitions[before, state.value, moved.cause.value] += len(moved.leases)
        if state is LeaseState.ACTIVE and state_from is LeaseState.GRANTED:
            # A lease starts when its GPU is both free and given to it: at once, or when the holder before released it.
            for lease in moved.leases:
                self._latencies.add((at_ms - lease.start_ms) / 1_000)

    def _refresh(self) -> tuple[Snapshot | None, float]:
        try:
            snapshot = self._take_snapshot()
        except SnapshotUnavailableError:
            with self._lock:
                return self._last, max(0.0, self._monotonic_s() - self._last_taken_s)
        with self._lock:
            self._last, self._last_taken_s = snapshot, self._monotonic_s()
        return snapshot, 0.0

    def describe(self) -> list[Metric]:
        """No families: asking for them at registration would ask an engine that does not run yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family, at a scrape."""
        snapshot, age_s = self._refresh()
        yield _gauge("themis_state_age_seconds", "How old the state below is; above 0 the engine did not answer.", age_s)
        with self._lock:
            families = [*self._counted()]
            apps_ended = self._apps_ended
        yield from families
        # Without a state there is nothing true to say of apps and GPUs; whether this process leads is known to be no.
        yield from _process_gauges(snapshot)
        if snapshot is not None:
            yield from _state_gauges(snapshot, apps_ended)

    def _counted(self) -> Iterator[Metric]:
        moves = CounterMetricFamily("themis_lease_transitions", "Lease transitions.", labels=["from", "to", "cause"])
        for labels, count in sorted(self._transitions.items()):
            moves.add_metric(list(labels), count)
        yield moves
        ends = CounterMetricFamily("themis_container_ends", "Ended GPU containers of jobs.", labels=["cause", "was_due"])
        for cause in EndCause:
            for was_due in (True, False):
                ends.add_metric([cause.value, str(was_due).lower()], self._container_ends[cause, was_due])
        yield ends
        yield _by_enum("themis_rounds", "Auction rounds closed.", "outcome", RoundOutcome, self._rounds)
        yield _by_enum("themis_bid_errors", "Bids not taken.", "kind", BidErrorKind, self._bid_errors)
        yield _by_enum("themis_store_errors", "Batches not stored.", "kind", StoreErrorKind, self._store_errors)
        yield self._auctions.family("themis_auction_duration_seconds", "Time that the core took to close a round.")
        yield self._latencies.family("themis_grant_latency_seconds", "From a GPU's being free to its lease's first use.")
        yield _gauge("themis_auction_gap_ratio", "Certified gap of the last round, 0 is optimal.", self._gap_ratio)


def new_registry(observer: MetricsObserver) -> CollectorRegistry:
    """A registry with this observer alone: several arbiters can live in one process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(observer)
    return registry


def scrape_text(registry: CollectorRegistry) -> bytes:
    """The registry in Prometheus' text format, version 0.0.4, UTF-8."""
    return generate_latest(registry)


def _gap_ratio(record: Mapping[str, Any]) -> float:
    """How much lower the bidders' mean (geometric) new rho could be at most, from the decision record; 0 is optimal."""
    bound, welfare, bids = record.get("bound"), record.get("welfare"), record.get("bids")
    if not isinstance(bound, int | float) or not isinstance(welfare, int | float) or not bids:
        return 0.0  # a policy without an auction has no gap
    gap = bound - welfare
    return math.expm1(min(gap / len(bids), GAP_LOG_MAX)) if gap > 0 else 0.0


def _gauge(name: str, documentation: str, amount: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, value=amount)


def _by_enum(name: str, documentation: str, label: str, kinds: type[StrEnum], counts: "Counter[Any]") -> CounterMetricFamily:
    """A counter with a series for every member, also one that has not happened: rates need the zero before."""
    family = CounterMetricFamily(name, documentation, labels=[label])
    for kind in kinds:
        family.add_metric([kind.value], counts[kind])
    return family


def _process_gauges(snapshot: Snapshot | None) -> Iterator[Metric]:
    is_leader = snapshot is not None and snapshot.is_leader
    is_connected = snapshot is not None and snapshot.is_bridge_connected
    yield _gauge("themis_leader", "1 where this arbiter leads.", float(is_leader))
    yield _gauge("themis_epoch", "Epoch of leadership, 0 before the first.", float(snapshot.epoch if snapshot else 0))
    yield _gauge("themis_bridge_connected", "1 where a ResourceManager listens through a bridge.", float(is_connected))


def _state_gauges(snapshot: Snapshot, apps_ended: int) -> Iterator[Metric]:
    live = [a for a in snapshot.apps if a.state is not AppState.ENDED]
    rho = GaugeMetricFamily("themis_rho", "rho of the time so far, while the app lives.", labels=["app"])
    shown = sorted((a for a in live if math.isfinite(a.rho)), key=lambda a: (-a.rho, a.app_id))
    for app in shown[:RHO_SERIES_MAX]:
        rho.add_metric([visible(app.app_id)], app.rho)
    yield rho
    yield _gauge("themis_rho_left_out", "Live apps without a themis_rho series.", len(live) - len(rho.samples))
    yield _gauge("themis_max_rho", "Largest rho so far of a live app, 0 without any.", snapshot.max_rho)
    apps = GaugeMetricFamily("themis_apps", "Apps by state; ended: since this process started.", labels=["state"])
    for state in (AppState.QUEUED, AppState.WAITING, AppState.RUNNING):
        apps.add_metric([state.value.lower()], sum(a.state is state for a in live))
    apps.add_metric([AppState.ENDED.value.lower()], apps_ended)
    yield apps
    gpus = GaugeMetricFamily("themis_gpus", "GPUs by state.", labels=["state"])
    by_state = {"leased": snapshot.gpus_leased, "free": snapshot.gpus_free, "lost": snapshot.gpus_lost}
    for name, count in by_state.items():
        gpus.add_metric([name], max(0, count))
    yield gpus
    over = "GPUs leased or used on nodes that do not have them (any more)."
    yield _gauge("themis_gpus_oversubscribed", over, snapshot.gpus_oversubscribed)
    nodes = GaugeMetricFamily("themis_nodes", "Nodes by state.", labels=["state"])
    for node_state in NodeState:
        nodes.add_metric([node_state.value.lower()], snapshot.node_counts.get(node_state, 0))
    yield nodes
    yield _gauge("themis_paused", "1 while an admin holds auctions back.", float(snapshot.is_paused))
    yield _gauge("themis_observing", "1 while the arbiter looks on only.", float(snapshot.is_observing))
    leases = GaugeMetricFamily("themis_leases", "Live leases by state.", labels=["state"])
    for lease_state in LEASE_STATES_LIVE:
        leases.add_metric([lease_state.value], snapshot.lease_counts.get(lease_state, 0))
    yield leases
