"""What the sample apps run on: a local YARN with the plugin, or the simulated cluster in real time."""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

from themis_arbiter.agent.launch import TrainingApp, py4j_jar, submit_arguments
from themis_arbiter.cli.local import samples
from themis_arbiter.cli.local.children import Child, clean_environment
from themis_arbiter.cli.local.samples import Sample
from themis_arbiter.cli.local.stays import read_stays
from themis_arbiter.sim.run_facts import ContainerStay
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.client import ENDED_STATES
from yarn_bridge.local.reaper import MARK_VARIABLE

Progress = Callable[[str], None]

JAVA_DIR: Final = Path(__file__).resolve().parents[3] / "yarn_bridge" / "java"
PLUGIN_JAR: Final = JAVA_DIR / "plugin" / "target" / "themis-yarn-plugin-0.1.0.jar"
APP_JAR: Final = JAVA_DIR / "app" / "target" / "themis-yarn-app-0.1.0.jar"
SUBMIT_MAIN: Final = "org.themis.app.Submit"
SUBMIT_S_MAX: Final = 90.0
# CapacityScheduler places one container a heartbeat on a node where nobody asked for that node or rack; a gang of four
# on one node would take four heartbeats.
CAPACITY: Final = {"yarn.scheduler.capacity.per-node-heartbeat.maximum-offswitch-assignments": "100"}


class StageError(Exception):
    """The cluster cannot be used; the message says why."""


class Stage(Protocol):
    """A cluster with an arbiter. Errors of every method: StageError, LocalYarnError, ChildError."""

    grpc_address: str
    http_url: str

    def start(self) -> None:
        """Start everything; after an error nothing is left."""
        ...

    def submit(self, sample: Sample) -> str:
        """Submit an app; its job's id."""
        ...

    def check(self) -> None:
        """See that everything that was started still runs."""
        ...

    def final_status(self, job_id: str) -> str:
        """How a job ended by the cluster's word; "" while it lives."""
        ...

    def stays(self) -> list[ContainerStay]:
        """Who ran where and when so far, by the cluster's word."""
        ...

    def save(self) -> None:
        """Leave in the run's folder what would be lost when the cluster goes."""
        ...

    def stop(self) -> None:
        """End everything; may be called twice."""
        ...


class YarnStage:
    """YARN 3.2 with the plugin, `themis serve` and `themis bridge`, each as a process."""

    def __init__(self, run_dir: Path, progress: Progress) -> None:
        self._run_dir = run_dir
        self._progress = progress
        self._stack = ExitStack()
        self._children: list[Child] = []
        nodes = tuple(NodeSpec(gpus=gpus, rack=rack) for gpus, rack in samples.CLUSTER)
        config = LocalYarnConfig(
            nodes=nodes, work_dir=samples.yarn_dir(run_dir), heartbeat_ms=samples.HEARTBEAT_MS, capacity=CAPACITY
        )
        self._yarn = LocalYarn(config.with_plugin(PLUGIN_JAR, samples.gateway_dir(run_dir)), progress)
        self.grpc_address = self.http_url = ""

    def start(self) -> None:
        """YARN first: the bridge finds the plugin's gateway in it."""
        for jar in (PLUGIN_JAR, APP_JAR):
            if not jar.is_file():
                raise StageError(f"{jar} is not built: make plugin")
        try:
            self._stack.callback(self._yarn.stop)
            self._yarn.start()
            ready = self._child("serve").ready_line()
            self.grpc_address, self.http_url = ready["grpc_address"], ready["http_url"]
            self._child("bridge", "--bridge-arbiter", self.grpc_address)
        except BaseException:  # a Ctrl-C too
            self.stop()
            raise

    def submit(self, sample: Sample) -> str:
        """Through YARN's own client protocol, as the sample's user."""
        return self._submit_shell(sample) if sample.command else self._submit_training(sample)

    def check(self) -> None:
        """The daemons and the two processes of ours."""
        self._yarn.check()
        for child in self._children:
            child.check()

    def final_status(self, job_id: str) -> str:
        """As YARN's REST interface has it."""
        app = self._yarn.client.app(job_id)
        return str(app["finalStatus"]) if app["state"] in ENDED_STATES else ""

    def stays(self) -> list[ContainerStay]:
        """From the ResourceManager's log."""
        return read_stays(self._yarn.rm_log)

    def save(self) -> None:
        """yarn-apps.json: all applications as YARN's REST interface tells them."""
        (self._run_dir / "yarn-apps.json").write_text(json.dumps(self._yarn.client.apps(), indent=2) + "\n")

    def stop(self) -> None:
        """Bridge, arbiter, YARN."""
        self._stack.close()
        self._children.clear()

    def _child(self, verb: str, *arguments: str) -> Child:
        # The mark makes the cluster's watchdog end it, should we be killed.
        env = clean_environment({MARK_VARIABLE: self._yarn.mark})
        config = ("--config", str(self._run_dir / "themis.toml"))
        child = Child(verb, (*config, *arguments), env, self._run_dir / f"{verb}.log")
        self._stack.callback(child.stop)
        self._children.append(child)
        return child

    def _submit_training(self, sample: Sample) -> str:
        app = TrainingApp(
            name=sample.name,
            steps=sample.steps,
            step_ms=sample.step_ms,
            job_dir=samples.job_dir(self._run_dir, sample),
            gang=sample.gang,
            containers_max=sample.gpus_max,
        )
        arguments = submit_arguments(app, app_jar=APP_JAR)
        done = self._run_java(SUBMIT_MAIN, arguments, [APP_JAR, py4j_jar()], sample.user)
        return str(json.loads(done)["application_id"])

    def _run_java(self, main: str, arguments: list[str], jars: list[Path], user: str) -> str:
        client = self._yarn.client
        done = subprocess.run(
            client.java_command(main, arguments, jars),
            env=client.env | {"HADOOP_USER_NAME": user},
            cwd=self._run_dir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SUBMIT_S_MAX,
            check=False,
        )
        if done.returncode:
            raise StageError(f"{main} ended with {done.returncode}:\n{done.stderr[-2_000:]}")
        return done.stdout

    def _submit_shell(self, sample: Sample) -> str:
        tags = (f"themis.app={sample.name}", f"themis.work-gpu-s={sample.work_gpu_s}")
        job = ShellJob(command=sample.command, n_containers=sample.gpus_max, gpus=1, tags=tags)
        return self._yarn.client.submit_distributed_shell(job, user=sample.user)
