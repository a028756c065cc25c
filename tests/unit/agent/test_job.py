"""The job's machine, scenario by scenario: what it asks for, hands out, gives back, and when it is over."""

import pytest

from themis_arbiter.agent.job import CONNECT_MS_MAX, EXIT_ABORTED, EXIT_PREEMPTED, LIMBO_MS_MAX, JobPlan, TrainingJob
from themis_arbiter.agent.job_events import (
    AskContainer,
    AssignUnit,
    CancelAsk,
    ContainerAllocated,
    ContainerCompleted,
    ContainerStartFailed,
    Disconnect,
    FinishJob,
    JobEffect,
    JobStarted,
    LogRead,
    PreemptionNoticed,
    ReadLog,
    ReleaseContainer,
    StartTask,
    StopTask,
    TaskConnected,
    TaskDisconnected,
    Ticked,
    UnitReported,
    WriteCheckpoint,
)
from themis_arbiter.agent.steps import StepLedger
from themis_arbiter.agent.work import Unit

KILLED = 137


def make(steps: int = 10, gang: int = 1, containers: int = 2, **plan: int) -> TrainingJob:
    settings = {"checkpoint_every": 100, "step_ms": 100, "gang_wait_ms": 1_000, "failures_max": 2} | plan
    return TrainingJob(JobPlan(gang=gang, containers_max=containers, **settings), StepLedger(steps, gang))


def allocate(job: TrainingJob, *requests: int, at_ms: int = 0) -> None:
    for request in requests:
        name = f"c{request}"
        effects = job.step(ContainerAllocated(at_ms=at_ms, container_id=name, request_id=request, node="n"))
        assert [each.container_id for each in effects if isinstance(each, StartTask)] == [name]


def connect(job: TrainingJob, *names: str, at_ms: int = 0) -> list[JobEffect]:
    return [each for name in names for each in job.step(TaskConnected(at_ms=at_ms, container_id=name))]


def report(job: TrainingJob, name: str, step: int, part: int = 0, at_ms: int = 0) -> list[JobEffect]:
    return job.step(UnitReported(at_ms=at_ms, container_id=name, unit=Unit(step, part), value=1))


def completed(name: str, status: int, at_ms: int = 0) -> ContainerCompleted:
    return ContainerCompleted(at_ms=at_ms, container_id=name, exit_status=status, diagnostics="")


def assigned(effects: list[JobEffect]) -> list[tuple[str, Unit]]:
    return [(each.container_id, each.unit) for each in effects if isinstance(each, AssignUnit)]


def asked(effects: list[JobEffect]) -> list[int]:
    return [each.request_id for each in effects if isinstance(each, AskContainer)]


def released(effects: list[JobEffect]) -> list[str]:
    return [each.container_id for each in effects if isinstance(each, ReleaseContainer)]


def running(gang: int = 1, containers: int = 2, **plan: int) -> TrainingJob:
    """A job with all its containers c1.. connected and a unit in each hand."""
    job = make(gang=gang, containers=containers, **plan)
    assert asked(job.step(JobStarted(at_ms=0))) == list(range(1, containers + 1))
    allocate(job, *range(1, containers + 1))
    effects = connect(job, *(f"c{number}" for number in range(1, containers + 1)))
    assert len(assigned(effects)) == containers
    return job


def test_each_task_gets_the_next_unit_when_it_has_done_one() -> None:
    job = running()
    assert assigned(report(job, "c2", 1)) == [("c2", Unit(2, 0))]
    assert assigned(report(job, "c1", 0)) == [("c1", Unit(3, 0))]


def test_a_noticed_container_ends_its_unit_then_checkpoint_release_and_a_new_ask_in_this_order() -> None:
    job = running()
    assert job.step(PreemptionNoticed(at_ms=1, container_id="c1")) == []
    effects = report(job, "c1", 0, at_ms=2)
    kinds = [type(each) for each in effects]
    assert kinds.index(WriteCheckpoint) < kinds.index(ReleaseContainer) < kinds.index(AskContainer)
    assert released(effects) == ["c1"]
    assert asked(effects) == [3]
    assert assigned(effects) == []
    saved = next(each.document for each in effects if isinstance(each, WriteCheckpoint))
    assert (saved["prefix"], saved["generation"]) == (1, 1)
    job.step(TaskDisconnected(at_ms=3, container_id="c1"))
    job.step(completed("c1", EXIT_ABORTED))
    assert (job.counters.preempted, job.counters.failures, job.counters.restarts) == (1, 0, 1)


