"""The fluid share of a cluster with several GPU types, by hand."""

from dataclasses import replace
from random import Random

import pytest

from themis_arbiter.core.fluid import FluidApp, FluidShare, fair_rates
from themis_arbiter.core.fluid_types import order_of, orders_of, share_rate, typed_rates
from themis_arbiter.core.gpu_speeds import speed_on
from themis_arbiter.core.types import GpuSpeeds

TYPES = (("k80", 2), ("v100", 2))
BOTH: GpuSpeeds = (("k80", 0.5), ("v100", 1.0))
FAST: GpuSpeeds = (("v100", 1.0),)
OLD: GpuSpeeds = (("k80", 0.5),)


def app(name: str, work: float, parallelism: float, speeds: GpuSpeeds, weight: float = 1.0) -> FluidApp:
    return FluidApp(app_id=name, arrival_ms=0, work=work, left=work, parallelism=parallelism, weight=weight, speeds=speeds)


def finishes(*apps: FluidApp, types: tuple[tuple[str, int], ...] = TYPES) -> dict[str, float]:
    fluid = FluidShare()
    fluid.set_gpus(float(sum(count for _, count in types)), 0, types)
    for each in apps:
        fluid.join(each)
    return dict(fluid.fair_finishes())


def test_each_has_its_part_of_every_type_that_it_can_use() -> None:
    # x is due one GPU of each type (rate 1 + .5), y half of the V100s, z half of the K80s; x ends at 1200 / 1.5 = 800. Then y
    # has both V100s, its other 400 take 200 more; z has done 400 and has both K80s for the other 800.
    ends = finishes(app("x", 1_200, 2, BOTH), app("y", 1_200, 2, FAST), app("z", 1_200, 2, OLD))
    assert ends == {"x": pytest.approx(800), "y": pytest.approx(1_000), "z": pytest.approx(1_600)}


def test_the_fastest_type_comes_first_and_what_is_left_goes_to_the_others() -> None:
    # a can use one GPU: a V100, of which it is due one. b is due the other one and both K80s, since a takes none of them.
    ends = finishes(app("a", 1_000, 1, BOTH), app("b", 2_000, 4, BOTH))
    assert ends == {"a": pytest.approx(1_000), "b": pytest.approx(1_000)}


def test_weights_count_in_every_type() -> None:
    # Of 2 V100s at 3 : 1 a has 1.5; of 2 K80s as much. Rates 2.25 and .75; at 1000 both are done.
    ends = finishes(app("a", 2_250, 9, BOTH, weight=3.0), app("b", 750, 9, BOTH))
    assert ends == {"a": pytest.approx(1_000), "b": pytest.approx(1_000)}


def test_who_can_use_nothing_that_there_is_never_ends_and_takes_nothing_from_others() -> None:
    ends = finishes(app("a", 2_000, 2, (("a100", 1.0),)), app("b", 2_000, 2, FAST))
    assert ends == {"a": float("inf"), "b": pytest.approx(1_000)}


def test_owners_divide_every_type_first() -> None:
    ann, bob = (("ann", 1.0),), (("bob", 1.0),)
    one, two = (replace(app(n, 1_000, 9, FAST), owners=ann) for n in ("a", "b"))
    # Ann's two apps have one V100 between them, Bob's one; when he is done theirs take the other half of both.
    ends = finishes(one, two, replace(app("c", 1_000, 9, FAST), owners=bob))
    assert ends == {"a": pytest.approx(1_500), "b": pytest.approx(1_500), "c": pytest.approx(1_000)}


def test_with_one_type_it_is_the_share_by_water_filling() -> None:
    for seed in range(50):
        chance = Random(seed)
        apps = [app(f"a{k}", 1.0, chance.uniform(0.5, 9), (), chance.uniform(0.1, 3)) for k in range(chance.randint(1, 8))]
        gpus = chance.randint(1, 16)
        types = (("any", gpus),)
        plain = fair_rates(apps, float(gpus))
        rates = typed_rates(
            [a.parallelism for a in apps], [a.weight for a in apps], [()] * len(apps), [order_of((), types)] * len(apps), types
        )
        assert rates == pytest.approx([plain[a.app_id] for a in apps])


def test_one_part_of_the_whole() -> None:
    assert share_rate(BOTH, TYPES, 1.0, 2.0, 9.0) == pytest.approx(1.5)
    assert share_rate(BOTH, TYPES, 1.0, 2.0, 1.0) == pytest.approx(1.0)
    assert share_rate((), (("", 8),), 1.0, 4.0, 9.0) == 2.0


def test_speeds_that_become_known_later_count_from_then_on() -> None:
    fluid = FluidShare(rewind_ms=0)
    fluid.set_gpus(4.0, 0, TYPES)
    fluid.join(app("a", 2_000, 2, ()))
    fluid.advance(500)
    fluid.redeclare("a", 2_000, 2, 500, OLD)  # 1,000 done at rate 2; the rest at 2 x .5
    assert fluid.fair_finishes()["a"] == pytest.approx(1_500)


def test_nobody_gets_less_than_its_part_of_all_that_it_can_use_and_no_type_gives_more_than_it_has() -> None:
    for seed in range(200):
        chance = Random(f"{seed}/parts")
        types = tuple((name, chance.randint(1, 12)) for name in ("a", "b", "c")[: chance.randint(1, 3)])
        count = chance.randint(1, 7)
        declared: list[GpuSpeeds] = [
            tuple((name, chance.choice([0.0, 0.5, 1.0, 2.0])) for name, _ in types) if chance.random() < 0.8 else ()
            for _ in range(count)
        ]
        caps = [chance.choice([0.5, 2.0, 5.0, 50.0]) for _ in range(count)]
        weights = [chance.uniform(0.2, 3.0) for _ in range(count)]
        orders = [order_of(speeds, types) for speeds in declared]
        rates = typed_rates(caps, weights, [()] * count, orders, types)
        for speeds, cap, weight, rate in zip(declared, caps, weights, rates, strict=True):
            assert rate >= share_rate(speeds, types, weight, sum(weights), cap) - 1e-9, seed
            assert rate <= cap * max([s for _, s in order_of(speeds, types)], default=0.0) + 1e-9, seed
        most = sum(gpus * max([dict(order).get(k, 0.0) for order in orders]) for k, (_, gpus) in enumerate(types))
        assert sum(rates) <= most + 1e-9, seed
        # With no end to what anybody can use, all that somebody can use is in use.
        flat = [[(k, 1.0) for k, _ in order] for order in orders]
        usable = {k for order in flat for k, _ in order}
        everything = sum(typed_rates([1e9] * count, weights, [()] * count, flat, types))
        assert everything == pytest.approx(sum(types[k][1] for k in usable)), seed


def test_what_a_few_types_mean_is_not_asked_of_thousands_nor_of_each_app(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(speeds: GpuSpeeds, name: str) -> float:
        asked.append(name)
        return speed_on(speeds, name)

    monkeypatch.setattr("themis_arbiter.core.fluid_types.speed_on", counted)
    types = tuple((f"t{k:05d}", 1) for k in range(10_000))
    some: GpuSpeeds = (("gone", 1.0), ("t00002", 0.5), ("t09999", 1.0), ("t00005", 0.0))
    assert orders_of([some] * 50, types) == [[(9_999, 1.0), (2, 0.5)]] * 50
    assert not asked
    assert order_of((("*", 0.5), ("t00003", 1.0)), types)[:3] == [(3, 1.0), (0, 0.5), (1, 0.5)]
