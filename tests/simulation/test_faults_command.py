"""What `make sim` is asked for: nonsense is told in one line and runs nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulation.faults import __main__ as command

ROOT = Path(__file__).parents[2]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would be run."""
    runs: list[object] = []

    def run(*what: object) -> int:
        runs.append(what)
        return 0

    monkeypatch.setattr(command, "_run_many", run)
    monkeypatch.setattr(command, "_tell_story", run)
    return runs


def test_seeds_are_taken_as_asked(asked: list[object]) -> None:
    for words in (["--seed=7"], ["--count=3"], ["--seeds=5-6", "--jobs", "4"], ["--seeds=9"], []):
        assert command.main(words) == 0
    assert asked == [(7,), ([0, 1, 2], 2), ([5, 6], 4), ([9], 2), (list(range(10_000)), 2)]


@pytest.mark.parametrize(
    "words",
    [
        ["--seed=-1"],
        ["--seed=abc"],
        ["--seed="],
        ["--count=0"],
        ["--count=-3"],
        ["--count=abc"],
        ["--count=99999999999"],
        ["--seeds=5-3"],
        ["--seeds=0-"],
        ["--seeds=-"],
        ["--seeds=0-2000000"],
        ["--jobs=0"],
        ["--jobs=x"],
        ["--seed=1", "--seeds=1-2"],
        ["--seed=1", "--count=2"],
    ],
    ids=" ".join,
)
def test_nonsense_is_told_and_runs_nothing(asked: list[object], capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    last = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert last.startswith("make sim: error: argument --")
    assert len(last) < 200
    assert asked == []


def test_make_hands_over_what_it_was_given() -> None:
    make = shutil.which("make")
    assert make is not None
    dry = [make, "-s", "-n", "-o", "setup", "-C", str(ROOT), "sim"]
    said = subprocess.run([*dry, "SEED=-1", "SEEDS=abc", "ARGS=--seeds 1-2"], capture_output=True, text=True, check=True).stdout
    assert said.split("tests.simulation.faults")[1].split() == ["'--seed=-1'", "'--count=abc'", "--seeds", "1-2"]
