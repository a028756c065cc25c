"""Apps without a checkpoint among apps that have one, and a node whose GPU count is cut below what runs, on a real YARN.

Leases are of 3 s, so that an app of ten leases' length fits a test. Its gang does one step of that length: what loses its
GPUs begins the step anew.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.live_yarn import Live, live, until
from themis_arbiter.agent.launch import TrainingApp, py4j_jar, submit_arguments
from themis_arbiter.agent.verify import Counts, verify_counts
from themis_arbiter.cli.local.stage import APP_JAR, SUBMIT_MAIN
from yarn_bridge.local import LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.config import GPU

pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(420)]

LEASE_S: Final = 3
LEASES_LONG: Final = 10
GANG: Final = 2
RIVAL_GPUS: Final = 4
# Together they could use twice what the cluster has; each rival has 30 s of work on one GPU.
RIVAL_STEPS: Final = 120
RIVAL_STEP_MS: Final = 250
END_S_MAX: Final = 180.0
NODES: Final = (NodeSpec(gpus=4, rack="rack0"), NodeSpec(gpus=2, rack="rack0"))
CONFIG: Final = LocalYarnConfig(nodes=NODES, host_net=14)
RM_ADMIN: Final = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    settings: dict[str, str] = {"lease": f"{LEASE_S} s", "notice": "1 s"}
    with live(tmp_path_factory.mktemp("uninterruptible"), CONFIG, **settings) as system:
        yield system


@dataclass(frozen=True)
class Run:
    """A submitted training app."""

    name: str
    job_id: str
    folder: Path

    def counts(self) -> Counts:
        return verify_counts(self.folder)


def submit(system: Live, app: TrainingApp) -> Run:
    client = system.yarn.client
    done = client.java(SUBMIT_MAIN, submit_arguments(app, app_jar=APP_JAR), [APP_JAR, py4j_jar()])
    assert done.returncode == 0, done.stderr[-2_000:]
    return Run(app.name, json.loads(done.stdout)["application_id"], app.job_dir)


def long_app(system: Live, kind: str) -> Run:
    """A gang that does one step, ten leases long."""
    folder = system.run_dir / "jobs" / kind
    step_ms = LEASES_LONG * LEASE_S * 1_000
    app = TrainingApp(name=kind, steps=1, step_ms=step_ms, gang=GANG, containers_max=GANG, job_dir=folder, on_lease_end=kind)
    return submit(system, app)


def rival(system: Live, number: int) -> Run:
    """An elastic app with a checkpoint."""
    name = f"rival-{number}"
    folder = system.run_dir / "jobs" / name
    app = TrainingApp(name=name, steps=RIVAL_STEPS, step_ms=RIVAL_STEP_MS, containers_max=RIVAL_GPUS, job_dir=folder)
    return submit(system, app)


def gpu_runs(system: Live, job_id: str) -> list[Any]:
    """Its GPU containers so far, by the ResourceManager's log."""
    number = job_id.removeprefix("application")
    return [run for run in system.yarn.container_runs() if run.gpus and number in run.container_id]


def running(system: Live, job_id: str) -> int:
    return sum(run.end_ms is None for run in gpu_runs(system, job_id))


def ended_well(system: Live, run: Run) -> float:
    """Seconds from its first GPU container's start to its last one's end, all of its work done once."""
    app = system.yarn.client.wait(run.job_id, END_S_MAX)
    assert app["finalStatus"] == "SUCCEEDED", f"{run.name}: {app['diagnostics']}"
    assert run.counts().is_exact, f"{run.name}: {run.counts()}"
    until(lambda: running(system, run.job_id) == 0, f"{run.name}'s containers are gone")
    runs = gpu_runs(system, run.job_id)
    return float(max(r.end_ms for r in runs) - min(r.start_ms for r in runs)) / 1_000


def shared_s(system: Live, one: Run, others: list[Run]) -> float:
    """GPU-seconds that the others had while `one` ran. All of them together could use more than there is."""
    mine = gpu_runs(system, one.job_id)
    first, last = min(r.start_ms for r in mine), max(r.end_ms for r in mine)
    runs = [r for other in others for r in gpu_runs(system, other.job_id)]
    return float(sum(max(0, min(r.end_ms, last) - max(r.start_ms, first)) for r in runs)) / 1_000


