"""How many GPUs a job may still be promised where GPUs are of several types and jobs may not have all of them.

Shares are given before places, so shares must leave everybody a place. By Hall's theorem they do if for every set U of types
those who can use nothing outside U are promised no more than U has. Only sets that are unions of what jobs can use matter,
and these are few. Where they are more than `UNIONS_MAX` the rest is not looked at: a share may then find no place, and its
job is passed over as with any share that finds none (`handout`).
"""

from collections.abc import Iterable
from typing import Final

from themis_arbiter.core.policies.base import Market, MarketJob
from themis_arbiter.core.types import GpuId, GpuSpeeds, node_of

UNIONS_MAX: Final = 256


class Pools:
    """GPUs to be given, by type. Sets of types are bit masks."""

    def __init__(self, market: Market, free: Iterable[GpuId]) -> None:
        self._topology = market.supply.topology
        count: dict[str, int] = {}
        types = self._topology.type_of
        for gpu in free:
            count[types[node_of(gpu)]] = count.get(types[node_of(gpu)], 0) + 1
        self._bits = {name: 1 << k for k, name in enumerate(sorted(count))}
        self._count = [count[name] for name in sorted(count)]
        self._masks: dict[GpuSpeeds, int] = {}
        self._promised: dict[int, int] = {}  # GPUs, by the types that those who got them can use
        self._unions: set[int] = set()

    def room(self, job: MarketJob) -> int:
        """GPUs that the job could still be promised."""
        mask = self._mask(job)
        return min([self._left(union) for union in self._unions if union & mask == mask], default=0) if mask else 0

    def promise(self, job: MarketJob, count: int) -> None:
        """The job gets so many more."""
        mask = self._mask(job)
        self._promised[mask] = self._promised.get(mask, 0) + count

    def _left(self, union: int) -> int:
        has = sum(count for k, count in enumerate(self._count) if union >> k & 1)
        return has - sum(count for mask, count in self._promised.items() if mask & ~union == 0)

    def _mask(self, job: MarketJob) -> int:
        mask = self._masks.get(job.gpu_speeds)
        if mask is None:
            speeds = self._topology.speeds(job.gpu_speeds)
            usable = set(self._bits) if speeds is None else {name for name, _ in speeds.bands}
            mask = self._masks[job.gpu_speeds] = sum(bit for name, bit in self._bits.items() if name in usable)
            if mask not in self._unions:
                self._unions |= {mask} | {mask | union for union in self._unions if len(self._unions) < UNIONS_MAX}
        return mask
