"""How long an arbiter takes with a book of 5,000 leases and 500 apps: start-up, reports, rounds, commits and what they write.

    python -m tests.bench.lease_book [RUNS] [--leases N] [--store sqlite|zookeeper|both]      prints a table, and the machine

The production core and store, driven step by step; the ResourceManager's side is made up. Each run starts from the same
store. ZooKeeper is one real server on this machine, which syncs each write to its disk as SQLite does.
"""

import argparse
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from tests.support.zookeeper_server import run_zookeeper
from themis_arbiter.adapters.sqlite_store import SqliteStore
from themis_arbiter.adapters.zookeeper.session import Place
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.effects import PersistLeases
from themis_arbiter.core.events import (
    Batch,
    ContainerReport,
    EpochAcquired,
    Event,
    JobReport,
    LeasesPersisted,
    Meter,
    NodeReport,
    RmAttached,
    RmReported,
    Timer,
    Woke,
)
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.types import Millis
from themis_arbiter.ports import LeaseStore

LEASES: Final = 5_000
PER_APP: Final = 10
SOME: Final = 500  # leases that a usual round changes
GPUS_PER_NODE: Final = 8
NODES_PER_RACK: Final = 25
GANGS: Final = (1, 2, 5, 10)  # in turn; the first kind is elastic and asks for more
RUNS: Final = 10
COLUMNS: Final = (
    ("WHAT (core: CPU time; store: wall clock)", False),
    *((name, True) for name in ("MEDIAN MS", "LEAST", "MOST", "KB WRITTEN")),
)
SETTINGS: Final = Settings()
TRUSTED_MS: Final = SETTINGS.recovery_grace_ms + 1_000  # from then on what a new ResourceManager does not name is gone
Opener: TypeAlias = Callable[[], LeaseStore]
START_MS: Final[Millis] = 1_700_000_100_000 // SETTINGS.lease_ms * SETTINGS.lease_ms


