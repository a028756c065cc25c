"""The stage where there is no Java: the same arbiter, driver, loop and ports, on the simulated ResourceManager in real time.

Everything runs in this process. What containers did is known from the reports that the arbiter got, so the judge's word is
weaker here than on YARN, whose log is a witness of its own.
"""

import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from themis_arbiter import __version__
from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.grpc.admin import About
from themis_arbiter.adapters.grpc.agent import AgentService
from themis_arbiter.adapters.grpc.audit import AuditTrail
from themis_arbiter.adapters.grpc.server import GrpcServer
from themis_arbiter.cli.local import samples
from themis_arbiter.cli.local.samples import Sample
from themis_arbiter.cli.local.stage import StageError
from themis_arbiter.core.events import ContainerReport, RmReported
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.types import Millis
from themis_arbiter.engine.driver import Driver, Fence
from themis_arbiter.engine.journal_format import parse_header, parse_steps
from themis_arbiter.engine.loop import EngineError, EngineLoop
from themis_arbiter.engine.recovery import take_over
from themis_arbiter.engine.timers import TimerTable
from themis_arbiter.obs.logs import AUDIT
from themis_arbiter.obs.metrics import MetricsObserver, new_registry, scrape_text
from themis_arbiter.obs.snapshot import Snapshot, SnapshotUnavailableError
from themis_arbiter.ports import StoreError
from themis_arbiter.server.bootstrap import SCRAPE_S_MAX, open_store
from themis_arbiter.server.config import ServerConfig, load_config
from themis_arbiter.server.http import HttpPort, HttpPortError
from themis_arbiter.server.journals import open_journal
from themis_arbiter.server.local_admin import LocalAdmin
from themis_arbiter.server.views import VIEWS, make_admin, take_snapshot
from themis_arbiter.sim.live_cluster import LiveCluster
from themis_arbiter.sim.live_jobs import SimJob, SimNode
from themis_arbiter.sim.live_model import SimTiming, SimulatedCluster
from themis_arbiter.sim.run_facts import ContainerStay


