"""A real YARN with one node of two GPUs beside a real ZooKeeper, for tests in which arbiters and bridges come and go."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support.arbiters import ArbiterProcess, Arbiters
from tests.support.live_yarn import CALM, Part, until
from tests.support.zookeeper_server import run_zookeeper
from themis_arbiter.cli.local.children import clean_environment
from themis_arbiter.cli.local.stage import PLUGIN_JAR
from themis_arbiter.core.lease import LeaseState
from yarn_bridge.daemon import Bridge
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.reaper import MARK_VARIABLE

SETTLED_S: Final = 40.0

Lease = tuple[str, str, int, int]


class System:
    """YARN and ZooKeeper for all tests of this module; what an arbiter says of it."""

    def __init__(self, yarn: LocalYarn, place: str, folder: Path) -> None:
        self.yarn, self.place, self.folder = yarn, place, folder

    @property
    def gateway_dir(self) -> Path:
        assert self.yarn.config.gateway_dir is not None
        return self.yarn.config.gateway_dir

    def submit(self, name: str) -> str:
        """An app of one GPU container that runs until it is killed."""
        job = ShellJob(command="exec sleep 600", n_containers=1, tags=(f"themis.app={name}",))
        return self.yarn.client.submit_distributed_shell(job)

    def runs(self) -> list[tuple[str, bool]]:
        """GPU containers that ever ran, and whether each has ended, by the ResourceManager's log."""
        return sorted((run.container_id, run.end_ms is not None) for run in self.yarn.container_runs() if run.gpus)

    @contextmanager
    def bridge_process(self, arbiters: list[ArbiterProcess], name: str) -> Iterator[None]:
        where = ["--bridge-gateway-dir", str(self.gateway_dir)]
        where += ["--bridge-arbiter", ",".join(one.grpc_address for one in arbiters)]
        part = Part("bridge", where, clean_environment({MARK_VARIABLE: self.yarn.mark}), self.folder / f"{name}.log")
        try:
            yield
        finally:
            part.end()

    @contextmanager
    def pinned_bridge(self, arbiter: ArbiterProcess) -> Iterator[None]:
        """One that knows no other arbiter."""
        bridge = Bridge(self.gateway_dir, arbiter.grpc_address)
        thread = threading.Thread(target=bridge.run)
        thread.start()
        try:
            yield
        finally:
            bridge.stop()
            thread.join(10)


@contextmanager
def small_yarn(folder: Path, host_net: int) -> Iterator[System]:
    """All of it, without arbiters and bridges; sessions of up to two minutes are granted."""
    assert PLUGIN_JAR.is_file(), "make plugin"
    config = LocalYarnConfig(nodes=(NodeSpec(gpus=2, rack="rack0"),), host_net=host_net)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(run_zookeeper(folder, extra="maxSessionTimeout=120000"))
        yarn = stack.enter_context(LocalYarn(config.with_plugin(PLUGIN_JAR), progress=print))
        yield System(yarn, f"zookeeper:{zookeeper.hosts}/themis", folder)


def calm_arbiters(store: str, folder: Path) -> Arbiters:
    """None yet; with settings under which nothing moves but what a test moves."""
    calm = {key: str(value).lower() if isinstance(value, bool) else value for key, value in CALM.items()}
    return Arbiters(store, folder, **calm)


def leases_of(arbiter: ArbiterProcess, job_id: str = "") -> list[Lease]:
    found = [x for x in arbiter.document("leases")["leases"] if job_id in {"", x["job_id"]}]
    return sorted((x["lease_id"], x["node"], x["gpu"], x["end_ms"]) for x in found if x["state"] == LeaseState.ACTIVE)


def wait_lease(arbiter: ArbiterProcess, job_id: str) -> Lease:
    until(lambda: len(leases_of(arbiter, job_id)) == 1, "its container runs under its lease")
    return leases_of(arbiter, job_id)[0]


def wait_bridge(arbiter: ArbiterProcess) -> None:
    until(lambda: bool(arbiter.status().get("is_bridge_connected")), "a bridge is with who leads", SETTLED_S)


def end_apps(system: System, leader: ArbiterProcess, *job_ids: str) -> None:
    for job_id in job_ids:
        system.yarn.client.kill(job_id)
    until(lambda: leader.document("leases")["leases"] == [], "who leads ends the leases of who is gone", SETTLED_S)
