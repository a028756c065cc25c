"""GPU types in one round: how many may be promised, where jobs are put, what bids ask for, who is urgent."""

from dataclasses import replace

import pytest

from tests.support.markets import HOUR, SLOW, app, job, market
from themis_arbiter.core.bidding import build_bid
from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.holes import Holes
from themis_arbiter.core.policies.pools import Pools
from themis_arbiter.core.rho import regrets_of
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuSpeeds, JobId

# Two racks, each with a machine of V100s and one of K80s.
MIXED = Topology(
    tuple(Machine(name=f"{gpu_type}{k}", rack=f"r{k}", gpus=4, gpu_type=gpu_type) for k in range(2) for gpu_type in ("k", "v"))
)
BOTH: GpuSpeeds = (("k", 0.25), ("v", 1.0))
FAST: GpuSpeeds = (("v", 1.0),)
OLD: GpuSpeeds = (("k", 0.5),)


def typed(*apps: MarketApp) -> Market:
    """The market of these apps, with the room that their types leave them, as core.market_view has it."""
    plain = market(MIXED, *apps, is_typed=True)
    room = {}
    for one in plain.jobs.values():
        speeds = plain.speeds(one)
        if speeds is not None:
            sizes = {name: len(gpus) for name, gpus in plain.supply.by_machine.items()}
            room[one.job_id] = {name: n if speeds.of_machine[name] else 0 for name, n in sizes.items()}
    return replace(plain, supply=replace(plain.supply, room=room))


def given(arena: Market, order: list[MarketJob]) -> dict[JobId, tuple[str, ...]]:
    hand_out = HandOut(arena, arena.supply.gpus)
    hand_out.run(in_order(order))
    return hand_out.given


def test_shares_leave_everybody_a_place_by_type() -> None:
    fast, old, both, free = (
        job(f"{name}/1", gpu_speeds=speeds) for name, speeds in (("f", FAST), ("o", OLD), ("b", BOTH), ("n", ()))
    )
    pools = Pools(typed(app(fast), app(old), app(both), app(free)), MIXED.places)
    assert [pools.room(j) for j in (fast, old, both, free)] == [8, 8, 16, 16]
    pools.promise(both, 10)  # two of them have to be of the other type, whichever they are
    assert [pools.room(j) for j in (fast, old, both, free)] == [6, 6, 6, 6]
    pools.promise(fast, 6)
    assert [pools.room(j) for j in (fast, old, both, free)] == [0, 0, 0, 0]
    some = Pools(typed(app(fast), app(old)), ["k0:0", "v0:0", "v0:1"])
    assert [some.room(j) for j in (fast, old)] == [2, 1]
    nothing = replace(fast, gpu_speeds=(("t4", 1.0),))
    assert some.room(nothing) == 0


def test_a_gang_is_put_where_it_is_fastest_distance_counted_in() -> None:
    arena = typed(app(job("a/1")))
    holes = Holes(arena.supply, MIXED.places, SLOW)
    # Eight V100s lie in two racks, which costs `slow` 2 of 1.6 at best, and are still faster than a rack of both types.
    assert holes.find(job("a/1", gang=8, model="slow", gpu_speeds=BOTH), 8) == tuple(
        f"v{k}:{n}" for k in range(2) for n in range(4)
    )
    # Nearly as fast on K80s it stays in one rack: .9 / 1.6 > 1 / 2.
    near = job("a/1", gang=8, model="slow", gpu_speeds=(("k", 0.9), ("v", 1.0)))
    assert holes.find(near, 8) == tuple(f"{t}0:{n}" for t in "kv" for n in range(4))
    # Equally fast on both it takes one type, and leaves the other whole.
    same = job("a/1", gang=4, gpu_speeds=(("k", 0.5), ("v", 0.5)))
    assert holes.find(same, 4) == ("k0:0", "k0:1", "k0:2", "k0:3")


def test_what_would_slow_a_job_goes_to_the_next_in_line() -> None:
    wide, other = job("a/1", gang=1, wanted=16, gpu_speeds=BOTH), job("b/1", gang=1, wanted=16, gpu_speeds=OLD)
    got = given(typed(app(wide), app(other)), [wide, other])
    assert {g[0] for g in got["a/1"]} == {"v"}
    assert {g[0] for g in got["b/1"]} == {"k"}
    assert [len(got[j]) for j in ("a/1", "b/1")] == [8, 8]


def test_a_long_line_for_one_type_does_not_leave_the_other_idle() -> None:
    line = [job(f"f{k:03}/1", gang=1, gpu_speeds=FAST) for k in range(300)]
    last = job("z/1", gang=1, gpu_speeds=OLD)
    got = given(typed(*(app(j) for j in (*line, last))), [*line, last])
    assert len(got) == 9
    assert got["z/1"][0][0] == "k"


def test_bids_have_rows_by_type_and_on_any_where_one_is_too_few() -> None:
    small = job("a/1", 0.05, gang=4, gpu_speeds=BOTH)
    rows = build_bid(typed(app(small)), app(small)).rows[1:]
    assert {row.parts[0].types for row in rows} == {("v",), ("k",)}
    left_ms = {row.parts[0].types: row.rho * 2 * HOUR - HOUR for row in rows}
    assert left_ms == {("v",): pytest.approx(45_000), ("k",): pytest.approx(180_000)}
    large = job("b/1", 0.05, gang=12, gpu_speeds=BOTH)
    rows = build_bid(typed(app(large)), app(large)).rows[1:]
    assert () in {row.parts[0].types for row in rows}
    assert min(row.rho for row in rows if row.parts[0].types == ()) == pytest.approx((HOUR + 60_000) / (2 * HOUR))
    # A long job would rather wait a lease for V100s; K80s it gets where they are left over.
    long = job("d/1", 1.0, gang=4, gpu_speeds=BOTH)
    assert {row.parts[0].types for row in build_bid(typed(app(long)), app(long)).rows[1:]} == {("v",)}
    none = job("c/1", 1.0, gpu_speeds=(("t4", 1.0),))
    assert len(build_bid(typed(app(none)), app(none)).rows) == 1


def test_who_runs_on_slow_gpus_is_no_more_urgent_for_it() -> None:
    def regret_on(*gpus: str) -> float:
        one = job("a/1", gang=4, ending=gpus, gpu_speeds=BOTH)
        return regrets_of(typed(app(one)))[one.job_id]

    slow, fast = (regret_on(*(f"{name}:{k}" for k in range(4))) for name in ("k0", "v0"))
    assert slow == fast
