"""`themis replay`: a journal is the same, is not, or is none."""

import json
from pathlib import Path
from random import Random
from typing import Final

import pytest

from themis_arbiter.cli.main import run
from themis_arbiter.engine.journal_set import part_line, part_path

TRACE: Final = """app_id,job_id,arrival_s,n_gpus,duration_s,model
a,a0,0,4,900.25,vgg
a,a1,0,4,600,vgg
b,b0,10.5,8,400,
c,c0,20,1,30,
"""
MODELS: Final = "model,slot,machine,rack,cluster\nvgg,1,1.1,1.5,2\n"
CLUSTER: Final = "racks: [{count: 2, machines: [{gpus: 4, gpus_per_slot: 2}]}]\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a simulated run."""
    folder = tmp_path_factory.mktemp("run")
    for name, text in (("t.csv", TRACE), ("m.csv", MODELS), ("c.yaml", CLUSTER)):
        (folder / name).write_text(text, encoding="utf-8")
    files = [f"--{flag}={folder / name}" for flag, name in (("trace", "t.csv"), ("cluster", "c.yaml"), ("models", "m.csv"))]
    assert run(["simulate", *files, "--restart-cost=40", "--journal", f"--out={folder / 'out'}"]) == 0
    return folder / "out" / "arbiter.journal"


