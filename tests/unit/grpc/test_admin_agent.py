import json
import math

import grpc
import pytest

from tests.support.serving import Serving, lease, status_of
from themis_arbiter.core.events import ProgressReported
from themis_arbiter.engine.loop import EngineStopped, QueueFull
from themis_arbiter.gen.themis.v1 import admin_pb2 as admin
from themis_arbiter.gen.themis.v1 import admin_pb2_grpc, agent_pb2_grpc
from themis_arbiter.gen.themis.v1 import agent_pb2 as agent

JOB = "application_1_0001"


@pytest.fixture
def people(channel: grpc.Channel) -> admin_pb2_grpc.AdminServiceStub:
    return admin_pb2_grpc.AdminServiceStub(channel)


@pytest.fixture
def agents(channel: grpc.Channel) -> agent_pb2_grpc.AgentServiceStub:
    return agent_pb2_grpc.AgentServiceStub(channel)


def test_apps(people: admin_pb2_grpc.AdminServiceStub) -> None:
    reply = people.ListApps(admin.ListAppsRequest(), timeout=5)
    (app,) = reply.apps
    assert (app.app_id, app.state, app.rho, app.rho_forecast) == ("a/x", "RUNNING", 1.5, math.inf)
    assert (app.t_independent_s, app.work_gpu_s, app.attained_gpu_s, app.is_work_estimated) == (2.5, 60.0, 1.0, True)
    assert (dict(app.gpus_by_node), app.leases_granted, app.leases_renewed, app.leases_ended) == ({"n1": 1}, 3, 2, 1)
    assert [(j.job_id, j.gang, j.max_gpus, j.gpus_held, j.state) for j in app.jobs] == [(JOB, 1, 2, 1, "RUNNING")]
    assert reply.now_ms > 1_600_000_000_000
    with_ended = people.ListApps(admin.ListAppsRequest(include_ended=True), timeout=5)
    assert [a.app_id for a in with_ended.apps] == ["a/x", "a/ended"]


def test_leases_of_all_and_of_one(people: admin_pb2_grpc.AdminServiceStub) -> None:
    everybody = people.ListLeases(admin.ListLeasesRequest(), timeout=5).leases
    assert [(x.lease_id, x.node, x.gpu, x.state, x.is_next) for x in everybody] == [
        ("l1", "n1", 0, "pending", False),
        ("l2", "n1", 0, "waiting", True),
    ]
    assert [x.lease_id for x in people.ListLeases(admin.ListLeasesRequest(app_id="b/y"), timeout=5).leases] == ["l2"]


def test_leases_of_an_app_without_any_are_none_and_of_no_app_an_error(
    serving: Serving, people: admin_pb2_grpc.AdminServiceStub
) -> None:
    serving.world.leases = ()
    assert list(people.ListLeases(admin.ListLeasesRequest(app_id="a/x"), timeout=5).leases) == []
    with pytest.raises(grpc.RpcError) as err:
        people.ListLeases(admin.ListLeasesRequest(app_id="nope"), timeout=5)
    said = "no app 'nope': `themis apps --all` lists those there are"
    assert status_of(err.value) == (grpc.StatusCode.NOT_FOUND, said)


def test_nodes_never_have_less_than_none_free(people: admin_pb2_grpc.AdminServiceStub) -> None:
    nodes = people.ListNodes(admin.ListNodesRequest(), timeout=5).nodes
    assert [(n.node, n.gpus_leased, n.gpus_free) for n in nodes] == [("n1", 1, 3), ("n2", 2, 0), ("n3", 0, 0)]
    assert [(n.state, n.gpus_used, n.is_oversubscribed) for n in nodes] == [
        ("RUNNING", 0, False),
        ("RUNNING", 2, True),
        ("LOST", 0, False),
    ]


def test_rounds_are_json_newest_first(people: admin_pb2_grpc.AdminServiceStub) -> None:
    reply = people.ListRounds(admin.ListRoundsRequest(limit=2), timeout=5)
    assert [json.loads(r) for r in reply.decision_json] == [{"round": 2, "name": "é"}, {"round": 1, "name": "é"}]
    assert len(people.ListRounds(admin.ListRoundsRequest(), timeout=5).decision_json) == 20
    for limit in (-1, 1_001):
        with pytest.raises(grpc.RpcError) as err:
            people.ListRounds(admin.ListRoundsRequest(limit=limit), timeout=5)
        assert status_of(err.value)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_explain_has_the_notes_of_the_edge_too(people: admin_pb2_grpc.AdminServiceStub) -> None:
    assert list(people.Explain(admin.ExplainRequest(app_id="a/x"), timeout=5).lines) == ["it waits", "note of a/x"]


