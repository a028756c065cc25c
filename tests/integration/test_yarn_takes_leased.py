"""YARN takes, or does not give, what is leased: its own preemption, a user's kill, a queue's limit.

For each it is defined what happens: the end is told with its cause, the lease goes back or is used again, and in the end
the books of plugin and arbiter are empty. Leases last an hour here, so nothing moves but by YARN.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.live_yarn import Live, live, until
from themis_arbiter.core.events import EndCause
from yarn_bridge.local import LocalYarnConfig, NodeSpec, ShellJob

pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(600)]

MONITOR: Final = "yarn.resourcemanager.monitor.capacity.preemption"
CONFIG: Final = LocalYarnConfig(
    nodes=(NodeSpec(gpus=2, rack="rack0"), NodeSpec(gpus=2, rack="rack0")),
    host_net=12,
    queues={"a": 50, "b": 25, "c": 25},
    capacity={"yarn.scheduler.capacity.root.c.maximum-capacity": "25"},
    yarn_site={
        "yarn.resourcemanager.scheduler.monitor.enable": "true",
        f"{MONITOR}.monitoring_interval": "500",
        f"{MONITOR}.max_wait_before_kill": "1500",
        f"{MONITOR}.total_preemption_per_round": "1.0",
        f"{MONITOR}.natural_termination_factor": "1.0",
    },
)
KILL: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("taken"), CONFIG) as system:
        yield system


def running(system: Live, queue: str, containers: int, command: str = "exec sleep 600") -> str:
    """An app of one-GPU containers, all of which run."""
    job_id = submit(system, queue, containers, command)
    until(lambda: gpu_containers(system, job_id) == containers, f"{containers} containers in queue {queue}")
    until(lambda: len(system.leases(job_id)) == containers, "each under a lease")
    return job_id


def submit(system: Live, queue: str, containers: int, command: str = "exec sleep 600") -> str:
    job = ShellJob(command=command, n_containers=containers, queue=queue, tags=(f"themis.app={queue}",))
    return system.yarn.client.submit_distributed_shell(job)


def gpu_containers(system: Live, job_id: str) -> int:
    """Live ones, by the ResourceManager's log."""
    number = job_id.removeprefix("application")
    runs = [run for run in system.yarn.container_runs() if run.gpus and number in run.container_id]
    return sum(run.end_ms is None for run in runs)


def kill(system: Live, job_id: str) -> None:
    done = system.yarn.client.java(KILL, ["application", "-kill", job_id])
    assert done.returncode == 0, done.stderr[-1_000:]
    assert system.yarn.client.wait(job_id)["state"] == "KILLED"


def await_empty_books(system: Live) -> None:
    """Nobody holds anything: neither the arbiter's leases, nor the gate's, nor its counts."""
    until(lambda: system.leases() == [], "no lease is left")

    def are_empty() -> bool:
        counters = system.counters()
        return (counters["leases"], counters["containers"], counters["gpus_counted"]) == (0, 0, 0)

    until(are_empty, "the plugin's books are empty")


def test_a_users_kill_gives_the_leases_back(system: Live) -> None:
    job_id = running(system, "a", 2)
    kill(system, job_id)
    await_empty_books(system)
    lost = system.lost(job_id)
    assert len(lost) == 2
    assert set(lost) == {(EndCause.AFTER_APP, False)}, "its application had ended, and its master gave nothing back"


def test_yarns_own_preemption_is_counted_as_the_cause_and_the_gpu_goes_to_who_waits(system: Live) -> None:
    holder = running(system, "a", 4)
    asker = submit(system, "b", 1, "sleep 3")
    assert system.yarn.client.wait(asker, 120)["finalStatus"] == "SUCCEEDED"
    lost = system.lost(holder)
    assert lost, "the queue's share was taken back"
    assert set(lost) == {(EndCause.PREEMPTED, False)}, "by YARN, for no lease was due"
    assert system.counters()["kills"] == 0
    assert [cause for cause, _ in system.lost(asker)] == [EndCause.DONE]
    assert gpu_containers(system, holder) == 4 - len(lost), "the others went on"
    kill(system, holder)
    await_empty_books(system)


def test_what_a_queues_limit_keeps_out_is_handed_back_and_others_are_served(system: Live) -> None:
    limited = submit(system, "c", 3)
    until(lambda: gpu_containers(system, limited) == 1, "the queue's limit of one")
    # Leases that YARN never lets it use are no-shows.
    until(lambda: len(system.leases(limited)) == 1, "the others are handed back")
    other = running(system, "a", 3)
    assert gpu_containers(system, limited) == 1
    assert system.lost(limited) == []
    for job_id in (limited, other):
        kill(system, job_id)
    await_empty_books(system)
