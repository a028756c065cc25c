"""S stretches time: speed falls with distance, and not below where the work was measured."""

import pytest

from themis_arbiter.core.speedup import GUESSED_SLOWDOWN, NO_SLOWDOWN, SlowdownModel
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import CoreError, Locality

MODEL = SlowdownModel({"vgg": (1.0, 1.0, 1.4, 2.0)}, default=GUESSED_SLOWDOWN)
CLUSTER = Topology(tuple(Machine(name=f"m{k}", rack=f"r{k // 2}", gpus=4) for k in range(4)))


def test_speed_is_gpus_over_slowdown() -> None:
    assert MODEL.speed("vgg", ("m0:0", "m0:1"), CLUSTER) == 2.0
    assert MODEL.speed("vgg", ("m0:0", "m1:0"), CLUSTER) == pytest.approx(2 / 1.4)
    assert MODEL.speed("vgg", ("m0:0", "m3:0"), CLUSTER) == pytest.approx(1.0)
    assert MODEL.speed("vgg", (), CLUSTER) == 0.0


def test_work_is_measured_at_the_best_place_that_so_many_gpus_can_have() -> None:
    spread = tuple(f"m{k}:{i}" for k in (0, 1) for i in range(4))
    assert MODEL.speed("vgg", spread, CLUSTER) == 8.0  # 8 GPUs cannot be closer than a rack here


def test_an_unknown_model_has_the_default() -> None:
    assert MODEL.slowdown("who", Locality.CLUSTER) == 1.3
    assert SlowdownModel().slowdown("who", Locality.CLUSTER) == 1.0


@pytest.mark.parametrize("bad", [(0.9, 1.0, 1.0, 1.0), (1.0, 1.2, 1.1, 1.3), (1.0, 1.0, 1.0, float("inf"))])
def test_slowdowns_that_are_none_are_refused(bad: tuple[float, float, float, float]) -> None:
    with pytest.raises(CoreError, match="slowdowns"):
        SlowdownModel({"x": bad}, default=NO_SLOWDOWN)