def test_a_noticed_container_that_has_no_task_yet_is_released_at_once() -> None:
    job = make()
    job.step(JobStarted(at_ms=0))
    allocate(job, 1)
    assert released(job.step(PreemptionNoticed(at_ms=0, container_id="c1"))) == ["c1"]


@pytest.mark.parametrize(("status", "failures"), [(EXIT_PREEMPTED, 0), (EXIT_ABORTED, 0), (KILLED, 1), (0, 1)])
def test_a_lost_container_gives_its_unit_back_and_is_asked_for_again(status: int, failures: int) -> None:
    job = running()
    job.step(TaskDisconnected(at_ms=1, container_id="c1"))
    effects = job.step(completed("c1", status, at_ms=2))
    assert ReadLog(container_id="c1") in effects
    assert asked(effects) == [3]
    assert assigned(report(job, "c2", 1)) == [("c2", Unit(2, 0))], "the unit may be done still: its log is not read yet"
    job.step(LogRead(at_ms=3, container_id="c1", done=()))
    assert assigned(report(job, "c2", 2)) == [("c2", Unit(0, 0))]
    assert (job.counters.failures, job.counters.units_redone, job.counters.restarts) == (failures, 1, 1)


def test_a_unit_that_was_logged_but_not_reported_is_not_done_again() -> None:
    job = running()
    job.step(completed("c1", KILLED))
    job.step(TaskDisconnected(at_ms=1, container_id="c1"))
    job.step(LogRead(at_ms=2, container_id="c1", done=((Unit(0, 0), 1),)))
    assert assigned(report(job, "c2", 1)) == [("c2", Unit(2, 0))]
    assert (job.counters.units_recovered, job.counters.units_redone, job.ledger.done) == (1, 0, 2)


def test_a_task_that_outlives_its_lost_node_may_finish_its_unit_and_is_cut_off_after_a_while() -> None:
    job = running(step_ms=100)
    effects = job.step(completed("c1", EXIT_ABORTED, at_ms=1_000))
    assert StopTask(container_id="c1") in effects
    assert not any(isinstance(each, ReadLog) for each in effects)
    assert Disconnect(container_id="c1") not in job.step(Ticked(at_ms=2_199))
    assert Disconnect(container_id="c1") in job.step(Ticked(at_ms=2_200))
    assert ReadLog(container_id="c1") in job.step(TaskDisconnected(at_ms=2_201, container_id="c1"))


def test_too_many_failures_end_the_job() -> None:
    job = running(failures_max=1)
    job.step(completed("c1", KILLED))
    assert not job.is_finished
    effects = job.step(completed("c2", KILLED))
    assert effects[-1] == FinishJob(reason="more than 1 failures")
    assert job.step(Ticked(at_ms=9)) == []


def test_a_container_that_does_not_start_is_released_and_counts() -> None:
    job = make()
    job.step(JobStarted(at_ms=0))
    allocate(job, 1, 2)
    effects = job.step(ContainerStartFailed(at_ms=1, container_id="c1", diagnostics="refused"))
    assert (released(effects), asked(effects), job.counters.failures) == (["c1"], [3], 1)
    assert released(job.step(Ticked(at_ms=CONNECT_MS_MAX - 1))) == []
    assert released(job.step(Ticked(at_ms=CONNECT_MS_MAX))) == ["c2"]


def test_a_task_whose_connection_ended_is_released_when_yarn_stays_silent() -> None:
    job = running()
    job.step(TaskDisconnected(at_ms=100, container_id="c2"))
    assert released(job.step(Ticked(at_ms=LIMBO_MS_MAX + 99))) == []
    assert released(job.step(Ticked(at_ms=LIMBO_MS_MAX + 100))) == ["c2"]


