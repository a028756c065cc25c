"""Random long runs, a few of them: made from their numbers, taken up where they were stopped, and told in a table."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.figures.starvation import LEASE_S, Served, main, paid_after, random_run, rows
from tests.support.replays import job


def test_a_share_pays_for_a_lease_of_the_gang_before_it_pays_for_all() -> None:
    jobs = [job("gang8", "j", 0.0, 8, 4 * LEASE_S), *(job(f"small{k}", "j", 0.0, 4, 1e6) for k in range(3))]
    # Four apps on 16 GPUs: 4 for each, half of the gang.
    assert paid_after(jobs, jobs[0], LEASE_S, 16) == pytest.approx(2 * LEASE_S)
    assert paid_after(jobs, jobs[0], jobs[0].duration_s, 16) == pytest.approx(8 * LEASE_S)


def test_who_is_late_is_told_with_the_run() -> None:
    found = [(7, (Served(8, 5.0, 4.0, 9.0), Served(1, 2.0, 1.0, 1.0))), (8, (Served(8, 9.0, 5.5, 8.0),))]
    gang, small = rows("guard", found)
    assert gang == ["guard", "gang of 8", "2", "9", "3.5 (run 8)", "50.0 %", "1.0 (run 8)", "100.0 %"]
    assert small[1:5] == ["small, the last one served", "1", "2", "1.0 (run 7)"]


def test_runs_are_the_same_again_and_are_not_made_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--runs", "2", "--policies", "guard", "--jobs", "1", "--out", str(tmp_path)]
    assert main(asked) == 0
    once = (tmp_path / "guard.jsonl").read_text()
    assert "gang of 32" in capsys.readouterr().out
    lines = [json.loads(line) for line in once.splitlines()]
    gangs = sum(j.gang in (8, 32) for j in random_run(0)[1].jobs)
    assert len(lines[0]["found"]) == gangs + 1
    assert random_run(1) == random_run(1)
    other = {"key": "1", "found": [asdict(Served(8, 77.0, 1.0, 1.0))]}  # what is there counts
    (tmp_path / "guard.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (lines[0], other)))
    assert main(asked) == 0
    assert "| 77 |" in capsys.readouterr().out
    assert (tmp_path / "guard.jsonl").read_text().count("\n") == 2
