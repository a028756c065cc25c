"""How fast a job is on which type of GPU, as it declares it, and what that means in one cluster.

A declaration gives relative speeds by type: work is GPU time on a GPU of speed 1. Who declares nothing runs at speed 1 on every
type. Who declares any may be given no GPU of a type that is not named or has speed 0 (`Speeds.is_usable`). Gangs are
synchronous, so a gang goes at the speed of its slowest GPU: k GPUs do k * S(best) / S(level) * min speed. Names of types
compare without regard to case.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from themis_arbiter.core.types import GpuId, GpuSpeeds, NodeName, node_of

TYPES_MAX: Final = 16  # of one declaration
SPEED_MIN: Final = 0.001  # or 0: below it a job of an hour would run for months
SPEED_MAX: Final = 1_000.0
TYPE_LENGTH_MAX: Final = 40
NO_TYPE: Final = "none"  # how GPUs without a type are told of: no type may be called so
ANY_TYPE: Final = "*"  # in what a whole app can use: the speed on types that are not named
NUMBER_LENGTH_MAX: Final = 40
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?")


def parse_speeds(text: str) -> GpuSpeeds:
    """A declaration as people write it: `v100=1;k80=0.25`. Errors: ValueError that says what is wrong with it."""
    declared: dict[str, float] = {}
    for part in text.split(";"):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ValueError("it is not of the form type=speed;type=speed")
        check_type(name)
        if len(number) > NUMBER_LENGTH_MAX or not _NUMBER.fullmatch(number.lower()):
            raise ValueError(f"the speed of {name!r} is not a number of at most {NUMBER_LENGTH_MAX} signs")
        if name.lower() in declared:
            raise ValueError(f"type {name!r} is there twice")
        # What is too small for a float is not the 0 that forbids a type.
        is_zero = not number.lower().partition("e")[0].strip("-0.")
        declared[name.lower()] = float(number) or (0.0 if is_zero else SPEED_MIN / 2)
    return checked_speeds(declared)


def check_type(name: str) -> None:
    """What is no name of a type is refused. Errors: ValueError that says what is wrong with it."""
    if len(name) > TYPE_LENGTH_MAX:
        shown = f"{name[:TYPE_LENGTH_MAX]!r}..."
        raise ValueError(f"the name of type {shown} has {len(name)} signs, at most {TYPE_LENGTH_MAX} are allowed")
    if not _TYPE.fullmatch(name.lower()):
        raise ValueError(f"{name!r} is no name of a type: letters, digits, `.`, `_` and `-`, the first a letter or digit")
    if name.lower() == NO_TYPE:
        raise ValueError(f"no type may be called {NO_TYPE!r}: a machine without a type is one that names none")


def checked_speeds(declared: Mapping[str, float]) -> GpuSpeeds:
    """A declaration by type. Errors: ValueError that says what is wrong with it."""
    if not declared:
        raise ValueError("it names no type")
    if len(declared) > TYPES_MAX:
        raise ValueError(f"it names {len(declared)} types, at most {TYPES_MAX} may be named")
    speeds: dict[str, float] = {}
    for name, speed in declared.items():
        check_type(name)
        if not (speed == 0.0 or SPEED_MIN <= speed <= SPEED_MAX):
            raise ValueError(f"the speed of {name!r} must be 0 (never there) or lie between {SPEED_MIN:g} and {SPEED_MAX:g}")
        speeds[name.lower()] = float(speed)
    if len(speeds) != len(declared):
        raise ValueError("two types differ in case only")
    if not any(speeds.values()):
        raise ValueError("it has no type with a speed above 0")
    return tuple(sorted(speeds.items()))


def speed_on(declared: GpuSpeeds, gpu_type: str) -> float:
    """The declared speed on a type; 0: it must not be used."""
    if not declared:
        return 1.0
    known = dict(declared)
    return known.get(gpu_type.lower(), known.get(ANY_TYPE, 0.0))


def fastest(declared: GpuSpeeds) -> float:
    """The highest speed of a declaration, whether or not some cluster has that type."""
    return max([speed for _, speed in declared], default=1.0)


def merged(declarations: Iterable[GpuSpeeds]) -> GpuSpeeds:
    """What an app can use whose jobs declare these: of each type the job that is fastest there."""
    different = dict.fromkeys(declarations)
    if len(different) == 1:
        return next(iter(different))
    if not any(different):
        return ()
    names = {name for declared in different for name, _ in declared}
    found = {name: max(speed_on(declared, name) for declared in different) for name in names}
    if () in different:
        found[ANY_TYPE] = 1.0
    return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Reach:
    """What a job can do at best on the GPUs of a cluster, all of them its own, whatever their distance.

    `rate` is work a millisecond; `gpus` the GPUs by which it does that in the fluid share, fastest first, at `speeds`.
    """

    speeds: GpuSpeeds
    gpus: float
    rate: float

    def gpu_time(self, work: float) -> float:
        """GPU time that `work` takes, in the unit of the work."""
        return work if self.rate == self.gpus else work * (self.gpus / self.rate)


def reach_of(declared: GpuSpeeds, gang: int, most: int, types: Iterable[tuple[str, int]]) -> Reach:
    """What a job of `gang` to `most` GPUs can do where there are so many GPUs of each type.

    A gang has no use for a GPU that is faster than its slowest, so in a share no type counts for more than that of the best
    gang-sized set. Where there are too few GPUs for a gang it counts as it declares itself.
    """
    if not declared:
        return Reach((), most, most)
    rungs, total = [], 0
    for speed, count in _by_speed(declared, types):
        total += count
        rungs.append((speed, total))
    able = [(speed, total) for speed, total in rungs if total >= gang]
    if not able:
        return Reach(declared, most, most * fastest(declared))
    least, there = able[0]
    speeds = tuple((name, min(speed, least)) for name, speed in declared)
    if there >= most or len(rungs) == 1:
        return Reach(speeds, most, most * least)
    rate = max(min(most, total) * speed for speed, total in able)
    return Reach(speeds, gpus_for(speeds, types, rate), rate)


def gpus_for(declared: GpuSpeeds, types: Iterable[tuple[str, int]], rate: float) -> float:
    """The fewest GPUs, in fractions, that do `rate`, each at its own speed; all that are usable where they do less."""
    gpus = 0.0
    for speed, count in _by_speed(declared, types):
        if rate <= count * speed:
            return gpus + rate / speed
        gpus += count
        rate -= count * speed
    return gpus


def _by_speed(declared: GpuSpeeds, types: Iterable[tuple[str, int]]) -> list[tuple[float, int]]:
    """GPUs at each speed above 0, the highest first."""
    count: dict[float, int] = {}
    for name, gpus in types:
        speed = speed_on(declared, name)
        if speed > 0.0 and gpus:
            count[speed] = count.get(speed, 0) + gpus
    return sorted(count.items(), reverse=True)


def as_text(declared: GpuSpeeds) -> str:
    """As `parse_speeds` reads it."""
    return ";".join(f"{name}={speed:g}" for name, speed in declared)


@dataclass(frozen=True)
class Speeds:
    """One declaration in one cluster. `of_machine` has every machine, 0 where its GPUs must not be used."""

    of_machine: Mapping[NodeName, float]
    gpus: Mapping[NodeName, int]
    type_of: Mapping[NodeName, str]

    def is_usable(self, gpu: GpuId) -> bool:
        """Whether the job may be given this GPU."""
        return self.of_machine.get(node_of(gpu), 0.0) > 0.0

    @cached_property
    def _ladder(self) -> tuple[tuple[float, int], ...]:
        """Speeds above 0, the highest first, each with the GPUs that are at least so fast."""
        count: dict[float, int] = {}
        for name, speed in self.of_machine.items():
            if speed > 0.0 and self.gpus[name]:
                count[speed] = count.get(speed, 0) + self.gpus[name]
        rungs, total = [], 0
        for speed in sorted(count, reverse=True):
            total += count[speed]
            rungs.append((speed, total))
        return tuple(rungs)

    @property
    def usable(self) -> int:
        """GPUs of the cluster that the job may have."""
        return self._ladder[-1][1] if self._ladder else 0

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """Different speeds above 0 in this cluster, the highest first."""
        return tuple(speed for speed, _ in self._ladder)

    @cached_property
    def bands(self) -> tuple[tuple[str, float], ...]:
        """Types that may be used, with their speeds, the slowest first."""
        usable = {(self.of_machine[name], self.type_of[name]) for name in self.of_machine if self.of_machine[name] > 0.0}
        return tuple((gpu_type, speed) for speed, gpu_type in sorted(usable))

    def best(self, count: int) -> float:
        """The speed of the slowest of the `count` fastest GPUs; where there are fewer, of the slowest there is."""
        for speed, total in self._ladder:
            if total >= count:
                return speed
        return self._ladder[-1][0] if self._ladder else 1.0

    def slowest(self, gpus: Iterable[GpuId]) -> float:
        """The speed of a gang on these GPUs; of none, the highest there is.

        A GPU that must not be used, and that it came to some other way (adopted, of a node whose type is another now), counts
        as the slowest that may be: what runs on it shows that it can.
        """
        if not self._ladder:
            return 1.0
        least = self._ladder[-1][0]
        of = self.of_machine
        return min([of.get(node_of(gpu), 0.0) or least for gpu in gpus], default=self._ladder[0][0])
