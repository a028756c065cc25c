"""Many small replays: what their command is asked for, and results kept line by line, to go on where it was stopped."""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.figures.tables import write_docs
from themis_arbiter.sim.sweep_run import core_count

ROOT: Final = Path(__file__).resolve().parents[2]


def kept(path: Path, keys: Sequence[str], make: Callable[[str], Any], jobs: int, title: str) -> Iterator[tuple[str, Any]]:
    """`make(key)`, a plain value, for each key in order, and progress on stderr; what `path` has already is not made again."""
    known: dict[str, Any] = {}
    if path.exists():
        lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        known = {line["key"]: line["found"] for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = [key for key in keys if key not in known]
    with path.open("a", encoding="utf-8") as file, ProcessPoolExecutor(jobs) as pool:
        made = pool.map(make, new)
        for count, key in enumerate(keys, 1):
            if key not in known:
                known[key] = next(made)
                file.write(json.dumps({"key": key, "found": known[key]}) + "\n")
                file.flush()
                print(f"\r{title}: {count} of {len(keys)}", end="", file=sys.stderr, flush=True)
            yield key, known[key]
    print(file=sys.stderr)


def asked(
    arguments: Sequence[str], *, name: str, text: str | None, count: tuple[str, int], policies: Collection[str], default: str
) -> argparse.Namespace:
    """What the command `python -m tests.figures.NAME` is asked for; `count`: of what, and how many unless said otherwise."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.figures.{name}", description=text)
    parser.add_argument(f"--{count[0]}", type=int, default=count[1])
    parser.add_argument("--policies", default=default)
    parser.add_argument("--out", type=Path, default=ROOT / "build/figures" / name)
    parser.add_argument("--jobs", type=int, default=core_count())
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/fairness.md")
    given = parser.parse_args(arguments)
    given.policies = given.policies.split(",")
    unknown = [p for p in given.policies if p not in policies]
    if unknown:
        parser.error(f"--policies: there is no {unknown[0]!r:.40}; there are {', '.join(policies)}")
    return given


def tell(given: argparse.Namespace, name: str, text: str) -> None:
    """Print the table, and put it into the docs where that was asked for."""
    print(text)
    if given.write_docs:
        write_docs({name: text}, given.out)
