"""What a summary says of how its run was made: enough to run it again, and to see that two runs are not of one input."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from themis_arbiter import __version__
from themis_arbiter.core.settings import Settings
from themis_arbiter.sim.setkeys import READ_BY, plain_sets
from themis_arbiter.sim.simulate import Misreport
from themis_arbiter.sim.trace import TraceError

CHUNK_BYTES: Final = 1024 * 1024


def digest(path: Path) -> str | None:
    """SHA-256 of a file in hex; None of a pipe, which can be read only once. Errors: TraceError."""
    if not path.is_file():
        return None
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                found.update(chunk)
    except OSError as problem:
        raise TraceError(f"{path}: cannot be read: {problem.strerror or problem}; name a file that is there") from None
    return found.hexdigest()


def made_with(
    settings: Settings,
    files: Mapping[str, tuple[str, str | None] | None],
    sets: Mapping[str, Any],
    misreports: tuple[Misreport, ...],
    estimate_error: float,
    rho_floor_s: float,
) -> dict[str, Any]:
    """The object `made_with` of summary.json. `files`: path and SHA-256 by flag; None where none was named. Seconds."""
    return {
        "version": __version__,
        **{name: None if file is None else {"path": file[0], "sha256": file[1]} for name, file in files.items()},
        "lease_s": settings.lease_ms / 1000.0,
        "restart_cost_s": settings.restart_cost_ms / 1000.0,
        "rho_floor_s": rho_floor_s,
        "fairness_knob": settings.fairness_knob if settings.policy in READ_BY["f"] else None,
        "set": plain_sets(sets),
        "misreports": [f"{lie.app_id}:{lie.about}:{lie.factor:g}" for lie in misreports],
        "estimate_error": estimate_error,
    }
