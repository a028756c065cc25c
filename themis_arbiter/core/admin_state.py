"""What admins have set: outlives the arbiter, stored with the leases as one JSON text."""

import json
from dataclasses import dataclass
from typing import Final

from themis_arbiter.core.codec import dumps, from_plain
from themis_arbiter.core.types import AppId, CoreError, GpuMillis, Millis, NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """An app that admission control has let in (core.admission): when, the time that was promised it, its work then."""

    app_id: AppId
    admitted_ms: Millis
    promised_ms: float
    work: GpuMillis


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminState:
    """Nothing set is the default; names sorted. `admitted` is nobody's setting: it is kept here because it is stored alike."""

    is_paused: bool = False
    is_observing: bool = False
    drained: tuple[NodeName, ...] = ()
    weights: tuple[tuple[AppId, float], ...] = ()
    admitted: tuple[Admitted, ...] = ()


def admin_to_text(admin: AdminState) -> str:
    """What the store keeps; empty where nothing is set."""
    return "" if admin == _NOTHING_SET else dumps(admin)


_NOTHING_SET: Final = AdminState()


def admin_from_text(text: str) -> AdminState:
    """Errors: CoreError where the text is none of `admin_to_text`'s."""
    if not text:
        return AdminState()
    try:
        plain = json.loads(text)
    except ValueError as err:
        raise CoreError(f"the store's admin record is no JSON: {text[:200]!r}") from err
    admin = from_plain(AdminState, plain)
    assert isinstance(admin, AdminState)
    return admin
