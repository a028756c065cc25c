"""Core values to plain JSON and back, by their dataclass fields: what the journal and the stores are written in.

Encoding sorts nothing and invents nothing: field order is declaration order, so equal values give equal bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from themis_arbiter.core.effects import EFFECT_TYPES
from themis_arbiter.core.events import EVENT_TYPES
from themis_arbiter.core.types import CoreError

_BY_NAME = {t.__name__: t for t in (*EVENT_TYPES, *EFFECT_TYPES)}

_PLAIN = frozenset({type(None), bool, int, float, str})


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


@cache
def _left_out(kind: type) -> tuple[str, ...]:
    """Fields that are not written where they are empty."""
    return tuple(f.name for f in fields(kind) if f.metadata.get("left_out"))


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, strings and numbers. Errors: CoreError for a type that the journal cannot hold."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [v if type(v) in _PLAIN else to_plain(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(kind):
        plain = {name: to_plain(getattr(value, name)) for name in _names(kind)}
        for name in _left_out(kind):
            if not plain[name]:
                del plain[name]
        return plain
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, bool | int | float | str):
        return value
    raise CoreError(f"{type(value).__name__} has no place in the journal")


def dumps(value: Any) -> str:
    """`value` as one line of JSON; NaN and infinities are refused (CoreError)."""
    try:
        return json.dumps(to_plain(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError as err:
        raise CoreError(f"not a number in {value!r}") from err


def tagged(value: Any) -> str:
    """An event or effect with its type's name, as one line of JSON."""
    return dumps({"type": type(value).__name__, **to_plain(value)})


def untagged(line: str) -> Any:
    """The event or effect that `tagged` wrote. Errors: CoreError where the line is none."""
    try:
        plain = json.loads(line)
        kind = _BY_NAME[plain.pop("type")]
    except (ValueError, KeyError, AttributeError, TypeError) as err:
        raise CoreError(f"not a journal line: {line[:200]!r}") from err
    return from_plain(kind, plain)


def from_plain(kind: Any, plain: Any) -> Any:
    """The value of type `kind` that `to_plain` made `plain` of. Errors: CoreError naming the field."""
    if kind is Any:
        return plain
    origin = get_origin(kind)
    if origin in (UnionType, Union):
        return _from_union(kind, plain)
    if isinstance(kind, type) and is_dataclass(kind):
        return _from_fields(kind, plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(plain)
    if origin is tuple:
        args = get_args(kind)
        inner = [args[0]] * len(plain) if len(args) == 2 and args[1] is Ellipsis else list(args)
        return tuple(from_plain(k, v) for k, v in zip(inner, plain, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(plain, dict):
            raise CoreError(f"{plain!r:.80} is no mapping")
        value_kind = get_args(kind)[1]
        return {k: from_plain(value_kind, v) for k, v in plain.items()}
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise CoreError(f"{plain!r} is not a {kind.__name__}")
    return plain


def _from_union(kind: Any, plain: Any) -> Any:
    """A union in the journal is always `X | None`."""
    inner = [k for k in get_args(kind) if k is not type(None)]
    if plain is None and len(inner) < len(get_args(kind)):
        return None
    if len(inner) != 1:
        raise CoreError(f"the journal cannot tell the members of {kind} apart")
    return from_plain(inner[0], plain)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _flat(kind: type) -> tuple[tuple[str, type, bool], ...] | None:
    """Name, type and whether it is an enum of each field, where all are plain or enums; None where some are not."""
    hints = _hints(kind)
    flat = [(f.name, hints[f.name]) for f in fields(kind)]
    if not all(hint in _PLAIN or (isinstance(hint, type) and issubclass(hint, Enum)) for _, hint in flat):
        return None
    return tuple((name, hint, hint not in _PLAIN) for name, hint in flat)


def _from_flat(kind: type, flat: tuple[tuple[str, type, bool], ...], plain: dict[str, Any]) -> Any:
    """What `_from_fields` would make of it, in a quarter of the time; None where that has to convert, or to complain."""
    if plain.keys() != _hints(kind).keys():
        return None
    values = {}
    for name, hint, is_enum in flat:
        value = plain[name]
        if is_enum:
            member = hint._value2member_map_.get(value) if type(value) is str else None  # type: ignore[attr-defined]
            if member is None:
                return None
            value = member
        elif type(value) is not hint:
            return None
        values[name] = value
    return kind(**values)


def _from_fields(kind: type, plain: Any) -> Any:
    if not isinstance(plain, dict):
        raise CoreError(f"{plain!r} is not a {kind.__name__}")
    flat = _flat(kind)
    if flat is not None and (made := _from_flat(kind, flat, plain)) is not None:
        return made
    hints, values = _hints(kind), {}
    unknown = plain.keys() - hints.keys()
    if unknown:
        raise CoreError(f"{kind.__name__} has no field {sorted(unknown)}")
    for f in fields(kind):
        if f.name in plain:
            try:
                values[f.name] = from_plain(hints[f.name], plain[f.name])
            except (CoreError, ValueError, TypeError) as err:
                raise CoreError(f"{kind.__name__}.{f.name}: {err}") from err
    try:
        return kind(**values)
    except TypeError as err:
        raise CoreError(f"{kind.__name__}: {err}") from err
