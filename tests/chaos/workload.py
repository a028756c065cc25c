"""The four apps that run for the whole campaign. They use every GPU, so each small ask takes one of an elastic app's away."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.stage import Stage
from themis_arbiter.agent.launch import TrainingApp
from themis_arbiter.agent.verify import JOB_FILE, Counts, verify_counts

STEP_MS: Final = 1_000
RUN_S: Final = 6_000  # that each app would run on all that it asks for; none of them is meant to finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One app: elastic up to `gpus` (gang 1), or a gang of exactly `gpus`."""

    name: str
    user: str
    gpus: int
    is_gang: bool = False


KINDS: Final = (
    Kind(name="wide", user="alice", gpus=4),
    Kind(name="gang", user="bob", gpus=4, is_gang=True),
    Kind(name="pair", user="carol", gpus=2, is_gang=True),
    Kind(name="slim", user="dave", gpus=2),
)
SPARE: Final = KINDS[3]  # the one that may be ended and submitted anew


@dataclass
class Workload:
    """What was submitted, by name: application ids and job folders."""

    stage: Stage
    job_ids: dict[str, str] = field(default_factory=dict)
    job_dirs: dict[str, Path] = field(default_factory=dict)
    _count: int = 0

    def submit(self, kind: Kind) -> str:
        """Submit the app (anew); its application's id."""
        self._count += 1
        job_dir = self.stage.run_dir / "jobs" / f"{kind.name}-{self._count}"
        app = TrainingApp(
            name=kind.name,
            steps=RUN_S * 1_000 // STEP_MS * (1 if kind.is_gang else kind.gpus),
            step_ms=STEP_MS,
            job_dir=job_dir,
            gang=kind.gpus if kind.is_gang else 1,
            containers_max=kind.gpus,
        )
        self.job_ids[kind.name] = self.stage.submit_training(app, kind.user)
        self.job_dirs[f"{kind.name}-{self._count}"] = job_dir
        return self.job_ids[kind.name]

    def gangs(self) -> dict[str, int]:
        """How many GPUs each application needs at once, by its id."""
        return {self.job_ids[k.name]: k.gpus if k.is_gang else 1 for k in KINDS if k.name in self.job_ids}

    def submit_all(self) -> None:
        """All four, one after the other."""
        for kind in KINDS:
            self.submit(kind)

    def kill(self, kind: Kind) -> str:
        """End the app through YARN, as its user would; the id that it had."""
        job_id = self.job_ids.pop(kind.name)
        self.stage.yarn.client.kill(job_id)
        return job_id

    def counts(self) -> dict[str, Counts]:
        """What the tasks' own logs say was done; an app that has not begun has none."""
        return {name: verify_counts(folder) for name, folder in self.job_dirs.items() if (folder / JOB_FILE).exists()}
