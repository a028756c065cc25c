"""Converter of Alibaba's PAI trace (cluster-trace-gpu-v2020): `pai_job_table` and, in the same folder, `pai_task_table`.

The job table's `start_time` is when the job was submitted; its run is from its first task's start to its last task's end. Its
gang is the sum over its tasks of instances times `plan_gpu` (a percentage), rounded up to whole GPUs: this project leases
whole GPUs, and parts of GPUs that were shared count as whole ones, which overstates the load of a trace with much sharing.
The tables are published without headers; the columns are then those of the published `.header` files, in their order.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.sim.convert_rows import (
    NO_GPU,
    NOT_ENDED,
    BadField,
    LeftOut,
    SourceJob,
    StatusRule,
    Tally,
    Unconvertible,
    between,
    check_width,
    checked_gpus,
    moment,
    name,
    number,
    optional_name,
    table_rows,
)

JOB_COLUMNS: Final = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS: Final = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
STATUS: Final = StatusRule(
    column="status",
    completed=frozenset({"terminated"}),
    ended=frozenset({"failed", "killed"}),
    not_ended=frozenset({"running", "waiting"}),
)
ROUNDING: Final = 1e-9  # a sum of percentages that is whole but for its last bits is whole


@dataclass(slots=True)
class _Tasks:
    """A job's tasks together. GPUs, cores and GB of all instances; seconds on the trace's clock."""

    gpus: float = 0.0
    cores: float = 0.0
    memory_gb: float = 0.0
    start_s: float = math.inf
    end_s: float = -math.inf
    problem: BadField | None = None
    has_open_task: bool = False


def read(path: Path, tally: Tally, *, is_completed_only: bool) -> None:
    """Every job of the job table `path`, or of the folder `path`, into `tally`. Errors: Unconvertible."""
    jobs_file = _table(path, "pai_job_table") if path.is_dir() else path
    tasks = _read_tasks(_table(jobs_file.parent, "pai_task_table"))
    needed = ("job_name", "user", "status", "start_time")

    def parse(row: Mapping[str, str]) -> SourceJob:
        check_width(row, needed)
        STATUS.check(row["status"], tally, is_completed_only=is_completed_only)
        return _job(row, tasks.get(row["job_name"]))

    for line, row in table_rows(jobs_file, needed, header_if_none=JOB_COLUMNS):
        tally.take(jobs_file, line, lambda row=row: parse(row))  # type: ignore[misc]


def _table(folder: Path, stem: str) -> Path:
    for suffix in (".csv", ".csv.gz"):
        if (folder / f"{stem}{suffix}").is_file():
            return folder / f"{stem}{suffix}"
    raise Unconvertible(f"{folder}: no {stem}.csv there; the job table and the task table are both needed")


def _read_tasks(path: Path) -> dict[str, _Tasks]:
    needed = ("job_name", "inst_num", "start_time", "end_time", "plan_gpu")
    by_job: dict[str, _Tasks] = {}
    for line, row in table_rows(path, needed, header_if_none=TASK_COLUMNS):
        tasks = by_job.setdefault(row.get("job_name", ""), _Tasks())
        try:
            check_width(row, needed)
            _add_task(tasks, row)
        except BadField as problem:
            # Told at the job's own line; the task's is in the reason.
            tasks.problem = tasks.problem or BadField(problem.column, f"{problem.reason} ({path.name}: line {line})")
    return by_job


def _add_task(tasks: _Tasks, row: Mapping[str, str]) -> None:
    instances = number(row, "inst_num") if row["inst_num"] else 1.0
    share = number(row, "plan_gpu") / 100 if row["plan_gpu"] else 0.0
    if instances < 0 or share < 0:
        raise BadField("plan_gpu", f"{instances:g} instances of {share:g} GPUs; neither can be below 0")
    tasks.gpus += instances * share
    tasks.cores += instances * (number(row, "plan_cpu") / 100 if row.get("plan_cpu") else 0.0)
    tasks.memory_gb += instances * (number(row, "plan_mem") if row.get("plan_mem") else 0.0)
    if not row["start_time"] or not row["end_time"]:
        tasks.has_open_task = True
        return
    start_s, end_s = moment(row, "start_time"), moment(row, "end_time")
    between(start_s, end_s, "end_time")
    tasks.start_s, tasks.end_s = min(tasks.start_s, start_s), max(tasks.end_s, end_s)


def _job(row: Mapping[str, str], tasks: _Tasks | None) -> SourceJob:
    job_id, submitted_s = name(row, "job_name"), moment(row, "start_time")
    if tasks is None:
        raise BadField("job_name", "no task of that job in pai_task_table; nobody knows its GPUs")
    if tasks.problem is not None:
        raise tasks.problem
    if tasks.gpus == 0:
        raise LeftOut(NO_GPU)
    if tasks.has_open_task or tasks.end_s < tasks.start_s:
        raise LeftOut(NOT_ENDED)
    n_gpus = checked_gpus(math.ceil(tasks.gpus - ROUNDING), "plan_gpu")
    return SourceJob(
        job_id=job_id,
        submitted_s=submitted_s,
        n_gpus=n_gpus,
        duration_s=between(tasks.start_s, tasks.end_s, "end_time"),
        user=optional_name(row["user"], "user"),
        cpu=tasks.cores / n_gpus or None,
        memory_gb=tasks.memory_gb / n_gpus or None,
    )