@pytest.fixture
def journal(written: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    path = tmp_path / "j"
    path.write_bytes(written.read_bytes())
    return path


def replayed(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(["replay", str(path), *arguments])
    out, err = capsys.readouterr()
    assert err.count("\n") == (status != 0), err  # one line says what and where
    assert "Traceback" not in err
    return status, out, err


def test_a_simulated_journal_replays_to_the_same_decisions(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = (journal.read_bytes().count(b"\n") - 1) // 2
    assert replayed(journal, capsys)[:2] == (0, f"{steps} steps under themis: every decision is the same\n")
    status, out, _ = replayed(journal, capsys, "--json", "--check")
    assert status == 0
    assert json.loads(out) == {
        "journal": str(journal),
        "policy": "themis",
        "parts": 1,
        "steps": steps,
        "is_same": True,
        "is_cut_off": False,
        "first_difference": None,
    }


def in_parts(journal: Path, count: int) -> list[Path]:
    """The same journal, in so many files."""
    header, *lines = journal.read_text().splitlines(keepends=True)
    size = 2 * -(-len(lines) // 2 // count)
    parts = [part_path(journal, number) for number in range(1, count + 1)]
    for k, part in enumerate(parts):
        before = lines[: k * size]
        if before:
            at_ms = json.loads(before[-2])["event"]["at_ms"]
            header = part_line(journal, k + 1, after_step=len(before) // 2, after_ms=at_ms) + "\n"
        part.write_text(header + "".join(lines[k * size : (k + 1) * size]))
    return parts


def test_a_journal_in_parts_says_how_many_were_read_and_which_is_damaged(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = (journal.read_bytes().count(b"\n") - 1) // 2
    parts = in_parts(journal, 3)
    for named in parts:
        assert replayed(named, capsys)[:2] == (0, f"{steps} steps in 3 parts under themis: every decision is the same\n")
    assert json.loads(replayed(journal, capsys, "--json")[1])["parts"] == 3
    lines = parts[1].read_text().splitlines(keepends=True)
    parts[1].write_text(lines[0] + "".join(lines[1:]).replace('"at_ms"', '"at_m"', 1))
    status, _, err = replayed(journal, capsys)
    assert (status, err.startswith(f"themis: {journal}: {parts[1].name}: line 2: ")) == (2, True)
    parts[1].write_text("".join(lines)[:-300])
    status, out, err = replayed(parts[2], capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"themis: {parts[2]}: {parts[1].name}: line ")
    assert err.endswith(" is not whole, and only the last part of a journal may be cut off\n")
    status, _, err = replayed(part_path(journal, 9), capsys)
    assert (status, f"{part_path(journal, 9)}: cannot be read: No such file" in err) == (2, True)


def test_a_decision_that_was_changed_is_shown(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = journal.read_text().split("\n")
    k = next(k for k, line in enumerate(lines) if '"type":"GrantGpus"' in line)
    lines[k] = lines[k].replace('"end_ms":300000', '"end_ms":300001', 1)
    journal.write_text("\n".join(lines))
    status, out, err = replayed(journal, capsys)
    assert status == 1
    step = k // 2  # of lines counted from 0, each step's second is an even one
    assert f"step {step} is decided otherwise now" in err
    assert f"{step - 1} steps under themis are the same, step {step} is not" in out
    assert f"line {k}, LeasesPersisted at 0 ms" in out
    assert "  recorded  300001\n  now       300000\n" in out
    status, out, _ = replayed(journal, capsys, "--json")
    found = json.loads(out)["first_difference"]
    assert (status, found["step"], found["line"], found["recorded"], found["now"]) == (1, step, k, "300001", "300000")
    assert found["field"].endswith("end_ms")
    assert found["recorded_line"] == lines[k]


def test_another_policy_decides_otherwise(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.write_text(journal.read_text().replace('"policy":"themis"', '"policy":"fifo"', 1))
    status, out, _ = replayed(journal, capsys, "--json")
    assert status == 1
    assert json.loads(out)["first_difference"]["event_type"] == "Woke"


def test_a_step_that_was_cut_off_is_left_out_and_said_to_be(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = journal.read_bytes()
    steps = (whole.count(b"\n") - 1) // 2
    event_only = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    for text in (whole[:-1], event_only, event_only[:-9]):
        journal.write_bytes(text)
        status, out, _ = replayed(journal, capsys, "--json")
        document = json.loads(out)
        assert (status, document["steps"], document["is_cut_off"]) == (0, steps - 1, True)
        assert "cut off" in replayed(journal, capsys)[1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "line 1 is not whole: the journal is empty, cut off, or none"),
        (b'{"journal":1,"settings":{"pol', "line 1 is not whole"),
        (b"app_id,job_id\na,b\n", "line 1 is no journal's header"),
        (b"\x1f\x8b\x08\x00\xff\xfe\n", "line 1 is not UTF-8 text"),
        (b"[" * 100_000 + b"\n", "line 1 is no journal's header"),
        (b'{"journal":2,"settings":{}}\n', "journal format 2; this version reads 1"),
        (b'{"journal":1,"settings":{"policy":"best"}}\n', "no policy is called 'best'"),
        (b'{"journal":1,"settings":{"lease_ms":0}}\n', "lease must be above 0"),
        (
            b'{"journal":1,"settings":{"slowdowns":{"by_model":[]}}}\n',
            "line 1: Settings.slowdowns: SlowdownModel.by_model: [] is no mapping",
        ),
        (b'{"journal":1,"settings":{}}\n', "holds no whole step"),
        (b'{"journal":1,"settings":{}}\nhello\n', "line 2: an event expected"),
        (b'{"journal":1,"settings":{}}\n{"event":' + b"[" * 100_000 + b"}\n", "line 2: "),
        (b'{"journal":1,"settings":{}}\n{"event":{"type":"Woke","at_ms":"now","timer":"grid"}}\n', "line 2: Woke.at_ms"),
        (b'{"journal":1,"settings":{}}\n\xff\xfe\n', "line 2 is not UTF-8 text"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, what: str
) -> None:
    path = tmp_path / "j"
    path.write_bytes(text)
    status, out, err = replayed(path, capsys)
    assert (status, out) == (2, "")
    assert what in err
    assert str(path) in err


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        status, _, err = replayed(path, capsys)
        assert status == 2
        assert "cannot be read" in err


def test_an_event_that_the_arbiter_cannot_take_is_told(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.write_text(journal.read_text().replace('"gpus":4', '"gpus":-4', 1))
    status, out, err = replayed(journal, capsys)
    assert (status, out) == (1, "")
    assert "line 8, RmReported at 0 ms: CoreError: machine r0m0: -4 GPUs" in err


@pytest.mark.parametrize("seed", range(40))
def test_a_spoilt_journal_never_ends_in_a_traceback(journal: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    chance, text = Random(seed), bytearray(journal.read_bytes())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text))
        match chance.randrange(3):
            case 0:
                text[at] = chance.randrange(256)
            case 1:
                del text[at : at + chance.randint(1, 2_000)]
            case _:
                text[at:at] = text[chance.randrange(len(text)) :][: chance.randint(1, 200)]
    journal.write_bytes(bytes(text))
    assert replayed(journal, capsys)[0] in {0, 1, 2}
