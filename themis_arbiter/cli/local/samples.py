"""The sample apps of `make run`, and the short local profile that they run under.

Together they ask for 20 GPUs and the cluster has 12, so leases have to move; each is another user's. Submissions are timed by
the rounds of the lease grid, so that every run tells the same story.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEASE_S: Final = 20
NOTICE_S: Final = 3
RHO_FLOOR_S: Final = 20
DEBOUNCE_MS: Final = 500
RESTART_COST_S: Final = 1
URGENT_ABOVE: Final = 0.3
STARVING_ABOVE: Final = 3.0
GANG_WAIT_S: Final = 5
HEARTBEAT_MS: Final = 1_000  # of nodes, as YARN has it by default; the training apps' masters are faster
SHELL_HEARTBEAT_MS: Final = 1_000  # of DistributedShell's master, which cannot be told another

PROFILE: Final = (
    f"local profile, much shorter than a real cluster's: lease {LEASE_S} s, notice {NOTICE_S} s, rho floor {RHO_FLOOR_S} s"
)

CLUSTER: Final = ((4, "rack0"), (4, "rack0"), (2, "rack1"), (2, "rack1"))  # GPUs and rack of each node


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample app. A gang runs on exactly `gang` GPUs, an elastic app (`gang` 1) on up to `gpus_max`.

    A training app does `steps` steps of `step_ms` on each GPU of its gang; `command` makes it an unmodified
    DistributedShell instead, with one container a GPU.
    """

    name: str
    user: str
    gpus_max: int
    gang: int = 1
    steps: int = 0
    step_ms: int = 0
    command: str = ""
    command_s: int = 0
    submit_after_s: float = 0.0  # the start of the first app
    is_late: bool = False  # it comes to a full cluster

    @property
    def app_id(self) -> str:
        """The name that the arbiter knows it by."""
        return f"{self.user}/{self.name}"

    @property
    def work_gpu_s(self) -> int:
        """Its serial work."""
        return self.command_s * self.gpus_max if self.command else self.steps * self.step_ms * self.gang // 1_000


SAMPLES: Final = (
    Sample(name="train-wide", user="alice", gpus_max=8, steps=800, step_ms=400),
    Sample(name="train-gang", user="bob", gpus_max=4, gang=4, steps=100, step_ms=500),
    Sample(name="shell", user="dave", gpus_max=2, command="sleep 8", command_s=8),
    Sample(name="train-late", user="carol", gpus_max=8, steps=400, step_ms=400, submit_after_s=18.0, is_late=True),
)


def until_start_s(now_ms: int) -> float:
    """Seconds from `now_ms` (of the epoch) until a round of the lease grid has been held: time for the first app."""
    held_ms = now_ms + NOTICE_S * 1_000
    return (LEASE_S * 1_000 - held_ms % (LEASE_S * 1_000)) / 1_000


def arbiter_toml(run_dir: Path) -> str:
    """The arbiter's settings for a run in `run_dir`; ports are the system's choice."""
    return f"""\
# Written by `make run`: the local profile.
lease = "{LEASE_S} s"
notice = "{NOTICE_S} s"
debounce = "{DEBOUNCE_MS} ms"
rho_floor = "{RHO_FLOOR_S} s"
restart_cost = "{RESTART_COST_S} s"
# Leases are so short here that ending one early would save seconds and cost restarts of seconds.
recall = false
# Nobody falls far behind in a minute: bids are asked for before it, so that rounds are auctions here too.
urgent_above = {URGENT_ABOVE}
starving_above = {STARVING_ABOVE}
gang_wait = "{GANG_WAIT_S} s"
store = "sqlite:arbiter.db"
grpc_address = "127.0.0.1:0"
http_address = "127.0.0.1:0"

[journal]
folder = "journal"

[log]
format = "json"

[bridge]
gateway_dir = "{gateway_dir(run_dir).relative_to(run_dir)}"
"""


def gateway_dir(run_dir: Path) -> Path:
    """Where the plugin leaves its gateway."""
    return yarn_dir(run_dir) / "gateway"


def yarn_dir(run_dir: Path) -> Path:
    """YARN's own files: conf, logs, containers."""
    return run_dir / "yarn"


def job_dir(run_dir: Path, sample: Sample) -> Path:
    """Where a training app keeps its checkpoint and its tasks' logs."""
    return run_dir / "jobs" / sample.name
