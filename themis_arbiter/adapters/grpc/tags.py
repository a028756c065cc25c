"""The tags that a person puts on a YARN application to tell the arbiter about it (contracts.md, "Live: settings").

YARN 3.2 lower-cases tags, later versions need not, so keys and names in tags are lower-cased here: they compare
case-insensitively on every version. A bad tag is left out with a note that `themis explain` shows; it fails nothing.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from themis_arbiter.adapters.grpc.faults import quoted, why_bad_name
from themis_arbiter.core.gpu_speeds import parse_speeds
from themis_arbiter.core.types import GpuMillis, GpuSpeeds, Millis, OnLeaseEnd

PREFIX: Final = "themis."
TAGS_MAX: Final = 64  # of ours on one application; YARN 3.2 itself allows 10
TAG_LENGTH_MAX: Final = 100  # as in YARN 3.2
GANG_MAX: Final = 100_000
WORK_GPU_S_MAX: Final = 1e12  # 30 years on a thousand GPUs
CHECKPOINT_S_MAX: Final = 7 * 24 * 3_600.0
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """What the good tags say; None where nothing was said. `notes` tell what was left out and why."""

    app: str | None = None
    gang: int | None = None
    model: str | None = None
    work: GpuMillis | None = None
    on_lease_end: OnLeaseEnd | None = None
    checkpoint_ms: Millis | None = None
    gpu_speeds: GpuSpeeds | None = None
    is_any: bool = False  # there is at least one tag of ours, good or bad
    notes: tuple[str, ...] = ()


class _BadValueError(Exception):
    """Why a tag's value is refused."""


def _name(value: str) -> str:
    if why := why_bad_name(value, TAG_LENGTH_MAX):
        raise _BadValueError(why)
    return value


def _number(value: str, low: float, high: float) -> float:
    if not _NUMBER.fullmatch(value):
        raise _BadValueError("it is not a number")
    number = float(value)
    if not low <= number <= high:
        raise _BadValueError(f"it must lie between {low:g} and {high:g}")
    return number


def _gang(value: str) -> int:
    number = _number(value, 1, GANG_MAX)
    if not number.is_integer():
        raise _BadValueError("it is not a whole number")
    return int(number)


def _on_lease_end(value: str) -> OnLeaseEnd:
    try:
        return OnLeaseEnd(value)
    except ValueError:
        raise _BadValueError(f"it must be one of {', '.join(OnLeaseEnd)}") from None


def _gpu_speeds(value: str) -> GpuSpeeds:
    try:
        return parse_speeds(value)
    except ValueError as err:
        raise _BadValueError(str(err)) from None


_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "app": ("app", _name),
    "gang": ("gang", _gang),
    "model": ("model", _name),
    "work-gpu-s": ("work", lambda value: _number(value, 1e-3, WORK_GPU_S_MAX) * 1_000),
    "on-lease-end": ("on_lease_end", _on_lease_end),
    "gpu-speeds": ("gpu_speeds", _gpu_speeds),
    "checkpoint-s": ("checkpoint_ms", lambda value: round(_number(value, 0, CHECKPOINT_S_MAX) * 1_000)),
}


def parse_tags(tags: Iterable[str]) -> Tags:
    """What `tags` say. Tags of others are not looked at; of two values for one key neither counts."""
    values: dict[str, set[str]] = {}
    notes: list[str] = []
    ours = sorted({tag for tag in (t.strip().lower() for t in tags) if tag.startswith(PREFIX)})
    if len(ours) > TAGS_MAX:
        notes.append(f"{len(ours)} tags that start with {PREFIX}: only the first {TAGS_MAX} are read")
    for tag in ours[:TAGS_MAX]:
        key, equals, value = tag[len(PREFIX) :].partition("=")
        if not equals or key not in _PARSERS:
            notes.append(f"tag {quoted(tag)} is ignored: there is no such tag")
        else:
            values.setdefault(key, set()).add(value)
    parsed: dict[str, Any] = {}  # by the names of Tags' fields, as _PARSERS gives them
    for key, found in sorted(values.items()):
        field, parse = _PARSERS[key]
        if len(found) > 1:
            notes.append(f"tag {PREFIX}{key} is ignored: it has {len(found)} different values")
            continue
        (value,) = found
        try:
            parsed[field] = parse(value)
        except _BadValueError as err:
            notes.append(f"tag {PREFIX}{key}={quoted(value)} is ignored: {err}")
    return Tags(is_any=bool(ours), notes=tuple(notes), **parsed)


def app_id_of(user: str, app: str | None, application_id: str) -> str:
    """The app that an application belongs to: `user/app` where it says so, else an app of its own.

    The user's part has no slash of its own (it is escaped), so that no choice of names joins another user's app; an
    application id has none either, so that no tag reaches an untagged application.
    """
    if app is None:
        return application_id
    return f"{user.replace('%', '%25').replace('/', '%2F')}/{app}"


def user_in(app_id: str) -> str:
    """The user in an app's name, "" in that of an application without a tag."""
    user, slash, _ = app_id.partition("/")
    return user.replace("%2F", "/").replace("%25", "%") if slash else ""