def test_near_the_end_demand_falls_and_surplus_is_given_back() -> None:
    job = make(steps=3, containers=3)
    assert asked(job.step(JobStarted(at_ms=0))) == [1, 2, 3]
    allocate(job, 1, 2)
    connect(job, "c1", "c2")
    effects = report(job, "c1", 0)
    assert CancelAsk(request_id=3) in effects, "two units are left, two tasks are there"
    assert assigned(effects) == [("c1", Unit(2, 0))]
    assert released(report(job, "c1", 2)) == ["c1"]
    late = job.step(ContainerAllocated(at_ms=0, container_id="late", request_id=3, node="n"))
    assert late == [ReleaseContainer(container_id="late")]
    effects = report(job, "c2", 1)
    assert effects[-1] == FinishJob(reason="")
    assert StopTask(container_id="c2") in effects


def test_a_report_of_a_unit_that_the_task_does_not_have_cuts_it_off() -> None:
    job = running()
    assert report(job, "c1", 1) == [Disconnect(container_id="c1")]
    assert job.ledger.done == 0


def test_a_stranger_or_a_second_connection_is_cut_off() -> None:
    job = running()
    assert connect(job, "unknown") == [Disconnect(container_id="unknown")]
    assert connect(job, "c1") == [Disconnect(container_id="c1")]


def test_nothing_of_a_gang_runs_until_it_is_whole() -> None:
    job = make(gang=3, containers=3)
    assert asked(job.step(JobStarted(at_ms=0))) == [1, 2, 3]
    allocate(job, 1, 2, 3)
    assert assigned(connect(job, "c1", "c2")) == []
    assert assigned(connect(job, "c3")) == [("c1", Unit(0, 0)), ("c2", Unit(0, 1)), ("c3", Unit(0, 2))]
    report(job, "c1", 0, 0)
    assert assigned(report(job, "c2", 0, 1)) == []
    assert len(assigned(report(job, "c3", 0, 2))) == 3
    assert job.counters.restarts == 0


def test_a_notice_stops_the_whole_gang_at_the_step_and_only_the_noticed_one_leaves() -> None:
    job = running(gang=2)
    job.step(PreemptionNoticed(at_ms=1, container_id="c2"))
    assert assigned(report(job, "c1", 0, 0)) == []
    effects = report(job, "c2", 0, 1)
    assert (released(effects), asked(effects), assigned(effects)) == (["c2"], [3], [])
    allocate(job, 3, at_ms=10)
    assert assigned(connect(job, "c3", at_ms=10)) == [("c1", Unit(1, 0)), ("c3", Unit(1, 1))]
    assert job.counters.restarts == 1


def test_a_gang_that_lost_a_member_in_a_step_does_only_the_missing_part_again() -> None:
    job = running(gang=2)
    report(job, "c1", 0, 0)
    job.step(TaskDisconnected(at_ms=1, container_id="c2"))
    job.step(completed("c2", EXIT_PREEMPTED))
    job.step(LogRead(at_ms=1, container_id="c2", done=()))
    allocate(job, 3)
    assert assigned(connect(job, "c3")) == [("c1", Unit(0, 1))]
    assert len(assigned(report(job, "c1", 0, 1))) == 2


def test_part_of_a_gang_holds_idle_gpus_for_a_bounded_time() -> None:
    job = make(gang=2, gang_wait_ms=1_000)
    job.step(JobStarted(at_ms=0))
    allocate(job, 1, at_ms=500)
    connect(job, "c1", at_ms=600)
    assert released(job.step(Ticked(at_ms=1_499))) == []
    effects = job.step(Ticked(at_ms=1_500))
    assert (released(effects), asked(effects)) == (["c1"], [3])
    job.step(completed("c1", EXIT_ABORTED))
    assert job.counters.failures == 0
    allocate(job, 2, 3, at_ms=1_600)
    assert len(assigned(connect(job, "c2", "c3", at_ms=1_700))) == 2


def test_checkpoints_come_every_so_many_units() -> None:
    job = running(checkpoint_every=2)
    assert not any(isinstance(each, WriteCheckpoint) for each in report(job, "c1", 0))
    assert any(isinstance(each, WriteCheckpoint) for each in report(job, "c2", 1))
    effects = report(job, "c1", 2)
    assert [each.checkpoint for each in effects if isinstance(each, AssignUnit)] == [1]


@pytest.mark.parametrize(
    "plan", [{"gang": 2, "containers_max": 3}, {"gang": 1, "containers_max": 0}, {"gang": 0, "containers_max": 1}]
)
def test_plans_that_cannot_run_are_refused(plan: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="containers"):
        JobPlan(checkpoint_every=1, step_ms=1, **plan)
