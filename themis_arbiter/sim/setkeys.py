"""`--set key=value`: the settings of an arbiter that a replay may vary, read off `core.settings.Settings` itself.

What has a flag of its own (lease, restart cost, ...) and what only a live system meets has no key here. Durations are seconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, Final

from themis_arbiter.core.settings import AGING_MAX, LEASE_MS_MAX, PaperRules, Settings
from themis_arbiter.core.types import CoreError
from themis_arbiter.sim.plain_numbers import finite, whole
from themis_arbiter.sim.trace import TraceError

OWN_FLAGS: Final = frozenset({"policy", "lease_ms", "restart_cost_ms", "rho_floor_ms", "slowdowns", "paper"})
LIVE_ONLY: Final = frozenset(
    {"queues", "users", "share_by", "on_lease_end", "observe_only", "recovery_grace_ms", "is_first_start_free"}
)

GPU_SECONDS: Final = frozenset({"first_queue_max"})  # fields that hold GPU-ms

LEASE_S: Final = 300.0
PAPER_LEASE_S: Final = 600.0

# What a trace's world sets otherwise than a live system: nothing is to be gathered, since reports come without delay.
SIM_DEFAULTS: Final[Mapping[str, Any]] = {"debounce_ms": 0}

# Keys that only some policies read.
READ_BY: Final[Mapping[str, frozenset[str]]] = {
    "f": frozenset({"paper"}),
    **{f.name: frozenset({"paper"}) for f in fields(PaperRules)},
    "payments": frozenset({"paper", "themis"}),
    "first_queue_max": frozenset({"tiresias"}),
    "srsf_recall": frozenset({"srsf"}),
    "tick": frozenset({"themis", "guard", "srsf"}),
    **dict.fromkeys(("recall", "urgent_above", "starving_above", "large_gang", "owed_leases"), frozenset({"themis", "guard"})),
}
ALIASES: Final[Mapping[str, str]] = {"fairness_knob": "f"}  # keys that are not called as their field is
IN_PAPER: Final = "paper."  # before the names of fields of PaperRules

MEANINGS: Final[Mapping[str, str]] = {
    "notice": "how long before its end a lease is decided on: renewed or drained",
    "debounce": "how long changes are gathered before a round is held",
    "recall": "whether `themis` and `guard` may end leases early, for urgent jobs that wait",
    "tick": "how long a job that is passed over waits for its next chance",
    "srsf_recall": "whether leases may end early, at a tick and with notice, for any job that waits and comes first",
    "urgent_above": "regret above which a job is urgent",
    "starving_above": "regret above which an urgent job goes before all others, first come first served",
    "large_gang": "share of the cluster from which on a gang is large: first when owed its first lease; above 1: none is",
    "owed_leases": "leases after its share has paid for its first lease, from when on a large gang is owed it",
    "gang_wait": "a gang whose containers are not whole by then is handed back",
    "no_show": "what was granted and is still unused then is taken back",
    "min_runtime": "a job that started is renewed until it has run so long",
    "f": "offers go to the worst-off 1-f of the apps (as --fairness-knob)",
    "filter": "who is asked to bid: the worst 1-f (fraction), or all with rho above 1, at least so many (adaptive)",
    "tie": "who of equally badly off apps comes first: by id, or random",
    "leftover": "who gets what the auction leaves: random, or the least work left first (service)",
    "rounding": "how a winner's share becomes whole gangs: up, down, lottery",
    "t_id": "what rho is measured against: the paper's T_id, or the ideal fluid share (fluid)",
    "admission_max_rho": "admission control: who would push somebody's projected rho above it waits to be let in; 0: off",
    "admission_queue_max": "apps that may wait to be let in; beyond it the first is let in whatever it does",
    "aging": f"exponent of the leases lost by waiting in the weight of a bid, 0 (none, as in the paper) to {AGING_MAX:g}",
    "first_queue_max": "GPU time at which a job falls into the second queue",
    "payments": "whether hidden payments keep bids truthful",
}


@dataclass(frozen=True, slots=True)
class SetKey:
    """One key: the field of Settings behind it, its default under a policy, what it does."""

    key: str
    field: str
    default: Any
    meaning: str

    @property
    def shown_default(self) -> str:
        """The default as one would write it."""
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.field.endswith("_ms"):
            return f"{self.default / 1000:g} s"
        return f"{self.default / 1000:g} GPU-s" if self.field in GPU_SECONDS else str(self.default)


def set_keys(policy: str | None = None) -> tuple[SetKey, ...]:
    """All keys, or those that a policy reads, by name."""
    found = []
    for f in fields(Settings):
        if f.name in OWN_FLAGS or f.name in LIVE_ONLY or f.default is MISSING:
            continue
        key = ALIASES.get(f.name, f.name.removesuffix("_ms"))
        found.append(SetKey(key, f.name, SIM_DEFAULTS.get(f.name, f.default), _meaning(key)))
    found += [SetKey(f.name, IN_PAPER + f.name, f.default, _meaning(f.name)) for f in fields(PaperRules)]
    read = (k for k in found if policy is None or policy in READ_BY.get(k.key, {policy}))
    return tuple(sorted(read, key=lambda k: k.key))


def unread(sets: Mapping[str, Any], policies: Iterable[str]) -> tuple[str, ...]:
    """Keys among `sets` (by field of Settings) that none of the policies reads, by name."""
    read = {key.field for policy in policies for key in set_keys(policy)}
    return tuple(key.key for key in set_keys() if key.field in sets and key.field not in read)


def _meaning(key: str) -> str:
    return MEANINGS.get(key, "see docs/reference/settings.md")


def parse_sets(texts: Iterable[str]) -> dict[str, Any]:
    """Values by field of Settings, each key once. Errors: TraceError naming the key."""
    known = {k.key: k for k in set_keys()}
    out: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or key not in known:
            what = f"there is no key {key[:40]!r}" if equals else "is not key=value"
            raise TraceError(f"--set {text[:60]!r}: {what}; `--list-settings` lists them")
        if known[key].field in out:
            raise TraceError(f"--set {text[:60]!r}: {key} is set twice; say it once")
        out[known[key].field] = _value(known[key], value.strip(), text)
    return out


def plain_sets(sets: Mapping[str, Any]) -> dict[str, Any]:
    """Values by key as they would be written, of values by field of Settings."""
    found: dict[str, Any] = {}
    for key in set_keys():
        if key.field in sets:
            value = sets[key.field]
            is_scaled = key.field.endswith("_ms") or key.field in GPU_SECONDS
            found[key.key] = value / 1000.0 if is_scaled else str(value) if isinstance(value, Enum) else value
    return found


def _value(key: SetKey, text: str, setting: str) -> Any:
    kind = type(key.default)
    try:
        if kind is bool:
            return {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}[
                text.lower()
            ]
        if key.field.endswith("_ms"):
            return _milliseconds(text)
        if key.field in GPU_SECONDS:
            return float(_milliseconds(text))
        if kind in {int, float}:
            return whole(text) if kind is int else finite(text)
        return kind(text)
    except (ValueError, KeyError, OverflowError):
        raise TraceError(f"--set {setting[:60]!r}: {key.key} takes {_kind_name(key)}; write one") from None


def _milliseconds(text: str) -> int:
    seconds = finite(text.removesuffix("s"))
    if not 0 <= seconds <= 1e9:
        raise ValueError(text)
    return round(seconds * 1000)


def _kind_name(key: SetKey) -> str:
    if key.field.endswith("_ms"):
        return "seconds, at least 0"
    if key.field in GPU_SECONDS:
        return "GPU-seconds, at least 0"
    if isinstance(key.default, Enum):
        return f"one of {', '.join(str(each) for each in type(key.default))}"
    return {bool: "true or false", int: "a whole number", float: "a finite number"}.get(type(key.default), "a word")


def make_settings(
    policy: str,
    *,
    lease_s: float | None,
    restart_cost_s: float,
    rho_floor_s: float,
    knob: float | None,
    sets: Mapping[str, Any],
) -> Settings:
    """The settings of a replay; a policy's own defaults (contracts.md) where nothing is said. Errors: TraceError."""
    if lease_s is None:
        lease_s = default_lease_s(policy)
    if knob is not None and "fairness_knob" in sets:
        raise TraceError("--fairness-knob and --set f say the same; give one of them")
    arguments: dict[str, Any] = {
        "policy": policy,
        "lease_ms": round(lease_s * 1000),
        "restart_cost_ms": round(restart_cost_s * 1000),
        "rho_floor_ms": round(rho_floor_s * 1000),
        **SIM_DEFAULTS,
        **{name: value for name, value in sets.items() if not name.startswith(IN_PAPER)},
    }
    if knob is not None:
        arguments["fairness_knob"] = knob
    rules = {name.removeprefix(IN_PAPER): value for name, value in sets.items() if name.startswith(IN_PAPER)}
    try:
        arguments["paper"] = PaperRules(**rules)
    except CoreError as refused:
        raise TraceError(f"--set: {refused}") from None
    problem = _contradiction(Settings.__dataclass_fields__, arguments)
    if problem:
        raise TraceError(problem)
    try:
        return Settings(**arguments)
    except CoreError as refused:
        raise TraceError(f"the settings contradict each other: {refused}") from None


def default_lease_s(policy: str) -> float:
    """The lease that a policy brings."""
    return PAPER_LEASE_S if policy == "paper" else LEASE_S


def _contradiction(known: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """What `Settings` would refuse, in seconds and by the flags that say it; empty where nothing is."""
    lease, restart, notice, tick, f = (
        arguments.get(name, known[name].default)
        for name in ("lease_ms", "restart_cost_ms", "notice_ms", "tick_ms", "fairness_knob")
    )
    if not 0 < lease <= LEASE_MS_MAX:
        return f"--lease {lease / 1000:g} s: a lease has from 0.001 to {LEASE_MS_MAX / 1000:g} s"
    if notice + restart >= lease:
        return (
            f"the settings contradict each other: --set notice={notice / 1000:g} and --restart-cost {restart / 1000:g} leave "
            f"nothing of --lease {lease / 1000:g} s; together they must be shorter"
        )
    if tick == 0:
        return "--set tick=0: a tick has at least 0.001 s; --set recall=false lets no lease end early"
    return "" if 0.0 <= f <= 1.0 else f"--set f={f:g}: f lies in [0, 1]"
