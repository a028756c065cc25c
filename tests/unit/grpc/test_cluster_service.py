import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, TypedDict

import grpc
import pytest

from tests.support.serving import Serving, lease, serve
from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, WithdrawLeases
from themis_arbiter.core.events import Event, RmAttached, RmDetached, RmReported, UpdateRefused
from themis_arbiter.engine.loop import EngineStopped, QueueFull
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from themis_arbiter.gen.themis.v1 import cluster_pb2_grpc


class Head(TypedDict):
    epoch: int
    start_id: str


class BridgeEnd:
    """The bridge's end of a stream."""

    def __init__(self, channel: grpc.Channel, start_id: str = "start-1", protocol: int = 1) -> None:
        self._out: queue.Queue[pb.BridgeMessage | None] = queue.Queue()
        self.start_id = start_id
        self.call = cluster_pb2_grpc.ClusterServiceStub(channel).Attach(iter(self._out.get, None), timeout=20)
        if start_id:
            self.send(hello=pb.Hello(protocol=protocol, start_id=start_id, plugin_version="é"))

    def send(self, **body: Any) -> None:
        self._out.put(pb.BridgeMessage(**body))

    def report(self, **fields: Any) -> None:
        self.send(report=pb.Report(**({"start_id": self.start_id} | fields)))

    def half_close(self) -> None:
        self._out.put(None)

    def leases(self) -> pb.LeaseUpdate:
        """The next update with content."""
        for message in self.call:
            if message.leases.is_full or message.leases.leases or message.leases.drains or message.leases.removed_lease_ids:
                return message.leases
        raise AssertionError("the stream ended")

    def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ends."""
        with contextlib.suppress(grpc.RpcError):
            for _ in self.call:
                pass
        return self.call.code(), self.call.details() or ""

    def close(self) -> None:
        self.call.cancel()
        self.half_close()


@pytest.fixture
def bridge(serving: Serving, channel: grpc.Channel) -> Iterator[BridgeEnd]:
    end = BridgeEnd(channel)
    serving.engine.wait_for(RmAttached)
    yield end
    end.close()


def sync(seq: int = 1, start_id: str = "start-1", epoch: int = 3) -> SyncLeases:
    return SyncLeases(epoch=epoch, start_id=start_id, seq=seq, leases=(lease(),), drains=())


def test_the_stream_is_attached_reported_and_detached(serving: Serving, bridge: BridgeEnd) -> None:
    was_attached = serving.cluster.is_attached
    bridge.report(is_full=True, nodes=[pb.Node(node="n1", gpus_total=4, state="RUNNING")])
    (reported,) = serving.engine.wait_for(RmReported)
    assert (reported.start_id, reported.is_full, [n.node for n in reported.nodes]) == ("start-1", True, ["n1"])
    bridge.half_close()
    assert bridge.end()[0] is grpc.StatusCode.OK
    serving.engine.wait_for(RmDetached)
    assert (was_attached, serving.cluster.is_attached) == (True, False)
    assert [type(e) for e in serving.engine.events] == [RmAttached, RmReported, RmDetached]


def test_nodes_have_the_types_that_were_written_down_under_every_start_id() -> None:
    with serve(types=NodeTypes((("gpu-*", "v100"),))) as serving, serving.channel() as channel:
        for count, start_id in enumerate(("start-1", "start-2"), start=1):
            bridge = BridgeEnd(channel, start_id=start_id)
            bridge.report(is_full=True, nodes=[pb.Node(node=n, gpus_total=4, state="RUNNING") for n in ("gpu-1", "old")])
            serving.engine.wait_for(RmReported, count)
            bridge.half_close()
            serving.engine.wait_for(RmDetached, count)
        reports = [e for e in serving.engine.events if isinstance(e, RmReported)]
        assert [{n.node: n.gpu_type for n in r.nodes} for r in reports] == [{"gpu-1": "v100", "old": ""}] * 2


def test_a_bridge_of_another_cluster_is_refused_and_the_engine_hears_nothing_of_it() -> None:
    with (
        serve(may_serve=lambda cluster: f"not {cluster}'s" if cluster != "one" else "") as serving,
        serving.channel() as channel,
    ):
        for cluster, code in (("two", grpc.StatusCode.FAILED_PRECONDITION), ("one", grpc.StatusCode.OK)):
            end = BridgeEnd(channel, start_id="")
            end.send(hello=pb.Hello(protocol=1, start_id=f"start-{cluster}", cluster_id=cluster))
            end.half_close()
            assert end.end() == (code, "not two's" if cluster == "two" else "")
        serving.engine.wait_for(RmDetached)
        assert [e.start_id for e in serving.engine.events if isinstance(e, RmAttached | RmDetached)] == ["start-one"] * 2


def test_effects_go_out_in_order_with_the_cores_numbers(serving: Serving, bridge: BridgeEnd) -> None:
    cluster, head = serving.cluster, Head(epoch=3, start_id="start-1")
    cluster.sync(sync(1))
    cluster.grant(GrantGpus(**head, seq=2, leases=(lease("l2"),)))
    now_ms = time.time_ns() // 1_000_000
    cluster.drain(RequestDrain(**head, seq=3, lease_ids=("l1",), deadline_ms=now_ms + 60_000))
    cluster.withdraw(WithdrawLeases(**head, seq=4, lease_ids=("l1",)))
    got = [bridge.leases() for _ in range(4)]
    assert [(m.epoch, m.start_id, m.seq, m.is_full) for m in got] == [(3, "start-1", seq, seq == 1) for seq in (1, 2, 3, 4)]
    assert 50_000 < got[2].drains[0].kill_in_ms <= 60_000


def test_silence_is_broken_by_messages_without_content(serving: Serving, bridge: BridgeEnd) -> None:
    serving.cluster.sync(sync(5))
    bridge.leases()
    beat = next(bridge.call).leases
    assert beat == pb.LeaseUpdate(epoch=3, start_id="start-1", seq=5)
    assert serving.engine.calls > 0


def test_an_arbiter_that_does_not_decide_gives_no_sign_of_life(serving: Serving, bridge: BridgeEnd) -> None:
    serving.cluster.sync(sync(1))
    bridge.leases()
    next(bridge.call)
    serving.engine.failure = QueueFull("full")
    time.sleep(0.5)  # beats that were on their way
    seen: list[pb.ArbiterMessage] = []

    def listen() -> None:
        with contextlib.suppress(grpc.RpcError):  # the test's end cancels the call
            for message in bridge.call:
                seen.append(message)  # noqa: PERF402 - one by one, as they come

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(0.3)
    had = len(seen)
    time.sleep(1.0)
    assert len(seen) == had
    serving.engine.failure = None


def test_effects_for_another_activation_are_dropped(serving: Serving, bridge: BridgeEnd) -> None:
    serving.cluster.sync(sync(1, start_id="start-0"))
    serving.cluster.sync(sync(1))
    assert bridge.leases().start_id == "start-1"
    assert serving.cluster.dropped_effects == 1


def test_nobody_attached_nothing_sent(serving: Serving) -> None:
    serving.cluster.sync(sync())
    serving.cluster.send_diagnostics({"application_1_0001": "x"})
    assert serving.cluster.dropped_effects == 1


def test_what_the_engine_answers_at_once_finds_the_stream(serving: Serving, channel: grpc.Channel) -> None:
    def answer(event: Event) -> None:
        if isinstance(event, RmAttached):
            serving.cluster.sync(sync())

    serving.engine.on_event = answer
    bridge = BridgeEnd(channel)
    assert bridge.leases().is_full
    bridge.close()


@pytest.mark.parametrize(
    ("epoch", "seq", "update_seq"), [(3, 7, 7), (3, 6, 6), (3, 8, 0), (2, 7, 0), (4, 7, 0), (0, 0, 0), (3, -1, 0)]
)
def test_only_our_own_updates_confirm_anything(
    serving: Serving, bridge: BridgeEnd, epoch: int, seq: int, update_seq: int
) -> None:
    serving.cluster.sync(sync(7))
    bridge.leases()
    bridge.report(lease_epoch=epoch, lease_seq=seq)
    assert serving.engine.wait_for(RmReported)[0].update_seq == update_seq


def test_a_refusal_asks_for_everything_and_an_acceptance_for_nothing(serving: Serving, bridge: BridgeEnd) -> None:
    bridge.send(lease_reply=pb.LeaseReply(is_accepted=True, seq=1))
    bridge.send(lease_reply=pb.LeaseReply(reason="GAP"))
    bridge.send(lease_reply=pb.LeaseReply(reason="WHY_NOT"))
    refused = serving.engine.wait_for(UpdateRefused, 2)
    assert [r.reason for r in refused] == ["GAP", "BAD_MESSAGE"]


def test_a_refused_epoch_is_told_with_the_one_that_the_plugin_has_listened_to(
    serving: Serving, bridge: BridgeEnd, caplog: pytest.LogCaptureFixture
) -> None:
    bridge.send(lease_reply=pb.LeaseReply(reason="OLD_EPOCH", epoch=41))
    assert serving.engine.wait_for(UpdateRefused)[0].reason == "OLD_EPOCH"
    assert "the plugin has listened to epoch 41" in caplog.text


def test_a_new_bridge_replaces_the_old_one(serving: Serving, bridge: BridgeEnd, channel: grpc.Channel) -> None:
    new = BridgeEnd(channel)
    serving.engine.wait_for(RmAttached, 2)
    code, details = bridge.end()
    assert (code, details) == (grpc.StatusCode.ABORTED, "another bridge has attached")
    serving.cluster.sync(sync())
    assert new.leases().is_full
    # Detached before attached anew, and not once more when the old stream's end was noticed.
    assert [type(e) for e in serving.engine.events] == [RmAttached, RmDetached, RmAttached]
    new.close()


def test_a_bridge_that_reads_nothing_is_cut_off(serving: Serving, bridge: BridgeEnd) -> None:
    texts = {f"application_1_{i}": "x" * 500 for i in range(1_000)}
    serving.cluster.sync(sync())
    bridge.leases()
    for _ in range(100):  # half a megabyte each: far more than the transport's buffers and the queue hold
        serving.cluster.send_diagnostics(texts)
    serving.engine.wait_for(RmDetached)
    code, details = bridge.end()
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "lags" in details


def test_diagnostics_quote_the_start_id_and_the_epoch(serving: Serving, bridge: BridgeEnd) -> None:
    serving.cluster.sync(sync())
    bridge.leases()
    serving.cluster.send_diagnostics({"application_1_0001": "y" * 900})
    message = next(m for m in bridge.call if m.WhichOneof("body") == "diagnostics").diagnostics
    assert (message.start_id, message.epoch, dict(message.by_application)) == (
        "start-1",
        3,
        {"application_1_0001": "y" * 500},
    )


@pytest.mark.parametrize(
    ("start_id", "protocol", "code"),
    [
        ("s", 2, grpc.StatusCode.FAILED_PRECONDITION),
        ("s\n", 1, grpc.StatusCode.INVALID_ARGUMENT),
        ("x" * 300, 1, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(
    serving: Serving, channel: grpc.Channel, start_id: str, protocol: int, code: grpc.StatusCode
) -> None:
    bridge = BridgeEnd(channel, start_id, protocol)
    assert bridge.end()[0] is code
    assert serving.engine.events == []


def test_a_stream_begins_with_hello_and_has_only_one(serving: Serving, channel: grpc.Channel, bridge: BridgeEnd) -> None:
    other = BridgeEnd(channel, start_id="")
    other.report()
    assert other.end()[0] is grpc.StatusCode.INVALID_ARGUMENT
    silent = BridgeEnd(channel, start_id="")
    assert silent.end()[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert serving.engine.of(RmDetached) == []
    bridge.send(hello=pb.Hello(protocol=1, start_id="start-1"))
    assert bridge.end()[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_a_report_of_another_activation_ends_the_stream(serving: Serving, bridge: BridgeEnd) -> None:
    bridge.report(start_id="start-2")
    assert bridge.end()[0] is grpc.StatusCode.INVALID_ARGUMENT
    serving.engine.wait_for(RmDetached)


def test_a_full_engine_ends_the_stream_but_the_detachment_is_not_lost(serving: Serving, bridge: BridgeEnd) -> None:
    serving.engine.failure = QueueFull("10000 events wait already")
    bridge.report()
    assert bridge.end() == (grpc.StatusCode.RESOURCE_EXHAUSTED, "10000 events wait already")
    serving.engine.failure = None
    serving.engine.wait_for(RmDetached)


def test_a_stopped_engine_ends_the_stream(serving: Serving, bridge: BridgeEnd) -> None:
    serving.engine.failure = EngineStopped("the engine is not running")
    bridge.report()
    assert bridge.end()[0] is grpc.StatusCode.UNAVAILABLE


def test_a_bad_entry_takes_nothing_else_along(serving: Serving, bridge: BridgeEnd) -> None:
    bridge.report(nodes=[pb.Node(node="a\x00", state="RUNNING"), pb.Node(node="ok", gpus_total=-1, state="?")])
    bridge.report(nodes=[pb.Node(node="n2", state="LOST")])
    first, second = serving.engine.wait_for(RmReported, 2)
    assert [n.node for n in (*first.nodes, *second.nodes)] == ["ok", "n2"]


def test_the_same_activation_is_remembered_over_streams(serving: Serving, bridge: BridgeEnd, channel: grpc.Channel) -> None:
    asking = pb.Application(application_id="a1", user="u", state="ACTIVE", asks=[pb.Ask(gpus=1, count=1)])
    idle = pb.Application(application_id="a1", user="u", state="ACTIVE")
    bridge.report(is_full=True, applications=[asking])
    serving.engine.wait_for(RmReported)
    again = BridgeEnd(channel)
    again.report(is_full=True, applications=[idle])
    assert [j.job_id for j in serving.engine.wait_for(RmReported, 2)[1].jobs] == ["a1"]
    restarted = BridgeEnd(channel, "start-2")
    restarted.report(is_full=True, applications=[idle])
    assert serving.engine.wait_for(RmReported, 3)[2].jobs == ()
    again.close()
    restarted.close()
