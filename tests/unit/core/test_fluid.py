"""The ideal fluid share against hand-made cases and a naive twin that walks in tiny steps."""

import random
from dataclasses import replace

import pytest

from tests.support.naive_fluid import NaiveApp, naive_finishes
from themis_arbiter.core.fluid import REWIND_MS, FluidApp, FluidShare
from themis_arbiter.core.types import CoreError


def app(name: str, arrival: int, work: float, parallelism: float, weight: float = 1.0) -> FluidApp:
    return FluidApp(app_id=name, arrival_ms=arrival, work=work, left=work, parallelism=parallelism, weight=weight)


def share(gpus: int, *apps: FluidApp) -> FluidShare:
    fluid = FluidShare()
    fluid.set_gpus(gpus, 0)
    for each in apps:
        fluid.join(each)
    return fluid


def test_one_app_runs_on_all_it_can_use() -> None:
    assert share(8, app("a", 0, 8_000, 4)).fair_finishes()["a"] == pytest.approx(2_000)


def test_equal_apps_share_equally_and_what_one_cannot_use_goes_to_the_other() -> None:
    ends = share(8, app("a", 0, 4_000, 8), app("b", 0, 4_000, 8)).fair_finishes()
    assert ends == {"a": pytest.approx(1_000), "b": pytest.approx(1_000)}
    ends = share(8, app("a", 0, 2_000, 2), app("b", 0, 6_000, 8)).fair_finishes()
    assert ends == {"a": pytest.approx(1_000), "b": pytest.approx(1_000)}


def test_weights_and_a_late_arrival() -> None:
    ends = share(8, app("a", 0, 12_000, 8, weight=3.0), app("b", 0, 4_000, 8)).fair_finishes()
    assert ends == {"a": pytest.approx(2_000), "b": pytest.approx(2_000)}
    ends = share(8, app("a", 0, 12_000, 8), app("b", 1_000, 2_000, 8)).fair_finishes()
    assert ends == {"a": pytest.approx(1_750), "b": pytest.approx(1_500)}


def test_without_gpus_nobody_finishes_until_some_come() -> None:
    fluid = share(0, app("a", 0, 4_000, 4))
    assert fluid.fair_finishes()["a"] == float("inf")
    fluid.set_gpus(4, 500)
    assert fluid.fair_finishes()["a"] == pytest.approx(1_500)


def test_a_late_known_arrival_counts_from_its_own_time() -> None:
    known_late = share(8, app("a", 0, 80_000, 8))
    known_late.advance(9_000)
    known_late.join(app("b", 2_000, 20_000, 8))
    in_time = share(8, app("a", 0, 80_000, 8), app("b", 2_000, 20_000, 8))
    assert known_late.fair_finishes() == pytest.approx(dict(in_time.fair_finishes()))


def test_a_declaration_replaced_early_counts_from_the_start_and_later_from_now() -> None:
    early = share(8, app("a", 0, 8_000, 8))
    early.redeclare("a", 16_000, 4, 500)
    assert early.fair_finishes()["a"] == pytest.approx(4_000)
    late = share(8, app("a", 0, 8_000, 8))
    now = REWIND_MS + 10_000
    late.advance(now)
    assert late.fair_finishes()["a"] == pytest.approx(1_000)
    late.redeclare("a", 16_000, 8, now)  # had finished: re-enters with what was added
    assert late.fair_finishes()["a"] == pytest.approx(now + 1_000)


def test_who_grows_after_what_can_be_rewound_uses_from_then_on_what_it_then_can() -> None:
    now = REWIND_MS + 10_000
    fluid = share(8, app("a", 0, 2.0 * now, 1), app("b", 0, 80.0 * now, 8))  # half of a's work is done by then, on one GPU
    fluid.advance(now)
    fluid.redeclare("a", 5.0 * now, 4, now)
    assert fluid.fair_finishes()["a"] == pytest.approx(2 * now)  # 4 of its 5 parts are left, on 4 GPUs
    fluid.redeclare("a", 5.0 * now, 2, now)  # and no more than it can use, where that is less
    assert fluid.fair_finishes()["a"] == pytest.approx(3 * now)


