"""The admin views without a wire: the HTTP port asks the same AdminService that gRPC serves, so both say the same."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, cast

import grpc

from themis_arbiter.adapters.grpc.admin import AdminService
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.server.documents import BadQueryError, NotFoundError, UnavailableError

ReplyT = TypeVar("ReplyT")


class _Aborted(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class _Context:
    """All that a view's servicer asks of its call: to end it, and to say who leads."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise _Aborted(code, details)

    def set_trailing_metadata(self, _metadata: object) -> None:
        """Who leads stands in the text too."""


class LocalAdmin:
    """`Admin` over the servicer in this process."""

    def __init__(self, service: AdminService) -> None:
        self._service = service

    def apps(self, *, include_ended: bool) -> admin_pb2.ListAppsReply:
        """Apps, live ones only unless `include_ended`."""
        return _ask(self._service.ListApps, admin_pb2.ListAppsRequest(include_ended=include_ended))

    def leases(self, app_id: str) -> admin_pb2.ListLeasesReply:
        """Live leases, of one app or ("") of all."""
        return _ask(self._service.ListLeases, admin_pb2.ListLeasesRequest(app_id=app_id))

    def rounds(self, limit: int) -> admin_pb2.ListRoundsReply:
        """The newest `limit` decision records."""
        return _ask(self._service.ListRounds, admin_pb2.ListRoundsRequest(limit=limit))

    def nodes(self) -> admin_pb2.ListNodesReply:
        """Nodes with GPUs."""
        return _ask(self._service.ListNodes, admin_pb2.ListNodesRequest())

    def status(self) -> admin_pb2.StatusReply:
        """The arbiter as a whole."""
        return _ask(self._service.GetStatus, admin_pb2.StatusRequest())

    def audit(self, limit: int) -> admin_pb2.ListAuditReply:
        """The newest `limit` answered requests of admins."""
        return _ask(self._service.ListAudit, admin_pb2.ListAuditRequest(limit=limit))

    def explain(self, app_id: str) -> admin_pb2.ExplainReply:
        """Why an app holds what it holds."""
        return _ask(self._service.Explain, admin_pb2.ExplainRequest(app_id=app_id))


def _ask(view: Callable[[Any, grpc.ServicerContext], ReplyT], request: Any) -> ReplyT:
    try:
        return view(request, cast("grpc.ServicerContext", _Context()))
    except _Aborted as end:
        match end.code:
            case grpc.StatusCode.NOT_FOUND:
                raise NotFoundError(str(end)) from end
            case grpc.StatusCode.INVALID_ARGUMENT:
                raise BadQueryError(str(end)) from end
            case _:
                raise UnavailableError(str(end)) from end
