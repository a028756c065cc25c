"""verify_counts sees what went wrong, from the logs alone."""

import json
from pathlib import Path

import pytest

from themis_arbiter.agent.tasklog import LogWriter, log_path, read_log
from themis_arbiter.agent.verify import JOB_FILE, RESULT_FILE, main, verify_counts
from themis_arbiter.agent.work import Unit, expected_sum, unit_value

STEPS = 5


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """A job of five steps that two containers did, with nothing wrong."""
    (tmp_path / JOB_FILE).write_text(json.dumps({"steps": STEPS, "parts": 1}))
    (tmp_path / RESULT_FILE).write_text(json.dumps({"value": expected_sum(STEPS, 1)}))
    for step in range(STEPS):
        append(tmp_path, f"c{step % 2}", step)
    return tmp_path


def append(job_dir: Path, container: str, step: int, value: int | None = None) -> None:
    log = LogWriter(job_dir, container, slot=0)
    unit = Unit(step, 0)
    log.begun(unit, 1, 0)
    log.done(unit, unit_value(unit) if value is None else value, 1, 2, 0)


def test_a_clean_job_is_exact(job_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = verify_counts(job_dir)
    assert (counts.done_once, counts.containers, counts.begun_in_vain, counts.is_exact) == (STEPS, 2, 0, True)
    assert main([str(job_dir)]) == 0
    assert json.loads(capsys.readouterr().out)["is_exact"] is True


def test_a_step_done_twice_shows(job_dir: Path) -> None:
    append(job_dir, "c9", 3)
    counts = verify_counts(job_dir)
    assert (counts.done_once, counts.done_twice, counts.is_exact) == (STEPS - 1, 1, False)


def test_a_step_that_is_missing_or_torn_shows(job_dir: Path) -> None:
    path = log_path(job_dir, "c1")
    path.write_bytes(path.read_bytes()[:-1])
    counts = verify_counts(job_dir)
    assert (counts.missing, counts.begun_in_vain, counts.is_exact) == (1, 1, False)
    assert read_log(job_dir, "c1").torn == 1
    append(job_dir, "c2", 3)
    (job_dir / RESULT_FILE).unlink()
    assert not verify_counts(job_dir).has_result


def test_a_wrong_value_and_a_step_of_another_job_show(job_dir: Path) -> None:
    append(job_dir, "c9", STEPS)
    assert verify_counts(job_dir).wrong_values == 1
    append(job_dir, "c9", STEPS + 1, value=1)
    assert verify_counts(job_dir).wrong_values == 2


def test_a_result_that_the_logs_do_not_give_is_not_right(job_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job_dir / RESULT_FILE).write_text(json.dumps({"value": expected_sum(STEPS, 1) + 1}))
    counts = verify_counts(job_dir)
    assert (counts.done_once, counts.is_result_right, counts.is_exact) == (STEPS, False, False)
    assert main([str(job_dir)]) == 1
    capsys.readouterr()


def test_unreadable_input_is_status_2_and_one_line(job_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_path(job_dir, "c0").write_text('{"begun": [0]}\n')
    assert main([str(job_dir)]) == 2
    assert main([str(job_dir / "absent")]) == 2
    assert main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "c0.jsonl:1: not a line of a task's log" in lines[0]
