"""Secrets come from files that only their owner can read: never from a command line, an environment or the settings' file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from themis_arbiter.server.values import Origin, ValueProblem, path

FILE_BYTES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and a password; shown as the file that they are from."""

    file: Path
    user: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return str(self.file)


def credentials(value: object, origin: Origin) -> Credentials:
    """What `USER:PASSWORD` in the file says. Errors: ValueProblem, also where others than the owner can read the file."""
    file = path(value, origin)
    try:
        mode = file.stat().st_mode
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueProblem(f"{file}: cannot be read: {error.strerror or error}; name a file with USER:PASSWORD") from None
    if mode & 0o077:
        raise ValueProblem(f"{file}: others can read it; make it its owner's alone (chmod 600)")
    try:
        user, colon, password = raw.decode("utf-8").strip().partition(":")
    except UnicodeDecodeError:
        raise ValueProblem(f"{file}: not UTF-8; write USER:PASSWORD on one line") from None
    if len(raw) > FILE_BYTES_MAX or not (user and colon and password) or not (user + password).isprintable():
        raise ValueProblem(f"{file}: does not hold USER:PASSWORD on one line; write that")
    return Credentials(file, user, password)
