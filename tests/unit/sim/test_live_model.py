"""The simulated ResourceManager's own law, beside what the port's contract says: work, restarts, nodes, owed reports."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rm_view import RmView, Teller
from tests.support.sim_apps import START_MS, SimHarness, job, nodes, over_leased
from themis_arbiter.core.events import RmReported
from themis_arbiter.core.types import CoreError, OnLeaseEnd
from themis_arbiter.engine.loop import MakeEvent, QueueFull
from themis_arbiter.sim import live_link
from themis_arbiter.sim.live_jobs import SimJob
from themis_arbiter.sim.live_model import SimTiming, SimulatedCluster

TIMING = SimTiming(heartbeat_ms=200, start_delay_ms=400)


class World(SimHarness):
    """A cluster with jobs of the test's own, attached and synced."""

    def __init__(self, *jobs: SimJob, gpus: tuple[int, ...] = (4, 4)) -> None:
        super().__init__()
        self.cluster = SimulatedCluster(nodes(*gpus), jobs, start_ms=START_MS, timing=TIMING)
        self._link = self.cluster.link()
        self.rm, self.view = self._link, RmView()
        self._link.attach(self._take)
        self.pass_time(0)
        self.teller = Teller(self)
        self.teller.sync()
        self.pass_time(0)

    def lease(self, job_id: str, node: str, count: int) -> None:
        self.teller.grant(*self.teller.leases(job_id, node, count))

    def drain(self, job_id: str, node: str, count: int, in_ms: int) -> None:
        self.teller.drain(*self.teller.leases(job_id, node, count), deadline_ms=self.now_ms() + in_ms)

    def done_s(self, job_id: str) -> float:
        return next(j.done for j in self.cluster.jobs() if j.job_id == job_id) / 1000

    def finish_ms(self, job_id: str) -> int | None:
        """After the cluster's start."""
        at_ms = next(j.finish_ms for j in self.cluster.jobs() if j.job_id == job_id)
        return None if at_ms is None else at_ms - START_MS


# -- work


def test_a_job_runs_from_its_start_until_its_work_is_done() -> None:
    world = World(job("j", gpus=2, work_s=10))
    world.lease("j", "n0", 2)
    world.pass_time(60_000)
    # Placed at the heartbeat of 0 s, running from 0.4 s, two GPUs for five seconds.
    assert world.finish_ms("j") == 5_400
    assert {c.exit_status for c in world.view.ended.values()} == {0}
    report = world.view.jobs["j"]
    assert (report.is_finished, report.finish_ms - START_MS, report.final_status) == (True, 5_400, "SUCCEEDED")
    assert world.view.containers == {}


def test_a_gang_that_is_not_whole_holds_gpus_and_gets_nowhere() -> None:
    world = World(job("j", gpus=4, gang=4, work_s=4))
    world.lease("j", "n0", 3)
    world.pass_time(10_000)
    assert (world.view.running("j"), world.done_s("j")) == (3, 0.0)
    world.lease("j", "n1", 1)
    world.pass_time(10_000)
    # The other node beats on a grid of its own: 100 ms after the first's.
    assert world.finish_ms("j") == 10_100 + 400 + 1_000


def test_containers_have_whole_units() -> None:
    world = World(job("j", gpus=6, gang=2, unit=2), gpus=(4, 4))
    world.lease("j", "n0", 3)
    world.pass_time(5_000)
    assert [c.gpus for c in world.view.containers.values()] == [2]
    assert world.view.jobs["j"].gpus_asked == 4


def test_jobs_arrive_in_their_time() -> None:
    world = World(job("late", arrival_ms=1_500))
    world.lease("late", "n0", 1)
    world.pass_time(1_499)
    assert "late" not in world.view.jobs
    world.pass_time(200)
    assert world.view.jobs["late"].arrival_ms == START_MS + 1_500
    world.pass_time(1_000)
    assert world.view.running("late") == 1


