import logging
from typing import Any

import pytest
from google.protobuf import json_format

from themis_arbiter.adapters.clock import ManualClock
from themis_arbiter.adapters.grpc import convert
from themis_arbiter.adapters.grpc.convert import ParsedReport, ReportReader
from themis_arbiter.adapters.grpc.faults import Fault, Faults
from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.core.events import EndCause
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb

NOW_MS = 5_000_000
RM_NOW_MS = 9_000_000
APP = "application_1_0001"


@pytest.fixture
def faults() -> Faults:
    return Faults(logging.getLogger("test"), ManualClock(NOW_MS))


@pytest.fixture
def reader(faults: Faults) -> ReportReader:
    return ReportReader(faults)


def application(application_id: str = APP, **fields: Any) -> dict[str, Any]:
    return {
        "application_id": application_id,
        "user": "alice",
        "queue": "default",
        "state": "ACTIVE",
        "submit_rm_ms": RM_NOW_MS - 7_000,
    } | fields


def container(container_id: str = "c1", **fields: Any) -> dict[str, Any]:
    base = {"container_id": container_id, "application_id": APP, "node": "n1", "gpus": 1, "state": "RUNNING"}
    return base | fields


def ask(gpus: int, count: int = 1, memory_mb: int = 1_024) -> dict[str, Any]:
    return {"gpus": gpus, "count": count, "memory_mb": memory_mb, "vcores": 2}


def read(reader: ReportReader, now_ms: int = NOW_MS, **fields: Any) -> ParsedReport:
    report = json_format.ParseDict({"start_id": "s", "rm_now_ms": RM_NOW_MS} | fields, pb.Report())
    return reader.read(report, now_ms)


@pytest.mark.parametrize(
    ("ended_by", "cause"),
    [
        ("MASTER", EndCause.GIVEN_BACK),
        ("APPLICATION", EndCause.AFTER_APP),
        ("NODE", EndCause.NODE_LOST),
        ("EXPIRY", EndCause.EXPIRED),
        ("", None),
        ("something newer", None),
    ],
)
def test_who_ended_a_container_is_read_where_the_plugin_says(
    reader: ReportReader, ended_by: str, cause: EndCause | None
) -> None:
    ended = container(state="COMPLETED", exit_status=-100, ended_by=ended_by)
    (got,) = read(reader, applications=[application()], containers=[ended]).containers
    assert (got.is_ended, got.exit_status, got.end_cause) == (True, -100, cause)


def test_a_job_is_read_whole(reader: ReportReader) -> None:
    tags = ["themis.app=Tune", "themis.gang=6", "themis.model=vgg16", "themis.work-gpu-s=10", "themis.on-lease-end=never"]
    (job,) = read(reader, applications=[application(tags=tags, asks=[ask(2, 3), ask(1, 1, 4_096)])]).jobs
    assert (job.app_id, job.job_id, job.user, job.queue, job.model) == ("alice/tune", APP, "alice", "default", "vgg16")
    assert (job.gang, job.unit, job.gpus_asked, job.memory_mb, job.vcores) == (6, 2, 7, 4_096, 2)
    assert (job.work, job.weight, job.on_lease_end) == (10_000.0, 1.0, OnLeaseEnd.NEVER)
    assert job.arrival_ms == NOW_MS - 7_000


def test_the_smallest_gang_is_one_container(reader: ReportReader) -> None:
    jobs = read(
        reader, applications=[application(asks=[ask(4)]), application("a2", tags=["themis.gang=1"], asks=[ask(4)])]
    ).jobs
    assert [(j.app_id, j.gang) for j in jobs] == [("a2" if j.job_id == "a2" else APP, 4) for j in jobs]


def test_an_application_without_gpus_is_not_our_business(reader: ReportReader, faults: Faults) -> None:
    assert read(reader, applications=[application()]).jobs == ()
    assert read(reader, applications=[application(state="FINISHED", final_status="SUCCEEDED")]).jobs == ()
    assert sum(faults.counts().values()) == 0


