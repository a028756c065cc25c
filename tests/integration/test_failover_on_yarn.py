"""Three arbiters on a real ZooKeeper and a real YARN with running GPU containers: the leader killed, frozen, asked to go, and
all of them restarted one after the other."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.arbiters import SESSION_S, ArbiterProcess, Arbiters
from tests.support.live_yarn import CALM, Part, until
from tests.support.zookeeper_server import run_zookeeper
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.local.children import clean_environment
from themis_arbiter.cli.local.stage import PLUGIN_JAR
from themis_arbiter.core.events import Batch
from themis_arbiter.ports import StaleEpochError
from yarn_bridge.gateway import Py4JGateway, read_gateway_file
from yarn_bridge.local import LocalYarn, LocalYarnConfig, NodeSpec, ShellJob
from yarn_bridge.local.reaper import MARK_VARIABLE

pytestmark = [pytest.mark.yarn, pytest.mark.zookeeper, pytest.mark.slow, pytest.mark.timeout(400)]

CONFIG: Final = LocalYarnConfig(nodes=(NodeSpec(gpus=4, rack="rack0"), NodeSpec(gpus=2, rack="rack1")), host_net=15)
GPUS: Final = 4
SETTLED_S: Final = 40.0


class System:
    """What runs, and what is true of it from outside."""

    def __init__(self, yarn: LocalYarn, arbiters: Arbiters, place: Place) -> None:
        self.yarn, self.arbiters, self.place = yarn, arbiters, place

    def lines_of_leases(self, arbiter: ArbiterProcess) -> list[tuple[str, str, int, int]]:
        """Id, node, ordinal and end of each lease."""
        found = json.loads(arbiter.get("/api/v1/leases")[1])["leases"]
        return sorted((x["lease_id"], x["node"], x["gpu"], x["end_ms"]) for x in found)

    def runs(self) -> list[tuple[str, bool]]:
        """GPU containers that ever ran, and whether each has ended, by the ResourceManager's log."""
        return sorted((run.container_id, run.end_ms is not None) for run in self.yarn.container_runs() if run.gpus)

    def gateway(self) -> Py4JGateway:
        assert self.yarn.config.gateway_dir is not None
        return Py4JGateway(read_gateway_file(self.yarn.config.gateway_dir))

    def hello(self) -> dict[str, Any]:
        gateway = self.gateway()
        try:
            return dict(json.loads(gateway.hello()))
        finally:
            gateway.close()

    def tell(self, epoch: int) -> dict[str, Any]:
        """What the plugin replies to an update of `epoch` that would take all leases away."""
        gateway = self.gateway()
        update = {"epoch": epoch, "start_id": self.hello()["start_id"], "seq": 1, "is_full": True, "leases": []}
        try:
            return dict(json.loads(gateway.apply(json.dumps(update).encode())))
        finally:
            gateway.close()

    def follow(self, old: ArbiterProcess, leases: list[tuple[str, str, int, int]]) -> ArbiterProcess:
        """Who leads in place of `old`, when the bridge is there; nothing that ran has noticed."""
        leader = self.arbiters.wait_leader(but=old, within_s=SETTLED_S)
        until(lambda: bool(leader.status().get("is_bridge_connected")), "the bridge has followed", SETTLED_S)
        assert self.lines_of_leases(leader) == leases
        return leader


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    assert PLUGIN_JAR.is_file(), "make plugin"
    with ExitStack() as stack:
        zookeeper = stack.enter_context(run_zookeeper(tmp_path, servers=3))
        yarn = stack.enter_context(LocalYarn(CONFIG.with_plugin(PLUGIN_JAR), progress=print))
        place = Place(hosts=zookeeper.hosts, chroot="/themis")
        calm = {key: str(value).lower() if isinstance(value, bool) else value for key, value in CALM.items()}
        arbiters = stack.enter_context(Arbiters(f"zookeeper:{place}", tmp_path, **calm))
        arbiters.start("a", "b", "c")
        assert yarn.config.gateway_dir is not None
        where = ["--bridge-gateway-dir", str(yarn.config.gateway_dir)]
        where += ["--bridge-arbiter", ",".join(one.grpc_address for one in arbiters.all)]
        bridge = Part("bridge", where, clean_environment({MARK_VARIABLE: yarn.mark}), tmp_path / "bridge.log")
        stack.callback(bridge.end)
        yield System(yarn, arbiters, place)


def start_steady(system: System, leader: ArbiterProcess) -> str:
    """An app whose containers run under leases; its application's id."""
    until(lambda: bool(leader.status().get("is_bridge_connected")), "the bridge has found the leader", SETTLED_S)
    job = ShellJob(command="exec sleep 600", n_containers=GPUS, tags=("themis.app=steady",))
    job_id = system.yarn.client.submit_distributed_shell(job)
    until(lambda: len(system.runs()) == GPUS, "the containers run")
    until(lambda: len(system.lines_of_leases(leader)) == GPUS, "their leases are there")
    return job_id


