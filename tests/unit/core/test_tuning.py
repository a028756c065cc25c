"""The paper's worked example (4.3.3), with its exact values, and the short formulas.

The paper prints 1, 0.5 and 0.34 for 4, 8 and 16 GPUs and 3,200 for the second phase of the survivors 120 and 100: slips
of its own arithmetic, as its formulas show.
"""

from fractions import Fraction

import pytest

from themis_arbiter.core.tuning import (
    Phase,
    Trial,
    curve_t_shared_ms,
    halving_t_shared_ms,
    one_job_t_shared_ms,
    paper_t_independent_ms,
    stage_ms,
)

SECOND = 1_000
PHASES = (Phase(jobs=4, iterations=8), Phase(jobs=2, iterations=16), Phase(jobs=1, iterations=36))


def trials(*seconds: int) -> tuple[Trial, ...]:
    return tuple(Trial(serial_iteration_ms=s * SECOND, max_parallelism=8) for s in seconds)


def t_independent_ms() -> float:
    return paper_t_independent_ms(10_000 * SECOND, cluster_gpus=16, app_max_parallelism=4 * 8, n_avg=4)


def test_time_alone_on_a_quarter_of_the_cluster() -> None:
    assert t_independent_ms() == 2_500 * SECOND


@pytest.mark.parametrize(
    ("gpu_count", "rho"),
    [(1, Fraction(4)), (2, Fraction(2)), (4, Fraction(266, 250)), (8, Fraction(133, 250)), (16, Fraction(89, 250))],
)
def test_rho_of_the_worked_example(gpu_count: int, rho: Fraction) -> None:
    t_shared = halving_t_shared_ms(0, trials(80, 100, 100, 120), PHASES, gpu_count)
    assert Fraction(t_shared) / Fraction(t_independent_ms()) == rho


@pytest.mark.parametrize(
    ("survivors", "phase_two_s", "phase_three_s"),
    [((100, 100), 1_600, 1_800), ((120, 100), 1_920, 2_160)],
)
def test_the_rest_is_estimated_anew_when_the_survivors_are_known(
    survivors: tuple[int, int], phase_two_s: int, phase_three_s: int
) -> None:
    known = trials(*survivors)
    assert stage_ms([(trial, 16) for trial in known], 2) == phase_two_s * SECOND
    t_shared = halving_t_shared_ms(1_600 * SECOND, known, PHASES[1:], 2)
    assert t_shared == (1_600 + phase_two_s + phase_three_s) * SECOND


def test_one_job_takes_what_its_iterations_take_stretched_by_its_placement() -> None:
    trial = Trial(serial_iteration_ms=8 * SECOND, max_parallelism=4, slowdown=1.25)
    assert one_job_t_shared_ms(500, trial, iterations_left=10, gpu_count=2) == 500 + 50 * SECOND
    assert one_job_t_shared_ms(500, trial, iterations_left=10, gpu_count=16) == 500 + 25 * SECOND


def test_curve_stopping_ends_with_the_job_that_runs_longest() -> None:
    short, long = trials(10, 40)
    assert curve_t_shared_ms(7, [(short, 5), (long, 3)], gpu_count=2) == 7 + 120 * SECOND
    assert curve_t_shared_ms(7, [(short, 5), (long, 3)], gpu_count=1) == 7 + 170 * SECOND
    assert curve_t_shared_ms(7, [], gpu_count=1) == 7


def test_a_gpu_left_over_goes_to_the_longest_job() -> None:
    short, long = trials(10, 40)
    assert stage_ms([(short, 1), (long, 1)], 3) == 20 * SECOND
