"""Winner determination on auctions small enough to solve by thought, and where the GPUs then are."""

from collections.abc import Mapping

import pytest

from themis_arbiter.core.auction.bid import Bid, Part, Row, Solution, Supply
from themis_arbiter.core.auction.market import Market
from themis_arbiter.core.auction.solver import solve
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import CoreError, JobId, Locality, NodeName

SLOT, MACHINE, RACK, CLUSTER = Locality


def cluster(*machines: tuple[str, str, int], slot: int = 0) -> Topology:
    return Topology(tuple(Machine(name=n, rack=r, gpus=g, gpus_per_slot=slot) for n, r, g in machines))


LIVE = cluster(("m1", "r1", 4), ("m2", "r2", 4), ("m3", "r1", 2), ("m4", "r2", 2))


def supply(topology: Topology = LIVE, room: Mapping[JobId, Mapping[NodeName, int]] | None = None) -> Supply:
    return Supply(topology, tuple(sorted(topology.places)), room or {})


def part(job: str, more: int, level: Locality = CLUSTER, keep: tuple[str, ...] = (), **more_of: object) -> Part:
    return Part(job_id=job, more=more, level=level, keep=keep, **more_of)  # type: ignore[arg-type]


def bid(app: str, *rows: tuple[float, Part], zero: float = 8.0) -> Bid:
    return Bid(app_id=app, rows=(Row(parts=(), rho=zero), *(Row(parts=(one,), rho=rho) for rho, one in rows)))


def rows_of(solution: Solution) -> dict[str, int]:
    return {win.app_id: win.row for win in solution.wins}


def gpus_of(solution: Solution, app: str) -> tuple[str, ...]:
    (win,) = (win for win in solution.wins if win.app_id == app)
    return tuple(gpu for gpus in win.gpus.values() for gpu in gpus)


def test_no_bids_and_no_gpus_make_no_winners() -> None:
    assert solve((), supply()).wins == ()
    nothing = solve((bid("a", (1.0, part("j", 1))),), Supply(LIVE, ()))
    assert rows_of(nothing) == {"a": 0}
    assert nothing.gap == 0.0


def test_only_as_many_machines_as_there_are_can_be_won() -> None:
    """Twelve GPUs would do for three gangs of four; machines of four there are two."""
    bids = tuple(bid(f"a{k}", (k + 1.0, part(f"j{k}", 4, MACHINE))) for k in range(3))
    solution = solve(bids, supply())
    assert rows_of(solution) == {"a0": 1, "a1": 1, "a2": 0}
    assert solution.gap == 0.0


def test_a_row_worse_than_nothing_is_never_won() -> None:
    assert rows_of(solve((bid("a", (9.0, part("j", 1))),), supply())) == {"a": 0}


def test_among_equal_values_the_fewer_gpus_win_then_the_lower_row() -> None:
    solution = solve((bid("a", (2.0, part("j", 4)), (2.0, part("j", 2, RACK)), (2.0, part("j", 2))),), supply())
    assert rows_of(solution) == {"a": 2}


def test_gpus_come_from_the_tightest_machines_that_hold_them() -> None:
    solution = solve((bid("a", (1.0, part("j", 2, MACHINE))), bid("b", (1.0, part("k", 3)))), supply())
    assert gpus_of(solution, "a") == ("m3:0", "m3:1")
    assert gpus_of(solution, "b") == ("m1:0", "m4:0", "m4:1")


def test_what_is_kept_must_be_on_offer() -> None:
    held = bid("a", (1.0, part("j", 0, MACHINE, keep=("m1:0", "m1:1"))))
    assert gpus_of(solve((held,), supply()), "a") == ("m1:0", "m1:1")
    rest = Supply(LIVE, tuple(gpu for gpu in supply().gpus if gpu != "m1:0"))
    assert rows_of(solve((held,), rest)) == {"a": 0}


def test_what_one_app_keeps_no_other_gets() -> None:
    keeper = bid("a", (1.0, part("j", 0, MACHINE, keep=("m1:0",))))
    taker = bid("b", (1.0, part("k", 4, MACHINE)))
    solution = solve((keeper, taker, bid("c", (1.0, part("i", 4, MACHINE)))), supply())
    assert sorted(rows_of(solution).values()) == [0, 1, 1]
    assert rows_of(solution)["a"] == 1


@pytest.mark.parametrize(("level", "won"), [(MACHINE, 0), (RACK, 1), (CLUSTER, 1)])
def test_an_anchor_pins_growth_to_its_machine_or_rack(level: Locality, won: int) -> None:
    offered = tuple(gpu for gpu in supply().gpus if not gpu.startswith("m3"))
    grower = bid("a", (1.0, part("j", 4, level, anchor=("m3:0", "m3:1"))))
    solution = solve((grower,), Supply(LIVE, offered))
    assert rows_of(solution) == {"a": won}
    if level == RACK:
        assert {gpu.split(":")[0] for gpu in gpus_of(solution, "a")} == {"m1"}


