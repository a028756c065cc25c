"""`make run` where there is no Java: it says so, and the same apps run on the simulated cluster in real time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.runs import RUN_TIMEOUT_S
from themis_arbiter.cli.local.account import moves, run_bounds
from themis_arbiter.cli.local.samples import SAMPLES
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.engine.replay import replay_with
from themis_arbiter.sim.run_check import check_run
from themis_arbiter.sim.run_facts import read_facts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


def test_without_java_the_same_apps_run_on_the_simulated_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "themis_arbiter.cli.local_run", "--dir", str(tmp_path / "run")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum("openjdk-17-jdk-headless" in line and "maven" in line and "simulated" in line for line in lines) == 1
    for sample in SAMPLES:
        assert any(line.startswith(sample.app_id) and "SUCCEEDED" in line for line in lines)
    (journal,) = (tmp_path / "run" / "journal").iterdir()
    facts = read_facts(journal)
    assert {job.final_status for job in facts.jobs} == {"SUCCEEDED"}
    assert moves(facts) >= 4
    assert replay_with(journal, Arbiter).first_difference is None
    # The judge does see this run: under bounds that nothing could keep, it objects.
    hasty = run_bounds(facts, {}, is_real=False)
    assert check_run(facts, [], hasty, ["sim-train-late"]), "no container is known, so the late app never got a GPU"
