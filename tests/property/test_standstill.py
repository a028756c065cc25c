"""What is kept while only time passes changes nothing: replays that forget it before every step write the same journal."""

import io
from collections.abc import Iterable
from random import Random

import pytest

from tests.support.replays import SLOW, cluster, job
from themis_arbiter.core import rounds
from themis_arbiter.core.effects import Effect
from themis_arbiter.core.events import Event
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.policies import POLICIES, make_policy
from themis_arbiter.core.policies.base import Repeating
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.standstill import Precedent, precedent_of
from themis_arbiter.core.state import State
from themis_arbiter.core.types import Millis, OnLeaseEnd
from themis_arbiter.engine.journal_format import effects_line, event_line
from themis_arbiter.sim import simulate
from themis_arbiter.sim.trace import Trace, TraceJob

SEEDS = range(3)
OVERRUN = 0.5  # how far declared work may be off: some jobs use up what they declared


class Lines:
    """A journal in memory."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def record(self, event: Event, effects: Iterable[Effect]) -> None:
        self.lines += [event_line(event), effects_line(effects)]

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Forgetful(Arbiter):
    """An arbiter that looks at everything anew in every step."""

    def step(self, event: Event) -> tuple[Effect, ...]:
        self.state.version += 1
        return super().step(event)


def full_cluster(chance: Random) -> tuple[TraceJob, ...]:
    """More than the cluster holds: long jobs, some of which may grow, lie apart, or lose all when they move."""
    elastic, odd = chance.choice([0.0, 0.3]), chance.choice([0.0, 0.0, 0.2])
    jobs = []
    for app in range(chance.randint(5, 9)):
        arrival = chance.choice([0.0, 0.0, chance.uniform(0, 20_000)])
        for number in range(chance.choice([1, 1, 3])):
            gang = chance.choice([1, 2, 3, 4, 6])
            is_odd = chance.random() < odd
            jobs.append(
                job(
                    f"app{app}",
                    f"j{number}",
                    round(arrival, 3),
                    gang,
                    chance.uniform(500, 15_000),
                    max_gpus=gang * (2 if chance.random() < elastic else 1),
                    model=chance.choice(["", "vgg"]),
                    on_lease_end=chance.choice([OnLeaseEnd.RESTART, OnLeaseEnd.NEVER]) if is_odd else OnLeaseEnd.CHECKPOINT,
                )
            )
    return tuple(sorted(jobs, key=lambda j: (j.arrival_s, j.key)))


def journal(policy: str, seed: int) -> list[str]:
    chance = Random(seed)
    inputs = simulate.Inputs(
        trace=Trace(full_cluster(chance)),
        topology=cluster(2, 4, racks=2, gpus_per_slot=2),
        slowdowns=SLOW,
        settings=Settings(policy=policy, debounce_ms=0, min_runtime_ms=chance.choice([0, 0, 900_000])),
        seed=seed,
        estimate_error=chance.choice([0.0, OVERRUN]),
    )
    lines = Lines()
    simulate.replay(inputs, io.StringIO(), open_journal=lambda _: lines)
    return lines.lines


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_is_kept_changes_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0

    def counted(state: State, ends_at: Millis) -> Precedent | None:
        nonlocal found
        before = precedent_of(state, ends_at)
        found += before is not None
        return before

    monkeypatch.setattr(rounds, "precedent_of", counted)
    kept = [journal(policy, seed) for seed in SEEDS]
    assert found > 0 or not isinstance(make_policy(policy), Repeating) or policy == "paper"
    found = 0
    monkeypatch.setattr(simulate, "Arbiter", Forgetful)
    for seed, lines in zip(SEEDS, kept, strict=True):
        assert journal(policy, seed) == lines, seed
    assert found == 0
