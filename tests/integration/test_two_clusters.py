"""Two YARN clusters whose arbiters were given one path in ZooKeeper: it is the first one's, until an admin says otherwise."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.arbiters import SESSION_S, ArbiterProcess, Arbiters
from tests.support.fake_gateway import FakePlugin, FakePy4JServer
from tests.support.logs import logging_kept
from tests.support.zookeeper_server import ZooKeeper, eventually
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.cli.main import run
from themis_arbiter.server.candidacy import OTHERS_REST_MS
from yarn_bridge.daemon import Bridge

pytest_plugins = ["tests.support.zookeeper"]
pytestmark = [pytest.mark.zookeeper, pytest.mark.timeout(180)]

SETTLED_S: Final = 3 * SESSION_S + 5
RESTED_S: Final = OTHERS_REST_MS / 1_000 + SETTLED_S


@pytest.fixture
def place(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Place:
    return Place(hosts=zookeeper.hosts, chroot=f"/{request.node.name}", session_s=SESSION_S)


@contextmanager
def bridge_of(cluster: str, folder: Path, *arbiters: ArbiterProcess, start_id: str = "start-1") -> Iterator[FakePlugin]:
    """A plugin in a ResourceManager of `cluster`, and its bridge, to these arbiters."""
    plugin = FakePlugin(start_id=f"{cluster}-{start_id}", cluster_id=cluster)
    plugin.put("nodes", node=f"{cluster}-n0", rack="/r", gpus=4, memory_free_mb=1_000, vcores_free=8, state="RUNNING")
    gateway = FakePy4JServer(plugin)
    gateway.write_file(folder / f"{cluster}-{start_id}")
    bridge = Bridge(folder / f"{cluster}-{start_id}", ",".join(one.grpc_address for one in arbiters))
    thread = threading.Thread(target=bridge.run)
    thread.start()
    try:
        yield plugin
    finally:
        bridge.stop()
        thread.join()
        gateway.close()


def is_attached(one: ArbiterProcess) -> bool:
    return bool(one.status().get("is_bridge_connected"))


def test_a_path_is_one_clusters_until_an_admin_resets_it(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Arbiters(f"zookeeper:{place}", tmp_path) as arbiters:
        arbiters.start("alpha")
        alpha = arbiters.wait_leader()
        with bridge_of("alpha", tmp_path, alpha):
            eventually(lambda: is_attached(alpha), SETTLED_S, "the path is alpha's")
        with bridge_of("alpha", tmp_path, alpha, start_id="start-2"):  # another of its ResourceManagers, or the same anew
            eventually(lambda: is_attached(alpha), SETTLED_S, "so it is for all of alpha's ResourceManagers")
            arbiters.start("beta")
            beta = arbiters.all[1]
            # Beta's bridge is told of both: neither takes it, and the leader is none the worse for it.
            with bridge_of("beta", tmp_path, alpha, beta) as plugin:
                eventually(lambda: "'alpha'" in beta.status().get("standing_by", ""), SETTLED_S, "it says whose the path is")
                why = beta.status()["standing_by"]
                assert all(part in why for part in (str(place), "'beta'", "of its own in `store`", "reset-cluster")), why
                assert json.loads(beta.get("/readyz")[1])["reason"] == why
                time.sleep(SESSION_S)
                assert (alpha.leads, is_attached(alpha), plugin.updates) == (True, True, [])
                epoch = alpha.status()["epoch"]
                alpha.signal(signal.SIGKILL)
                arbiters.forget(alpha)
                time.sleep(2 * SETTLED_S)
                assert (beta.status()["is_leader"], plugin.updates) == (False, []), "rather nobody than a stranger"
                log = beta.log.read_text(encoding="utf-8")
                assert log.count("this arbiter may not lead") == 1
                assert "elected, but the term could not begin" in log
                with logging_kept():
                    assert run(["admin", "reset-cluster", "--yes", "--store", f"zookeeper:{place}"]) == 0
                assert "served alpha" in capsys.readouterr().out
                eventually(lambda: is_attached(beta), RESTED_S, "the path is beta's now")
                assert plugin.wait(lambda: plugin.updates)
                assert beta.status()["epoch"] == epoch + 1, "no epoch was taken before"


def test_a_stranger_that_leads_for_want_of_a_bridge_stands_down_when_one_comes(place: Place, tmp_path: Path) -> None:
    with Arbiters(f"zookeeper:{place}", tmp_path) as arbiters:
        arbiters.start("alpha")
        alpha = arbiters.wait_leader()
        with bridge_of("alpha", tmp_path, alpha):
            eventually(lambda: is_attached(alpha), SETTLED_S, "the path is alpha's")
        alpha.signal(signal.SIGTERM)
        alpha.process.wait(30)
        arbiters.forget(alpha)
        arbiters.start("beta")  # whose cluster nobody has told it
        beta = arbiters.wait_leader()
        with bridge_of("beta", tmp_path, beta) as plugin:
            eventually(lambda: "'alpha'" in beta.status().get("standing_by", ""), SETTLED_S, "it stands down")
            arbiters.start("alpha2")
            assert arbiters.wait_leader().name == "alpha2"
            assert plugin.updates == []


def test_clusters_without_an_id_are_served_as_ever(place: Place, tmp_path: Path) -> None:
    with Arbiters(f"zookeeper:{place}", tmp_path) as arbiters:
        arbiters.start("a")
        leader = arbiters.wait_leader()
        for start_id in ("start-1", "start-2"):
            with bridge_of("", tmp_path, leader, start_id=start_id):
                eventually(lambda: is_attached(leader), SETTLED_S, "its bridge is there")
        with bridge_of("one", tmp_path, leader):  # it has been given an id
            eventually(lambda: is_attached(leader), SETTLED_S, "its bridge is there")
