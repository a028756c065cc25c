"""A whole `make run` as a test does it, and what it left behind. The fixture with one run a session is local_run.py's."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from themis_arbiter.cli.local.samples import SAMPLES, job_dir, yarn_dir
from themis_arbiter.cli.local.stays import read_stays
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.replay import read_settings
from themis_arbiter.sim.run_facts import ContainerStay, JournalFacts, read_facts

RUN_TIMEOUT_S: Final = 420.0  # the run has a limit of its own of 300 s for its apps
TOLD_LINES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRun:
    """A run that has ended. `summary` is what it printed, `told` what it said while it worked."""

    run_dir: Path
    status: int
    summary: dict[str, Any]
    told: str

    @property
    def journal(self) -> Path:
        """The arbiter's journal, from its first event."""
        return Path(self.summary["journal"])

    @property
    def rm_log(self) -> Path:
        """The ResourceManager's log."""
        return yarn_dir(self.run_dir) / "logs" / "rm.log"

    @property
    def settings(self) -> Settings:
        """What the arbiter ran under."""
        return read_settings(self.journal)

    @property
    def job_dirs(self) -> dict[str, Path]:
        """The training apps' folders by app id."""
        return {sample.app_id: job_dir(self.run_dir, sample) for sample in SAMPLES if not sample.command}

    @property
    def job_ids(self) -> dict[str, str]:
        """YARN's application ids by the sample's name."""
        return dict(self.summary["jobs"])

    @property
    def yarn_apps(self) -> list[dict[str, Any]]:
        """The applications as YARN's REST interface told them before YARN stopped."""
        return list(json.loads((self.run_dir / "yarn-apps.json").read_text()))

    def facts(self) -> JournalFacts:
        """What the journal says was asked, decided and told."""
        return read_facts(self.journal)

    def stays(self) -> list[ContainerStay]:
        """Who ran where and when, by the ResourceManager's log."""
        return read_stays(self.rm_log)


def run_locally(run_dir: Path, *arguments: str) -> LocalRun:
    """A run from start to end, as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "themis_arbiter.cli.local_run", "--dir", str(run_dir), "--json", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    told = "\n".join(done.stderr.splitlines()[-TOLD_LINES:])
    assert done.stdout, f"the run ended with {done.returncode} and no account:\n{told}"
    return LocalRun(run_dir=run_dir, status=done.returncode, summary=json.loads(done.stdout), told=done.stderr)
