"""How a command ends other than well: one line on stderr and an exit status (contracts.md)."""

from typing import Final

import click

DONE: Final = 0
NOT_SO: Final = 1  # the thing asked for is not so
WRONG_USE: Final = 2  # wrong use or unreadable input
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count


class NotSo(click.ClickException):
    """The thing asked for is not so: exit 1."""

    exit_code = NOT_SO


class WrongUse(click.ClickException):
    """Wrong use or unreadable input: exit 2."""

    exit_code = WRONG_USE


class Interrupted(click.ClickException):
    """Somebody pressed Ctrl-C: exit 130; the message says what is kept and how to go on."""

    exit_code = INTERRUPTED
