"""Parsers of single settings: text or TOML value in, plain value out; what is wrong and what to do in the error.

The environment and flags only have text, a file has types as well; every parser takes both.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final, TypeAlias

from themis_arbiter.core.settings import ADMISSION_RHO_MAX, GANG_SHARE_MAX, OWED_LEASES_MAX, REGRET_MAX, WEIGHT_MAX
from themis_arbiter.core.types import Millis

DURATION_MS_MAX: Final = 366 * 24 * 3_600_000
TEXT_LENGTH_MAX: Final = 4_096  # of one value; no path or name that works is longer
SHOWN_LENGTH_MAX: Final = 80
HOSTS_MAX: Final = 16  # servers of one ZooKeeper, arbiters of one cluster

RESERVED: Final = frozenset({"election", "epoch", "serves"})  # what arbiters make below their path; see zookeeper/store.py
RESERVED_START: Final = "book-"

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what an address may say, nothing is bound here

_UNITS_MS: Final[dict[str, int]] = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"\s*([0-9.eE+-]+)\s*([a-z]*)\s*")
_CHROOT: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class ValueProblem(Exception):
    """A setting's value that cannot be used; the message says what is wrong and what to write instead."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a port listens. Port 0: the system chooses one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """Whether it is one to listen at on every network, which nobody can be called at from another machine."""
        return self.host in EVERYWHERE

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where leases are kept: `kind` is sqlite (with `path`), zookeeper (with `hosts` and `chroot`) or memory."""

    kind: str
    path: Path | None = None
    hosts: str = ""  # HOST:PORT with commas between
    chroot: str = ""  # an absolute path, without a slash at its end

    def __str__(self) -> str:
        return f"{self.kind}:{self.path or ''}{self.hosts}{self.chroot}"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: relative paths in it are relative to `folder`."""

    folder: Path


Parser: TypeAlias = Callable[[object, Origin], object]


def shown(value: object) -> str:
    """A value as an error may quote it: on one line, bounded, nothing hidden."""
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else text[: SHOWN_LENGTH_MAX - 3] + "..."


def text_of(value: object, what: str) -> str:
    """A non-empty text. Errors: ValueProblem."""
    if not isinstance(value, str) or not value.strip():
        raise ValueProblem(f"{shown(value)} is not {what}; write it as text in quotes")
    if len(value) > TEXT_LENGTH_MAX or not value.isprintable():
        raise ValueProblem(f"{shown(value)} is too long or holds control characters; write {what}")
    return value.strip()


def duration(value: object, _origin: Origin) -> Millis:
    """Milliseconds of "300 s", "5 min", "1500 ms" or a number of seconds. Errors: ValueProblem."""
    advice = 'write a number and a unit, such as "300 s", "5 min" or "1500 ms" (a bare number is seconds)'
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueProblem(f"{shown(value)} is not a duration; {advice}")
    if isinstance(value, str):
        matched = _DURATION.fullmatch(value[:TEXT_LENGTH_MAX])
        if matched is None:
            raise ValueProblem(f"{shown(value)} is not a duration; {advice}")
        digits, unit = matched[1], matched[2] or "s"
    elif isinstance(value, int) and abs(value) > DURATION_MS_MAX:
        digits, unit = str(DURATION_MS_MAX), "d"  # too long in any case; the text of a huge int takes quadratic time
    else:
        digits, unit = str(value), "s"
    if unit not in _UNITS_MS:
        raise ValueProblem(f"{shown(value)}: unknown unit {shown(unit)}; units are {', '.join(_UNITS_MS)}")
    try:
        amount = Decimal(digits)
    except InvalidOperation:
        raise ValueProblem(f"{shown(value)} is not a duration; {advice}") from None
    if not amount.is_finite() or amount < 0:
        raise ValueProblem(f"{shown(value)} is not a duration; it must be finite and not negative")
    if amount > DURATION_MS_MAX // _UNITS_MS[unit]:
        raise ValueProblem(f"{shown(value)} is longer than a year; write less")
    exact_ms = amount * _UNITS_MS[unit]
    if exact_ms != int(exact_ms):
        raise ValueProblem(f"{shown(value)} is not whole milliseconds; write a coarser value")
    return int(exact_ms)


