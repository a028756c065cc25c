"""Counts what a training job really did, from its tasks' own logs alone.

    python -m themis_arbiter.agent.verify DIR     prints the counts as JSON; exit 1 where they are not exact

The driver's word is only compared, never trusted: units come from the logs, the right result from the work's own
function, and `result.json` has to agree with both.
"""

import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from themis_arbiter.agent.tasklog import read_logs
from themis_arbiter.agent.work import all_units, expected_sum, unit_value

JOB_FILE: Final = "job.json"
RESULT_FILE: Final = "result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Units of a job by how often the logs show them done. A job of gang 1 has one unit a step."""

    steps: int
    parts: int
    done_once: int
    done_twice: int
    missing: int
    wrong_values: int
    begun_in_vain: int
    """Units begun and not done by that container: what kills cost. Done later by another one, or they are missing."""
    containers: int
    """Containers that did at least one unit."""
    has_result: bool
    is_result_right: bool

    @property
    def is_exact(self) -> bool:
        """No unit lost, none done twice, each value right, and the final result right."""
        return not (self.done_twice or self.missing or self.wrong_values) and self.is_result_right


def verify_counts(job_dir: Path) -> Counts:
    """Count a job's units; also while it runs (then `missing` is what is left). Raises OSError or ValueError."""
    job = json.loads((job_dir / JOB_FILE).read_text())
    steps, parts = int(job["steps"]), int(job["parts"])
    logs = read_logs(job_dir)
    done = [line for log in logs for line in log.done]
    times = Counter(line.unit for line in done)
    expected = set(all_units(steps, parts))
    begun = Counter((log.container_id, line.unit) for log in logs for line in log.lines if not line.is_done)
    finished = Counter((log.container_id, line.unit) for log in logs for line in log.done)
    result = _result(job_dir)
    return Counts(
        steps=steps,
        parts=parts,
        done_once=sum(1 for unit, count in times.items() if count == 1 and unit in expected),
        done_twice=sum(1 for count in times.values() if count > 1),
        missing=len(expected - times.keys()),
        wrong_values=sum(1 for line in done if line.unit not in expected or line.value != unit_value(line.unit)),
        begun_in_vain=(begun - finished).total(),
        containers=sum(1 for log in logs if log.done),
        has_result=result is not None,
        is_result_right=result == sum(line.value for line in done) == expected_sum(steps, parts),
    )


def _result(job_dir: Path) -> int | None:
    try:
        return int(json.loads((job_dir / RESULT_FILE).read_text())["value"])
    except FileNotFoundError:
        return None


def main(argv: list[str]) -> int:
    """Print a job's counts; 0 where they are exact, 1 where not, 2 where they cannot be read."""
    if len(argv) != 1:
        print("usage: verify DIR", file=sys.stderr)
        return 2
    try:
        counts = verify_counts(Path(argv[0]))
    except (OSError, ValueError, KeyError) as err:
        print(f"verify: {argv[0]}: {err}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(counts) | {"is_exact": counts.is_exact}))
    return 0 if counts.is_exact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
