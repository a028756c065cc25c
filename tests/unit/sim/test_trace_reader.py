from pathlib import Path

import pytest

from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.sim.trace import Trace, TraceError, fair_app, read_trace, unknown_models

HEADER = "app_id,job_id,arrival_s,n_gpus,duration_s"


def read(tmp_path: Path, text: str, *, strict: bool = False) -> tuple[Trace, list[str]]:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    told: list[str] = []
    return read_trace(path, strict=strict, tell=told.append), told


def test_a_bom_any_column_order_and_columns_that_nobody_knows_are_taken(tmp_path: Path) -> None:
    trace, told = read(tmp_path, "\ufeffduration_s,app_id,extra,job_id,n_gpus,arrival_s\n2.5,a,x,j,4.0,1e1\n")
    (job,) = trace.jobs
    assert (job.key, job.arrival_s, job.gang, job.duration_s, job.max_gpus) == (("a", "j"), 10.0, 4, 2.5, 4)
    assert told == []


def test_rows_are_sorted_by_arrival_then_app_and_job(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, f"{HEADER}\nb,1,5,1,1\na,2,5,1,1\na,1,5,1,1\nz,1,0,1,1\n")
    assert [j.key for j in trace.jobs] == [("z", "1"), ("a", "1"), ("a", "2"), ("b", "1")]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (",j,0,1,1", "app_id"),
        ("a,,0,1,1", "job_id"),
        ("a,j,,1,1", "arrival_s"),
        ("a,j,-1,1,1", "arrival_s"),
        ("a,j,nan,1,1", "arrival_s"),
        ("a,j,0,0,1", "n_gpus"),
        ("a,j,0,1.5,1", "n_gpus"),
        ("a,j,0,1,0", "duration_s"),
        ("a,j,0,1,inf", "duration_s"),
        ("a,j,0,1", "duration_s"),
        ("a,j,0,1,soon", "duration_s"),
    ],
)
def test_a_bad_row_is_told_with_line_column_and_reason_and_counted(tmp_path: Path, row: str, column: str) -> None:
    trace, told = read(tmp_path, f"{HEADER}\nok,1,0,1,1\n{row}\n")
    assert (trace.rows, trace.bad_rows, len(trace.jobs)) == (2, 1, 1)
    assert len(told) == 1
    assert f"line 3: column {column}: " in told[0]


@pytest.mark.parametrize(
    ("columns", "values", "column"),
    [
        ("max_gpus", "1", "max_gpus"),
        ("weight", "0", "weight"),
        ("weight", "nan", "weight"),
        ("stop_after_s", "0", "stop_after_s"),
        ("on_lease_end", "maybe", "on_lease_end"),
        ("cpu", "-1", "cpu"),
        ("loss_curve", "steep", "loss_curve"),
        ("loss_curve", "1;2", "loss_curve"),
        ("loss_curve", "1;2;3;4", "loss_curve"),
        ("loss_curve", "0;9;0", "loss_curve"),
        ("loss_curve", "1;-9;0", "loss_curve"),
        ("loss_curve", "1;9;inf", "loss_curve"),
        ("loss_curve", "nan;9;0", "loss_curve"),
    ],
)
def test_optional_columns_are_checked_too(tmp_path: Path, columns: str, values: str, column: str) -> None:
    _, told = read(tmp_path, f"{HEADER},{columns}\nok,1,0,1,1,\na,j,0,2,5,{values}\n")
    assert [column in line for line in told] == [True]


def test_optional_values_left_empty_have_their_defaults(tmp_path: Path) -> None:
    trace, _ = read(
        tmp_path, f"{HEADER},max_gpus,model,stop_after_s,weight,on_lease_end\na,j,0,2,9,,,,,\na,k,0,2,9,4,m,3,2,never\n"
    )
    first, second = trace.jobs
    assert (first.max_gpus, first.model, first.duration_s, first.weight, first.on_lease_end) == (
        2,
        "",
        9,
        1,
        OnLeaseEnd.CHECKPOINT,
    )
    assert (second.max_gpus, second.duration_s, second.work_gpu_s, second.on_lease_end) == (4, 3, 6, OnLeaseEnd.NEVER)


