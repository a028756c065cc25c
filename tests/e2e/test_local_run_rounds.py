"""The same run, its rounds by brute force and its rho from the ResourceManager's history alone."""

from dataclasses import replace

import pytest

from tests.support.naive_fluid import NaiveApp, naive_finishes
from tests.support.recorded import RecordedRound, are_in_order, faults, recorded_rounds
from tests.support.runs import LocalRun
from themis_arbiter.cli.local.samples import CLUSTER, SAMPLES
from themis_arbiter.core.auction.payment import partial_allocation

pytest_plugins = ["tests.support.local_run"]
pytestmark = [pytest.mark.yarn, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def rounds(local_run: LocalRun) -> list[RecordedRound]:
    return list(recorded_rounds(local_run.journal))


def test_every_round_equals_a_brute_force_solution_of_its_recorded_bids(rounds: list[RecordedRound]) -> None:
    assert are_in_order(rounds)
    assert {r.record["round"]: found for r in rounds if (found := faults(r))} == {}
    assert max(len(r.bids) for r in rounds) >= 2


def test_hidden_payments_are_charged(rounds: list[RecordedRound]) -> None:
    paid = [1 - p["share_max"] for r in rounds for p in r.record["payments"]]
    assert max(paid) > 0.001
    assert all(0 <= p < 1 for p in paid)


def test_changing_one_recorded_bid_changes_a_grant(rounds: list[RecordedRound]) -> None:
    """An app that had said it would gain nothing would have won nothing: bids, not the solver's habits, decide."""
    contested = next(r for r in rounds if len(r.bids) > 1 and r.record["kept"])
    winner = next(b for b in contested.bids if b.app_id in contested.record["kept"])
    zero = winner.rows[0]
    mute = replace(winner, rows=(zero, *(replace(row, rho=zero.rho * 1.5) for row in winner.rows[1:])))
    bids = tuple(mute if b is winner else b for b in contested.bids)
    outcome = partial_allocation(bids, contested.supply, contested.gangs)
    assert winner.app_id not in outcome.kept
    again = partial_allocation(contested.bids, contested.supply, contested.gangs)
    assert {a: {j: list(g) for j, g in p.items()} for a, p in again.kept.items()} == contested.record["kept"]


def test_rho_recomputed_from_the_resource_managers_history_agrees(local_run: LocalRun) -> None:
    history = {app["id"]: app for app in local_run.yarn_apps}
    apps, spans = [], {}
    for sample in SAMPLES:
        told = history[local_run.job_ids[sample.name]]
        tags = dict(tag.partition("=")[::2] for tag in told["applicationTags"].split(","))
        work_ms = float(tags["themis.work-gpu-s"]) * 1_000
        most = _most_at_once(local_run, told["id"], sample.gpus_max)
        apps.append(NaiveApp(sample.app_id, told["startedTime"], work_ms, most))
        spans[sample.app_id] = told["finishedTime"] - told["startedTime"]
    fair = naive_finishes(apps, sum(gpus for gpus, _ in CLUSTER), step_ms=5.0)
    shown = {app["app_id"]: app["rho"] for app in local_run.summary["apps"]}
    for app in apps:
        t_independent = max(fair[app.name] - app.arrival_ms, local_run.settings.rho_floor_ms)
        assert shown[app.name] == pytest.approx(spans[app.name] / t_independent, rel=0.02), app.name


def _most_at_once(local_run: LocalRun, application_id: str, asked: int) -> int:
    """What it asked for at once: its useful parallelism. It can never have held more."""
    events = sorted(
        (at, step * stay.gpus)
        for stay in local_run.stays()
        if stay.job_id == application_id
        for at, step in ((stay.allocated_ms, 1), (stay.left_ms or stay.allocated_ms, -1))
    )
    held = most = 0
    for _, step in events:
        held += step
        most = max(most, held)
    assert most <= asked
    return asked
