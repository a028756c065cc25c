"""The sample training app on a real YARN: its tasks' own logs show every step once, whatever is taken from it.

The cluster is plain CapacityScheduler with YARN's own preemption between two queues, which sends the same messages and
the same exit statuses as the plugin does.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from themis_arbiter.agent.launch import TrainingApp, py4j_jar, submit_arguments
from themis_arbiter.agent.tasklog import read_logs
from themis_arbiter.agent.verify import Counts, verify_counts
from yarn_bridge.local import HadoopJars, LocalYarn, LocalYarnConfig, NodeSpec

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(300)]

APP_JAR: Final = Path(__file__).resolve().parents[2] / "yarn_bridge/java/app/target/themis-yarn-app-0.1.0.jar"
KILL_WAIT_MS: Final = 2_000
MONITOR: Final = "yarn.resourcemanager.monitor.capacity.preemption"
SITE: Final = {
    "yarn.resourcemanager.scheduler.monitor.enable": "true",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "5000",
    f"{MONITOR}.monitoring_interval": "300",
    f"{MONITOR}.max_wait_before_kill": str(KILL_WAIT_MS),
    f"{MONITOR}.total_preemption_per_round": "1.0",
    f"{MONITOR}.natural_termination_factor": "1.0",
}


@pytest.fixture(scope="module")
def yarn(hadoop_jars: HadoopJars) -> Iterator[LocalYarn]:
    """Two nodes of 4 and 2 GPUs; queues `a` and `b` are entitled to half each."""
    assert APP_JAR.is_file(), "the application master is not built: make plugin"
    nodes = (NodeSpec(gpus=4, rack="rack0"), NodeSpec(gpus=2, rack="rack1"))
    with LocalYarn(LocalYarnConfig(nodes=nodes, queues={"a": 50, "b": 50}, yarn_site=SITE)) as cluster:
        yield cluster


class Run:
    """One submitted app and what can be seen of it from outside."""

    def __init__(self, yarn: LocalYarn, app: TrainingApp) -> None:
        self.yarn, self.app = yarn, app
        arguments = submit_arguments(app, app_jar=APP_JAR)
        done = yarn.client.java("org.themis.app.Submit", arguments, [APP_JAR, py4j_jar()])
        assert done.returncode == 0, done.stderr[-2_000:]
        self.application_id: str = json.loads(done.stdout)["application_id"]

    def tasks(self) -> dict[str, int]:
        """Pids of the tasks' processes by container."""
        return self._processes(r"themis_arbiter\.agent\.task .*--container (container_\S+)")

    def masters(self) -> list[int]:
        return list(self._processes(r"(-Dproc_themis_app) .*" + re.escape(str(self.app.job_dir)) + " ").values())

    def drivers(self) -> list[int]:
        # Anchored: the master's command line holds the driver's.
        return list(self._processes(r"^\S+ -m (\S+\.training) .*" + re.escape(str(self.app.job_dir)) + " ").values())

    def begun(self) -> int:
        return sum(len(log.lines) for log in read_logs(self.app.job_dir))

    def done(self) -> int:
        return sum(len(log.done) for log in read_logs(self.app.job_dir))

    def end(self) -> tuple[Counts, dict[str, Any]]:
        """Waits for success; the counts from the tasks' logs, and what the driver says of itself."""
        app = self.yarn.client.wait(self.application_id, 120)
        assert app["finalStatus"] == "SUCCEEDED", app["diagnostics"]
        until(lambda: not self.tasks() and not self.drivers())
        return verify_counts(self.app.job_dir), json.loads((self.app.job_dir / "result.json").read_text())

    def _processes(self, pattern: str) -> dict[str, int]:
        number = self.application_id.removeprefix("application_")
        found: dict[str, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                match = re.search(pattern, words)
                if match and (number in match[1] or not match[1].startswith("container_")):
                    found[match[1]] = int(entry.name)
        return found


def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        time.sleep(0.05)


def exits(result: dict[str, Any]) -> list[str]:
    return [each["what"] for each in result["timeline"] if each["what"].startswith("completed")]


def test_an_elastic_app_goes_on_from_the_count_when_a_task_is_killed(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="elastic", queue="a", steps=60, step_ms=200, containers_max=3, job_dir=tmp_path))
    until(lambda: len(run.tasks()) == 3 and run.done() > 6)
    victim, pid = min(run.tasks().items())
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(run.tasks()) - {victim}) == 3)
    counts, result = run.end()
    assert counts.is_exact
    assert (counts.done_once, counts.containers, result["failures"], result["restarts"]) == (60, 4, 1, 1)
    assert "completed 137" in exits(result)


