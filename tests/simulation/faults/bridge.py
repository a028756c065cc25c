"""The way between arbiters and the simulated ResourceManager: a bridge that looks for who leads, over a bad network.

It stands for the product's bridge and gRPC stream (`ClusterLink` is their end at the ResourceManager), which it does not run.
A connection carries messages in order, unless the world's faults say otherwise; once it is dropped, nothing of it is heard
again, except of one that is *forgotten*: its arbiter may still reach the gate, as one behind a bridge that hangs would.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.simulation.faults.process import Around, Process
from tests.simulation.faults.schedule import Pipe, Schedule
from themis_arbiter.core.effects import GrantGpus, RequestDrain, SyncLeases, TellJob, WithdrawLeases
from themis_arbiter.core.events import Event, RmAttached, RmDetached
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.loop import EngineError, EngineLoop, MakeEvent
from themis_arbiter.sim.live_gate import LeaseUpdate
from themis_arbiter.sim.live_link import ClusterLink
from themis_arbiter.sim.live_model import SimulatedCluster

LOOK_EVERY_MS: Final[Millis] = 500
OVERTAKEN_MS: Final[Millis] = 300
SILENCE_MS: Final[Millis] = 8_000  # as yarn_bridge's


@dataclass(slots=True)
class Net:
    """What the network does now between one arbiter and the bridge."""

    goes_out: bool = True  # from the arbiter
    comes_in: bool = True
    lose: int = 0  # messages from the arbiter that are lost; the connection breaks with the first
    repeat: int = 0  # messages that come twice
    hold: int = 0  # messages that are overtaken by the next one
    late_until_ms: Millis = 0  # reports wait until then


class Connection:
    """Between one term of an arbiter and the ResourceManager."""

    def __init__(self, bridge: "Bridge", process: Process, loop: EngineLoop[Arbiter], link: ClusterLink) -> None:
        self.process, self.link = process, link
        self.port = process.rm  # the term's; another one's means that this term is over
        self.is_open = True
        self.heard_ms = bridge.schedule.now_ms
        self._bridge, self._loop = bridge, loop
        self._start_id = ""
        net, schedule, delay_ms = bridge.net(process), bridge.schedule, bridge.delay_ms
        self._down = Pipe(schedule, delay_ms, lambda: net.goes_out)
        self._up = Pipe(schedule, delay_ms, lambda: net.comes_in)
        link.attach(self._submit)

    def send(self, update: LeaseUpdate | TellJob) -> None:
        """From the arbiter to the gate."""
        net = self._bridge.net(self.process)
        if not self.is_open:
            return
        if net.lose:
            net.lose -= 1
            self._bridge.drop(self)
            return
        if net.hold:
            net.hold -= 1
            self._bridge.schedule.after(OVERTAKEN_MS, lambda: self._arrive(update))
            return
        self._down.put(lambda: self._arrive(update))
        if net.repeat:
            net.repeat -= 1
            self._down.put(lambda: self._arrive(update))

    def _arrive(self, update: LeaseUpdate | TellJob) -> None:
        if not self.is_open:
            return
        self.heard_ms = self._bridge.schedule.now_ms
        match update:
            case SyncLeases():
                self.link.sync(update)
            case GrantGpus():
                self.link.grant(update)
            case RequestDrain():
                self.link.drain(update)
            case WithdrawLeases():
                self.link.withdraw(update)
            case TellJob():
                self.link.tell(update)

    def _submit(self, make: MakeEvent) -> None:
        """From the ResourceManager to the engine."""
        net = self._bridge.net(self.process)
        event = make(0)
        if isinstance(event, RmAttached | RmDetached):
            self._start_id = event.start_id if isinstance(event, RmAttached) else ""
        elif not net.comes_in:
            raise EngineError("nothing goes there")  # the link owes everything then
        self._up.put(lambda: self._hear(make), net.late_until_ms)

    def _hear(self, make: Callable[[Millis], Event]) -> None:
        if self.is_open:
            self.process.deliver(lambda: self._enqueue(make))

    def _enqueue(self, make: Callable[[Millis], Event]) -> None:
        if self._loop.is_running:
            self._loop.submit(make)

    def end(self) -> None:
        """Neither end hears the other any more; the arbiter learns that it is so."""
        if not self.is_open:
            return
        self.is_open = False
        self.link.detach()
        start_id = self._start_id
        if start_id:
            self.process.deliver(lambda: self._enqueue(lambda at_ms: RmDetached(at_ms=at_ms, start_id=start_id)))


class Bridge:
    """See the module's text."""

    def __init__(self, schedule: Schedule, cluster: SimulatedCluster, around: Around, delay_ms: Callable[[], Millis]) -> None:
        self.schedule, self.delay_ms = schedule, delay_ms
        self.forgets = False  # whether the next connection that is left stays open at its other end
        self.connection: Connection | None = None
        self._cluster, self._around = cluster, around
        self._nets: dict[str, Net] = {}

    def net(self, process: Process) -> Net:
        """The network to it."""
        return self._nets.setdefault(process.name, Net())

    def port(self, process: Process) -> "Port":
        """The way to the ResourceManager for one term."""
        return Port(process, self._around)

    def look(self, processes: list[Process]) -> None:
        """Leave who leads no more or says nothing, and find who does."""
        now_ms, there = self.schedule.now_ms, self.connection
        if there is not None:
            net = self.net(there.process)
            if there.process.is_dead or not there.is_open or there.process.rm is not there.port:
                self.leave()
            elif not there.process.is_frozen and net.goes_out:
                there.heard_ms = now_ms  # its answers to keepalives
                if not there.process.is_leading:
                    self.leave()
            elif now_ms - there.heard_ms > SILENCE_MS:
                self.leave()
        if self.connection is None:
            for process in processes:
                net = self.net(process)
                if process.is_leading and net.goes_out and net.comes_in and isinstance(process.rm, Port):
                    self.connect(process, process.rm)
                    return

    def connect(self, process: Process, port: "Port") -> None:
        """Attach it."""
        assert process.loop is not None
        self.connection = port.connection = Connection(self, process, process.loop, self._cluster.link())

    def leave(self) -> None:
        """The connection is no longer the bridge's."""
        there, self.connection = self.connection, None
        if there is None:
            return
        if self.forgets and not there.process.is_dead:
            self.forgets = False
        else:
            there.end()

    def drop(self, connection: Connection) -> None:
        """It has broken."""
        connection.end()
        if self.connection is connection:
            self.connection = None


class Port:
    """The `ResourceManager` of one term; without a connection nobody hears it."""

    def __init__(self, process: Process, around: Around) -> None:
        self.connection: Connection | None = None
        self._process, self._around = process, around

    def sync(self, effect: SyncLeases) -> None:
        """See ResourceManager."""
        self._send("sync", effect)

    def grant(self, effect: GrantGpus) -> None:
        """See ResourceManager."""
        self._send("grant", effect)

    def drain(self, effect: RequestDrain) -> None:
        """See ResourceManager."""
        self._send("drain", effect)

    def withdraw(self, effect: WithdrawLeases) -> None:
        """See ResourceManager."""
        self._send("withdraw", effect)

    def tell(self, effect: TellJob) -> None:
        """See ResourceManager; best effort, and no fault waits for it."""
        if self.connection is not None:
            self.connection.send(effect)

    def _send(self, deed: str, update: LeaseUpdate | TellJob) -> None:
        def send() -> None:
            if self.connection is not None:
                self.connection.send(update)

        self._process.do(deed, send)
