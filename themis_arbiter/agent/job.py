"""The training job's machine: one event in, effects out. No sockets, no YARN, no clock.

Two kinds of job. With gang 1 it is elastic: each task takes the next free unit, so more containers are faster. With
gang g every step has g parts and nothing runs unless g tasks are there.

Preemption: a noticed container gets no more units; when the one in hand is reported, the job checkpoints, releases the
container (YARN then says exit -100) and asks for another. A gang stops at that step boundary as a whole, and only what
was noticed is given up: the others idle, because a gang's leases end together and their own notice is likely on its
way. If the gang is not whole again within `gang_wait_ms`, everything is released and asked for anew, so idle GPUs are
held for a bounded time only.

Loss: a unit in hand goes back only when YARN says that the container is over *and* its connection has ended *and* its
log does not show the unit done. Exit statuses -100 and -102 are YARN's doing and no failure; others count to a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

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
    JobEvent,
    JobStarted,
    LogRead,
    PreemptionNoticed,
    ReadLog,
    ReleaseContainer,
    ReportProgress,
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

EXIT_ABORTED: Final = -100  # released by us, or its node was lost
EXIT_PREEMPTED: Final = -102
EXITS_WITHOUT_BLAME: Final = frozenset({EXIT_ABORTED, EXIT_PREEMPTED})
TIMELINE_MAX: Final = 5_000
CONNECT_MS_MAX: Final = 60_000  # from allocated to a connected task, or the container is given back
LIMBO_MS_MAX: Final = 30_000  # from a lost connection to YARN's word, or the container is given back
CONTAINERS_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What the user asked for. `gang` 1 is elastic up to `containers_max`; otherwise both are equal."""

    gang: int
    containers_max: int
    checkpoint_every: int
    step_ms: int
    gang_wait_ms: int = 10_000
    failures_max: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.containers_max <= CONTAINERS_MAX or self.gang < 1:
            raise ValueError(f"a job has 1 to {CONTAINERS_MAX} containers, not {self.containers_max}")
        if self.gang > 1 and self.gang != self.containers_max:
            raise ValueError(f"a gang of {self.gang} runs in exactly {self.gang} containers, not {self.containers_max}")
        if self.checkpoint_every < 1 or self.step_ms < 0 or self.gang_wait_ms < 1 or self.failures_max < 0:
            raise ValueError("checkpoint_every and gang_wait_ms are at least 1; step_ms and failures_max at least 0")


@dataclass(slots=True, kw_only=True)
class Counters:
    """Totals over all attempts of the job; kept in the checkpoint."""

    containers: int = 0
    restarts: int = 0
    """Elastic: containers lost before the end. Gang: times that work went on after it had stopped."""
    preempted: int = 0
    failures: int = 0
    units_redone: int = 0
    """Units that a lost task had in hand and had not done."""
    units_recovered: int = 0
    """Units that a lost task had done but not reported, taken from its log."""


@dataclass(slots=True, kw_only=True)
class _Task:
    container_id: str
    node: str
    slot: int
    since_ms: int  # allocated, or connection lost
    unit: Unit | None = None
    is_connected: bool = False
    was_connected: bool = False
    is_noticed: bool = False
    is_released: bool = False
    is_over: bool = False
    over_deadline_ms: int = 0

    @property
    def is_held(self) -> bool:
        return not self.is_over and not self.is_released

    @property
    def is_active(self) -> bool:
        return self.is_held and self.is_connected and not self.is_noticed


