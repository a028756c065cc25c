"""The stage with several arbiters on a ZooKeeper ensemble of three: one leads, and faults hit the one that does."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from tests.chaos.campaign import Record
from tests.chaos.stage import POLL_S, UP_S_MAX, ChaosError, Process, Stage, free_port
from tests.support.zookeeper_server import ZooKeeper, run_zookeeper
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.arbiter_client import Arbiters, connected
from themis_arbiter.cli.failures import NotSo
from themis_arbiter.core.events import EpochAcquired
from themis_arbiter.core.lease import Lease
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.journal_format import parse_header, parse_steps
from themis_arbiter.ports import StoreError
from themis_arbiter.server.values import Address
from yarn_bridge.local.daemons import Daemon

SESSION_MS: Final = 2_000  # that arbiters ask for, and the servers grant
SERVERS: Final = 3
LEADERS: Final = ("arbiter-", "both-")  # scenarios that take the leader away
STOPPED_MS_MAX: Final = 60_000
READ_S_MAX: Final = 20.0  # until the ensemble answers a reader


class Ensemble(Stage):
    """`arbiters` of them, named a, b, c, ..., each with a port and a folder for journals of its own."""

    def __init__(
        self, run_dir: Path, arbiters: int, *, fallback_after_ms: int, more_site: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(run_dir, fallback_after_ms=fallback_after_ms, more_site=more_site)
        self._names = tuple("abcdefg"[:arbiters])
        self._addresses = {name: Address("127.0.0.1", free_port()) for name in self._names}
        self.where = Arbiters(tuple(self._addresses.values()))
        self._of: dict[str, Process] = {}
        self._stack = ExitStack()
        self._zookeeper: ZooKeeper | None = None
        self._reader: ZooKeeperStore | None = None
        self.bridge = self.process("bridge", "bridge", "--bridge-arbiter", str(self.where))

    def start_arbiters(self) -> None:
        """ZooKeeper first."""
        self._zookeeper = self._stack.enter_context(run_zookeeper(self.run_dir, servers=SERVERS))
        place = Place(hosts=self._zookeeper.hosts, chroot="/themis")
        for name, address in self._addresses.items():
            own = ["--grpc-address", str(address), "--journal-folder", str(self.run_dir / f"journal-{name}")]
            shared = ["--store", f"zookeeper:{place}", "--zookeeper-session", f"{SESSION_MS} ms"]
            self._of[name] = self.process("serve", f"arbiter-{name}", *own, *shared)
            self._of[name].start()
        self.leader()
        self._reader = ZooKeeperStore(place)

    def stop_arbiters(self) -> None:
        """Readers, arbiters, servers."""
        if self._reader is not None:
            self._reader.close()
        for process in self._of.values():
            process.end()
        self._stack.close()

    def leader(self) -> Process:
        """The one that says that it leads. Errors: ChaosError where nobody does for long."""
        deadline_s = time.monotonic() + UP_S_MAX
        while time.monotonic() < deadline_s:
            for name, address in self._addresses.items():
                with suppress(NotSo), connected(address, POLL_S * 5) as client:
                    if client.status().is_leader:
                        return self._of[name]
            time.sleep(POLL_S)
        raise ChaosError(f"none of {self.where} leads after {UP_S_MAX:g} s")

    def zookeeper_servers(self) -> Sequence[Daemon]:
        """The ensemble's processes."""
        assert self._zookeeper is not None, "not started"
        return tuple(server.daemon for server in self._zookeeper.servers)

    def stored_leases(self) -> dict[str, Lease]:
        """The leases in ZooKeeper, read past the arbiters. Errors: StoreError where it does not answer for long."""
        assert self._reader is not None, "not started"
        deadline_s = time.monotonic() + READ_S_MAX
        while True:
            try:
                return {x.lease_id: x for x in self._reader.load().leases}
            except StoreError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(POLL_S)


def leaderless(records: Sequence[Record], journals: Sequence[Path]) -> dict[str, list[Millis]]:
    """From the moment when the leader was hit until another began to lead, by scenario; by the arbiters' own journals.

    A leader that is stopped for less than its session leads on: nothing is told of it.
    """
    began = _reigns(journals)
    found: dict[str, list[Millis]] = {}
    for record in records:
        if record.scenario.startswith(LEADERS):
            ends = [at for at in began if record.hit_ms < at < record.hit_ms + round(record.settle_s * 1_000) + STOPPED_MS_MAX]
            found.setdefault(record.scenario, []).extend(at - record.hit_ms for at in ends[:1])
    return {scenario: sorted(times) for scenario, times in found.items()}


def _reigns(journals: Sequence[Path]) -> list[Millis]:
    """When an arbiter began to lead, each time, in order. A journal is one term's and begins with it: no more is read."""
    began: list[Millis] = []
    for path in journals:
        with path.open(encoding="utf-8") as lines:
            parse_header(lines.readline())
            terms = (step.event.at_ms for step in parse_steps(lines) if isinstance(step.event, EpochAcquired))
            began += islice(terms, 1)
    return sorted(began)
