"""The local YARN harness against the real daemons: what other YARN tests stand on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from yarn_bridge.local import (
    HadoopJars,
    LocalYarn,
    LocalYarnConfig,
    LocalYarnError,
    NodeSpec,
    ShellJob,
    attach,
)
from yarn_bridge.local.client import Json
from yarn_bridge.local.daemons import DaemonDiedError

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(600)]

ONE_NODE = (NodeSpec(gpus=1, rack="rack0"),)


def until(holds: Callable[[], bool], timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    """Zombies that nobody reaps yet count as ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def free_gpus(node: Json) -> int:
    rows = node["availableResource"]["resourceInformations"]["resourceInformation"]
    return sum(int(row["value"]) for row in rows if row["name"] == "yarn.io/gpu")


def started_container(yarn: LocalYarn, pid_file: Path) -> tuple[str, int]:
    """An application with one GPU container, and the pid of what runs in that."""
    command = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"
    application_id = yarn.client.submit_distributed_shell(ShellJob(command=command))
    until(pid_file.exists)
    return application_id, int(pid_file.read_text())


def test_four_nodes_on_two_racks_declare_their_gpus(local_yarn: LocalYarn) -> None:
    nodes = {node["nodeHostName"]: (node["rack"], free_gpus(node)) for node in local_yarn.client.nodes()}
    assert nodes == {
        "127.0.1.1": ("/rack0", 4),
        "127.0.1.2": ("/rack0", 4),
        "127.0.1.3": ("/rack1", 2),
        "127.0.1.4": ("/rack1", 2),
    }
    assert local_yarn.client.metrics()["activeNodes"] == 4


def test_distributed_shell_runs_with_tags_and_gpus(local_yarn: LocalYarn) -> None:
    job = ShellJob(command="sleep 2; echo on $NM_HOST", n_containers=2, gpus=2, tags=("themis.app=Shell", "themis.gang=4"))
    application_id = local_yarn.client.submit_distributed_shell(job)
    app = local_yarn.client.wait(application_id)

    assert app["finalStatus"] == "SUCCEEDED", app["diagnostics"]
    # YARN 3.2 lower-cases tags.
    assert sorted(app["applicationTags"].split(",")) == ["themis.app=shell", "themis.gang=4"]
    runs = [run for run in local_yarn.container_runs() if application_id.removeprefix("application") in run.container_id]
    workers = [run for run in runs if run.gpus == 2]
    assert len(workers) == 2
    assert len(runs) == 3  # the application master needs none
    for run in workers:
        # The log's word against the container's own.
        assert local_yarn.container_log(run.container_id).strip() == f"on {run.host}"
        assert run.end_ms is not None
        assert 2_000 <= run.end_ms - run.start_ms < 60_000


def test_a_killed_application_ends_and_frees_its_gpus(local_yarn: LocalYarn, tmp_path: Path) -> None:
    application_id, pid = started_container(local_yarn, tmp_path / "pid")
    assert sum(free_gpus(node) for node in local_yarn.client.nodes()) == 11
    local_yarn.client.kill(application_id)
    assert local_yarn.client.wait(application_id)["state"] == "KILLED"
    until(lambda: not is_alive(pid))
    until(lambda: sum(free_gpus(node) for node in local_yarn.client.nodes()) == 12)


def test_a_failed_submission_is_reported_with_the_clients_words(local_yarn: LocalYarn) -> None:
    with pytest.raises(LocalYarnError, match="QueueInfo"):
        local_yarn.client.submit_distributed_shell(ShellJob(queue="no-such-queue"))


def test_containers_outlive_a_killed_rm_and_nothing_outlives_stop(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    yarn = LocalYarn(LocalYarnConfig(nodes=ONE_NODE))
    yarn.start()
    try:
        application_id, container_pid = started_container(yarn, tmp_path / "pid")
        rm_pid = yarn.pids["rm"]
        yarn.kill_rm()
        assert is_alive(container_pid)
        yarn.restart_rm()
        assert yarn.pids["rm"] != rm_pid
        assert yarn.client.app(application_id)["state"] in {"ACCEPTED", "RUNNING"}
        until(lambda: yarn.client.app(application_id)["runningContainers"] == 2)
        until(lambda: free_gpus(yarn.client.nodes()[0]) == 0)
        assert is_alive(container_pid)
        daemon_pids, work_dir = list(yarn.pids.values()), yarn.work_dir
        assert len(daemon_pids) == 2
        yarn.node(0).pause()  # a daemon that cannot react must not survive either
    finally:
        yarn.stop()
    assert not [pid for pid in [*daemon_pids, container_pid] if is_alive(pid)]
    assert not work_dir.exists()


def test_nothing_outlives_a_harness_that_is_killed(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "yarn_bridge.local", "up", "--nodes", "1:rack0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as harness:
        try:
            assert harness.stdout is not None
            told = json.loads(harness.stdout.readline())
            attach(told).submit_distributed_shell(ShellJob(command=f"echo $$ > {tmp_path}/pid; exec sleep 600"))
            until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        finally:
            harness.send_signal(signal.SIGKILL)
    pids = [*told["pids"].values(), int((tmp_path / "pid").read_text())]
    until(lambda: not any(is_alive(pid) for pid in pids))
    until(lambda: not Path(told["work_dir"]).exists())


def test_two_clusters_at_once_do_not_meet(local_yarn: LocalYarn) -> None:
    with LocalYarn(LocalYarnConfig(nodes=ONE_NODE)) as other:
        assert len(other.client.nodes()) == 1
        assert len(local_yarn.client.nodes()) == 4
    local_yarn.check()


def test_a_daemon_that_cannot_start_is_reported_with_its_log(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    config = LocalYarnConfig(nodes=ONE_NODE, scheduler_class="org.example.NoScheduler", work_dir=tmp_path)
    yarn = LocalYarn(config)
    with pytest.raises(DaemonDiedError, match=r"ClassNotFoundException: org\.example\.NoScheduler"):
        yarn.start()
    assert yarn.pids == {}
    assert (tmp_path / "logs" / "rm.log").stat().st_size  # what somebody has to read now is kept
