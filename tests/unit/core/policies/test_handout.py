"""Shares and places: what incumbents keep, when a job grows or moves, which holes are taken."""

from collections.abc import Sequence
from dataclasses import replace

from tests.support.markets import HOUR, SLOW, app, cluster, job, market
from themis_arbiter.core.auction.bid import Supply
from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.policies.handout import HandOut, in_order
from themis_arbiter.core.policies.holes import Holes
from themis_arbiter.core.policies.sharing import Sharing, fill
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, JobId, Locality

RACKS = cluster(("m0", "r0", 4), ("m1", "r0", 4), ("m2", "r1", 4))


def given(arena: Market, order: Sequence[MarketJob], choosers: Sequence[JobId] = ()) -> dict[JobId, tuple[GpuId, ...]]:
    hand_out = HandOut(arena, arena.supply.gpus)
    hand_out.run(in_order(order), choosers)
    return hand_out.given


def holes(topology: Topology, *taken: GpuId) -> Holes:
    free = tuple(sorted(g for g in topology.places if g not in taken))
    return Holes(Supply(topology, tuple(sorted(topology.places))), free, SLOW)


def test_the_machine_that_is_left_with_least_is_the_best_fit() -> None:
    assert holes(RACKS, "m0:0", "m0:1", "m1:0").find(job("a/1"), 2) == ("m0:2", "m0:3")
    assert holes(RACKS, "m0:0", "m0:1", "m1:0").find(job("a/1"), 3) == ("m1:1", "m1:2", "m1:3")


def test_a_gang_too_large_for_a_machine_stays_in_a_rack() -> None:
    found = holes(RACKS, "m0:0").find(job("a/1"), 6)
    assert found == ("m0:1", "m0:2", "m1:0", "m1:1", "m1:2", "m1:3")
    assert holes(RACKS, "m0:0").find(job("a/1"), 6, level_max=Locality.MACHINE) is None


def test_only_a_model_that_gains_by_a_slot_asks_for_one() -> None:
    slots = Topology(
        (
            Machine(name="m0", rack="r0", gpus=4, gpus_per_slot=2),
            Machine(name="m1", rack="r0", gpus=4, gpus_per_slot=2),
        )
    )
    slow_by_slot = job("a/1", model="slow")
    # On m0 one GPU of each slot is free, m1 is empty.
    assert holes(slots, "m0:1", "m0:3").find(slow_by_slot, 2) == ("m1:0", "m1:1")
    assert holes(slots, "m0:1", "m0:3").find(job("a/1"), 2) == ("m0:0", "m0:2")


def test_more_gpus_are_looked_for_beside_those_it_has() -> None:
    near = holes(RACKS, "m0:0", "m1:0", "m1:1")
    assert near.find(job("a/1"), 1, beside=("m1:0", "m1:1")) == ("m1:2",)
    assert near.find(job("a/1"), 3, beside=("m1:0", "m1:1")) == ("m0:1", "m1:2", "m1:3")


def test_containers_of_two_gpus_are_not_split_over_machines() -> None:
    odd = holes(RACKS, "m0:0", "m1:0", "m1:1", "m1:2", "m2:0")
    pair = job("a/1", gang=4, unit=2)
    assert odd.find(pair, 4) == ("m0:1", "m0:2", "m2:1", "m2:2")
    assert odd.find(pair, 6) is None
    assert odd.capacity(pair) == 4


def test_incumbents_stay_and_new_jobs_take_what_is_left() -> None:
    first = job("a/1", 1, gang=4)
    holder = job("b/1", 9, gang=4, ending=("m0:0", "m0:1", "m0:2", "m0:3"))
    arena = market(RACKS, app(first), app(holder))
    assert given(arena, [first, holder]) == {"a/1": ("m1:0", "m1:1", "m1:2", "m1:3"), "b/1": holder.ending}


def test_a_job_moves_only_where_that_repays_its_restart_within_a_lease() -> None:
    # Across racks it runs at 4 / 2 (model `slow`): in a lease of 300 s a move to one machine makes 4 x 260 of 2 x 300.
    spread = job("a/1", 9, gang=4, ending=("m0:0", "m0:1", "m2:0", "m2:1"), model="slow")
    other = job("b/1", 9, gang=1, ending=("m1:3",))
    arena = market(RACKS, app(spread), app(other))
    assert given(arena, [spread, other])["a/1"] in {("m0:0", "m0:1", "m0:2", "m0:3"), ("m2:0", "m2:1", "m2:2", "m2:3")}
    for dear in (replace(spread, restart_ms=151_000), replace(spread, lost=0.13 * HOUR)):
        assert given(market(RACKS, app(dear), app(other)), [dear, other])["a/1"] == spread.ending


