"""Parts of a decision record that are made when somebody reads them.

A record tells of every app and every job in line, and of most rounds nobody ever asks that. So these parts are kept as the
values that they are made of, which are frozen: whenever they are read they are the same.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Later:
    """A value that is made when its record is first asked for it."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        """`make` must give the same whenever it is called."""
        self.make = make


class Record(Mapping[str, Any]):
    """A decision record or a part of one, in the order in which it was put together; `Later` values are made when read."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: Mapping[str, Any]) -> None:
        """Of equal keys the last one's value is taken, as in a dict."""
        self._parts: dict[str, Any] = {}
        for part in parts:
            self._parts.update(part._parts if isinstance(part, Record) else part)

    def __getitem__(self, key: str) -> Any:
        value = self._parts[key]
        if type(value) is Later:
            value = self._parts[key] = value.make()
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
