"""What admins may do: each verb, its refusals, and what outlives the arbiter."""

from dataclasses import replace

import pytest

from tests.support.bench import Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.adapters.memory_store import MemoryDisk, MemoryStore
from themis_arbiter.core.admin import WEIGHT_MAX, WEIGHT_MIN
from themis_arbiter.core.effects import AdminAnswered, Effect, GrantGpus, PersistLeases, RequestDrain, RoundClosed, SyncLeases
from themis_arbiter.core.events import AdminRequested, AdminVerb, EpochAcquired, RmAttached, RmDetached, RmReported, Timer
from themis_arbiter.core.explain import explain
from themis_arbiter.core.lease import Cause, LeaseState
from themis_arbiter.core.settings import ShareBy
from themis_arbiter.core.views import AppState
from themis_arbiter.core.views_of import apps

LEASE, NOTICE = 20_000, 3_000
GRID = LEASE - NOTICE  # when the first grid end's round is held


def ask(bench: Bench, verb: AdminVerb, target: str = "", value: float = 0.0) -> tuple[AdminAnswered, list[Effect]]:
    effects = bench.at(
        bench.now, AdminRequested(at_ms=bench.now, request_id="r", actor="ann", verb=verb, target=target, value=value)
    )
    (answer,) = (e for e in effects if isinstance(e, AdminAnswered))
    return answer, effects


def leased(*names: str) -> Bench:
    """Jobs of four GPUs each that run on leases."""
    bench = Bench().up(*(job(name, 4) for name in names))
    bench.wake(500, Timer.ROUND)
    for k, name in enumerate(names):
        nodes = " ".join(x.node_of_gpu for x in bench.arbiter.state.ledger.of_job(name))
        running(bench, name, nodes, first=100 * k)
    return bench


def causes(bench: Bench) -> set[Cause]:
    return {x.cause for x in bench.arbiter.state.ledger if x.state is LeaseState.DRAINING}


def test_answer_names_the_request() -> None:
    answer, _ = ask(leased("a"), AdminVerb.PAUSE)
    assert (answer.request_id, answer.actor, answer.verb, answer.is_done) == ("r", "ann", AdminVerb.PAUSE, True)


def test_while_paused_leases_are_renewed_and_none_is_given() -> None:
    bench = leased("a")
    assert ask(bench, AdminVerb.PAUSE)[0].is_done
    bench.report(2_000, job("b", 4))
    effects = bench.wake(bench.arbiter.state.timers[Timer.ROUND], Timer.ROUND)
    assert not of_type(effects, RoundClosed)
    bench.wake(GRID, Timer.GRID)
    assert bench.states() == {"a": ["active"] * 4}
    assert {x.end_ms for x in bench.arbiter.state.ledger} == {2 * LEASE}
    assert ask(bench, AdminVerb.RESUME)[0].is_done
    effects = bench.wake(bench.arbiter.state.timers[Timer.ROUND], Timer.ROUND)
    assert of_type(effects, GrantGpus)
    assert bench.states()["b"] == ["granted"] * 4


@pytest.mark.parametrize("target", ["a", "lease"])
def test_revoked_leases_end_with_notice_and_do_not_come_back_at_once(target: str) -> None:
    bench = leased("a")
    lease_id = bench.arbiter.state.ledger.of_job("a")[0].lease_id
    answer, effects = ask(bench, AdminVerb.REVOKE, lease_id if target == "lease" else "a")
    assert answer.is_done
    (drain,) = (e for e in effects if isinstance(e, RequestDrain))
    assert len(drain.lease_ids) == (1 if target == "lease" else 4)
    assert drain.deadline_ms == bench.now + NOTICE
    assert causes(bench) == {Cause.REVOKED}
    found = tuple(container(k, "a", "n0", ended=True) for k in range(4)) if target == "a" else ()
    bench.report(bench.now + 500, job("a", 4), containers=found, seq=bench.arbiter.state.update_seq)
    bench.wake(bench.now + 500, Timer.ROUND)
    assert not [
        x for x in bench.arbiter.state.ledger.of_job("a") if x.state is LeaseState.PENDING or x.state is LeaseState.GRANTED
    ]
    assert bench.arbiter.state.jobs["a"].retry_ms >= LEASE


def test_promises_are_revoked_too() -> None:
    bench = leased("a", "b")
    bench.report(2_000, job("c", 8, work=2e4, at=1_000))
    bench.wake(GRID, Timer.GRID)
    promised = [x for x in bench.arbiter.state.ledger.of_job("c") if bench.arbiter.state.ledger.is_next(x)]
    assert promised, bench.states()
    answer, _ = ask(bench, AdminVerb.REVOKE, "c")
    assert answer.is_done
    assert "c" not in bench.states()


