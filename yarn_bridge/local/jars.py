"""Jars that nobody builds (the local cluster's Hadoop, the tests' ZooKeeper), fetched once by Maven into a shared cache.

A finished folder appears by one rename, so a reader sees all of it or nothing. Its name carries the
hash of the pom: a changed pom makes a new folder and never pulls files from under a running cluster.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Progress = Callable[[str], None]

HADOOP_VERSION: Final = "3.2.0"
CLIENT_VERSIONS: Final = frozenset({"3.2.0", "3.4.2"})  # Maven Central has distributedshell and sls only for these
POM: Final = Path(__file__).with_name("hadoop-jars.pom.xml")
DEPENDENCY_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
FETCH_ATTEMPTS_MAX: Final = 3
FETCH_TIMEOUT_S: Final = 900
RETRY_PAUSE_S: Final = 5
MAVEN_TAIL_LINES: Final = 15
VERSION_PATTERN: Final = re.compile(r"\d+\.\d+\.\d+")


class LocalYarnError(Exception):
    """The local cluster cannot do what was asked; the text says why and what to do."""


class MissingToolError(LocalYarnError):
    """A program is not installed. `package` is what Debian and Ubuntu call it."""

    def __init__(self, tool: str, package: str) -> None:
        super().__init__(f"{tool} is not installed or not on PATH: install it (Debian, Ubuntu: apt install {package})")
        self.tool = tool
        self.package = package


class JarFetchError(LocalYarnError):
    """Maven could not bring the jars; the text ends with what Maven said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HadoopJars:
    """A complete folder of jars. `classpath` is its wildcard for `java -cp`."""

    version: str
    lib_dir: Path

    @property
    def classpath(self) -> str:
        """All jars, for `java -cp`."""
        return f"{self.lib_dir}/*"

    @property
    def py4j(self) -> Path:
        """Py4J's jar."""
        return self.named("py4j")

    def named(self, artifact: str) -> Path:
        """The one jar of `artifact`. Raises LocalYarnError where this set has none."""
        found = sorted(p for p in self.lib_dir.glob(f"{artifact}-*.jar") if p.name[len(artifact) + 1].isdigit())
        if len(found) != 1:
            raise LocalYarnError(f"{self.lib_dir} has {len(found)} jars of {artifact}, not one")
        return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """What Maven is to copy: the run-time dependencies of `pom`, which takes its version from the property `NAME.version`.

    `proof` is a pattern that some jar matches where all went well; `arguments` go to Maven as they are.
    """

    name: str  # as people write it; in lower case it names folder and property
    version: str
    pom: Path
    proof: str
    size_mb: int
    arguments: tuple[str, ...] = ()


def find_java() -> Path:
    """The java program: `JAVA_HOME`'s where that is set, else the one on PATH, links resolved."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise MissingToolError("java", "openjdk-17-jdk-headless")
    return Path(found).resolve()


def find_maven() -> str:
    """The mvn program on PATH."""
    found = shutil.which("mvn")
    if found is None:
        raise MissingToolError("mvn", "maven")
    return found


def default_cache_dir() -> Path:
    """`themis-arbiter` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "themis-arbiter"


def fetch_jars(
    cache_dir: Path | None = None, progress: Progress = lambda _: None, *, version: str = HADOOP_VERSION
) -> HadoopJars:
    """The jars of one Hadoop version, as `fetch_set` does. Errors: as there, and LocalYarnError for what is no version."""
    if not VERSION_PATTERN.fullmatch(version):
        raise LocalYarnError(f"{version!r} is not a Hadoop version like {HADOOP_VERSION}")
    hadoop = JarSet(
        name="Hadoop",
        version=version,
        pom=POM,
        proof="hadoop-yarn-server-resourcemanager-*.jar",
        size_mb=60,
        arguments=("-Pclients",) if version in CLIENT_VERSIONS else (),
    )
    return HadoopJars(version=version, lib_dir=fetch_set(hadoop, cache_dir, progress))


def fetch_set(jars: JarSet, cache_dir: Path | None = None, progress: Progress = lambda _: None) -> Path:
    """The folder of these jars, from the cache or, the first time, through Maven.

    Several processes may call this at once: one fetches, the others wait for it. Raises
    MissingToolError without Maven or Java, JarFetchError where Maven fails FETCH_ATTEMPTS_MAX times.
    """
    parent = (cache_dir or default_cache_dir()) / f"{jars.name.lower()}-{jars.version}"
    target = parent / f"jars-{_recipe_hash(jars)}"
    if _is_complete(target):
        return target / "lib"
    find_java()
    maven = find_maven()
    parent.mkdir(parents=True, exist_ok=True)
    with _locked(parent / "lock", progress):
        if not _is_complete(target):
            _fetch_into(maven, parent, target, jars, progress)
    return target / "lib"


def _recipe_hash(jars: JarSet) -> str:
    recipe = jars.pom.read_bytes() + f"\n{DEPENDENCY_PLUGIN} {jars.version}".encode()
    return hashlib.sha256(recipe).hexdigest()[:12]


def _is_complete(target: Path) -> bool:
    """Whether every jar that was fetched is still there in its size: caches do get cleaned by halves."""
    try:
        sizes = json.loads((target / "done.json").read_text())
        return all((target / "lib" / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that fetches the same jars")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield  # closing the file lets the lock go, also when this process is killed


def _fetch_into(maven: str, parent: Path, target: Path, jars: JarSet, progress: Progress) -> None:
    progress(f"fetching the {jars.name} {jars.version} jars from Maven Central (about {jars.size_mb} MB, once)")
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=parent))
    try:
        lib = scratch / "lib"
        for attempt in range(1, FETCH_ATTEMPTS_MAX + 1):
            said = _run_maven(maven, lib, jars, is_retry=attempt > 1)
            if said is None:
                break
            if attempt == FETCH_ATTEMPTS_MAX:
                raise JarFetchError(f"Maven failed {attempt} times to fetch the {jars.name} {jars.version} jars:\n{said}")
            progress(f"Maven failed ({said.splitlines()[0] if said else 'no output'}); trying again")
            time.sleep(RETRY_PAUSE_S * attempt)
        sizes = {jar.name: jar.stat().st_size for jar in sorted(lib.glob("*.jar"))}
        (scratch / "done.json").write_text(json.dumps(sizes, indent=0))
        if target.exists():  # incomplete, else nobody would have called
            target.rename(scratch / "incomplete")
        scratch_ready = scratch / "ready"
        scratch_ready.mkdir()
        lib.rename(scratch_ready / "lib")
        (scratch / "done.json").rename(scratch_ready / "done.json")
        scratch_ready.rename(target)
        progress(f"{len(sizes)} jars are in {target}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_maven(maven: str, lib: Path, jars: JarSet, *, is_retry: bool) -> str | None:
    """None when the jars are in `lib`, else the end of what Maven said."""
    command = [maven, "-q", "-B", "-f", str(jars.pom), f"-D{jars.name.lower()}.version={jars.version}"]
    command += [f"-DoutputDirectory={lib}", "-DincludeScope=runtime", *jars.arguments]
    command += ["-U"] if is_retry else []  # else Maven answers from its memory of the failure
    try:
        done = subprocess.run(
            [*command, f"{DEPENDENCY_PLUGIN}:copy-dependencies"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {FETCH_TIMEOUT_S} s"
    if done.returncode == 0 and any(lib.glob(jars.proof)):
        return None
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return "\n".join(lines[-MAVEN_TAIL_LINES:])