def test_a_gang_stops_when_a_member_is_killed_and_forms_again(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="gang", queue="a", steps=30, step_ms=300, gang=4, job_dir=tmp_path))
    until(lambda: run.done() >= 12)
    os.kill(min(run.tasks().items())[1], signal.SIGKILL)
    counts, result = run.end()
    assert counts.is_exact
    assert (counts.parts, counts.done_once, counts.containers) == (4, 120, 5)
    assert (result["failures"], result["restarts"]) == (1, 1)
    spans = sorted((line.start_ms, line.unit.step) for log in read_logs(tmp_path) for line in log.done)
    assert [step for _, step in spans] == sorted(step for _, step in spans), "a step began before the last one ended"


def test_noticed_containers_checkpoint_and_leave_by_themselves(yarn: LocalYarn, tmp_path: Path) -> None:
    first = TrainingApp(name="first", queue="a", steps=400, step_ms=200, containers_max=6, job_dir=tmp_path / "1")
    run = Run(yarn, first)
    until(lambda: len(run.tasks()) == 6 and run.done() > 6)
    later = Run(yarn, TrainingApp(name="later", queue="b", steps=20, step_ms=200, containers_max=3, job_dir=tmp_path / "2"))
    later_counts, _ = later.end()
    counts, result = run.end()
    assert counts.is_exact
    assert later_counts.is_exact
    assert result["preempted"] >= 3
    assert (result["failures"], result["units_redone"], counts.begun_in_vain) == (0, 0, 0)
    assert "completed -102" not in exits(result), "each left on notice, before it was killed"
    assert counts.containers > 6, "it asked again, and got GPUs once the other app was done"


def test_a_preempted_unit_is_done_again_and_counts_once(yarn: LocalYarn, tmp_path: Path) -> None:
    # Units so long that notice and kill both come while the first ones are in hand.
    slow = TrainingApp(name="slow", queue="a", steps=6, step_ms=15_000, containers_max=6, job_dir=tmp_path / "1")
    run = Run(yarn, slow)
    until(lambda: run.begun() >= 6)
    later = Run(yarn, TrainingApp(name="later", queue="b", steps=20, step_ms=200, containers_max=3, job_dir=tmp_path / "2"))
    assert later.end()[0].is_exact
    counts, result = run.end()
    assert counts.is_exact
    assert "completed -102" in exits(result)
    assert result["failures"] == 0
    assert result["units_redone"] == counts.begun_in_vain >= 1


def test_a_second_attempt_goes_on_from_the_checkpoint(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="again", queue="a", steps=60, step_ms=200, containers_max=3, job_dir=tmp_path))
    until(lambda: run.done() > 12)
    (master,), (driver,) = run.masters(), run.drivers()
    os.kill(master, signal.SIGKILL)
    until(lambda: driver not in run.drivers(), 10)
    counts, result = run.end()
    assert counts.is_exact
    assert result["units_recovered"] >= 1
    assert result["timeline"][0]["detail"] != "0 of 60 done"


def test_a_restart_of_the_resource_manager_costs_no_container(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="through", queue="a", steps=300, step_ms=200, containers_max=3, job_dir=tmp_path))
    until(lambda: len(run.tasks()) == 3 and run.done() > 3)
    before = run.tasks()
    yarn.kill_rm()
    done = run.done()
    until(lambda: run.done() > done + 6)
    yarn.restart_rm()
    assert run.tasks() == before
    os.kill(min(before.items())[1], signal.SIGKILL)
    counts, result = run.end()
    assert counts.is_exact
    assert (counts.containers, result["failures"]) == (4, 1)


def test_tasks_that_outlive_their_lost_node_do_no_step_twice(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="lost", queue="a", steps=800, step_ms=200, containers_max=6, job_dir=tmp_path))
    until(lambda: len(run.tasks()) == 6 and run.done() > 6)
    master_host = yarn.client.app(run.application_id)["amHostHttpAddress"].partition(":")[0]
    lost = next(index for index in range(2) if yarn.config.host(index) != master_host)
    before = run.tasks()
    yarn.node(lost).kill()
    assert run.tasks() == before, "containers run on without their NodeManager"
    until(lambda: len(run.tasks()) < len(before), 30)
    yarn.node(lost).start()
    counts, result = run.end()
    assert counts.is_exact
    assert result["failures"] == 0
    assert counts.containers > 6
    assert counts.begun_in_vain == 0, "what they had in hand they were let finish"


def test_the_app_fails_with_its_drivers_status_and_leaves_no_task(yarn: LocalYarn, tmp_path: Path) -> None:
    run = Run(yarn, TrainingApp(name="dead", queue="a", steps=900, step_ms=200, containers_max=2, job_dir=tmp_path))
    until(lambda: len(run.tasks()) == 2)
    os.kill(run.drivers()[0], signal.SIGKILL)
    app = yarn.client.wait(run.application_id)
    assert (app["finalStatus"], app["diagnostics"]) == ("FAILED", "the child exited with status 137.")
    until(lambda: not run.tasks() and not run.masters(), 10)