def test_an_anchor_on_a_node_that_is_gone_rules_the_row_out() -> None:
    grower = bid("a", (1.0, part("j", 2, CLUSTER, anchor=("gone:0",))))
    assert rows_of(solve((grower,), supply())) == {"a": 0}


def test_what_a_job_holds_apart_is_not_one_machine() -> None:
    apart = bid("a", (1.0, part("j", 1, MACHINE, keep=("m1:0",), anchor=("m2:0",))))
    assert rows_of(solve((apart,), supply())) == {"a": 0}


def test_slots_are_smaller_than_machines() -> None:
    topology = cluster(("m1", "r1", 4), slot=2)
    four, two = bid("a", (1.0, part("j", 4, SLOT))), bid("b", (2.0, part("k", 2, SLOT)))
    solution = solve((four, two), supply(topology))
    assert rows_of(solution) == {"a": 0, "b": 1}
    assert topology.locality(gpus_of(solution, "b")) == SLOT


def test_a_slot_is_found_beside_promises_of_its_machine() -> None:
    topology = cluster(("m1", "r1", 4), slot=2)
    bids = (bid("a", (1.0, part("j", 2, SLOT))), bid("b", (1.0, part("k", 1, MACHINE, keep=("m1:1",)))))
    solution = solve(bids, supply(topology))
    assert gpus_of(solution, "a") == ("m1:2", "m1:3")
    assert gpus_of(solution, "b") == ("m1:0", "m1:1")


def test_units_are_whole_on_every_machine() -> None:
    topology = cluster(("m1", "r1", 3), ("m2", "r1", 3))
    assert rows_of(solve((bid("a", (1.0, part("j", 6, RACK, unit=2))),), supply(topology))) == {"a": 0}
    solution = solve((bid("a", (1.0, part("j", 4, RACK, unit=2))),), supply(topology))
    assert sorted(gpu.split(":")[0] for gpu in gpus_of(solution, "a")) == ["m1", "m1", "m2", "m2"]


def test_a_node_gives_no_more_than_it_has_room_for() -> None:
    room = {"j": {"m1": 1, "m2": 0, "m3": 2}}
    bids = (bid("a", (1.0, part("j", 5)), (2.0, part("j", 4)), (3.0, part("j", 3))),)
    solution = solve(bids, supply(room=room))
    assert rows_of(solution) == {"a": 1}
    nodes = [gpu.split(":")[0] for gpu in gpus_of(solution, "a")]
    assert sorted(nodes) == ["m1", "m3", "m3", "m4", "m4"]


@pytest.mark.parametrize(
    ("level", "keep", "most"),
    [(MACHINE, ("m1:0", "m1:1"), 2), (RACK, ("m1:0",), 5), (RACK, ("m1:0", "m3:0"), 4), (SLOT, ("m1:0",), 1)],
)
def test_growth_past_the_place_of_what_is_kept_is_no_option(level: Locality, keep: tuple[str, ...], most: int) -> None:
    """m1 has four GPUs in slots of two, its rack six: what would need more is not even a bound's hope."""
    live = supply(cluster(("m1", "r1", 4), ("m2", "r2", 4), ("m3", "r1", 2), slot=2))
    too_much = solve((bid("a", (1.0, part("j", most + 1, level, keep)), (4.0, part("j", most, level, keep))),), live, 0)
    assert rows_of(too_much) == {"a": 2}
    assert too_much.gap == 0.0
    assert Market((bid("a", (1.0, part("j", most + 1, level, keep))),), live).option_rows == []


def test_a_budget_of_nothing_still_bounds_the_optimum() -> None:
    bids = tuple(bid(f"a{k}", (k + 1.0, part(f"j{k}", 4, MACHINE))) for k in range(3))
    best = solve(bids, supply())
    none = solve(bids, supply(), nodes_max=0)
    assert none.welfare <= best.welfare <= none.bound
    assert none.work < best.work
    assert none.gap > 0


def test_prices_prove_what_counts_cannot() -> None:
    """Sixteen machines of two, two of four: counts alone believe in ten gangs of four."""
    machines = [(f"b{k}", "r1", 2) for k in range(16)] + [("m1", "r1", 4), ("m2", "r1", 4)]
    bids = tuple(bid(f"a{k}", (1.0 + k / 10, part(f"j{k}", 4, MACHINE))) for k in range(12))
    solution = solve(bids, supply(cluster(*machines)), nodes_max=400)
    assert [k for k, win in enumerate(sorted(solution.wins, key=lambda w: int(w.app_id[1:]))) if win.row] == [0, 1]
    assert solution.gap == 0.0


def test_two_bids_of_one_app_are_an_error() -> None:
    with pytest.raises(CoreError, match="two bids of one app"):
        solve((bid("a"), bid("a")), supply())
