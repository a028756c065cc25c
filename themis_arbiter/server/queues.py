"""The tables `[queues.NAME]` of a settings file: what holds for the jobs of a YARN queue.

They have neither variables nor flags, for a queue's name may be anything.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from themis_arbiter.core.settings import QueueRule
from themis_arbiter.core.types import NAME_LENGTH_MAX, OnLeaseEnd
from themis_arbiter.server import values
from themis_arbiter.server.values import Origin, Parser, ValueProblem, shown

QUEUES_MAX: Final = 1_000
NEVER_GPUS_MAX: Final = 10**6

KEYS: Final[Mapping[str, Parser]] = {
    "on_lease_end": values.choice(tuple(OnLeaseEnd)),
    "never_gpus_max": values.whole(0, NEVER_GPUS_MAX),
}


def read_queues(table: object, source: str, problems: list[str]) -> dict[str, QueueRule]:
    """Rules by queue; what is wrong is added to `problems`."""
    if not isinstance(table, dict):
        problems.append(f"{source}: queues: holds a table for each queue; write [queues.NAME] and its settings below")
        return {}
    if len(table) > QUEUES_MAX:
        problems.append(f"{source}: queues: more than {QUEUES_MAX} queues; name those that differ from the others only")
        return {}
    rules: dict[str, QueueRule] = {}
    for name, settings in table.items():
        where = f"{source}: queues.{_shown_name(name)}"
        if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
            problems.append(f"{where}: is no queue's name; write it as `themis apps --json` shows it")
        elif not isinstance(settings, dict):
            problems.append(f"{where}: is a table, not a value; write [queues.{_shown_name(name)}] and its settings below")
        else:
            rules[name] = _rule(settings, where, problems)
    return rules


def shown_queues(rules: Mapping[str, QueueRule]) -> Iterator[tuple[str, str]]:
    """Keys and values as people read them."""
    for name, rule in rules.items():
        if rule.on_lease_end is not None:
            yield f"queues.{_shown_name(name)}.on_lease_end", rule.on_lease_end.value
        if rule.never_gpus_max is not None:
            yield f"queues.{_shown_name(name)}.never_gpus_max", str(rule.never_gpus_max)


def _rule(settings: Mapping[str, object], where: str, problems: list[str]) -> QueueRule:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in KEYS:
            problems.append(f"{where}.{shown(key)[1:-1]}: there is no such setting; {_advice(key, value)}")
            continue
        try:
            found[key] = KEYS[key](value, Origin(Path()))
        except ValueProblem as problem:
            problems.append(f"{where}.{key}: {problem}")
    kind = found.get("on_lease_end")
    return QueueRule(
        on_lease_end=None if kind is None else OnLeaseEnd(kind),
        never_gpus_max=found.get("never_gpus_max"),
    )


def _advice(key: str, value: object) -> str:
    if isinstance(value, dict):
        return 'a queue\'s name with a dot is written in quotes, as in [queues."root.a"]'
    close = difflib.get_close_matches(key[: values.SHOWN_LENGTH_MAX], KEYS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(KEYS)}"


def _shown_name(name: str) -> str:
    return shown(name)[1:-1] if name.isidentifier() else shown(name)
