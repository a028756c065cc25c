"""The job's machine in a small simulated world: kills, notices, lost nodes and lost reports in any order.

The checker knows the tasks' logs only, as verify.py does. First faults, then none: the job has to end, with every unit
in exactly one log.
"""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.agent.job import JobPlan, TrainingJob
from themis_arbiter.agent.job_events import (
    AskContainer,
    AssignUnit,
    CancelAsk,
    ContainerAllocated,
    ContainerCompleted,
    Disconnect,
    FinishJob,
    JobEffect,
    JobEvent,
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
)
from themis_arbiter.agent.steps import StepLedger
from themis_arbiter.agent.work import Unit, all_units, expected_sum, unit_value

FAULTY_STEPS = 120
STEPS_MAX = 4_000


@dataclass(slots=True)
class Container:
    """The truth about one container: its process, what is on the wire to it, and its log."""

    name: str
    is_started: bool = False
    is_alive: bool = True
    is_connected: bool = False
    is_over: bool = False
    unit: Unit | None = None
    is_stopping: bool = False
    log: list[Unit] = field(default_factory=list)


@dataclass(slots=True)
class World:
    job: TrainingJob
    dice: random.Random
    now_ms: int = 0
    asks: list[int] = field(default_factory=list)
    containers: dict[str, Container] = field(default_factory=dict)
    news: deque[JobEvent] = field(default_factory=deque)
    finish: FinishJob | None = None
    doubles: list[Unit] = field(default_factory=list)

    def feed(self) -> None:
        while self.news:
            for effect in self.job.step(self.news.popleft()):
                self.perform(effect)

    def perform(self, effect: JobEffect) -> None:
        match effect:
            case AskContainer():
                self.asks.append(effect.request_id)
            case CancelAsk():
                self.asks.remove(effect.request_id)
            case StartTask():
                self.containers[effect.container_id].is_started = True
            case AssignUnit():
                task = self.containers[effect.container_id]
                if task.is_alive and task.is_connected:
                    assert task.unit is None, f"{task.name} has {task.unit} and gets {effect.unit}"
                    task.unit = effect.unit
            case StopTask():
                self.containers[effect.container_id].is_stopping = True
            case Disconnect():
                self.end_process(self.containers[effect.container_id])
            case ReleaseContainer():
                self.end_container(self.containers[effect.container_id], -100)
            case ReadLog():
                done = tuple((unit, unit_value(unit)) for unit in self.containers[effect.container_id].log)
                self.news.append(LogRead(at_ms=self.now_ms, container_id=effect.container_id, done=done))
            case FinishJob():
                self.finish = effect
            case _:
                pass

    def end_process(self, task: Container) -> None:
        task.is_alive = False
        if task.is_connected:
            task.is_connected = False
            self.news.append(TaskDisconnected(at_ms=self.now_ms, container_id=task.name))

    def end_container(self, task: Container, status: int) -> None:
        if task.is_over:
            return
        task.is_over = True
        over = ContainerCompleted(at_ms=self.now_ms, container_id=task.name, exit_status=status, diagnostics="")
        if self.dice.random() < 0.5:
            self.end_process(task)
            self.news.append(over)
        else:
            self.news.append(over)
            self.end_process(task)

    def act(self, is_faulty: bool) -> None:
        self.now_ms += self.dice.choice((1, 20, 300))
        self.news.append(Ticked(at_ms=self.now_ms))
        if self.asks and self.dice.random() < 0.5:
            request = self.asks.pop(0)
            name = f"c{request}"
            self.containers[name] = Container(name)
            self.news.append(ContainerAllocated(at_ms=self.now_ms, container_id=name, request_id=request, node="n"))
        for task in self.containers.values():
            if task.is_started and task.is_alive and not task.is_over and not task.is_connected and not task.log:
                task.is_connected = True
                self.news.append(TaskConnected(at_ms=self.now_ms, container_id=task.name))
            elif task.is_connected and self.dice.random() < 0.6:
                self.work(task, is_faulty)
            if is_faulty and not task.is_over:
                self.harm(task)
        self.feed()

    def work(self, task: Container, is_faulty: bool) -> None:
        if task.unit is not None:
            task.log.append(task.unit)
            if is_faulty and self.dice.random() < 0.1:
                # Killed between log and report: the driver never hears of it from the task.
                task.unit = None
                self.end_container(task, 137)
                return
            self.news.append(
                UnitReported(at_ms=self.now_ms, container_id=task.name, unit=task.unit, value=unit_value(task.unit))
            )
            task.unit = None
        elif task.is_stopping:
            self.end_process(task)

    def harm(self, task: Container) -> None:
        fate = self.dice.random()
        if fate < 0.03:
            self.end_container(task, self.dice.choice((-102, -100, 137)))
        elif fate < 0.05:
            self.news.append(PreemptionNoticed(at_ms=self.now_ms, container_id=task.name))
        elif fate < 0.06:
            # The node is lost to YARN only: the process runs on until the driver stops it.
            task.is_over = True
            self.news.append(
                ContainerCompleted(at_ms=self.now_ms, container_id=task.name, exit_status=-100, diagnostics="lost")
            )


@given(seed=st.integers(0, 1_000_000), steps=st.integers(1, 25), gang=st.integers(1, 4), is_elastic=st.booleans())
def test_every_unit_is_done_exactly_once_whatever_happens(seed: int, steps: int, gang: int, is_elastic: bool) -> None:
    parts = 1 if is_elastic else gang
    plan = JobPlan(gang=parts, containers_max=gang, checkpoint_every=3, step_ms=50, gang_wait_ms=2_000, failures_max=1_000)
    world = World(TrainingJob(plan, StepLedger(steps, parts)), random.Random(seed))
    world.news.append(JobStarted(at_ms=0))
    world.feed()
    for number in range(STEPS_MAX):
        if world.finish:
            break
        world.act(is_faulty=number < FAULTY_STEPS)
        held = sum(1 for task in world.containers.values() if not task.is_over)
        assert held + len(world.asks) <= gang, "never more containers held and asked for than wanted"
    assert world.finish == FinishJob(reason="")
    logged = Counter(unit for task in world.containers.values() for unit in task.log)
    assert logged == Counter(all_units(steps, parts))
    assert world.job.ledger.running_sum == expected_sum(steps, parts)
