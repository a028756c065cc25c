"""Declarations of speeds by GPU type, and what they mean in a cluster."""

import pytest

from themis_arbiter.core.gpu_speeds import (
    TYPES_MAX,
    Reach,
    as_text,
    checked_speeds,
    gpus_for,
    merged,
    parse_speeds,
    reach_of,
    speed_on,
)
from themis_arbiter.core.topology import Machine, Topology

BOTH = (("k80", 0.25), ("v100", 1.0))
CLUSTER = Topology(
    (
        Machine(name="a", rack="r", gpus=4, gpu_type="V100"),
        Machine(name="b", rack="r", gpus=2, gpu_type="k80"),
        Machine(name="c", rack="r", gpus=8, gpu_type=""),
    )
)


def test_a_declaration_is_read_as_it_is_written() -> None:
    assert parse_speeds("V100=1; k80 = .25") == BOTH
    assert parse_speeds("a100=1e-3;t4=0.00e5") == (("a100", 0.001), ("t4", 0.0))
    assert parse_speeds(as_text(BOTH)) == BOTH


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("v100", "type=speed"),
        ("v100=1;", "type=speed"),
        ("v100=", "not a number"),
        ("v100=nan", "not a number"),
        ("v100=inf", "not a number"),
        ("v100=-1", "between 0.001 and 1000"),
        ("v100=1_0", "not a number"),
        ("v100=\u0661", "not a number"),
        ("v100=1001", "be 0 .* or lie between 0.001 and 1000"),
        ("v100=0.000999", "be 0 .* or lie between 0.001 and 1000"),
        ("v100=1e308", "between 0.001 and 1000"),
        ("v100=1e999", "between 0.001 and 1000"),
        ("v100=1e-300", "between 0.001 and 1000"),
        ("v100=1e-999", "between 0.001 and 1000"),
        ("v100=" + "1" * 41, "not a number of at most 40 signs"),
        ("v100=9e99", "between 0.001 and 1000"),
        ("v100=1;V100=2", "twice"),
        ("v100=0;k80=0", "above 0"),
        ("*=1", "no name"),
        ("v 100=1", "no name"),
        ("=1", "no name"),
        ("None=1", "no type may be called 'none'"),
        ("v" * 200 + "=1", "has 200 signs, at most 40 are allowed"),
        (";".join(f"t{k}=1" for k in range(TYPES_MAX + 1)), "at most"),
    ],
)
def test_a_declaration_that_makes_no_sense_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_speeds(text)


def test_an_empty_mapping_and_numbers_that_are_none_are_refused() -> None:
    for bad in ({}, {"v100": float("nan")}, {"v100": float("inf")}, {"v100": -0.5}, {"A": 1.0, "a": 1.0}):
        with pytest.raises(ValueError, match=r"names no type|between|case"):
            checked_speeds(bad)


def test_who_declares_any_may_have_only_what_is_named_and_above_0() -> None:
    speeds = CLUSTER.speeds((("k80", 0.0), ("v100", 2.0)))
    assert speeds is not None
    assert dict(speeds.of_machine) == {"a": 2.0, "b": 0.0, "c": 0.0}
    assert [speeds.is_usable(g) for g in ("a:3", "b:0", "c:7", "gone:0")] == [True, False, False, False]
    assert (speeds.usable, speeds.levels, speeds.bands) == (4, (2.0,), (("v100", 2.0),))


def test_a_gang_goes_at_the_speed_of_its_slowest_gpu() -> None:
    speeds = CLUSTER.speeds(BOTH)
    assert speeds is not None
    assert speeds.slowest(("a:0", "a:1")) == 1.0
    assert speeds.slowest(("a:0", "b:1")) == 0.25
    assert speeds.slowest(()) == 1.0
    assert speeds.slowest(("c:0",)) == 0.25  # adopted: it runs there, so it counts as the slowest that may be
    assert [speeds.best(n) for n in (1, 4, 5, 6, 7)] == [1.0, 1.0, 0.25, 0.25, 0.25]


def test_nothing_is_told_apart_where_all_run_at_speed_1() -> None:
    assert CLUSTER.speeds(()) is None
    assert Topology((Machine(name="a", rack="r", gpus=4, gpu_type="V100"),)).speeds(BOTH) is None
    nothing = Topology((Machine(name="a", rack="r", gpus=4, gpu_type="t4"),)).speeds(BOTH)
    assert nothing is not None
    assert (nothing.usable, nothing.slowest(("a:0",)), nothing.best(1)) == (0, 1.0, 1.0)


def test_an_app_can_use_of_each_type_what_its_fastest_job_there_can() -> None:
    assert merged([BOTH, BOTH]) == BOTH
    assert merged([(), ()]) == ()
    of_two = merged([BOTH, (("k80", 0.5),)])
    assert of_two == (("k80", 0.5), ("v100", 1.0))
    mixed = merged([(("k80", 2.0),), ()])
    assert [speed_on(mixed, name) for name in ("k80", "t4", "V100")] == [2.0, 1.0, 1.0]


TYPES = (("", 4), ("k80", 8), ("v100", 8))


@pytest.mark.parametrize(
    ("gang", "most", "slow", "expected"),
    [
        (4, 4, 0.25, Reach(BOTH, 4, 4.0)),  # on V100s alone
        (16, 16, 0.25, Reach((("k80", 0.25), ("v100", 0.25)), 16, 4.0)),  # at the speed of its slowest
        (2, 16, 0.25, Reach(BOTH, 8, 8.0)),  # 8 x 1 > 16 x .25
        (2, 16, 0.75, Reach((("k80", 0.75), ("v100", 1.0)), 8 + 4 / 0.75, 12.0)),  # 16 x .75, as much as 13.3 fastest first
        (12, 16, 0.75, Reach((("k80", 0.75), ("v100", 0.75)), 16, 12.0)),
        (17, 17, 0.25, Reach(BOTH, 17, 17.0)),  # never: as it says
    ],
)
def test_a_gang_reaches_what_the_best_set_of_its_size_does(gang: int, most: int, slow: float, expected: Reach) -> None:
    reach = reach_of((("k80", slow), ("v100", 1.0)), gang, most, TYPES)
    assert (reach.speeds, reach.rate) == (expected.speeds, expected.rate)
    assert reach.gpus == pytest.approx(expected.gpus)
    assert reach.gpu_time(reach.rate) == pytest.approx(reach.gpus)


def test_who_declares_nothing_reaches_as_many_as_it_can_use_whatever_there_is() -> None:
    assert reach_of((), 2, 99, TYPES) == Reach((), 99, 99)


def test_the_fewest_gpus_for_a_rate() -> None:
    assert [gpus_for(BOTH, TYPES, rate) for rate in (3.0, 8.0, 9.0, 10.0, 99.0)] == [3, 8, 12, 16, 16]