def test_memory_bounds_what_a_node_takes() -> None:
    world = World(job("j", gpus=4, memory_mb=100_000))
    assert world.view.nodes["n0"].memory_free_mb == 262_144
    world.lease("j", "n0", 4)
    world.pass_time(5_000)
    assert world.view.used("j") == 2
    assert world.view.nodes["n0"].memory_free_mb == 62_144


# -- the end of a lease


def drained_after_four_seconds(on_lease_end: OnLeaseEnd, notice_ms: int, checkpoint_ms: int = 300) -> World:
    world = World(job("j", gpus=1, on_lease_end=on_lease_end, checkpoint_ms=checkpoint_ms))
    world.lease("j", "n0", 1)
    world.pass_time(4_400)
    assert world.done_s("j") == 4.0
    world.drain("j", "n0", 1, notice_ms)
    world.pass_time(notice_ms)
    assert world.cluster.used(("j", "n0")) == 0
    return world


def test_a_job_that_checkpoints_loses_nothing() -> None:
    assert drained_after_four_seconds(OnLeaseEnd.CHECKPOINT, 3_000).done_s("j") == pytest.approx(4.3)


def test_a_checkpoint_that_takes_longer_than_the_notice_is_lost() -> None:
    assert drained_after_four_seconds(OnLeaseEnd.CHECKPOINT, 1_000, checkpoint_ms=1_001).done_s("j") == 0.0


def test_a_job_that_restarts_loses_everything() -> None:
    assert drained_after_four_seconds(OnLeaseEnd.RESTART, 3_000).done_s("j") == 0.0


def test_a_job_that_must_not_be_interrupted_is_killed_with_everything() -> None:
    world = drained_after_four_seconds(OnLeaseEnd.NEVER, 3_000)
    assert world.done_s("j") == 0.0


def test_a_job_that_restarts_does_so_when_it_gets_more_gpus() -> None:
    world = World(job("j", gpus=2, on_lease_end=OnLeaseEnd.RESTART))
    world.lease("j", "n0", 1)
    world.pass_time(4_400)
    world.lease("j", "n1", 1)
    world.pass_time(2_500)
    assert world.done_s("j") == pytest.approx(2 * 2.0, abs=0.3)  # since the second runs


def test_a_job_that_keeps_its_gang_computes_on_with_the_rest() -> None:
    world = World(job("j", gpus=3, gang=1))
    world.lease("j", "n0", 3)
    world.pass_time(1_400)
    world.drain("j", "n0", 2, 3_000)
    world.pass_time(10_000)
    assert world.done_s("j") == pytest.approx(3 * 1.0 + 3 * 0.3 + 9.7)


# -- nodes and restarts


def test_a_lost_node_takes_its_containers_and_comes_back_empty() -> None:
    world = World(job("j", gpus=4))
    world.lease("j", "n0", 2)
    world.lease("j", "n1", 1)
    world.pass_time(2_000)
    world.cluster.lose_node("n0")
    world.pass_time(500)
    assert world.view.nodes["n0"].is_lost
    assert [world.view.used("j", n) for n in ("n0", "n1")] == [0, 1]
    assert {c.exit_status for c in world.view.ended.values()} == {-100}
    world.cluster.restore_node("n0")
    world.pass_time(2_000)
    assert world.view.nodes["n0"].is_schedulable
    assert world.view.used("j", "n0") == 2  # its leases were not withdrawn


def test_a_restart_forgets_kills_that_were_ordered() -> None:
    world = World(job("j", on_lease_end=OnLeaseEnd.NEVER))
    world.lease("j", "n0", 1)
    world.pass_time(1_000)
    world.drain("j", "n0", 1, 1_000)
    world.pass_time(500)
    world.cluster.restart()
    world.pass_time(5_000)
    assert world.view.running("j") == 1
    assert world.done_s("j") == pytest.approx(6.1)


def test_a_full_set_that_does_not_drain_calls_the_kill_off() -> None:
    world = World(job("j", on_lease_end=OnLeaseEnd.NEVER))
    world.lease("j", "n0", 1)
    world.pass_time(1_000)
    world.drain("j", "n0", 1, 1_000)
    world.teller.sync(*world.teller.leases("j", "n0", 1))
    world.pass_time(5_000)
    assert world.view.running("j") == 1


