"""The table `[gpu_types]` of a settings file: which nodes have GPUs of which type, since YARN 3.2 does not say.

A key is a type, its value the names of nodes, in which `*` stands for any characters. A node that no name fits has no type.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.core.gpu_speeds import check_type
from themis_arbiter.core.types import NAME_LENGTH_MAX
from themis_arbiter.server.values import shown

TYPES_MAX: Final = 100
NAMES_MAX: Final = 10_000  # of all types together


def read_gpu_types(table: object, source: str, problems: list[str]) -> NodeTypes:
    """Names by type; what is wrong is added to `problems`."""
    found: dict[str, str] = {}
    written: dict[str, str] = {}  # types as they are written, by their lower case
    if not isinstance(table, dict):
        problems.append(f'{source}: gpu_types: is a section, not a value; write lines like v100 = ["node-1"] below [gpu_types]')
        return NodeTypes()
    if len(table) > TYPES_MAX:
        problems.append(f"{source}: gpu_types: more than {TYPES_MAX} types; name fewer")
        return NodeTypes()
    for gpu_type, names in table.items():
        where = f"{source}: gpu_types.{shown(gpu_type)[1:-1]}"
        try:
            check_type(gpu_type)
        except ValueError as problem:
            problems.append(f"{where}: {problem}")
            continue
        other = written.setdefault(gpu_type.lower(), gpu_type)
        if other != gpu_type:
            problems.append(f"{where}: differs from {shown(other)} in case only, so it is the same type; write one list")
            continue
        if not isinstance(names, list) or not names or not all(_is_name(name) for name in names):
            problems.append(f'{where}: is a list of names of nodes, such as ["node-1", "gpu-*"]; write one')
            continue
        twice = [name for name in names if found.setdefault(name.lower(), gpu_type.lower()) != gpu_type.lower()]
        problems += (f"{where}: {shown(name)} is of type {found[name.lower()]} already; name it once" for name in twice)
    problems += (f"{source}: gpu_types.{problem}" for problem in _contradictions(found))
    if len(found) > NAMES_MAX:
        problems.append(f"{source}: gpu_types: more than {NAMES_MAX} names; write some of them with *")
    return NodeTypes(tuple(found.items())[:NAMES_MAX])


def _contradictions(types: Mapping[str, str]) -> Iterator[str]:
    """Nodes that are there with their port and without under two types."""
    for name, gpu_type in types.items():
        node, port, _ = name.partition(":")
        other = types.get(node, gpu_type)
        if port and "*" not in name and other != gpu_type:
            yield f"{gpu_type}: {shown(name)} is of type {other} too, as {shown(node)} without a port; name it once"


def shown_gpu_types(types: NodeTypes) -> Iterator[tuple[str, str]]:
    """Keys and values as people read them."""
    by_type: dict[str, list[str]] = {}
    for name, gpu_type in types.names:
        by_type.setdefault(gpu_type, []).append(name)
    for gpu_type, names in by_type.items():
        yield f"gpu_types.{gpu_type}", ",".join(names)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()