@dataclass
class Times:
    """Seconds by what was measured, over runs."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    written: dict[str, list[int]] = field(default_factory=dict)  # bytes, of commits

    def add(self, name: str, seconds: float, written: int | None = None) -> None:
        """One more measurement."""
        self.seconds.setdefault(name, []).append(seconds)
        if written is not None:
            self.written.setdefault(name, []).append(written)

    def median(self, name: str) -> float:
        """The middle one."""
        return sorted(self.seconds[name])[len(self.seconds[name]) // 2]

    def rows(self) -> list[list[str]]:
        """Name, median, least and most in milliseconds, median of KB written."""
        return [
            [name, f"{self.median(name) * 1e3:.1f}", f"{min(each) * 1e3:.1f}", f"{max(each) * 1e3:.1f}", self._kb(name)]
            for name, each in self.seconds.items()
        ]

    def _kb(self, name: str) -> str:
        each = sorted(self.written.get(name, ()))
        return f"{each[len(each) // 2] / 1_024:.1f}" if each else ""


class Book:
    """A cluster that is leased out whole, as the ResourceManager reports it and as the store has it."""

    def __init__(self, n_leases: int = LEASES) -> None:
        n_apps = n_leases // PER_APP
        self.nodes = tuple(
            NodeReport(
                node=f"n{k:03d}",
                rack=f"r{k // NODES_PER_RACK}",
                gpus=GPUS_PER_NODE,
                memory_free_mb=65_536,
                vcores_free=64,
            )
            for k in range(n_leases // GPUS_PER_NODE)
        )
        gpus = [f"{n.node}:{k}" for n in self.nodes for k in range(GPUS_PER_NODE)]
        self.leases = tuple(_lease(k, gpu) for k, gpu in enumerate(gpus))
        self.jobs = tuple(
            JobReport(
                app_id=f"u/a{k}",
                job_id=_job_id(k),
                arrival_ms=START_MS,
                gang=GANGS[k % len(GANGS)],
                gpus_asked=2 if k % len(GANGS) == 0 else 0,
                work=3.6e7,
            )
            for k in range(n_apps)
        )
        self.containers = tuple(
            ContainerReport(container_id=f"c{k:05d}", job_id=x.job_id, node=x.node_of_gpu, gpus=1, is_running=True)
            for k, x in enumerate(self.leases)
        )

    def full_report(self, at_ms: Millis) -> RmReported:
        """Everything."""
        return RmReported(
            at_ms=at_ms,
            start_id="s",
            is_full=True,
            nodes=self.nodes,
            jobs=self.jobs,
            containers=self.containers,
            update_seq=1,
        )

    def write(self, open_store: Opener, times: Times) -> None:
        """A store that holds it, and then a round in which some of it changes."""
        store = open_store()
        meter = Meter(attained=1.0, done=1.0, metered_ms=START_MS, app_id="a", arrival_ms=START_MS)
        meters = tuple((j.job_id, replace(meter, app_id=j.app_id)) for j in self.jobs)
        epoch = store.acquire_epoch()
        batch = Batch(
            batch_no=1, epoch=epoch, start_id="", last_round=1, last_serial=len(self.leases), puts=self.leases, meters=meters
        )
        commit(store, batch, "store: commit of all leases at once", times)
        some = self.leases[:: len(self.leases) // SOME][:SOME]
        drained = tuple(replace(lease, state=LeaseState.DRAINING) for lease in some)
        commit(store, replace(batch, puts=drained, meters=()), f"store: commit of {SOME} leases", times)
        commit(store, replace(batch, puts=some, meters=()), f"store: commit of {SOME} leases", times)
        store.close()


class Bench:
    """One arbiter from its start on; every step's time goes to `times`."""

    def __init__(self, open_store: Opener, times: Times) -> None:
        self._times = times
        began_s = time.perf_counter()
        self._store = open_store()
        epoch = self._store.acquire_epoch()
        stored = self._store.load()
        times.add("store: open and load", time.perf_counter() - began_s)
        self.arbiter = Arbiter(SETTINGS)
        take_over = EpochAcquired(
            at_ms=START_MS,
            epoch=epoch,
            leases=stored.leases,
            meters=stored.meters,
            last_round=stored.last_round,
            last_serial=stored.last_serial,
        )
        self.step("start-up: take over", take_over)

    def step(self, name: str, event: Event) -> None:
        """One event and what follows from it: core time under `name`, each commit's under `name`, commit."""
        todo, core_s, commit_s, written = [event], 0.0, 0.0, 0
        while todo:
            began_s = time.process_time()  # the core waits for nothing, so other processes need not count
            effects = self.arbiter.step(todo.pop(0))
            core_s += time.process_time() - began_s
            for effect in effects:
                if isinstance(effect, PersistLeases):
                    before, began_s = bytes_written(self._store), time.perf_counter()
                    self._store.commit(effect.batch)
                    commit_s += time.perf_counter() - began_s
                    written += bytes_written(self._store) - before
                    todo.append(LeasesPersisted(at_ms=event.at_ms, batch_no=effect.batch.batch_no))
        self._times.add(name, core_s)
        if commit_s:
            self._times.add(f"store: commits of {name}", commit_s, written)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def commit(store: LeaseStore, batch: Batch, name: str, times: Times) -> None:
    """One commit, measured."""
    before, began_s = bytes_written(store), time.perf_counter()
    store.commit(batch)
    times.add(name, time.perf_counter() - began_s, bytes_written(store) - before)


def bytes_written(store: LeaseStore) -> int:
    """Bytes that the store has handed to ZooKeeper, or this process to the system, so far."""
    if isinstance(store, ZooKeeperStore):
        return store.bytes_written
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("wchar"))


def measure(runs: int, n_leases: int = LEASES, *, hosts: str = "") -> Times:
    """So many runs from start-up to the round at which every lease ends; on ZooKeeper where `hosts` are given."""
    book, times = Book(n_leases), Times()
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as folder:
        for number in range(runs):
            opener = _opener(Path(folder), hosts, f"{n_leases}-{number}")
            book.write(opener, times)
            bench = Bench(opener, times)
            _run(bench, book)
            bench.close()
    return times


def _opener(folder: Path, hosts: str, name: str) -> Opener:
    if hosts:
        return lambda: ZooKeeperStore(Place(hosts=hosts, chroot=f"/bench/{name}"))
    return lambda: SqliteStore(folder / f"{name}.db")


