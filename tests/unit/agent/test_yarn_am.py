"""Events from the application master, and the arguments of a submission."""

from pathlib import Path

import pytest

from themis_arbiter.adapters.grpc.tags import parse_tags
from themis_arbiter.agent.job import JobPlan
from themis_arbiter.agent.launch import TrainingApp, py4j_jar, submit_arguments
from themis_arbiter.agent.tasklog import LogWriter
from themis_arbiter.agent.training import main, open_job, parse
from themis_arbiter.agent.work import Unit, unit_value
from themis_arbiter.agent.yarn_am import ADDRESS_ENV, Allocated, Completed, Preempt, parse_events

PLAN = JobPlan(gang=1, containers_max=2, checkpoint_every=5, step_ms=10)


def test_events_are_typed_and_unknown_ones_are_left_out() -> None:
    raw = b"""[
      {"type": "allocated", "container_id": "c", "allocation_request_id": 3, "node": "n", "memory_mb": 128, "gpus": 1},
      {"type": "of_a_later_version", "colour": "blue"},
      {"type": "preempt", "container_id": "c"},
      {"type": "completed", "container_id": "c", "exit_status": -102, "diagnostics": "preempted"}]"""
    assert parse_events(raw) == [
        Allocated(container_id="c", allocation_request_id=3, node="n", memory_mb=128, gpus=1),
        Preempt(container_id="c"),
        Completed(container_id="c", exit_status=-102, diagnostics="preempted"),
    ]


@pytest.mark.parametrize("raw", [b"{}x", b'[{"type": "preempt"}]', b'[{"container_id": "c"}]', b"[1]"])
def test_malformed_events_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"events|Extra data"):
        parse_events(raw)


def test_the_driver_understands_what_a_submission_passes_on(tmp_path: Path) -> None:
    app = TrainingApp(name="a", steps=30, step_ms=200, gang=4, job_dir=tmp_path, more_tags=["x=y"])
    arguments = submit_arguments(app, app_jar=tmp_path / "app.jar", python=Path("/usr/bin/python3"))
    command = arguments[arguments.index("--") + 1 :]
    assert command[:3] == ["/usr/bin/python3", "-m", "themis_arbiter.agent.training"]
    args = parse(command[3:])
    assert (args.steps, args.step_ms, args.gang, args.max_containers, args.dir) == (30, 200, 4, 4, tmp_path)
    tags = arguments[arguments.index("--tags") + 1].split(",")
    assert tags == ["themis.app=a", "themis.gang=4", "themis.work-gpu-s=24", "themis.on-lease-end=checkpoint", "x=y"]
    assert py4j_jar().is_file()


def test_a_second_attempt_goes_on_from_what_the_logs_show(tmp_path: Path) -> None:
    assert open_job(tmp_path, PLAN, 4).ledger.done == 0
    LogWriter(tmp_path, "c1", 0).done(Unit(2, 0), unit_value(Unit(2, 0)), 1, 2, 0)
    job = open_job(tmp_path, PLAN, 4)
    assert (job.ledger.done, job.counters.units_recovered) == (1, 1)
    with pytest.raises(ValueError, match="holds another job"):
        open_job(tmp_path, PLAN, 5)


def test_wrong_use_is_status_2_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ADDRESS_ENV, raising=False)
    words = ["--steps", "3", "--step-ms", "1", "--dir", str(tmp_path)]
    assert main(words) == 2
    assert "org.themis.app.Master" in capsys.readouterr().err
    assert main([*words, "--gang", "2", "--max-containers", "3"]) == 2
    assert "a gang of 2" in capsys.readouterr().err


def test_a_training_app_declares_its_speeds_by_gpu_type_as_the_arbiter_reads_them(tmp_path: Path) -> None:
    app = TrainingApp(name="a", steps=1, step_ms=1_000, job_dir=tmp_path, gpu_speeds="V100=1;k80=.25")
    assert parse_tags(app.tags).gpu_speeds == (("k80", 0.25), ("v100", 1.0))
    assert parse_tags(TrainingApp(name="a", steps=1, step_ms=1_000, job_dir=tmp_path).tags).gpu_speeds is None
    with pytest.raises(ValueError, match="type=speed"):
        TrainingApp(name="a", steps=1, step_ms=1_000, job_dir=tmp_path, gpu_speeds="v100")
