"""Where results go: no input and nothing of anybody else's is lost, no two runs are mixed, a broken run leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from themis_arbiter.cli.main import run
from themis_arbiter.sim import simulation
from themis_arbiter.sim.ledger_rows import RoundsObserver

TRACE = "app_id,job_id,arrival_s,n_gpus,duration_s\na,a0,0,1,100\nb,b0,5,2,100\n"
CLUSTER = "racks: [{machines: [{gpus: 2}]}]\n"
ITP = "submission_time,num_gpu,duration,job_id,model_name\n2020-03-01 00:00:00,1,100,j1,\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    Path("c.yaml").write_text(CLUSTER)
    return tmp_path


def simulate(*more: str, trace: str = "t.csv", out: str = "out") -> int:
    return run(["simulate", "--trace", trace, "--cluster", "c.yaml", "--out", out, *more])


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["simulate", "--trace", "own/jobs.csv", "--cluster", "c.yaml", "--out", "own"], "--trace own/jobs.csv"),
        (["simulate", "--trace", "link.csv", "--cluster", "c.yaml", "--out", "own"], "--trace link.csv"),
        (["simulate", "--trace", "t.csv", "--cluster", "own/figures/c.yaml", "--out", "own"], "--cluster own/figures/c.yaml"),
        (["compare", "--policy", "fifo,las", "--trace", "own/las/apps.csv", "--cluster", "c.yaml", "--out", "own"], "--trace"),
        (["trace", "convert", "itp", "own/jobs.csv", "own/../own/jobs.csv"], "IN own/jobs.csv"),
        (["trace", "generate", "own/jobs.csv", "--curves", "own/jobs.csv"], "--curves own/jobs.csv"),
    ],
)
def test_an_input_that_the_results_would_replace_is_refused(
    arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [Path("own/jobs.csv"), Path("own/figures/c.yaml"), Path("own/las/apps.csv")]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(ITP)
    Path("link.csv").symlink_to("own/jobs.csv")
    assert run(arguments) == 2
    told = one_line(capsys)
    assert name in told
    assert "would be overwritten" in told
    assert all(place.read_text() == ITP for place in places)


@pytest.mark.parametrize(("name", "text"), [("summary.json", '{"cost": 3}'), ("jobs.csv", "mine\n1\n"), ("summary.json", "x")])
def test_somebody_elses_results_are_refused(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out", name).write_text(text)
    assert simulate() == 2
    assert f"out/{name}: is not of a simulation" in one_line(capsys)
    assert run(["compare", "--policy", "fifo", "--trace", "t.csv", "--cluster", "c.yaml", "--out", "out"]) == 2
    assert [(p.name, p.read_text()) for p in Path("out").iterdir()] == [(name, text)]


def test_nothing_of_an_earlier_run_stays_beside_a_new_one() -> None:
    Path("s.csv").write_text("app_id,weight\na,2\n")
    assert simulate("--journal", "--shares", "s.csv") == 0
    earlier = {p.relative_to("out").as_posix() for p in Path("out").rglob("*")}
    assert earlier >= {"report.html", "figures/rho_cdf.svg", "arbiter.journal", "shares.csv"}
    Path("out/figures/mine.txt").write_text("mine")
    Path("out/notes.txt").write_text("mine")
    assert simulate("--no-report") == 0
    stays = {p.relative_to("out").as_posix() for p in Path("out").rglob("*")}
    plain = {"allocations.csv", "jobs.csv", "apps.csv", "rounds.jsonl", "summary.json"}
    assert stays == plain | {"notes.txt", "figures", "figures/mine.txt"}


def test_a_link_is_followed_and_a_pipe_written_through(here: Path) -> None:
    Path("link.csv").symlink_to("target.csv")
    assert run(["trace", "generate", "link.csv", "--apps", "2"]) == 0
    assert Path("link.csv").is_symlink()
    text = Path("target.csv").read_text()
    assert text.startswith("app_id,")
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()))
    reader.start()
    assert run(["trace", "generate", "pipe", "--apps", "2"]) == 0
    reader.join(timeout=30)
    assert read == [text]
    assert Path("pipe").is_fifo()
    assert not list(here.glob(".*.new"))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["simulate", "--trace", "t.csv", "--cluster", "c.yaml", "--out", ""], "the name is empty"),
        (["compare", "--policy", "fifo", "--trace", "t.csv", "--cluster", "c.yaml", "--out", ""], "the name is empty"),
        (["sweep", "--out", "", "--", "--trace", "t.csv", "--cluster", "c.yaml"], "the name is empty"),
        (["trace", "generate", ""], "the name is empty"),
        (["trace", "convert", "itp", "t.csv", ""], "the name is empty"),
        (["trace", "generate", "."], "is a directory"),
        (["simulate", "--trace", "t.csv", "--cluster", "c.yaml", "--out", "c.yaml"], "'c.yaml' is a file"),
        (["simulate", "--trace", "t.csv", "--cluster", "c.yaml", "--out", "/dev/null"], "'/dev/null' is a file"),
        (["sweep", "--out", "c.yaml/in/it", "--", "--trace", "t.csv", "--cluster", "c.yaml"], "c.yaml' is a file"),
    ],
)
def test_a_place_that_cannot_hold_results_is_wrong_use(
    arguments: list[str], what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert what in one_line(capsys)
    assert {p.name for p in here.iterdir()} == {"t.csv", "c.yaml"}


@pytest.mark.parametrize("has_folder", [False, True])
def test_an_interrupted_run_leaves_nothing_that_looks_finished(
    has_folder: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if has_folder:
        assert simulate() == 0
        capsys.readouterr()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulation, "write_run", interrupt)
    assert simulate("--journal") == 130
    assert "interrupted; no results are kept in out; start the same command again" in one_line(capsys)
    assert list(Path("out").rglob("*")) == []
    assert Path("out").exists() is has_folder


def test_a_full_disk_is_one_line_and_leaves_no_part(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    made = RoundsObserver.__init__

    def with_full_disk(self: RoundsObserver, lease_ms: int, renewed: object, _records: object) -> None:
        made(self, lease_ms, renewed, Full())  # type: ignore[arg-type]

    monkeypatch.setattr(RoundsObserver, "__init__", with_full_disk)
    assert simulate() == 1
    assert one_line(capsys) == "themis: out: No space left on device; the results are not complete"
    assert caplog.text == ""
    assert not Path("out").exists()


def test_a_summary_of_a_run_is_known_as_ours() -> None:
    assert simulate("--no-report") == 0
    assert json.loads(Path("out/summary.json").read_text())["max_rho"] > 0
    assert simulate("--no-report") == 0


@pytest.mark.slow
def test_an_interrupted_comparison_keeps_whole_runs_only() -> None:
    rows = [f"a{k},j,{k * 100},1,50000" for k in range(400)]
    Path("long.csv").write_text("app_id,job_id,arrival_s,n_gpus,duration_s\n" + "\n".join(rows) + "\n")
    # Whoever starts the tests in the background has them ignore Ctrl-C, and a process inherits that.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from themis_arbiter.cli.main import main; main()"
    command = [sys.executable, "-c", program, "compare", "--policy", "fifo,themis", "--jobs", "2", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = subprocess.Popen(
        [*command, "--trace", "long.csv", "--cluster", "c.yaml", "--lease", "61", "--no-report"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(Path().glob("out/*/rounds.jsonl.part")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the workers hear of it too
    try:
        _, told = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    assert running.returncode == 130
    assert told.splitlines()[-1] == "themis: interrupted; no results are kept in out; start the same command again"
    assert "Traceback" not in told
    assert [p for p in Path("out").rglob("*") if p.is_file()] == []
