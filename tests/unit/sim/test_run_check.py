"""The judge of a live run: every rule on runs made by hand, kept and broken. Times in milliseconds from 0."""

from dataclasses import replace

import pytest

from themis_arbiter.core.lease import Cause
from themis_arbiter.core.settings import Settings
from themis_arbiter.sim.run_check import (
    Bounds,
    Rule,
    Violation,
    check_run,
    ends_decided_in_time,
    first_gpu,
    gangs_whole,
    leases_bind,
    no_idle,
    types_kept,
    winners_start,
)
from themis_arbiter.sim.run_facts import ContainerStay, JobFacts, JournalFacts, LeaseLife

SETTINGS = Settings(lease_ms=20_000, notice_ms=3_000, debounce_ms=500, restart_cost_ms=1_000, gang_wait_ms=5_000)
BOUNDS = Bounds.of(SETTINGS, 200)  # starts within 1,000, kills within 400, idle up to 1,400


def lease(
    name: str,
    job: str,
    gpu: str,
    granted: int | None,
    *,
    drain: int | None = None,
    deadline: int | None = None,
    ended: int | None = None,
    cause: Cause = Cause.LEASE_END,
    entered: int | None = None,
    end: int = 20_000,
    grant: str = "G1",
) -> LeaseLife:
    entered = entered if entered is not None else granted if granted is not None else 0
    return LeaseLife(
        lease_id=name,
        grant_id=grant,
        app_id=f"user/{job}",
        job_id=job,
        gpu=gpu,
        entered_ms=entered,
        ends=((entered, end),),
        current_ms=entered,
        granted_ms=granted,
        draining_ms=drain,
        drain_ms=drain,
        deadline_ms=deadline if deadline is not None else drain,
        withdrawn_ms=ended,
        ended_ms=ended,
        drain_cause=cause if drain is not None else None,
    )


def stay(
    name: str, job: str, node: str, start: int, end: int | None, *, gpus: int = 1, runs: int | None = -1, am: bool = False
) -> ContainerStay:
    running = start + 300 if runs == -1 else runs
    return ContainerStay(
        container_id=name,
        job_id=job,
        node=node,
        gpus=gpus,
        is_am=am,
        allocated_ms=start,
        running_ms=running,
        ended_ms=end,
    )


def job(name: str, *asked: tuple[int, int], gang: int = 1, unit: int = 1, finished: int | None = None) -> JobFacts:
    return JobFacts(
        app_id=f"user/{name}", job_id=name, gang=gang, unit=unit, asked=asked, finished_ms=finished, final_status=""
    )


def facts(
    jobs: list[JobFacts], leases: list[LeaseLife], *, gpus: dict[str, int] | None = None, last: int = 60_000
) -> JournalFacts:
    gpus = gpus if gpus is not None else {"n1": 1}
    return JournalFacts(
        settings=SETTINGS,
        first_ms=0,
        last_ms=last,
        gpus=gpus,
        racks=dict.fromkeys(gpus, "r"),
        jobs=tuple(jobs),
        leases=tuple(leases),
        grid_ends_ms=(20_000, 40_000, 60_000),
        rounds=1,
    )


def spans(found: list[Violation]) -> list[tuple[Rule, int, int]]:
    return [(v.rule, v.start_ms, v.end_ms) for v in found]


# -- GPU types

TWO_TYPES = {"n1": "v100", "n2": "k80"}


def typed(run: JournalFacts, **speeds: float) -> JournalFacts:
    """The run with these speeds declared by all its jobs, on a node of each type."""
    jobs = tuple(replace(j, gpu_speeds=tuple(sorted(speeds.items()))) for j in run.jobs)
    return replace(run, jobs=jobs, gpu_types=TWO_TYPES)


