"""What admins ask over the wire: checked, done once for each request id, kept as an audit."""

import logging
import math
import threading
from typing import Any

import grpc
import pytest

from tests.support.serving import Serving, status_of
from themis_arbiter.adapters.grpc import audit as audit_module
from themis_arbiter.adapters.grpc.admin import NOT_STORED
from themis_arbiter.core.effects import AdminAnswered
from themis_arbiter.core.events import AdminRequested, AdminVerb, Event
from themis_arbiter.engine.loop import EngineStopped, QueueFull
from themis_arbiter.gen.themis.v1 import admin_pb2 as pb
from themis_arbiter.gen.themis.v1 import admin_pb2_grpc


class Answering:
    """Answers requests as the core does, at once or when a test lets it."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.is_done = True
        serving.engine.on_event = self.answer

    def answer(self, event: Event) -> None:
        if isinstance(event, AdminRequested):
            answered = AdminAnswered(
                request_id=event.request_id,
                actor=event.actor,
                verb=event.verb,
                target=event.target,
                value=event.value,
                is_done=self.is_done,
                text=f"answer to {event.request_id}",
            )
            self.serving.audit.observe(event, (answered,))


@pytest.fixture
def people(channel: grpc.Channel) -> admin_pb2_grpc.AdminServiceStub:
    return admin_pb2_grpc.AdminServiceStub(channel)


def asked(verb: str = "pause", request_id: str = "r1", **fields: Any) -> pb.ActRequest:
    return pb.ActRequest(verb=verb, request_id=request_id, **{"actor": "ann@here", **fields})


def failure(people: admin_pb2_grpc.AdminServiceStub, request: pb.ActRequest) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as err:
        people.Act(request, timeout=5)
    return status_of(err.value)


def test_request_becomes_an_event_and_its_answer_the_reply(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    Answering(serving)
    reply = people.Act(asked("set-weight", target="a/x", value=2.5), timeout=5)
    assert (reply.is_done, reply.text) == (True, "answer to r1")
    (event,) = serving.engine.of(AdminRequested)
    assert (event.verb, event.target, event.value, event.actor) == (AdminVerb.SET_WEIGHT, "a/x", 2.5, "ann@here")


def test_refusal_is_a_reply(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    Answering(serving).is_done = False
    assert not people.Act(asked(), timeout=5).is_done


def test_same_request_is_done_once_and_answered_as_before(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    Answering(serving)
    replies = [people.Act(asked("revoke", target="L1"), timeout=5) for _ in range(3)]
    assert {r.text for r in replies} == {"answer to r1"}
    assert len(serving.engine.of(AdminRequested)) == 1
    people.Act(asked("revoke", "r2", target="L1"), timeout=5)
    assert len(serving.engine.of(AdminRequested)) == 2


def test_same_request_while_it_is_being_done_waits_for_the_same_answer(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub
) -> None:
    replies: list[pb.ActReply] = []
    callers = [threading.Thread(target=lambda: replies.append(people.Act(asked(), timeout=5))) for _ in range(4)]
    for caller in callers:
        caller.start()
    (event,) = serving.engine.wait_for(AdminRequested)
    Answering(serving).answer(event)
    for caller in callers:
        caller.join(10)
    assert [r.text for r in replies] == ["answer to r1"] * 4
    assert len(serving.engine.of(AdminRequested)) == 1


def test_id_of_another_request_is_refused(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    Answering(serving)
    people.Act(asked(), timeout=5)
    code, text = failure(people, asked("resume"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "'r1' was used for another request" in text


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (asked("stop"), "no verb 'stop'; there are pause, resume"),
        (asked(""), "no verb ''"),
        (asked(request_id=""), "request_id '': it is empty"),
        (asked(actor=""), "actor '': it is empty"),
        (asked(actor="a\nb"), "control characters"),
        (asked("revoke"), "target '': it is empty"),
        (asked("drain", target="n" * 10_000), "more than"),
        (asked("pause", target="n1"), "pause has no target: 'n1'"),
        (asked("set-weight", target="a", value=math.nan), "value nan is none for set-weight"),
        (asked("set-weight", target="a", value=math.inf), "value inf is none"),
        (asked("pause", value=math.nan), "value nan is none for pause"),
        (asked("observe-only", value=0.5), "value 0.5 is none for observe-only"),
    ],
)
def test_request_that_cannot_be_is_refused_before_the_engine_sees_it(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub, request_: pb.ActRequest, text: str
) -> None:
    code, said = failure(people, request_)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text in said
    assert serving.engine.events == []


def test_engine_that_does_not_take_it_may_be_asked_again(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    Answering(serving)
    for err, code in (
        (QueueFull("full"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (EngineStopped("x"), grpc.StatusCode.UNAVAILABLE),
    ):
        serving.engine.failure = err
        assert failure(people, asked()) == (code, str(err))
    serving.engine.failure = None
    assert people.Act(asked(), timeout=5).is_done


def test_engine_that_does_not_answer_is_said_so_and_the_answer_is_there_later(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub
) -> None:
    code, text = failure(people, asked())
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "ask again with the same request_id" in text
    Answering(serving).answer(serving.engine.of(AdminRequested)[0])
    assert people.Act(asked(), timeout=5).text == "answer to r1"
    assert len(serving.engine.of(AdminRequested)) == 1


def test_what_the_store_has_not_taken_yet_is_said(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    answering = Answering(serving)
    serving.world.is_stored = False
    assert people.Act(asked(), timeout=5).text == "answer to r1" + NOT_STORED
    answering.is_done = False
    assert people.Act(asked("resume", "r2"), timeout=5).text == "answer to r2"


def test_requests_that_wait_are_bounded(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "WAITING_MAX", 1)
    assert failure(people, asked())[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert failure(people, asked(request_id="r2"))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_audit_has_the_newest_answers_and_one_log_line_each(
    serving: Serving,
    people: admin_pb2_grpc.AdminServiceStub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(audit_module, "ENTRIES_MAX", 3)
    answering = Answering(serving)
    with caplog.at_level(logging.INFO, "tests.audit"):
        for k in range(5):
            answering.is_done = k % 2 == 0
            people.Act(asked("drain", f"r{k}", target=f"n{k}"), timeout=5)
    entries = people.ListAudit(pb.ListAuditRequest(), timeout=5).entries
    assert [(e.request_id, e.target, e.is_done) for e in entries] == [
        ("r4", "n4", True),
        ("r3", "n3", False),
        ("r2", "n2", True),
    ]
    assert (entries[0].actor, entries[0].verb, entries[0].text) == ("ann@here", "drain", "answer to r4")
    assert entries[0].at_ms > 1_600_000_000_000
    assert len(people.ListAudit(pb.ListAuditRequest(limit=1), timeout=5).entries) == 1
    lines: list[Any] = [getattr(r, "fields") for r in caplog.records if r.message == "admin request"]  # noqa: B009
    assert [(f["verb"], f["target"], f["is_done"]) for f in lines] == [("drain", f"n{k}", k % 2 == 0) for k in range(5)]
    with pytest.raises(grpc.RpcError) as err:
        people.ListAudit(pb.ListAuditRequest(limit=1_001), timeout=5)
    assert status_of(err.value)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_answer_of_an_arbiter_that_stops_leading_does_not_count(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub
) -> None:
    answering = Answering(serving)

    def answer_and_stop(event: Event) -> None:
        answering.answer(event)
        serving.engine.failure = EngineStopped("the engine is not running")

    serving.engine.on_event = answer_and_stop
    assert failure(people, asked())[0] is grpc.StatusCode.UNAVAILABLE


def test_an_arbiter_with_a_store_of_its_own_does_not_step_down(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub
) -> None:
    reply = people.Act(asked("step-down"), timeout=5)
    assert (reply.is_done, reply.text) == (False, "its store is its own, so no other arbiter can lead")
    assert failure(people, asked("step-down", actor=""))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert serving.engine.of(AdminRequested) == []
