"""Topology: places, tightness of sets, the tightest a count can be."""

import pytest

from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import CoreError, Locality

TWO_RACKS = Topology(
    (
        Machine(name="r1m0", rack="r1", gpus=2),
        Machine(name="r0m0", rack="r0", gpus=4, gpus_per_slot=2),
        Machine(name="r0m1", rack="r0", gpus=4, gpus_per_slot=2),
    )
)


def test_machines_are_ordered_by_name_whatever_order_they_came_in() -> None:
    assert [m.name for m in TWO_RACKS.machines] == ["r0m0", "r0m1", "r1m0"]
    assert list(TWO_RACKS.places)[:5] == ["r0m0:0", "r0m0:1", "r0m0:2", "r0m0:3", "r0m1:0"]
    assert TWO_RACKS.gpu_count == 10


@pytest.mark.parametrize(
    ("gpus", "level"),
    [
        ((), Locality.SLOT),
        (("r0m0:1",), Locality.SLOT),
        (("r0m0:0", "r0m0:1"), Locality.SLOT),
        (("r0m0:1", "r0m0:2"), Locality.MACHINE),
        (("r0m0:1", "r0m1:2"), Locality.RACK),
        (("r0m0:1", "r1m0:0"), Locality.CLUSTER),
    ],
)
def test_locality_is_the_tightest_level_that_holds_all(gpus: tuple[str, ...], level: Locality) -> None:
    assert TWO_RACKS.locality(gpus) is level


def test_best_locality_counts_the_largest_of_each_level() -> None:
    assert [TWO_RACKS.best_locality(n).name for n in (1, 2, 3, 4, 5, 8, 9, 99)] == [
        *("SLOT", "SLOT", "MACHINE", "MACHINE", "RACK", "RACK", "CLUSTER", "CLUSTER"),
    ]


def test_replacing_and_removing_machines() -> None:
    grown = TWO_RACKS.with_machine(Machine(name="r1m0", rack="r1", gpus=8))
    assert grown.gpu_count == 16
    assert grown.without_machine("r1m0").gpu_count == 8
    assert TWO_RACKS.gpu_count == 10


def test_two_machines_of_one_name_are_refused() -> None:
    with pytest.raises(CoreError, match="same name"):
        Topology((Machine(name="a", rack="r", gpus=1), Machine(name="a", rack="s", gpus=1)))


def test_negative_gpus_are_refused() -> None:
    with pytest.raises(CoreError, match="-2 GPUs"):
        Machine(name="a", rack="r", gpus=-2)