def test_a_lease_on_a_type_that_its_job_must_not_have_is_found_unless_it_was_adopted() -> None:
    won = facts([job("a", (0, 1))], [lease("L1", "a", "n2:0", 1_000, ended=9_000)], gpus={"n1": 1, "n2": 1})
    assert spans(list(types_kept(typed(won, v100=1.0)))) == [(Rule.GPU_TYPE, 1_000, 9_000)]
    assert spans(list(types_kept(typed(won, v100=1.0, k80=0.0)))) == [(Rule.GPU_TYPE, 1_000, 9_000)]
    assert not list(types_kept(typed(won, k80=0.1)))
    assert not list(types_kept(won))
    adopted = replace(won, leases=tuple(replace(x, is_adopted=True) for x in won.leases))
    assert not list(types_kept(typed(adopted, v100=1.0)))


def test_a_gpu_of_a_type_that_nobody_who_asks_can_use_may_idle() -> None:
    run = facts([job("a", (0, 2))], [lease("L1", "a", "n1:0", 0)], gpus={"n1": 1, "n2": 1})
    stays = [stay("c1", "a", "n1", 0, None)]
    assert spans(list(no_idle(run, stays, BOUNDS))) == [(Rule.NO_IDLE, 0, 60_000)]
    assert spans(list(no_idle(typed(run, v100=1.0, k80=1.0), stays, BOUNDS))) == [(Rule.NO_IDLE, 0, 60_000)]
    assert not list(no_idle(typed(run, v100=1.0), stays, BOUNDS))
    assert not list(no_idle(typed(run, v100=1.0, k80=0.5), stays, BOUNDS))  # it would slow the other down


# -- (a) leases bind what runs


def test_containers_under_leases_are_lawful_also_when_both_end_at_the_same_instant() -> None:
    run = facts([job("a", (0, 1), (1_000, 0))], [lease("L1", "a", "n1:0", 1_000, ended=9_000)])
    assert not list(leases_bind(run, [stay("c1", "a", "n1", 1_000, 9_000)], BOUNDS))


def test_a_container_before_its_grant_is_found_with_its_time() -> None:
    run = facts([job("a", (0, 1))], [lease("L1", "a", "n1:0", 1_000, ended=9_000)])
    found = list(leases_bind(run, [stay("c1", "a", "n1", 999, 9_000)], BOUNDS))
    assert spans(found) == [(Rule.LEASE_BINDS, 999, 1_000)]


def test_a_container_after_the_withdrawal_is_found() -> None:
    run = facts([job("a", (0, 1))], [lease("L1", "a", "n1:0", 1_000, ended=9_000)])
    found = list(leases_bind(run, [stay("c1", "a", "n1", 1_000, 9_001)], BOUNDS))
    assert spans(found) == [(Rule.LEASE_BINDS, 9_000, 9_001)]


@pytest.mark.parametrize(("gone", "is_lawful"), [(9_400, True), (9_401, False)])
def test_a_container_that_was_given_back_is_soon_gone_from_its_node(gone: int, is_lawful: bool) -> None:
    run = facts([job("a", (0, 1))], [lease("L1", "a", "n1:0", 1_000, ended=9_000)])
    given_back = replace(stay("c1", "a", "n1", 1_000, gone), released_ms=8_900)
    found = list(leases_bind(run, [given_back], BOUNDS))
    assert spans(found) == ([] if is_lawful else [(Rule.END_KEPT, 9_400, gone)])


def test_a_lease_on_one_node_covers_nothing_on_another_and_nobody_else() -> None:
    run = facts([job("a", (0, 1)), job("b", (0, 1))], [lease("L1", "a", "n1:0", 0, ended=9_000)], gpus={"n1": 1, "n2": 1})
    stays = [stay("c1", "a", "n2", 100, 200), stay("c2", "b", "n1", 300, 400)]
    assert spans(list(leases_bind(run, stays, BOUNDS))) == [(Rule.LEASE_BINDS, 100, 200), (Rule.LEASE_BINDS, 300, 400)]