@dataclass(slots=True)
class TrainingJob:
    """Owns all mutable state of a job. `step` is the only way in."""

    plan: JobPlan
    ledger: StepLedger
    counters: Counters = field(default_factory=Counters)
    generation: int = 0
    timeline: list[tuple[int, str, str]] = field(default_factory=list)
    is_finished: bool = False
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _asks: set[int] = field(default_factory=set)
    _next_request_id: int = 1
    _since_checkpoint: int = 0
    _partial_since_ms: int | None = None
    _is_gang_running: bool = False
    _has_gang_run: bool = False
    _effects: list[JobEffect] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.plan.gang == self.ledger.parts, f"gang {self.plan.gang}, but {self.ledger.parts} parts a step"
        # After a restart the work that was done counts as a gang that ran before.
        self._has_gang_run = self.ledger.done > 0

    def step(self, event: JobEvent) -> list[JobEffect]:
        """Take one event; the effects are to be performed in order. After FinishJob nothing changes any more."""
        self._effects = []
        if self.is_finished:
            return []
        self._HANDLERS[type(event)](self, event)
        if not self.is_finished:
            self._advance(event.at_ms)
        return self._effects

    # What happened.

    def _on_started(self, event: JobStarted) -> None:
        self._note(event.at_ms, "started", f"{self.ledger.done} of {self.ledger.units} done")

    def _on_allocated(self, event: ContainerAllocated) -> None:
        if event.request_id not in self._asks:
            # The ask was withdrawn while its container was on the way.
            self._do(ReleaseContainer(container_id=event.container_id))
            return
        self._asks.remove(event.request_id)
        taken = {task.slot for task in self._tasks.values()}
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        self._tasks[event.container_id] = _Task(
            container_id=event.container_id, node=event.node, slot=slot, since_ms=event.at_ms
        )
        self.counters.containers += 1
        self._note(event.at_ms, "allocated", event.container_id)
        self._do(StartTask(container_id=event.container_id, slot=slot))

    def _on_start_failed(self, event: ContainerStartFailed) -> None:
        task = self._tasks.get(event.container_id)
        if task is not None and task.is_held:
            self._blame(event.at_ms, f"{event.container_id} did not start: {event.diagnostics}")
            self._release(task)

    def _on_noticed(self, event: PreemptionNoticed) -> None:
        task = self._tasks.get(event.container_id)
        if task is not None and task.is_held and not task.is_noticed:
            task.is_noticed = True
            self._note(event.at_ms, "noticed", event.container_id)

    def _on_completed(self, event: ContainerCompleted) -> None:
        task = self._tasks.get(event.container_id)
        if task is None or task.is_over:
            return
        task.is_over = True
        # A node that was lost to the ResourceManager may run its containers on: the task may then still finish what
        # it has in hand, for a bounded time.
        task.over_deadline_ms = event.at_ms + 2 * self.plan.step_ms + 1_000
        self._note(event.at_ms, f"completed {event.exit_status}", event.container_id)
        if task.is_noticed or event.exit_status == EXIT_PREEMPTED:
            self.counters.preempted += 1
        was_surplus = task.is_released and not task.is_noticed
        if self.plan.gang == 1 and self.ledger.left > 0 and not was_surplus:
            self.counters.restarts += 1
        is_expected = task.is_noticed or task.is_released or event.exit_status in EXITS_WITHOUT_BLAME
        if not is_expected:
            self._blame(event.at_ms, f"{event.container_id} exited with {event.exit_status}: {event.diagnostics}")
        if task.is_connected:
            self._do(StopTask(container_id=task.container_id))
        else:
            self._do(ReadLog(container_id=task.container_id))

    def _on_connected(self, event: TaskConnected) -> None:
        task = self._tasks.get(event.container_id)
        if task is None or task.is_over or task.was_connected:
            self._do(Disconnect(container_id=event.container_id))
            return
        task.is_connected = task.was_connected = True
        self._note(event.at_ms, "connected", event.container_id)

    def _on_disconnected(self, event: TaskDisconnected) -> None:
        task = self._tasks.get(event.container_id)
        if task is None or not task.is_connected:
            return
        task.is_connected = False
        task.since_ms = event.at_ms
        if task.is_over:
            self._do(ReadLog(container_id=task.container_id))

    def _on_reported(self, event: UnitReported) -> None:
        task = self._tasks.get(event.container_id)
        if task is None or task.unit != event.unit:
            # Only a task that broke the protocol gets here, and its log has the last word.
            self._do(Disconnect(container_id=event.container_id))
            return
        task.unit = None
        self.ledger.commit(event.unit, event.value, event.container_id)
        self._since_checkpoint += 1
        self._do(ReportProgress(fraction=self.ledger.done / self.ledger.units))

    def _on_log_read(self, event: LogRead) -> None:
        task = self._tasks.pop(event.container_id, None)
        for unit, value in event.done:
            if self.ledger.adopt(unit, value):
                self.counters.units_recovered += 1
                self._since_checkpoint += 1
        if task is not None and task.unit is not None and self.ledger.give_back(task.unit, task.container_id):
            self.counters.units_redone += 1
            self._note(event.at_ms, "given back", f"step {task.unit.step} part {task.unit.part}")

    def _on_ticked(self, event: Ticked) -> None:
        for task in self._by_slot():
            if task.is_over:
                if task.is_connected and event.at_ms >= task.over_deadline_ms:
                    self._do(Disconnect(container_id=task.container_id))
            elif task.is_held and not task.is_connected:
                limit_ms = LIMBO_MS_MAX if task.was_connected else CONNECT_MS_MAX
                if event.at_ms - task.since_ms >= limit_ms:
                    self._blame(event.at_ms, f"{task.container_id}: no connection for {limit_ms} ms")
                    self._release(task)

    # What follows from it.

    def _advance(self, at_ms: int) -> None:
        self._give_up_noticed()
        self._watch_gang(at_ms)
        if self.ledger.left == 0:
            self._finish(at_ms, "")
            return
        if self.counters.failures > self.plan.failures_max:
            self._finish(at_ms, f"more than {self.plan.failures_max} failures")
            return
        self._assign()
        if self._since_checkpoint >= self.plan.checkpoint_every:
            self._checkpoint()
        self._match_demand()

    def _give_up_noticed(self) -> None:
        leaving = [task for task in self._by_slot() if task.is_held and task.is_noticed and task.unit is None]
        if leaving:
            self._checkpoint()
        for task in leaving:
            self._release(task)

    def _watch_gang(self, at_ms: int) -> None:
        if self.plan.gang == 1:
            return
        held = [task for task in self._by_slot() if task.is_held]
        is_whole = sum(1 for task in held if task.is_active) >= self.plan.gang
        if is_whole and not self._is_gang_running:
            self._note(at_ms, "gang whole", "")
            if self._has_gang_run:
                self.counters.restarts += 1
            self._has_gang_run = True
        self._is_gang_running = is_whole
        if is_whole or not held:
            self._partial_since_ms = None
        elif self._partial_since_ms is None:
            self._partial_since_ms = at_ms
        elif at_ms - self._partial_since_ms >= self.plan.gang_wait_ms:
            idle = [task for task in held if task.unit is None]
            if idle:
                self._note(at_ms, "gang given up", f"{len(idle)} of {self.plan.gang} held")
                self._checkpoint()
            for task in idle:
                self._release(task)
            self._partial_since_ms = None

    def _assign(self) -> None:
        if self.plan.gang > 1 and not self._is_gang_running:
            return
        for task in self._by_slot():
            if task.is_active and task.unit is None:
                task.unit = self.ledger.claim_next(task.container_id)
                if task.unit is None:
                    return
                self._do(AssignUnit(container_id=task.container_id, unit=task.unit, checkpoint=self.generation))

    def _match_demand(self) -> None:
        """Ask for what is missing; near the end, give back what has nothing left to do."""
        wanted = self.plan.gang if self.plan.gang > 1 else min(self.plan.containers_max, self.ledger.left)
        held = [task for task in self._by_slot() if task.is_held]
        while len(held) + len(self._asks) > wanted and self._asks:
            request_id = max(self._asks)
            self._asks.remove(request_id)
            self._do(CancelAsk(request_id=request_id))
        idle = [task for task in held if task.unit is None]
        while len(held) > wanted and idle:
            task = idle.pop()
            held.remove(task)
            self._release(task)
        for _ in range(wanted - len(held) - len(self._asks)):
            self._asks.add(self._next_request_id)
            self._do(AskContainer(request_id=self._next_request_id))
            self._next_request_id += 1

    def _finish(self, at_ms: int, reason: str) -> None:
        self.is_finished = True
        self._note(at_ms, "finished", reason)
        self._checkpoint()
        for request_id in sorted(self._asks):
            self._do(CancelAsk(request_id=request_id))
        for task in self._by_slot():
            if task.is_connected:
                self._do(StopTask(container_id=task.container_id))
        self._do(FinishJob(reason=reason))

    # Small things.

    def _by_slot(self) -> list[_Task]:
        return sorted(self._tasks.values(), key=lambda task: (task.slot, task.container_id))

    def _do(self, effect: JobEffect) -> None:
        self._effects.append(effect)

    def _release(self, task: _Task) -> None:
        task.is_released = True
        self._do(ReleaseContainer(container_id=task.container_id))

    def _blame(self, at_ms: int, what: str) -> None:
        self.counters.failures += 1
        self._note(at_ms, "failure", what)

    def _note(self, at_ms: int, what: str, detail: str) -> None:
        if len(self.timeline) < TIMELINE_MAX:
            self.timeline.append((at_ms, what, detail))

    def _checkpoint(self) -> None:
        self.generation += 1
        self._since_checkpoint = 0
        counters = {name: getattr(self.counters, name) for name in Counters.__slots__}
        document = self.ledger.checkpoint() | {"generation": self.generation, "counters": counters}
        self._do(WriteCheckpoint(document=document))

    _HANDLERS: ClassVar[dict[type, Callable[..., None]]] = {
        JobStarted: _on_started,
        ContainerAllocated: _on_allocated,
        ContainerStartFailed: _on_start_failed,
        PreemptionNoticed: _on_noticed,
        ContainerCompleted: _on_completed,
        TaskConnected: _on_connected,
        TaskDisconnected: _on_disconnected,
        UnitReported: _on_reported,
        LogRead: _on_log_read,
        Ticked: _on_ticked,
    }