@pytest.mark.parametrize("app_id", ["李四/été-🚀", "no such"])
def test_an_unknown_app_is_named_in_readable_text(people: admin_pb2_grpc.AdminServiceStub, app_id: str) -> None:
    with pytest.raises(grpc.RpcError) as err:
        people.Explain(admin.ExplainRequest(app_id=app_id), timeout=5)
    assert status_of(err.value) == (grpc.StatusCode.NOT_FOUND, f"no app '{app_id}': `themis apps --all` lists those there are")


def test_status(people: admin_pb2_grpc.AdminServiceStub) -> None:
    status = people.GetStatus(admin.StatusRequest(), timeout=5)
    assert (status.version, status.policy, status.is_leader, status.epoch) == ("1.2", "themis", True, 3)
    assert status.leader_address == "127.0.0.1:81"
    assert (status.is_bridge_connected, status.now_ms, status.http_address) == (True, 7, "127.0.0.1:80")
    assert (status.is_paused, status.is_observing) == (False, True)
    assert (status.lease_ms, status.notice_ms, status.rho_floor_ms) == (300_000, 60_000, 600_000)


def test_an_engine_that_cannot_answer_gives_a_status(serving: Serving, people: admin_pb2_grpc.AdminServiceStub) -> None:
    cases = ((QueueFull("full"), grpc.StatusCode.RESOURCE_EXHAUSTED), (EngineStopped("x"), grpc.StatusCode.UNAVAILABLE))
    for failure, code in cases:
        serving.engine.failure = failure
        with pytest.raises(grpc.RpcError) as err:
            people.ListNodes(admin.ListNodesRequest(), timeout=5)
        assert status_of(err.value) == (code, str(failure))


def test_progress_becomes_an_event(serving: Serving, agents: agent_pb2_grpc.AgentServiceStub) -> None:
    agents.ReportProgress(agent.ProgressRequest(app_id="a/x", job_id=JOB, remaining_gpu_s=1.5), timeout=5)
    (progress,) = serving.engine.wait_for(ProgressReported)
    assert (progress.app_id, progress.job_id, progress.remaining) == ("a/x", JOB, 1_500.0)


@pytest.mark.parametrize(
    ("app_id", "job_id", "remaining", "code"),
    [
        ("a/x", JOB, -1.0, grpc.StatusCode.INVALID_ARGUMENT),
        ("a/x", JOB, math.nan, grpc.StatusCode.INVALID_ARGUMENT),
        ("a/x", JOB, math.inf, grpc.StatusCode.INVALID_ARGUMENT),
        ("a/x", JOB, 2e12, grpc.StatusCode.INVALID_ARGUMENT),
        ("", JOB, 1.0, grpc.StatusCode.INVALID_ARGUMENT),
        ("a/x", "j" * 257, 1.0, grpc.StatusCode.INVALID_ARGUMENT),
        ("a/x", "application_1_0002", 1.0, grpc.StatusCode.NOT_FOUND),
        ("b/y", JOB, 1.0, grpc.StatusCode.NOT_FOUND),
    ],
)
def test_progress_that_cannot_be_is_refused(
    serving: Serving,
    agents: agent_pb2_grpc.AgentServiceStub,
    app_id: str,
    job_id: str,
    remaining: float,
    code: grpc.StatusCode,
) -> None:
    with pytest.raises(grpc.RpcError) as err:
        agents.ReportProgress(agent.ProgressRequest(app_id=app_id, job_id=job_id, remaining_gpu_s=remaining), timeout=5)
    assert status_of(err.value)[0] is code
    assert serving.engine.events == []


def test_a_watch_shows_an_apps_leases_now_and_after_each_change(
    serving: Serving, agents: agent_pb2_grpc.AgentServiceStub
) -> None:
    watch = agents.WatchLeases(agent.WatchLeasesRequest(app_id="a/x"), timeout=10)
    assert [x.lease_id for x in next(watch).leases] == ["l1"]
    other = (lease("l9", app_id="b/y"), False)
    serving.world.leases = ((lease(), False), other)  # nothing that this watcher sees
    serving.world.leases = ((lease("l3", end_ms=8_000), False), (lease("l4"), True), other)
    view = next(watch)
    assert [(x.lease_id, x.end_ms, x.is_next) for x in view.leases] == [("l3", 8_000, False), ("l4", 9_000, True)]
    serving.world.leases = ()
    assert list(next(watch).leases) == []
    watch.cancel()


def test_many_watchers_cost_the_engine_one_look(serving: Serving, agents: agent_pb2_grpc.AgentServiceStub) -> None:
    watches = [agents.WatchLeases(agent.WatchLeasesRequest(app_id=f"app-{i}"), timeout=10) for i in range(20)]
    for watch in watches:
        assert list(next(watch).leases) == []
    assert serving.engine.calls <= 10
    for watch in watches:
        watch.cancel()