def test_a_second_arbiter_is_not_told_the_firsts_numbers() -> None:
    world = World(job("j", gpus=4))
    world.lease("j", "n0", 1)
    world.pass_time(1_000)
    assert world.view.update_seq == 2
    second, view = world.cluster.link(), RmView()
    second.attach(lambda make: view.take(make(world.now_ms())))
    world.lease("j", "n0", 2)  # the first still leads
    world.pass_time(1_000)
    assert (world.view.update_seq, view.update_seq_max, view.is_known) == (3, 0, True)
    assert view.used("j") == 2
    world.rm, world.view = second, view
    new = Teller(world, epoch=2)
    new.sync(*new.leases("j", "n0", 2))
    world.pass_time(1_000)
    assert view.update_seq == 1


def test_an_arbiter_that_attaches_again_gets_numbers_of_its_new_count_only() -> None:
    world = World(job("j", gpus=4))
    for _ in range(5):
        world.lease("j", "n0", 1)
    world.pass_time(1_000)
    assert world.view.update_seq == 6
    world.view = RmView()
    world._link.attach(world._take)
    world.pass_time(1_000)
    assert (world.view.is_known, world.view.update_seq_max) == (True, 0)


# -- what the engine does not take


class FullAtTimes:
    """A submit that refuses while `is_full`."""

    def __init__(self, world: SimHarness) -> None:
        self.world, self.view, self.is_full = world, RmView(), False

    def __call__(self, make: MakeEvent) -> None:
        if self.is_full:
            raise QueueFull("full")
        self.view.take(make(self.world.now_ms()))


def test_what_a_full_engine_does_not_take_is_told_in_full_later() -> None:
    world = World(job("a", work_s=1), job("b", gpus=2))
    submit = FullAtTimes(world)
    world._link.attach(submit)
    world.pass_time(300)
    submit.is_full = True
    world.teller = Teller(world)
    world.teller.sync(*world.teller.leases("a", "n0", 1), *world.teller.leases("b", "n1", 1))
    world.pass_time(5_000)
    world.lease("b", "n0", 1)
    world.teller.seq += 1
    world.lease("b", "n1", 2)  # a gap: refused, and nobody can be told yet
    world.pass_time(1_000)
    submit.is_full = False
    reports = len(submit.view.events)
    world.pass_time(300)
    assert isinstance(submit.view.events[-1], RmReported)
    assert submit.view.events[-1].is_full
    assert len(submit.view.events) == reports + 2
    assert [r.reason for r in submit.view.refusals] == ["GAP"]
    assert submit.view.jobs["a"].is_finished
    assert submit.view.used("b") == 2
    assert submit.view.update_seq == 2


def test_too_many_updates_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_link, "INBOX_MAX", 3)
    world = World(job("j", gpus=4))
    for _ in range(4):
        world.lease("j", "n0", 1)
    world.pass_time(0)
    assert [r.reason for r in world.view.refusals] == ["INBOX_FULL"]
    world.teller.sync(*world.teller.leases("j", "n0", 1))
    world.pass_time(1_000)
    assert world.view.used("j") == 1


def test_more_ended_containers_than_can_be_kept_make_a_full_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_link, "OUTBOX_MAX", 1)
    world = World(job("j", gpus=3, work_s=3))
    world.lease("j", "n0", 3)
    world.pass_time(3_000)
    assert world.view.containers == {}
    assert world.view.jobs["j"].is_finished


def test_a_detached_arbiter_hears_nothing_and_is_not_heard() -> None:
    world = World(job("j", gpus=2))
    world.pass_time(500)
    told = len(world.view.events)
    world._link.detach()
    world.lease("j", "n0", 1)
    world.pass_time(2_000)
    assert len(world.view.events) == told
    assert world.cluster.used(("j", "n0")) == 0


# -- time


