"""Three real arbiters on a real ZooKeeper: killed, frozen, asked to step down, and cut off from it."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.arbiters import SESSION_S, ArbiterProcess, Arbiters
from tests.support.fake_gateway import FakePlugin, FakePy4JServer
from tests.support.zookeeper_server import ZooKeeper, eventually, run_zookeeper
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.core.events import Batch, Meter
from themis_arbiter.core.lease import Lease, LeaseState
from yarn_bridge.daemon import SILENCE_S, Bridge

pytest_plugins = ["tests.support.zookeeper"]
pytestmark = [pytest.mark.zookeeper, pytest.mark.timeout(180)]

NOW_MS: Final = int(time.time() * 1_000)
FAILOVER_S: Final = 3 * SESSION_S + 3  # the session's end, the next list, the take-over; with room for a busy machine
HAND_OVER_S: Final = 3.0
CLI: Final = (sys.executable, "-m", "themis_arbiter.cli")


@pytest.fixture
def place(zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Place:
    return Place(hosts=zookeeper.hosts, chroot=f"/{request.node.name}", session_s=SESSION_S)


@pytest.fixture
def arbiters(place: Place, tmp_path: Path) -> Iterator[Arbiters]:
    with Arbiters(f"zookeeper:{place}", tmp_path) as started:
        yield started


def a_lease(number: int) -> Lease:
    ends_ms = (int(time.time() * 1_000) // 300_000 + 2) * 300_000
    return Lease(
        lease_id=f"L{number:08d}",
        grant_id="G00000001",
        gpu=f"n{number}:0",
        app_id="alice/app",
        job_id="application_1_0001",
        epoch=1,
        round_no=1,
        start_ms=ends_ms - 600_000,
        end_ms=ends_ms,
        state=LeaseState.ACTIVE,
    )


def put_leases(place: Place, count: int) -> list[str]:
    """What an earlier leader left; their ids."""
    leases = tuple(a_lease(number) for number in range(count))
    account = Meter(attained=7_000.0, done=7_000.0, metered_ms=NOW_MS, app_id="alice/app", arrival_ms=NOW_MS - 60_000)
    accounts = (("application_1_0001", account),)
    with closing(ZooKeeperStore(place)) as store:
        left = Batch(batch_no=1, epoch=store.acquire_epoch(), start_id="start-1", last_round=1, last_serial=count, puts=leases)
        store.commit(replace(left, meters=accounts))
    return [lease.lease_id for lease in leases]


def leases_of(arbiter: ArbiterProcess) -> list[str]:
    return sorted(lease["lease_id"] for lease in json.loads(arbiter.get("/api/v1/leases")[1])["leases"])


def wait_bridge(arbiter: ArbiterProcess, within_s: float) -> None:
    eventually(lambda: bool(arbiter.status().get("is_bridge_connected")), within_s, f"a bridge is at {arbiter.name}")


def themis(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*CLI, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_a_killed_leader_is_followed_with_its_leases_and_comes_back_as_a_standby(place: Place, arbiters: Arbiters) -> None:
    kept = put_leases(place, 50)
    arbiters.start("a", "b", "c")
    leader = arbiters.wait_leader()
    assert leases_of(leader) == kept
    epoch = leader.status()["epoch"]
    leader.process.kill()
    arbiters.start("again")  # at once, beside its own node that ZooKeeper still has
    arbiters.forget(leader)
    following = arbiters.wait_leader(within_s=FAILOVER_S)
    assert following.status()["epoch"] == epoch + 1
    assert leases_of(following) == kept
    again = arbiters.all[-1]
    eventually(lambda: again.status().get("leader_address") == following.grpc_address, FAILOVER_S, "it knows who leads")


def test_a_leader_that_was_frozen_stands_down_when_it_wakes_and_writes_nothing(place: Place, arbiters: Arbiters) -> None:
    kept = put_leases(place, 20)
    arbiters.start("a", "b", "c")
    leader = arbiters.wait_leader()
    leader.signal(signal.SIGSTOP)
    following = arbiters.wait_leader(but=leader, within_s=FAILOVER_S)
    time.sleep(2 * SESSION_S)
    epoch = following.status()["epoch"]
    leader.signal(signal.SIGCONT)
    eventually(lambda: leader.status().get("is_leader") is False, 5.0, "it stands by")
    eventually(lambda: leader.status().get("leader_address") == following.grpc_address, FAILOVER_S, "it knows who leads")
    assert "no longer leading" in leader.log.read_text(encoding="utf-8")
    assert arbiters.wait_leader() is following
    assert following.status()["epoch"] == epoch
    assert leases_of(following) == kept
    # It is a standby like any other, and leads when its turn comes.
    for other in [one for one in arbiters.all if one is not leader]:
        other.process.kill()
        arbiters.forget(other)
    assert arbiters.wait_leader(within_s=FAILOVER_S + SESSION_S) is leader
    assert leases_of(leader) == kept


def test_sigterm_and_step_down_hand_over_at_once_and_a_lone_arbiter_keeps_the_lead(place: Place, arbiters: Arbiters) -> None:
    kept = put_leases(place, 5)
    arbiters.start("a", "b")
    leader = arbiters.wait_leader()
    (standby,) = [one for one in arbiters.all if one is not leader]
    both = f"{leader.grpc_address},{standby.grpc_address}"
    eventually(lambda: standby.status().get("leader_address") == leader.grpc_address, FAILOVER_S, "the standby knows")
    time.sleep(SESSION_S / 3)  # the leader lists its standbys that often
    done = themis("admin", "step-down", "--yes", "--arbiter", both)
    assert (done.returncode, "steps down" in done.stdout) == (0, True), done.stderr
    assert arbiters.wait_leader(but=leader, within_s=HAND_OVER_S) is standby
    assert leases_of(standby) == kept
    eventually(lambda: leader.status().get("leader_address") == standby.grpc_address, FAILOVER_S, "it stands by")
    time.sleep(6)  # it leaves the lead to others for 5 s, and stands again
    began_s = time.monotonic()
    standby.signal(signal.SIGTERM)
    arbiters.wait_leader(but=standby, within_s=HAND_OVER_S)
    assert time.monotonic() - began_s < SESSION_S + 1
    assert standby.process.wait(10) == 0
    arbiters.forget(standby)
    refused = themis("admin", "step-down", "--yes", "--arbiter", leader.grpc_address)
    assert refused.returncode == 1
    assert "no other arbiter stands by" in refused.stderr
    assert leader.leads
    epoch = leader.status()["epoch"]
    raised = themis("admin", "reset-epoch", "--yes", "--json", "--store", f"zookeeper:{place}", "--to", "1000")
    assert json.loads(raised.stdout)["epoch_before"] == epoch, raised.stderr
    eventually(lambda: leader.status().get("epoch") == 1_001, FAILOVER_S, "fenced by the raised epoch, it leads anew")
    assert leases_of(leader) == kept


def test_a_standby_is_healthy_says_that_it_does_not_lead_and_who_does(
    place: Place, arbiters: Arbiters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leftovers").mkdir()
    (tmp_path / "leftovers" / "gauge_all_1.db").write_bytes(b"of a process that is dead")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "leftovers"))
    arbiters.start("a", "b")
    leader = arbiters.wait_leader()
    (standby,) = [one for one in arbiters.all if one is not leader]
    eventually(lambda: standby.status().get("leader_address") == leader.grpc_address, FAILOVER_S, "it knows who leads")
    assert standby.get("/healthz")[0] == 200
    assert standby.get("/readyz")[0] == 503
    assert leader.get("/readyz")[0] == 200
    assert standby.status()["epoch"] == leader.status()["epoch"] == 1
    metrics = standby.get("/metrics")[1]
    assert "themis_leader 0.0" in metrics
    assert "themis_epoch 1.0" in metrics
    for words in (("apps",), ("admin", "audit")):  # an empty list would say that nobody did anything
        refused = themis(*words, "--arbiter", standby.grpc_address)
        assert refused.returncode == 1
        assert f"stands by: {leader.grpc_address} leads" in refused.stderr
    assert themis("apps", "--json", "--arbiter", f"{standby.grpc_address},{leader.grpc_address}").returncode == 0
    assert standby.process.poll() is leader.process.poll() is None
    leader.process.kill()
    arbiters.forget(leader)
    assert arbiters.wait_leader(within_s=FAILOVER_S) is standby
    metrics = standby.get("/metrics")[1]
    assert "themis_leader 1.0" in metrics
    assert "themis_epoch 2.0" in metrics


def test_a_standby_shows_what_is_stored_and_says_that_it_does_not_lead(place: Place, arbiters: Arbiters) -> None:
    kept = put_leases(place, 3)
    arbiters.start("a", "b")
    leader = arbiters.wait_leader()
    (standby,) = [one for one in arbiters.all if one is not leader]
    eventually(lambda: standby.status().get("leader_address") == leader.grpc_address, FAILOVER_S, "it knows who leads")
    leases, apps = standby.document("leases"), standby.document("apps")
    for shown in (leases, apps):
        assert (shown["is_leader"], shown["leader_address"]) == (False, leader.grpc_address)
        assert 0 < shown["now_ms"] - shown["stored_at_ms"] < 60_000
        assert f"stands by: {leader.grpc_address} leads; this is what was stored last" in shown["note"]
    assert leader.status()["leader_address"] == leader.grpc_address
    assert leases["leases"] == leader.document("leases")["leases"]
    assert [x["lease_id"] for x in leases["leases"]] == kept
    answers = [one.get("/api/v1/leases?app=nobody") for one in (standby, leader)]
    assert answers[0] == answers[1] == (404, '{"error": "no app \'nobody\': `themis apps --all` lists those there are"}\n')
    (app,) = apps["apps"]
    assert (app["app_id"], app["user"], app["state"], app["gpus_held"]) == ("alice/app", "alice", "RUNNING", 3)
    assert app["gpus_by_node"] == {"n0": 1, "n1": 1, "n2": 1}
    assert (app["attained_gpu_s"], app["arrival_ms"], app["rho"]) == (7.0, NOW_MS - 60_000, None)
    assert [(job["job_id"], job["gpus_held"]) for job in app["jobs"]] == [("application_1_0001", 3)]
    (at_leader,) = leader.document("apps")["apps"]  # to which no bridge has come
    jobs = [[{k: v for k, v in job.items() if app["jobs"][0][k] is not None} for job in x["jobs"]] for x in (app, at_leader)]
    assert jobs[0] == jobs[1]
    assert {k: at_leader[k] for k, v in app.items() if v is not None and k != "jobs"} == {
        k: v for k, v in app.items() if v is not None and k != "jobs"
    }
    assert at_leader["rho"] is None
    code, text = leader.get("/api/v1/explain/alice%2Fapp")
    assert (code, "has not named it since this arbiter leads" in text) == (200, True)
    assert "alice/app" in leader.get("/")[1]
    code, page = standby.get("/")
    assert (code, "NOT the leader" in page, "alice/app" in page) == (200, True, True)
    for view in ("rounds", "nodes", "audit", "explain/alice%2Fapp"):  # what the store does not know
        code, text = standby.get(f"/api/v1/{view}")
        assert (code, leader.grpc_address in text) == (503, True), view
    # It follows what is written, and shows it when nobody leads any more.
    leader.signal(signal.SIGSTOP)
    with closing(ZooKeeperStore(place)) as store:
        written = Batch(batch_no=1, epoch=store.epoch(), start_id="start-1", last_round=2, last_serial=9)
        store.commit(replace(written, deletes=(kept[0],)))
    eventually(lambda: [x["lease_id"] for x in standby.document("leases")["leases"]] == kept[1:], 5.0, "it shows what is new")


def test_arbiters_with_other_settings_say_so_and_serve_all_the_same(place: Place, arbiters: Arbiters) -> None:
    put_leases(place, 1)
    arbiters.start("a")
    leader = arbiters.wait_leader()
    arbiters.start("b", policy="fifo", lease="20 min")
    arbiters.start("c")
    other, alike = arbiters.all[1:]
    says = [f"lease is 20 min here, 5 min at {leader.grpc_address}", f"policy is fifo here, themis at {leader.grpc_address}"]
    eventually(lambda: other.status().get("differences") == says, FAILOVER_S, "it says in what it is not like the leader")
    assert all(one in json.loads(other.get("/readyz")[1])["reason"] for one in says)
    eventually(lambda: alike.status().get("leader_address") == leader.grpc_address, FAILOVER_S, "it knows who leads")
    assert alike.status()["differences"] == leader.status()["differences"] == []
    time.sleep(SESSION_S)  # several lists
    assert (
        other.log.read_text(encoding="utf-8").count("this arbiter would decide otherwise than the one that took epoch 2") == 1
    )
    assert "would decide otherwise" not in alike.log.read_text(encoding="utf-8")
    for one in (leader, alike):  # nothing unsafe in it: it leads when it is its turn, and the others say so then
        one.signal(signal.SIGKILL)
    assert arbiters.wait_leader(but=leader, within_s=2 * FAILOVER_S) is other
    assert other.status()["differences"] == []


def test_a_wall_clock_that_jumps_moves_no_lease_end_and_costs_no_lead(place: Place, arbiters: Arbiters, tmp_path: Path) -> None:
    put_leases(place, 3)
    off_by = tmp_path / "off-by"
    off_by.write_text("0")
    arbiters.start("a", program=("tests.support.jumping_clock", str(off_by)))
    leader = arbiters.wait_leader()
    began_s, shown = time.monotonic(), leader.document("leases")
    ends, epoch = {x["lease_id"]: x["end_ms"] for x in shown["leases"]}, leader.status()["epoch"]
    for seconds in (-3 * 365 * 86_400, 3_600, 0):
        off_by.write_text(str(seconds))
        time.sleep(1.5 * SESSION_S)
        now = leader.document("leases")
        passed_ms = (time.monotonic() - began_s) * 1_000
        assert abs(now["now_ms"] - shown["now_ms"] - passed_ms) < 1_000, "its time goes on as time does"
        assert {x["lease_id"]: x["end_ms"] for x in now["leases"]} == ends
        assert (leader.leads, leader.status()["epoch"]) == (True, epoch)
    families = text_string_to_metric_families(leader.get("/metrics")[1])
    samples = [x for family in families if family.name.startswith("themis_") for x in family.samples]
    assert len(samples) > 10
    assert [x for x in samples if x.value < 0] == []
    assert "standing down" not in leader.log.read_text(encoding="utf-8")


def test_the_bridge_follows_the_lead_and_the_gate_sees_epochs_rise(place: Place, arbiters: Arbiters, tmp_path: Path) -> None:
    put_leases(place, 3)
    plugin = FakePlugin()
    gateway = FakePy4JServer(plugin)
    gateway.write_file(tmp_path / "gateway")
    plugin.put("nodes", node="n0", rack="/r", gpus=4, memory_free_mb=1_000, vcores_free=8, state="RUNNING")
    arbiters.start("a", "b", "c")
    bridge = Bridge(tmp_path / "gateway", ",".join(one.grpc_address for one in arbiters.all))
    thread = threading.Thread(target=bridge.run)
    thread.start()
    try:
        leader = arbiters.wait_leader()
        wait_bridge(leader, 15)
        assert plugin.wait(lambda: plugin.updates)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            leader.signal(number)
            following = arbiters.wait_leader(but=leader, within_s=FAILOVER_S)
            wait_bridge(following, FAILOVER_S + SILENCE_S)
            arbiters.forget(leader)
            leader = following
            epoch = leader.status()["epoch"]
            assert plugin.wait(lambda epoch=epoch: int(plugin.updates[-1]["epoch"]) == epoch)
        epochs = [int(update["epoch"]) for update in plugin.updates]
        assert epochs == sorted(epochs)
    finally:
        bridge.stop()
        thread.join(10)
        gateway.close()


def test_nobody_leads_without_zookeeper_and_one_does_when_it_is_back(tmp_path: Path) -> None:
    with (
        run_zookeeper(tmp_path) as zookeeper,
        Arbiters(f"zookeeper:{zookeeper.hosts}/clusters/one/themis", tmp_path) as arbiters,
    ):
        arbiters.start("a", "b")
        leader = arbiters.wait_leader()
        zookeeper.servers[0].daemon.kill()
        eventually(lambda: leader.status().get("is_leader") is False, SESSION_S + 3, "it stands down")
        assert "does not reach ZooKeeper" in leader.get("/api/v1/apps")[1]
        assert leader.get("/healthz")[0] == 200
        why = f"does not reach ZooKeeper at {zookeeper.hosts}"
        assert all(why in json.loads(one.get("/readyz")[1])["reason"] for one in arbiters.all)
        assert all(why in one.status()["standing_by"] for one in arbiters.all)
        zookeeper.servers[0].start()
        zookeeper.servers[0].wait_ready(time.monotonic() + 30)
        arbiters.wait_leader(within_s=3 * FAILOVER_S)
        assert [one.process.poll() for one in arbiters.all] == [None, None]


def test_running_arbiters_lead_on_when_zookeeper_has_lost_its_state(tmp_path: Path) -> None:
    with (
        run_zookeeper(tmp_path) as zookeeper,
        Arbiters(f"zookeeper:{zookeeper.hosts}/clusters/one/themis", tmp_path) as arbiters,
    ):
        server, place = zookeeper.servers[0], Place(hosts=zookeeper.hosts, chroot="/clusters/one/themis")
        kept = put_leases(place, 3)
        arbiters.start("a", "b")
        leader = arbiters.wait_leader()
        assert [x["lease_id"] for x in leader.document("leases")["leases"]] == kept
        server.daemon.kill()
        eventually(lambda: not leader.leads, FAILOVER_S, "it stands down")
        server.lose_state()
        server.start()
        server.wait_ready(time.monotonic() + 30)
        leader = arbiters.wait_leader(within_s=4 * FAILOVER_S)
        assert (leader.status()["epoch"], leader.document("leases")["leases"]) == (1, [])
        (standby,) = [one for one in arbiters.all if one is not leader]
        eventually(lambda: standby.status().get("leader_address") == leader.grpc_address, 2 * FAILOVER_S, "it knows who leads")
        eventually(lambda: standby.document("leases")["leases"] == [], FAILOVER_S, "it shows what is stored now")
        assert "may have lost its state" in "".join(one.log.read_text(encoding="utf-8") for one in arbiters.all)
        assert [one.process.poll() for one in arbiters.all] == [None, None]
