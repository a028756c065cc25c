"""docs/reference/cli.md says of the admin verbs what they take."""

import re
from pathlib import Path
from typing import Final

from themis_arbiter.cli.admin import admin
from themis_arbiter.cli.main import cli

TEXT: Final = Path(__file__).parents[3].joinpath("docs", "reference", "cli.md").read_text(encoding="utf-8")
CHANGING: Final = TEXT.partition("\n## Changing\n")[2].partition("\n## ")[0]


def rows() -> dict[str, str]:
    """The table's row of each verb."""
    return {verb: line for line in CHANGING.splitlines() for verb in re.findall(r"`themis admin ([a-z-]+)", line)}


def options(verb: str) -> set[str]:
    return {name for option in admin.commands[verb].params for name in option.opts}


def test_every_admin_verb_is_there_and_those_that_do_not_ask_say_so() -> None:
    assert cli.commands["admin"] is admin
    assert {*rows()} == {*admin.commands} - {"audit"}  # it looks on, and stands in the table of those
    silent = {verb for verb, row in rows().items() if "has no `--yes`" in row}
    assert silent == {verb for verb in rows() if "--yes" not in options(verb)}


def test_the_last_four_verbs_are_those_without_a_request_id() -> None:
    assert "The last four verbs ask no arbiter and have\nno `--request-id`" in CHANGING
    assert [verb for verb in rows() if "--request-id" not in options(verb)] == list(rows())[-4:]
