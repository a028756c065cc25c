"""Write the Python code of `proto/` anew: `python -m themis_arbiter.gen.regenerate`, or `make gen`.

protoc derives a module's imports from the path of its .proto file, so it writes `from themis.v1 import types_pb2`. Our
package is deeper, and a top-level package `themis` would be one more name to collide with, so those imports are given
their prefix here. Everything else is protoc's own output, in an order that does not depend on the file system.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

GEN_DIR: Final = Path(__file__).resolve().parent
REPOSITORY: Final = GEN_DIR.parent.parent
PROTO_ROOT: Final = REPOSITORY / "proto"
GENERATED: Final = "themis"
PROTOC_SECONDS_MAX: Final = 120

_IMPORT: Final = re.compile(rf"^from {GENERATED}(?=[. ])", flags=re.MULTILINE)
_INIT: Final = '"""Generated from proto/ by themis_arbiter.gen.regenerate. Do not edit."""\n'


class GenerationError(Exception):
    """protoc refused the files or cannot be run; the text is what it said."""


def generate(into: Path, proto_root: Path = PROTO_ROOT) -> list[Path]:
    """Generate every .proto file below `proto_root` into `into`/themis; return the files, sorted, relative to `into`.

    What is in `into`/themis before is replaced, so that a message that is gone leaves nothing behind.
    Raises `GenerationError`, and then leaves `into` as it was.
    """
    with tempfile.TemporaryDirectory(prefix="themis-gen-") as folder:
        staged = Path(folder)
        _run_protoc(staged, proto_root)
        _finish(staged)
        target = into / GENERATED
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(staged / GENERATED, target)
    return sorted(path.relative_to(into) for path in target.rglob("*") if path.is_file())


def _run_protoc(out: Path, proto_root: Path) -> None:
    protos = sorted(str(path.relative_to(proto_root)) for path in proto_root.rglob("*.proto"))
    if not protos:
        raise GenerationError(f"{proto_root}: no .proto file there")
    # protoc writes no stubs for services; mypy-protobuf's plugin does, and lies beside the interpreter that runs this.
    plugin = Path(sys.executable).parent / "protoc-gen-mypy_grpc"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{proto_root}"),
        *(f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python", "mypy_grpc")),
        f"--plugin=protoc-gen-mypy_grpc={plugin}",
        *protos,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROTOC_SECONDS_MAX)
    if done.returncode != 0:
        raise GenerationError(done.stderr.strip() or f"protoc ended with status {done.returncode}")


def _finish(out: Path) -> None:
    for path in sorted(out.rglob("*.py*")):
        text = path.read_text(encoding="utf-8")
        if "_pb2_grpc." in path.name and "Servicer_to_server" not in text:
            path.unlink()  # the file of a .proto without a service holds nothing but a version check
            continue
        fixed = _IMPORT.sub(f"from themis_arbiter.gen.{GENERATED}", text)
        path.write_text(fixed.rstrip("\n") + "\n", encoding="utf-8")
    for folder in sorted({path.parent for path in out.rglob("*.py")} | {out / GENERATED}):
        (folder / "__init__.py").write_text(_INIT, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate into the package, or into `--out`. Exit status 2, with protoc's words, where that fails."""
    parser = argparse.ArgumentParser(description="Generate the Python code of proto/.")
    parser.add_argument("--out", type=Path, default=GEN_DIR, help="folder that gets themis/ (default: this package)")
    options = parser.parse_args(arguments)
    try:
        files = generate(options.out)
    except GenerationError as err:
        print(f"regenerate: {err}", file=sys.stderr)
        return 2
    print(f"regenerate: {len(files)} files below {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
