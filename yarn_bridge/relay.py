"""One session between a plugin and an arbiter: from Hello until anything at all is wrong.

Two threads, each with a Py4J connection of its own: one asks the plugin what changed and tells the arbiter, the other
hears the arbiter and applies its leases in the plugin. A session keeps nothing that the next one needs: on any doubt it
ends, and the next begins with the plugin's whole state. So there is no patching up, here or on the other sides.

What the plugin applied is told by the report's own `lease_seq`, so it does no harm that reports and replies overtake
each other in the queue between the threads and the stream.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from typing import Final

import grpc

from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from themis_arbiter.gen.themis.v1 import cluster_pb2_grpc
from yarn_bridge.gateway import Gateway, GatewayError
from yarn_bridge.wire import MESSAGE_BYTES_MAX, Teller, WireError, check_size, parse, parse_report, to_json

PROTOCOL: Final = 1
LEADER_KEY: Final = "themis-leader"  # of the metadata in which an arbiter that stands by says who leads
WAIT_MS: Final = 250  # of one call for changes: how late the arbiter hears that an update was applied, where nothing changed
OUTGOING_MAX: Final = 64  # messages that wait for the arbiter
OUTGOING_S: Final = 10.0  # how long one of them waits before the session counts as stuck
LOOK_S: Final = 0.2  # how soon a thread that waits sees that the session is over
JOIN_S: Final = 2.0
CONNECT_S: Final = 3.0
FIRST_ANSWER_TIMES: Final = 4
KEEPALIVE_MS: Final = 5_000
EMPTY_REPORT_S: Final = 30.0  # a report is sent at least this often, also when nothing changed
EMPTY_CALLS_MAX: Final = 50  # answers without news within WAIT_MS / 2; more means that the plugin does not wait

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Reconnecting is paced here; gRPC's own memory of failures would only add to it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # the web's proxy is not on the way to an arbiter
)

_log = logging.getLogger(__name__)


def open_channel(address: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
    """A channel to the arbiter at `address` (`host:port`); in the clear without `credentials`."""
    if credentials is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    return grpc.secure_channel(address, credentials, options=_OPTIONS)


class Relay:
    """One session. `reports` and `leases` are connections to the same plugin, `start_id` is what its file promises.

    `silence_s` is how long an attached arbiter may say nothing (None: for as long as its connection lives, because there is no
    other to go to); before its first answer, which may take it long, it may be FIRST_ANSWER_TIMES as long.
    Whoever opened `channel` closes it, after `run` has returned.
    """

    def __init__(
        self,
        *,
        reports: Gateway,
        leases: Gateway,
        channel: grpc.Channel,
        start_id: str,
        teller: Teller,
        silence_s: float | None = None,
    ) -> None:
        self._reports, self._leases = reports, leases
        self._start_id, self._teller, self._silence_s = start_id, teller, silence_s
        self._channel, self._heard_s = channel, time.monotonic()
        self._stub = cluster_pb2_grpc.ClusterServiceStub(channel)
        self._call: grpc.Call | None = None
        self._outgoing: queue.Queue[pb.BridgeMessage] = queue.Queue(OUTGOING_MAX)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._reason = ""
        self.leader = ""  # where a standby said that the leader is
        self.is_attached = False  # the arbiter has answered: what came before was no futile try

    def run(self) -> str:
        """Relay until the session is over; returns why."""
        hearing: threading.Thread | None = None
        try:
            hello = self._hello()
            snapshot = self._snapshot()
            answers = self._attach()
            hearing = threading.Thread(target=self._hear, args=(answers,), name="themis-bridge-hear", daemon=True)
            hearing.start()
            self._put(pb.BridgeMessage(hello=hello))
            self._put(pb.BridgeMessage(report=snapshot))
            self._report_changes(snapshot)
        except (GatewayError, WireError) as err:
            self.end(str(err))
        finally:
            self.end("the bridge failed")  # where another reason is there already, that one stands
            if hearing is not None:
                hearing.join(JOIN_S)
        return self._reason

    def end(self, reason: str) -> None:
        """End the session; the first reason stands. Any thread may call this."""
        with self._lock:
            if self._over.is_set():
                return
            self._reason = reason
            self._over.set()
            call = self._call
        # Each of these wakes a thread that waits. The channel stays open: gRPC crashes where a closed one is used.
        self._reports.close()
        self._leases.close()
        if call is not None:
            call.cancel()

    def _attach(self) -> Iterator[pb.ArbiterMessage]:
        if self._silence_s is not None:
            self._wait_connected()
        with self._lock:
            if self._over.is_set():
                raise GatewayError("the session is over")
            answers = self._stub.Attach(self._messages())
            self._call = answers
            return answers

    def _wait_connected(self) -> None:
        """A frozen process lets connect whoever wants to, and answers nobody."""
        states: queue.SimpleQueue[grpc.ChannelConnectivity] = queue.SimpleQueue()
        self._channel.subscribe(states.put, try_to_connect=True)
        end_s = time.monotonic() + CONNECT_S
        state = None
        while state not in {grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE}:
            if self._over.is_set() or time.monotonic() > end_s:
                raise GatewayError(f"no arbiter answers within {CONNECT_S:g} s")
            with contextlib.suppress(queue.Empty):
                state = states.get(timeout=LOOK_S)
        self._channel.unsubscribe(states.put)
        self._heard_s = time.monotonic()  # a connection that was refused says so itself, at the first call

    def _check_silence(self) -> None:
        if self._silence_s is None:
            return
        silent_s = time.monotonic() - self._heard_s
        if silent_s > self._silence_s * (1 if self.is_attached else FIRST_ANSWER_TIMES):
            raise GatewayError(f"the arbiter has said nothing for {silent_s:.0f} s")

    def _hello(self) -> pb.Hello:
        hello = parse(pb.Hello(), self._reports.hello())
        if hello.start_id != self._start_id:
            raise GatewayError("gateway.json is of another activation than the plugin that answers")
        if hello.protocol != PROTOCOL:
            raise WireError(f"the plugin speaks protocol {hello.protocol}, this bridge {PROTOCOL}")
        return hello

    def _snapshot(self) -> pb.Report:
        report = self._parse_report(self._reports.snapshot())
        if not report.is_full:
            raise WireError("the plugin's snapshot is not a full report")
        return report

    def _parse_report(self, answer: bytes) -> pb.Report:
        report = parse_report(answer, self._teller)
        if report.start_id != self._start_id:
            raise GatewayError("the plugin was activated anew")
        return report

    def _report_changes(self, told: pb.Report) -> None:
        """Tell the arbiter what changes from `told` on, until the session is over."""
        told_s, empty = time.monotonic(), 0
        while not self._over.is_set():
            self._check_silence()
            began_s = time.monotonic()
            report = self._parse_report(self._reports.changes(told.seq, WAIT_MS))
            if report.needs_resync:
                self._teller.tell("resync", "the plugin no longer keeps all changes: taking a snapshot")
                report = self._snapshot()
            now_s = time.monotonic()
            if _is_news(report, told) or now_s - told_s >= EMPTY_REPORT_S:
                self._put(pb.BridgeMessage(report=report))
                told_s, empty = now_s, 0
            elif now_s - began_s < WAIT_MS / 2_000:
                empty += 1
                if empty > EMPTY_CALLS_MAX:  # one that is shutting down, say
                    raise GatewayError("the plugin answers without waiting")
            told = report

    def _hear(self, answers: Iterator[pb.ArbiterMessage]) -> None:
        try:
            for message in answers:
                self.is_attached, self._heard_s = True, time.monotonic()
                kind = message.WhichOneof("body")
                if kind == "leases":
                    self._apply(message.leases)
                elif kind == "diagnostics":
                    reply = parse(pb.LeaseReply(), self._leases.diagnostics(to_json(message.diagnostics)))
                    if not reply.is_accepted:
                        # Only text for people: nothing is lost that the arbiter has to know of.
                        self._teller.tell("diagnostics", f"the plugin refused diagnostics: {reply.reason!a}")
                else:
                    self._teller.tell("kind", "the arbiter sent a message of a kind that this bridge does not know")
            self.end("the arbiter ended the stream")
        except grpc.RpcError as err:
            self.leader = _leader(err)
            self.end(_status(err))
        except (GatewayError, WireError) as err:
            self.end(str(err))
        finally:
            self.end("the bridge failed to hear the arbiter")

    def _apply(self, update: pb.LeaseUpdate) -> None:
        reply = parse(pb.LeaseReply(), self._leases.apply(to_json(update)))
        if not reply.is_accepted:
            self._teller.tell("refused", f"the plugin refused a lease update: {reply.reason!a}")
        self._put(pb.BridgeMessage(lease_reply=reply))

    def _put(self, message: pb.BridgeMessage) -> None:
        check_size(message)
        end_s = time.monotonic() + OUTGOING_S
        while not self._over.is_set():
            try:
                self._outgoing.put(message, timeout=LOOK_S)
            except queue.Full:
                if time.monotonic() > end_s:
                    raise GatewayError(f"the arbiter took no message for {OUTGOING_S} s") from None
            else:
                return

    def _messages(self) -> Iterator[pb.BridgeMessage]:
        """What gRPC sends; asked on a thread of gRPC's."""
        while not self._over.is_set():
            try:
                yield self._outgoing.get(timeout=LOOK_S)
            except queue.Empty:
                continue


def _is_news(report: pb.Report, told: pb.Report) -> bool:
    """Whether `report` says anything that `told` and those before it did not."""
    lease_position = (report.lease_epoch, report.lease_seq)
    return bool(
        report.is_full
        or report.nodes
        or report.applications
        or report.containers
        or lease_position != (told.lease_epoch, told.lease_seq)
    )


def _leader(err: grpc.RpcError) -> str:
    trailing = getattr(err, "trailing_metadata", None)
    pairs = trailing() if trailing is not None else None
    return next((str(value) for key, value in pairs or () if key == LEADER_KEY), "")


def _status(err: grpc.RpcError) -> str:
    code, details = getattr(err, "code", None), getattr(err, "details", None)
    if code is None or details is None:  # only those of calls have both
        return f"the arbiter's stream failed: {type(err).__name__}"
    return f"the arbiter's stream ended with {code().name}: {(details() or '')[:200]!a}"
