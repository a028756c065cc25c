"""A leader that freezes with a grant and a write on their way and wakes when another has led for long: real ZooKeeper and YARN.

The grant is of a GPU that another app runs on by the time it wakes: let through, it would be a second live lease there. Its
bridge has stayed with it, and its store's connection too, so that nothing stands in its way but what is under test.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.arbiters import SESSION_S, ArbiterProcess, Arbiters
from tests.support.live_yarn import CALM, Part, until
from tests.support.worst_moment import FROZEN
from tests.support.zookeeper_server import run_zookeeper
from themis_arbiter.cli.local.children import clean_environment
from themis_arbiter.cli.local.stage import PLUGIN_JAR
from themis_arbiter.core.lease import LeaseState
from yarn_bridge import relay
from yarn_bridge.daemon import Bridge
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.reaper import MARK_VARIABLE

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.zookeeper, pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG: Final = LocalYarnConfig(nodes=(NodeSpec(gpus=2, rack="rack0"),), host_net=19)
SETTLED_S: Final = 40.0
KEPT_S: Final = 60.0  # that the bridge of the frozen arbiter keeps its connection, which answers nothing
SET_WEIGHT: Final = (sys.executable, "-m", "themis_arbiter.cli", "admin", "set-weight", "root/steady", "2", "--yes")

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


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    assert PLUGIN_JAR.is_file(), "make plugin"
    folder = tmp_path_factory.mktemp("frozen")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(run_zookeeper(folder, extra="maxSessionTimeout=120000"))
        yarn = stack.enter_context(LocalYarn(CONFIG.with_plugin(PLUGIN_JAR), progress=print))
        yield System(yarn, f"zookeeper:{zookeeper.hosts}/themis", folder)


@pytest.fixture
def arbiters(system: System, tmp_path: Path) -> Iterator[Arbiters]:
    calm = {key: str(value).lower() if isinstance(value, bool) else value for key, value in CALM.items()}
    with Arbiters(system.place, tmp_path, **calm) as started:
        yield started


def leases_of(arbiter: ArbiterProcess, job_id: str = "") -> list[Lease]:
    found = [x for x in arbiter.document("leases")["leases"] if job_id in {"", x["job_id"]}]
    return sorted((x["lease_id"], x["node"], x["gpu"], x["end_ms"]) for x in found if x["state"] == LeaseState.ACTIVE)


def wait_lease(arbiter: ArbiterProcess, job_id: str) -> Lease:
    until(lambda: len(leases_of(arbiter, job_id)) == 1, "its container runs under its lease")
    return leases_of(arbiter, job_id)[0]


def wait_bridge(arbiter: ArbiterProcess) -> None:
    until(lambda: bool(arbiter.status().get("is_bridge_connected")), "a bridge is with who leads", SETTLED_S)


def since_it_woke(deeds: Path) -> list[str]:
    lines = deeds.read_text(encoding="utf-8").splitlines()
    return lines[lines.index(FROZEN) + 1 :]


def take_over_gpu(system: System, leader: ArbiterProcess, job_id: str) -> str:
    """The app that ran on one GPU has ended, and another one runs there: that one's id."""
    _, *gpu, _ = wait_lease(leader, job_id)
    system.yarn.client.kill(job_id)
    until(lambda: len(leases_of(leader)) == 1, "its lease is over")
    taking = system.submit("taking")
    _, *same_gpu, _ = wait_lease(leader, taking)
    assert same_gpu == gpu, "the GPU of the grant that is still on its way has gone to another"
    return taking


def end_apps(system: System, leader: ArbiterProcess, *job_ids: str) -> None:
    for job_id in job_ids:
        system.yarn.client.kill(job_id)
    until(lambda: leader.document("leases")["leases"] == [], "who leads ends the leases of who is gone", SETTLED_S)


@pytest.mark.parametrize("how", ["blind", "sighted"])
def test_a_leader_that_froze_before_a_grant_harms_nobody_when_it_wakes(
    system: System,
    arbiters: Arbiters,
    tmp_path: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = dict(relay._OPTIONS) | {"grpc.keepalive_time_ms": int(KEPT_S * 1_000)}
    monkeypatch.setattr(relay, "_OPTIONS", tuple(kept.items()))
    deeds = tmp_path / "deeds"
    arbiters.start("old", program=("tests.support.worst_moment", str(tmp_path), how))
    old = arbiters.wait_leader()
    with ExitStack() as stack:
        stack.enter_context(caplog.at_level(logging.INFO, "yarn_bridge"))
        stack.enter_context(system.pinned_bridge(old))
        wait_bridge(old)
        steady = system.submit("steady")
        wait_lease(old, steady)
        arbiters.start("new")
        new = arbiters.all[-1]
        stack.enter_context(system.bridge_process([new], f"bridge-{how}"))

        (tmp_path / "armed").touch()
        passing = system.submit("passing")
        until(deeds.exists, "it has won a GPU, and its grant is on its way")
        asking = subprocess.Popen([*SET_WEIGHT, "--arbiter", old.grpc_address], stderr=subprocess.PIPE, text=True)
        stack.callback(asking.communicate)
        until(lambda: FROZEN in deeds.read_text(encoding="utf-8"), "a write is on its way too, and it has frozen")
        frozen_s = time.monotonic()
        assert arbiters.wait_leader(but=old) is new
        wait_bridge(new)
        taking = take_over_gpu(system, new, passing)
        leases, runs, epoch = leases_of(new), system.runs(), new.status()["epoch"]

        time.sleep(max(0.0, 2 * SESSION_S - (time.monotonic() - frozen_s)))
        assert since_it_woke(deeds) == []
        old.signal(signal.SIGCONT)
        until(lambda: old.status().get("leader_address") == new.grpc_address, "it stands by", SETTLED_S)
        assert old.status()["is_leader"] is False
        assert "no longer leading" in old.log.read_text(encoding="utf-8")
        done = since_it_woke(deeds)
        refused = [record.getMessage() for record in caplog.records if "refused a lease update" in record.getMessage()]
        if how == "blind":
            text = f"the batch is of epoch {epoch - 1}, the store is at {epoch}"
            assert sorted(done) == [
                f"message of epoch {epoch - 1} with 1 leases",
                f"write of epoch {epoch - 1}: StaleEpochError: {text}",
            ]
            until(lambda: "OLD_EPOCH" in caplog.text, "the plugin's word on the message")
        else:
            assert (done, refused) == ([], [])
        time.sleep(SESSION_S)
        assert since_it_woke(deeds) == done
        assert (new.status()["epoch"], new.leads) == (epoch, True)
        assert leases_of(new) == leases, "the same leases"
        assert system.runs() == runs, "no container has ended, none was started"

        end_apps(system, new, steady, taking)