def test_two_containers_under_one_lease_are_found_only_while_they_overlap() -> None:
    run = facts([job("a", (0, 2))], [lease("L1", "a", "n1:0", 0)])
    stays = [stay("c1", "a", "n1", 0, 500), stay("c2", "a", "n1", 400, None)]
    assert spans(list(leases_bind(run, stays, BOUNDS))) == [(Rule.LEASE_BINDS, 400, 500)]


def test_application_masters_and_containers_without_gpus_need_no_lease() -> None:
    run = facts([], [])
    stays = [stay("c1", "a", "n1", 0, None, am=True), stay("c2", "a", "n1", 0, None, gpus=0)]
    assert check_run(run, stays, BOUNDS) == []


# -- (d) a loser is gone at its end


@pytest.mark.parametrize(("gone", "is_lawful"), [(20_000, True), (20_400, True), (20_401, False)])
def test_a_loser_is_gone_when_its_lease_ends_and_a_kill_has_been_done(gone: int, is_lawful: bool) -> None:
    ends = lease("L1", "a", "n1:0", 0, drain=17_000, deadline=20_000, ended=21_000)
    found = list(leases_bind(facts([job("a", (0, 1))], [ends]), [stay("c1", "a", "n1", 0, gone)], BOUNDS))
    assert spans(found) == ([] if is_lawful else [(Rule.END_KEPT, 20_400, gone)])


def test_an_end_that_nobody_decided_on_and_one_decided_too_late_are_found() -> None:
    forgotten = lease("L1", "a", "n1:0", 0, end=20_000)
    late = replace(lease("L2", "a", "n1:1", 0), ends=((0, 20_000), (20_005, 40_000)), draining_ms=37_000)
    beyond = lease("L3", "a", "n1:2", 0, drain=17_000, deadline=20_001, ended=20_001)
    found = list(ends_decided_in_time(facts([], [forgotten, late, beyond], last=30_000)))
    assert spans(found) == [
        (Rule.END_KEPT, 20_000, 30_000),
        (Rule.END_KEPT, 20_000, 20_005),
        (Rule.END_KEPT, 20_000, 20_001),
    ]


def test_renewed_and_drained_leases_keep_their_ends() -> None:
    renewed = replace(lease("L1", "a", "n1:0", 0), ends=((0, 20_000), (17_000, 40_000)), draining_ms=37_000)
    drained = lease("L2", "a", "n1:1", 0, drain=17_000, deadline=20_000, ended=20_100)
    assert not list(ends_decided_in_time(facts([], [renewed, drained])))


# -- (d) a winner starts


def test_a_winner_that_runs_in_time_and_one_that_asks_no_more_are_lawful() -> None:
    run = facts([job("a", (0, 2), (150, 0))], [lease("L1", "a", "n1:0", 100), lease("L2", "a", "n1:1", 100)])
    assert not list(winners_start(run, [stay("c1", "a", "n1", 150, None, runs=1_100)], BOUNDS))


def test_a_grant_that_is_not_used_while_its_job_goes_on_asking_is_found() -> None:
    run = facts([job("a", (0, 1))], [lease("L1", "a", "n1:0", 100)])
    assert spans(list(winners_start(run, [], BOUNDS))) == [(Rule.WINNER_STARTS, 100, 1_100)]


def test_a_container_that_does_not_run_in_time_is_found_unless_it_ended_before() -> None:
    run = facts([job("a", (0, 1), (150, 0))], [lease("L1", "a", "n1:0", 100)])
    late, never, gone = (
        stay("c1", "a", "n1", 150, None, runs=1_151),
        stay("c2", "a", "n1", 150, None, runs=None),
        stay("c3", "a", "n1", 150, 1_000, runs=None),
    )
    assert spans(list(winners_start(run, [late, never, gone], BOUNDS))) == [
        (Rule.WINNER_STARTS, 150, 1_151),
        (Rule.WINNER_STARTS, 150, 60_000),
    ]