def test_a_loss_curve_is_three_numbers_or_none(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, f"{HEADER},loss_curve\na,j,0,2,9,2.5; 9 ;0.1\na,k,0,2,9,\n")
    assert [j.loss_curve for j in trace.jobs] == [(2.5, 9.0, 0.1), None]


def test_the_second_row_of_a_job_is_bad(tmp_path: Path) -> None:
    trace, told = read(tmp_path, f"{HEADER}\na,j,0,1,1\na,j,0,1,2\nb,j,0,1,3\n")
    assert [j.duration_s for j in trace.jobs] == [1, 3]
    assert "there already" in told[0]


def test_strict_stops_at_the_first_bad_row(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"line 2: column n_gpus"):
        read(tmp_path, f"{HEADER}\na,j,0,x,1\nb,j,0,x,1\n", strict=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no column app_id"),
        ("app_id,job_id,n_gpus,duration_s\na,j,1,1\n", "no column arrival_s"),
        (f"{HEADER},app_id\n", "is there twice"),
        (f"{HEADER}\n", "no usable row"),
        (f"{HEADER}\na,j,0,0,1\n", "no usable row"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TraceError, match=what) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(HEADER.encode() + b"\n\xff")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_trace(tmp_path / "t.csv")


def test_models_that_the_models_file_lacks_are_found(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, f"{HEADER},model\na,1,0,1,1,x\na,2,0,1,1,\na,3,0,1,1,y\n")
    assert unknown_models(trace.jobs, ["y"]) == ["x"]


def test_an_apps_longest_job_counts_from_the_apps_arrival_and_its_weight_is_its_first_rows(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, f"{HEADER},max_gpus,weight\na,2,10,2,100,4,7\na,1,5,1,30,,3\n")
    app = fair_app("a", trace.apps()["a"])
    assert (app.arrival_s, app.work_gpu_s, app.longest_s, app.max_demand, app.weight) == (5, 230, 55, 5, 3)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("a,j,0,1,1,9", "column (all): 6 fields for 5 columns"),
        ("a,j,0,1_0,1", "column n_gpus: '1_0' is not a number"),
        ("a,j,0,\u0661,1", "column n_gpus: '\\\\u0661' is not a number"),
        ("a\x1b[2J,j,0,1,1", "column app_id: 'a\\\\x1b[2J' has a control character"),
        ('"a\nb",j,0,1,1', "column app_id: 'a\\\\nb' has a control character or a line break"),
        ("a,j\x00,0,1,1", "column job_id: 'j\\\\x00' has a control character"),
    ],
)
def test_what_is_more_than_a_row_a_number_or_a_name_is_bad(tmp_path: Path, row: str, what: str) -> None:
    trace, told = read(tmp_path, f"{HEADER}\nok,1,0,1,1,\n{row}\n")
    assert [job.key for job in trace.jobs] == [("ok", "1")]
    assert len(told) == 1
    assert what.replace("\\\\", "\\") in told[0]


def test_what_may_be_a_mistake_is_noted_and_is_no_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER},max_gpu,weight,extra\na,1,0,1,1,4,2,x\na,2,0,1,1,4,3,x\nb,1,0,1,1,4,2,x\nb,2,0,1,1,4,,x\n")
    notes: list[str] = []
    told: list[str] = []
    trace = read_trace(path, tell=told.append, note=notes.append)
    assert (len(trace.jobs), told) == (4, [])
    unknown, weights = notes
    assert "line 1: column 'max_gpu' is not known and not read; is max_gpus meant?" in unknown
    assert weights.endswith("that of its first row by arrival and job_id counts: 'a'")


@pytest.mark.parametrize("curve", ["nan;1;0", "1;inf;0", "1_0;1;0", "1;1", "1;1;0;0", "a;b;c"])
def test_a_loss_curve_that_cannot_be_read_is_a_bad_row(tmp_path: Path, curve: str) -> None:
    _, told = read(tmp_path, f"{HEADER},loss_curve\nok,1,0,1,1,\na,1,0,1,1,{curve}\n")
    assert len(told) == 1
    assert "column loss_curve" in told[0]