def test_drained_node_gets_nothing_new_and_is_empty_after_its_lease() -> None:
    bench = leased("a")
    node = bench.arbiter.state.ledger.of_job("a")[0].node_of_gpu
    answer, _ = ask(bench, AdminVerb.DRAIN, node)
    assert answer.is_done
    assert bench.states() == {"a": ["active"] * 4}, "nothing ends before its time"
    bench.report(2_000, job("b", 8))
    bench.wake(bench.now + 500, Timer.ROUND)
    assert {x.node_of_gpu for x in bench.arbiter.state.ledger.of_job("b")} == {"n0", "n1"} - {node}
    bench.wake(GRID, Timer.GRID)
    assert Cause.NODE_DRAINED in causes(bench)
    assert not [x for x in bench.arbiter.state.ledger if x.node_of_gpu == node and x.state is not LeaseState.DRAINING]
    assert ask(bench, AdminVerb.UNDRAIN, node)[0].is_done
    assert not bench.arbiter.state.is_out_of_service(node)


def test_weight_counts_from_now_on() -> None:
    bench = Bench().up(job("a", 8), job("b", 8))
    before = bench.arbiter.state.t_independent_ms(bench.arbiter.state.apps["a"])
    answer, _ = ask(bench, AdminVerb.SET_WEIGHT, "a", 3.0)
    assert answer.is_done
    assert "3 instead of 1" in answer.text
    assert bench.arbiter.state.apps["a"].weight == 3.0
    assert bench.arbiter.state.t_independent_ms(bench.arbiter.state.apps["a"]) < before


def test_a_weight_that_changes_nothing_yet_says_so() -> None:
    mine = [replace(job(name, 8), user="ann", queue="root.a") for name in ("a", "a2")]
    bench = Bench(replace(SHORT, share_by=ShareBy.USER)).up(mine[0], replace(job("b", 8), user="bob"))
    answer, _ = ask(bench, AdminVerb.SET_WEIGHT, "a", 3.0)
    assert answer.is_done
    assert answer.text.endswith("changes nothing yet, since no other live app draws on the share of 'ann'")
    bench.report(2_000, mine[1])
    answer, _ = ask(bench, AdminVerb.SET_WEIGHT, "a", 2.0)
    assert answer.text == "the weight of a is 2 instead of 3, from now on"


def test_weights_of_what_is_no_app_are_refused_with_what_to_do() -> None:
    named = replace(job("application_1_0001", 8), app_id="ann/app", user="ann", queue='root."q"')
    bench = Bench().up(named)
    for target, says in (
        ("application_1_0001", "'application_1_0001' is a job of the app 'ann/app', and weights are apps': name that one"),
        ("ann", 'one of the users is: users have theirs in the arbiter\'s file: weight in [users."ann"]'),
        ('root."q"', 'weight in [queues."root.\\"q\\""]'),
        ("bob", "no live app is called 'bob'; see `themis apps`"),
    ):
        answer, _ = ask(bench, AdminVerb.SET_WEIGHT, target, 2.0)
        assert (answer.is_done, says in answer.text) == (False, True), answer.text


def test_looking_on_gives_all_leases_up_and_touches_nothing_that_runs() -> None:
    bench = leased("a")
    answer, effects = ask(bench, AdminVerb.OBSERVE_ONLY, value=1.0)
    assert answer.is_done
    assert bench.states() == {}
    assert not of_type(effects, RequestDrain)
    (sync,) = (e for e in effects if isinstance(e, SyncLeases))
    assert (sync.leases, sync.is_observing) == ((), True)
    bench.wake(GRID, Timer.GRID)
    (record,) = list(bench.arbiter.state.rounds)[-1:]
    assert record["moves"] == {}
    assert sum(len(moves) for moves in record["would"].values()) > 0
    answer, effects = ask(bench, AdminVerb.OBSERVE_ONLY, value=0.0)
    assert answer.is_done
    assert [e.is_observing for e in effects if isinstance(e, SyncLeases)] == [False]
    bench.report(bench.now + 200, seq=bench.arbiter.state.update_seq)
    assert len(bench.states()["a"]) == 4
    assert {x.cause for x in bench.arbiter.state.ledger} == {Cause.ADOPTED}


