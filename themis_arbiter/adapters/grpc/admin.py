"""AdminService: views of the arbiter for people and dashboards, and what admins may do to it.

Views change nothing. `Act` hands the engine an event and waits for its answer; only the core decides whether it is done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import grpc

from themis_arbiter.adapters.grpc.audit import AuditEntry, AuditTrail, OtherRequest, TooManyWaiting
from themis_arbiter.adapters.grpc.errors import abort, ask, check_name, engine_errors, refuse
from themis_arbiter.adapters.grpc.faults import quoted
from themis_arbiter.adapters.grpc.gate import lease_message
from themis_arbiter.adapters.grpc.seams import Engine, Views
from themis_arbiter.adapters.grpc.tags import user_in
from themis_arbiter.core.codec import dumps
from themis_arbiter.core.events import AdminRequested, AdminVerb
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import AppId, Millis
from themis_arbiter.core.views import AppView, NodeView
from themis_arbiter.engine.loop import EngineError, NotLeading
from themis_arbiter.gen.themis.v1 import admin_pb2 as pb
from themis_arbiter.gen.themis.v1 import admin_pb2_grpc
from themis_arbiter.ports import Clock

ROUNDS_DEFAULT: Final = 20  # where a caller names no limit
ROUNDS_MAX: Final = 1_000  # of one answer
AUDIT_DEFAULT: Final = 50
AUDIT_MAX: Final = 1_000
ANSWER_S: Final = 5.0  # that a request waits for the engine's answer
STEP_DOWN: Final = "step-down"
TARGETED: Final = frozenset({AdminVerb.REVOKE, AdminVerb.DRAIN, AdminVerb.UNDRAIN, AdminVerb.SET_WEIGHT})
NOT_STORED: Final = "; not stored yet, because the store takes no writes: a restart before it does would undo this"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What concerns the process rather than the arbiter. `step_down` lets another lead; it says "", or why not.

    `grpc_address` is asked when somebody wants to know, since the port is bound later; others can call it.
    """

    version: str
    http_address: str = ""
    grpc_address: Callable[[], str]
    step_down: Callable[[], str] | None = None  # None: there is no other
    differences: Callable[[], tuple[str, ...]] | None = None  # in what a standby is not like the leader; likewise


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Answers from snapshots that the engine makes between two steps.

    `notes` adds what the edge knows of an app (bad tags) to `explain`; `audit` is among the driver's observers.
    """

    def __init__(
        self,
        engine: Engine[Any],
        views: Views[Any],
        clock: Clock,
        settings: Settings,
        about: About,
        *,
        notes: Callable[[AppId], tuple[str, ...]],
        audit: AuditTrail,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._engine, self._views, self._clock = engine, views, clock
        self._settings, self._about, self._notes = settings, about, notes
        self._audit, self._answer_s = audit, answer_s

    def ListApps(self, request: pb.ListAppsRequest, context: grpc.ServicerContext) -> pb.ListAppsReply:  # noqa: N802 - the protocol's name
        """All apps that live, and on request the ended ones that are still remembered."""
        now_ms, include_ended = self._clock.now_ms(), request.include_ended
        apps = ask(context, self._engine, lambda arbiter: self._views.apps(arbiter, now_ms, include_ended))
        return pb.ListAppsReply(apps=map(app_message, apps), now_ms=now_ms)

    def ListLeases(self, request: pb.ListLeasesRequest, context: grpc.ServicerContext) -> pb.ListLeasesReply:  # noqa: N802 - the protocol's name
        """All leases, or one app's. Errors: NOT_FOUND for an app that the arbiter does not know."""
        app_id = request.app_id
        if app_id:
            check_name(context, "app", app_id)
        now_ms = self._clock.now_ms()
        found = [x for x in ask(context, self._engine, self._views.leases) if app_id in {"", x[0].app_id}]
        if app_id and not found:  # an app without leases, or none
            story = ask(context, self._engine, lambda arbiter: self._views.explain(arbiter, app_id, now_ms))
            if story is None:
                abort(context, grpc.StatusCode.NOT_FOUND, no_app(app_id))
        return pb.ListLeasesReply(leases=(lease_message(x, is_next) for x, is_next in found), now_ms=now_ms)

    def ListRounds(self, request: pb.ListRoundsRequest, context: grpc.ServicerContext) -> pb.ListRoundsReply:  # noqa: N802 - the protocol's name
        """The newest decision records, newest first."""
        limit = _limit(context, request.limit, ROUNDS_MAX) or ROUNDS_DEFAULT
        records = ask(context, self._engine, lambda arbiter: self._views.rounds(arbiter, limit))
        return pb.ListRoundsReply(decision_json=map(dumps, records))

    def ListNodes(self, request: pb.ListNodesRequest, context: grpc.ServicerContext) -> pb.ListNodesReply:  # noqa: N802 - the protocol's name
        """All nodes that the ResourceManager reports."""
        return pb.ListNodesReply(nodes=map(_node_message, ask(context, self._engine, self._views.nodes)))

    def Explain(self, request: pb.ExplainRequest, context: grpc.ServicerContext) -> pb.ExplainReply:  # noqa: N802 - the protocol's name
        """Why an app holds what it holds. Errors: NOT_FOUND for an app that the arbiter does not know."""
        app_id = request.app_id
        check_name(context, "app", app_id)
        now_ms = self._clock.now_ms()
        lines = ask(context, self._engine, lambda arbiter: self._views.explain(arbiter, app_id, now_ms))
        if lines is None:
            abort(context, grpc.StatusCode.NOT_FOUND, no_app(app_id))
        return pb.ExplainReply(app_id=app_id, lines=(*lines, *self._notes(app_id)))

    def GetStatus(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:  # noqa: N802 - the protocol's name
        """The arbiter as a whole. One that stands by answers too, and says who leads."""
        now_ms = self._clock.now_ms()
        reply = pb.StatusReply(
            version=self._about.version,
            policy=self._settings.policy,
            now_ms=now_ms,
            lease_ms=self._settings.lease_ms,
            notice_ms=self._settings.notice_ms,
            rho_floor_ms=self._settings.rho_floor_ms,
            http_address=self._about.http_address,
        )
        try:
            status = self._engine.call(lambda arbiter: self._views.status(arbiter, now_ms))
        except NotLeading as standby:
            reply.epoch, reply.leader_address, reply.standing_by = standby.epoch, standby.leader, str(standby)
            reply.differences.extend(self._about.differences() if self._about.differences is not None else ())
            return reply
        except EngineError as err:
            refuse(context, err)
        reply.is_leader, reply.epoch, reply.now_ms = status.epoch > 0, status.epoch, status.now_ms
        reply.leader_address = self._about.grpc_address() if reply.is_leader else ""
        reply.is_bridge_connected = status.is_rm_attached
        reply.is_paused, reply.is_observing = status.is_paused, status.is_observing
        return reply

    def Act(self, request: pb.ActRequest, context: grpc.ServicerContext) -> pb.ActReply:  # noqa: N802 - the protocol's name
        """Do what an admin asks, once for each request id.

        Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE, and DEADLINE_EXCEEDED where it may still be done.
        """
        if request.verb == STEP_DOWN:
            return self._stand_down(context, request)
        verb = _checked(context, request)
        request_id, actor, target, value = request.request_id, request.actor, request.target, request.value
        try:
            is_new = self._audit.begin(request_id, (actor, verb, target, value))
        except OtherRequest:
            text = f"request_id {quoted(request_id)} was used for another request: take a new one"
            abort(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        except TooManyWaiting:
            abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests wait for the engine: try again later")
        if is_new:
            with engine_errors(context):
                self._submit(
                    lambda at_ms: AdminRequested(
                        at_ms=at_ms, request_id=request_id, actor=actor, verb=verb, target=target, value=value
                    ),
                    request_id,
                )
        entry = self._audit.wait(request_id, self._answer_s)
        if entry is None:
            text = f"no answer within {self._answer_s:g} s: it may still be done; ask again with the same request_id"
            abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, text)
        # An arbiter that another one has replaced answers too, and then stops: this question tells.
        is_stored = ask(context, self._engine, self._views.is_stored)
        return pb.ActReply(is_done=entry.is_done, text=entry.text + ("" if is_stored or not entry.is_done else NOT_STORED))

    def _stand_down(self, context: grpc.ServicerContext, request: pb.ActRequest) -> pb.ActReply:
        """The process's matter, not the core's: which arbiter leads is in no journal."""
        check_name(context, "actor", request.actor)
        check_name(context, "request_id", request.request_id)
        with engine_errors(context):
            self._engine.call(lambda _: None)  # a standby says who leads
        step_down = self._about.step_down
        why_not = step_down() if step_down is not None else "its store is its own, so no other arbiter can lead"
        text = why_not or "it steps down: a standby leads within moments"
        fields = {
            "actor": request.actor,
            "verb": STEP_DOWN,
            "is_done": not why_not,
            "text": text,
            "request_id": request.request_id,
        }
        self._audit.log.info("admin request", extra={"fields": fields})
        return pb.ActReply(is_done=not why_not, text=text)

    def _submit(self, make: Callable[[Millis], AdminRequested], request_id: str) -> None:
        try:
            self._engine.submit(make)
        except EngineError:
            self._audit.forget(request_id)
            raise

    def ListAudit(self, request: pb.ListAuditRequest, context: grpc.ServicerContext) -> pb.ListAuditReply:  # noqa: N802 - the protocol's name
        """The newest answered requests of this process, newest first."""
        limit = _limit(context, request.limit, AUDIT_MAX) or AUDIT_DEFAULT
        with engine_errors(context):
            self._engine.call(lambda _: None)  # what was asked of the leader is not in a standby's list: it says who leads
        return pb.ListAuditReply(entries=map(_audit_message, self._audit.latest(limit)))


def _limit(context: grpc.ServicerContext, limit: int, most: int) -> int:
    if not 0 <= limit <= most:
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"limit lies between 0 and {most}: {limit}")
    return limit


