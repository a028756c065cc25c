"""The ResourceManager dies under 20 running GPU containers: started again, or succeeded by its standby."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from py4j.protocol import Py4JError

from tests.chaos.evidence import leased_twice, over_used
from tests.chaos.rm_log import RmLog
from tests.support.live_yarn import Live, live, until
from tests.support.zookeeper_server import run_zookeeper
from themis_arbiter.core.lease import LeaseState
from yarn_bridge.gateway import GatewayError, read_gateway_file
from yarn_bridge.local import HadoopJars, LocalYarnConfig, NodeSpec, ShellJob, YarnRestError
from yarn_bridge.local.pair import RM_NAMES
from yarn_bridge.local.reaper import marked_pids

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(300)]

GPUS: Final = (8, 8, 4, 4)
CONFIG: Final = LocalYarnConfig(nodes=tuple(NodeSpec(gpus=n, rack=f"rack{k // 2}") for k, n in enumerate(GPUS)), host_net=16)
RUNNING: Final = 20
COMMAND: Final = "exec sleep 600"
GRACE_S: Final = 20.0  # what the ResourceManager has not heard of by then would lose its lease
BACK_S: Final = 60.0

Leases = list[tuple[str, str, int, int]]


class Steady:
    """An app on 20 GPUs, and what is true of it from outside."""

    def __init__(self, system: Live) -> None:
        self.system = system
        job = ShellJob(command=COMMAND, n_containers=RUNNING, tags=("themis.app=steady",))
        self.job_id = system.yarn.client.submit_distributed_shell(job)
        until(lambda: len(self.tasks()) == RUNNING, "the containers run")
        until(lambda: len(self.leases()) == RUNNING, "their leases are active")

    def tasks(self) -> list[int]:
        """Pids of the commands that its containers run: a container that was started again has another."""
        return [pid for pid in marked_pids(self.system.yarn.mark) if command_of(pid) == COMMAND.removeprefix("exec ")]

    def runs(self) -> list[tuple[str, bool]]:
        """Every GPU container that it ever had, and whether it has ended."""
        number = self.job_id.removeprefix("application")
        runs = [run for run in self.system.yarn.container_runs() if run.gpus and number in run.container_id]
        return sorted((run.container_id, run.end_ms is not None) for run in runs)

    def leases(self) -> Leases:
        """Id, node, ordinal and end of each active lease."""
        found = [x for x in self.system.leases(self.job_id) if x["state"] == LeaseState.ACTIVE]
        return sorted((x["lease_id"], x["node"], x["gpu"], x["end_ms"]) for x in found)


def command_of(pid: int) -> str:
    """Its command line; "" where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def start_id(system: Live, containers: int = RUNNING) -> str:
    """Of the activation that has all leases and so many containers; "" while none has."""
    try:
        said = system.counters()
        folder = system.yarn.gateway_dirs[system.yarn.active_rm()]
        is_back = (said["mode"], said["leases"], said["gpus_counted"]) == ("LEASES", RUNNING, containers)
        return read_gateway_file(folder).start_id if is_back else ""
    except (GatewayError, YarnRestError, Py4JError):
        return ""


def survive(system: Live, fault: Callable[[], None]) -> None:
    """All 20 containers and their leases are after the fault what they were before it, and a new ask is served."""
    steady = Steady(system)
    until(lambda: start_id(system) != "", "the gate has all leases")
    first, leases, tasks, runs = start_id(system), steady.leases(), steady.tasks(), steady.runs()
    assert runs == [(container_id, False) for container_id, _ in runs]
    assert len(runs) == RUNNING

    began_s = time.monotonic()
    fault()
    until(lambda: start_id(system) not in {"", first}, "the next activation has all leases and containers", BACK_S)
    back_s = time.monotonic()
    print(f"all leases and containers are there {back_s - began_s:.1f} s after the fault")
    assert steady.leases() == leases, "ids and ends"
    small = ShellJob(command="exec sleep 1", n_containers=2, tags=("themis.app=small",))
    assert system.yarn.client.wait(system.yarn.client.submit_distributed_shell(small))["finalStatus"] == "SUCCEEDED"
    time.sleep(max(0.0, back_s + GRACE_S + 1.0 - time.monotonic()))
    assert steady.leases() == leases, "ids and ends, when what is not there would have been given up"
    assert steady.tasks() == tasks, "no process has ended, none is new"
    assert steady.runs() == runs, "no container has ended, none was started twice"

    journals = sorted((system.run_dir / "journal").glob("*.journal"))
    assert journals
    assert leased_twice(journals) == []
    hosts = {system.yarn.config.host(k): n for k, n in enumerate(GPUS)}
    for path in sorted(system.yarn.rm_log.parent.glob("rm*.log")):
        log = RmLog(path, gpus_of=hosts)
        log.poll()
        assert (over_used(log), log.over_leased, log.failures) == ([], [], []), path


def test_a_killed_resource_manager_that_is_started_again(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    with live(tmp_path, CONFIG, recovery_grace=f"{GRACE_S} s") as system:
        survive(system, system.yarn.restart_rm)


@contextmanager
def a_pair(folder: Path, host_net: int) -> Iterator[Live]:
    """Two ResourceManagers of which one is active, a bridge beside each."""
    with run_zookeeper(folder) as zookeeper:
        config = replace(CONFIG, host_net=host_net, zookeeper=zookeeper.hosts)
        with live(folder, config, recovery_grace=f"{GRACE_S} s") as system:
            yield system


@pytest.mark.zookeeper
def test_a_killed_resource_manager_whose_standby_takes_over(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    with a_pair(tmp_path, host_net=17) as system:
        was = system.yarn.active_rm()
        survive(system, system.yarn.kill_rm)
        assert system.yarn.active_rm() == 1 - was


@pytest.mark.zookeeper
def test_a_frozen_resource_manager_wakes_when_its_standby_has_taken_over(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    with a_pair(tmp_path, host_net=18) as system:
        was = system.yarn.active_rm()
        frozen = system.yarn.daemon(RM_NAMES[was])

        def freeze() -> None:
            frozen.pause()
            # Nodes hang on the frozen one until it wakes: the other's gate has the leases, and no containers yet.
            until(lambda: start_id(system, containers=0) != "", "the standby has taken over", BACK_S)
            assert system.yarn.active_rm() != was
            frozen.resume()

        survive(system, freeze)
        assert system.yarn.active_rm() == 1 - was
        until(lambda: not (system.yarn.gateway_dirs[was] / "gateway.json").exists(), "who was frozen has closed its gateway")