def _run(bench: Bench, book: Book) -> None:
    now_ms = START_MS + 1_000
    bench.step("attach", RmAttached(at_ms=now_ms, start_id="s"))
    bench.step("reconcile: first full report", book.full_report(now_ms))
    bench.step("reconcile: full report, nothing new", book.full_report(now_ms + 100))
    asked = replace(book.jobs[0], gpus_asked=3)
    bench.step("report: one job", RmReported(at_ms=now_ms + 200, start_id="s", jobs=(asked,), update_seq=1))
    bench.step("round: nothing free", Woke(at_ms=now_ms + 2_000, timer=Timer.ROUND))
    _free_one_app(bench, book, now_ms + TRUSTED_MS)
    bench.step("round: one app's GPUs free", Woke(at_ms=now_ms + TRUSTED_MS + 4_000, timer=Timer.ROUND))
    assert bench.arbiter.state.rounds, "no round was held for what had come free"
    grid_ms = START_MS + SETTINGS.lease_ms - SETTINGS.notice_ms
    bench.step("round: every lease ends", Woke(at_ms=grid_ms, timer=Timer.GRID))
    moves = bench.arbiter.state.rounds[-1]["moves"]
    assert len(moves["renewed"]) + len(moves["draining"]) > len(book.leases) - 2 * PER_APP, "the round was not about all leases"


def _free_one_app(bench: Bench, book: Book, at_ms: Millis) -> None:
    """The last app, a gang, ends: its leases are drained, released and on offer."""
    gone = tuple(replace(c, is_ended=True, is_running=False) for c in book.containers[-PER_APP:])
    job = replace(book.jobs[-1], is_finished=True, finish_ms=at_ms, gpus_asked=0, final_status="SUCCEEDED")
    bench.step("report: one app ends", RmReported(at_ms=at_ms, start_id="s", jobs=(job,), containers=gone, update_seq=1))
    bench.step("drains of an ended app", Woke(at_ms=at_ms + 1_000, timer=Timer.TIDY))
    seq = bench.arbiter.state.update_seq
    bench.step("report: drains applied", RmReported(at_ms=at_ms + 1_200, start_id="s", update_seq=seq))


def _lease(number: int, gpu: str) -> Lease:
    app = number // PER_APP
    return Lease(
        lease_id=f"L{number:08d}",
        grant_id=f"G{app:08d}",
        gpu=gpu,
        app_id=f"u/a{app}",
        job_id=_job_id(app),
        epoch=1,
        round_no=1,
        start_ms=START_MS,
        end_ms=START_MS + SETTINGS.lease_ms,
        state=LeaseState.ACTIVE,
    )


def _job_id(app: int) -> str:
    return f"application_1_{app:04d}"


def machine() -> str:
    """What it was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.machine())
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {cpu}, Python {platform.python_version()}, load {load:.1f} at the end"


def peak_mb() -> int:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024


def main(arguments: Sequence[str]) -> int:
    """Print a table for each store."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lease_book", description="Measure the lease book.")
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--leases", type=int, default=LEASES, help=f"a multiple of {PER_APP * GPUS_PER_NODE}, {SOME} at least")
    parser.add_argument("--store", choices=["sqlite", "zookeeper", "both"], default="sqlite")
    given = parser.parse_args(arguments)
    before_mb = peak_mb()
    for kind in ("sqlite", "zookeeper") if given.store == "both" else (given.store,):
        with ExitStack() as stack:
            hosts = ""
            if kind == "zookeeper":
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="themis-bench-")))
                hosts = stack.enter_context(run_zookeeper(folder)).hosts
            times = measure(given.runs, given.leases, hosts=hosts)
        apps, nodes = given.leases // PER_APP, given.leases // GPUS_PER_NODE
        print(f"{kind}: lease book of {given.leases} leases, {apps} apps, {nodes} nodes, {given.runs} runs")
        print_table(COLUMNS, times.rows(), sys.stdout)
    print(f"memory: at most {peak_mb()} MB resident, {before_mb} MB before")
    print(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
