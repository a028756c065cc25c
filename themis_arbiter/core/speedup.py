"""How fast a gang runs where: S >= 1 stretches iteration *time* (paper, 4.3), applied in one function only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import CoreError, GpuId, Locality

Slowdowns: TypeAlias = tuple[float, float, float, float]  # at SLOT, MACHINE, RACK, CLUSTER

NO_SLOWDOWN: Final[Slowdowns] = (1.0, 1.0, 1.0, 1.0)
# The paper's guess before anything is measured (4.3): 1 on one machine, 1.1 across machines, 1.3 across racks.
GUESSED_SLOWDOWN: Final[Slowdowns] = (1.0, 1.0, 1.1, 1.3)


@dataclass(frozen=True, slots=True)
class SlowdownModel:
    """Slowdowns by model name; `default` stands for a model that is not named."""

    by_model: Mapping[str, Slowdowns] = field(default_factory=dict)
    default: Slowdowns = NO_SLOWDOWN

    def __post_init__(self) -> None:
        for name, s in (*self.by_model.items(), ("default", self.default)):
            if len(s) != len(Locality) or not all(1.0 <= x < float("inf") for x in s):
                raise CoreError(f"model {name}: slowdowns stretch time, so each is at least 1 and finite: {s}")
            if list(s) != sorted(s):
                raise CoreError(f"model {name}: slowdowns must not fall as GPUs lie further apart: {s}")

    def slowdown(self, model: str, level: Locality) -> float:
        """S of `model` at `level`."""
        return self.by_model.get(model, self.default)[level - 1]

    def speed_at(self, model: str, gpu_count: int, level: Locality, best: Locality) -> float:
        """GPU-milliseconds of work a millisecond on `gpu_count` GPUs at `level`; `best` is where work was measured."""
        if gpu_count == 0:
            return 0.0
        level = max(level, best)
        return gpu_count * self.slowdown(model, best) / self.slowdown(model, level)

    def speed(self, model: str, gpus: tuple[GpuId, ...], topology: Topology) -> float:
        """Speed of one gang on exactly these GPUs."""
        count = len(gpus)
        return self.speed_at(model, count, topology.locality(gpus), topology.best_locality(count))