@pytest.mark.parametrize(
    ("verb", "target", "value", "text"),
    [
        (AdminVerb.RESUME, "", 0.0, "not paused"),
        (AdminVerb.REVOKE, "nobody", 0.0, "no live lease, app or job is called 'nobody'"),
        (AdminVerb.DRAIN, "n9", 0.0, "no node is called 'n9'"),
        (AdminVerb.UNDRAIN, "n0", 0.0, "not being drained"),
        (AdminVerb.SET_WEIGHT, "nobody", 1.0, "no live app is called 'nobody'"),
        (AdminVerb.SET_WEIGHT, "a", 0.0, "a weight lies between"),
        (AdminVerb.SET_WEIGHT, "a", -1.0, "a weight lies between"),
        (AdminVerb.SET_WEIGHT, "a", WEIGHT_MAX * 2, "a weight lies between"),
        (AdminVerb.SET_WEIGHT, "a", WEIGHT_MIN / 2, "a weight lies between"),
        (AdminVerb.OBSERVE_ONLY, "", 0.0, "it leases already"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(verb: AdminVerb, target: str, value: float, text: str) -> None:
    bench = leased("a")
    before = bench.states()
    answer, effects = ask(bench, verb, target, value)
    assert not answer.is_done
    assert text in answer.text
    assert effects == [answer]
    assert bench.states() == before


@pytest.mark.parametrize(
    ("verb", "target", "value"),
    [(AdminVerb.PAUSE, "", 0.0), (AdminVerb.DRAIN, "n0", 0.0), (AdminVerb.OBSERVE_ONLY, "", 1.0)],
)
def test_twice_is_refused(verb: AdminVerb, target: str, value: float) -> None:
    bench = leased("a")
    assert ask(bench, verb, target, value)[0].is_done
    assert not ask(bench, verb, target, value)[0].is_done


def test_what_was_set_outlives_the_arbiter_through_the_store() -> None:
    bench, store = leased("a"), MemoryStore(MemoryDisk(epoch=1))
    for verb, target, value in (
        (AdminVerb.PAUSE, "", 0.0),
        (AdminVerb.DRAIN, "n1", 0.0),
        (AdminVerb.SET_WEIGHT, "a", 2.5),
        (AdminVerb.OBSERVE_ONLY, "", 1.0),
    ):
        _, effects = ask(bench, verb, target, value)
        for effect in effects:
            if isinstance(effect, PersistLeases):
                store.commit(effect.batch)
    stored = store.load()
    second = Bench()
    second.at(0, EpochAcquired(at_ms=0, epoch=2, leases=stored.leases, admin=stored.admin))
    second.at(0, RmAttached(at_ms=0, start_id="s1"))
    second.at(
        0,
        RmReported(at_ms=0, start_id="s1", is_full=True, nodes=tuple(bench.arbiter.state.nodes.values()), jobs=(job("a", 4),)),
    )
    admin = second.arbiter.state.admin
    assert admin == bench.arbiter.state.admin
    assert (admin.is_paused, admin.is_observing, admin.drained, admin.weights) == (True, True, ("n1",), (("a", 2.5),))
    assert second.arbiter.state.apps["a"].weight == 2.5
    assert second.arbiter.state.is_out_of_service("n1")
    assert not ask(second, AdminVerb.PAUSE)[0].is_done


def test_an_app_that_lives_and_holds_nothing_has_nothing_to_revoke() -> None:
    bench = leased("a")
    bench.report(2_000, job("b", 100))
    assert ask(bench, AdminVerb.REVOKE, "b")[0].text == "b holds no leases"
    assert "no live lease" in ask(bench, AdminVerb.REVOKE, "nobody")[0].text


def test_a_revoke_that_nobody_can_be_told_of_says_that_it_waits() -> None:
    bench = leased("a")
    bench.at(bench.now, RmDetached(at_ms=bench.now, start_id="s1"))
    assert "after a ResourceManager's bridge is attached again" in ask(bench, AdminVerb.REVOKE, "a")[0].text
    lines = explain(bench.arbiter, "a", bench.now)
    assert lines is not None
    assert not [x for x in lines if "is killed" in x]


def test_a_drain_while_paused_says_that_leases_are_renewed_until_auctions_go_on() -> None:
    bench = leased("a")
    ask(bench, AdminVerb.PAUSE)
    (node,) = {x.node_of_gpu for x in bench.arbiter.state.ledger}
    assert "not renewed once auctions are held again" in ask(bench, AdminVerb.DRAIN, node)[0].text
    lines = explain(bench.arbiter, "a", bench.now)
    assert lines is not None
    assert f"{node} is being drained by an admin: leases on it are not renewed once auctions are held again." in lines


def test_while_observing_what_runs_is_shown_and_drained_nodes_are_left_out() -> None:
    bench = leased("a")
    ask(bench, AdminVerb.OBSERVE_ONLY, value=1.0)
    (view,) = apps(bench.arbiter, bench.now)
    assert (view.state, view.gpus_held, view.jobs[0].gpus_held) == (AppState.RUNNING, 4, 4)
    (node,) = bench.arbiter.state.usage["a"]
    assert "on 4 of its GPUs" in ask(bench, AdminVerb.DRAIN, node)[0].text
    bench.wake(GRID, Timer.GRID)
    assert bench.arbiter.state.rounds[-1]["would"]["keep"] == {}
