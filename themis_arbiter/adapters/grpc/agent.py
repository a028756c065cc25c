"""AgentService: what an app's agent tells the arbiter and hears from it."""

import math
import threading
from collections.abc import Iterator
from typing import Any, Final

import grpc

from themis_arbiter.adapters.grpc.errors import abort, ask, check_name, engine_errors
from themis_arbiter.adapters.grpc.faults import quoted
from themis_arbiter.adapters.grpc.gate import lease_message
from themis_arbiter.adapters.grpc.seams import Engine, Views
from themis_arbiter.adapters.grpc.tags import WORK_GPU_S_MAX
from themis_arbiter.core.events import ProgressReported
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import Millis
from themis_arbiter.gen.themis.v1 import agent_pb2 as pb
from themis_arbiter.gen.themis.v1 import agent_pb2_grpc
from themis_arbiter.ports import Clock

WATCH_EVERY_MS: Final = 200  # how old the leases that a watcher sees may be


class _LeaseBoard:
    """All leases, at most WATCH_EVERY_MS old: a thousand watchers cost the engine no more than one."""

    def __init__(self, engine: Engine[Any], views: Views[Any], clock: Clock) -> None:
        self._engine, self._views, self._clock = engine, views, clock
        self._lock = threading.Lock()
        self._read: tuple[Millis, tuple[tuple[Lease, bool], ...]] | None = None

    def read(self) -> tuple[Millis, tuple[tuple[Lease, bool], ...]]:
        """The leases and when they were such. Errors: EngineError."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if self._read is None or now_ms - self._read[0] >= WATCH_EVERY_MS:
                self._read = (now_ms, self._engine.call(self._views.leases))
            return self._read


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """Serves the agents of apps."""

    def __init__(self, engine: Engine[Any], views: Views[Any], clock: Clock) -> None:
        self._engine, self._views = engine, views
        self._board = _LeaseBoard(engine, views, clock)
        self._closed = threading.Event()

    def close(self) -> None:
        """End all watches."""
        self._closed.set()

    def ReportProgress(self, request: pb.ProgressRequest, context: grpc.ServicerContext) -> pb.ProgressReply:  # noqa: N802 - the protocol's name
        """Take in how much work a job has left. Errors: INVALID_ARGUMENT, NOT_FOUND where the app has no such job."""
        app_id, job_id, remaining = request.app_id, request.job_id, request.remaining_gpu_s
        check_name(context, "app", app_id)
        check_name(context, "job", job_id)
        if not (math.isfinite(remaining) and 0 <= remaining <= WORK_GPU_S_MAX):
            text = f"remaining_gpu_s lies between 0 and {WORK_GPU_S_MAX:g}: {remaining}"
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        if not ask(context, self._engine, lambda arbiter: self._views.has_job(arbiter, app_id, job_id)):
            text = f"app {quoted(app_id)} has no job {quoted(job_id)} here"
            abort(context, grpc.StatusCode.NOT_FOUND, text)
        with engine_errors(context):
            self._engine.submit(
                lambda at_ms: ProgressReported(at_ms=at_ms, app_id=app_id, job_id=job_id, remaining=remaining * 1_000)
            )
        return pb.ProgressReply()

    def WatchLeases(self, request: pb.WatchLeasesRequest, context: grpc.ServicerContext) -> Iterator[pb.LeaseView]:  # noqa: N802 - the protocol's name
        """The app's leases now and after each change. An app that nobody knows yet has none."""
        app_id = request.app_id
        check_name(context, "app", app_id)
        over = threading.Event()
        if not context.add_callback(over.set):
            return
        shown: tuple[tuple[Lease, bool], ...] | None = None
        while not over.is_set() and not self._closed.is_set():
            with engine_errors(context):
                now_ms, leases = self._board.read()
            mine = tuple((lease, is_next) for lease, is_next in leases if lease.app_id == app_id)
            if mine != shown:
                shown = mine
                yield pb.LeaseView(now_ms=now_ms, leases=(lease_message(x, is_next) for x, is_next in mine))
            over.wait(WATCH_EVERY_MS / 1_000)
        if context.is_active():
            abort(context, grpc.StatusCode.UNAVAILABLE, "the arbiter is stopping")
