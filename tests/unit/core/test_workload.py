"""Declared work binds: counted down by metered service, doubled when used up, final when the job is over."""

from dataclasses import fields, replace

import pytest

from themis_arbiter.core.events import JobReport
from themis_arbiter.core.topology import Topology
from themis_arbiter.core.workload import App, Job, app_shape, guessed_work

REPORT = JobReport(app_id="a", job_id="j", arrival_ms=1_000, gang=2, work=1_000.0)


def job(attained: float, **changes: object) -> Job:
    return Job(report=replace(REPORT, **changes), attained=attained, done=attained, max_gpus=4)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attained", "work", "remaining"),
    [(0, 1_000, 1_000), (400, 1_000, 600), (1_000, 1_000, 20), (1_100, 1_000, 20), (1_101, 2_000, 899), (2_000, 4_000, 2_000)],
)
def test_what_is_declared_is_counted_down_and_doubled_when_used_up(attained: float, work: float, remaining: float) -> None:
    one = job(attained)
    assert one.work(guess=7.0) == work
    assert one.remaining(guess=7.0) == pytest.approx(remaining)


def test_an_undeclared_job_starts_with_a_guess_and_ends_with_what_it_took() -> None:
    assert guessed_work(job(0, work=None), lease_ms=100) == 400.0
    assert job(0, work=None).work(guess=400.0) == 400.0
    assert job(500, work=None).work(guess=400.0) == 800.0
    assert job(500, work=None, is_finished=True).work(guess=400.0) == 500.0


def test_a_job_that_is_over_took_what_it_declared_or_what_it_overran() -> None:
    assert job(700, is_finished=True).work(guess=1.0) == 1_000.0
    assert job(1_050, is_finished=True).work(guess=1.0) == 1_000.0
    assert job(1_500, is_finished=True).work(guess=1.0) == 1_500.0


def test_service_is_metered_by_the_time_it_lasts() -> None:
    running = job(100).on(3, 3.0, 50)
    assert running.at(150).attained == running.at(150).done == 400
    assert running.at(150).at(150) == running.at(150)
    assert running.on(0, 0.0, 150).at(900).attained == 400, "nothing runs any more"
    assert (running.running_since_ms, running.on(0, 0.0, 150).running_since_ms) == (50, None)


def test_metering_leaves_everything_else_as_it_is() -> None:
    other = {f.name: k + 1 for k, f in enumerate(fields(Job)) if f.name not in {"report", "attained", "done", "metered_ms"}}
    before = Job(report=REPORT, **other)  # type: ignore[arg-type]
    after = before.at(7)
    assert {name: getattr(after, name) for name in other} == other
    assert after == replace(before, attained=after.attained, done=after.done, metered_ms=7)


def test_gpus_that_lie_apart_do_less_work_in_the_same_service() -> None:
    apart = job(0).on(4, 2.0, 0).at(100)
    assert (apart.attained, apart.done) == (400, 200)
    assert apart.remaining(guess=1.0) == 800


def test_what_a_start_costs_is_taken_off_both() -> None:
    assert (job(100).less([30, 10]).attained, job(100).less([30, 10]).done) == (60, 60)


def test_an_apps_longest_job_limits_its_parallelism() -> None:
    app = App(app_id="a", arrival_ms=1_000, user="", queue="", weight=1.0, job_ids=("j", "k"))
    late = Job(report=replace(REPORT, job_id="k", arrival_ms=1_500, work=400.0), max_gpus=2)
    work, parallelism = app_shape(app, (job(0), late), (1_000.0, 400.0), Topology())
    assert work == 1_400.0
    assert parallelism == pytest.approx(1_400.0 / 700.0)  # the late one: 500 ms later, 200 ms long
