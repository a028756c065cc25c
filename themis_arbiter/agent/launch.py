"""How a sample training app is submitted through YARN's client protocol (org.themis.app.Submit)."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path

import themis_arbiter
from themis_arbiter.core.gpu_speeds import parse_speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingApp:
    """One app to submit. Its work in serial GPU-seconds is steps x step_ms x gang / 1000.

    `on_lease_end` is what it tells the arbiter. It checkpoints after each step in any case: one of a single long step
    loses all that it has done with its GPUs. `gpu_speeds` declares its speeds by GPU type, as the tag has them: it tells the
    arbiter, and makes no step take longer. Errors: ValueError where it makes no sense.
    """

    name: str
    steps: int
    step_ms: int
    job_dir: Path
    gang: int = 1
    containers_max: int = 1
    checkpoint_every: int = 10
    queue: str = "default"
    gpus_per_container: int = 1
    memory_mb: int = 128
    gang_wait_ms: int = 10_000
    am_memory_mb: int = 256
    on_lease_end: str = "checkpoint"
    gpu_speeds: str = ""
    more_tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.gpu_speeds:
            parse_speeds(self.gpu_speeds)

    @property
    def tags(self) -> list[str]:
        """The tags that the arbiter reads, see the settings reference; YARN lower-cases them."""
        work_gpu_s = self.steps * self.step_ms * self.gang * self.gpus_per_container // 1000
        return [
            f"themis.app={self.name}",
            f"themis.gang={self.gang * self.gpus_per_container}",
            f"themis.work-gpu-s={work_gpu_s}",
            f"themis.on-lease-end={self.on_lease_end}",
            *([f"themis.gpu-speeds={self.gpu_speeds}"] if self.gpu_speeds else []),
            *self.more_tags,
        ]


def py4j_jar() -> Path:
    """The jar that the installed py4j package brings. Raises FileNotFoundError."""
    for each in files("py4j") or []:
        if each.name.startswith("py4j") and each.name.endswith(".jar"):
            return Path(str(each.locate())).resolve()
    raise FileNotFoundError("the py4j package brings no jar; install it again")


def submit_arguments(app: TrainingApp, *, app_jar: Path, python: Path | None = None) -> list[str]:
    """Arguments of org.themis.app.Submit, which prints one JSON line with the application_id.

    Run it with `app_jar`, `py4j_jar()` and the cluster's conf folder and jars on the classpath; HADOOP_USER_NAME names
    the user. Every node must have the two jars, the Python and `job_dir` under these paths.
    """
    source = Path(themis_arbiter.__file__).resolve().parent.parent
    submit = [
        *("--name", app.name, "--queue", app.queue, "--tags", ",".join(app.tags)),
        *("--am-memory-mb", str(app.am_memory_mb), "--app-jar", str(app_jar), "--py4j-jar", str(py4j_jar())),
        *("--env", f"PYTHONPATH={source}", "--", str(python or sys.executable)),
    ]
    driver = [
        *("-m", "themis_arbiter.agent.training", "--dir", str(app.job_dir)),
        *("--steps", str(app.steps), "--step-ms", str(app.step_ms), "--gang", str(app.gang)),
        *("--max-containers", str(max(app.containers_max, app.gang)), "--checkpoint-every", str(app.checkpoint_every)),
        *("--gpus-per-container", str(app.gpus_per_container), "--memory-mb", str(app.memory_mb)),
        *("--gang-wait-ms", str(app.gang_wait_ms)),
    ]
    return submit + driver
