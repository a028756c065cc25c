"""What every ResourceManager behind the port must do. A new one joins by an entry in HARNESSES (tests/support/rm_view.py)."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.support.rm_view import RmHarness, Teller, wait_for
from tests.support.sim_apps import SimHarness
from themis_arbiter.core.events import RmAttached

HARNESSES: Final[dict[str, Callable[[], RmHarness]]] = {"simulated": SimHarness}


@pytest.fixture(params=sorted(HARNESSES))
def rm(request: pytest.FixtureRequest) -> RmHarness:
    harness = HARNESSES[request.param]()
    wait_for(harness, lambda view: view.is_known)
    return harness


@pytest.fixture
def nodes(rm: RmHarness) -> tuple[str, str]:
    """The names of two nodes with three GPUs or more."""
    able = sorted(n.node for n in rm.view.nodes.values() if n.gpus >= 3)
    return able[0], able[1]


def synced(rm: RmHarness, epoch: int = 1) -> Teller:
    teller = Teller(rm, epoch)
    seq = teller.sync()
    wait_for(rm, lambda view: view.update_seq == seq)
    return teller


def placed(rm: RmHarness, teller: Teller, node: str, count: int, *, listens: bool = True) -> str:
    """A job that runs on so many leases of the node, and asks for two GPUs more."""
    job = rm.submit_job(count + 2, listens=listens)
    teller.grant(*teller.leases(job, node, count))
    wait_for(rm, lambda view: view.running(job) == count)
    return job


def settle(rm: RmHarness) -> None:
    rm.pass_time(rm.slack_ms)


# -- attaching


def test_it_attaches_and_then_says_everything(rm: RmHarness) -> None:
    view = rm.view
    assert isinstance(view.events[0], RmAttached)
    assert len(view.starts) == 1
    assert all(n.gpus >= 3 and n.is_schedulable and not n.is_lost for n in view.nodes.values())
    assert len(view.nodes) >= 2
    assert view.update_seq == 0


def test_a_job_is_reported_with_what_it_asks_for(rm: RmHarness) -> None:
    job = rm.submit_job(5)
    report = wait_for(rm, lambda view: job in view.jobs).jobs[job]
    assert (report.gpus_asked, report.unit, report.is_finished) == (5, 1, False)
    assert abs(rm.now_ms() - report.arrival_ms) <= rm.slack_ms


# -- admitting


def test_nothing_is_admitted_before_a_full_update(rm: RmHarness, nodes: tuple[str, str]) -> None:
    job = rm.submit_job(4)
    teller = Teller(rm)
    teller.grant(*teller.leases(job, nodes[0], 2))
    refused = wait_for(rm, lambda view: bool(view.refusals)).refusals[0]
    assert (refused.start_id, refused.reason) == (rm.view.start_id, "GAP")
    settle(rm)
    assert rm.view.used(job) == 0
    assert rm.view.update_seq_max == 0


def test_grants_admit_exactly(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job, other = rm.submit_job(20), rm.submit_job(20)
    teller.grant(*teller.leases(job, nodes[0], 2), *teller.leases(job, nodes[1], 1))
    teller.grant(*teller.leases(other, nodes[1], 2))
    wait_for(rm, lambda view: view.running(job) == 3 and view.running(other) == 2)
    settle(rm)
    view = rm.view
    assert [view.used(job, n) for n in nodes] == [2, 1]
    assert [view.used(other, n) for n in nodes] == [0, 2]
    assert (view.jobs[job].gpus_asked, view.jobs[other].gpus_asked) == (17, 18)


def test_a_full_update_admits_too(rm: RmHarness, nodes: tuple[str, str]) -> None:
    job = rm.submit_job(20)
    teller = Teller(rm)
    teller.sync(*teller.leases(job, nodes[0], 2))
    wait_for(rm, lambda view: view.running(job) == 2)
    settle(rm)
    assert rm.view.used(job) == 2


def test_a_repeated_grant_admits_nothing_more(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2)
    seq = teller.grant(*teller.leases(job, nodes[0], 2))
    wait_for(rm, lambda view: view.update_seq == seq)
    settle(rm)
    assert rm.view.used(job) == 2


def test_what_is_admitted_waits_for_the_asker(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = rm.submit_job(1)
    teller.grant(*teller.leases(job, nodes[0], 3))
    wait_for(rm, lambda view: view.running(job) == 1)
    settle(rm)
    assert rm.view.used(job) == 1
    assert rm.view.jobs[job].gpus_asked == 0


# -- draining


def test_who_listens_leaves_before_the_deadline(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2)
    deadline_ms = rm.now_ms() + 60_000
    teller.drain(*teller.leases(job, nodes[0], 2), deadline_ms=deadline_ms)
    view = wait_for(rm, lambda view: view.used(job) == 0, within_ms=20_000)
    assert rm.now_ms() < deadline_ms
    assert {c.exit_status for c in view.ended.values()} == {-100}
    wait_for(rm, lambda view: view.jobs[job].gpus_asked == 4)  # it asks again for what it lost


def test_who_does_not_listen_is_gone_at_the_deadline_and_not_before(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2, listens=False)
    deadline_ms = rm.now_ms() + 3 * rm.slack_ms
    teller.drain(*teller.leases(job, nodes[0], 2), deadline_ms=deadline_ms)
    rm.pass_time(deadline_ms - rm.now_ms() - rm.slack_ms)
    assert rm.view.running(job) == 2
    view = wait_for(rm, lambda view: view.used(job) == 0, within_ms=2 * rm.slack_ms)
    assert {c.exit_status for c in view.ended.values()} == {-102}


@pytest.mark.parametrize("listens", [True, False])
def test_only_what_no_longer_fits_is_taken(rm: RmHarness, nodes: tuple[str, str], listens: bool) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 3, listens=listens)
    newest = list(rm.view.containers)[-1]
    teller.drain(teller.leases(job, nodes[0], 3)[1], deadline_ms=rm.now_ms() + rm.slack_ms)
    wait_for(rm, lambda view: view.used(job) < 3, within_ms=3 * rm.slack_ms)
    settle(rm)
    assert rm.view.used(job) == 2
    assert list(rm.view.ended) == [newest]


def test_a_drained_lease_lets_nobody_in(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = rm.submit_job(2)
    wait_for(rm, lambda view: job in view.jobs)
    leases = teller.leases(job, nodes[0], 2)
    teller.grant(*leases)
    seq = teller.drain(leases[0], deadline_ms=rm.now_ms() + 60_000)
    wait_for(rm, lambda view: view.update_seq == seq)
    settle(rm)
    assert rm.view.used(job) == 1


def test_a_report_that_names_the_drain_is_the_last_word(rm: RmHarness, nodes: tuple[str, str]) -> None:
    # Containers not in it can no longer come: the arbiter gives the GPU away on the strength of this.
    teller = synced(rm)
    for _ in range(5):
        job = rm.submit_job(3)
        leases = teller.leases(job, nodes[0], 3)
        teller.grant(*leases)
        seq = teller.drain(*leases, deadline_ms=rm.now_ms() + 60_000)
        view = wait_for(rm, lambda view, seq=seq: view.update_seq == seq)  # type: ignore[misc]
        there = set(view.containers)
        settle(rm)
        assert {i for i, c in (rm.view.containers | rm.view.ended).items() if c.job_id == job} <= there
        teller.withdraw(*leases)


def test_the_full_set_can_order_drains(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2, listens=False)
    kept = teller.leases(job, nodes[0], 1)
    ending = teller.lease(f"{job}.{nodes[0]}.1", job, nodes[0], is_draining=True)
    teller.sync(*kept, ending, drains=((ending.lease_id, rm.now_ms() + rm.slack_ms),))
    wait_for(rm, lambda view: view.used(job) == 1, within_ms=3 * rm.slack_ms)
    settle(rm)
    assert rm.view.used(job) == 1


# -- forgetting


def test_withdrawn_leases_admit_nothing(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = rm.submit_job(1)
    leases = teller.leases(job, nodes[0], 2)
    teller.grant(*leases)
    wait_for(rm, lambda view: view.running(job) == 1)
    late = rm.submit_job(2)
    late_leases = teller.leases(late, nodes[1], 2)
    teller.grant(*late_leases)
    seq = teller.withdraw(*leases, *late_leases)
    wait_for(rm, lambda view: view.update_seq == seq)
    settle(rm)
    assert rm.view.used(late) == 0
    assert rm.view.running(job) == 1, "a lease that disappears without a drain kills nothing"


def test_the_full_set_replaces_what_was(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 1)  # asks for two more
    teller.sync(*teller.leases(job, nodes[1], 1))
    wait_for(rm, lambda view: view.running(job) == 2)
    settle(rm)
    assert [rm.view.used(job, n) for n in nodes] == [1, 1]
    teller.drain(*teller.leases(job, nodes[0], 1), deadline_ms=rm.now_ms())
    settle(rm)
    assert rm.view.used(job, nodes[0]) == 1, "a lease that the gate no longer knows cannot be drained"


# -- fencing


def refused(rm: RmHarness, teller: Teller, job: str, node: str, reason: str) -> None:
    """Each kind of update from `teller` is refused for `reason` and changes nothing."""
    before_seq, count = rm.view.update_seq, len(rm.view.refusals)
    leases = teller.leases(job, node, 3)
    tells: tuple[Callable[[], int], ...] = (
        lambda: teller.grant(*leases),
        lambda: teller.drain(*leases, deadline_ms=rm.now_ms()),
        lambda: teller.withdraw(*leases),
        teller.sync,
    )
    for tell in tells:
        tell()
        count += 1
        wait_for(rm, lambda view, count=count: len(view.refusals) == count)  # type: ignore[misc]
        assert rm.view.refusals[-1].reason == reason
    settle(rm)
    assert rm.view.used(job) == 2
    assert rm.view.update_seq == before_seq


def test_an_old_epoch_is_refused(rm: RmHarness, nodes: tuple[str, str]) -> None:
    new = synced(rm, epoch=7)
    job = placed(rm, new, nodes[0], 2)
    refused(rm, Teller(rm, epoch=6), job, nodes[0], "OLD_EPOCH")
    new.grant(new.lease(f"{job}.{nodes[0]}.2", job, nodes[0]))
    wait_for(rm, lambda view: view.running(job) == 3)


def test_another_starts_id_is_refused(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2)
    refused(rm, Teller(rm, epoch=9, start_id="another"), job, nodes[0], "WRONG_START")
    # And its epoch, however high, was not learnt.
    seq = teller.grant(teller.lease(f"{job}.{nodes[0]}.2", job, nodes[0]))
    wait_for(rm, lambda view: view.update_seq == seq)


def test_a_gap_is_refused_until_a_full_update(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = rm.submit_job(4)
    teller.seq += 1  # an update that was lost
    missing = teller.seq
    teller.grant(*teller.leases(job, nodes[0], 2))
    wait_for(rm, lambda view: bool(view.refusals))
    assert rm.view.refusals[0].reason == "GAP"
    settle(rm)
    assert rm.view.used(job) == 0
    assert rm.view.update_seq_max < missing
    teller.sync(*teller.leases(job, nodes[0], 2))
    wait_for(rm, lambda view: view.running(job) == 2)
    assert rm.view.update_seq == teller.seq


def test_a_new_epoch_begins_with_a_full_update(rm: RmHarness, nodes: tuple[str, str]) -> None:
    old = synced(rm)
    job = placed(rm, old, nodes[0], 2)
    new = Teller(rm, epoch=2)
    new.seq = old.seq
    new.drain(*new.leases(job, nodes[0], 2), deadline_ms=rm.now_ms())
    wait_for(rm, lambda view: bool(view.refusals))
    assert rm.view.refusals[0].reason == "GAP"
    settle(rm)
    assert rm.view.used(job) == 2


# -- starting anew


def test_a_restarted_one_is_another_start_and_keeps_what_runs(rm: RmHarness, nodes: tuple[str, str]) -> None:
    teller = synced(rm)
    job = placed(rm, teller, nodes[0], 2)
    old, there = rm.view.start_id, set(rm.view.containers)
    rm.restart()
    wait_for(rm, lambda view: view.is_known and view.start_id not in {"", old}, within_ms=20 * rm.slack_ms)
    wait_for(rm, lambda view: set(view.containers) == there, within_ms=20 * rm.slack_ms)
    assert rm.view.update_seq == 0
    settle(rm)
    teller.grant(*teller.leases(job, nodes[0], 3))
    settle(rm)
    assert rm.view.used(job) == 2, "the old start's leases admit nothing any more"
    anew = Teller(rm, epoch=1)
    anew.sync(*anew.leases(job, nodes[0], 3))
    wait_for(rm, lambda view: view.running(job) == 3)