def set_gpus(system: Live, index: int, gpus: int) -> None:
    """Tell the ResourceManager that a node has so many GPUs, as an admin does."""
    host = system.yarn.config.host(index)
    node_id = next(n["id"] for n in system.yarn.client.nodes() if n["nodeHostName"] == host)
    types = f"memory-mb={CONFIG.memory_mb}Mi,vcores={CONFIG.vcores},{GPU}={gpus}"
    done = system.yarn.client.java(RM_ADMIN, ["-updateNodeResource", node_id, types])
    assert done.returncode == 0, done.stderr[-1_000:]


def test_what_cannot_checkpoint_comes_through_among_rivals_with_never_and_with_restart(system: Live) -> None:
    restart = long_app(system, "restart")
    until(lambda: running(system, restart.job_id) == GANG == len(system.leases(restart.job_id)), "it has its gang")
    # An auction may leave it alone to its end, so an admin takes its GPUs once: it has to begin anew, and come through.
    system.ask("admin", "revoke", restart.job_id, "--yes")
    never = long_app(system, "never")
    until(lambda: running(system, never.job_id) == GANG, "the other one has its gang")
    rivals = [rival(system, 1), rival(system, 2)]
    until(lambda: "has begun anew" in system.explained(restart.job_id), "it is known to begin anew")
    until(lambda: all(gpu_runs(system, r.job_id) for r in rivals), "both rivals have run")
    assert "must not be interrupted (on_lease_end=never)" in system.explained(never.job_id)

    took = {run.name: ended_well(system, run) for run in (never, restart, *rivals)}
    rhos = {run.name: system.explained(run.job_id).partition("rho ")[2].partition(" ")[0] for run in (never, restart, *rivals)}
    print({name: f"{seconds:.1f} s, rho {rhos[name]}" for name, seconds in took.items()})
    alone_s = LEASES_LONG * LEASE_S
    assert len(gpu_runs(system, never.job_id)) == GANG
    assert never.counts().begun_in_vain == 0, "it was interrupted"
    assert alone_s <= took["never"] <= alone_s + 2 * LEASE_S
    assert restart.counts().begun_in_vain >= GANG, "it lost nothing, so this shows nothing"
    assert took["restart"] > alone_s
    assert shared_s(system, never, rivals) >= 3 * LEASE_S, "nobody was there to want its GPUs, so this shows nothing"


def test_a_node_with_fewer_gpus_than_run_there_is_told_of_and_the_other_one_is_leased_on(system: Live) -> None:
    tags = ("themis.app=hog", "themis.on-lease-end=never")
    hog = system.yarn.client.submit_distributed_shell(ShellJob(command="exec sleep 600", n_containers=4, tags=tags))
    until(lambda: system.node(0)["gpus_leased"] == system.node(0)["gpus_used"] == NODES[0].gpus, "it has the larger node")
    # Not below what its queue uses, or YARN itself would place nothing more in that queue, not even a master.
    set_gpus(system, 0, 3)
    until(lambda: system.node(0)["is_oversubscribed"], "the cut is known")
    until(lambda: len(system.leases(hog)) == 3, "the lease of the GPU that is gone has ended")
    told = system.explained(hog)
    assert f"{system.yarn.config.host(0)} has 3 GPUs, 1 fewer than are leased or used on it" in told
    assert "uses 1 GPUs that no lease covers" in told
    other = system.yarn.client.submit_distributed_shell(ShellJob(command="sleep 1", tags=("themis.app=other",)))
    assert system.yarn.client.wait(other, 90)["finalStatus"] == "SUCCEEDED"
    assert {run.host for run in gpu_runs(system, other)} == {system.yarn.config.host(1)}
    assert running(system, hog) == NODES[0].gpus, "what runs was left alone"
    assert len(system.leases(hog)) == 3

    set_gpus(system, 0, NODES[0].gpus)
    until(lambda: len(system.leases(hog)) == NODES[0].gpus, "what runs there is adopted when the GPUs are back")
    assert not system.node(0)["is_oversubscribed"]
    assert running(system, hog) == NODES[0].gpus
    system.yarn.client.kill(hog)
    until(lambda: system.leases() == [], "nothing is left")
