"""The lease book's times stay within bounds that a person would still call at once. `make bench` prints the table."""

import pytest

from tests.bench.lease_book import LEASES, SOME, Book, Times, measure, peak_mb
from tests.support.zookeeper_server import ZooKeeper

pytest_plugins = ["tests.support.zookeeper"]
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
    hold_bounds(measure(1))


@pytest.mark.zookeeper
def test_the_same_book_in_zookeeper_and_what_a_round_writes_there(zookeeper: ZooKeeper) -> None:
    times = measure(1, hosts=zookeeper.hosts)
    hold_bounds(times)
    assert max(times.written[f"store: commit of {SOME} leases"]) < 30 * 1_024
    assert max(times.written["store: commits of round: every lease ends"]) < 100 * LEASES


def hold_bounds(times: Times) -> None:
    slow = {name: times.median(name) for name, bound_s in BOUNDS_S.items() if times.median(name) > bound_s}
    assert not slow
    assert peak_mb() < MEMORY_MB_MAX
