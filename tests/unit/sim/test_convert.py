"""Converters on small samples made by hand after the formats' published descriptions."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from themis_arbiter.cli.main import run
from themis_arbiter.sim.convert import Conversion, Options, Unconvertible, convert, trace_text

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
PAI_JOBS = "job_name,inst_id,user,status,start_time,end_time\n"
PAI_TASKS = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
THROUGHPUTS = {"v100": {"('ResNet-50 (batch size 32)', 1)": {"null": 5.0}, "('ResNet-50 (batch size 32)', 2)": {"null": 8.0}}}


def source(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def adds_up(done: Conversion) -> bool:
    return done.rows_read == len(done.jobs) + len(done.bad_rows) + sum(done.left_out.values())


def rows(done: Conversion) -> list[tuple[str, float, int, float]]:
    return [(j.job_id, j.arrival_s, j.n_gpus, j.duration_s) for j in done.jobs]


def why(done: Conversion) -> list[tuple[int, str]]:
    return [(b.line, b.column) for b in done.bad_rows]


# --- Philly -----------------------------------------------------------------------------------------------------------


def philly_job(name: str, submitted: str | None, *attempts: tuple[Any, Any, int], status: str = "Pass") -> dict[str, Any]:
    return {
        "status": status,
        "vc": "vc1",
        "jobid": name,
        "attempts": [
            {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": [f"gpu{k}" for k in range(gpus)]}]}
            for start, end, gpus in attempts
        ],
        "submitted_time": submitted,
        "user": "u1",
    }


def philly(folder: Path, *jobs: dict[str, Any]) -> Conversion:
    return convert("philly", source(folder, json.dumps(list(jobs), indent=1), "cluster_job_log"), Options())


def test_philly_job_has_the_gang_of_its_longest_attempt_and_the_gpu_time_of_all(tmp_path: Path) -> None:
    long = ("2017-10-07 02:00:00", "2017-10-07 03:00:00", 4)
    short = ("2017-10-07 01:10:00", "2017-10-07 01:20:00", 2)
    done = philly(tmp_path, philly_job("b", "2017-10-07 01:00:30", long), philly_job("a", "2017-10-07 01:00:00", short, long))
    assert rows(done) == [("a", 0.0, 4, 3600 + 600 * 2 / 4), ("b", 30.0, 4, 3600.0)]
    assert (done.jobs[0].user, done.jobs[0].queue) == ("u1", "vc1")


def test_philly_rows_that_cannot_be_used_are_told_by_line(tmp_path: Path) -> None:
    good = ("2017-10-07 02:00:00", "2017-10-07 03:00:00", 1)
    done = philly(
        tmp_path,
        philly_job("ok", "2017-10-07 01:00:00", good),
        philly_job("no-attempt", "2017-10-07 01:00:00"),
        philly_job("no-clock", None, good),
        philly_job("running", "2017-10-07 01:00:00", good, (good[0], None, 1)),
        philly_job("backwards", "2017-10-07 01:00:00", (good[1], good[0], 1)),
        philly_job("cpu", "2017-10-07 01:00:00", (good[0], good[1], 0)),
        philly_job("ok", "2017-10-07 01:00:00", good),
    )
    assert [b.column for b in done.bad_rows] == ["attempts", "submitted_time", "attempts.end_time", "job_id"]
    text = (tmp_path / "cluster_job_log").read_text().splitlines()
    starts = [n for n, line in enumerate(text, start=1) if line == " {"]
    assert [b.line for b in done.bad_rows] == [starts[k] for k in (1, 2, 4, 6)]
    assert done.left_out == {"had not ended": 1, "asks for no GPU": 1}
    assert adds_up(done)


@pytest.mark.parametrize("text", ["", "{}", "[{", '[{"a": 1}', '[{"jobid": "a"}]', "[1 2]"])
def test_philly_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unconvertible, match="cluster_job_log"):
        convert("philly", source(tmp_path, text, "cluster_job_log"), Options())


# --- Helios -----------------------------------------------------------------------------------------------------------


def helios_row(name: str, gpus: str = "2", state: str = "COMPLETED", start: str = "10:00:00", end: str = "10:01:40") -> str:
    return f"{name},uA,vcB,{gpus},8,1,{state},2020-06-09 09:59:00,2020-06-09 {start},2020-06-09 {end},0,0\n"


def test_helios_duration_is_from_start_to_end(tmp_path: Path) -> None:
    done = convert("helios", source(tmp_path, HELIOS + helios_row("7")), Options())
    assert rows(done) == [("7", 0.0, 2, 100.0)]
    assert (done.jobs[0].user, done.jobs[0].queue, done.jobs[0].cpu) == ("uA", "vcB", 4.0)


def test_helios_bad_times_and_gangs(tmp_path: Path) -> None:
    text = HELIOS + helios_row("1") + helios_row("2", end="09:00:00") + helios_row("3", end="10:00:00")
    text += helios_row("4", gpus="1.5") + helios_row("5", gpus="0") + helios_row("6", gpus="") + "7,u\n" + helios_row("8") * 2
    done = convert("helios", source(tmp_path, text), Options())
    assert why(done) == [(3, "end_time"), (4, "end_time"), (5, "gpu_num"), (7, "gpu_num"), (8, "vc"), (10, "job_id")]
    assert done.left_out == {"asks for no GPU": 1}
    assert [j.job_id for j in done.jobs] == ["1", "8"]
    assert adds_up(done)


@pytest.mark.parametrize(("is_completed_only", "taken"), [(False, "abcdg"), (True, "ab")])
def test_status_by_the_written_rule(tmp_path: Path, is_completed_only: bool, taken: str) -> None:
    states = {"a": "COMPLETED", "b": "completed", "c": "CANCELLED", "d": "", "e": "RUNNING", "f": "pending", "g": "Vanished"}
    text = HELIOS + "".join(helios_row(n, state=s) for n, s in states.items())
    done = convert("helios", source(tmp_path, text), Options(is_completed_only=is_completed_only))
    assert "".join(j.job_id for j in done.jobs) == taken
    assert done.unknown_status == {"''": 1, "'Vanished'": 1}
    assert done.left_out["had not ended"] == 2
    assert adds_up(done)


@pytest.mark.parametrize(
    ("form", "header"),
    [
        ("helios", HELIOS.replace("submit_time,", "")),
        ("itp", "job_id,delay,duration,num_gpu\n"),
        ("tiresias", "job_id,num_gpu,iterations,model_name,duration,interval\n"),
    ],
)
def test_missing_clock_column_is_refused(tmp_path: Path, form: str, header: str) -> None:
    with pytest.raises(Unconvertible, match=r"line 1: no column (submit_time|submission_time); this format needs"):
        convert(form, source(tmp_path, header + "1,2,3,4,5,6,7,8,9,10,11\n"), Options())


# --- ITP, Tiresias ----------------------------------------------------------------------------------------------------


def test_itp_and_elasticflow_share_their_columns(tmp_path: Path) -> None:
    raw = "job_id,submission_time,duration,num_gpu\nx,500,60,4\ny,400,-1,4\nz,-5,60,4\nw,nan,60,4\n"
    done = convert("itp", source(tmp_path, raw), Options())
    assert rows(done) == [("x", 0.0, 4, 60.0)]
    assert why(done) == [(3, "duration"), (4, "submission_time"), (5, "submission_time")]
    full = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\nx,500,9,bert,99,64,4,60\n"
    (job,) = convert("elasticflow", source(tmp_path, full), Options()).jobs
    assert (job.model, job.n_gpus, job.duration_s) == ("bert", 4, 60.0)


def test_tiresias_and_models_that_are_not_in_the_models_file(tmp_path: Path) -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,5,6,vgg16,164,30\n1,8,35,3,odd,147,23\n"
    done = convert("tiresias", source(tmp_path, text), Options(models=frozenset({"vgg16"})))
    assert [(j.job_id, j.model, j.arrival_s) for j in done.jobs] == [("0", "vgg16", 0.0), ("1", "", 30.0)]
    assert done.models_dropped == {"odd": 1}


def test_jobs_of_one_burst_are_one_app_only_on_request(tmp_path: Path) -> None:
    text = "job_id,submission_time,duration,num_gpu\n" + "".join(f"{n},{t},60,{g}\n" for n, t, g in BURST)
    path = source(tmp_path, text)
    assert len({j.app_id for j in convert("itp", path, Options()).jobs}) == len(BURST)
    apps = {j.job_id: j.app_id for j in convert("itp", path, Options(app_window_s=60)).jobs}
    assert apps["a"] == apps["b"] == apps["d"]
    assert len({apps["a"], apps["c"], apps["e"]}) == 3


BURST = [("a", 0, 4), ("b", 50, 4), ("c", 60, 2), ("d", 110, 4), ("e", 171, 4)]


# --- PAI --------------------------------------------------------------------------------------------------------------


def pai(folder: Path, jobs: str, tasks: str) -> Conversion:
    source(folder, jobs, "pai_job_table.csv")
    source(folder, tasks, "pai_task_table.csv")
    return convert("pai", folder, Options())


PAI_JOB_ROWS = (
    "j1,i1,u1,Terminated,1000.0,1500.0\nj2,i2,u1,Running,1000.0,\nj3,i3,u2,Failed,1010.0,1020.0\nj4,i4,u2,Terminated,1.0,2.0\n"
)
PAI_TASK_ROWS = (
    "j1,ps,1.0,Terminated,1100.0,1400.0,600.0,10.0,,\nj1,worker,3.0,Terminated,1110.0,1500.0,400.0,30.0,50.0,T4\n"
    "j3,ps,1.0,Failed,1010.0,1020.0,600.0,10.0,0.0,\n"
)


@pytest.mark.parametrize("is_bare", [False, True])
def test_pai_gang_is_the_sum_over_tasks_rounded_up(tmp_path: Path, is_bare: bool) -> None:
    heads = ("", "") if is_bare else (PAI_JOBS, PAI_TASKS)
    done = pai(tmp_path, heads[0] + PAI_JOB_ROWS, heads[1] + PAI_TASK_ROWS)
    assert rows(done) == [("j1", 0.0, 2, 400.0)]  # 3 x 50 % = 1.5 GPUs; first task's start to last task's end
    assert (done.jobs[0].cpu, done.jobs[0].memory_gb) == ((6 + 12) / 2, (10 + 90) / 2)
    assert done.left_out == {"had not ended": 1, "asks for no GPU": 1}
    assert why(done) == [(4 if is_bare else 5, "job_name")]
    assert adds_up(done)


def test_pai_task_that_cannot_be_read_spoils_its_job_only(tmp_path: Path) -> None:
    tasks = PAI_TASKS + PAI_TASK_ROWS.replace("1110.0", "soon") + "j4,w,1.0,Terminated,5.0,9.0,0,0,100.0,T4\n"
    done = pai(tmp_path, PAI_JOBS + PAI_JOB_ROWS, tasks)
    assert [j.job_id for j in done.jobs] == ["j4"]
    assert [str(b).split("csv: ", 1)[1] for b in done.bad_rows] == [
        "line 2: column start_time: 'soon' is neither seconds nor a date (pai_task_table.csv: line 3)"
    ]


def test_pai_without_its_task_table_is_refused(tmp_path: Path) -> None:
    source(tmp_path, PAI_JOBS + PAI_JOB_ROWS, "pai_job_table.csv")
    with pytest.raises(Unconvertible, match="no pai_task_table"):
        convert("pai", tmp_path, Options())


# --- Gavel, Shockwave -------------------------------------------------------------------------------------------------


def gavel_line(gpus: str, steps: str, arrival: str, kind: str = "ResNet-50 (batch size 32)") -> str:
    return "\t".join((kind, "python3 main.py", "--steps", "1", steps, arrival, gpus)) + "\n"


def test_gavel_durations_come_from_throughputs(tmp_path: Path) -> None:
    table = source(tmp_path, json.dumps(THROUGHPUTS), "throughputs.json")
    newer = "\t".join(("ResNet-50 (batch size 32)", "cmd", "dir", "-n", "1", "80", "2", "2.5", "-1.0", "9.0")) + "\n"
    text = gavel_line("1", "500", "3.0") + newer + gavel_line("4", "500", "4") + gavel_line("1", "500", "4", "GAN") + "a\tb\n"
    done = convert("gavel", source(tmp_path, text), Options(throughputs=table))
    assert rows(done) == [("job000001", 0.0, 1, 100.0), ("job000002", 6.0, 2, 10.0)]
    assert [(j.model, j.weight) for j in done.jobs] == [("resnet50", None), ("resnet50", 2.5)]
    assert why(done) == [(3, "job_type"), (4, "job_type"), (5, "(all)")]


@pytest.mark.parametrize(
    ("table", "message"),
    [(None, "give --throughputs"), ("{", "not a JSON file"), ("{}", "no GPU type v100"), ('{"k80": 1}', "it has k80")],
)
def test_gavel_without_throughputs_is_refused(tmp_path: Path, table: str | None, message: str) -> None:
    path = None if table is None else source(tmp_path, table, "t.json")
    with pytest.raises(Unconvertible, match=message):
        convert("msr", source(tmp_path, gavel_line("1", "5", "0")), Options(throughputs=path))


def test_shockwave_has_durations(tmp_path: Path) -> None:
    fields = ("LM (batch size 10)", "cmd", "language_modeling", "--steps", "1", "134", "2", "gns", "1", "-1.0", "1418", "55")
    done = convert("shockwave", source(tmp_path, "\t".join(fields) + "\n" + gavel_line("1", "5", "0")), Options())
    assert rows(done) == [("job000001", 0.0, 2, 1418.0)]
    assert done.jobs[0].model == "lm"
    assert why(done) == [(2, "(all)")]


# --- files and the command --------------------------------------------------------------------------------------------

ITP = "job_id,submission_time,duration,num_gpu\na,0,60,4\nb,10,0,4\nc,20,30.5,1\n"


def test_packed_and_marked_files_read_alike(tmp_path: Path) -> None:
    plain = convert("itp", source(tmp_path, ITP), Options())
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + ITP.replace("\n", "\r\n").encode()))
    assert convert("itp", packed, Options()).jobs == plain.jobs


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "empty"),
        (b"job_id,job_id\n", "named twice"),
        (b"job_id,submission_time,duration,num_gpu\n\xff,1,1,1\n", "not UTF-8"),
        (b'job_id,submission_time,duration,num_gpu\n"a,1,1,1\n', "quote"),
    ],
)
def test_file_that_is_no_table_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(raw)
    with pytest.raises(Unconvertible, match=message):
        convert("itp", path, Options())
    with pytest.raises(Unconvertible, match="cannot be read"):
        convert("itp", tmp_path / "none.csv", Options())


def test_cut_off_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress((ITP * 50).encode())[:60])
    with pytest.raises(Unconvertible, match="cannot be unpacked"):
        convert("itp", path, Options())


def test_trace_has_only_the_columns_that_are_filled(tmp_path: Path) -> None:
    done = convert("itp", source(tmp_path, ITP), Options())
    lines = list(csv.reader(trace_text(done.jobs).splitlines()))
    assert lines == [
        ["app_id", "job_id", "arrival_s", "n_gpus", "duration_s"],
        ["app000000", "a", "0", "4", "60"],
        ["app000001", "c", "20", "1", "30.5"],
    ]


def test_command_converts_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.csv"
    assert run(["trace", "convert", "itp", str(source(tmp_path, ITP)), str(out), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["jobs"] == 2
    assert told.err.endswith("log.csv: line 3: column duration: 0 s is no time that a job can run; it must be above 0\n")
    assert out.read_text().startswith("app_id,job_id,arrival_s,n_gpus,duration_s\n")


def test_command_writes_nothing_when_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.csv"
    assert run(["trace", "convert", "itp", str(source(tmp_path, ITP)), str(out), "--strict"]) == 2
    assert run(["trace", "convert", "itp", str(source(tmp_path, ITP.split("a,", maxsplit=1)[0])), str(out)]) == 2
    assert run(["trace", "convert", "itp", str(tmp_path / "none"), str(out)]) == 2
    assert "no usable row in 0" in capsys.readouterr().err
    assert not out.exists()
    assert run(["trace", "convert", "itp", str(source(tmp_path, ITP)), str(tmp_path / "none" / "out.csv")]) == 1


def test_command_writes_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "convert", "itp", str(source(tmp_path, ITP)), "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "app000001,c,20,1,30.5"
