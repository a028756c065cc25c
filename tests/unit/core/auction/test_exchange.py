"""Which of equally good GPUs winners get, on floors small enough to see."""

from collections.abc import Mapping

from themis_arbiter.core.auction.bid import Bid, Part, Row, Supply
from themis_arbiter.core.auction.payment import partial_allocation
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, JobId, Locality, NodeName

MACHINE, RACK = Locality.MACHINE, Locality.RACK


def floor(*sizes: int, slot: int = 0, racks: int = 1) -> Topology:
    return Topology(
        tuple(Machine(name=f"m{k}", rack=f"r{k % racks}", gpus=gpus, gpus_per_slot=slot) for k, gpus in enumerate(sizes))
    )


def held(**gpus: str) -> dict[GpuId, JobId]:
    """Holders by machine: m0="aa-b" is a on GPUs 0 and 1, b on GPU 3."""
    return {f"{name}:{k}": job for name, jobs in gpus.items() for k, job in enumerate(jobs) if job != "-"}


def won(
    topology: Topology,
    ending: Mapping[GpuId, JobId],
    *parts: Part,
    room: Mapping[JobId, Mapping[NodeName, int]] | None = None,
) -> dict[JobId, set[GpuId]]:
    """What each part's job wins; each is an app of its own with that one wish."""
    supply = Supply(topology, tuple(sorted(topology.places)), room or {}, ending)
    bids = tuple(Bid(app_id=p.job_id, rows=(Row(parts=(), rho=8.0), Row(parts=(p,), rho=1.0))) for p in parts)
    return {
        job_id: set(gpus) for win in partial_allocation(bids, supply, {}).solution.wins for job_id, gpus in win.gpus.items()
    }


def afresh(job_id: JobId, count: int, level: Locality = MACHINE, unit: int = 1) -> Part:
    return Part(job_id=job_id, more=count, level=level, unit=unit)


def test_a_gang_that_lies_apart_gets_the_machine_where_it_is_half_already() -> None:
    got = won(floor(4, 4), held(m0="wwww", m1="sggs"), afresh("g", 4))
    assert got == {"g": {"m1:0", "m1:1", "m1:2", "m1:3"}}


def test_free_gpus_go_first_then_those_of_who_wins_others() -> None:
    assert won(floor(4, 4), held(m0="wwww", m1="w---"), afresh("a", 3)) == {"a": {"m1:1", "m1:2", "m1:3"}}
    got = won(floor(2, 4), held(m0="gw", m1="wwgg"), afresh("a", 1), afresh("g", 4))
    assert got == {"a": {"m0:0"}, "g": {"m1:0", "m1:1", "m1:2", "m1:3"}}, "g leaves m0:0 in any case"


def test_of_several_holders_one_loses_all_before_a_second_loses_any() -> None:
    assert won(floor(4), held(m0="abab"), afresh("x", 2)) == {"x": {"m0:0", "m0:2"}}


def test_slots_of_a_machine_are_exchanged_too() -> None:
    got = won(floor(4, slot=2), held(m0="wwxx"), Part(job_id="x", more=2, level=Locality.SLOT))
    assert got == {"x": {"m0:2", "m0:3"}}


def test_machines_of_another_size_or_rack_are_not_equal_places() -> None:
    # The smaller machine is the tighter fit, and the other rack is another place for what lies beside it.
    assert won(floor(2, 4), held(m0="ww", m1="----"), afresh("a", 2)) == {"a": {"m0:0", "m0:1"}}
    assert won(floor(2, 2, racks=2), held(m0="ww", m1="--"), afresh("a", 2)) == {"a": {"m0:0", "m0:1"}}


def test_what_a_job_keeps_and_what_has_no_room_elsewhere_stays() -> None:
    keeps = Part(job_id="k", keep=("m0:0",), more=1, level=MACHINE)
    assert won(floor(2, 2), held(m0="kw", m1="--"), keeps) == {"k": {"m0:0", "m0:1"}}
    got = won(floor(2, 2), held(m0="ww", m1="--"), afresh("a", 2), room={"a": {"m0": 2, "m1": 1}})
    assert got == {"a": {"m0:0", "m0:1"}}
