"""`make run` on a real YARN, once, and what it must leave behind: every claim from evidence outside the arbiter."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.runs import LocalRun
from themis_arbiter.agent.verify import verify_counts
from themis_arbiter.cli.local.account import moves, run_bounds
from themis_arbiter.cli.local.samples import CLUSTER, SAMPLES
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.replay import replay_with
from themis_arbiter.sim.run_check import check_run

pytest_plugins = ["tests.support.local_run"]
pytestmark = [pytest.mark.yarn, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(480)]

REPLAY: Final = """
import sys
from pathlib import Path
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.engine.replay import replay_with
result = replay_with(Path(sys.argv[1]), Arbiter)
print(result.steps, result.first_difference)
"""


def test_every_app_succeeds_by_yarns_own_word_as_its_own_user(local_run: LocalRun) -> None:
    apps = {app["id"]: app for app in local_run.yarn_apps}
    assert len(apps) == len(SAMPLES)
    for sample in SAMPLES:
        app = apps[local_run.job_ids[sample.name]]
        assert (app["user"], app["state"], app["finalStatus"]) == (sample.user, "FINISHED", "SUCCEEDED"), app["diagnostics"]
    assert local_run.status == 0, local_run.told
    assert local_run.summary["problems"] == []


def test_no_rule_of_the_judge_is_broken(local_run: LocalRun) -> None:
    facts = local_run.facts()
    late = [local_run.job_ids[sample.name] for sample in SAMPLES if sample.is_late]
    assert check_run(facts, local_run.stays(), run_bounds(facts, local_run.job_ids), late) == []


def test_the_run_had_something_to_judge(local_run: LocalRun) -> None:
    facts, stays = local_run.facts(), local_run.stays()
    assert facts.gpus == {f"127.0.1.{k}": gpus for k, (gpus, _) in enumerate(CLUSTER, start=1)}
    assert len(set(facts.racks.values())) == 2
    assert len(facts.grid_ends_ms) >= 3
    assert moves(facts) >= 4
    assert {x.app_id for x in facts.leases} == {sample.app_id for sample in SAMPLES}
    assert any(len(x.ends) > 1 for x in facts.leases), "no lease was renewed"
    # The log knows every container that ever held a GPU, each with its whole life.
    assert {s.job_id for s in stays} == set(local_run.job_ids.values())
    assert all(s.released_ms is not None and s.ended_ms is not None for s in stays)
    assert sum(s.gpus for s in stays) > sum(sample.gpus_max for sample in SAMPLES if not sample.command)


def test_no_unit_of_work_is_lost_or_done_twice(local_run: LocalRun) -> None:
    for sample in SAMPLES:
        if not sample.command:
            counts = verify_counts(local_run.job_dirs[sample.app_id])
            assert counts.is_exact, (sample.app_id, counts)
            assert counts.done_once == sample.steps * sample.gang


def test_the_account_agrees_with_the_log_and_the_journal(local_run: LocalRun) -> None:
    facts, stays = local_run.facts(), local_run.stays()
    granted = Counter(x.app_id for x in facts.leases if x.granted_ms is not None)
    for app in local_run.summary["apps"]:
        assert app["leases_granted"] == granted[app["app_id"]] == app["leases_ended"]
        own = [s for s in stays if s.job_id == app["job_id"]]
        # Only running containers are served; one that never ran is not.
        gpu_s = sum(s.gpus * ((s.left_ms or facts.last_ms) - (s.running_ms or s.left_ms or 0)) for s in own) / 1_000
        late_s = 1.5 * sum(s.gpus for s in own)  # a start or an end is known up to a heartbeat late, more on a busy machine
        assert app["gpu_s"] == pytest.approx(gpu_s, rel=0.1, abs=late_s)
        assert app["rho"] == pytest.approx(app["t_shared_s"] / app["t_independent_s"], rel=0.01)
        assert app["t_independent_s"] >= local_run.settings.rho_floor_ms / 1_000
        assert sum(app["most_held"].values()) <= next(s.gpus_max for s in SAMPLES if s.app_id == app["app_id"])


def test_what_it_said_while_it_worked(local_run: LocalRun) -> None:
    assert "local profile" in local_run.told
    assert "lease 20 s, notice 3 s, rho floor 20 s" in local_run.told
    assert local_run.told.count("train-wide RUNNING") >= 5
    assert local_run.summary["http_url"] in local_run.told
    picture = Path(local_run.summary["picture"]).read_text()
    assert all(sample.app_id in picture for sample in SAMPLES)
    assert json.loads((local_run.run_dir / "summary.json").read_text()) == local_run.summary


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_journal_replays_byte_for_byte_whatever_the_hash_seed(local_run: LocalRun, seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, str(local_run.journal)],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    steps, _, difference = done.stdout.strip().partition(" ")
    assert (done.returncode, difference) == (0, "None"), done.stderr or done.stdout[:2_000]
    assert int(steps) > 100


def test_the_verb_replays_the_journal_to_the_same_decisions(local_run: LocalRun) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "themis_arbiter.cli", "replay", str(local_run.journal), "--check", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["is_same"], told["is_cut_off"], told["first_difference"]) == (True, False, None)
    assert told["steps"] == (local_run.journal.read_bytes().count(b"\n") - 1) // 2 > 100


def test_the_arbiters_own_invariants_hold_at_every_step_of_the_journal(local_run: LocalRun) -> None:
    def make(settings: Settings) -> Arbiter:
        return Arbiter(settings, is_checked=True)

    assert replay_with(local_run.journal, make).first_difference is None
