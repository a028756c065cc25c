"""What an auction is about: the supply on offer, bids by shape, and what came of them.

A bid is a table of rows; a row says which GPUs each job of the app would get, *by shape*, and the rho the app would end
with. Shapes keep tables short: "4 GPUs in one rack" stands for every such set, since rho hangs on the shape alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, log
from typing import Final, TypeAlias

from themis_arbiter.core.topology import Topology
from themis_arbiter.core.types import AppId, CoreError, GpuId, JobId, Locality, NodeName
from themis_arbiter.core.value import LEFT_OUT, value

ROWS_MAX: Final = 64  # of one bid, the zero row included
PARTS_MAX: Final = 128  # jobs of one row
WEIGHT_MAX: Final = 1e6  # of a bid, as against another's of 1


@value(frozen=True, slots=True, kw_only=True)
class Part:
    """One job's GPUs in a row: `keep`, named ones that it holds now, and `more` others.

    `more` GPUs come in multiples of `unit` on each machine (a container's GPUs). All of the job's GPUs, `anchor`
    (which it holds outside the offer) and `keep` included, lie within one `level`. Where `types` names GPU types, in lower
    case, `more` are of these.
    """

    job_id: JobId
    keep: tuple[GpuId, ...] = ()
    more: int = 0
    unit: int = 1
    level: Locality = Locality.CLUSTER
    anchor: tuple[GpuId, ...] = ()
    types: tuple[str, ...] = field(default=(), metadata=LEFT_OUT)

    def __post_init__(self) -> None:
        if self.more < 0 or self.unit < 1 or self.more % self.unit or self.keep != tuple(sorted(set(self.keep))):
            raise CoreError(f"not a part of a bid: {self}")

    @property
    def gpu_count(self) -> int:
        """GPUs that this part takes from the supply."""
        return len(self.keep) + self.more


@value(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a bid: with these parts the app ends with this `rho` (finite, above 0)."""

    parts: tuple[Part, ...]
    rho: float

    def __post_init__(self) -> None:
        if not (isfinite(self.rho) and self.rho > 0):
            raise CoreError(f"rho must be finite and above 0: {self}")
        if len({p.job_id for p in self.parts}) != len(self.parts) or any(p.gpu_count == 0 for p in self.parts):
            raise CoreError(f"a job may stand once in a row, and with GPUs: {self}")

    @property
    def gpu_count(self) -> int:
        """GPUs that this row takes from the supply."""
        return sum(p.gpu_count for p in self.parts)

    @property
    def log_value(self) -> float:
        """log(1 / rho): what the Nash product is a sum of."""
        return -log(self.rho)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """An app's table; row 0 is the zero row, what the app ends with if it wins nothing.

    `weight` multiplies the app's log values in the welfare: the Nash product has v ** weight.
    """

    app_id: AppId
    rows: tuple[Row, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.rows or self.rows[0].gpu_count != 0 or len(self.rows) > ROWS_MAX:
            raise CoreError(f"a bid has a zero row first and at most {ROWS_MAX} rows: {self}")
        if any(r.gpu_count == 0 for r in self.rows[1:]) or any(len(r.parts) > PARTS_MAX for r in self.rows):
            raise CoreError(f"a second zero row, or more than {PARTS_MAX} jobs in one: {self}")
        if not 1.0 / WEIGHT_MAX <= self.weight <= WEIGHT_MAX:  # NaN included
            raise CoreError(f"a weight lies between 1 / {WEIGHT_MAX:.0f} and {WEIGHT_MAX:.0f}: {self.app_id}: {self.weight}")


@dataclass(frozen=True)
class Supply:
    """The GPUs on offer (sorted ids), and how many of a node's a job has room for (memory, CPU); absent: all.

    `ending`: who runs on those whose leases end. It decides between equal places only.
    """

    topology: Topology
    gpus: tuple[GpuId, ...]
    room: Mapping[JobId, Mapping[NodeName, int]] = field(default_factory=dict)
    ending: Mapping[GpuId, JobId] = field(default_factory=dict)

    @cached_property
    def by_machine(self) -> Mapping[NodeName, tuple[GpuId, ...]]:
        """Offered GPUs of each machine, machines by name, GPUs by ordinal."""
        found: dict[NodeName, list[GpuId]] = {}
        for gpu in self.gpus:
            found.setdefault(self.topology.places[gpu].machine, []).append(gpu)
        return {name: tuple(sorted(found[name], key=lambda g: self.topology.places[g].ordinal)) for name in sorted(found)}

    def room_on(self, job_id: JobId, node: NodeName) -> int:
        """GPUs of `node` that the job's containers have memory and CPU for, those it keeps there not counted."""
        return self.room.get(job_id, {}).get(node, len(self.by_machine.get(node, ())))


Placement: TypeAlias = Mapping[JobId, tuple[GpuId, ...]]  # offered GPUs that each job of one app gets, sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class Win:
    """What one app wins: row `row` of its bid, placed."""

    app_id: AppId
    row: int
    gpus: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Winners of one auction. `welfare` = sum of log values over all bidders; no allocation has more than `bound`."""

    wins: tuple[Win, ...]  # one for each bid, in order of app id; row 0 where nothing is won
    welfare: float
    bound: float
    work: int  # nodes of the search visited: a measure that is the same on every machine

    @property
    def gap(self) -> float:
        """Certified distance to the optimum, at least 0; 0 where it is proved."""
        return max(0.0, self.bound - self.welfare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """One winner's hidden payment: it keeps `kept` of the `won` GPUs; `share` is c_i in (0, 1], paid is 1 - c_i."""

    app_id: AppId
    share: float
    share_max: float  # the bracket's upper end: equal to `share` where both problems are solved to the optimum
    won: int
    kept: int