def test_an_idle_cluster_has_nothing_due() -> None:
    world = World(job("j"), job("late", arrival_ms=50_000))
    world.pass_time(5_000)
    assert world.cluster.next_at_ms() == START_MS + 50_000
    world.pass_time(60_000)
    assert world.cluster.next_at_ms() is None


def test_time_cannot_fall() -> None:
    cluster = SimulatedCluster(nodes(1), (), start_ms=START_MS)
    with pytest.raises(CoreError, match="time cannot fall"):
        cluster.advance(START_MS - 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gang": 3, "gpus": 2}, "gang <= max_gpus"),
        ({"unit": 2, "gang": 3, "gpus": 4}, "multiples of the unit"),
        ({"work_s": 0.0}, "work must be above 0"),
        ({"app_id": ""}, "names have 1 to 256 characters"),
    ],
)
def test_jobs_that_cannot_be_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(CoreError, match=message):
        job("j", **fields)  # type: ignore[arg-type]


def test_names_come_once() -> None:
    with pytest.raises(CoreError, match="two jobs are called j"):
        SimulatedCluster(nodes(1), (job("j"), job("j")))
    with pytest.raises(CoreError, match="two nodes have the same name"):
        SimulatedCluster((*nodes(1), *nodes(1)), ())


ACTION = st.tuples(
    st.sampled_from(["grant", "drain", "pass", "lose", "restore", "sync"]),
    st.integers(0, 2),  # job
    st.integers(0, 1),  # node
    st.integers(1, 3),  # leases
    st.integers(0, 3_000),  # ms
)


Action: TypeAlias = tuple[str, int, int, int, int]


def do(world: World, action: Action) -> None:
    kind, job_no, node_no, count, ms = action
    job_id, node = f"j{job_no}", f"n{node_no}"
    match kind:
        case "grant":
            world.lease(job_id, node, count)
        case "drain":
            world.drain(job_id, node, count, ms)
        case "lose":
            world.cluster.lose_node(node)
        case "restore":
            world.cluster.restore_node(node)
        case "sync":
            world.teller.sync(*(x for j in range(3) for n in ("n0", "n1") for x in world.teller.leases(f"j{j}", n, 4)))
        case _:
            pass
    world.pass_time(0)


@given(st.lists(ACTION, max_size=40), st.integers(1, 700))
def test_containers_never_exceed_leases_and_drains_end_in_time(actions: list[Action], step_ms: int) -> None:
    """Whatever is told in whatever order; and whoever advances in other strides sees the same."""
    ends = (OnLeaseEnd.CHECKPOINT, OnLeaseEnd.RESTART, OnLeaseEnd.NEVER)
    jobs = [job(f"j{k}", gpus=4, gang=1 + k, on_lease_end=ends[k], work_s=20) for k in range(3)]
    strides, leap = World(*jobs), World(*jobs)
    cluster = strides.cluster
    due: dict[tuple[str, str], int] = {}
    for action in actions:
        kind, job_no, node_no, _, ms = action
        for world in (strides, leap):
            do(world, action)
        assert over_leased(cluster) == []
        if kind == "drain":
            place = (f"j{job_no}", f"n{node_no}")
            due[place] = max(due.get(place, 0), cluster.now_ms + ms)
        elif kind == "sync":
            due.clear()
        elif kind == "pass":
            end_ms = cluster.now_ms + ms
            while cluster.now_ms < end_ms:
                strides.pass_time(min(step_ms, end_ms - cluster.now_ms))
                assert over_leased(cluster) == []
                late = [p for p, at_ms in due.items() if at_ms <= cluster.now_ms]
                assert [p for p in late if cluster.used(p) > cluster.gate.allowed(p)] == []
            leap.pass_time(ms)
        assert cluster.jobs() == leap.cluster.jobs()
    for world in (strides, leap):
        world.pass_time(1_000)
        assert sum(c.gpus for c in world.view.containers.values()) == sum(cluster.used(p) for p in cluster.places())
    assert strides.view.containers == leap.view.containers
    assert strides.view.jobs == leap.view.jobs