def test_a_slower_master_has_more_time() -> None:
    run = facts([job("a", (0, 1), (150, 0))], [lease("L1", "a", "n1:0", 100)])
    slow = replace(BOUNDS, heartbeats_ms={"a": 1_000})
    assert not list(winners_start(run, [stay("c1", "a", "n1", 150, None, runs=5_150)], slow))


# -- (b) gangs


def gang_leases(granted: int, *, drain: int, ended: int) -> list[LeaseLife]:
    return [lease(f"L{k}", "g", f"n1:{k}", granted, drain=drain, ended=ended) for k in range(2)]


def test_a_whole_gang_is_lawful_until_its_end() -> None:
    run = facts([job("g", (0, 2), (1_100, 0), finished=9_000)], gang_leases(1_000, drain=9_000, ended=9_100))
    stays = [stay(f"c{k}", "g", "n1", 1_100, 9_000) for k in range(2)]
    run = replace(run, jobs=(replace(run.jobs[0], gang=2),))
    assert not list(gangs_whole(run, stays, BOUNDS))


def test_a_part_of_a_gang_is_found_as_decided_and_as_granted() -> None:
    run = facts([job("g", (0, 2), gang=2)], [lease("L1", "g", "n1:0", 1_000, drain=5_000, ended=5_100)], gpus={"n1": 2})
    found = list(gangs_whole(run, [], BOUNDS))
    assert spans(found) == [(Rule.GANG_WHOLE, 1_000, 5_000), (Rule.GANG_WHOLE, 1_000, 1_000)]


def test_a_gang_that_wants_no_more_than_a_part_may_hold_it() -> None:
    run = facts([job("g", (0, 1), gang=2)], [lease("L1", "g", "n1:0", 1_000, drain=5_000, ended=5_100)])
    assert not list(gangs_whole(run, [], BOUNDS))


@pytest.mark.parametrize(("back", "is_lawful"), [(6_500, True), (6_501, False)])
def test_a_gang_that_does_not_become_whole_gives_back_in_time(back: int, is_lawful: bool) -> None:
    leases = gang_leases(1_000, drain=back, ended=back + 100)
    run = facts([job("g", (0, 2), (1_100, 1), gang=2)], leases, gpus={"n1": 2})
    found = list(gangs_whole(run, [stay("c0", "g", "n1", 1_100, back)], BOUNDS))
    assert spans(found) == ([] if is_lawful else [(Rule.GANG_STARTS, 1_000, back)])


# -- (c) a late app


@pytest.mark.parametrize(("first", "is_lawful"), [(22_000, True), (22_001, False)])
def test_a_late_app_has_its_first_gpu_within_a_lease_of_its_first_ask(first: int, is_lawful: bool) -> None:
    run = facts([job("late", (1_000, 0), (2_000, 3))], [])
    found = list(first_gpu(run, [stay("c1", "late", "n1", first, None)], BOUNDS, ["late"]))
    assert spans(found) == ([] if is_lawful else [(Rule.FIRST_GPU, 2_000, 22_001)])


def test_a_late_app_that_never_asks_is_found() -> None:
    assert spans(list(first_gpu(facts([job("late", (1_000, 0))], []), [], BOUNDS, ["late"]))) == [(Rule.FIRST_GPU, 0, 60_000)]


# -- (e) no GPU idles


def test_a_gpu_may_idle_for_as_long_as_a_round_takes() -> None:
    run = facts([job("a", (1_000, 1), (2_500, 0))], [lease("L1", "a", "n1:0", 2_400)])
    assert not list(no_idle(run, [stay("c1", "a", "n1", 2_450, None)], BOUNDS))


def test_a_gpu_that_idles_longer_while_an_app_asks_is_found() -> None:
    run = facts([job("a", (1_000, 1), (2_500, 0))], [lease("L1", "a", "n1:0", 2_401)])
    assert spans(list(no_idle(run, [], BOUNDS))) == [(Rule.NO_IDLE, 1_000, 2_401)]


