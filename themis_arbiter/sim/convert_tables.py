"""Converters of logs that are one CSV table with a header: Helios, ITP / ElasticFlow, Tiresias.

Column names are those of the published descriptions; columns beyond them are ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.sim.convert_rows import (
    SourceJob,
    StatusRule,
    Tally,
    between,
    check_width,
    duration,
    gpus,
    moment,
    name,
    number,
    optional_name,
    relative_moment,
    table_rows,
)

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A format of one table: the columns that it needs, and how a row is read."""

    columns: tuple[str, ...]
    job: Callable[[Row], SourceJob]
    status: StatusRule | None = None

    def read(self, path: Path, tally: Tally, *, is_completed_only: bool) -> None:
        """Every row of `path` into `tally`. Errors: Unconvertible."""

        def parse(row: Row) -> SourceJob:
            check_width(row, self.columns)
            if self.status is not None:
                self.status.check(row[self.status.column], tally, is_completed_only=is_completed_only)
            return self.job(row)

        for line, row in table_rows(path, self.columns):
            tally.take(path, line, lambda row=row: parse(row))  # type: ignore[misc]


def _helios(row: Row) -> SourceJob:
    start_s, end_s = moment(row, "start_time"), moment(row, "end_time")
    return SourceJob(
        job_id=name(row, "job_id"),
        submitted_s=moment(row, "submit_time"),
        n_gpus=(n_gpus := gpus(row, "gpu_num")),
        duration_s=between(start_s, end_s, "end_time"),
        user=optional_name(row["user"], "user"),
        queue=optional_name(row["vc"], "vc"),
        cpu=number(row, "cpu_num") / n_gpus if row.get("cpu_num") else None,
    )


HELIOS: Final = TableFormat(
    columns=("job_id", "user", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time"),
    job=_helios,
    status=StatusRule(
        column="state",
        completed=frozenset({"completed"}),
        ended=frozenset({"cancelled", "failed", "timeout", "node_fail"}),
        not_ended=frozenset({"running", "pending", "suspended"}),
    ),
)


def _itp(row: Row) -> SourceJob:
    return SourceJob(
        job_id=name(row, "job_id"),
        submitted_s=relative_moment(row, "submission_time"),
        n_gpus=gpus(row, "num_gpu"),
        duration_s=duration(row, "duration"),
        model=optional_name(row.get("model_name", ""), "model_name"),
    )


ITP: Final = TableFormat(columns=("job_id", "submission_time", "duration", "num_gpu"), job=_itp)


def _tiresias(row: Row) -> SourceJob:
    return SourceJob(
        job_id=name(row, "job_id"),
        submitted_s=relative_moment(row, "submit_time"),
        n_gpus=gpus(row, "num_gpu"),
        duration_s=duration(row, "duration"),
        model=optional_name(row.get("model_name", ""), "model_name"),
    )


TIRESIAS: Final = TableFormat(columns=("job_id", "num_gpu", "submit_time", "duration"), job=_tiresias)
