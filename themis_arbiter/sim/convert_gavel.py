"""Converters of tab-separated traces without a header: Gavel's (its Philly-like MSR traces too) and Shockwave's.

Gavel has three layouts by age, told apart by their number of fields; none has durations, only steps, so a file of throughputs
(steps a second by GPU type, job type and number of GPUs, as Gavel publishes it) is needed. Shockwave's rows have a duration.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.convert_rows import (
    BadField,
    SourceJob,
    Tally,
    Unconvertible,
    checked_duration,
    duration,
    gpus,
    number,
    open_text,
    optional_name,
    relative_moment,
)

THROUGHPUT_BYTES_MAX: Final = 256 * 1024**2
_HEAD: Final = ("job_type", "command")
GAVEL_LAYOUTS: Final[Mapping[int, tuple[str, ...]]] = {
    6: (*_HEAD, "num_steps_arg", "total_steps", "arrival_time", "scale_factor"),
    7: (*_HEAD, "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"),
    10: (
        *(*_HEAD, "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor"),
        *("priority_weight", "SLO", "arrival_time"),
    ),
}
SHOCKWAVE_LAYOUTS: Final[Mapping[int, tuple[str, ...]]] = {
    12: (
        *(*_HEAD, "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "mode"),
        *("priority_weight", "SLO", "duration", "arrival_time"),
    ),
}
_BATCH: Final = re.compile(r"\s*\(batch size [0-9]+\)\s*$")

Throughputs = Mapping[tuple[str, int], float]


def read_gavel(path: Path, tally: Tally, throughputs: Throughputs) -> None:
    """Every job of a Gavel trace into `tally`. Errors: Unconvertible."""
    _read(path, tally, GAVEL_LAYOUTS, throughputs)


def read_shockwave(path: Path, tally: Tally) -> None:
    """Every job of a Shockwave trace into `tally`. Errors: Unconvertible."""
    _read(path, tally, SHOCKWAVE_LAYOUTS, {})


def read_throughputs(path: Path, gpu_type: str) -> Throughputs:
    """Steps a second by job type and number of GPUs, of one GPU type. Errors: Unconvertible."""
    try:
        with open_text(path) as file:
            document = json.loads(file.read(THROUGHPUT_BYTES_MAX))
    except (ValueError, OSError, EOFError, RecursionError) as error:
        raise Unconvertible(f"{path}: not a JSON file of throughputs ({error}); name the one that Gavel publishes") from error
    table = document.get(gpu_type) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        known = ", ".join(sorted(document)) if isinstance(document, dict) else "none"
        raise Unconvertible(f"{path}: no GPU type {gpu_type} in it; it has {known}")
    found: dict[tuple[str, int], float] = {}
    for key, values in table.items():
        match = re.fullmatch(r"\('(.*)', ([0-9]{1,6})\)", key)
        alone: Any = values.get("null") if isinstance(values, dict) else None
        if match and isinstance(alone, int | float) and alone > 0:
            found[match[1], int(match[2])] = float(alone)
    return found


def _read(path: Path, tally: Tally, layouts: Mapping[int, tuple[str, ...]], throughputs: Throughputs) -> None:
    with open_text(path) as file:
        try:
            for line, text in enumerate(file, start=1):
                if text.strip():
                    tally.take(path, line, lambda line=line, text=text: _job(line, text, layouts, throughputs))  # type: ignore[misc]
        except (UnicodeDecodeError, OSError, EOFError) as error:
            raise Unconvertible(f"{path}: cannot be read as UTF-8 text ({error}); get the file again") from error


def _job(line: int, text: str, layouts: Mapping[int, Sequence[str]], throughputs: Throughputs) -> SourceJob:
    fields = [f.strip() for f in text.rstrip("\r\n").split("\t")]
    layout = layouts.get(len(fields))
    if layout is None:
        raise BadField("(all)", f"{len(fields)} fields between tabs; this format has {' or '.join(map(str, layouts))}")
    row = dict(zip(layout, fields, strict=True))
    n_gpus = gpus(row, "scale_factor")
    weight = number(row, "priority_weight") if "priority_weight" in row else 1.0
    if weight <= 0:
        raise BadField("priority_weight", f"{weight:g} must be above 0")
    return SourceJob(
        job_id=f"job{line:06d}",  # the line is all the name that these jobs have
        submitted_s=relative_moment(row, "arrival_time"),
        n_gpus=n_gpus,
        duration_s=duration(row, "duration") if "duration" in row else _by_steps(row, n_gpus, throughputs),
        model=optional_name(model_of(row["job_type"]), "job_type"),
        weight=weight,
    )


def _by_steps(row: Mapping[str, str], n_gpus: int, throughputs: Throughputs) -> float:
    steps_per_s = throughputs.get((row["job_type"], n_gpus))
    if steps_per_s is None:
        raise BadField("job_type", f"no throughput of {row['job_type'][:80]} on {n_gpus} GPUs; its duration is unknown")
    return checked_duration(number(row, "total_steps") / steps_per_s, "total_steps")


def model_of(job_type: str) -> str:
    """`resnet50` of `ResNet-50 (batch size 32)`: the names that models files use."""
    return _BATCH.sub("", job_type).lower().replace("-", "").replace(" ", "")
