"""An app without a checkpoint, ten leases long, finishes under contention; the others pay something, and all finish too."""

from statistics import mean

import pytest

from tests.support.replays import cluster, job, simulated
from tests.support.uninterruptible import LEASES_LONG, LONG, Outcome, run, table
from tests.support.world import SHORT
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.types import OnLeaseEnd

ALONE_MS = LEASES_LONG * SHORT.lease_ms
# Without it the others' mean is 1.05; what its GPUs and its right to keep them may add to that.
MEAN_ADDED_MAX = 0.35


@pytest.fixture(scope="module")
def without() -> Outcome:
    return run(None, 4)


@pytest.mark.parametrize("gang", [2, 4])
def test_never_runs_through_at_its_full_speed_on_the_gpus_it_started_on(gang: int, without: Outcome) -> None:
    outcome = run(OnLeaseEnd.NEVER, gang)
    assert outcome.containers == gang, "it was interrupted"
    assert ALONE_MS <= outcome.took_ms <= ALONE_MS + SHORT.lease_ms + 2_000
    assert outcome.leases_moved > 5, "nobody had to give way, so this shows nothing"
    assert mean(outcome.rho.values()) < mean(without.rho.values()) + MEAN_ADDED_MAX


@pytest.mark.parametrize("gang", [2, 4])
def test_restart_comes_through_too_and_checkpointing_needs_no_more_than_it(gang: int, without: Outcome) -> None:
    restart, checkpoint = run(OnLeaseEnd.RESTART, gang), run(OnLeaseEnd.CHECKPOINT, gang)
    # Each move costs it all it has done: its bids say so, and so it is moved seldom enough to get through.
    assert ALONE_MS <= restart.took_ms <= 4 * ALONE_MS
    assert restart.containers <= checkpoint.containers
    assert checkpoint.took_ms <= 2 * ALONE_MS
    assert restart.leases_moved > 5
    assert mean(restart.rho.values()) < mean(without.rho.values()) + MEAN_ADDED_MAX


def test_the_table_has_everybodys_rho_with_it_and_without(without: Outcome) -> None:
    never = run(OnLeaseEnd.NEVER, 4)
    rows = table([without, never])
    assert LONG not in never.rho
    assert [row[1] for row in rows] == ["without it", "never"]
    assert rows[0][4:12] == [f"{rho:.2f}" for _, rho in sorted(without.rho.items())]
    assert rows[0][4:12] != rows[1][4:12], "it cost the others nothing at all"


def test_a_job_that_begins_anew_has_all_its_work_left_though_it_was_slowed_before() -> None:
    """What it had done on GPUs that lie apart was less than their time; just that is lost."""
    fillers = [
        job("a", "a", 0, 1, 3_000, on_lease_end=OnLeaseEnd.NEVER),
        job("b", "b", 1, 1, 10),
        job("c", "c", 2, 1, 3_000, on_lease_end=OnLeaseEnd.NEVER),
    ]
    slowed = job("r", "r", 20, 2, 1_000, model="vgg", on_lease_end=OnLeaseEnd.RESTART)
    short, waiting = job("s", "s", 100, 2, 100), job("w", "w", 110, 3, 9_000)
    done, records = simulated([*fillers, slowed, short, waiting], cluster(2, 2), policy="srsf")
    runs = next(j for j in done.jobs if j.job_id == "r").runs
    assert [(r.start_ms, r.end_ms) for r in runs][:2] == [(20_000, 300_000), (400_000, 600_000)]
    left = {record["at_ms"]: app["remaining_gpu_ms"] for record in records for app in record["apps"] if app["app_id"] == "r"}
    # It begins anew at 400 s across a rack: two GPUs at 1.5 times the time. A restart is counted as 40 s of both, unslowed.
    assert left[840_000] == pytest.approx(2_000_000 - (440_000 * 2 / 1.5 - 80_000), rel=1e-6)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_jobs_that_begin_anew_do_not_undo_each_others_work_for_ever(policy: str) -> None:
    """Three of them, each several leases long, on the GPUs of one: las would turn them over at every lease end."""
    jobs = [job(name, name, k, 2, 1_700, on_lease_end=OnLeaseEnd.RESTART) for k, name in enumerate("abc")]
    done, _ = simulated(jobs, cluster(1, 2), policy=policy)
    assert max(j.restarts for j in done.jobs) <= 5
    assert max(j.finish_ms or 0.0 for j in done.jobs) <= 4 * 3 * 1_700_000
