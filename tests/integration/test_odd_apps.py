"""Apps that ask for what can never be, lose their master or go without a word, on a real YARN with arbiter and bridge.

The others must not notice; the arbiter must say what is the matter, on YARN's page and in `themis explain`.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.stage import LEASE_MS, Stage
from themis_arbiter.agent.launch import TrainingApp
from themis_arbiter.agent.verify import verify_counts
from themis_arbiter.cli.failures import NotSo
from yarn_bridge.local import ShellJob
from yarn_bridge.local.config import GPU

pytestmark = [pytest.mark.yarn, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(420)]

GPUS: Final = 12  # of the cluster; its largest node has 4
ALLOCATION_MAX: Final = 8  # what YARN lets one container ask for: more than any node has
WAIT_S: Final = 90.0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    site = {f"yarn.resource-types.{GPU}.maximum-allocation": str(ALLOCATION_MAX)}
    built = Stage(tmp_path_factory.mktemp("odd-apps"), fallback_after_ms=600_000, more_site=site)
    try:
        built.start()
        yield built
    finally:
        built.stop()


def until(holds: Callable[[], bool], what: str, limit_s: float = WAIT_S, tell: Callable[[], str] = str) -> None:
    deadline_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not so after {limit_s:g} s; {tell()}"
        time.sleep(0.2)


def training(stage: Stage, name: str, user: str, *, steps: int = 5_000, gang: int = 1, most: int = 1) -> tuple[str, Path]:
    folder = stage.run_dir / "jobs" / name
    app = TrainingApp(name=name, steps=steps, step_ms=200, job_dir=folder, gang=gang, containers_max=most)
    return stage.submit_training(app, user), folder


def explained(stage: Stage, app_id: str) -> str:
    try:
        with stage.asking() as client:
            return "\n".join(client.explain(app_id).lines)
    except NotSo as err:
        return str(err)


def held(stage: Stage, app_id: str) -> int:
    with stage.asking() as client:
        return len([x for x in client.leases(app_id).leases if not x.is_next and x.state == "active"])


def page(stage: Stage, application_id: str) -> str:
    """What YARN shows of the application and of its attempts; a running attempt's own line is only in the latter."""
    attempts = stage.yarn.client.get(f"/apps/{application_id}/appattempts")
    return f"{stage.yarn.client.app(application_id)['diagnostics']} {attempts}"


def master_of(folder: Path) -> int:
    """The pid of the Java master whose driver works in `folder`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"-Dproc_themis_app" in words and str(folder).encode() in words and words[0].endswith(b"java"):
                return int(entry.name)
    return 0


def test_a_gang_larger_than_the_cluster_is_told_so_and_waits_without_harm(stage: Stage) -> None:
    application, _ = training(stage, "huge", "ann", gang=GPUS + 1, most=GPUS + 1)
    until(lambda: f"the cluster has {GPUS}" in page(stage, application), "told", tell=lambda: page(stage, application))
    assert f"it needs {GPUS + 1} GPUs at once" in page(stage, application)
    assert f"it needs {GPUS + 1} GPUs at once" in explained(stage, "ann/huge")
    served, folder = training(stage, "small", "ben", steps=10)
    assert stage.yarn.client.wait(served, WAIT_S)["finalStatus"] == "SUCCEEDED"
    assert verify_counts(folder).is_exact
    stage.yarn.client.kill(application)
    until(lambda: "ended" in explained(stage, "ann/huge"), "the killed app is over")


@pytest.mark.parametrize("gpus", [ALLOCATION_MAX, ALLOCATION_MAX + 1])
def test_a_container_larger_than_any_node_is_yarns_to_refuse_whatever_its_maximum_says(stage: Stage, gpus: int) -> None:
    # YARN takes the largest node for its maximum where that is less, so it fails the ask before anybody else sees it.
    wide = ShellJob(command="sleep 1", gpus=gpus, tags=(f"themis.app=wide-{gpus}",))
    application = stage.yarn.client.submit_distributed_shell(wide, user="cat")
    assert stage.yarn.client.wait(application, WAIT_S)["finalStatus"] == "FAILED"
    until(lambda: "It ended FAILED" in explained(stage, f"cat/wide-{gpus}"), "the arbiter heard of it")
    served, _ = training(stage, f"beside-{gpus}", "ben", steps=10)
    assert stage.yarn.client.wait(served, WAIT_S)["finalStatus"] == "SUCCEEDED"


def test_an_app_whose_master_is_killed_goes_on_with_a_second_one_and_loses_no_work(stage: Stage) -> None:
    application, folder = training(stage, "orphan", "eve", steps=150, gang=2, most=2)
    until(lambda: held(stage, "eve/orphan") == 2 and verify_counts(folder).done_once > 4, "it runs")
    first = master_of(folder)
    assert first, "its master is not found"
    os.kill(first, signal.SIGKILL)
    until(lambda: master_of(folder) not in (0, first), "a second master")
    ended = stage.yarn.client.wait(application, WAIT_S)
    assert ended["finalStatus"] == "SUCCEEDED", ended["diagnostics"]
    assert verify_counts(folder).is_exact
    until(lambda: held(stage, "eve/orphan") == 0, "its leases are over", 3 * LEASE_MS / 1_000)
    until(lambda: "It ended SUCCEEDED" in explained(stage, "eve/orphan"), "the arbiter heard of it")


def test_what_an_app_held_that_was_killed_is_anothers_at_once(stage: Stage) -> None:
    application, _ = training(stage, "hog", "fay", most=GPUS)
    until(lambda: held(stage, "fay/hog") == GPUS, "it has all")
    _, folder = training(stage, "heir", "gus", steps=60, gang=4, most=4)
    until(lambda: "asks for" in explained(stage, "gus/heir") or "could use 4" in explained(stage, "gus/heir"), "it asks")
    stage.yarn.client.kill(application)
    until(lambda: "It ended KILLED" in explained(stage, "fay/hog"), "the arbiter hears of its end", 20)
    until(lambda: held(stage, "gus/heir") == 4, "the heir has its gang", LEASE_MS / 1_000)
    until(lambda: folder.joinpath("result.json").exists(), "it finishes")
