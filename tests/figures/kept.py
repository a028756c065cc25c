"""Many small replays whose results are kept line by line, so that what was stopped goes on where it was."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any


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
