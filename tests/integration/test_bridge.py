"""The bridge against the real plugin in a real ResourceManager; the arbiter behind the service is the test itself."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.serving import Serving, lease, serve
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import ContainerReport, JobReport, RmAttached, RmReported, UpdateRefused
from themis_arbiter.core.lease import Lease
from yarn_bridge.daemon import Bridge
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob

pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(600)]

JAVA: Final = Path(__file__).parents[2] / "yarn_bridge" / "java"
PLUGIN_JAR: Final = JAVA / "plugin" / "target" / "themis-yarn-plugin-0.1.0.jar"
NODES: Final = (NodeSpec(gpus=2, rack="rack0"), NodeSpec(gpus=1, rack="rack1"))
EPOCH: Final = 3
PREEMPTED: Final = -102


def until(holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not so after {timeout_s} s"
        time.sleep(0.05)


@dataclass
class Seen:
    """What the reports so far say."""

    serving: Serving

    @property
    def start_id(self) -> str:
        return self.serving.engine.of(RmAttached)[-1].start_id

    def reports(self) -> list[RmReported]:
        return [r for r in self.serving.engine.of(RmReported) if r.start_id == self.start_id]

    def job(self, job_id: str) -> JobReport | None:
        found = [j for r in self.reports() for j in r.jobs if j.job_id == job_id]
        return found[-1] if found else None

    def containers(self, job_id: str) -> list[ContainerReport]:
        last = {c.container_id: c for r in self.reports() for c in r.containers if c.job_id == job_id}
        return list(last.values())

    def confirmed_seq(self) -> int:
        return max((r.update_seq for r in self.reports()), default=0)


@pytest.fixture(scope="module")
def yarn() -> Iterator[LocalYarn]:
    assert PLUGIN_JAR.is_file(), "make plugin"
    config = LocalYarnConfig(nodes=NODES, host_net=9).with_plugin(PLUGIN_JAR)
    with LocalYarn(config, progress=lambda text: print(text, flush=True)) as yarn:
        yield yarn


@pytest.fixture
def seen(yarn: LocalYarn) -> Iterator[Seen]:
    assert yarn.config.gateway_dir is not None
    with serve() as serving:
        bridge = Bridge(yarn.config.gateway_dir, f"127.0.0.1:{serving.port}")
        thread = threading.Thread(target=bridge.run, daemon=True)
        thread.start()
        serving.engine.wait_for(RmReported, timeout_s=60)
        yield Seen(serving)
        bridge.stop()
        thread.join(5)
        assert not thread.is_alive()


def lease_on(host: str, job_id: str, lease_id: str = "l1") -> Lease:
    return lease(lease_id, gpu=f"{host}:0", job_id=job_id, epoch=EPOCH)


def sync(seen: Seen, seq: int, *leases: Lease) -> None:
    effect = SyncLeases(epoch=EPOCH, start_id=seen.start_id, seq=seq, leases=leases, drains=())
    seen.serving.cluster.sync(effect)


def submit(yarn: LocalYarn, seen: Seen) -> str:
    job = ShellJob(command="exec sleep 600", n_containers=2, tags=("themis.app=Shell", "themis.gang=1"))
    job_id = yarn.client.submit_distributed_shell(job, user="alice")
    until(lambda: (job := seen.job(job_id)) is not None and job.gpus_asked == 2, "the asks are reported")
    return job_id


def test_a_lease_from_grant_to_drain(yarn: LocalYarn, seen: Seen) -> None:
    cluster, host = seen.serving.cluster, yarn.config.host(0)
    until(lambda: {n.node for r in seen.reports() for n in r.nodes} == {host, yarn.config.host(1)}, "both nodes")
    nodes = {n.node: (n.rack, n.gpus, n.is_schedulable) for r in seen.reports() for n in r.nodes}
    assert nodes == {host: ("/rack0", 2, True), yarn.config.host(1): ("/rack1", 1, True)}

    sync(seen, 1)
    job_id = submit(yarn, seen)
    job = seen.job(job_id)
    assert job is not None
    assert (job.app_id, job.user, job.queue, job.gang, job.unit) == ("alice/shell", "alice", "default", 1, 1)
    assert abs(job.arrival_ms - time.time() * 1_000) < 60_000
    assert seen.containers(job_id) == []  # the gate is shut

    cluster.grant(GrantGpus(epoch=EPOCH, start_id=seen.start_id, seq=2, leases=(lease_on(host, job_id),)))
    until(lambda: any(c.is_running for c in seen.containers(job_id)), "the leased container runs")
    (container,) = seen.containers(job_id)
    assert (container.node, container.gpus, container.is_am) == (host, 1, False)
    until(lambda: seen.confirmed_seq() == 2, "the grant is confirmed")

    deadline_ms = time.time_ns() // 1_000_000 + 1_000
    cluster.drain(RequestDrain(epoch=EPOCH, start_id=seen.start_id, seq=3, lease_ids=("l1",), deadline_ms=deadline_ms))
    until(lambda: all(c.is_ended for c in seen.containers(job_id)), "the drained container has ended")
    assert [c.exit_status for c in seen.containers(job_id)] == [PREEMPTED]
    cluster.withdraw(WithdrawLeases(epoch=EPOCH, start_id=seen.start_id, seq=4, lease_ids=("l1",)))
    until(lambda: seen.confirmed_seq() == 4, "the withdrawal is confirmed")
    assert seen.serving.engine.of(UpdateRefused) == []

    yarn.client.kill(job_id)
    until(lambda: (job := seen.job(job_id)) is not None and job.is_finished, "the end is reported")
    ended = seen.job(job_id)
    assert ended is not None
    assert (ended.final_status, ended.app_id) == ("KILLED", "alice/shell")


def test_a_gap_is_refused_and_mended_by_a_sync(yarn: LocalYarn, seen: Seen) -> None:
    sync(seen, 10)
    until(lambda: seen.confirmed_seq() == 10, "the first sync")
    seen.serving.cluster.withdraw(WithdrawLeases(epoch=EPOCH, start_id=seen.start_id, seq=12, lease_ids=("l1",)))
    assert seen.serving.engine.wait_for(UpdateRefused)[0].reason == "GAP"
    sync(seen, 13)
    until(lambda: seen.confirmed_seq() == 13, "the second sync")


def test_a_killed_resource_manager_is_found_again_with_its_containers(yarn: LocalYarn, seen: Seen) -> None:
    host = yarn.config.host(0)
    sync(seen, 20)
    job_id = submit(yarn, seen)
    seen.serving.cluster.grant(GrantGpus(epoch=EPOCH, start_id=seen.start_id, seq=21, leases=(lease_on(host, job_id),)))
    until(lambda: any(c.is_running for c in seen.containers(job_id)), "the leased container runs")
    (before,) = seen.containers(job_id)
    start_id = seen.start_id

    yarn.restart_rm(kill=True)
    until(lambda: seen.start_id != start_id, "the new activation attaches")
    until(lambda: any(c.is_running for c in seen.containers(job_id)), "the container is found again")
    assert [c.container_id for c in seen.containers(job_id)] == [before.container_id]
    job = seen.job(job_id)
    assert job is not None
    assert job.app_id == "alice/shell"
    yarn.client.kill(job_id)