def _checked(context: grpc.ServicerContext, request: pb.ActRequest) -> AdminVerb:
    """The verb of a request that the engine can take, or the call's end."""
    try:
        verb = AdminVerb(request.verb)
    except ValueError:
        known = ", ".join((*AdminVerb, STEP_DOWN))
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"no verb {quoted(request.verb)}; there are {known}")
    check_name(context, "actor", request.actor)
    check_name(context, "request_id", request.request_id)
    if verb in TARGETED:
        check_name(context, "target", request.target)
    elif request.target:
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{verb} has no target: {quoted(request.target)}")
    # What is not a number could not be journalled, and an arbiter that cannot write its journal ends.
    if not isfinite(request.value) or (verb is AdminVerb.OBSERVE_ONLY and request.value not in {0.0, 1.0}):
        abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"value {request.value!r} is none for {verb}")
    return verb


def _audit_message(entry: AuditEntry) -> pb.AuditEntry:
    return pb.AuditEntry(
        at_ms=entry.at_ms,
        request_id=entry.request_id,
        actor=entry.actor,
        verb=entry.verb.value,
        target=entry.target,
        value=entry.value,
        is_done=entry.is_done,
        text=entry.text,
    )


def no_app(app_id: str) -> str:
    """What to tell whoever names an app that is not there."""
    return f"no app {quoted(app_id)}: `themis apps --all` lists those there are"


