"""The child's side of the thin application master (yarn_bridge/java/app, class Calls): typed calls and events.

The Java side never calls us; whoever wants events polls. Calls may come from several threads.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from py4j.java_gateway import GatewayParameters, JavaGateway

ADDRESS_ENV: Final = "THEMIS_AM_ADDRESS"
TOKEN_ENV: Final = "THEMIS_AM_TOKEN"  # noqa: S105 - the name of a variable
POLL_MS_MAX: Final = 1_000  # the Java side waits no longer, whatever is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AmHello:
    """Who the application master is; `attempt` counts from 1."""

    application_id: str
    attempt: int
    container_id: str
    max_memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """A container for one of our asks."""

    container_id: str
    allocation_request_id: int
    node: str
    memory_mb: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The NodeManager accepted the start."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The NodeManager refused the start or was not reached in time."""

    container_id: str
    diagnostics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """YARN will take the container soon; told once for each container."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A container is over. -100: released or its node lost; -102: preempted; else the process's status."""

    container_id: str
    exit_status: int
    diagnostics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """This attempt is over for YARN: the child has about two seconds."""

    diagnostics: str


AmEvent: TypeAlias = Allocated | Started | StartFailed | Preempt | Completed | Shutdown

_TYPES: Final[dict[str, type[AmEvent]]] = {
    "allocated": Allocated,
    "started": Started,
    "start_failed": StartFailed,
    "preempt": Preempt,
    "completed": Completed,
    "shutdown": Shutdown,
}


def parse_events(raw: bytes) -> list[AmEvent]:
    """What `poll` answered; types that we do not know are left out. Raises ValueError for anything malformed."""
    events: list[AmEvent] = []
    try:
        for fields in json.loads(raw):
            kind = _TYPES.get(fields.pop("type"))
            if kind is not None:
                events.append(kind(**fields))
    except (TypeError, KeyError, AttributeError) as err:
        raise ValueError(f"not a list of events: {err!r}") from err
    return events


class AmClient:
    """One connection's worth of calls to the application master. Refused calls raise py4j's Py4JJavaError."""

    def __init__(self, address: str, token: str) -> None:
        host, _, port = address.rpartition(":")
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(address=host, port=int(port), auth_token=token))
        self._calls: Any = self._gateway.entry_point

    @classmethod
    def from_environment(cls) -> "AmClient":
        """The application master that started this process. Raises KeyError where none did."""
        return cls(os.environ[ADDRESS_ENV], os.environ[TOKEN_ENV])

    def hello(self) -> AmHello:
        """Who we work for."""
        return AmHello(**json.loads(bytes(self._calls.hello())))

    def poll(self, wait_ms: int) -> list[AmEvent]:
        """Events since the last poll; waits up to `wait_ms` (at most POLL_MS_MAX) for a first one."""
        return parse_events(bytes(self._calls.poll(wait_ms)))

    def ask(
        self,
        request_id: int,
        *,
        memory_mb: int,
        vcores: int = 1,
        gpus: int = 0,
        nodes: Sequence[str] = (),
        racks: Sequence[str] = (),
        relax_locality: bool = True,
    ) -> None:
        """Ask for one container; `request_id` (from 1) comes back in its Allocated."""
        wish = {
            "allocation_request_id": request_id,
            "memory_mb": memory_mb,
            "vcores": vcores,
            "gpus": gpus,
            "nodes": list(nodes),
            "racks": list(racks),
            "relax_locality": relax_locality,
        }
        self._calls.ask(json.dumps(wish).encode())

    def cancel(self, request_id: int) -> None:
        """Withdraw an ask; one that was served already stays served."""
        self._calls.cancel(request_id)

    def start(self, container_id: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a command, given as words, in an allocated container; answered by Started or StartFailed."""
        self._calls.start(container_id, json.dumps({"command": list(command), "env": dict(env)}).encode())

    def release(self, container_id: str) -> None:
        """Give a container back, running or not; answered by Completed with -100."""
        self._calls.release(container_id)

    def progress(self, fraction: float) -> None:
        """Tell YARN how far we are, 0 to 1."""
        self._calls.progress(float(fraction))

    def finish(self, status: str, diagnostics: str) -> None:
        """SUCCEEDED, FAILED or KILLED; takes effect when this process exits with 0."""
        self._calls.finish(status, diagnostics)

    def close(self) -> None:
        """Drop the connections."""
        self._gateway.close()
