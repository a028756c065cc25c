"""Settings of a process: a TOML file, then the environment, then flags; parsed once into a frozen `ServerConfig`.

`SETTINGS` is the one table of what there is: the file's keys, the variables, the flags, `themis check-config` and
docs/reference/settings.md all come from it. Everything that is wrong is reported at once.
"""

import difflib
import socket
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.settings import LEASE_MS_MAX, QueueRule, Settings, ShareBy
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.types import CoreError, OnLeaseEnd
from themis_arbiter.server import values
from themis_arbiter.server.credentials import Credentials, credentials
from themis_arbiter.server.gpu_types import read_gpu_types, shown_gpu_types
from themis_arbiter.server.models import read_models
from themis_arbiter.server.owners import idle_weights, read_queues, read_users, shown_owners
from themis_arbiter.server.values import Address, Origin, Parser, StoreAddress, ValueProblem, show_duration, shown

FILE_BYTES_MAX: Final = 1024 * 1024
SESSION_MS_MIN: Final = 1_000  # an arbiter that pauses for longer loses the lead
SESSION_MS_MAX: Final = 300_000  # for so long nobody leads after a kill
ENVIRONMENT_PREFIX: Final = "THEMIS_"
# Variables with this prefix that are not settings.
OTHER_VARIABLES: Final = frozenset({"THEMIS_ARBITER", "THEMIS_CONFIG"})

