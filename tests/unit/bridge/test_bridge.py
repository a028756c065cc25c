"""The whole bridge between a plugin behind a Py4J server and the arbiter's own service, over real sockets."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_gateway import FakePlugin, FakePy4JServer
from tests.support.serving import Serving, lease, serve
from themis_arbiter.core.effects import GrantGpus, SyncLeases
from themis_arbiter.core.events import RmAttached, RmDetached, RmReported, UpdateRefused
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from yarn_bridge import daemon, relay
from yarn_bridge.daemon import BACKOFF_S_MAX, Backoff, Bridge, parse_arbiters
from yarn_bridge.gateway import GatewayError, InsecureGatewayError
from yarn_bridge.wire import Teller


@pytest.fixture
def serving() -> Iterator[Serving]:
    with serve() as serving:
        yield serving


@pytest.fixture
def plugin() -> FakePlugin:
    plugin = FakePlugin()
    plugin.put("nodes", node="n1", rack="/r0", gpus_total=4, state="RUNNING")
    return plugin


@pytest.fixture
def server(plugin: FakePlugin, tmp_path: Path) -> Iterator[FakePy4JServer]:
    server = FakePy4JServer(plugin)
    server.write_file(tmp_path / "gateway")
    yield server
    server.is_hung.clear()
    server.close()


Start = Callable[..., Bridge]


@pytest.fixture
def start(tmp_path: Path, serving: Serving) -> Iterator[Start]:
    """Starts bridges; each must stop in time."""
    running: list[tuple[Bridge, threading.Thread]] = []

    def starter(arbiters: str = "") -> Bridge:
        bridge = Bridge(tmp_path / "gateway", arbiters or f"127.0.0.1:{serving.port}", seed=1)
        thread = threading.Thread(target=bridge.run, daemon=True)
        thread.start()
        running.append((bridge, thread))
        return bridge

    yield starter
    for bridge, thread in running:
        began_s = time.monotonic()
        bridge.stop()
        thread.join(5)
        assert not thread.is_alive()
        assert time.monotonic() - began_s < 3


def sync(seq: int = 1, start_id: str = "start-1", **changes: Any) -> SyncLeases:
    return SyncLeases(epoch=3, start_id=start_id, seq=seq, leases=(lease(**changes),), drains=())


def test_state_goes_up_and_leases_come_down(serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start) -> None:
    start()
    (snapshot,) = serving.engine.wait_for(RmReported)
    assert (snapshot.is_full, snapshot.start_id, [n.node for n in snapshot.nodes]) == (True, "start-1", ["n1"])
    serving.cluster.sync(sync())
    assert plugin.wait(lambda: plugin.updates)
    assert plugin.updates[0]["leases"][0]["node"] == "n1"
    confirmed = serving.engine.wait_for(RmReported, 2)[1]  # nothing changed, but that the update was applied is news
    assert (confirmed.update_seq, confirmed.is_full, confirmed.nodes) == (1, False, ())
    plugin.put("nodes", node="n2", gpus_total=2, state="RUNNING")
    changed = serving.engine.wait_for(RmReported, 3)[2]
    assert [n.node for n in changed.nodes] == ["n2"]
    assert serving.engine.of(UpdateRefused) == []


def test_signs_of_life_reach_the_plugin(serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start) -> None:
    start()
    serving.engine.wait_for(RmAttached)
    serving.cluster.sync(sync())
    assert plugin.wait(lambda: plugin.signs_of_life >= 3)
    assert len(plugin.updates) == 1


def test_a_refusal_goes_back(serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start) -> None:
    start()
    serving.engine.wait_for(RmReported)
    serving.cluster.sync(sync(1))
    serving.cluster.grant(GrantGpus(epoch=3, start_id="start-1", seq=9, leases=(lease("l2"),)))
    assert serving.engine.wait_for(UpdateRefused)[0].reason == "GAP"


def test_diagnostics_reach_the_plugin(serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start) -> None:
    start()
    serving.engine.wait_for(RmAttached)
    serving.cluster.sync(sync())
    assert plugin.wait(lambda: plugin.updates)
    serving.cluster.send_diagnostics({"application_1_0001": "waits: é"})
    assert plugin.wait(lambda: plugin.diagnostics_seen)
    assert plugin.diagnostics_seen == [
        {"start_id": "start-1", "epoch": "3", "by_application": {"application_1_0001": "waits: é"}}
    ]


def test_a_plugin_that_lost_changes_is_read_anew(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start
) -> None:
    start()
    serving.engine.wait_for(RmReported)
    plugin.kept_from_seq = 2
    plugin.put("nodes", node="n2", state="RUNNING")
    second = serving.engine.wait_for(RmReported, 2)[1]
    assert (second.is_full, [n.node for n in second.nodes]) == (True, ["n1", "n2"])
    assert len(serving.engine.of(RmAttached)) == 1


def test_a_restarted_resource_manager_is_found_again(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start, tmp_path: Path
) -> None:
    start()
    serving.engine.wait_for(RmReported)
    server.close()
    serving.engine.wait_for(RmDetached)
    again = FakePy4JServer(FakePlugin("start-2"))
    again.write_file(tmp_path / "gateway")
    assert serving.engine.wait_for(RmAttached, 2)[1].start_id == "start-2"
    again.close()


def test_a_plugin_activated_anew_behind_the_same_port_begins_a_new_session(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start, tmp_path: Path
) -> None:
    start()
    serving.engine.wait_for(RmReported)
    plugin.start_id = "start-2"
    serving.engine.wait_for(RmDetached)
    assert len(serving.engine.of(RmAttached)) == 1  # the file still promises the old one
    server.write_file(tmp_path / "gateway")
    assert serving.engine.wait_for(RmAttached, 2)[1].start_id == "start-2"


def test_a_restarted_arbiter_is_found_again(plugin: FakePlugin, server: FakePy4JServer, start: Start, serving: Serving) -> None:
    with serve() as first:
        start(f"127.0.0.1:{first.port}, 127.0.0.1:{serving.port}")
        first.engine.wait_for(RmReported)
        assert serving.engine.events == []
    serving.engine.wait_for(RmReported)  # a standby takes over


def test_the_bridge_may_come_before_the_plugin(serving: Serving, plugin: FakePlugin, start: Start, tmp_path: Path) -> None:
    start()
    time.sleep(0.3)
    late = FakePy4JServer(plugin)
    late.write_file(tmp_path / "gateway")
    serving.engine.wait_for(RmReported)
    late.close()


def test_a_hung_resource_manager_holds_the_bridge_up_for_a_while_only(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yarn_bridge.gateway import Py4JGateway

    monkeypatch.setattr(daemon, "Py4JGateway", lambda address: Py4JGateway(address, call_s=1.5))
    start()
    serving.engine.wait_for(RmReported)
    server.is_hung.set()
    serving.engine.wait_for(RmDetached)
    server.is_hung.clear()
    assert serving.engine.wait_for(RmReported, 2)[1].is_full


def test_stopping_does_not_wait_for_a_hung_resource_manager(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start
) -> None:
    start()
    serving.engine.wait_for(RmReported)
    server.is_hung.set()
    time.sleep(1.2)  # every call hangs now; the fixture measures how long stopping takes


def test_an_entry_that_cannot_be_read_takes_nothing_else_along(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start
) -> None:
    plugin.put("nodes", node="bad\ud800", state="RUNNING")
    plugin.put("nodes", node="n3", state="RUNNING")
    start()
    assert [n.node for n in serving.engine.wait_for(RmReported)[0].nodes] == ["n1", "n3"]


def test_a_plugin_of_another_protocol_is_not_relayed(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.protocol = 2
    start()
    assert plugin.wait(lambda: False, 0.5) is False
    assert serving.engine.events == []
    assert "protocol 2, this bridge 1" in caplog.text


def test_a_plugin_that_does_not_wait_ends_the_session(
    serving: Serving, plugin: FakePlugin, server: FakePy4JServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "EMPTY_CALLS_MAX", 5)
    waits = plugin.changes
    monkeypatch.setattr(plugin, "changes", lambda after_seq, wait_ms: waits(after_seq, 0))
    start()
    serving.engine.wait_for(RmDetached)


def test_an_insecure_folder_ends_the_bridge(server: FakePy4JServer, tmp_path: Path) -> None:
    (tmp_path / "gateway").chmod(0o755)
    with pytest.raises(InsecureGatewayError):
        Bridge(tmp_path / "gateway", "127.0.0.1:1").run()


def test_waits_grow_to_a_bound_and_are_the_seeds() -> None:
    first, second, other = Backoff(1), Backoff(1), Backoff(2)
    waits = [first.delay_s() for _ in range(10)]
    assert waits == [second.delay_s() for _ in range(10)]
    assert waits != [other.delay_s() for _ in range(10)]
    assert 0.1 <= waits[0] <= 0.2
    assert all(BACKOFF_S_MAX / 2 <= w <= BACKOFF_S_MAX for w in waits[5:])
    first.reset()
    assert first.delay_s() <= 0.2


@pytest.mark.parametrize("text", ["", ",", "host", "host:", ":1", "h:0", "h:65536", "h:x", ",".join(["h:1"] * 17)])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="arbiter"):
        parse_arbiters(text)


def test_a_session_that_ends_before_it_began_says_so(serving: Serving, plugin: FakePlugin) -> None:
    with serving.channel() as channel:
        teller = Teller(logging.getLogger("test"))
        session = relay.Relay(reports=plugin, leases=plugin, channel=channel, start_id=plugin.start_id, teller=teller)
        session.end("stopped")
        assert session.run() == "stopped"
    assert serving.engine.events == []


def test_an_arbiter_that_takes_nothing_ends_the_session(
    serving: Serving, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "OUTGOING_S", 0.2)
    with serving.channel() as channel:
        teller = Teller(logging.getLogger("test"))
        session = relay.Relay(reports=plugin, leases=plugin, channel=channel, start_id=plugin.start_id, teller=teller)
        for _ in range(relay.OUTGOING_MAX):
            session._put(pb.BridgeMessage())
        with pytest.raises(GatewayError, match="took no message"):  # and with the session go the queue and what is in it
            session._put(pb.BridgeMessage())
        session.end("stuck")


def test_where_there_are_others_an_arbiter_that_says_nothing_ends_the_session(serving: Serving, plugin: FakePlugin) -> None:
    teller = Teller(logging.getLogger("test"))
    with serving.channel() as channel:  # its engine is a fake one, which never sends leases
        session = relay.Relay(
            reports=plugin, leases=plugin, channel=channel, start_id=plugin.start_id, teller=teller, silence_s=0.1
        )
        assert "has said nothing" in session.run()
    serving.engine.wait_for(RmReported)


def test_where_there_are_others_a_frozen_arbiter_is_left_soon(plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CONNECT_S", 0.5)
    teller = Teller(logging.getLogger("test"))
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # the system takes its connections
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        channel = relay.open_channel(address)
        session = relay.Relay(
            reports=plugin, leases=plugin, channel=channel, start_id=plugin.start_id, teller=teller, silence_s=5.0
        )
        began_s = time.monotonic()
        assert session.run() == "no arbiter answers within 0.5 s"
        assert time.monotonic() - began_s < 5
        channel.close()


def test_a_standby_sends_the_bridge_on_to_the_leader_and_a_dead_leader_is_not_all_that_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = {"a:1": "c:3", "b:2": "c:3", "c:3": ""}
    tried: list[str] = []
    bridge = Bridge(tmp_path, "a:1,b:2,c:3,d:4")

    def session(arbiter: str) -> str:
        tried.append(arbiter)
        if len(tried) == 8:
            bridge.stop()
        return says.get(arbiter, "elsewhere:1")

    monkeypatch.setattr(bridge, "_session", session)
    bridge.run()
    assert tried == ["a:1", "c:3", "d:4", "b:2", "c:3", "d:4", "a:1", "b:2"]