def test_who_is_placed_afresh_on_its_machine_stays_on_its_gpus() -> None:
    """Three jobs on two machines; the one that lies across gets a machine, and only the one in its way moves."""
    halves = cluster(("m0", "r0", 2), ("m1", "r0", 2))
    left = job("a/1", 1, ending=("m0:0",))
    right = job("b/1", 1, ending=("m1:1",))
    across = job("c/1", 1, gang=2, ending=("m0:1", "m1:0"), model="slow")
    arena = market(halves, app(left), app(right), app(across))
    assert given(arena, [left, right, across]) == {"a/1": ("m1:0",), "b/1": ("m1:1",), "c/1": ("m0:0", "m0:1")}


def test_a_job_that_is_nearly_done_does_not_move() -> None:
    spread = job("a/1", 0.02, gang=4, ending=("m0:0", "m0:1", "m2:0", "m2:1"), model="slow")
    assert given(market(RACKS, app(spread)), [spread])["a/1"] == spread.ending  # 36 s of work left, a restart costs 40


def test_growth_has_to_repay_the_restart() -> None:
    # From 8 GPUs in a lease of 300 s with restarts of 40 s: b x 260 > 8 x 300 needs b >= 10.
    wide = cluster(("m0", "r0", 16))
    on = tuple(f"m0:{k}" for k in range(8))
    for wanted, total in ((9, 8), (10, 10), (16, 16)):
        grown = job("a/1", 90, gang=8, wanted=wanted, ending=tuple(sorted(on)))
        assert got_of(wide, grown) == total
    fresh = job("a/1", 90, gang=8, wanted=9, has_run=False)
    assert got_of(wide, fresh) == 9
    ending_soon = job("a/1", 0.05, gang=8, wanted=16, ending=tuple(sorted(on)))
    assert got_of(wide, ending_soon) == 8  # 22 s left


def got_of(topology: Topology, one: MarketJob) -> int:
    return len(given(market(topology, app(one)), [one])["a/1"])


def test_a_share_without_a_place_goes_to_the_next_in_line() -> None:
    topology = cluster(("m0", "r0", 1), ("m1", "r0", 1))
    pair = job("a/1", 1, gang=2, unit=2)
    single = job("b/1", 1, gang=1, wanted=2)
    arena = market(topology, app(pair), app(single))
    assert given(arena, [pair, single]) == {"b/1": ("m0:0", "m1:0")}


def test_a_container_gets_its_hole_though_small_incumbents_behind_it_sit_in_it() -> None:
    topology = cluster(("m0", "r0", 2), ("m1", "r0", 2))
    pair = job("a/1", 1, gang=2, unit=2)
    singles = [job(f"b/{k}", 1, ending=(f"m{k}:0",)) for k in range(2)]
    arena = market(topology, app(pair), app(*singles))
    result = given(arena, [pair, *singles])
    assert len(result["a/1"]) == 2
    assert len({g.split(":")[0] for g in result["a/1"]}) == 1
    assert sum(len(result[s.job_id]) for s in singles) == 2


def test_memory_limits_what_a_node_gives_to_a_job() -> None:
    one = job("a/1", 1, gang=1, wanted=8, has_run=False)
    arena = market(RACKS, app(one), room={"a/1": {"m0": 1, "m1": 0, "m2": 2}})
    assert given(arena, [one]) == {"a/1": ("m0:0", "m2:0", "m2:1")}


def test_steps_go_to_the_least_key_and_make_gangs_first() -> None:
    small, large = job("a/1", 1, gang=1, wanted=4), job("b/1", 1, gang=3, wanted=4)
    arena = market(RACKS, app(small), app(large))
    sharing = Sharing(arena, arena.supply.gpus[:7])
    fill(sharing, [small, large], lambda _job, has, _step: (has,))
    # a: 1, b: 3, then a twice up to 3 (ties to the first), and one is left for a.
    assert sharing.shares == {"a/1": 4, "b/1": 3}
    assert sharing.room == 0


def test_a_job_with_part_of_its_gang_only_asks_for_the_rest() -> None:
    part = job("a/1", 1, gang=4, held=("m0:0", "m0:1"), wanted=4)
    assert given(market(RACKS, app(part)), [part]) == {"a/1": ("m0:2", "m0:3")}


def test_a_decision_says_who_got_what() -> None:
    arena = market(RACKS, app(job("a/1", 1, gang=2, attained=HOUR)))
    hand_out = HandOut(arena, arena.supply.gpus)
    hand_out.run(in_order([arena.apps[0].jobs[0]]))
    assert hand_out.by_app() == {"a": {"a/1": ("m2:0", "m2:1")}}  # of the emptier rack least is left
    assert len(hand_out.free) == 10