# Settings of contracts.md that this version does not have: silence would let an admin rely on them.
LATER: Final = frozenset({"bid_deadline", "tls"})
# Settings of contracts.md that the ResourceManager's plugin reads, and their names in yarn-site.xml.
PLUGINS: Final[Mapping[str, str]] = {"fallback": "themis.fallback", "fallback_after": "themis.fallback.after-ms"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key as in the file (`section.key`), how it is read, its default as written, what it does."""

    key: str
    parser: Parser
    default: str | int | float | bool | None
    meaning: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return ENVIRONMENT_PREFIX + self.key.replace(".", "_").upper()

    @property
    def flag(self) -> str:
        """Its flag."""
        return "--" + self.key.replace(".", "-").replace("_", "-")


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("lease", values.duration, "300 s", "How long a lease is; lease ends lie on a common grid of this step."),
    Setting("notice", values.duration, "60 s", "How long before its end a lease is decided on: renewed or drained."),
    Setting("debounce", values.duration, "1 s", "How long changes are gathered before an auction round is held."),
    Setting("rho_floor", values.duration, "600 s", "Shortest t_independent that rho divides by."),
    Setting("restart_cost", values.duration, "40 s", "What a job loses when its GPUs change or it resumes."),
    Setting("recall", values.boolean, True, "Whether leases may end early, with notice, for urgent jobs that wait."),
    Setting("urgent_above", values.regret, 1.02, "Rho that a waiting job is heading for above which it is urgent and bids."),
    Setting("starving_above", values.regret, 1.3, "And above which it goes before all who came later."),
    Setting("large_gang", values.gang_share, 0.5, "Share of the cluster from which on a gang's first lease is owed; 2: never."),
    Setting("owed_leases", values.lease_count, 1.0, "Leases after its share has paid for it, from when on it goes first."),
    Setting("tick", values.duration, "60 s", "How often recall looks for urgent jobs that wait."),
    Setting("gang_wait", values.duration, "10 s", "A gang whose containers are not whole by then is handed back."),
    Setting("no_show", values.duration, "60 s", "GPUs granted, asked for and still unused then are taken back."),
    Setting("min_runtime", values.duration, "0 s", "A job that started is renewed until it has run so long."),
    Setting("on_lease_end", values.choice(tuple(OnLeaseEnd)), "checkpoint", "Kind of jobs that do not say; see Queues."),
    Setting("recovery_grace", values.duration, "30 s", "After the ResourceManager restarts: until what it misses is gone."),
    Setting("share_by", values.choice(tuple(ShareBy)), "user", "Among whom GPUs are shared first: their apps share theirs."),
    Setting("observe_only", values.boolean, False, "Decide and record, but lease nothing: YARN schedules by itself."),
    Setting("policy", values.choice(sorted(POLICIES)), "themis", "Who gets which GPUs."),
    Setting("fairness_knob", values.fraction, 0.8, "f of the `paper` policy; other policies do not read it."),
    Setting("payments", values.boolean, True, "Whether hidden payments keep bids truthful."),
    Setting("admission_max_rho", values.rho_bound, 0.0, "Admission control: the bound on projected rho; 0: all are let in."),
    Setting("admission_queue_max", values.whole(1, 10_000), 1_000, "Apps that may wait to be let in."),
    Setting("models", values.path, None, "CSV file `model,slot,machine,rack,cluster` of slowdowns; without: a guess."),
    Setting(
        "store", values.store, "sqlite:themis.db", "Where leases are kept: `sqlite:PATH`, `zookeeper:HOSTS/PATH` or `memory:`."
    ),
    Setting("grpc_address", values.address, "127.0.0.1:7650", "Port for the bridge, agents and the command line."),
    Setting("http_address", values.address, "127.0.0.1:7651", "Port for /metrics, health, REST and the status page."),
    Setting("zookeeper.session", values.duration, "10 s", "Session timeout asked for: a standby leads so long after a kill."),
    Setting("zookeeper.credentials", credentials, None, "File with `USER:PASSWORD` of ZooKeeper's digest scheme."),
    Setting("journal.folder", values.path, None, "Folder where each start writes a journal of its own; without: none."),
    Setting("journal.bytes_max", values.whole(65536, 2**40), 2**30, "Size at which a journal goes on in a new file."),
    Setting("journal.files_max", values.whole(1, 1000), 10, "Files that are kept in the folder, the newest ones."),
    Setting("log.format", values.choice(("text", "json")), "text", "A log line: `text` (key=value) or `json`."),
    Setting("log.level", values.choice(("debug", "info", "warning", "error")), "info", "Least severe line logged."),
    Setting("bridge.gateway_dir", values.path, None, "Folder where the ResourceManager's plugin leaves its gateway."),
    Setting("bridge.arbiter", values.addresses, "127.0.0.1:7650", "The arbiter that the bridge reports to, or all, by commas."),
)
BY_KEY: Final[Mapping[str, Setting]] = {s.key: s for s in SETTINGS}
# Settings of core that are times; `NAME_ms` there.
DURATIONS: Final = (
    *("lease", "notice", "debounce", "rho_floor", "restart_cost", "tick", "gang_wait"),
    *("no_show", "min_runtime", "recovery_grace"),
)
# And those that are what they are called.
DIRECT: Final = (
    *("policy", "fairness_knob", "payments", "observe_only", "recall", "urgent_above", "starving_above"),
    *("large_gang", "owed_leases", "admission_max_rho", "admission_queue_max"),
)
SECTIONS: Final = tuple(dict.fromkeys(s.key.partition(".")[0] for s in SETTINGS if "." in s.key))


class ConfigError(Exception):
    """Settings that cannot be used: one line for each problem in `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Where journals go and how much of them is kept."""

    folder: Path
    bytes_max: int
    files_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeConfig:
    """What the bridge needs to know."""

    gateway_dir: Path | None
    arbiters: tuple[Address, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """How to be in ZooKeeper, where leases are kept there."""

    session_ms: int
    credentials: Credentials | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """One setting as it stands, for people, and where it was said."""

    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """All settings, checked. `notes` are things that work but that nobody may have meant."""

    settings: Settings
    store: StoreAddress
    grpc_address: Address
    http_address: Address
    journal: JournalConfig | None
    bridge: BridgeConfig
    zookeeper: ZooKeeperConfig
    log_format: str
    log_level: str
    gpu_types: NodeTypes = field(default_factory=NodeTypes)
    resolved: tuple[Resolved, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: str
    origin: Origin


def load_config(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> ServerConfig:
    """Settings from `file`, overridden by `environment` (THEMIS_*), overridden by `flags` (by key; None: not given).

    Errors: ConfigError with every problem that there is.
    """
    problems: list[str] = []
    notes: list[str] = []
    given: dict[str, _Given] = {}
    queues: dict[str, QueueRule] = {}
    users: dict[str, float] = {}
    types = NodeTypes()
    if file is not None:
        tables = _tables(file, problems)
        queues = read_queues(tables.pop("queues", {}), str(file), problems)
        users = read_users(tables.pop("users", {}), str(file), problems)
        types = read_gpu_types(tables.pop("gpu_types", {}), str(file), problems)
        given.update(_of_file(file, tables, problems))
    here = Origin(Path.cwd())
    given.update(_of_environment(environment or {}, here, notes))
    for key, value in (flags or {}).items():
        if value is not None:
            given[key] = _Given(value, BY_KEY[key].flag, here)
    parsed: dict[str, Any] = {}
    resolved: list[Resolved] = []
    for setting in SETTINGS:
        one = given.get(setting.key, _Given(setting.default, "default", here))
        try:
            value = None if one.value is None else setting.parser(one.value, one.origin)
        except ValueProblem as problem:
            problems.append(f"{one.source}: {setting.key}: {problem}")
            continue
        parsed[setting.key] = value
        resolved.append(Resolved(setting.key, _show(setting, value), one.source))
    sources = {r.key: r.source for r in resolved}
    problems.extend(_contradictions(parsed, sources))
    slowdowns = None
    if parsed.get("models") is not None:
        slowdowns, models_problems = read_models(parsed["models"])
        problems.extend(f"{sources['models']}: models: {problem}" for problem in models_problems)
    if problems:
        raise ConfigError(problems)
    of_tables = (*shown_owners(queues, users), *shown_gpu_types(types))
    resolved += (Resolved(key, value, str(file)) for key, value in of_tables)
    notes += (
        _exposed(parsed, sources)
        + _not_callable(parsed, sources)
        + idle_weights(queues, users, ShareBy(parsed["share_by"]), str(file))
    )
    config = _build(parsed, queues, users, slowdowns, tuple(resolved), tuple(notes))
    return replace(config, gpu_types=types)


def _tables(file: Path, problems: list[str]) -> dict[str, Any]:
    """What the file has at its top; nothing where it cannot be read, which is then among the problems."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            problems.append(f"{file}: larger than {FILE_BYTES_MAX} bytes; name the arbiter's TOML file")
            return {}
        return tomllib.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror or error}; name a TOML file that is there")
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        problems.append(f"{file}: not TOML: {' '.join(str(error).split())}; put that right first")
    return {}


def _of_file(file: Path, tables: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, _Given]]:
    origin = Origin(file.absolute().parent)
    for key, value in tables.items():
        if key not in SECTIONS:
            yield from _known(file, key, value, origin, problems)
        elif isinstance(value, dict):
            for inner, inner_value in value.items():
                yield from _known(file, f"{key}.{inner}", inner_value, origin, problems)
        else:
            problems.append(f"{file}: {key}: is a section, not a value; write [{key}] and its settings below")


def _known(file: Path, key: str, value: object, origin: Origin, problems: list[str]) -> Iterator[tuple[str, _Given]]:
    if key in BY_KEY:
        yield key, _Given(value, str(file), origin)
    elif key in PLUGINS:
        problems.append(
            f"{file}: {key}: is the ResourceManager's: set {PLUGINS[key]} in its yarn-site.xml "
            "(docs/reference/plugin-protocol.md) and remove it here"
        )
    elif key in LATER:
        problems.append(f"{file}: {key}: is not in this version of the arbiter; remove it")
    else:
        problems.append(f"{file}: {shown(key)[1:-1]}: there is no such setting; {_nearest(key)}")


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key[: values.SHOWN_LENGTH_MAX], BY_KEY, n=1)
    if not close:  # a key that stands in the wrong section, or in none
        tail = key.rpartition(".")[2]
        close = [known for known in BY_KEY if known.rpartition(".")[2] == tail][:1]
    if close:
        section, dot, name = close[0].rpartition(".")
        return f"did you mean {name}{f' in [{section}]' if dot else ''}?"
    return "`themis check-config` lists those there are"


def _of_environment(environment: Mapping[str, str], here: Origin, notes: list[str]) -> Iterator[tuple[str, _Given]]:
    by_variable = {s.variable: s for s in SETTINGS}
    for name in sorted(environment):
        if name in by_variable:
            yield by_variable[name].key, _Given(environment[name], name, here)
        elif name.startswith(ENVIRONMENT_PREFIX) and name not in OTHER_VARIABLES:
            # Not an error: orchestrators put variables of their own beside ours (THEMIS_PORT_7650_TCP).
            close = difflib.get_close_matches(name, by_variable, n=1, cutoff=0.85)
            if close:
                notes.append(f"{name}: there is no such setting, so it is ignored; did you mean {close[0]}?")


def _contradictions(parsed: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[str]:
    lease, notice, cost = (parsed.get(key) for key in ("lease", "notice", "restart_cost"))
    if lease is not None and not 0 < lease <= LEASE_MS_MAX:
        most = show_duration(LEASE_MS_MAX)
        yield f"{sources['lease']}: lease: {show_duration(lease)} is not above 0 and at most {most}; write such a time"
    elif lease is not None and notice is not None and cost is not None and notice + cost >= lease:
        yield (
            f"{sources['lease']}: lease: {show_duration(lease)} is not longer than notice {show_duration(notice)} "
            f"+ restart_cost {show_duration(cost)}, so nothing would be left to compute in; "
            "write a longer lease, or a shorter notice or restart_cost"
        )
    debounce = parsed.get("debounce")
    if lease is not None and debounce is not None and debounce >= lease > 0:
        yield (
            f"{sources['debounce']}: debounce: {show_duration(debounce)} is not shorter than lease {show_duration(lease)}: "
            "free GPUs would wait longer than a lease for a round; write a shorter one"
        )
    urgent, starving = parsed.get("urgent_above"), parsed.get("starving_above")
    if urgent is not None and starving is not None and urgent > starving:
        yield (
            f"{sources['starving_above']}: starving_above: {starving:g} is below urgent_above {urgent:g}, but who starves is "
            "urgent; write a larger one, or a smaller urgent_above"
        )
    session = parsed.get("zookeeper.session")
    if session is not None and not SESSION_MS_MIN <= session <= SESSION_MS_MAX:
        least, most = show_duration(SESSION_MS_MIN), show_duration(SESSION_MS_MAX)
        yield f"{sources['zookeeper.session']}: zookeeper.session: {show_duration(session)} is not from {least} to {most}"
    grpc, http = parsed.get("grpc_address"), parsed.get("http_address")
    if grpc is not None and grpc == http and grpc.port:
        yield f"{sources['http_address']}: http_address: {http} is grpc_address too; give each a port of its own"


def _not_callable(parsed: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    address = parsed["grpc_address"]
    if parsed["store"].kind != "zookeeper" or not address.is_everywhere:
        return []
    where = f"{sources['grpc_address']}: grpc_address: {address} is no address to call"
    advice = f"standbys will say that the leader is at {socket.gethostname()}:{address.port}"
    return [f"{where}, so {advice}; where others do not reach it by that name, write one that they do"]


def _exposed(parsed: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    return [
        f"{sources[key]}: {key}: {parsed[key]} is open to other machines, and this version asks for no password"
        for key in ("grpc_address", "http_address")
        if not parsed[key].is_loopback
    ]


def _show(setting: Setting, value: Any) -> str:
    if value is None:
        return "none"
    if setting.parser is values.duration:
        return show_duration(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _build(
    parsed: Mapping[str, Any],
    queues: Mapping[str, QueueRule],
    users: Mapping[str, float],
    slowdowns: SlowdownModel | None,
    resolved: tuple[Resolved, ...],
    notes: tuple[str, ...],
) -> ServerConfig:
    arguments: dict[str, Any] = {f"{name}_ms": parsed[name] for name in DURATIONS}
    arguments |= {name: parsed[name] for name in DIRECT}
    arguments |= {"on_lease_end": OnLeaseEnd(parsed["on_lease_end"]), "queues": queues}
    arguments |= {"share_by": ShareBy(parsed["share_by"]), "users": users}
    if slowdowns is not None:
        arguments["slowdowns"] = slowdowns
    try:
        settings = Settings(**arguments)
    except CoreError as error:
        # Every contradiction should have been told in the admin's own words above.
        raise ConfigError([f"settings contradict each other: {error}"]) from error
    journal = None
    if parsed["journal.folder"] is not None:
        journal = JournalConfig(
            folder=parsed["journal.folder"],
            bytes_max=parsed["journal.bytes_max"],
            files_max=parsed["journal.files_max"],
        )
    return ServerConfig(
        settings=settings,
        store=parsed["store"],
        grpc_address=parsed["grpc_address"],
        http_address=parsed["http_address"],
        journal=journal,
        zookeeper=ZooKeeperConfig(session_ms=parsed["zookeeper.session"], credentials=parsed["zookeeper.credentials"]),
        bridge=BridgeConfig(gateway_dir=parsed["bridge.gateway_dir"], arbiters=parsed["bridge.arbiter"]),
        log_format=parsed["log.format"],
        log_level=parsed["log.level"],
        resolved=resolved,
        notes=notes,
    )
