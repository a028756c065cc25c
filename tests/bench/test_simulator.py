"""A stream of jobs that lasts longer costs more by its length only. `make bench` prints the table."""

import pytest

from tests.bench.simulator import GPUS, LOAD, scaling, stream
from themis_arbiter.sim.generate import load_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Of what a job costs in the short stream: a quadratic loop would make it 4, and a busy machine does not.
PER_JOB_MAX = 2.5


def test_the_stream_is_the_same_load_at_every_length() -> None:
    once, longer = stream(1), stream(8)
    assert len(longer) == 8 * len(once) == len({(row.app_id, row.job_id) for row in longer})
    assert load_of(longer, GPUS) == pytest.approx(LOAD, rel=0.1)


def test_a_stream_four_times_as_long_takes_about_four_times_as_long() -> None:
    *_, of_short = scaling(["fifo"], [1, 4], runs=1)[-1]
    assert float(of_short) < PER_JOB_MAX
