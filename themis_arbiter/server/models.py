"""The models file: CSV `model,slot,machine,rack,cluster`, slowdowns S >= 1 on time at each locality level."""

import csv
import io
import math
from pathlib import Path
from typing import Final

from themis_arbiter.core.speedup import GUESSED_SLOWDOWN, SlowdownModel, Slowdowns
from themis_arbiter.core.types import NAME_LENGTH_MAX
from themis_arbiter.server.values import shown

COLUMNS: Final = ("model", "slot", "machine", "rack", "cluster")
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
PROBLEMS_MAX: Final = 20  # shown of one file; a wrong file would fill the screen otherwise


def read_models(path: Path) -> tuple[SlowdownModel, list[str]]:
    """The slowdowns in `path`, and one line for each thing wrong with it; with problems the model is not for use."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        return SlowdownModel(), [f"{path}: cannot be read: {error.strerror or error}; name a CSV file"]
    except UnicodeDecodeError as error:
        return SlowdownModel(), [f"{path}: not UTF-8 (byte {error.start}); save it as UTF-8"]
    if len(raw) > FILE_BYTES_MAX:
        return SlowdownModel(), [f"{path}: larger than {FILE_BYTES_MAX} bytes; leave out models that no app names"]
    problems: list[str] = []
    by_model: dict[str, Slowdowns] = {}
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        missing = [name for name in COLUMNS if name not in header]
        if missing or len(set(header)) != len(header):
            wanted = ",".join(COLUMNS)
            return SlowdownModel(), [f"{path}: line 1: the header must name each of {wanted} once; write {wanted}"]
        reader.fieldnames = header
        for row in reader:
            where = f"{path}: line {reader.reader.line_num}"
            problem = _take_row(row, by_model)
            if problem:
                problems.append(f"{where}: {problem}")
    except csv.Error as error:
        problems.append(f"{path}: line {reader.reader.line_num}: {error}; quote fields that hold commas or quotes")
    if len(problems) > PROBLEMS_MAX:
        problems[PROBLEMS_MAX:] = [f"{path}: and {len(problems) - PROBLEMS_MAX} more lines like these"]
    if problems:
        return SlowdownModel(), problems
    return SlowdownModel(by_model=by_model, default=GUESSED_SLOWDOWN), []


def _take_row(row: dict[str, str], by_model: dict[str, Slowdowns]) -> str:
    """Enter one row; what is wrong with it, or nothing."""
    if None in row or None in row.values():
        return f"a row has one field for each of the {len(row)} columns; add or remove fields"
    name = row["model"].strip()
    if not name or len(name) > NAME_LENGTH_MAX:
        return f"column model: a name has 1 to {NAME_LENGTH_MAX} characters; write one"
    if name in by_model:
        return f"column model: {shown(name)} is there already; keep one row a model"
    values: list[float] = []
    for column in COLUMNS[1:]:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not 1.0 <= value < math.inf:
            return f"column {column}: {shown(row[column])} is not a slowdown; write a number of at least 1"
        values.append(value)
    if values != sorted(values):
        return "slowdowns fall from slot to cluster; GPUs that lie further apart are never faster"
    slot, machine, rack, cluster = values
    by_model[name] = (slot, machine, rack, cluster)
    return ""
