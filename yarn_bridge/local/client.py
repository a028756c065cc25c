"""The client's side of a cluster: Hadoop's own REST interface and Hadoop's own, unmodified Java clients."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from yarn_bridge.local.config import GPU
from yarn_bridge.local.daemons import JVM_FLAGS
from yarn_bridge.local.jars import HadoopJars, LocalYarnError

DISTRIBUTED_SHELL: Final = "org.apache.hadoop.yarn.applications.distributedshell.Client"
REST_TIMEOUT_S: Final = 10.0
REST_ERROR_CHARS: Final = 500
REST_HEADERS: Final = {"Accept": "application/json", "Content-Type": "application/json"}
STANDBY_STATUS: Final = http.HTTPStatus.TEMPORARY_REDIRECT
SUBMIT_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.1
CLIENT_HEAP: Final = "-Xmx128m"
SUBMITTED: Final = re.compile(r"Submitted application (application_\d+_\d+)")
ENDED_STATES: Final = frozenset({"FINISHED", "FAILED", "KILLED"})

Json = dict[str, Any]


class YarnRestError(LocalYarnError):
    """The ResourceManager answered with an error, or not at all. `status` is 0 when nothing answered."""

    def __init__(self, url: str, status: int, text: str) -> None:
        super().__init__(f"{url}: {status or 'no answer'}: {text}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellJob:
    """What DistributedShell shall run: `n_containers` times `command`, with `gpus` GPUs in each container.

    `command` is a line for bash, written inside double quotes by DistributedShell; of several commands only
    the last one's output is kept in the container's log.
    """

    command: str = "sleep 5"
    n_containers: int = 1
    gpus: int = 1
    tags: tuple[str, ...] = ()
    queue: str = "default"
    memory_mb: int = 128
    vcores: int = 1
    am_memory_mb: int = 256
    extra_args: tuple[str, ...] = ()


class YarnClient:
    """REST and Java clients of one cluster, with one ResourceManager or several. Safe to share among threads."""

    def __init__(
        self, *, rm_webs: Sequence[str], conf_dir: Path, jars: HadoopJars, java: Path, env: Mapping[str, str], work_dir: Path
    ) -> None:
        self.rm_webs = tuple(web.rstrip("/") for web in rm_webs)
        self.rm_web = self.rm_webs[0]  # of several, the one that answered last
        self.conf_dir = conf_dir
        self.jars = jars
        self._java = java
        self._env = dict(env)
        self._work_dir = work_dir

    def apps(self, *, states: Sequence[str] = ()) -> list[Json]:
        """All applications, or those in `states` (RUNNING, FINISHED, ...)."""
        query = f"?states={','.join(states)}" if states else ""
        return _listed(self.get(f"/apps{query}"), "apps", "app")

    def app(self, application_id: str) -> Json:
        """One application: state, finalStatus, applicationTags, resourceRequests, diagnostics, ..."""
        return dict(self.get(f"/apps/{application_id}")["app"])

    def nodes(self) -> list[Json]:
        """The nodes: id, nodeHostName, rack, state, totalResource, usedResource, ..."""
        return _listed(self.get("/nodes"), "nodes", "node")

    def metrics(self) -> Json:
        """The cluster's counters: containersAllocated, activeNodes, ..."""
        return dict(self.get("/metrics")["clusterMetrics"])

    def kill(self, application_id: str) -> None:
        """Asks for the application's end; `wait` tells when it has come."""
        self._request("PUT", f"/apps/{application_id}/state", {"state": "KILLED"})

    def wait(self, application_id: str, timeout_s: float = 60.0) -> Json:
        """The application once it has ended. Raises LocalYarnError when it has not by then."""
        deadline = time.monotonic() + timeout_s
        while True:
            app = self.app(application_id)
            if app["state"] in ENDED_STATES:
                return app
            if time.monotonic() > deadline:
                raise LocalYarnError(f"{application_id} is {app['state']} after {timeout_s} s: {app['diagnostics']}")
            time.sleep(POLL_S)

    def get(self, path: str) -> Json:
        """Any GET under `/ws/v1/cluster`."""
        return self._request("GET", path, None)

    def java_command(self, main_class: str, args: Sequence[str] = (), jars: Sequence[Path] = ()) -> list[str]:
        """The command line of a Java client with the cluster's conf and jars; `jars` come first among the jars."""
        classpath = ":".join([str(self.conf_dir), *map(str, jars), self.jars.classpath])
        # Clients stage files below the user's home: keep them inside the work dir.
        home = f"-Duser.home={self._work_dir / 'home'}"
        return [str(self._java), CLIENT_HEAP, *JVM_FLAGS, home, "-cp", classpath, main_class, *args]

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client process (JAVA_HOME, HADOOP_CONF_DIR, the cluster's mark)."""
        return dict(self._env)

    def java(
        self, main_class: str, args: Sequence[str] = (), jars: Sequence[Path] = (), *, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a Java client to its end; the caller looks at the exit status."""
        return subprocess.run(
            self.java_command(main_class, args, jars),
            env=self._env,
            cwd=self._work_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )

    def submit_distributed_shell(self, job: ShellJob, *, user: str | None = None) -> str:
        """Submits through the unmodified client and answers the application's id once YARN accepted it.

        The client process is ended then (it would only watch, and kill the application after its own
        time-out); the application goes on. `user` is who YARN takes the submitter for.
        """
        env = self._env | ({"HADOOP_USER_NAME": user} if user else {})
        shell_jar = self.jars.named("hadoop-yarn-applications-distributedshell")
        command = self.java_command(DISTRIBUTED_SHELL, _shell_arguments(job, shell_jar))
        descriptor, name = tempfile.mkstemp(prefix="submit-", suffix=".log", dir=self._work_dir / "logs")
        with os.fdopen(descriptor, "wb") as log:
            client = subprocess.Popen(command, env=env, cwd=self._work_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            return _application_id(client, Path(name))
        finally:
            client.kill()
            client.wait()

    def _request(self, method: str, path: str, body: Json | None) -> Json:
        """The answer of the active ResourceManager; a standby's is to send the caller elsewhere."""
        first = self.rm_web
        left = [other for other in self.rm_webs if other != first]
        web = first
        while True:
            try:
                answer = self._call(web, method, path, body)
            except YarnRestError as err:
                if err.status not in (0, STANDBY_STATUS) or not left:
                    raise
                web = left.pop(0)
            else:
                self.rm_web = web
                return answer

    def _call(self, web: str, method: str, path: str, body: Json | None) -> Json:
        path = f"/ws/v1/cluster{path}"
        url = f"{web}{path}"
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(urlsplit(web).netloc, timeout=REST_TIMEOUT_S)
        try:
            connection.request(method, path, data, REST_HEADERS)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= http.HTTPStatus.MULTIPLE_CHOICES:
                raise YarnRestError(url, answer.status, text.decode(errors="replace")[:REST_ERROR_CHARS])
            return dict(json.loads(text or b"{}"))
        except (OSError, http.client.HTTPException, ValueError) as err:
            raise YarnRestError(url, 0, str(err)) from err
        finally:
            connection.close()


def _listed(answer: Json, outer: str, inner: str) -> list[Json]:
    """Hadoop writes null, or an empty object, for an empty list."""
    return list((answer.get(outer) or {}).get(inner) or [])


def _shell_arguments(job: ShellJob, shell_jar: Path) -> list[str]:
    resources = f"memory-mb={job.memory_mb},vcores={job.vcores}" + (f",{GPU}={job.gpus}" if job.gpus else "")
    arguments = ["-jar", str(shell_jar), "-shell_command", job.command, "-queue", job.queue]
    arguments += ["-num_containers", str(job.n_containers), "-container_resources", resources]
    arguments += ["-master_memory", str(job.am_memory_mb), "-master_vcores", "1"]
    arguments += ["-application_tags", ",".join(job.tags)] if job.tags else []
    return [*arguments, *job.extra_args]


def _application_id(client: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SUBMIT_TIMEOUT_S
    while True:
        has_ended = client.poll() is not None
        text = log.read_text(errors="replace")
        if found := SUBMITTED.search(text):
            return found[1]
        if has_ended or time.monotonic() > deadline:
            why = f"ended with {client.returncode}" if has_ended else f"did not submit in {SUBMIT_TIMEOUT_S} s"
            raise LocalYarnError(f"the DistributedShell client {why}; {log} ends with:\n{text[-3000:]}")
        time.sleep(POLL_S)