def boolean(value: object, _origin: Origin) -> bool:
    """True or false, or one of their usual spellings in text. Errors: ValueProblem."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in _TRUE | _FALSE:
        raise ValueProblem(f"{shown(value)} is neither true nor false; write true or false")
    return word in _TRUE


def _float(value: object) -> float | None:
    """The number that `value` is or spells, nan included; None: it is none."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def rho_bound(value: object, _origin: Origin) -> float:
    """0, or a number from 1 to ADMISSION_RHO_MAX. Errors: ValueProblem."""
    number = _float(value)
    if number is None or not (number == 0.0 or 1.0 <= number <= ADMISSION_RHO_MAX):
        raise ValueProblem(
            f"{shown(value)} is neither 0 (off) nor a number from 1 to {ADMISSION_RHO_MAX:g}; write one, such as 2"
        )
    return number


def _above_zero(value: object, most: float, advice: str) -> float:
    number = _float(value)
    if number is None or not 0.0 < number <= most:
        raise ValueProblem(f"{shown(value)} is not a number above 0 and up to {most:g}; {advice}")
    return number


def _from_zero(value: object, most: float, example: str) -> float:
    number = _float(value)
    if number is None or not 0.0 <= number <= most:
        raise ValueProblem(f"{shown(value)} is not a number from 0 to {most:g}; write one, such as {example}")
    return number


def regret(value: object, _origin: Origin) -> float:
    """A number above 0, up to REGRET_MAX. Errors: ValueProblem."""
    return _above_zero(value, REGRET_MAX, "write one, such as 1.5")


def gang_share(value: object, _origin: Origin) -> float:
    """A number above 0, up to GANG_SHARE_MAX. Errors: ValueProblem."""
    return _above_zero(value, GANG_SHARE_MAX, "such as 0.5; above 1 no gang is large")


def lease_count(value: object, _origin: Origin) -> float:
    """A number from 0 to OWED_LEASES_MAX. Errors: ValueProblem."""
    return _from_zero(value, OWED_LEASES_MAX, "1")


def fraction(value: object, _origin: Origin) -> float:
    """A number from 0 to 1. Errors: ValueProblem."""
    return _from_zero(value, 1.0, "0.8")


def weight(value: object, _origin: Origin) -> float:
    """How much an owner counts as against another of 1. Errors: ValueProblem."""
    number = _float(value)
    if number is None or not 1 / WEIGHT_MAX <= number <= WEIGHT_MAX:
        raise ValueProblem(f"{shown(value)} is not a number from {1 / WEIGHT_MAX:g} to {WEIGHT_MAX:g}; write one, such as 2")
    return number


def whole(least: int, most: int) -> Parser:
    """A parser of whole numbers from `least` to `most`."""

    def parse(value: object, _origin: Origin) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
            number = int(value)
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise ValueProblem(f"{shown(value)} is not a whole number from {least} to {most}; write one")
        return number

    return parse


def address(value: object, _origin: Origin) -> Address:
    """HOST:PORT, IPv6 hosts in brackets. Errors: ValueProblem."""
    text = text_of(value, "an address")
    matched = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]+)):([0-9]{1,5})", text)
    if matched is None or int(matched[3]) > 65_535:
        raise ValueProblem(f"{shown(value)} is not HOST:PORT; write one, such as 127.0.0.1:7650 or [::1]:7650")
    return Address(matched[1] or matched[2], int(matched[3]))


def path(value: object, origin: Origin) -> Path:
    """An absolute path; relative ones start where the setting stands. Errors: ValueProblem."""
    given = Path(text_of(value, "a path"))
    try:
        return origin.folder / given.expanduser()
    except RuntimeError:
        raise ValueProblem(f"{shown(value)}: there is no such home folder; write an absolute path") from None


