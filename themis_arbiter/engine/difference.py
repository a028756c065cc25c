"""Where two lines of effects differ, for people: which effect, which field of it, and the two values.

A decision record alone can be a hundred thousand characters; two lines side by side tell nobody anything.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

SHOWN_CHARS_MAX: Final = 200
DEPTH_MAX: Final = 100  # of nesting that is followed; effects have less than ten


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The first difference. `effect` counts from 1; 0: the lines are no effects at all."""

    effect: int
    kind: str  # the effect's type as recorded, or as decided now where nothing was recorded
    path: str  # of the field in it, as `batch.puts[2].end_ms`; "" where the whole effect differs
    recorded: str  # JSON, cut to SHOWN_CHARS_MAX; "nothing" where that side has nothing there
    replayed: str


NOTHING: Final = "nothing"


def first_place(recorded: str, replayed: str) -> Place:
    """The first place at which two different lines of effects differ."""
    try:
        before, now = json.loads(recorded)["effects"], json.loads(replayed)["effects"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Place(effect=0, kind="", path="", recorded=_short(recorded), replayed=_short(replayed))
    for number in range(max(len(before), len(now))):
        old, new = before[number : number + 1], now[number : number + 1]
        if _text(old) != _text(new):
            return _in_effect(number + 1, old, new)
    return Place(effect=0, kind="", path="", recorded=_short(recorded), replayed=_short(replayed))


def _in_effect(number: int, old: list[Any], new: list[Any]) -> Place:
    kind = next((str(e["type"]) for e in (*old, *new) if isinstance(e, dict) and "type" in e), "")
    if not old or not new or _type(old[0]) != _type(new[0]):
        return Place(effect=number, kind=kind, path="", recorded=_shown(old), replayed=_shown(new))
    path, before, now = _descend(old, new)
    return Place(effect=number, kind=kind, path=path, recorded=_shown(before), replayed=_shown(now))


def _descend(old: list[Any], new: list[Any]) -> tuple[str, list[Any], list[Any]]:
    """The path to the first differing leaf, and both values there; a list of none is nothing."""
    path = ""
    for _ in range(DEPTH_MAX):
        for step, before, now in _children(old[0], new[0]):
            if _text(before) != _text(now):
                path, old, new = path + step, before, now
                break
        else:
            break
        if not old or not new:
            break
    return path.removeprefix("."), old, new


def _children(old: Any, new: Any) -> Iterator[tuple[str, list[Any], list[Any]]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield f".{key}", [old[key]] if key in old else [], [new[key]] if key in new else []
    elif isinstance(old, list) and isinstance(new, list):
        for k in range(max(len(old), len(new))):
            yield f"[{k}]", old[k : k + 1], new[k : k + 1]


def _type(effect: Any) -> Any:
    return effect.get("type") if isinstance(effect, dict) else None


def _text(value: list[Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _shown(value: list[Any]) -> str:
    return _short(_text(value)[1:-1]) if value else NOTHING


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
