"""Values of flags that mean nothing: each is one line that names the flag, and exit status 2."""

import json
from pathlib import Path

import pytest

from themis_arbiter.cli.main import run

TRACE = "app_id,job_id,arrival_s,n_gpus,duration_s\na,a0,0,1,100\nb,b0,5,2,100\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TRACE)
    Path("c.yaml").write_text("racks: [{machines: [{gpus: 2}]}]\n")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def refused_simulation(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    line = refused(capsys, "simulate", "--trace", "t.csv", "--cluster", "c.yaml", "--out", "out", *arguments)
    assert not Path("out").exists()
    return line


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1_000", "\u0661", "1e999", "", "0x10"])
@pytest.mark.parametrize("flag", ["--lease", "--restart-cost", "--rho-floor", "--estimate-error", "--fairness-knob"])
def test_a_number_that_is_none_is_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"'{flag}'" in refused_simulation(capsys, f"{flag}={value}")


@pytest.mark.parametrize("value", ["nan", "inf", "1_0", "1e999"])
@pytest.mark.parametrize("key", ["urgent_above", "notice", "f", "first_queue_max"])
def test_a_setting_that_is_no_number_is_refused(key: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--set '{key}={value}'" in refused_simulation(capsys, "--set", f"{key}={value}")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["generate", "o.csv", "--load", "nan"], "'--load'"),
        (["generate", "o.csv", "--burst-gap", "inf"], "'--burst-gap'"),
        (["generate", "o.csv", "--burst", "1"], "--burst 1.0: "),
        (["generate", "o.csv", "--apps", "1"], "--apps 1: "),
        (["generate", "o.csv", "--eta", "1"], "--eta 1: "),
        (["generate", "o.csv", "--gangs", "1=0.5,01=0.5"], "'--gangs': '1' is given twice"),
        (["generate", "o.csv", "--gangs", "1_0=1"], "'--gangs'"),
        (["generate", "o.csv", "--models", "vgg16=nan"], "'--models'"),
        (["generate", "o.csv", "--styles", "odd=1"], "--styles: there are"),
        (["convert", "itp", "t.csv", "o.csv", "--app-window", "nan"], "'--app-window'"),
    ],
)
def test_a_trace_is_not_made_from_values_that_mean_nothing(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what in refused(capsys, "trace", *arguments)
    assert not Path("o.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--lease", "50"], "--set notice=60 and --restart-cost 0 leave nothing of --lease 50 s"),
        (["--restart-cost", "300"], "--set notice=60 and --restart-cost 300 leave nothing of --lease 300 s"),
        (["--lease", "1e6"], "--lease 1e+06 s: a lease has from 0.001 to 604800 s"),
        (["--lease", "0.0001"], "--lease 0 s: a lease has"),
        (["--set", "tick=0"], "--set tick=0: "),
        (["--policy", "paper", "--set", "f=2"], "--set f=2: f lies in [0, 1]"),
        (["--policy", "paper", "--set", "aging=9"], "--set: aging lies in [0, 8]: 9.0"),
        (["--policy", "paper", "--set", "f=0.5", "--fairness-knob", "0.5"], "--fairness-knob and --set f"),
    ],
)
def test_settings_that_contradict_each_other_are_told_in_seconds_by_their_flags(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what in refused_simulation(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--set", "notice=10", "--set", "notice=20"], "notice is set twice"),
        (["--set", "min-runtime=10", "--set", "min_runtime=10"], "min_runtime is set twice"),
        (["--misreport", "a:work:2", "--misreport", "a:work:3"], "'a:work' is given twice"),
        (["--misreport", "a:work:nan"], "is not APP:work"),
    ],
)
def test_what_is_said_twice_is_refused(arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert what in refused_simulation(capsys, *arguments)


@pytest.mark.parametrize("verb", [["generate", "-", "--apps", "2"], ["convert", "itp", "t.csv", "-"]])
def test_stdout_holds_one_thing(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json: stdout has the trace already" in refused(capsys, "trace", *verb, "--json")


def test_settings_are_listed_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--policy", "tiresias", "--list-settings", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert ("first_queue_max", "3600 GPU-s") in [(each["key"], each["default"]) for each in listed["tiresias"]]
    assert run(["compare", "--policy", "fifo,paper", "--list-settings", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["fifo", "paper"]
    assert run(["compare", "--list-settings"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("--set keys of all policies:")
    assert {"rounding", "first_queue_max", "urgent_above"} <= {line.split()[0] for line in told.splitlines()}
    assert "--policy: missing" in refused(capsys, "compare", "--trace", "t.csv", "--cluster", "c.yaml", "--out", "out")


def test_a_strict_conversion_ends_at_the_first_bad_row(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(f"{k},{gpus},100,j{k}," for k, gpus in enumerate(("1", "-1", "x")))
    Path("log.csv").write_text(f"submission_time,num_gpu,duration,job_id,model_name\n{rows}\n")
    line = refused(capsys, "trace", "convert", "itp", "log.csv", "o.csv", "--strict")
    assert "log.csv: line 3: column num_gpu" in line
    assert not Path("o.csv").exists()
