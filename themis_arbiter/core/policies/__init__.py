"""Policies by name: who gets which GPUs, given a market. All of them run live as well as simulated."""

from collections.abc import Callable, Mapping
from typing import Final

from themis_arbiter.core.policies.base import Policy
from themis_arbiter.core.policies.carbyne import CarbynePolicy
from themis_arbiter.core.policies.filling import DrfPolicy, OptimusPolicy, SlaqPolicy
from themis_arbiter.core.policies.gandiva import GandivaPolicy
from themis_arbiter.core.policies.guard import GuardPolicy
from themis_arbiter.core.policies.paper import PaperPolicy
from themis_arbiter.core.policies.queues import (
    FifoPolicy,
    LasPolicy,
    SrsfPolicy,
    SrtfPolicy,
    StrawmanPolicy,
    TiresiasPolicy,
)
from themis_arbiter.core.policies.quincy import QuincyPolicy
from themis_arbiter.core.policies.themis import ThemisPolicy
from themis_arbiter.core.types import CoreError

POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    "themis": ThemisPolicy,
    "guard": GuardPolicy,
    "paper": PaperPolicy,
    "fifo": FifoPolicy,
    "drf": DrfPolicy,
    "las": LasPolicy,
    "tiresias": TiresiasPolicy,
    "gandiva": GandivaPolicy,
    "optimus": OptimusPolicy,
    "slaq": SlaqPolicy,
    "srtf": SrtfPolicy,
    "srsf": SrsfPolicy,
    "quincy": QuincyPolicy,
    "carbyne": CarbynePolicy,
    "strawman": StrawmanPolicy,
}


def make_policy(name: str) -> Policy:
    """The policy of that name. Errors: CoreError naming those that exist."""
    if name not in POLICIES:
        raise CoreError(f"no policy is called {name!r}; there are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]()