def test_a_gpu_that_nobody_ever_had_is_looked_at_too() -> None:
    assert spans(list(no_idle(facts([job("a", (1_000, 1))], []), [], BOUNDS))) == [(Rule.NO_IDLE, 1_000, 60_000)]


def test_asks_that_leases_already_cover_are_no_reason() -> None:
    run = facts([job("a", (1_000, 1))], [lease("L1", "a", "n1:0", 1_200)], gpus={"n1": 2})
    assert not list(no_idle(run, [], BOUNDS))


def test_a_finished_job_asks_no_more() -> None:
    assert not list(no_idle(facts([job("a", (1_000, 1), finished=1_500)], []), [], BOUNDS))


def test_a_gang_that_idle_gpus_cannot_make_whole_leaves_them_lawfully_idle() -> None:
    run = facts([job("g", (0, 2), gang=2)], [lease("L1", "b", "n1:0", 0)], gpus={"n1": 2})
    assert not list(no_idle(run, [], BOUNDS))
    free = facts([job("g", (0, 2), gang=2)], [], gpus={"n1": 2})
    assert spans(list(no_idle(free, [], BOUNDS))) == [(Rule.NO_IDLE, 0, 60_000)] * 2


def test_gpus_promised_to_a_gang_that_waits_for_the_rest_are_used() -> None:
    waiting = lease("L1", "g", "n1:0", 10_000, entered=1_000)
    run = facts([job("g", (0, 1), gang=1), job("b", (900, 1))], [waiting])
    assert [v.start_ms for v in no_idle(run, [], BOUNDS)] == [0]
    gang = replace(run, jobs=(job("g", (900, 2), gang=2), run.jobs[1]))
    assert not [v for v in no_idle(gang, [], BOUNDS) if v.start_ms >= 1_000]


@pytest.mark.parametrize(("ended", "expected"), [(20_300, []), (30_000, [(Rule.NO_IDLE, 20_400, 30_000)])])
def test_a_draining_gpu_is_used_until_its_holder_must_be_gone(ended: int, expected: list[tuple[Rule, int, int]]) -> None:
    old = lease("L1", "a", "n1:0", 0, drain=17_000, deadline=20_000, ended=ended)
    new = lease("L2", "b", "n1:0", ended, end=60_000)
    run = facts([job("b", (1_000, 1), (ended, 0))], [old, new])
    assert spans(list(no_idle(run, [], BOUNDS))) == expected


def test_containers_of_two_gpus_cannot_use_one_idle_gpu_on_each_of_two_nodes() -> None:
    scattered = facts([job("a", (0, 2), unit=2)], [], gpus={"n1": 1, "n2": 1})
    assert not list(no_idle(scattered, [], BOUNDS))
    together = facts([job("a", (0, 2), unit=2)], [], gpus={"n1": 2})
    assert len(list(no_idle(together, [], BOUNDS))) == 2


def test_a_gang_that_was_handed_back_is_passed_over_for_one_lease() -> None:
    broken = lease("L1", "g", "n1:0", 0, drain=5_000, ended=5_000, cause=Cause.GANG_BROKEN)
    run = facts([job("g", (0, 1))], [broken])
    assert spans(list(no_idle(run, [stay("c1", "g", "n1", 0, 5_000)], BOUNDS))) == [(Rule.NO_IDLE, 25_000, 60_000)]


def test_violations_come_in_order_of_time() -> None:
    run = facts([job("a", (1_000, 1))], [])
    found = check_run(run, [stay("c1", "a", "n1", 500, 600)], BOUNDS, ["a"])
    assert [v.start_ms for v in found] == sorted(v.start_ms for v in found)
    assert {v.rule for v in found} >= {Rule.LEASE_BINDS, Rule.NO_IDLE}
