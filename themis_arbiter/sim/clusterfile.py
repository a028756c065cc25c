"""The cluster file: YAML or JSON, racks of machines of GPUs, as contracts.md has it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from themis_arbiter.core.gpu_speeds import check_type
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import NodeName
from themis_arbiter.sim.trace import TraceError, read_text

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
GPUS_MAX: Final = 1_000_000  # of a cluster
MACHINES_MAX: Final = 200_000

RACK_KEYS: Final = frozenset({"name", "count", "machines"})
MACHINE_KEYS: Final = frozenset({"name", "count", "gpus", "gpus_per_slot", "gpu_type", "cpu", "memory_gb"})
AMOUNT_MAX: Final = 1e6  # of CPUs, and of gigabytes, of a machine


@dataclass(frozen=True, slots=True)
class Capacity:
    """What machines have beside GPUs; None where the file does not say."""

    cpu: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster file: where GPUs are, and what each machine has beside them."""

    topology: Topology
    capacity: Mapping[NodeName, Capacity]


class _TwiceError(Exception):
    """A mapping has a key twice, of which all but the last would be passed over."""

    def __init__(self, key: str, line: int | None = None) -> None:
        where = f"line {line}: " if line is not None else ""
        super().__init__(f"{where}key {ascii(key)[:60]} is there twice in one mapping; keep one")


class _Loader(yaml.SafeLoader):
    """YAML's safe one, but no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping. Errors: _TwiceError."""
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise _TwiceError(key.value, key.start_mark.line + 1)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON. Errors: _TwiceError."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(key)
        found[key] = value
    return found


def read_cluster(path: Path) -> Topology:
    """Where the GPUs of the cluster in `path` are. Errors: TraceError, one line."""
    return read_whole_cluster(path).topology


def read_whole_cluster(path: Path) -> Cluster:
    """The cluster in `path`. Errors: TraceError, one line."""
    text = read_text(path, FILE_BYTES_MAX)
    try:
        document = json.loads(text, object_pairs_hook=_once)
    except _TwiceError as problem:
        raise TraceError(f"{path}: {problem}") from None
    except (ValueError, RecursionError):
        try:
            document = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
        except _TwiceError as problem:
            raise TraceError(f"{path}: {problem}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as problem:
            short = " ".join(str(problem).split())
            raise TraceError(f"{path}: neither JSON nor YAML: {short}; put it right") from None
    machines: dict[str, Machine] = {}
    capacity: dict[NodeName, Capacity] = {}
    gpus = 0
    for machine, beside in _machines(document, path):
        if machine.name in machines:
            raise TraceError(f"{path}: two machines are called {machine.name}; give each a name of its own, or none")
        machines[machine.name] = machine
        capacity[machine.name] = beside
        gpus += machine.gpus
        if gpus > GPUS_MAX or len(machines) > MACHINES_MAX:
            raise TraceError(f"{path}: more than {GPUS_MAX} GPUs or {MACHINES_MAX} machines; write a smaller cluster")
    if gpus == 0:
        raise TraceError(f"{path}: the cluster has no GPU; give some machine `gpus`")
    for name in ("cpu", "memory_gb"):
        if len({getattr(beside, name) is None for beside in capacity.values()}) > 1:
            raise TraceError(f"{path}: some machines have `{name}` and some do not; give it to all or to none")
    return Cluster(Topology(tuple(machines.values())), capacity)


def _machines(document: Any, path: Path) -> Iterator[tuple[Machine, Capacity]]:
    if not isinstance(document, dict):
        raise TraceError(f"{path}: must be a mapping with `racks`; see the cluster format")
    rack_no = 0
    for rack in _list(document, "racks", path, "the file"):
        what = f"rack {rack_no}"
        _check_keys(rack, RACK_KEYS, path, what)
        for _ in range(_whole(rack, "count", 1, 1, path, what)):
            rack_name = _name(rack, f"r{rack_no}")
            rack_no += 1
            machine_no = 0
            for machine in _list(rack, "machines", path, what):
                what_machine = f"machine {machine_no} of {what}"
                _check_keys(machine, MACHINE_KEYS, path, what_machine)
                beside = Capacity(*(_amount(machine, key, path, what_machine) for key in ("cpu", "memory_gb")))
                gpu_type = _gpu_type(machine, path, what_machine)
                for _ in range(_whole(machine, "count", 1, 1, path, what_machine)):
                    count = _whole(machine, "gpus", None, 0, path, what_machine)
                    slot = _whole(machine, "gpus_per_slot", count or 1, 1, path, what_machine)
                    if count % slot:
                        raise TraceError(f"{path}: {what_machine}: {count} GPUs are no whole slots of {slot}; choose a divisor")
                    made = Machine(
                        name=_name(machine, f"{rack_name}m{machine_no}"),
                        rack=rack_name,
                        gpus=count,
                        gpus_per_slot=slot,
                        gpu_type=gpu_type,
                    )
                    yield made, beside
                    machine_no += 1


def _gpu_type(machine: Mapping[str, Any], path: Path, what: str) -> str:
    """A name as jobs may name it; a whole number is one too, as YAML takes 3090 for one. Empty: no type."""
    value = machine.get("gpu_type")
    if value is None or value == "":
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TraceError(f"{path}: {what}: `gpu_type` must be the name of a type, such as v100, not {value!r:.60}")
    try:
        check_type(str(value))
    except ValueError as problem:
        raise TraceError(f"{path}: {what}: `gpu_type`: {problem}") from None
    return str(value)


def _list(holder: Mapping[str, Any], key: str, path: Path, what: str) -> list[dict[str, Any]]:
    value = holder.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(x, dict) for x in value):
        raise TraceError(f"{path}: {what}: `{key}` must be a list of mappings with at least one entry")
    return value


def _check_keys(holder: Mapping[str, Any], known: frozenset[str], path: Path, what: str) -> None:
    unknown = sorted(str(k) for k in holder.keys() - known)
    if unknown:
        raise TraceError(f"{path}: {what}: unknown {', '.join(unknown)}; there are {', '.join(sorted(known))}")


def _amount(holder: Mapping[str, Any], key: str, path: Path, what: str) -> float | None:
    value = holder.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= AMOUNT_MAX:
        raise TraceError(f"{path}: {what}: `{key}` must be a number above 0, at most {AMOUNT_MAX:g}, not {value!r:.60}")
    return float(value)


def _whole(holder: Mapping[str, Any], key: str, default: int | None, least: int, path: Path, what: str) -> int:
    value = holder.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= GPUS_MAX:
        raise TraceError(f"{path}: {what}: `{key}` must be a whole number from {least} to {GPUS_MAX}, not {value!r:.60}")
    return int(value)


def _name(holder: Mapping[str, Any], default: str) -> str:
    return str(holder["name"]) if holder.get("name") is not None else default
