"""`make run`'s parts, each by itself; the whole is in tests/e2e."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest

from themis_arbiter.cli import local_run
from themis_arbiter.cli.local import account, samples, watch
from themis_arbiter.cli.local.children import Child, ChildError, clean_environment
from themis_arbiter.cli.local.memory import PeakMemory, resident_tree_mb
from themis_arbiter.cli.local.samples import SAMPLES, Sample, arbiter_toml
from themis_arbiter.cli.local.stays import application_of, read_stays
from themis_arbiter.core.lease import Cause
from themis_arbiter.core.settings import Settings
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.server.config import load_config
from themis_arbiter.sim.run_check import Rule, Violation
from themis_arbiter.sim.run_facts import ContainerStay, JobFacts, JournalFacts, LeaseLife
from themis_arbiter.sim.run_picture import draw

RM_LOG = """\
2026-01-02 00:00:01,000 INFO RMContainerImpl: container_e03_17_0001_01_000002 Container Transitioned from NEW to ALLOCATED
2026-01-02 00:00:01,001 INFO FiCaSchedulerNode: Assigned container container_e03_17_0001_01_000002 of capacity <memory:128, \
vCores:1, yarn.io/gpu: 2> on host 127.0.1.3:44193, which has 2 containers, <memory:384, vCores:2> used
2026-01-02 00:00:01,002 INFO FiCaSchedulerNode: Assigned container container_e03_17_0001_01_000001 of capacity <memory:256, \
vCores:1> on host 127.0.1.1:44193, which has 1 containers, <memory:384, vCores:2> used
2026-01-02 00:00:01,500 INFO RMContainerImpl: container_e03_17_0001_01_000002 Container Transitioned from ACQUIRED to RUNNING
2026-01-02 00:00:02,000 INFO RMContainerImpl: container_e03_17_0001_01_000002 Container Transitioned from RUNNING to RELEASED
2026-01-02 00:00:02,250 DEBUG SchedulerNode: Released container container_e03_17_0001_01_000002 of capacity <memory:128, \
vCores:1, yarn.io/gpu: 2> on host 127.0.1.3:44193, which currently has 1 containers
"""


def stay(node: str, start: int, end: int | None, gpus: int = 1) -> ContainerStay:
    return ContainerStay(container_id=f"{node}-{start}", job_id="j", node=node, gpus=gpus, allocated_ms=start, ended_ms=end)


def lease(name: str, app: str, gpu: str, granted: int | None) -> LeaseLife:
    return LeaseLife(
        lease_id=name,
        grant_id="G",
        app_id=app,
        job_id="j",
        gpu=gpu,
        entered_ms=granted or 0,
        ends=((0, 20_000),),
        current_ms=granted,
        granted_ms=granted,
        draining_ms=10_000,
        drain_ms=10_000,
        deadline_ms=13_000,
        ended_ms=12_000,
        withdrawn_ms=12_000,
        drain_cause=Cause.UNWANTED,
    )


def facts(leases: list[LeaseLife]) -> JournalFacts:
    return JournalFacts(
        settings=Settings(),
        first_ms=0,
        last_ms=30_000,
        gpus={"n<1>": 2},
        racks={"n<1>": "/rack0"},
        jobs=(JobFacts(app_id="u/a", job_id="j", gang=1, unit=1, asked=((0, 1),)),),
        leases=tuple(leases),
        grid_ends_ms=(20_000,),
        rounds=2,
    )


def test_the_sample_apps_want_more_than_the_cluster_has_and_are_of_different_users() -> None:
    assert sum(s.gpus_max for s in SAMPLES) > sum(gpus for gpus, _ in samples.CLUSTER) == 12
    assert len({s.user for s in SAMPLES}) == len(SAMPLES)
    assert [s.work_gpu_s for s in SAMPLES] == [320, 200, 16, 160]
    assert [s.name for s in SAMPLES if s.is_late] == ["train-late"]


@pytest.mark.parametrize(("now_ms", "wait_s"), [(17_000, 20.0), (16_999, 0.001), (19_999, 17.001), (0, 17.0), (37_500, 19.5)])
def test_the_first_app_starts_when_a_round_of_the_grid_has_been_held(now_ms: int, wait_s: float) -> None:
    assert samples.until_start_s(now_ms) == pytest.approx(wait_s)


def test_the_settings_that_are_written_are_the_profile_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "themis.toml").write_text(arbiter_toml(tmp_path))
    config = load_config(tmp_path / "themis.toml", {})
    settings = config.settings
    assert (settings.lease_ms, settings.notice_ms, settings.rho_floor_ms) == (20_000, 3_000, 20_000)
    assert "lease 20 s, notice 3 s, rho floor 20 s" in samples.PROFILE
    assert config.store.path == tmp_path / "arbiter.db"
    assert config.journal is not None
    assert config.journal.folder == tmp_path / "journal"
    assert config.bridge.gateway_dir == samples.gateway_dir(tmp_path)
    assert config.grpc_address.port == config.http_address.port == 0


def test_stays_are_read_from_the_resource_managers_log(tmp_path: Path) -> None:
    (tmp_path / "rm.log").write_text(RM_LOG)
    (found,) = read_stays(tmp_path / "rm.log")
    second = 1_767_312_000_000  # 2026-01-02 in UTC
    assert found == ContainerStay(
        container_id="container_e03_17_0001_01_000002",
        job_id="application_17_0001",
        node="127.0.1.3",
        gpus=2,
        allocated_ms=second + 1_001,
        running_ms=second + 1_500,
        released_ms=second + 2_000,
        ended_ms=second + 2_250,
    )


def test_a_container_belongs_to_its_application_whatever_its_epoch() -> None:
    assert application_of("container_1795_0012_01_000003") == application_of("container_e07_1795_0012_02_000001")
    with pytest.raises(ValueError, match="is no container"):
        application_of("application_1795_0012")


def test_moves_count_only_changes_of_the_app_on_a_gpu() -> None:
    leases = [
        lease("1", "a", "n1:0", 100),
        lease("2", "b", "n1:0", 200),
        lease("3", "b", "n1:0", 300),
        lease("4", "a", "n1:1", 150),
        lease("5", "c", "n1:1", None),
    ]
    assert account.moves(facts(leases)) == 1


def test_the_most_held_is_of_one_moment() -> None:
    assert account.most_held([stay("n1", 0, 10), stay("n1", 10, 20), stay("n2", 5, None, gpus=2)]) == {"n1": 1, "n2": 2}
    assert account.most_held([stay("n1", 0, 5), stay("n2", 5, 9)]) == {"n1": 1}
    assert account.most_held([]) == {}


def settled(tmp_path: Path, status: str) -> account.Account:
    views = {
        s.app_id: admin_pb2.AppView(app_id=s.app_id, final_status=status, arrival_ms=1_000, finish_ms=31_000, rho=1.5)
        for s in SAMPLES
    }
    jobs = {s.name: s.name for s in SAMPLES}
    run = replace(
        facts([]), jobs=tuple(JobFacts(app_id=s.app_id, job_id=s.name, gang=1, unit=1, asked=((0, 1), (1, 0))) for s in SAMPLES)
    )
    late = ContainerStay(
        container_id="c", job_id="train-late", node="n<1>", gpus=1, allocated_ms=5, running_ms=6, released_ms=7, ended_ms=8
    )
    return account.settle(tmp_path, tmp_path / "journal", run, [late], views, jobs, is_real=False)


def test_an_account_names_every_app_that_did_not_succeed_and_every_broken_rule(tmp_path: Path) -> None:
    failed = settled(tmp_path, "FAILED")
    assert [p for p in failed.problems if "ended FAILED" in p] == [f"{s.app_id} ({s.name}) ended FAILED" for s in SAMPLES]
    good = settled(tmp_path, "SUCCEEDED")
    assert [v.rule for v in good.violations] == [Rule.LEASE_BINDS]
    assert good.problems == ("0.0-0.0 s: a container ran without a lease: train-late used 1 GPUs of n<1> under leases of 0",)
    assert json.loads(account.as_json(good, {"wall_s": 3}))["wall_s"] == 3


@pytest.mark.parametrize(("rule", "where"), [(Rule.LEASE_BINDS, "problems"), (Rule.NO_IDLE, "slow")])
def test_a_long_list_is_cut_and_what_only_came_late_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule, where: str
) -> None:
    many = [Violation(rule=rule, start_ms=k, end_ms=k + 1, what="x") for k in range(100)]
    monkeypatch.setattr(account, "check_run", lambda *_: many)
    settled_run = settled(tmp_path, "SUCCEEDED")
    lines = getattr(settled_run, where)
    assert len(lines) == account.VIOLATIONS_SHOWN_MAX + 1
    assert lines[-1] == "and 80 more"
    assert len(settled_run.problems) + len(settled_run.slow) == len(lines)


def test_a_progress_line_tells_each_apps_state_rho_and_gpus_by_node() -> None:
    first, second, third = (Sample(name=n, user="u", gpus_max=4) for n in ("one", "two", "three"))
    apps = {
        "u/one": admin_pb2.AppView(state="RUNNING", rho=0.456, gpus_held=3, gpus_wanted=4, gpus_by_node={"h2": 1, "h1": 2}),
        "u/two": admin_pb2.AppView(state="ENDED", rho=1.2, final_status="SUCCEEDED"),
    }
    line = watch.progress_line(12.3, (first, second, third), apps, watch.short_names(["h2", "h1"]))
    assert line == "   12 s  one RUNNING rho 0.46 3/4 GPUs n1:2,n2:1 | two SUCCEEDED rho 1.20 | three -"


def test_a_child_that_ends_before_it_is_ready_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("nonsense = 1\n")
    child = Child("serve", ("--config", str(tmp_path / "bad.toml")), clean_environment({}), tmp_path / "serve.log")
    try:
        with pytest.raises(ChildError, match=r"ended before it was ready(.|\n)*nonsense"):
            child.ready_line()
    finally:
        child.stop()
    with pytest.raises(ChildError, match="ended by itself"):
        child.check()


def test_settings_of_another_arbiter_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_LEASE", "1 s")
    env = clean_environment({"THEMIS_LOCAL_YARN": "mark"})
    assert {k: v for k, v in env.items() if k.startswith("THEMIS_")} == {"THEMIS_LOCAL_YARN": "mark"}
    assert env["PATH"] == os.environ["PATH"]


def test_memory_counts_descendants() -> None:
    code = "import sys; data = bytearray(40_000_000); sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    before = resident_tree_mb(os.getpid())
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        assert resident_tree_mb(os.getpid()) >= before + 38
        peak = PeakMemory()
        assert peak.stop() >= before + 38
        child.communicate()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").write_text("")
    with pytest.raises(click.UsageError, match="is not empty"):
        local_run.new_run_dir(tmp_path)
    with pytest.raises(click.UsageError, match="--dir"):
        local_run.new_run_dir(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    assert local_run.new_run_dir(None).parent == tmp_path / ".run"


def test_missing_tools_are_named_with_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_run.missing_tools() == ["javac", "mvn"]
    _, is_real = local_run.choose_stage(tmp_path, sys.stdout, is_simulated=False)
    told = capsys.readouterr().out
    assert not is_real
    assert told.count("\n") == 1
    assert "apt install openjdk-17-jdk-headless maven" in told


def test_a_hang_up_that_is_ignored_from_the_start_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with local_run.ends_on_signals():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_once_and_does_not_break_off_the_ending(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # whatever this process was started with
    ended: list[str] = []

    def run() -> None:
        with local_run.ends_on_signals():
            try:
                os.kill(os.getpid(), number)
                time.sleep(5)
            finally:
                os.kill(os.getpid(), number)  # an impatient second one
                ended.append("everything")

    try:
        with pytest.raises(KeyboardInterrupt):
            run()
        assert ended == ["everything"]
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_wrong_use_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_text("")
    monkeypatch.setattr(sys, "argv", ["local_run", "--dir", str(tmp_path)])
    assert local_run.main() == 2
    assert capsys.readouterr().err == f"run: --dir: {tmp_path} is not empty; name a new folder\n"


def test_the_picture_has_a_row_a_gpu_a_bar_a_lease_and_escaped_names() -> None:
    text = draw(facts([lease("L1", "u/a", "n<1>:0", 1_000), lease("L2", "u/a", "n<1>:1", 2_000)]))
    assert text.count("<title>u/a: L1 on n&lt;1&gt;:0</title>") == 2  # granted, then draining
    assert 'fill="url(#drain0)"' in text
    assert "n<1>" not in text
    assert draw(facts([])).startswith("<svg ")
