"""The command line's side of AdminService: every call has a deadline, and what goes wrong is one line to act on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from themis_arbiter.cli.failures import NotSo, WrongUse
from themis_arbiter.gen.themis.v1 import admin_pb2, admin_pb2_grpc
from themis_arbiter.obs.labels import legible
from themis_arbiter.server.values import Address

CALL_S_MAX: Final = 10.0
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
DETAILS_LENGTH_MAX: Final = 300
LOOK_S_MAX: Final = 3.0  # that one of several arbiters may take to say whether it leads
STORIES_LENGTH_MAX: Final = 1_000
STANDS_BY: Final = "this arbiter "  # how an arbiter begins that does not lead, and says why
CHANNEL_OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),  # an arbiter is never behind the web's proxy
]


@dataclass(frozen=True, slots=True)
class Arbiters:
    """Several arbiters, of which one leads."""

    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


Where: TypeAlias = Address | Arbiters

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")


class ArbiterClient:
    """Admin views of the arbiter at `address`. Errors of every method: NotSo (it does not answer, there is no such app)."""

    def __init__(self, stub: admin_pb2_grpc.AdminServiceStub, address: Address, deadline_s: float = CALL_S_MAX) -> None:
        self._stub, self._address, self._deadline_s = stub, address, deadline_s

    def apps(self, *, include_ended: bool) -> admin_pb2.ListAppsReply:
        """Apps, live ones only unless `include_ended`."""
        return self._call(self._stub.ListApps, admin_pb2.ListAppsRequest(include_ended=include_ended))

    def leases(self, app_id: str) -> admin_pb2.ListLeasesReply:
        """Live leases, of one app or ("") of all."""
        return self._call(self._stub.ListLeases, admin_pb2.ListLeasesRequest(app_id=_utf8(app_id)))

    def rounds(self, limit: int) -> admin_pb2.ListRoundsReply:
        """The newest `limit` decision records."""
        return self._call(self._stub.ListRounds, admin_pb2.ListRoundsRequest(limit=limit))

    def nodes(self) -> admin_pb2.ListNodesReply:
        """Nodes with GPUs."""
        return self._call(self._stub.ListNodes, admin_pb2.ListNodesRequest())

    def status(self) -> admin_pb2.StatusReply:
        """The arbiter as a whole."""
        return self._call(self._stub.GetStatus, admin_pb2.StatusRequest())

    def explain(self, app_id: str) -> admin_pb2.ExplainReply:
        """Why an app holds what it holds."""
        return self._call(self._stub.Explain, admin_pb2.ExplainRequest(app_id=_utf8(app_id)))

    def act(self, request: admin_pb2.ActRequest, *, target: str, request_id: str) -> admin_pb2.ActReply:
        """Have an admin's request done, once for each request id; a refusal is a reply too."""
        request.target, request.request_id = _utf8(target), _utf8(request_id)
        advice = f"whether it was done is in `themis admin audit`; to ask again for the same thing: --request-id {request_id}"
        return self._call(self._stub.Act, request, advice=advice)

    def audit(self, limit: int) -> admin_pb2.ListAuditReply:
        """The newest `limit` answered requests of admins."""
        return self._call(self._stub.ListAudit, admin_pb2.ListAuditRequest(limit=limit))

    def _call(self, method: Callable[..., ReplyT], request: RequestT, *, advice: str = "") -> ReplyT:
        try:
            return method(request, timeout=self._deadline_s)
        except grpc.RpcError as error:
            # Every error of a call is a Call too, which its published types do not say.
            code: grpc.StatusCode | None = getattr(error, "code", lambda: None)()
            details: str = getattr(error, "details", lambda: None)() or ""
            raise NotSo(self._story(code, legible(details)[:DETAILS_LENGTH_MAX], legible(advice))) from error

    def _story(self, code: grpc.StatusCode | None, details: str, advice: str) -> str:
        match code:
            case grpc.StatusCode.UNAVAILABLE if STANDS_BY in details:
                return f"{self._address}: {details}; name the one that leads, or all with commas between: --arbiter"
            case grpc.StatusCode.UNAVAILABLE:
                return (
                    f"no arbiter answers at {self._address} ({details}); "
                    "start one with `themis serve`, or name another with --arbiter HOST:PORT"
                )
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return (
                    f"the arbiter at {self._address} did not answer within {self._deadline_s:g} s; "
                    f"{advice or 'try again, and look at its log if that lasts'}"
                )
            case grpc.StatusCode.UNIMPLEMENTED:
                return f"what answers at {self._address} is no arbiter of this version; check --arbiter"
            case grpc.StatusCode.NOT_FOUND:
                return details
            case _:
                return f"the arbiter at {self._address} refused: {details or code}"


@contextmanager
def connected(where: Where, deadline_s: float = CALL_S_MAX) -> Iterator[ArbiterClient]:
    """A client for the length of a `with`; connecting happens at the first call. Of several arbiters it is the leader's.

    Errors: NotSo where there are several and none of them leads.
    """
    with ExitStack() as stack:
        if isinstance(where, Address):
            yield _client(stack, where, deadline_s)
            return
        stories: list[str] = []
        for address in where.addresses:
            client = _client(stack, address, min(deadline_s, LOOK_S_MAX))
            try:
                status = client.status()
            except NotSo as problem:
                stories.append(str(problem))
                continue
            if status.is_leader:
                yield _client(stack, address, deadline_s)
                return
            stories.append(f"{address}: {legible(status.standing_by)[:DETAILS_LENGTH_MAX] or 'stands by'}")
        raise NotSo(f"none of {where} leads: {'; '.join(stories)}"[:STORIES_LENGTH_MAX])


def _client(stack: ExitStack, address: Address, deadline_s: float) -> ArbiterClient:
    channel = grpc.insecure_channel(str(address), options=CHANNEL_OPTIONS)
    stack.callback(channel.close)
    return ArbiterClient(admin_pb2_grpc.AdminServiceStub(channel), address, deadline_s)


def _utf8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise WrongUse(f"{name!a} is not UTF-8, so nothing is called that; write its name as the listings do") from None
    return name
