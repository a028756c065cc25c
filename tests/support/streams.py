"""A stream of small bids that never ends while a gang of 8 and one of 32 wait: how long until each is served."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.support.replays import cluster, job
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.figures import app_figures
from themis_arbiter.sim.setkeys import make_settings
from themis_arbiter.sim.simulate import Inputs, replay
from themis_arbiter.sim.trace import Trace

LEASE_S: Final = 300.0
GANGS: Final = (8, 32)
GANG_ARRIVES_S: Final = 1800.0
FLOOR_S: Final = 600.0


@dataclass(frozen=True)
class Stream:
    """Jobs of one and two GPUs on 32 or more GPUs, at a load a little below or above what these can take."""

    gpus: int = 32
    load: float = 1.0
    hours: float = 4.0
    small_s: float = 1200.0  # mean time of a small job
    gang_s: float = 300.0

    def trace(self, seed: int) -> Trace:
        """The jobs; as many small ones as fill the cluster come at the start."""
        chance = Random(f"{seed}/stream")
        at, rate = 0.0, self.load * self.gpus / (1.5 * self.small_s)
        arrivals = [0.0] * (self.gpus * 2 // 3)
        while at < self.hours * 3600.0:
            at += chance.expovariate(rate)
            arrivals.append(at)
        jobs = [
            job(f"small{k}", "j", t, chance.choice((1, 2)), max(120.0, chance.expovariate(1.0 / self.small_s)))
            for k, t in enumerate(arrivals)
        ]
        jobs += [job(f"gang{n}", "j", GANG_ARRIVES_S, n, self.gang_s) for n in GANGS]
        return Trace(tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key))))


@dataclass(frozen=True)
class Waited:
    """How long a gang waited, in leases; `paid_after`: until the ideal fluid share alone would have done its work."""

    leases: float
    paid_after: float
    rho: float
    small_max_rho: float  # of the small apps


def waits(stream: Stream, policy: str, seed: int, sets: Mapping[str, Any]) -> dict[int, Waited]:
    """By gang. `sets` by field of Settings, as `--set` would give them."""
    settings = make_settings(policy, lease_s=LEASE_S, restart_cost_s=40.0, rho_floor_s=FLOOR_S, knob=None, sets=sets)
    topology = cluster(stream.gpus // 8, 8)
    inputs = Inputs(trace=stream.trace(seed), topology=topology, slowdowns=SlowdownModel(), settings=settings)
    done = replay(inputs, io.StringIO())
    figures = {f.app_id: f for f in app_figures(done.jobs, done.weights, stream.gpus, FLOOR_S)}
    small = max(f.rho for name, f in figures.items() if name.startswith("small"))
    found = {}
    for n in GANGS:
        one = next(j for j in done.jobs if j.spec.app_id == f"gang{n}")
        own = figures[f"gang{n}"]
        waited = (one.first_start_ms - one.arrival_ms) / 1000.0 / LEASE_S
        found[n] = Waited(waited, own.t_independent_s / LEASE_S, own.rho, small)
    return found