def test_an_ended_app_is_forgotten_only_when_nothing_can_move_its_finish() -> None:
    fluid = share(8, app("a", 0, 8_000, 8))
    assert fluid.forget("a", 2_000) is None
    fluid.advance(REWIND_MS + 500)
    assert fluid.forget("a", REWIND_MS + 500) is None
    fluid.advance(REWIND_MS + 2_000)
    assert fluid.forget("a", REWIND_MS + 2_000) == pytest.approx(1_000)
    assert "a" not in fluid.fair_finishes()


@pytest.mark.parametrize("bad", [app("a", 0, 0, 1), app("a", 0, 1, 0), app("a", 0, 1, 1, weight=0)])
def test_numbers_that_make_no_sense_are_refused(bad: FluidApp) -> None:
    with pytest.raises(CoreError, match="must be above 0"):
        FluidShare().join(bad)


def test_owners_share_first_and_leave_to_others_only_what_all_their_apps_cannot_use() -> None:
    alice, bob = (("alice", 1.0),), (("bob", 1.0),)
    one = replace(app("a1", 0, 4_000, 8), owners=alice)
    two = replace(app("a2", 0, 4_000, 8), owners=alice)
    ends = share(8, one, two, replace(app("b", 0, 4_000, 8), owners=bob)).fair_finishes()
    assert ends == {"b": pytest.approx(1_000), "a1": pytest.approx(1_500), "a2": pytest.approx(1_500)}
    # a1 can use 1 GPU only: the other 3 of alice's share are a2's, not bob's.
    ends = share(8, replace(one, parallelism=1), two, replace(app("b", 0, 4_000, 8), owners=bob)).fair_finishes()
    assert ends["b"] == pytest.approx(1_000)
    assert ends["a2"] < ends["a1"]


def test_who_moves_to_another_owner_shares_with_it_from_then_on() -> None:
    alice, bob = (("alice", 1.0),), (("bob", 1.0),)
    apps = [replace(app(name, 0, 8_000, 8), owners=owner) for name, owner in [("a", alice), ("b", bob), ("c", bob)]]
    fluid = share(8, *apps)
    fluid.reweigh("c", 1.0, (("carol", 1.0),), 1_000)  # up to now 4, 2, 2 GPUs, now a third for each
    assert fluid.fair_finishes()["a"] == pytest.approx(1_000 + 4_000 / (8 / 3))


@pytest.mark.parametrize("seed", range(24))
def test_the_model_agrees_with_a_naive_twin(seed: int) -> None:
    chance = random.Random(seed)
    queues = [("q0", 1.0), ("q1", 2.0)]
    users = [("u0", 1.0), ("u1", 3.0)]
    levels = [[], [queues], [queues, users]][seed % 3]
    gpus = chance.choice([4, 8, 12])
    apps = [
        replace(
            app(
                f"a{k}",
                chance.randrange(0, 20_000),
                chance.uniform(20_000, 200_000),
                chance.uniform(1, gpus),
                chance.choice([1.0, 2.0, 0.5]),
            ),
            owners=tuple(chance.choice(level) for level in levels),
        )
        for k in range(chance.randint(1, 5))
    ]
    fluid = FluidShare(rewind_ms=chance.choice([0, 5_000, REWIND_MS]))
    fluid.set_gpus(gpus, 0)
    for each in sorted(apps, key=lambda a: a.arrival_ms):
        fluid.advance(each.arrival_ms)
        fluid.join(each)
    ends = fluid.fair_finishes()
    twins = [NaiveApp(a.app_id, a.arrival_ms, a.work, a.parallelism, a.weight, a.owners) for a in apps]
    for name, naive in naive_finishes(twins, gpus, 10.0).items():
        assert ends[name] == pytest.approx(naive, rel=0.001, abs=25), name
    fluid.advance(10_000_000)
    assert dict(fluid.fair_finishes()) == pytest.approx(dict(ends))
