"""Whose share an app draws on: splitting an app into many gains its owner nothing."""

from dataclasses import replace

import pytest

from tests.support.bench import Bench, job, running
from tests.support.world import SHORT
from themis_arbiter.core.events import JobReport, Timer
from themis_arbiter.core.explain import explain
from themis_arbiter.core.owners import counted_weights
from themis_arbiter.core.settings import QueueRule, Settings, ShareBy
from themis_arbiter.core.types import AppId, CoreError

BY_USER = replace(SHORT, share_by=ShareBy.USER)


def of(user: str, name: str, asked: int = 8, *, queue: str = "q", weight: float = 1.0, work: float = 1e6) -> JobReport:
    return replace(job(name, asked, work=work), user=user, queue=queue, weight=weight)


def alone(bench: Bench, app_id: AppId) -> float:
    """The app's time alone on its share, in ms."""
    state = bench.arbiter.state
    return state.t_independent_ms(state.apps[app_id])


def test_an_app_split_in_ten_has_the_share_that_it_had_whole() -> None:
    whole = Bench(BY_USER).up(of("alice", "a", work=1e6), of("bob", "b", work=1e6))
    split = Bench(BY_USER).up(*(of("alice", f"a{k}", work=1e5) for k in range(10)), of("bob", "b", work=1e6))
    assert alone(split, "b") == pytest.approx(alone(whole, "b"))
    assert alone(split, "a3") == pytest.approx(alone(whole, "a"))
    by_app = Bench(SHORT).up(*(of("alice", f"a{k}", work=1e5) for k in range(10)), of("bob", "b", work=1e6))
    assert alone(by_app, "a3") == pytest.approx(0.55 * alone(whole, "a"))  # ten elevenths of the cluster instead of a half


def test_parts_of_a_share_follow_the_apps_own_weights_and_owners_follow_theirs() -> None:
    settings = replace(BY_USER, users={"bob": 4.0})
    bench = Bench(settings).up(of("alice", "a1", weight=3.0), of("alice", "a2"), of("bob", "b"))
    assert counted_weights(bench.arbiter.state) == {"a1": 0.75, "a2": 0.25, "b": 4.0}


def test_queues_share_first_and_then_the_users_in_each() -> None:
    settings = replace(SHORT, share_by=ShareBy.QUEUE_USER, queues={"big": QueueRule(weight=3.0)})
    jobs = [
        of("alice", "a1", queue="big"),
        of("alice", "a2", queue="big"),
        of("bob", "b", queue="big"),
        of("bob", "c", queue="small"),
    ]
    bench = Bench(settings).up(*jobs)
    assert counted_weights(bench.arbiter.state) == {"a1": 0.75, "a2": 0.75, "b": 1.5, "c": 1.0}
    by_queue = Bench(replace(settings, share_by=ShareBy.QUEUE)).up(*jobs)
    assert counted_weights(by_queue.arbiter.state) == pytest.approx({"a1": 1.0, "a2": 1.0, "b": 1.0, "c": 1.0})


def test_an_app_that_ends_leaves_its_part_to_its_owners_others() -> None:
    bench = Bench(BY_USER).up(of("alice", "a1"), of("alice", "a2"), of("bob", "b"))
    bench.report(1_000, replace(of("alice", "a1", 0), is_finished=True, finish_ms=1_000, final_status="SUCCEEDED"))
    assert counted_weights(bench.arbiter.state) == {"a2": 1.0, "b": 1.0}


def test_an_application_moved_to_another_queue_draws_on_that_ones_share() -> None:
    bench = Bench(replace(SHORT, share_by=ShareBy.QUEUE)).up(of("u", "a"), of("u", "b"), of("u", "c", queue="r"))
    before = alone(bench, "c")
    bench.report(2_000, of("u", "b", queue="r"))
    assert bench.arbiter.state.apps["b"].queue == "r"
    assert counted_weights(bench.arbiter.state) == {"a": 1.0, "b": 0.5, "c": 0.5}
    assert alone(bench, "c") > before


def test_the_same_weights_reach_policies_and_people() -> None:
    bench = Bench(replace(BY_USER, policy="las")).up(of("alice", "a1", 4), of("alice", "a2", 4), of("bob", "b", 4))
    bench.wake(500, Timer.ROUND)
    running(bench, "a1", "n0 n0 n0 n0")
    text = " ".join(explain(bench.arbiter, "a1", bench.now) or ())
    assert "It draws on the share of alice with all live apps there, and so counts 0.5 beside the others." in text
    by_app = Bench(SHORT).up(of("alice", "a1", 4))
    assert "draws on" not in " ".join(explain(by_app.arbiter, "a1", by_app.now) or ())


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-7])
def test_weights_that_make_no_sense_are_refused(weight: float) -> None:
    with pytest.raises(CoreError, match="weight lies between"):
        QueueRule(weight=weight)
    with pytest.raises(CoreError, match="user u's weight lies between"):
        Settings(users={"u": weight})
