"""The tables `[queues.NAME]` and `[users.NAME]` of a settings file: what holds for a YARN queue's jobs, and owners' weights.

They have neither variables nor flags, for a queue's or user's name may be anything.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from themis_arbiter.core.settings import QueueRule, ShareBy
from themis_arbiter.core.types import NAME_LENGTH_MAX, OnLeaseEnd
from themis_arbiter.server import values
from themis_arbiter.server.values import Origin, Parser, ValueProblem, shown

OWNERS_MAX: Final = 1_000  # tables of a kind
NEVER_GPUS_MAX: Final = 10**6

QUEUE_KEYS: Final[Mapping[str, Parser]] = {
    "on_lease_end": values.choice(tuple(OnLeaseEnd)),
    "never_gpus_max": values.whole(0, NEVER_GPUS_MAX),
    "weight": values.weight,
}
USER_KEYS: Final[Mapping[str, Parser]] = {"weight": values.weight}


def read_queues(table: object, source: str, problems: list[str]) -> dict[str, QueueRule]:
    """Rules by queue; what is wrong is added to `problems`."""
    rules = {}
    for name, found in _read("queue", QUEUE_KEYS, table, source, problems):
        if "on_lease_end" in found:
            found["on_lease_end"] = OnLeaseEnd(found["on_lease_end"])
        rules[name] = QueueRule(**found)
    return rules


def read_users(table: object, source: str, problems: list[str]) -> dict[str, float]:
    """Weights by user; what is wrong is added to `problems`."""
    return {name: found.get("weight", 1.0) for name, found in _read("user", USER_KEYS, table, source, problems)}


def shown_owners(queues: Mapping[str, QueueRule], users: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Keys and values as people read them."""
    for name, rule in queues.items():
        if rule.on_lease_end is not None:
            yield f"queues.{_shown_name(name)}.on_lease_end", rule.on_lease_end.value
        if rule.never_gpus_max is not None:
            yield f"queues.{_shown_name(name)}.never_gpus_max", str(rule.never_gpus_max)
        if rule.weight != 1.0:
            yield f"queues.{_shown_name(name)}.weight", f"{rule.weight:g}"
    for name, weight in users.items():
        yield f"users.{_shown_name(name)}.weight", f"{weight:g}"


def idle_weights(queues: Mapping[str, QueueRule], users: Mapping[str, float], share_by: ShareBy, source: str) -> list[str]:
    """Notes on weights that count for nothing, because their owners do not share."""
    kinds = {
        ("queues", "queue"): any(rule.weight != 1.0 for rule in queues.values()),
        ("users", "user"): any(weight != 1.0 for weight in users.values()),
    }
    return [
        f"{source}: weights of {kind} have no effect while share_by is {share_by}; set it to {owner} or queue-user"
        for (kind, owner), is_any in kinds.items()
        if is_any and owner not in share_by.split("-")
    ]


def _read(
    kind: str, keys: Mapping[str, Parser], table: object, source: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each owner's name and what its table says."""
    if not isinstance(table, dict):
        problems.append(f"{source}: {kind}s: holds a table for each {kind}; write [{kind}s.NAME] and its settings below")
    elif len(table) > OWNERS_MAX:
        problems.append(f"{source}: {kind}s: more than {OWNERS_MAX} {kind}s; name those that differ from the others only")
    else:
        for name, settings in table.items():
            where = f"{source}: {kind}s.{_shown_name(name)}"
            if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
                problems.append(f"{where}: is no {kind}'s name; write it as `themis apps --json` shows it")
            elif not isinstance(settings, dict):
                below = f"[{kind}s.{_shown_name(name)}]"
                problems.append(f"{where}: is a table, not a value; write {below} and its settings below")
            else:
                yield name, _owner(kind, keys, settings, where, problems)


def _owner(
    kind: str, keys: Mapping[str, Parser], settings: Mapping[str, object], where: str, problems: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in keys:
            problems.append(f"{where}.{shown(key)[1:-1]}: there is no such setting; {_advice(kind, keys, key, value)}")
            continue
        try:
            found[key] = keys[key](value, Origin(Path()))
        except ValueProblem as problem:
            problems.append(f"{where}.{key}: {problem}")
    return found


def _advice(kind: str, keys: Mapping[str, Parser], key: str, value: object) -> str:
    if isinstance(value, dict):
        return f'a {kind}\'s name with a dot is written in quotes, as in [{kind}s."root.a"]'
    close = difflib.get_close_matches(key[: values.SHOWN_LENGTH_MAX], keys, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(keys)}"


def _shown_name(name: str) -> str:
    return shown(name)[1:-1] if name.isidentifier() else shown(name)
