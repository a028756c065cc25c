"""Whether arbiters on one store decide alike: each tells its version and the settings by which it decides, the others compare.

Leases and accounts do not depend on who made them, so arbiters that are not alike harm nothing: what is decided changes with
the lead, as it does over a restart with other settings. But somebody should know.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from themis_arbiter import __version__
from themis_arbiter.server.config import DIRECT, DURATIONS, ServerConfig

DECIDING: Final = frozenset((*DURATIONS, *DIRECT, "on_lease_end", "share_by"))
OWNERS: Final = ("queues.", "users.")
DIGEST_LENGTH: Final = 8  # of what is too long to tell: enough to see that it is another
SHOWN_MAX: Final = 10  # differences; the rest is counted
VALUE_LENGTH_MAX: Final = 60  # of a setting that another arbiter tells
TEXT_LENGTH_MAX: Final = 16_384  # of all that it tells


def told(config: ServerConfig) -> dict[str, str]:
    """What others may know of how this arbiter decides, as fields of its card."""
    settings = {one.key: one.value for one in config.resolved if one.key in DECIDING}
    owners = sorted((one.key, one.value) for one in config.resolved if one.key.startswith(OWNERS))
    settings["queues and users"] = _digest(owners)
    settings["models"] = _digest(sorted(config.settings.slowdowns.by_model.items()))
    return {"version": __version__, "settings": json.dumps(settings, sort_keys=True)}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str], name: str) -> tuple[str, ...]:
    """In what the arbiter `name`, which tells `theirs`, is not like the one that tells `ours`; () where nobody told."""
    if not theirs:
        return ()
    found = []
    if theirs.get("version") != ours["version"]:
        found.append(f"version is {ours['version']} here, {_bounded(theirs.get('version', 'an older one'))} at {name}")
    mine, its = _settings(ours), _settings(theirs)
    if its:
        for key in sorted(mine.keys() | its.keys()):
            here, there = mine.get(key, "unknown"), _bounded(its.get(key, "unknown"))
            if here != there:
                found.append(f"{_bounded(key)} is {here} here, {there} at {name}")
    if len(found) > SHOWN_MAX:
        found = [*found[:SHOWN_MAX], f"and {len(found) - SHOWN_MAX} more"]
    return tuple(found)


def _digest(what: list[Any]) -> str:
    return sha256(repr(what).encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH] if what else "none"


def _settings(card: Mapping[str, str]) -> dict[str, str]:
    """As another version may have written them: anything may be in there."""
    try:
        plain = json.loads(card.get("settings", "")[:TEXT_LENGTH_MAX])
    except (ValueError, RecursionError):
        return {}
    return {str(key): str(value) for key, value in plain.items()} if isinstance(plain, dict) else {}


def _bounded(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}..."
