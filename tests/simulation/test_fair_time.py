"""The arbiter learns of an app job by job; in the end it has the fair time of a judge who knows the whole trace."""

import io
from collections.abc import Iterable

import pytest

from tests.support.replays import Records, cluster, job
from themis_arbiter.core.effects import AppEnded, Effect
from themis_arbiter.core.events import Event
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.sim.figures import app_figures
from themis_arbiter.sim.simulate import Inputs, replay
from themis_arbiter.sim.trace import Trace

HOUR = 3600.0


class FairTimes(Records):
    """What the arbiter took for fair when apps ended, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.fair: dict[str, float] = {}

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        self.fair |= {e.app_id: e.t_independent_ms / 1000.0 for e in effects if isinstance(e, AppEnded)}


@pytest.mark.parametrize("apart_s", [1.0, 30.0, 120.0])
def test_a_search_that_submits_its_jobs_over_minutes_is_as_wide_as_they_are(apart_s: float) -> None:
    search = [job("search", f"j{k}", k * apart_s, 1, 4 * HOUR) for k in range(8)]
    others = [job(f"o{k}", "j", 0.0, 4, 6 * HOUR) for k in range(2)]
    trace = Trace(tuple(sorted([*search, *others], key=lambda j: (j.arrival_s, j.key))))
    told = FairTimes()
    inputs = Inputs(trace=trace, topology=cluster(2, 8), slowdowns=SlowdownModel(), settings=Settings(policy="guard"))
    done = replay(inputs, io.StringIO(), open_journal=lambda _: told)
    judged = {f.app_id: f.t_independent_s for f in app_figures(done.jobs, done.weights, 16, 600.0)}
    # Only until it knew of the later jobs did the arbiter take the search for narrower than it is.
    assert told.fair == pytest.approx(judged, rel=0.03)
    assert told.fair["search"] < 1.2 * (4 * HOUR + 7 * apart_s), "half the cluster is its own: 8 GPUs"
