"""Kinds of values that flags take: finite numbers, files and folders for results, mixes, values by name that come once."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from themis_arbiter.sim.plain_numbers import finite

SHOWN_CHARS_MAX: Final = 60
STDOUT: Final = Path("-")


class Finite(click.FloatRange):
    """A finite number, ASCII digits only, within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Errors: click.BadParameter."""
        if isinstance(value, str):
            try:
                value = finite(value)
            except ValueError as problem:
                self.fail(f"{value[:SHOWN_CHARS_MAX]!r} {problem}", param, ctx)
        return super().convert(value, param, ctx)


class ResultFile(click.Path):
    """A file to write: a name, and no folder. Errors: click.BadParameter."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        _refuse_empty(self, value, param, ctx)
        return super().convert(value, param, ctx)


class ResultFolder(click.Path):
    """A folder to write, there or not: no file, nor below one. Errors: click.BadParameter."""

    name = "folder"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        _refuse_empty(self, value, param, ctx)
        folder: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
        try:
            file = next((p for p in (folder, *folder.absolute().parents) if p.exists() and not p.is_dir()), None)
        except OSError as problem:
            self.fail(f"{str(folder)[:SHOWN_CHARS_MAX]!r}: {problem.strerror or problem}; name a folder", param, ctx)
        if file is not None:
            self.fail(f"{str(file)!r} is a file; name a folder", param, ctx)
        return folder


def _refuse_empty(kind: click.Path, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> None:
    if isinstance(value, str) and (not value or "\0" in value):
        kind.fail("the name is empty; name a place for the results", param, ctx)


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by name. Errors: click.BadParameter where a name comes twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise click.BadParameter(f"{name[:SHOWN_CHARS_MAX]!r} is given twice; say it once")
        found[name] = value
    return found


def inputs_named(flags: Mapping[str, Any], names: Iterable[str]) -> dict[str, Path | None]:
    """The input files among `flags` by the flag that names them."""
    return {f"--{name}": flags.get(name) for name in names}
