"""How long nobody leads: three real arbiters on a real ZooKeeper of three servers, the leader killed, frozen or told to go.

    python -m tests.bench.failover [--kills 10] [--freezes 5] [--stops 5] [--session 2] [--leases 5000]

A time is from the fault until another arbiter says that it leads, asked every LOOK_S; that the leases are all there is checked
each time. A killed arbiter is started again at once, a frozen one thaws when another leads and has to stand by then.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.bench.lease_book import Book, machine
from tests.support.arbiters import ArbiterProcess, Arbiters
from tests.support.zookeeper_server import eventually, run_zookeeper
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.events import Batch

SETTLED_S_MAX: Final = 60.0
LOOK_S: Final = 0.05
ARBITERS: Final = ("a", "b", "c")


class Stage:
    """The arbiters, and how long nobody led by kind of fault."""

    def __init__(self, arbiters: Arbiters, n_leases: int) -> None:
        self._arbiters, self._n_leases, self._started = arbiters, n_leases, 0
        self.seconds: dict[str, list[float]] = {}

    def settle(self) -> ArbiterProcess:
        """One leads and has all leases, two stand by and know it."""
        leader = self._arbiters.wait_leader(within_s=SETTLED_S_MAX)
        held = len(json.loads(leader.get("/api/v1/leases")[1])["leases"])
        assert held == self._n_leases, f"{held} leases of {self._n_leases}"
        for other in self._arbiters.all:
            if other is not leader:
                what = f"{other.name} knows that {leader.name} leads"
                eventually(lambda: other.status().get("leader_address") == leader.grpc_address, SETTLED_S_MAX, what)  # noqa: B023
        return leader

    def fault(self, kind: str, number: signal.Signals) -> None:
        """One fault, timed, and what makes it good again."""
        leader = self.settle()
        began_s = time.monotonic()
        leader.signal(number)
        others = [one for one in self._arbiters.all if one is not leader]
        while not any(one.leads for one in others):
            assert time.monotonic() - began_s < SETTLED_S_MAX, f"nobody leads after {kind}"
            time.sleep(LOOK_S)
        self.seconds.setdefault(kind, []).append(time.monotonic() - began_s)
        if number is signal.SIGSTOP:
            leader.signal(signal.SIGCONT)
            return
        leader.process.wait(SETTLED_S_MAX)
        self._arbiters.forget(leader)
        self._started += 1
        self._arbiters.start(f"{leader.name.partition('-')[0]}-{self._started}")


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.failover", description="Measure how long nobody leads.")
    for name, default in (("kills", 10), ("freezes", 5), ("stops", 5), ("session", 2), ("leases", 5_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="themis-failover-") as name:
        folder = Path(name)
        with run_zookeeper(folder, servers=3) as zookeeper:
            place = Place(hosts=zookeeper.hosts, chroot="/themis")
            fill(place, given.leases)
            with Arbiters(f"zookeeper:{place}", folder, zookeeper_session=f"{given.session} s") as arbiters:
                arbiters.start(*ARBITERS)
                stage = Stage(arbiters, given.leases)
                plan = [("kill", signal.SIGKILL)] * given.kills + [("freeze", signal.SIGSTOP)] * given.freezes
                for kind, number in [*plan, *([("stop", signal.SIGTERM)] * given.stops)]:
                    stage.fault(kind, number)
                stage.settle()
    print(f"three arbiters, ZooKeeper of three servers, session {given.session} s, {given.leases} leases")
    columns = (("FAULT", False), *((title, True) for title in ("TIMES", "NOBODY LED, P50 S", "MAX S", "P50, SESSIONS", "MAX")))
    print_table(columns, [row(kind, sorted(each), given.session) for kind, each in stage.seconds.items()], sys.stdout)
    print(machine())
    return 0


def row(kind: str, in_order: list[float], session_s: float) -> list[str]:
    """One line of the table."""
    middle, most = in_order[len(in_order) // 2], in_order[-1]
    figures = (middle, most, middle / session_s, most / session_s)
    return [kind, str(len(in_order)), *(f"{figure:.2f}" for figure in figures)]


def fill(place: Place, n_leases: int) -> None:
    """The book that they hand on."""
    leases = Book(n_leases).leases
    with closing(ZooKeeperStore(place)) as store:
        epoch = store.acquire_epoch()
        store.commit(Batch(batch_no=1, epoch=epoch, start_id="", last_round=1, last_serial=n_leases, puts=leases))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
