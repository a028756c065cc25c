"""Schedules under every policy as they follow from its rule by hand (golden/README.md), lease by lease."""

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from themis_arbiter.cli.main import run
from themis_arbiter.core.policies import POLICIES

GOLDEN: Final = Path(__file__).parent / "golden"
TRACES: Final = ("placement", "queue", "sharing")
CASES: Final = [(trace, policy) for trace in TRACES for policy in sorted(POLICIES)]
RACK: Final = "r0m"


@cache
def expected(trace: str) -> dict[str, Any]:
    return dict(yaml.safe_load((GOLDEN / trace / "expected.yaml").read_text(encoding="utf-8")))


def simulated(trace: str, policy: str, out: Path) -> Path:
    folder, found = GOLDEN / trace, expected(trace)
    command = ["simulate", f"--trace={folder / 'trace.csv'}", f"--cluster={folder / 'cluster.yaml'}", f"--policy={policy}"]
    if (folder / "models.csv").exists():
        command.append(f"--models={folder / 'models.csv'}")
    command += [*found["flags"], *found.get("policy_flags", {}).get(policy, ()), "--no-report", f"--out={out}"]
    assert run(command) == 0
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("trace", "policy"), CASES)
def test_the_schedule_is_the_one_worked_out_by_hand(trace: str, policy: str, tmp_path: Path) -> None:
    out = simulated(trace, policy, tmp_path)
    got = defaultdict(list)
    for row in rows(out / "allocations.csv"):
        gpus = row["gpus"].replace(RACK, "").replace(";", " ")
        got[row["job_id"]].append(f"{row['start_s']}-{row['end_s']} {gpus}")
    found = expected(trace)
    assert dict(got) == found["schedules"][found["policies"][policy]]
    finishes = {row["job_id"]: row["finish_s"] for row in rows(out / "jobs.csv")}
    assert finishes == {job: leases[-1].split()[0].split("-")[1] for job, leases in got.items()}


@pytest.mark.parametrize("trace", TRACES)
def test_the_fair_times_are_those_worked_out_by_hand(trace: str, tmp_path: Path) -> None:
    out = simulated(trace, "fifo", tmp_path)
    fair = {row["app_id"]: float(row["t_independent_s"]) for row in rows(out / "apps.csv")}
    assert fair == pytest.approx(expected(trace)["t_independent_s"], abs=1e-3)


@pytest.mark.parametrize("trace", TRACES)
def test_every_policy_has_a_schedule_and_every_schedule_its_reasons(trace: str) -> None:
    found = expected(trace)
    assert found["policies"].keys() == POLICIES.keys()
    assert found["schedules"].keys() == set(found["policies"].values())
    reasons = (GOLDEN / trace / "reasoning.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in reasons for name in found["schedules"])
    assert all(policy in reasons for policy in POLICIES)
    distinct = {str(sorted(schedule.items())) for schedule in found["schedules"].values()}
    assert len(distinct) == len(found["schedules"]) >= 5
