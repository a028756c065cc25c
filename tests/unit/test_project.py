"""The project's own rules: generated code, layers, dependencies, sizes, packaging and how tests may be skipped."""

import ast
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from themis_arbiter.gen import regenerate

REPOSITORY: Final = Path(__file__).resolve().parents[2]
BIN: Final = Path(sys.executable).parent
PACKAGES: Final = ("themis_arbiter", "yarn_bridge")
MODULE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
COMMAND_SECONDS_MAX: Final = 100


def run(
    *command: str | Path, cwd: Path, env: Mapping[str, str] | None = None, unset: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != unset} | dict(env or {})
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS_MAX,
    )


def files_below(folder: Path) -> set[Path]:
    return {p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


def own_modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            if regenerate.GEN_DIR / regenerate.GENERATED not in path.parents:
                yield path


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the packages to break without harm."""
    for package in PACKAGES:
        ignore = shutil.ignore_patterns("__pycache__", "java")
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    return tmp_path


# --- generated code ---------------------------------------------------------------------------------------------------


def test_generated_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    files = regenerate.generate(tmp_path)
    committed = regenerate.GEN_DIR / regenerate.GENERATED
    fresh = tmp_path / regenerate.GENERATED
    assert files_below(committed) == files_below(fresh)
    different = [str(f) for f in files if not filecmp.cmp(tmp_path / f, regenerate.GEN_DIR / f, shallow=False)]
    assert different == [], "run `make gen` and commit what it writes"


def test_generation_that_fails_leaves_the_old_code(tmp_path: Path) -> None:
    protos = tmp_path / "proto"
    protos.mkdir()
    (protos / "bad.proto").write_text('syntax = "proto3";\nmessage {\n', encoding="utf-8")
    kept = tmp_path / "out" / "themis" / "kept.py"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with pytest.raises(regenerate.GenerationError, match=r"bad\.proto"):
        regenerate.generate(tmp_path / "out", protos)
    assert kept.exists()


# --- layers -----------------------------------------------------------------------------------------------------------


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    return run(BIN / "lint-imports", "--no-cache", cwd=tree, env={"PYTHONPATH": str(tree)})


def test_layers_hold(tree: Path) -> None:
    done = lint_imports(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("themis_arbiter/core/intruder.py", "import time", "themis_arbiter.core.intruder -> time"),
        ("themis_arbiter/core/intruder.py", "from concurrent import futures", "core.intruder -> concurrent"),
        ("themis_arbiter/core/intruder.py", "import grpc", "core.intruder -> grpc"),
        ("themis_arbiter/core/intruder.py", "import themis_arbiter.cli", "core.intruder -> themis_arbiter.cli"),
        ("yarn_bridge/intruder.py", "import themis_arbiter.core", "yarn_bridge.intruder -> themis_arbiter.core"),
        ("themis_arbiter/newcomer/__init__.py", "", "themis_arbiter.newcomer"),
    ],
)
def test_import_against_the_layers_is_found(tree: Path, module: str, line: str, contract: str) -> None:
    for package in ("core", "cli"):
        (tree / "themis_arbiter" / package).mkdir(exist_ok=True)
        (tree / "themis_arbiter" / package / "__init__.py").touch()
    path = tree / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(line + "\n", encoding="utf-8")
    done = lint_imports(tree)
    assert done.returncode == 1
    assert contract in done.stdout


# --- dependencies -----------------------------------------------------------------------------------------------------


def locked_versions() -> dict[str, str]:
    lines = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", line) for line in lines if not line.startswith("#")]
    assert all(pins), "a lock line is NAME==VERSION: no paths, no hosts, no options"
    return {canonicalize_name(pin[1]): pin[2] for pin in pins if pin is not None}


def test_lock_meets_every_declared_requirement(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    locked = locked_versions()
    for requirement in map(Requirement, chain(project["dependencies"], *project["optional-dependencies"].values())):
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


def test_runtime_requirements_are_bounded_on_both_sides(pyproject: dict[str, Any]) -> None:
    for requirement in map(Requirement, pyproject["project"]["dependencies"]):
        operators = sorted(clause.operator for clause in requirement.specifier)
        assert operators == ["<", ">="], str(requirement)


def test_wheel_holds_code_and_data_but_no_sources_of_other_things(tree: Path) -> None:
    (tree / "yarn_bridge" / "local").mkdir(exist_ok=True)
    (tree / "yarn_bridge" / "local" / "sample.xml").write_text("<a/>\n", encoding="utf-8")
    (tree / "yarn_bridge" / "java").mkdir()
    (tree / "yarn_bridge" / "java" / "pom.xml").write_text("<a/>\n", encoding="utf-8")
    done = run(BIN / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", tree / "out", cwd=tree)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tree / "out").glob("themis_arbiter-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"themis_arbiter/__init__.py", "yarn_bridge/local/sample.xml"} <= names
    assert "themis_arbiter/gen/themis/v1/cluster_pb2.py" in names
    assert not [name for name in names if "/java/" in name]
    assert any(name.endswith("licenses/LICENSE") for name in names)


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_modules_and_functions_stay_readable() -> None:
    too_long: list[str] = []
    for path in own_modules():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(REPOSITORY)
        if text.count("\n") > MODULE_LINES_MAX:
            too_long.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert too_long == []


# --- how tests are run ------------------------------------------------------------------------------------------------

SKIPPING: Final = """
import pytest

@pytest.mark.skip(reason="no such tool here")
def test_left_out() -> None: ...

def test_passes() -> None: ...
"""


@pytest.mark.parametrize(("in_ci", "status"), [("true", 1), ("", 0)])
def test_skips_are_told_and_fail_ci(tmp_path: Path, in_ci: str, status: int) -> None:
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_sample.py").write_text(SKIPPING, encoding="utf-8")
    done = run(BIN / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", cwd=tmp_path, env={"CI": in_ci})
    assert done.returncode == status, done.stdout
    assert "1 test: no such tool here" in done.stdout


def test_marker_without_its_tool_is_skipped_with_the_package_to_install(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path / "conftest.py")
    sample = "import pytest\n\n@pytest.mark.yarn\ndef test_cluster() -> None: raise AssertionError\n"
    (tmp_path / "test_sample.py").write_text(sample, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  yarn: needs Java\n", encoding="utf-8")
    env = {"PATH": str(tmp_path), "CI": ""}
    done = run(BIN / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", ".", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout
    assert "1 test: yarn: javac, mvn not found (Debian: openjdk-17-jdk-headless, maven)" in done.stdout


def test_setup_without_a_new_enough_python_says_so(tree: Path) -> None:
    for name in ("Makefile", "requirements.lock"):
        shutil.copy(REPOSITORY / name, tree / name)
    done = run("make", "setup", "PYTHONS=/nonexistent/python3", cwd=tree, unset="MAKEFLAGS")
    assert done.returncode != 0
    assert "setup: Python 3.11 or newer is needed" in done.stderr
    assert not (tree / ".venv").exists()


def test_help_lists_the_verbs() -> None:
    done = run("make", "help", cwd=REPOSITORY, unset="MAKEFLAGS")
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"setup", "plugin", "gen", "lint", "type", "unit", "test", "run"} <= listed