class SimulatedStage:
    """See the module's text. The settings are those of themis.toml in the run's folder, as on YARN."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._stack = ExitStack()
        self._clock = SystemClock()
        self._loop: EngineLoop[Arbiter] | None = None
        self._cluster: LiveCluster | None = None
        self._failure = ""
        self.grpc_address = self.http_url = ""

    def start(self) -> None:
        """Build it from the store up; the cluster speaks last."""
        try:
            self._start(load_config(self._run_dir / "themis.toml", {}))
        except (StoreError, HttpPortError, EngineError, OSError) as error:
            self.stop()
            raise StageError(f"the simulated cluster cannot start: {error}") from error
        except BaseException:  # a Ctrl-C too
            self.stop()
            raise

    def _start(self, config: ServerConfig) -> None:
        store = open_store(config.store)
        self._stack.callback(store.close)
        journal = open_journal(config.journal, config.settings, self._clock.now_ms())
        self._stack.callback(journal.close)
        nodes = [SimNode(node=f"sim{k}", rack=rack, gpus=gpus) for k, (gpus, rack) in enumerate(samples.CLUSTER, start=1)]
        timing = SimTiming(heartbeat_ms=samples.HEARTBEAT_MS)
        model = SimulatedCluster(nodes, (), start_ms=self._clock.now_ms(), timing=timing)
        self._cluster = LiveCluster(model, self._clock, on_failure=lambda error: self._fail(f"the cluster failed: {error}"))
        metrics, audit = MetricsObserver(self._snapshot), AuditTrail(logging.getLogger(AUDIT))
        timers = TimerTable()
        driver: Driver[Arbiter] = Driver(
            Arbiter(config.settings, is_checked=True),
            store=store,
            rm=self._cluster,
            journal=journal,
            timers=timers,
            clock=self._clock,
            observers=(metrics, audit),
            fence=Fence(on_stale_epoch=self._fail),
        )
        self._loop = EngineLoop(driver, self._clock, timers, on_failure=lambda err: self._fail(f"the engine failed: {err}"))
        http = HttpPort(config.http_address)
        self._stack.callback(http.stop)
        about = About(version=__version__, http_address=str(http.address), grpc_address=lambda: self.grpc_address)
        admin = make_admin(self._loop, self._clock, config, audit, about)
        agent = AgentService(self._loop, VIEWS, self._clock)
        grpc = GrpcServer(str(config.grpc_address), cluster=None, admin=admin, agent=agent)  # the cluster is here
        self._stack.callback(grpc.stop)
        self.grpc_address = f"{config.grpc_address.host}:{grpc.start()}"
        self.http_url = f"http://{http.address}/"
        first = take_over(store, self._clock)
        self._loop.start()
        self._stack.callback(self._loop.stop)
        self._loop.submit(lambda now_ms: replace(first, at_ms=now_ms))
        registry = new_registry(metrics)
        http.start(admin=LocalAdmin(admin), metrics=lambda: scrape_text(registry), health=lambda: self._failure)
        grpc.set_ready(True)
        self._cluster.start(self._loop.submit)
        self._stack.callback(self._cluster.stop)

    def submit(self, sample: Sample) -> str:
        """A job of the same shape as the app on YARN."""
        job_id = f"sim-{sample.name}"
        job = SimJob(
            app_id=sample.app_id,
            job_id=job_id,
            gang=sample.gang,
            max_gpus=sample.gpus_max,
            work=sample.work_gpu_s * 1_000.0,
            user=sample.user,
        )
        if self._cluster is None:
            raise StageError("the simulated cluster has not started")
        self._cluster.do(lambda cluster: cluster.add_job(job))
        return job_id

    def check(self) -> None:
        """Whether engine and cluster still run."""
        if self._failure:
            raise StageError(self._failure)

    def final_status(self, job_id: str) -> str:
        """A simulated job can only succeed."""
        jobs = {job.job_id: job for job in (self._cluster.jobs() if self._cluster is not None else ())}
        return "SUCCEEDED" if job_id in jobs and jobs[job_id].finish_ms is not None else ""

    def stays(self) -> list[ContainerStay]:
        """From the journal's events."""
        (path,) = (self._run_dir / "journal").glob("*.journal")
        known: dict[str, ContainerStay] = {}
        with path.open(encoding="utf-8") as lines:
            parse_header(lines.readline())
            for step in parse_steps(lines):
                if isinstance(step.event, RmReported):
                    for container in step.event.containers:
                        _follow(known, container, step.event.at_ms)
        return list(known.values())

    def save(self) -> None:
        """There is no ResourceManager to ask for more than the journal has."""

    def stop(self) -> None:
        """In the reverse order of the start."""
        self._stack.close()

    def _engine(self) -> EngineLoop[Arbiter]:
        if self._loop is None:
            raise EngineError("the engine has not started yet")
        return self._loop

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason

    def _snapshot(self) -> Snapshot:
        now_ms = self._clock.now_ms()
        try:
            return self._engine().call(lambda arbiter: take_snapshot(arbiter, now_ms), SCRAPE_S_MAX)
        except EngineError as error:
            raise SnapshotUnavailableError(str(error)) from error


def _follow(known: dict[str, ContainerStay], report: ContainerReport, at_ms: Millis) -> None:
    stay = known.get(report.container_id)
    if stay is None:
        if report.is_ended:
            return
        stay = ContainerStay(
            container_id=report.container_id,
            job_id=report.job_id,
            node=report.node,
            gpus=report.gpus,
            is_am=report.is_am,
            allocated_ms=at_ms,
        )
    if report.is_running and stay.running_ms is None:
        stay = replace(stay, running_ms=at_ms)
    if report.is_ended and stay.ended_ms is None:
        stay = replace(stay, ended_ms=at_ms)
    known[report.container_id] = stay
