"""ClusterService: the ResourceManager's stream, and with it the live adapter of the `ResourceManager` port.

One bridge is attached at a time; a new one replaces the old one, whose stream is ended. A stream has two sides:

* In: a thread of its own reads the bridge's messages, in order, and submits an event for each. On any doubt (a message
  that the protocol does not allow, a full engine) the stream is ended: the bridge comes back with its whole state.
* Out: the engine's thread puts effects on the stream's bounded queue and goes on; the call's own thread makes messages
  of them. Where the queue is full the stream is ended too, and the next one starts with all leases.

Silence is broken every HEARTBEAT_S by a message without content, so that the plugin does not fall back. The engine is
asked before each of them: an arbiter that no longer decides gives no sign of life.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import grpc

from themis_arbiter.adapters.grpc.convert import ReportReader
from themis_arbiter.adapters.grpc.errors import LEADER_KEY
from themis_arbiter.adapters.grpc.faults import Fault, Faults, quoted, why_bad_name
from themis_arbiter.adapters.grpc.gate import GateEffect, lease_update
from themis_arbiter.adapters.grpc.node_types import NodeTypes
from themis_arbiter.adapters.grpc.seams import Engine
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, TellJob, WithdrawLeases
from themis_arbiter.core.events import Event, RmAttached, RmDetached, RmReported, UpdateRefused
from themis_arbiter.core.types import AppId, Epoch, JobId, Millis
from themis_arbiter.engine.loop import EngineError, EngineStopped, NotLeading
from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from themis_arbiter.gen.themis.v1 import cluster_pb2_grpc
from themis_arbiter.ports import Clock

PROTOCOL: Final = 1
OUTGOING_MAX: Final = 256  # effects that wait for a slow bridge
HEARTBEAT_S: Final = 2.0
HELLO_S: Final = 5.0  # within which a new stream has to say who it is
DETACH_TRIES_MAX: Final = 100  # a detachment must not be lost to a full engine; one try each DETACH_WAIT_S
DETACH_WAIT_S: Final = 0.1
DIAGNOSTICS_MAX: Final = 1_000  # applications that one message tells of
DIAGNOSTICS_LENGTH_MAX: Final = 500  # characters of one line
OLD_EPOCH: Final = "OLD_EPOCH"
REFUSALS: Final = frozenset({"WRONG_START", OLD_EPOCH, "GAP", "BAD_MESSAGE", "TOO_LARGE"})

_log = logging.getLogger(__name__)


class _EndError(Exception):
    """Why a stream has to end."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class _Stream:
    """One bridge's stream. Every method may be called by any thread."""

    def __init__(self, outgoing_max: int) -> None:
        self._outgoing: deque[GateEffect | pb.Diagnostics] = deque()
        self._outgoing_max = outgoing_max
        self._changed = threading.Condition()
        self.start_id = ""  # set once, when the bridge has said hello
        self.ended: tuple[grpc.StatusCode, str] | None = None
        self.leader = ""  # where the bridge should go instead; set before the end
        # What the bridge was sent last; written by the call's thread, before it sends.
        self.sent: tuple[Epoch, int] | None = None

    def attach(self, start_id: str) -> None:
        with self._changed:
            self.start_id = start_id
            self._changed.notify_all()

    def wait_attached(self, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.start_id or self.ended, timeout_s)
            return bool(self.start_id) and self.ended is None

    def put(self, what: GateEffect | pb.Diagnostics) -> None:
        with self._changed:
            if self.ended:
                return
            if len(self._outgoing) < self._outgoing_max:
                self._outgoing.append(what)
                self._changed.notify_all()
                return
        self.end(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the bridge lags {self._outgoing_max} messages behind")

    def take(self, timeout_s: float) -> GateEffect | pb.Diagnostics | None:
        """The next to send; None where there is none in time or the stream has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._outgoing or self.ended, timeout_s)
            return self._outgoing.popleft() if self._outgoing and not self.ended else None

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream; the first reason stands."""
        with self._changed:
            if self.ended is None:
                self.ended = (code, details)
                self._changed.notify_all()


class ClusterService(cluster_pb2_grpc.ClusterServiceServicer):
    """Serves bridges, and is the `ResourceManager` that the driver talks to.

    `heartbeat_s` is how long a stream may be silent; `outgoing_max` bounds the effects that wait for a bridge. `why_not`
    is asked before each message: it says why this arbiter may not act any more, and what waits is then dropped. `serve` is
    told YARN's id of a new bridge's cluster ("": it has none) and says why that one may not attach here.
    is asked before each message: it says why this arbiter may not act any more, and what waits is then dropped. `types`
    are the GPU types of nodes.
    """

    def __init__(
        self,
        engine: Engine[Any],
        clock: Clock,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        hello_s: float = HELLO_S,
        outgoing_max: int = OUTGOING_MAX,
        why_not: Callable[[], str] | None = None,
        serve: Callable[[str], str] | None = None,
        types: NodeTypes | None = None,
    ) -> None:
        self._why_not, self._serve = why_not, serve
        self._engine, self._clock = engine, clock
        self._heartbeat_s, self._hello_s, self._outgoing_max = heartbeat_s, hello_s, outgoing_max
        self.faults: Final = Faults(_log, clock)
        # Held while a bridge's message is turned into an event and submitted, so that events of an old stream cannot
        # follow a new stream's. The engine's thread never takes it.
        self._turn = threading.Lock()
        self._current: _Stream | None = None
        self._types = types or NodeTypes()
        self._reader = ReportReader(self.faults, self._types)
        self._reader_start_id = ""
        self._is_closed = False
        self.dropped_effects = 0  # addressed to a scheduler object that is not attached; for metrics

    @property
    def is_attached(self) -> bool:
        """Whether a bridge is attached."""
        return self._current is not None

    def notes(self, app_id: AppId) -> tuple[str, ...]:
        """What people should know about how this app's tags were read."""
        with self._turn:
            return self._reader.notes(app_id)

    def close(self) -> None:
        """End the attached stream and take no new one."""
        with self._turn:
            self._is_closed = True
            stream = self._current
        if stream is not None:
            stream.end(grpc.StatusCode.UNAVAILABLE, "the arbiter is stopping")

    def release(self, reason: str) -> None:
        """End the attached stream: this arbiter no longer leads. Bridges may come again; they are told who does."""
        stream = self._current
        if stream is not None:
            stream.end(grpc.StatusCode.UNAVAILABLE, reason)

    # --- the ResourceManager port; called by the engine's thread -----------------------------------------------------

    def sync(self, effect: SyncLeases) -> None:
        """Make these all the leases that the gate honours."""
        self._send(effect)

    def grant(self, effect: GrantGpus) -> None:
        """Admit containers under these leases."""
        self._send(effect)

    def drain(self, effect: RequestDrain) -> None:
        """Ask for these leases' GPUs now, take them at the deadline."""
        self._send(effect)

    def withdraw(self, effect: WithdrawLeases) -> None:
        """Forget these leases."""
        self._send(effect)

    def tell(self, effect: TellJob) -> None:
        """Show why a job waits on its page in YARN."""
        stream = self._current
        if stream is not None and stream.start_id == effect.start_id:
            self.send_diagnostics({effect.job_id: effect.text})

    def _send(self, effect: GateEffect) -> None:
        stream = self._current
        if stream is None or stream.start_id != effect.start_id:
            self.dropped_effects += 1  # who attaches next is told everything
            return
        stream.put(effect)

    def send_diagnostics(self, texts: Mapping[JobId, str]) -> None:
        """Put one line on the pages of some applications in YARN; dropped where no bridge was told of leases yet."""
        stream = self._current
        if stream is None or stream.sent is None:
            return
        lines = {i: texts[i][:DIAGNOSTICS_LENGTH_MAX] for i in sorted(texts)[:DIAGNOSTICS_MAX]}
        stream.put(pb.Diagnostics(start_id=stream.start_id, epoch=stream.sent[0], by_application=lines))

    # --- the service -------------------------------------------------------------------------------------------------

    def Attach(  # noqa: N802 - the protocol's name
        self, request_iterator: Iterator[pb.BridgeMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.ArbiterMessage]:
        """Serve one bridge until either side ends the stream."""
        stream = _Stream(self._outgoing_max)
        if not context.add_callback(lambda: stream.end(grpc.StatusCode.CANCELLED, "the bridge has gone")):
            return
        reader = threading.Thread(target=self._read, args=(stream, request_iterator), name="themis-bridge-reader", daemon=True)
        reader.start()
        if not stream.wait_attached(self._hello_s):
            stream.end(grpc.StatusCode.DEADLINE_EXCEEDED, f"no Hello within {self._hello_s} s")
        while stream.ended is None:
            message = self._next_message(stream)
            if message is not None:
                yield message
        code, details = stream.ended
        if context.is_active() and code is not grpc.StatusCode.OK:
            _log.warning("the stream of bridge %s is ended: %s", quoted(stream.start_id), details)
            if stream.leader:
                context.set_trailing_metadata(((LEADER_KEY, stream.leader),))
            context.abort(code, details)

    def _next_message(self, stream: _Stream) -> pb.ArbiterMessage | None:
        what = stream.take(self._heartbeat_s)
        if what is not None and self._why_not is not None and (why := self._why_not()):
            stream.end(grpc.StatusCode.UNAVAILABLE, why)
            return None
        if isinstance(what, pb.Diagnostics):
            return pb.ArbiterMessage(diagnostics=what)
        if what is not None:
            stream.sent = (what.epoch, what.seq)
            return pb.ArbiterMessage(leases=lease_update(what, self._clock.now_ms()))
        if stream.ended or stream.sent is None:
            return None
        try:
            self._engine.call(lambda _: None)
        except EngineStopped:
            stream.end(grpc.StatusCode.UNAVAILABLE, "the arbiter is stopping")
            return None
        except EngineError as err:
            _log.warning("no sign of life for the bridge: %s", err)
            return None
        epoch, seq = stream.sent
        return pb.ArbiterMessage(leases=pb.LeaseUpdate(epoch=epoch, start_id=stream.start_id, seq=seq))

    def _read(self, stream: _Stream, requests: Iterator[pb.BridgeMessage]) -> None:
        try:
            for message in requests:
                with self._turn:
                    if stream.ended:
                        break
                    self._hear(stream, message)
            stream.end(grpc.StatusCode.OK, "the bridge has ended its stream")
        except grpc.RpcError:
            stream.end(grpc.StatusCode.CANCELLED, "the bridge has gone")
        except _EndError as err:
            stream.end(err.code, str(err))
        except NotLeading as err:
            stream.leader = err.leader
            stream.end(grpc.StatusCode.UNAVAILABLE, str(err))
        except EngineStopped:
            stream.end(grpc.StatusCode.UNAVAILABLE, "the arbiter is stopping")
        except EngineError as err:
            stream.end(grpc.StatusCode.RESOURCE_EXHAUSTED, str(err))
        finally:
            stream.end(grpc.StatusCode.INTERNAL, "the arbiter could not read a message")  # unless a reason is there
            with self._turn:
                if self._current is stream:
                    self._detach(stream)

    def _hear(self, stream: _Stream, message: pb.BridgeMessage) -> None:
        """Take in one message. Errors: _EndError, EngineError."""
        kind = message.WhichOneof("body")
        if not stream.start_id:
            if kind != "hello":
                raise _EndError(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with Hello")
            self._attach(stream, message.hello)
            return
        if kind == "report":
            self._report(stream, message.report)
        elif kind == "lease_reply":
            self._lease_reply(stream, message.lease_reply)
        elif kind == "hello":
            raise _EndError(grpc.StatusCode.INVALID_ARGUMENT, "one Hello a stream")
        else:
            self.faults.add(Fault.MESSAGE, "a message of a kind that this arbiter does not know; it is left out")

    def _attach(self, stream: _Stream, hello: pb.Hello) -> None:
        if hello.protocol != PROTOCOL:
            text = f"the plugin speaks protocol {hello.protocol}, this arbiter {PROTOCOL}: install matching versions"
            raise _EndError(grpc.StatusCode.FAILED_PRECONDITION, text)
        if why := why_bad_name(hello.start_id):
            raise _EndError(grpc.StatusCode.INVALID_ARGUMENT, f"start_id {quoted(hello.start_id)}: {why}")
        if self._is_closed:
            raise _EndError(grpc.StatusCode.UNAVAILABLE, "the arbiter is stopping")
        if self._serve is not None and (why := self._serve(hello.cluster_id)):
            raise _EndError(grpc.StatusCode.FAILED_PRECONDITION, why)
        self._engine.call(lambda _: None)  # a standby takes no bridge
        if self._current is not None:
            self._current.end(grpc.StatusCode.ABORTED, "another bridge has attached")
            self._detach(self._current)
        if hello.start_id != self._reader_start_id:
            self._reader, self._reader_start_id = ReportReader(self.faults, self._types), hello.start_id
        start_id = hello.start_id
        # First in place, then told: what the engine answers must find the stream.
        stream.attach(start_id)
        self._current = stream
        self._engine.submit(lambda at_ms: RmAttached(at_ms=at_ms, start_id=start_id))
        _log.info("bridge attached: start %s, plugin %s", quoted(start_id), quoted(hello.plugin_version))

    def _detach(self, stream: _Stream) -> None:
        """Tell the engine that the current stream is over; `_turn` is held."""
        self._current = None
        start_id = stream.start_id
        _log.warning("bridge detached: start %s; no round is held until one attaches", quoted(start_id))

        def make(at_ms: Millis) -> Event:
            return RmDetached(at_ms=at_ms, start_id=start_id)

        for _ in range(DETACH_TRIES_MAX):
            try:
                self._engine.submit(make)
            except EngineStopped:
                return
            except EngineError:
                time.sleep(DETACH_WAIT_S)
            else:
                return

    def _report(self, stream: _Stream, report: pb.Report) -> None:
        if report.start_id != stream.start_id:
            text = f"a report of {quoted(report.start_id)} on the stream of {quoted(stream.start_id)}"
            raise _EndError(grpc.StatusCode.INVALID_ARGUMENT, text)
        if report.needs_resync:
            raise _EndError(grpc.StatusCode.FAILED_PRECONDITION, "a report that needs a resync: send a snapshot")
        parsed = self._reader.read(report, self._clock.now_ms())
        # The core's number of the update that the report had seen; 0 where that was another leader's or not ours.
        epoch, seq = stream.sent or (0, 0)
        update_seq = report.lease_seq if report.lease_epoch == epoch and 0 <= report.lease_seq <= seq else 0
        start_id, is_full = stream.start_id, report.is_full
        self._engine.submit(
            lambda at_ms: RmReported(
                at_ms=at_ms,
                start_id=start_id,
                is_full=is_full,
                update_seq=update_seq,
                nodes=parsed.nodes,
                jobs=parsed.jobs,
                containers=parsed.containers,
            )
        )

    def _lease_reply(self, stream: _Stream, reply: pb.LeaseReply) -> None:
        if reply.is_accepted:
            return
        reason = reply.reason
        if reason not in REFUSALS:
            self.faults.add(Fault.STATE, f"an update was refused for {quoted(reason)}: it counts as BAD_MESSAGE")
            reason = "BAD_MESSAGE"
        if reason == OLD_EPOCH:
            _log.error("the plugin has listened to epoch %d: it takes nothing of an arbiter with a lower one", reply.epoch)
        start_id = stream.start_id
        self._engine.submit(lambda at_ms: UpdateRefused(at_ms=at_ms, start_id=start_id, reason=reason))