def app_message(app: AppView) -> pb.AppView:
    """An app as people see it."""
    return pb.AppView(
        app_id=app.app_id,
        user=app.user or user_in(app.app_id),
        queue=app.queue,
        state=app.state.value,
        rho=app.rho,
        rho_forecast=app.rho_forecast,
        arrival_ms=app.arrival_ms,
        finish_ms=app.finish_ms,
        t_independent_s=app.t_independent_ms / 1_000,
        work_gpu_s=app.work_gpu_ms / 1_000,
        is_work_estimated=app.is_work_estimated,
        attained_gpu_s=app.attained_gpu_ms / 1_000,
        gpus_held=app.gpus_held,
        gpus_wanted=app.gpus_wanted,
        gpus_by_node=dict(app.gpus_by_node),
        leases_granted=app.leases_granted,
        leases_renewed=app.leases_renewed,
        leases_ended=app.leases_ended,
        final_status=app.final_status,
        jobs=(
            pb.JobView(
                job_id=job.job_id,
                gang=job.gang,
                max_gpus=job.max_gpus,
                gpus_held=job.gpus_held,
                state=job.state.value,
            )
            for job in app.jobs
        ),
    )


def _node_message(node: NodeView) -> pb.NodeView:
    return pb.NodeView(
        node=node.node,
        rack=node.rack,
        state=node.state,
        gpus_total=node.gpus_total,
        gpus_leased=node.gpus_leased,
        gpus_free=node.gpus_free,
        gpus_used=node.gpus_used,
        is_oversubscribed=node.is_oversubscribed,
        gpu_type=node.gpu_type,
    )
