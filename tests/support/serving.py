"""The gRPC services on a real loopback port, with a fake engine and fake views behind them."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from tests.support.fake_engine import FakeEngine
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.grpc.admin import About, AdminService
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.audit import AuditTrail
from themis_arbiter.adapters.grpc.cluster import ClusterService
from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.adapters.grpc.seams import Views
from themis_arbiter.adapters.grpc.server import GrpcServer
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.views import AppState, AppView, JobView, NodeState, NodeView, StatusView

HEARTBEAT_S = 0.2
ANSWER_S = 0.5


def lease(lease_id: str = "l1", app_id: str = "a/x", gpu: str = "n1:0", **changes: Any) -> Lease:
    fields: dict[str, Any] = {"job_id": "application_1_0001", "epoch": 3, "round_no": 1, "start_ms": 1, "end_ms": 9_000}
    return Lease(lease_id=lease_id, grant_id="g1", app_id=app_id, gpu=gpu, **(fields | changes))


def status_of(err: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """The code and the text of a call that failed."""
    call: Any = err  # every error of a call is a grpc.Call too, which its type does not say
    return call.code(), call.details() or ""


@dataclass
class World:
    """What the fake views show."""

    leases: tuple[tuple[Lease, bool], ...] = ()
    is_stored: bool = True

    def app(self, app_id: str) -> AppView:
        job = JobView(job_id="application_1_0001", gang=1, max_gpus=2, gpus_held=1, state=AppState.RUNNING)
        return AppView(
            app_id=app_id,
            user="alice",
            queue="default",
            state=AppState.RUNNING,
            arrival_ms=1_000,
            finish_ms=0,
            rho=1.5,
            rho_forecast=float("inf"),
            t_independent_ms=2_500.0,
            work_gpu_ms=60_000.0,
            is_work_estimated=True,
            attained_gpu_ms=1_000.0,
            gpus_held=1,
            gpus_wanted=2,
            gpus_by_node=(("n1", 1),),
            leases_granted=3,
            leases_renewed=2,
            leases_ended=1,
            final_status="",
            jobs=(job,),
        )

    def views(self) -> Views[Any]:
        status = StatusView(
            epoch=3,
            now_ms=7,
            is_rm_attached=True,
            max_rho=1.5,
            gpus_leased=1,
            gpus_free=3,
            gpus_total=4,
            rounds=9,
            is_paused=False,
            is_observing=True,
        )
        nodes = (
            NodeView(node="n1", rack="/r0", state=NodeState.RUNNING, gpus_total=4, gpus_leased=1, gpus_used=0, gpus_outside=0),
            NodeView(node="n2", rack="/r0", state=NodeState.RUNNING, gpus_total=1, gpus_leased=2, gpus_used=2, gpus_outside=0),
            NodeView(node="n3", rack="/r0", state=NodeState.LOST, gpus_total=4, gpus_leased=0, gpus_used=0, gpus_outside=0),
        )
        return Views(
            apps=lambda _, now_ms, ended: (self.app("a/x"), self.app("a/ended")) if ended else (self.app("a/x"),),
            leases=lambda _: self.leases,
            nodes=lambda _: nodes,
            status=lambda _, now_ms: status,
            explain=lambda _, app_id, now_ms: ("it waits",) if app_id == "a/x" else None,
            rounds=lambda _, limit: tuple({"round": i, "name": "é"} for i in range(limit, 0, -1)),
            is_stored=lambda _: self.is_stored,
            has_job=lambda _, app_id, job_id: (app_id, job_id) == ("a/x", "application_1_0001"),
        )


@dataclass
class Serving:
    """A server and what is around it."""

    engine: FakeEngine
    world: World
    audit: AuditTrail
    cluster: ClusterService
    server: GrpcServer
    port: int

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options=[("grpc.use_local_subchannel_pool", 1)])


@contextmanager
def serve(
    *, is_rm_inside: bool = False, may_serve: Callable[[str], str] | None = None, types: NodeTypes | None = None
) -> Iterator[Serving]:
    """A server for as long as the block lasts; `may_serve` says why it takes no bridge of a cluster."""
    clock, world = SystemClock(), World(((lease(), False), (lease("l2", app_id="b/y", state=LeaseState.WAITING), True)))
    engine, views = FakeEngine(clock), world.views()
    cluster = ClusterService(engine, clock, heartbeat_s=HEARTBEAT_S, hello_s=0.5, outgoing_max=8, serve=may_serve, types=types)
    about = About(version="1.2", http_address="127.0.0.1:80", grpc_address=lambda: "127.0.0.1:81")
    audit = AuditTrail(logging.getLogger("tests.audit"))
    admin = AdminService(
        engine, views, clock, Settings(), about, notes=lambda app_id: (f"note of {app_id}",), audit=audit, answer_s=ANSWER_S
    )
    server = GrpcServer(
        "127.0.0.1:0",
        cluster=None if is_rm_inside else cluster,
        admin=admin,
        agent=AgentService(engine, views, clock),
    )
    try:
        yield Serving(engine, world, audit, cluster, server, server.start())
    finally:
        server.stop()
