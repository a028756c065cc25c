import contextlib
import logging
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from tests.support.serving import Serving, serve, status_of
from themis_arbiter.adapters.grpc import server as server_module
from themis_arbiter.adapters.grpc.admin import About, AdminService
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.server import WATCH_STREAMS_MAX, GrpcServer
from themis_arbiter.core.settings import Settings
from themis_arbiter.gen.themis.v1 import admin_pb2, admin_pb2_grpc, agent_pb2, agent_pb2_grpc, cluster_pb2_grpc

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def health(channel: grpc.Channel, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    status: int = health_pb2_grpc.HealthStub(channel).Check(request, timeout=1).status
    return status


def watch(channel: grpc.Channel) -> Any:
    return agent_pb2_grpc.AgentServiceStub(channel).WatchLeases(agent_pb2.WatchLeasesRequest(app_id="a/x"), timeout=20)


def test_only_what_is_ready_serves(serving: Serving, channel: grpc.Channel) -> None:
    names = ("", "themis.v1.ClusterService", "themis.v1.AdminService", "themis.v1.AgentService")
    assert {health(channel, name) for name in names} == {NOT_SERVING}
    serving.server.set_ready(True)
    assert {health(channel, name) for name in names} == {SERVING}


def test_reflection_lists_the_services(channel: grpc.Channel) -> None:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]), timeout=5)
    names = {s.name for s in reply.list_services_response.service}
    assert {"themis.v1.ClusterService", "themis.v1.AdminService", "themis.v1.AgentService"} <= names


def test_where_the_resource_manager_is_in_the_process_no_bridge_can_attach() -> None:
    with serve(is_rm_inside=True) as serving, serving.channel() as channel:
        stream = cluster_pb2_grpc.ClusterServiceStub(channel).Attach(iter([]), timeout=5)
        with pytest.raises(grpc.RpcError) as err:
            next(stream)
        assert status_of(err.value)[0] is grpc.StatusCode.UNIMPLEMENTED
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request]), timeout=5)
        names = {s.name for s in reply.list_services_response.service}
        assert "themis.v1.ClusterService" not in names
        assert "themis.v1.AdminService" in names


def test_a_taken_port_is_an_error_that_names_it(serving: Serving) -> None:
    clock, views = serving.cluster._clock, serving.world.views()
    second = GrpcServer(
        f"127.0.0.1:{serving.port}",
        cluster=serving.cluster,
        admin=AdminService(
            serving.engine,
            views,
            clock,
            Settings(),
            About(version="1", grpc_address=str),
            notes=lambda _: (),
            audit=serving.audit,
        ),
        agent=AgentService(serving.engine, views, clock),
    )
    with pytest.raises(OSError, match=str(serving.port)):
        second.start()


def test_streams_past_the_limit_are_refused_and_calls_still_answered(serving: Serving, channel: grpc.Channel) -> None:
    watches = [watch(channel) for _ in range(WATCH_STREAMS_MAX)]
    for each in watches:
        next(each)
    too_many = watch(channel)
    with pytest.raises(grpc.RpcError) as err:
        next(too_many)
    assert status_of(err.value)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    began_s = time.monotonic()
    assert health(channel) == NOT_SERVING
    status = admin_pb2_grpc.AdminServiceStub(channel).GetStatus(admin_pb2.StatusRequest(), timeout=1)
    assert status.version == "1.2"
    assert time.monotonic() - began_s < 1
    attach = cluster_pb2_grpc.ClusterServiceStub(channel).Attach(iter([]), timeout=5)
    assert list(attach) == []  # bridges have slots of their own
    for each in watches:
        each.cancel()


def test_slots_of_clients_that_went_away_are_free_again(serving: Serving) -> None:
    for _ in range(3):
        with serving.channel() as channel:
            watches = [watch(channel) for _ in range(WATCH_STREAMS_MAX)]
            for each in watches:
                next(each)
        time.sleep(0.3)  # the server hears of the closed connection


def test_text_that_is_no_utf8_costs_one_line(channel: grpc.Channel, caplog: pytest.LogCaptureFixture) -> None:
    explain: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/themis.v1.AdminService/Explain")
    with caplog.at_level(logging.INFO), pytest.raises(grpc.RpcError) as err:
        explain(b"\x0a\x02\xff\xfe", timeout=1)
    assert status_of(err.value)[0] is not grpc.StatusCode.DEADLINE_EXCEEDED
    lines = [r for r in caplog.records if r.name.startswith("grpc")]
    assert len(lines) <= 1
    assert all(r.exc_info is None for r in lines)


def test_a_message_past_the_limit_is_refused(channel: grpc.Channel) -> None:
    explain: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/themis.v1.AdminService/Explain")
    with pytest.raises(grpc.RpcError) as err:
        explain(b"\x0a" + b"\x00" * (server_module.MESSAGE_BYTES_MAX + 1), timeout=10)
    assert status_of(err.value)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_stopping_takes_less_than_three_seconds(serving: Serving, channel: grpc.Channel) -> None:
    serving.server.set_ready(True)
    watches = [watch(channel) for _ in range(5)]
    for each in watches:
        next(each)
    began_s = time.monotonic()
    serving.server.stop()
    assert time.monotonic() - began_s < 3
    for each in watches:
        with contextlib.suppress(grpc.RpcError):
            assert list(each) == []
