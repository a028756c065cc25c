"""Which nodes have GPUs of which type, as an admin has written it down."""

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property

from themis_arbiter.core.types import NodeName


@dataclass(frozen=True)
class NodeTypes:
    """Names of nodes, in lower case, each with its type; in a name `*` stands for any characters. The first that fits holds."""

    names: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _exact(self) -> dict[str, str]:
        return {name: gpu_type for name, gpu_type in reversed(self.names) if "*" not in name}

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], str]]:
        # `translate` knows more signs than `*`; what it makes of many of these takes no longer than the name is.
        plain = ((name.replace("[", "[[]").replace("?", "[?]"), gpu_type) for name, gpu_type in self.names if "*" in name)
        return [(re.compile(translate(name)), gpu_type) for name, gpu_type in plain]

    def type_of(self, node: NodeName) -> str:
        """The node's type; a name in full comes before one with `*`; empty where none fits. A port (`:8041`) does not count."""
        names = (node.lower(), node.lower().partition(":")[0])
        in_full = [self._exact[name] for name in names if name in self._exact]
        fitting = (gpu_type for pattern, gpu_type in self._patterns if any(map(pattern.fullmatch, names)))
        return in_full[0] if in_full else next(fitting, "")
