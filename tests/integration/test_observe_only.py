"""`observe_only` on a real YARN: the same submissions get the same containers as from plain CapacityScheduler."""

import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.live_yarn import live, until
from yarn_bridge.local import HadoopJars, LocalYarn, LocalYarnConfig, NodeSpec, ShellJob

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(600)]

# One way only for each ask to be placed: which node a heartbeat comes from first must not matter.
CONFIG: Final = LocalYarnConfig(
    nodes=(NodeSpec(gpus=3, rack="rack0"), NodeSpec(gpus=2, rack="rack1"), NodeSpec(gpus=1, rack="rack1")), host_net=11
)
MIDDLE: Final = ShellJob(command="sleep 600", gpus=2, tags=("themis.app=middle",))
SMALL: Final = ShellJob(command="sleep 600", gpus=1, tags=("themis.app=small",))
LATER: Final = ShellJob(command="sleep 1", gpus=1, n_containers=3, tags=("themis.app=later",))

HELD_S: Final = 8.0

Placed = dict[str, dict[tuple[str, int], int]]


def places(yarn: LocalYarn) -> Placed:
    """Containers with GPUs by job, node and size: a greedy holder, two that never end, one that has to wait for the first."""
    go = yarn.work_dir / "go"
    big = ShellJob(command=f"until [ -e {go} ]; do sleep 0.2; done", gpus=3, tags=("themis.app=big",))
    running: dict[str, str] = {}
    for name, job in (("big", big), ("middle", MIDDLE), ("small", SMALL)):
        running[name] = application = yarn.client.submit_distributed_shell(job)
        until(lambda application=application: len(gpu_runs(yarn, application)) == 1, f"{name} is placed")  # type: ignore[misc]
    running["later"] = yarn.client.submit_distributed_shell(LATER)
    until(lambda: yarn.client.app(running["later"])["state"] == "RUNNING", "the later one asks")
    time.sleep(HELD_S)  # long enough for an arbiter that acts to take the greedy one's lease, or to give the others none
    go.touch()
    assert yarn.client.wait(running["later"], 120)["finalStatus"] == "SUCCEEDED"
    assert yarn.client.app(running["middle"])["state"] == "RUNNING"
    placed: Placed = {name: dict(Counter(gpu_runs(yarn, application))) for name, application in running.items()}
    for name in ("middle", "small"):
        yarn.client.kill(running[name])
    return placed


def gpu_runs(yarn: LocalYarn, application: str) -> list[tuple[str, int]]:
    number = application.removeprefix("application")
    return [(run.host, run.gpus) for run in yarn.container_runs() if run.gpus and number in run.container_id]


def test_allocations_are_plain_yarns_and_what_would_have_been_is_recorded(hadoop_jars: HadoopJars, tmp_path: Path) -> None:
    with LocalYarn(CONFIG, progress=print) as plain:
        expected = places(plain)
    assert expected["later"] == {("127.0.11.1", 1): 3}, "it had to wait, and there is one place where it can run"
    with live(tmp_path, CONFIG, observe_only=True, lease="6 s", notice="1 s") as observed:
        assert places(observed.yarn) == expected
        counters = observed.counters()
        assert (counters["mode"], counters["precheck_refusals"], counters["commit_refusals"]) == ("OBSERVING", 0, 0)
        assert (counters["preempt_marks"], counters["kills"], counters["leases"]) == (0, 0, 0)
        assert observed.leases() == []
        rounds = observed.ask("rounds")["rounds"]
        assert rounds
        assert all("would" in r and r["moves"] == {} for r in rounds)
        assert any(r["would"] for r in rounds), "something would have moved"
