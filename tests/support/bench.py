"""An arbiter on a bench: events in by hand, effects out."""

from dataclasses import replace

from tests.support.world import SHORT
from themis_arbiter.core.effects import Effect, PersistLeases
from themis_arbiter.core.events import (
    ContainerReport,
    EpochAcquired,
    Event,
    JobReport,
    LeasesPersisted,
    NodeReport,
    RmAttached,
    RmReported,
    Timer,
    Woke,
)
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings

NODES = (
    NodeReport(node="n0", rack="r0", gpus=4, memory_free_mb=65_536, vcores_free=64),
    NodeReport(node="n1", rack="r0", gpus=4, memory_free_mb=65_536, vcores_free=64),
)


def job(name: str, asked: int, *, gang: int = 1, work: float | None = 1e6, at: int = 0, finished: bool = False) -> JobReport:
    return JobReport(
        app_id=name,
        job_id=name,
        arrival_ms=at,
        gang=gang,
        gpus_asked=asked,
        work=work,
        is_finished=finished,
        finish_ms=at + 1 if finished else 0,
        final_status="SUCCEEDED" if finished else "",
    )


def container(number: int, name: str, node: str, *, ended: bool = False) -> ContainerReport:
    return ContainerReport(container_id=f"c{number}", job_id=name, node=node, gpus=1, is_running=True, is_ended=ended)


class Bench:
    """An arbiter on a bench: events in by hand, effects out; the store answers at once unless it is held."""

    def __init__(self, settings: Settings = SHORT) -> None:
        self.arbiter = Arbiter(settings, is_checked=True)
        self.is_store_held = False
        self.now = 0

    def up(self, *jobs: JobReport) -> "Bench":
        """Leading, attached, with two nodes of four GPUs."""
        self.at(0, EpochAcquired(at_ms=0, epoch=1))
        self.at(0, RmAttached(at_ms=0, start_id="s1"))
        self.at(0, RmReported(at_ms=0, start_id="s1", is_full=True, nodes=NODES, jobs=jobs))
        return self

    def at(self, now: int, event: Event) -> list[Effect]:
        """One event; with it the store's answers, where it is not held."""
        self.now = now
        effects: list[Effect] = []
        todo = [event]
        while todo:
            for effect in self.arbiter.step(replace(todo.pop(0), at_ms=now)):
                effects.append(effect)
                if isinstance(effect, PersistLeases) and not self.is_store_held:
                    todo.append(LeasesPersisted(at_ms=now, batch_no=effect.batch.batch_no))
        return effects

    def wake(self, now: int, timer: Timer) -> list[Effect]:
        """A timer rings."""
        return self.at(now, Woke(at_ms=now, timer=timer))

    def report(self, now: int, *jobs: JobReport, containers: tuple[ContainerReport, ...] = (), seq: int = 0) -> list[Effect]:
        """The ResourceManager reports changes."""
        return self.at(now, RmReported(at_ms=now, start_id="s1", jobs=jobs, containers=containers, update_seq=seq))

    def states(self) -> dict[str, list[str]]:
        """Each job's lease states, sorted."""
        out: dict[str, list[str]] = {}
        for lease in self.arbiter.state.ledger:
            out.setdefault(lease.job_id, []).append(lease.state.value)
        return {k: sorted(v) for k, v in out.items()}


def of_type(effects: list[Effect], kind: type[Effect]) -> list[Effect]:
    return [e for e in effects if isinstance(e, kind)]


def running(bench: Bench, name: str, nodes: str = "n0 n0 n0 n0 n1 n1 n1 n1", *, first: int = 0) -> None:
    """The job's containers, numbered from `first`, run on these nodes, and it asks for no more."""
    found = tuple(container(k, name, node) for k, node in enumerate(nodes.split(), start=first))
    report = replace(bench.arbiter.state.jobs[name].report, gpus_asked=0)
    bench.report(bench.now + 100, report, containers=found, seq=2)
