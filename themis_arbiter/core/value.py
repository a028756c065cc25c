"""Frozen dataclasses for values that are made by the million: leases, their moves, reports, jobs, rows of bids.

A frozen dataclass pays for being frozen when it is made: each field by a call of `object.__setattr__`, three to four times the
cost of the rest. So mypy, which checks every line here, holds these values frozen, and at run time they are plain.

`changed` and `made` are for the few loops that make most of them: a constructor called by keywords takes several times as long
as copying its fields.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

ValueT = TypeVar("ValueT")

# Metadata of a field that is not written where it is empty: what is newer than journals leaves those without it as they were.
LEFT_OUT: Final[Mapping[str, bool]] = {"left_out": True}

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[type], type]:
        """`dataclass` for a value; equal values are equal and hash alike, as with frozen ones."""
        assert frozen, "a value does not change"
        return dataclass(slots=slots, kw_only=kw_only, unsafe_hash=True)


def changed(kind: type[ValueT], *names: str) -> Callable[..., ValueT]:
    """A function of a value and other values of these fields, in this order, that gives the value with these.

    Nothing is checked: it calls no `__post_init__`, so what that refuses or works out is its caller's care.
    """
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # a dataclass, which the checker cannot say
    assert set(names) <= set(known), f"{kind.__name__} has no {set(names) - set(known)}"
    return _written(kind, ("old", *names), {n: n if n in names else f"old.{n}" for n in known})


def made(kind: type[ValueT]) -> Callable[..., ValueT]:
    """A function of all fields' values in their order that makes the value; the same holds of it."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return _written(kind, known, {n: n for n in known})


def _written(kind: type[ValueT], takes: Iterable[str], sources: Mapping[str, str]) -> Callable[..., ValueT]:
    """Written out as Python and compiled, as `dataclass` does with its constructors; names are a class's own."""
    lines = [f"    new.{name} = {source}" for name, source in sources.items()]
    text = "\n".join([f"def written({', '.join(takes)}):", "    new = make(kind)", *lines, "    return new"])
    scope: dict[str, Any] = {"make": object.__new__, "kind": kind}
    exec(text, scope)  # noqa: S102 - no text but that of our own classes gets here
    written: Callable[..., ValueT] = scope["written"]
    return written


__all__ = ["LEFT_OUT", "changed", "made", "value"]