def store(value: object, origin: Origin) -> StoreAddress:
    """`sqlite:PATH`, `zookeeper:HOST:PORT[,HOST:PORT...]/PATH` or `memory:`. Errors: ValueProblem."""
    text = text_of(value, "a store")
    kind, colon, rest = text.partition(":")
    advice = 'write "sqlite:PATH", "zookeeper:HOSTS/PATH", or "memory:" for leases that need not outlive the process'
    if kind == "zookeeper" and colon:
        return _zookeeper(value, rest, origin)
    if kind == "memory" and colon and not rest:
        return StoreAddress("memory")
    if kind == "sqlite" and rest.strip():
        return StoreAddress("sqlite", path(rest, origin))
    raise ValueProblem(f"{shown(value)} is not a store; {advice}")


def _zookeeper(value: object, text: str, origin: Origin) -> StoreAddress:
    hosts, slash, chroot = text.partition("/")
    advice = 'write "zookeeper:HOST:PORT,HOST:PORT/PATH", such as "zookeeper:zk1:2181,zk2:2181,zk3:2181/themis"'
    named = [str(address(host.strip(), origin)) for host in hosts.split(",") if host.strip()]
    if not 0 < len(named) <= HOSTS_MAX or any(host.endswith(":0") for host in named):
        raise ValueProblem(f"{shown(value)} does not name 1 to {HOSTS_MAX} servers; {advice}")
    if len(set(named)) < len(named):
        raise ValueProblem(f"{shown(value)} names a server twice; {advice}")
    if any(address(host, origin).is_everywhere for host in named):
        raise ValueProblem(f"{shown(value)} names an address to listen at, not a server's; {advice}")
    if not slash or not _CHROOT.fullmatch(f"/{chroot}") or {".", ".."} & set(chroot.split("/")):
        # Every ZooKeeper has nodes of others at its top.
        letters = "names of letters, digits, `.`, `_` and `-` with one slash before each"
        raise ValueProblem(f"{shown(value)} does not name a path of the arbiters' own, {letters}; {advice}")
    if chroot.split("/")[0] == "zookeeper":
        raise ValueProblem(f"{shown(value)}: /zookeeper is ZooKeeper's own; {advice}")
    taken = [name for name in chroot.split("/") if name in RESERVED or name.startswith(RESERVED_START)]
    if taken:
        raise ValueProblem(f"{shown(value)}: arbiters call nodes of their own {shown(taken[0])}; name the path otherwise")
    return StoreAddress("zookeeper", hosts=",".join(named), chroot=f"/{chroot}")


def addresses(value: object, origin: Origin) -> tuple[Address, ...]:
    """HOST:PORT to call, or several with commas between. Errors: ValueProblem."""
    parts = [part for part in text_of(value, "an address").split(",") if part.strip()]
    if not 0 < len(parts) <= HOSTS_MAX:
        raise ValueProblem(f"{shown(value)} does not name 1 to {HOSTS_MAX} addresses; write HOST:PORT, with commas between")
    named = tuple(address(part, origin) for part in parts)
    for one in named:
        why = "it is one to listen at" if one.is_everywhere else "" if one.port else "it has port 0"
        if why:
            raise ValueProblem(f"{shown(value)}: nobody can be called at {one}: {why}; write where the arbiter says it listens")
    return named


def choice(options: Sequence[str]) -> Parser:
    """A parser of one of `options`."""

    def parse(value: object, _origin: Origin) -> str:
        text = value.strip().lower() if isinstance(value, str) else ""
        if text in options:
            return text
        known = ", ".join(options)
        raise ValueProblem(f"{shown(value)} is not one of the values there are; write one of: {known}")

    return parse


def show_duration(ms: Millis) -> str:
    """A duration as a person writes it, in the largest unit that divides it."""
    for unit in ("h", "min", "s"):
        if ms and ms % _UNITS_MS[unit] == 0 and (unit == "s" or ms // _UNITS_MS[unit] >= 2):
            return f"{ms // _UNITS_MS[unit]} {unit}"
    return f"{ms} ms" if ms else "0 s"
