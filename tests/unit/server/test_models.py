"""The models file."""

from pathlib import Path

import pytest

from themis_arbiter.core.speedup import GUESSED_SLOWDOWN
from themis_arbiter.core.types import Locality
from themis_arbiter.server.models import PROBLEMS_MAX, read_models

HEADER = "model,slot,machine,rack,cluster\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "models.csv"


def test_slowdowns_are_read_in_any_column_order_and_unknown_models_are_guessed(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfcluster, model ,slot,machine,rack,note\n3, vgg16 ,1,1.5,2,seen\n")
    model, problems = read_models(file)
    assert problems == []
    assert [model.slowdown("vgg16", level) for level in Locality] == [1.0, 1.5, 2.0, 3.0]
    assert model.slowdown("other", Locality.CLUSTER) == GUESSED_SLOWDOWN[3]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: the header must name each of model,slot,machine,rack,cluster once"),
        ("model,slot,machine,rack\n", "line 1: the header must name"),
        (HEADER + "a,1,1,1\n", "line 2: a row has one field"),
        (HEADER + "a,1,1,1,1,1\n", "line 2: a row has one field"),
        (HEADER + ",1,1,1,1\n", "line 2: column model: a name has 1 to 256 characters"),
        (HEADER + "a,1,1,1,1\na,1,1,1,1\n", "line 3: column model: 'a' is there already"),
        (HEADER + "a,0.9,1,1,1\n", "line 2: column slot: '0.9' is not a slowdown"),
        (HEADER + "a,1,1,nan,1\n", "line 2: column rack: 'nan' is not a slowdown"),
        (HEADER + "a,1,1,1,inf\n", "line 2: column cluster: 'inf' is not a slowdown"),
        (HEADER + "a,1,2,1.5,3\n", "line 2: slowdowns fall from slot to cluster"),
        (HEADER + '"a,1,1,1,1\n', "line 2: unexpected end of data"),
    ],
)
def test_bad_row_is_told_with_line_and_column(file: Path, text: str, problem: str) -> None:
    file.write_text(text, encoding="utf-8")
    _, problems = read_models(file)
    assert len(problems) == 1
    assert problem in problems[0]


def test_many_bad_rows_are_told_in_few_lines(file: Path) -> None:
    file.write_text(HEADER + "a,0,1,1,1\n" * 1_000, encoding="utf-8")
    _, problems = read_models(file)
    assert len(problems) == PROBLEMS_MAX + 1
    assert problems[-1].endswith("and 980 more lines like these")


def test_file_that_is_not_text_is_said_so(file: Path) -> None:
    file.write_bytes(b"\xff\xff")
    assert "not UTF-8" in read_models(file)[1][0]
