"""Names for the plain values that the whole core passes around.

Instants and durations are whole milliseconds (`Millis`), so sums of them never drift; work is GPU-milliseconds
(`GpuMillis`, a float because rates divide it). A GPU id is `node:ordinal`.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

Millis: TypeAlias = int
GpuMillis: TypeAlias = float
AppId: TypeAlias = str
JobId: TypeAlias = str
NodeName: TypeAlias = str
RackName: TypeAlias = str
GpuId: TypeAlias = str
LeaseId: TypeAlias = str
GrantId: TypeAlias = str
Epoch: TypeAlias = int
RoundNo: TypeAlias = int
GpuSpeeds: TypeAlias = tuple[tuple[str, float], ...]  # speed by GPU type, sorted (core.gpu_speeds); (): 1 on every type
LossCurve: TypeAlias = tuple[float, float, float]  # (a, b, c): the loss at progress p in [0, 1] is a / (1 + b p) + c

GPU_NODES_KEPT_MAX: Final = 65_536  # GPU ids whose node is remembered
NAME_LENGTH_MAX: Final = 256  # of any name that comes from outside; longer ones are refused at the edge


class Locality(IntEnum):
    """How close together the GPUs of a gang are; smaller is tighter."""

    SLOT = 1
    MACHINE = 2
    RACK = 3
    CLUSTER = 4


class OnLeaseEnd(StrEnum):
    """What a job can do when its lease ends (contracts.md)."""

    CHECKPOINT = "checkpoint"
    RESTART = "restart"
    NEVER = "never"


CHECKPOINT: Final = OnLeaseEnd.CHECKPOINT  # by name, for code that asks it of every job (see core.lease)


class CoreError(Exception):
    """A claim that must hold in the core does not: a programming error, never an operating one."""


def gpu_id(node: NodeName, ordinal: int) -> GpuId:
    """The id of a node's GPU; ordinals count from 0."""
    return f"{node}:{ordinal}"


@lru_cache(maxsize=GPU_NODES_KEPT_MAX)
def node_of(gpu: GpuId) -> NodeName:
    """The node that a GPU is or was on: asked of every lease, in every step that looks at it."""
    return gpu.rsplit(":", 1)[0]


def add_count(counts: dict[str, int], key: str, more: int) -> None:
    """Count; nothing is kept of what is 0."""
    counts[key] = counts.get(key, 0) + more
    if not counts[key]:
        del counts[key]


def counted(keys: Iterable[str]) -> dict[str, int]:
    """How often each key is there, in order of their first; for a few keys a `Counter` takes several times as long to make."""
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return counts


def ordinal_of(gpu: GpuId) -> int:
    """Which of its node's GPUs it is."""
    return int(gpu.rsplit(":", 1)[1])
