"""The README's section on simulating does what it says."""

import shlex
from pathlib import Path
from typing import Final

import pytest

from themis_arbiter.cli.main import run

README: Final = Path(__file__).parents[2] / "README.md"


def commands(heading: str) -> list[list[str]]:
    """The commands of a section, in order."""
    section = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [shlex.split(line) for line in section.splitlines() if line.startswith("    ")]


@pytest.mark.slow
def test_the_commands_for_simulating_work_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    echo, *themis = commands("Simulate")
    assert (echo[0], echo[2]) == ("echo", ">")
    Path(echo[3]).write_text(f"{echo[1]}\n", encoding="utf-8")
    assert [command[:2] for command in themis[:-1]] == [
        ["themis", "trace"],
        ["themis", "compare"],
        ["themis", "simulate"],
    ]
    for command in themis:
        assert run(command[1:]) == 0, command
    assert Path("runs/report.html").is_file()
    assert "every decision is the same" in capsys.readouterr().out
