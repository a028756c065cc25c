"""One gRPC server for all services: bounded in messages, streams and threads, and honest about a taken port.

A stream keeps a thread of the pool for as long as it lasts. So streams are counted, and the pool has UNARY_THREADS more
than there can be streams: a health check finds one though every stream is taken. Past the limits a call is refused with
RESOURCE_EXHAUSTED instead of waiting for who knows how long.
"""

from __future__ import annotations  # gRPC's classes are generic for the type checker only

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Final, TypeAlias, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from themis_arbiter.adapters.grpc.admin import AdminService
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.cluster import ClusterService
from themis_arbiter.gen.themis.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    agent_pb2,
    agent_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
)

MESSAGE_BYTES_MAX: Final = 32 * 2**20  # the snapshot of 4,000 nodes and 100,000 containers has about 15 MB
ATTACH_STREAMS_MAX: Final = 4  # bridges; one is attached, others are coming and going
WATCH_STREAMS_MAX: Final = 32  # all other streams
UNARY_THREADS: Final = 8
UNARY_WAITING_MAX: Final = 64  # calls that wait for one of those threads
STOP_GRACE_S: Final = 1.0  # for calls that are under way
STOP_S: Final = 2.5  # after which stopping is over, whatever still runs
KEEPALIVE_MS: Final = 5_000
PING_EVERY_MS_MIN: Final = 2_000  # peers that ping more often are dropped
_ATTACH: Final = "/themis.v1.ClusterService/Attach"
_CLUSTER: Final = cluster_pb2.DESCRIPTOR.services_by_name["ClusterService"].full_name
_SERVICES: Final = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name,
)
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # otherwise a second server binds the same port without any error
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", ATTACH_STREAMS_MAX + WATCH_STREAMS_MAX + UNARY_WAITING_MAX),
    # A peer whose machine is gone says nothing; pings find that out.
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_EVERY_MS_MIN),
)

_Behavior: TypeAlias = Callable[[Any, grpc.ServicerContext], Iterator[Any]]

_log = logging.getLogger(__name__)


class _StreamLimit(grpc.ServerInterceptor):
    """Refuses streams past the limits. A slot is free again when its call has ended."""

    def __init__(self) -> None:
        self._attach = threading.Semaphore(ATTACH_STREAMS_MAX)
        self._watch = threading.Semaphore(WATCH_STREAMS_MAX)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of a call, limited where it streams."""
        handler = continuation(handler_call_details)
        if handler is None or not handler.response_streaming:
            return handler
        slots = self._attach if handler_call_details.method == _ATTACH else self._watch
        is_both = handler.request_streaming
        behavior = cast("_Behavior", handler.stream_stream if is_both else handler.unary_stream)
        make = grpc.stream_stream_rpc_method_handler if is_both else grpc.unary_stream_rpc_method_handler

        def limited(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            if not slots.acquire(blocking=False):
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams are open: try again later")
            if not context.add_callback(slots.release):
                slots.release()
                return iter(())
            return behavior(request, context)

        return make(limited, handler.request_deserializer, handler.response_serializer)


class _OneLine(logging.Filter):
    """A request that cannot be parsed is its sender's fault: one line, no stack."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


class GrpcServer:
    """Serves at `address` (`host:port`; port 0: one that the system chooses) from `start` to `stop`.

    Without `cluster` no bridge can attach: the ResourceManager is in this process. Without `credentials` everything goes in
    the clear and everybody may call: for loopback addresses only.
    """

    def __init__(
        self,
        address: str,
        *,
        cluster: ClusterService | None,
        admin: AdminService,
        agent: AgentService,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._address, self._cluster, self._agent, self._credentials = address, cluster, agent, credentials
        self._services = _SERVICES if cluster is None else (_CLUSTER, *_SERVICES)
        streams_max = ATTACH_STREAMS_MAX + WATCH_STREAMS_MAX
        self._pool = futures.ThreadPoolExecutor(streams_max + UNARY_THREADS, thread_name_prefix="themis-grpc")
        self._server = grpc.server(
            self._pool,
            interceptors=[_StreamLimit()],
            options=_OPTIONS,
            maximum_concurrent_rpcs=streams_max + UNARY_THREADS + UNARY_WAITING_MAX,
        )
        self._health = health.HealthServicer(experimental_non_blocking=False)
        self.set_ready(False)
        if cluster is not None:
            cluster_pb2_grpc.add_ClusterServiceServicer_to_server(cluster, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, self._server)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(agent, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    def start(self) -> int:
        """Start serving and return the port. Errors: OSError where the address cannot be had."""
        parsing = logging.getLogger("grpc._common")
        if not any(isinstance(f, _OneLine) for f in parsing.filters):
            parsing.addFilter(_OneLine())
        try:
            if self._credentials is None:
                port = self._server.add_insecure_port(self._address)
            else:
                port = self._server.add_secure_port(self._address, self._credentials)
        except RuntimeError as err:
            raise OSError(f"cannot listen on {self._address}: is it taken by another process?") from err
        self._server.start()
        _log.info("serving gRPC on port %d", port)
        return port

    def set_ready(self, is_ready: bool) -> None:
        """Say by the health service whether the services do their work (an arbiter that does not lead yet does not)."""
        status = health_pb2.HealthCheckResponse.SERVING if is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._services):
            self._health.set(name, status)

    def stop(self) -> None:
        """End streams at once and other calls within STOP_GRACE_S; returns in less than 3 s, also where one hangs."""
        self._health.enter_graceful_shutdown()
        if self._cluster is not None:
            self._cluster.close()
        self._agent.close()
        self._server.stop(STOP_GRACE_S).wait(STOP_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
