"""Metrics: what is counted, what a scrape shows, and what cannot spoil one."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from themis_arbiter.core.effects import AppEnded, ContainerLost, Effect, LeasesMoved, RoundClosed
from themis_arbiter.core.events import EndCause, LeasesPersisted, StoreFailed, Timer, Woke
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.views import AppState, AppView, NodeState
from themis_arbiter.obs.labels import visible
from themis_arbiter.obs.metrics import RHO_SERIES_MAX, BidErrorKind, MetricsObserver, new_registry, scrape_text
from themis_arbiter.obs.snapshot import Snapshot, SnapshotUnavailableError

WOKE = Woke(at_ms=10_000, timer=Timer.ROUND)
LEASE = Lease(
    lease_id="L1",
    grant_id="G1",
    gpu="n1:0",
    app_id="a",
    job_id="j",
    epoch=1,
    round_no=1,
    start_ms=4_000,
    end_ms=300_000,
)


def app(app_id: str, rho: float = 1.0, state: AppState = AppState.RUNNING) -> AppView:
    return AppView(
        app_id=app_id,
        user="u",
        queue="q",
        state=state,
        arrival_ms=0,
        finish_ms=0,
        rho=rho,
        rho_forecast=rho,
        t_independent_ms=600_000.0,
        work_gpu_ms=1.0,
        is_work_estimated=False,
        attained_gpu_ms=0.0,
        gpus_held=0,
        gpus_wanted=0,
        gpus_by_node=(),
        leases_granted=0,
        leases_renewed=0,
        leases_ended=0,
        final_status="",
        jobs=(),
    )


def snapshot(*apps: AppView, **changes: Any) -> Snapshot:
    base = Snapshot(
        epoch=3,
        is_leader=True,
        is_bridge_connected=True,
        apps=apps,
        lease_counts={LeaseState.ACTIVE: 2},
        max_rho=max((a.rho for a in apps), default=0.0),
        gpus_leased=2,
        gpus_free=6,
        gpus_lost=4,
        gpus_oversubscribed=0,
        node_counts={NodeState.RUNNING: 2, NodeState.LOST: 1},
        is_paused=False,
        is_observing=False,
    )
    return replace(base, **changes)


class World:
    """A scrape's source whose answer a test sets; None: the engine does not answer."""

    def __init__(self, state: Snapshot | None = None) -> None:
        self.state = state
        self.now_s = 100.0
        self.metrics = MetricsObserver(self.take, lambda: self.now_s)
        self.registry = new_registry(self.metrics)

    def take(self) -> Snapshot:
        if self.state is None:
            raise SnapshotUnavailableError("engine is stuck")
        return self.state

    def observe(self, *effects: Effect) -> None:
        self.metrics.observe(WOKE, effects)

    def scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        text = scrape_text(self.registry).decode("utf-8")
        found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found, f"a series twice: {key}"
                found[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.scrape().get((name, tuple(sorted(labels.items()))))

    def rho_labels(self) -> set[str]:
        return {dict(labels)["app"] for name, labels in self.scrape() if name == "themis_rho"}


def moved(state_from: LeaseState | None, state_to: LeaseState, cause: Cause = Cause.AUCTION) -> LeasesMoved:
    return LeasesMoved(leases=(replace(LEASE, state=state_to),), state_from=state_from, cause=cause)


def test_scrape_shows_the_state() -> None:
    world = World(snapshot(app("a", 1.5), app("b", 0.5, AppState.WAITING), app("c", 0.1, AppState.QUEUED)))
    assert world.value("themis_apps", state="queued") == 1
    assert world.value("themis_rho", app="a") == 1.5
    assert world.value("themis_max_rho") == 1.5
    assert world.value("themis_apps", state="waiting") == 1
    assert world.value("themis_apps", state="running") == 1
    assert world.value("themis_gpus", state="leased") == 2
    assert world.value("themis_gpus", state="free") == 6
    assert world.value("themis_gpus", state="lost") == 4
    assert world.value("themis_leases", state="active") == 2
    assert world.value("themis_leases", state="draining") == 0
    assert world.value("themis_leader") == 1
    assert world.value("themis_epoch") == 3
    assert world.value("themis_bridge_connected") == 1
    assert world.value("themis_state_age_seconds") == 0


def test_steps_are_counted() -> None:
    world = World(snapshot())
    record = {"welfare": 1.0, "bound": 1.2, "bids": [{}, {}]}
    world.observe(moved(None, LeaseState.PENDING), RoundClosed(round_no=1, record=record))
    world.observe(moved(LeaseState.PENDING, LeaseState.GRANTED, Cause.STARTED))
    world.observe(moved(LeaseState.GRANTED, LeaseState.ACTIVE, Cause.STARTED))
    world.observe(moved(LeaseState.ACTIVE, LeaseState.ACTIVE, Cause.RENEWAL), RoundClosed(round_no=2, record=record))
    world.observe(RoundClosed(round_no=3, record={}))
    world.metrics.observe(StoreFailed(at_ms=1, batch_no=1, reason="StoreError: disk full"), ())
    world.metrics.observe(StoreFailed(at_ms=1, batch_no=1, reason="StaleEpochError: 3"), ())
    world.metrics.observe(LeasesPersisted(at_ms=1, batch_no=1), ())
    world.metrics.bid_error(BidErrorKind.LATE)
    world.metrics.time_step(0.03)
    transitions = "themis_lease_transitions_total"
    assert world.value(transitions, **{"from": "new", "to": "pending", "cause": "auction"}) == 1
    assert world.value(transitions, **{"from": "active", "to": "active", "cause": "renewal"}) == 1
    assert world.value("themis_rounds_total", outcome="granted") == 1
    assert world.value("themis_rounds_total", outcome="renewed") == 1
    assert world.value("themis_rounds_total", outcome="nothing") == 1
    assert world.value("themis_store_errors_total", kind="write") == 1
    assert world.value("themis_store_errors_total", kind="stale_epoch") == 1
    assert world.value("themis_bid_errors_total", kind="late") == 1
    assert world.value("themis_auction_duration_seconds_count") == 1
    assert world.value("themis_auction_duration_seconds_bucket", le="0.025") == 0
    assert world.value("themis_auction_duration_seconds_bucket", le="0.05") == 1
    assert world.value("themis_grant_latency_seconds_sum") == 6.0


def test_gap_is_the_bidders_mean_factor_above_one() -> None:
    world = World(snapshot())
    world.observe(RoundClosed(round_no=1, record={"welfare": 1.0, "bound": 1.2, "bids": [{}, {}]}))
    assert world.value("themis_auction_gap_ratio") == pytest.approx(0.10517, abs=1e-5)
    world.observe(RoundClosed(round_no=2, record={"welfare": 0.0, "bound": 1e9, "bids": [{}]}))
    assert world.value("themis_auction_gap_ratio") is not None


def test_series_of_ended_apps_go_away() -> None:
    world = World(snapshot(*(app(f"app-{k}") for k in range(100))))
    assert len(world.rho_labels()) == 100
    world.state = snapshot(app("app-7"), app("app-8", state=AppState.ENDED))
    assert world.rho_labels() == {"app-7"}
    world.observe(AppEnded(app_id="x", arrival_ms=0, finish_ms=1, t_independent_ms=1.0, rho=1.0, final_status="SUCCEEDED"))
    assert world.value("themis_apps", state="ended") == 1


def test_series_are_capped_and_what_is_left_out_is_told() -> None:
    world = World(snapshot(*(app(f"app-{k}", float(k)) for k in range(RHO_SERIES_MAX + 10))))
    labels = world.rho_labels()
    assert len(labels) == RHO_SERIES_MAX
    assert f"app-{RHO_SERIES_MAX + 9}" in labels
    assert "app-0" not in labels
    assert world.value("themis_rho_left_out") == 10


def test_engine_that_does_not_answer_leaves_the_last_state_and_its_age() -> None:
    world = World()
    assert world.value("themis_leader") == 0
    assert world.value("themis_max_rho") is None
    world.state = snapshot(app("a", 1.5))
    world.scrape()
    world.state, world.now_s = None, 130.0
    assert world.value("themis_rho", app="a") == 1.5
    assert world.value("themis_state_age_seconds") == 30.0


def test_numbers_that_are_none_do_not_stay() -> None:
    world = World(snapshot(app("nan", float("nan")), app("b", 2.0)))
    world.metrics.time_step(float("nan"))
    world.metrics.time_step(-1.0)
    world.observe(RoundClosed(round_no=1, record={"welfare": float("nan"), "bound": 1.0, "bids": [{}]}))
    assert world.rho_labels() == {"b"}
    assert world.value("themis_rho_left_out") == 1
    assert world.value("themis_auction_duration_seconds_count") == 0
    assert world.value("themis_auction_gap_ratio") == 0


HOSTILE = [
    "\udc80",
    "\ud800x",
    "a\nb",
    "a\r",
    "\x00",
    '"',
    "\\",
    "\\n",
    "a\\nb",
    "{app}",
    "",
    "\u202e",
    "é😀",
    "\x85",
    "} 1\n# x",
]


def test_hostile_names_stay_apart_and_the_scrape_stays_readable() -> None:
    world = World(snapshot(*(app(name, float(k)) for k, name in enumerate(HOSTILE))))
    assert world.rho_labels() == {visible(name) for name in HOSTILE}
    assert len({visible(name) for name in HOSTILE}) == len(HOSTILE)


@given(st.text(alphabet=st.one_of(st.characters(), st.characters(categories=["Cs", "Cc"]), st.just("\\"))), st.text())
def test_escaped_names_are_printable_and_distinct(one: str, other: str) -> None:
    assert visible(one).isprintable()
    assert (visible(one) == visible(other)) == (one == other)


def test_several_arbiters_share_a_process() -> None:
    worlds = [World(snapshot(epoch=k)) for k in range(10)]
    assert [w.value("themis_epoch") for w in worlds] == list(range(10))


def test_multiprocess_folder_with_leftovers_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "counter_1.db").write_bytes(b"left over")
    code = """
from themis_arbiter.core.events import StoreFailed
from themis_arbiter.obs.metrics import MetricsObserver, new_registry, scrape_text
from themis_arbiter.obs.snapshot import SnapshotUnavailableError
def take():
    raise SnapshotUnavailableError
m = MetricsObserver(take)
m.observe(StoreFailed(at_ms=1, batch_no=1, reason="x"), ())
assert 'themis_store_errors_total{kind="write"} 1.0' in scrape_text(new_registry(m)).decode()
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)
    assert [p.name for p in tmp_path.iterdir()] == ["counter_1.db"]


def test_ends_of_containers_are_counted_by_cause_and_whether_they_were_due() -> None:
    world = World(snapshot())
    lost = ContainerLost(job_id="j", node="n1", gpus=2, cause=EndCause.PREEMPTED, was_due=True)
    world.observe(lost, replace(lost, was_due=False), replace(lost, cause=EndCause.BY_RM, was_due=False), lost)
    assert world.value("themis_container_ends_total", cause="preempted", was_due="true") == 2
    assert world.value("themis_container_ends_total", cause="preempted", was_due="false") == 1
    assert world.value("themis_container_ends_total", cause="by_rm", was_due="false") == 1
    assert world.value("themis_container_ends_total", cause="memory", was_due="true") == 0


def test_what_is_not_as_usual_has_gauges() -> None:
    usual = World(snapshot())
    assert (usual.value("themis_paused"), usual.value("themis_observing")) == (0, 0)
    assert usual.value("themis_nodes", state="running") == 2
    assert usual.value("themis_nodes", state="lost") == 1
    assert usual.value("themis_nodes", state="drained") == 0
    odd = World(snapshot(is_paused=True, is_observing=True, gpus_oversubscribed=3))
    assert (odd.value("themis_paused"), odd.value("themis_observing")) == (1, 1)
    assert odd.value("themis_gpus_oversubscribed") == 3