def test_once_it_asked_it_stays_until_it_ends(reader: ReportReader) -> None:
    read(reader, applications=[application(asks=[ask(2)])])
    (job,) = read(reader, applications=[application()]).jobs
    assert (job.gpus_asked, job.unit) == (0, 2)
    (job,) = read(reader, is_full=True, applications=[application()]).jobs
    assert job.unit == 2
    ended = application(state="FINISHED", final_status="KILLED", finish_rm_ms=RM_NOW_MS - 1_000, asks=[ask(1)])
    (job,) = read(reader, applications=[ended]).jobs
    assert (job.is_finished, job.final_status, job.finish_ms, job.gpus_asked) == (True, "KILLED", NOW_MS - 1_000, 0)


def test_its_last_report_may_come_without_user_and_tags(reader: ReportReader) -> None:
    read(reader, applications=[application(tags=["themis.app=x"], asks=[ask(1)])])
    (job,) = read(reader, applications=[{"application_id": APP, "state": "FINISHED", "final_status": "FAILED"}]).jobs
    assert (job.app_id, job.user, job.queue, job.final_status) == ("alice/x", "alice", "default", "FAILED")


def test_live_containers_tell_the_unit_and_the_business(reader: ReportReader) -> None:
    assert read(reader, applications=[application()]).jobs == ()
    (job,) = read(reader, containers=[container(gpus=4), container("am", gpus=8, is_am=True)]).jobs
    assert (job.unit, job.gang) == (4, 4)
    (job,) = read(reader, containers=[container(gpus=4, state="COMPLETED")], applications=[application(asks=[ask(2)])]).jobs
    assert job.unit == 2


def test_containers_may_come_before_their_application(reader: ReportReader) -> None:
    assert read(reader, containers=[container(gpus=2)]).jobs == ()
    (job,) = read(reader, applications=[application()]).jobs
    assert job.unit == 2


def test_arrival_is_kept_from_the_first_sight(reader: ReportReader) -> None:
    (first,) = read(reader, applications=[application(asks=[ask(1)])]).jobs
    (later,) = read(reader, NOW_MS + 50_000, applications=[application(asks=[ask(1)])], rm_now_ms=RM_NOW_MS + 3_600_000).jobs
    assert first.arrival_ms == later.arrival_ms


@pytest.mark.parametrize(("submit_rm_ms", "arrival_ms"), [(RM_NOW_MS + 99, NOW_MS), (0, NOW_MS), (1, 0)])
def test_arrival_is_never_in_the_future_nor_before_all_time(reader: ReportReader, submit_rm_ms: int, arrival_ms: int) -> None:
    (job,) = read(reader, applications=[application(submit_rm_ms=submit_rm_ms, asks=[ask(1)])]).jobs
    assert job.arrival_ms == arrival_ms


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "a\x00b", "a\nb", "a\u0085b", "a\u2028b"], ids=["empty", "long", "nul", "line", "nel", "ls"]
)
def test_a_bad_name_leaves_out_its_own_entry_only(reader: ReportReader, faults: Faults, name: str) -> None:
    parsed = read(
        reader,
        nodes=[{"node": name, "state": "RUNNING"}, {"node": "n1", "gpus_total": 4, "state": "RUNNING"}],
        applications=[application(name, asks=[ask(1)]), application(asks=[ask(1)])],
        containers=[container(name), container("c2", application_id=name), container("c3", node=name), container("c4")],
    )
    assert [n.node for n in parsed.nodes] == ["n1"]
    assert [j.job_id for j in parsed.jobs] == [APP]
    assert [c.container_id for c in parsed.containers] == ["c4"]
    assert faults.counts()[Fault.NAME] == 5


def test_names_of_any_script_are_fine(reader: ReportReader) -> None:
    (job,) = read(reader, applications=[application(user="李四", tags=["themis.app=été-🚀"], asks=[ask(1)])]).jobs
    assert job.app_id == "李四/été-🚀"


def test_supply_below_zero_counts_as_zero(reader: ReportReader, faults: Faults) -> None:
    bad, good = {"node": "n1", "gpus_total": -2, "state": "RUNNING"}, {"node": "n2", "gpus_total": 4, "state": "RUNNING"}
    parsed = read(reader, nodes=[bad | {"memory_free_mb": -5, "vcores_free": -1}, good])
    assert [(n.gpus, n.memory_free_mb, n.vcores_free) for n in parsed.nodes] == [(0, 0, 0), (4, 0, 0)]
    assert faults.counts()[Fault.NUMBER] == 1