def run_a_short_app(system: System, name: str) -> None:
    """One that is served and ends."""
    job = ShellJob(command="exec sleep 1", n_containers=2, tags=(f"themis.app={name}",))
    done = system.yarn.client.wait(system.yarn.client.submit_distributed_shell(job))
    assert done["finalStatus"] == "SUCCEEDED"


def test_leaders_come_and_go_and_nothing_that_runs_notices(system: System) -> None:
    leader = system.arbiters.wait_leader()
    job_id = start_steady(system, leader)
    leases, runs = system.lines_of_leases(leader), system.runs()

    leader.signal(signal.SIGKILL)
    second = system.follow(leader, leases)
    system.arbiters.forget(leader)

    epoch = second.status()["epoch"]
    second.signal(signal.SIGSTOP)
    third = system.follow(second, leases)
    time.sleep(2 * SESSION_S)
    second.signal(signal.SIGCONT)
    until(lambda: second.status().get("is_leader") is False, "who was frozen stands by", SETTLED_S)
    assert third.leads
    # What it had under way when it froze: the first write and the first message of its epoch are both refused.
    with closing(ZooKeeperStore(system.place)) as frozen, pytest.raises(StaleEpochError):
        frozen.commit(Batch(batch_no=1, epoch=epoch, start_id="", last_round=9, last_serial=9, deletes=(leases[0][0],)))
    refused = system.tell(epoch)
    assert (refused.get("is_accepted", False), refused["reason"]) == (False, "OLD_EPOCH")

    third.signal(signal.SIGTERM)
    fourth = system.follow(third, leases)
    assert third.process.wait(10) == 0
    assert fourth is second, "who was frozen leads again"
    assert system.runs() == runs, "no container has ended, none was started twice"

    system.yarn.client.kill(job_id)
    until(lambda: system.lines_of_leases(fourth) == [], "the leases of the killed app end", SETTLED_S)
    again = ShellJob(command="exec sleep 1", n_containers=2, tags=("themis.app=next",))
    system.yarn.client.submit_distributed_shell(again)
    until(lambda: len(system.runs()) == GPUS + 2, "the last leader serves who comes next")


def restart(system: System, old: ArbiterProcess) -> ArbiterProcess:
    """As its supervisor does: SIGTERM, and again at the same address, where bridges look for it."""
    old.signal(signal.SIGTERM)
    assert old.process.wait(10) == 0
    system.arbiters.forget(old)
    system.arbiters.start(f"{old.name}-again", grpc_address=old.grpc_address)
    return system.arbiters.all[-1]


def wait_standing_by(standby: ArbiterProcess, leader: ArbiterProcess) -> None:
    until(lambda: standby.status().get("leader_address") == leader.grpc_address, "it stands by", SETTLED_S)


def test_a_rolling_restart_of_three_arbiters_moves_no_container_and_a_kill_of_all_loses_nothing(system: System) -> None:
    """The restart is as the guide says: standbys first, then the leader, which steps down before."""
    leader = system.arbiters.wait_leader()
    start_steady(system, leader)
    leases, runs, epoch = system.lines_of_leases(leader), system.runs(), leader.status()["epoch"]
    for standby in [one for one in system.arbiters.all if one is not leader]:
        wait_standing_by(restart(system, standby), leader)
    assert (leader.leads, leader.status()["epoch"]) == (True, epoch)

    everyone = ",".join(one.grpc_address for one in system.arbiters.all)
    step_down = [sys.executable, "-m", "themis_arbiter.cli", "admin", "step-down", "--yes", "--arbiter", everyone]
    began_s = time.monotonic()
    done = subprocess.run(step_down, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    following = system.follow(leader, leases)
    print(f"another leads, with its bridge, {time.monotonic() - began_s:.1f} s after it was asked for")
    wait_standing_by(restart(system, leader), following)
    assert (following.leads, following.status()["epoch"]) == (True, epoch + 1), "one change of leaders, not three"
    assert system.lines_of_leases(following) == leases, "the same leases, with the same ends"
    assert system.runs() == runs, "no container has ended, none was started twice"

    # All of them killed at once, and started again: what is over stays over, what runs keeps its leases.
    run_a_short_app(system, "over")
    until(lambda: system.lines_of_leases(following) == leases, "the short app's leases end", SETTLED_S)
    runs, addresses = system.runs(), [one.grpc_address for one in system.arbiters.all]
    for one in system.arbiters.all:
        one.signal(signal.SIGKILL)
    for one in system.arbiters.all.copy():
        system.arbiters.forget(one)
    for number, address in enumerate(addresses):
        system.arbiters.start(f"back-{number}", grpc_address=address)
    last = system.follow(leader, leases)
    assert [(x["app_id"].rpartition("/")[2], x["gpus_held"]) for x in last.document("apps")["apps"]] == [("steady", GPUS)]
    assert system.runs() == runs, "no container has ended, none was started"
    run_a_short_app(system, "next")
    until(lambda: system.lines_of_leases(last) == leases, "who comes next was served, and its leases end", SETTLED_S)
