"""The lease book's times stay within bounds that a person would still call at once. `make bench` prints the table."""

import pytest

from tests.bench.lease_book import LEASES, Book, measure, peak_mb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# Several times what an idle machine of two cores takes: a loop that became quadratic is found, a busy machine is not.
BOUNDS_S = {
    "store: open and load": 6.0,
    "start-up: take over": 1.0,
    "reconcile: first full report": 2.5,
    "reconcile: full report, nothing new": 1.5,
    "report: one job": 0.8,
    "round: nothing free": 1.5,
    "round: every lease ends": 12.0,
    "store: commits of round: every lease ends": 6.0,
    "store: commit of all leases at once": 6.0,
}
MEMORY_MB_MAX = 600


def test_a_book_of_five_thousand_leases_and_five_hundred_apps() -> None:
    assert len(Book().leases) == LEASES
    times = measure(1)
    slow = {name: times.median(name) for name, bound_s in BOUNDS_S.items() if times.median(name) > bound_s}
    assert not slow
    assert peak_mb() < MEMORY_MB_MAX