def test_unknown_states_are_read_so_that_no_gpu_is_given_twice(reader: ReportReader, faults: Faults) -> None:
    parsed = read(
        reader,
        nodes=[{"node": "n1", "gpus_total": 4, "state": "SLEEPY"}],
        applications=[application(state="PAUSED", asks=[ask(1)])],
        containers=[container(state="PAUSED")],
    )
    assert (parsed.nodes[0].is_schedulable, parsed.nodes[0].is_lost) == (False, False)
    assert (parsed.containers[0].is_ended, parsed.containers[0].is_running) == (False, False)
    assert not parsed.jobs[0].is_finished
    assert faults.counts()[Fault.STATE] == 3


@pytest.mark.parametrize(
    ("state", "claims"), [("RUNNING", (True, False)), ("DECOMMISSIONING", (False, False)), ("LOST", (False, True))]
)
def test_node_states(reader: ReportReader, state: str, claims: tuple[bool, bool]) -> None:
    (node,) = read(reader, nodes=[{"node": "n1", "rack": "/r", "state": state}]).nodes
    assert (node.is_schedulable, node.is_lost) == claims


def test_bad_numbers_break_nothing_else(reader: ReportReader, faults: Faults) -> None:
    parsed = read(
        reader,
        applications=[application(progress="NaN", asks=[ask(-1), ask(1, -3), ask(1, 2), ask(2**31 - 1, 2**31 - 1)])],
        containers=[container("c1", gpus=-1), container("c2", gpus=0), container("c3", gpus=3)],
    )
    (job,) = parsed.jobs
    assert (job.gpus_asked, job.unit) == (2, 3)
    assert [c.container_id for c in parsed.containers] == ["c3"]
    assert faults.counts()[Fault.NUMBER] == 6  # the progress, three asks, two containers


def test_lists_are_bounded(reader: ReportReader, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "NODES_MAX", 2)
    parsed = read(reader, nodes=[{"node": f"n{i}", "state": "RUNNING"} for i in range(5)])
    assert len(parsed.nodes) == 2
    assert faults.counts()[Fault.TOO_MANY] == 1


def test_notes_tell_of_bad_tags(reader: ReportReader) -> None:
    read(reader, applications=[application(tags=["themis.app=x", "themis.gang=many"], asks=[ask(1)])])
    assert reader.notes("alice/x") == (f"{APP}: tag themis.gang='many' is ignored: it is not a number",)
    assert reader.notes("bob/x") == ()


def test_faults_are_told_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(NOW_MS)
    faults = Faults(logging.getLogger("test"), clock)
    for _ in range(1_000):
        faults.add(Fault.NAME, "x")
    clock.advance(10_000)
    faults.add(Fault.NAME, "y")
    assert [r.getMessage() for r in caplog.records] == ["bad name: x", "bad name: y (and 999 more like it)"]
    assert faults.counts()[Fault.NAME] == 1_001


def test_types_of_nodes_are_those_written_down_and_speeds_those_of_the_tag(faults: Faults) -> None:
    types = NodeTypes((("gpu-*.example.org", "v100"), ("gpu-9.example.org", "k80"), ("*", "t4")))
    reader = ReportReader(faults, types)
    names = ("GPU-1.example.org", "gpu-9.example.org:8041", "other")
    nodes = [{"node": name, "gpus_total": 4, "state": "RUNNING"} for name in names]
    tagged = application(tags=["themis.gpu-speeds=v100=1;k80=0"], asks=[ask(1)])
    found = read(reader, nodes=nodes, applications=[tagged])
    assert {n.node: n.gpu_type for n in found.nodes} == dict(zip(names, ("v100", "k80", "t4"), strict=True))
    assert [j.gpu_speeds for j in found.jobs] == [(("k80", 0.0), ("v100", 1.0))]


def test_signs_of_patterns_other_than_the_star_stand_for_themselves_and_many_stars_are_no_work() -> None:
    types = NodeTypes((("a[1]*", "odd"), ("a?", "sign"), ("*a" * 100 + "*b", "many")))
    assert [types.type_of(n) for n in ("a[1]x", "a1x", "a?", "ab", "a" * 256)] == ["odd", "", "sign", "", ""]
