"""Small replays for tests, and what must hold of any: derived again from the runs alone, knowing nothing of the engine."""

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from themis_arbiter.core.codec import dumps
from themis_arbiter.core.effects import Effect, RoundClosed
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import NO_SLOWDOWN, SlowdownModel
from themis_arbiter.core.topology import Machine, Topology
from themis_arbiter.core.types import GpuId, OnLeaseEnd
from themis_arbiter.sim.generate import WorkloadSpec, generate
from themis_arbiter.sim.sim_jobs import SimulatedJob
from themis_arbiter.sim.simulate import Inputs, Replayed, replay
from themis_arbiter.sim.trace import Trace, TraceJob

SLOW = SlowdownModel(by_model={"vgg": (1.0, 1.1, 1.5, 2.0)}, default=NO_SLOWDOWN)
WORK_SHARE_MAX = 1e-6  # rounding of work


def cluster(machines: int, gpus: int, racks: int = 1, gpus_per_slot: int = 0) -> Topology:
    return Topology(
        tuple(
            Machine(name=f"r{r}m{k}", rack=f"r{r}", gpus=gpus, gpus_per_slot=gpus_per_slot)
            for r in range(racks)
            for k in range(machines)
        )
    )


def job(app: str, name: str, arrival: float, gang: int, duration: float, **more: Any) -> TraceJob:
    return TraceJob(
        app_id=app,
        job_id=name,
        arrival_s=arrival,
        gang=gang,
        max_gpus=more.pop("max_gpus", gang),
        duration_s=duration,
        **more,
    )


def generated(spec: WorkloadSpec) -> Trace:
    """The trace that the generator makes of it."""
    jobs = [
        TraceJob(
            app_id=row.app_id,
            job_id=row.job_id,
            arrival_s=row.arrival_s,
            gang=row.n_gpus,
            max_gpus=row.max_gpus or row.n_gpus,
            duration_s=row.duration_s,
            model=row.model,
        )
        for row in generate(spec)
    ]
    return Trace(tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key))))


def simulated(
    jobs: Iterable[TraceJob], topology: Topology, *, policy: str = "themis", slowdowns: SlowdownModel = SLOW, **settings: Any
) -> tuple[Replayed, list[dict[str, Any]]]:
    """The replay with every invariant of the core checked after each step, and its decision records, whole."""
    inputs = Inputs(
        trace=Trace(tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key)))),
        topology=topology,
        slowdowns=slowdowns,
        settings=Settings(policy=policy, debounce_ms=0, **settings),
    )
    told = Records()
    done = replay(inputs, io.StringIO(), is_checked=True, open_journal=lambda _: told)
    check(done.jobs, topology, slowdowns, inputs.settings)
    return done, told.records


class Records:
    """A journal that keeps the decision records only."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        """Keep what rounds decided."""
        self.records += [json.loads(dumps(dict(e.record))) for e in effects if isinstance(e, RoundClosed)]

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


def slowest(spec: TraceJob, gpus: Iterable[GpuId], topology: Topology) -> float:
    """The declared speed of the slowest of these GPUs, all of which the job may have."""
    if not spec.gpu_speeds:
        return 1.0
    types = {m.name: m.gpu_type.lower() for m in topology.machines}
    speeds = [dict(spec.gpu_speeds).get(types[gpu.rpartition(":")[0]], 0.0) for gpu in gpus]
    assert min(speeds) > 0.0, f"{spec.key} ran on a type that it must not have: {gpus}"
    return min(speeds)


def check(jobs: Sequence[SimulatedJob], topology: Topology, slowdowns: SlowdownModel, settings: Settings) -> None:
    """The cluster's rules."""
    longest_ms = settings.lease_ms + settings.notice_ms + settings.restart_cost_ms
    stays = defaultdict(list)
    for each in jobs:
        assert each.runs, f"{each.job_id} never ran"
        assert each.runs[0].start_ms >= each.spec.arrival_s * 1000 - 1e-6
        done, owed = 0.0, 0.0
        for before, run in zip((None, *each.runs), each.runs, strict=False):
            assert each.spec.gang <= len(run.gpus) <= each.spec.max_gpus, f"{each.job_id}: a broken gang: {run}"
            assert run.end_ms - run.start_ms <= longest_ms, f"{each.job_id}: longer than a lease: {run}"
            for gpu in run.gpus:
                stays[gpu].append((run.start_ms, run.end_ms, each.job_id))
            if before is not None and (before.gpus != run.gpus or run.start_ms > before.end_ms + 1):
                owed = float(settings.restart_cost_ms)
                assert each.spec.on_lease_end is not OnLeaseEnd.NEVER, f"{each.job_id} was interrupted"
                if each.spec.on_lease_end is OnLeaseEnd.RESTART:
                    done = 0.0
            pays = min(owed, run.end_ms - run.start_ms)
            owed -= pays
            speed = slowdowns.speed(each.spec.model, run.gpus, topology) * slowest(each.spec, run.gpus, topology)
            done += (run.end_ms - run.start_ms - pays) * speed
        assert abs(done - each.work) <= WORK_SHARE_MAX * each.work, f"{each.job_id}: did {done} of {each.work}"
    for gpu, held in stays.items():
        held.sort()
        for (_, end, one), (start, _, other) in pairwise(held):
            assert start >= end - 1e-6, f"{gpu}: {one} and {other} at once"
