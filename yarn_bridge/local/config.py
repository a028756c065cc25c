"""What a local cluster is made of, and the files that tell YARN so."""

from __future__ import annotations

import getpass
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from yarn_bridge.local.jars import HADOOP_VERSION, LocalYarnError
from yarn_bridge.local.reaper import MARK_VARIABLE

OFFSWITCH_ASSIGNMENTS: Final = 16  # containers that one heartbeat may place; no node here has more GPUs
CAPACITY_SCHEDULER: Final = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
THEMIS_SCHEDULER: Final = "org.themis.yarn.ThemisScheduler"
DOMINANT_CALCULATOR: Final = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
STORE_PACKAGE: Final = "org.apache.hadoop.yarn.server.resourcemanager.recovery"
GPU: Final = "yarn.io/gpu"
NODES_MAX: Final = 200
PORT_TRIES_MAX: Final = 1_000
# Below the range that the kernel gives to outgoing connections: a ResourceManager that is
# down for a moment must find its ports free when it comes back.
PORTS: Final = range(12_000, 32_000)
ENV_WHITELIST: Final = "JAVA_HOME,HADOOP_COMMON_HOME,HADOOP_HDFS_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One NodeManager: its number of GPUs (declared, not real) and its rack's name."""

    gpus: int
    rack: str


DEFAULT_NODES: Final = (
    NodeSpec(gpus=4, rack="rack0"),
    NodeSpec(gpus=4, rack="rack0"),
    NodeSpec(gpus=2, rack="rack1"),
    NodeSpec(gpus=2, rack="rack1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalYarnConfig:
    """All of it with defaults. Node K (from 1) is named `127.0.<host_net>.<host_offset + K>`.

    `plugin_jars` go on the ResourceManager's classpath only. `yarn_site` and `capacity` are added
    last and win over what the harness sets. `queues` maps a queue under root to its percentage. With `zookeeper`
    (HOST:PORT, or several with commas between) there are two ResourceManagers, with automatic failover (pair.py).
    """

    nodes: tuple[NodeSpec, ...] = DEFAULT_NODES
    memory_mb: int = 8192
    vcores: int = 16
    min_allocation_mb: int = 128
    heartbeat_ms: int = 200
    recovery_wait_ms: int = 2_000
    scheduler_class: str = CAPACITY_SCHEDULER
    plugin_jars: tuple[Path, ...] = ()
    gateway_dir: Path | None = None
    zookeeper: str = ""
    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 100})
    yarn_site: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    debug_loggers: tuple[str, ...] = ()
    hadoop_version: str = HADOOP_VERSION
    work_dir: Path | None = None
    cache_dir: Path | None = None
    host_net: int = 1
    host_offset: int = 0
    rm_heap_mb: int = 512
    nm_heap_mb: int = 200
    start_timeout_s: float = 180.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= NODES_MAX or self.host_offset + len(self.nodes) > 254:
            raise LocalYarnError(f"a local cluster has 1 to {NODES_MAX} nodes in 127.0.{self.host_net}.1-254")
        if any(node.gpus < 0 for node in self.nodes):
            raise LocalYarnError("a node has no less than 0 GPUs")
        if sum(self.queues.values()) != 100:
            raise LocalYarnError(f"the queues' percentages must add up to 100: {dict(self.queues)}")

    def with_plugin(self, jar: Path, gateway_dir: Path | None = None) -> LocalYarnConfig:
        """The same cluster under ThemisScheduler. Without `gateway_dir` it is a folder in the work dir."""
        return replace(self, scheduler_class=THEMIS_SCHEDULER, plugin_jars=(*self.plugin_jars, jar), gateway_dir=gateway_dir)

    def host(self, index: int) -> str:
        """The name of node `index` (from 0)."""
        return f"127.0.{self.host_net}.{self.host_offset + index + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RmPorts:
    """The ResourceManager's ports on 127.0.0.1; they stay the same over its restarts."""

    client: int
    scheduler: int
    tracker: int
    admin: int
    web: int


def draw_ports(taken: Sequence[RmPorts] = ()) -> RmPorts:
    """Five ports that nobody listens on, none of `taken`. Raises LocalYarnError when PORT_TRIES_MAX draws do not do."""
    used = {port for others in taken for port in astuple(others)}
    chance = random.SystemRandom()  # not seeded: clusters that start together must draw apart
    free: list[int] = []
    for _ in range(PORT_TRIES_MAX):
        port = chance.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in free and port not in used:
            free.append(port)
        if len(free) == 5:
            return RmPorts(client=free[0], scheduler=free[1], tracker=free[2], admin=free[3], web=free[4])
    raise LocalYarnError(f"no five free ports in {PORTS.start}-{PORTS.stop}")


def write_conf(conf_dir: Path, config: LocalYarnConfig, *, ports: RmPorts, state_dir: Path, container_classpath: str) -> None:
    """Writes the conf folder that the daemons, the clients and the containers use."""
    conf_dir.mkdir(parents=True, exist_ok=True)
    topology = "".join(f"{config.host(i)} /{node.rack}\n" for i, node in enumerate(config.nodes))
    (conf_dir / "topology.table").write_text(topology)
    core = {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": str(state_dir / "tmp"),
        "hadoop.http.staticuser.user": getpass.getuser(),
        "net.topology.node.switch.mapping.impl": "org.apache.hadoop.net.TableMapping",
        "net.topology.table.file.name": str(conf_dir / "topology.table"),
    }
    _write_xml(conf_dir / "core-site.xml", core)
    site = _rm_site(config, ports, state_dir) | _nm_site(config) | _gpu_site(config)
    site["yarn.application.classpath"] = f"{conf_dir},{container_classpath}"
    _write_xml(conf_dir / "yarn-site.xml", site | dict(config.yarn_site))
    _write_xml(conf_dir / "capacity-scheduler.xml", _capacity(config) | dict(config.capacity))
    (conf_dir / "log4j.properties").write_text(_log4j(config))


def node_arguments(config: LocalYarnConfig, index: int, node_dir: Path) -> list[str]:
    """The `-D` pairs that tell one NodeManager from the others of its cluster."""
    host = config.host(index)
    values = {
        "yarn.nodemanager.hostname": host,
        "yarn.nodemanager.address": f"{host}:0",
        "yarn.nodemanager.localizer.address": f"{host}:0",
        "yarn.nodemanager.webapp.address": f"{host}:0",
        f"yarn.nodemanager.resource-type.{GPU}": str(config.nodes[index].gpus),
        "yarn.nodemanager.local-dirs": str(node_dir / "local"),
        "yarn.nodemanager.log-dirs": str(node_dir / "containers"),
        "hadoop.tmp.dir": str(node_dir / "tmp"),
    }
    return [argument for key, value in values.items() for argument in ("-D", f"{key}={value}")]


def _rm_site(config: LocalYarnConfig, ports: RmPorts, state_dir: Path) -> dict[str, str]:
    rm = "yarn.resourcemanager"
    site = {
        f"{rm}.hostname": "127.0.0.1",
        f"{rm}.address": f"127.0.0.1:{ports.client}",
        f"{rm}.scheduler.address": f"127.0.0.1:{ports.scheduler}",
        f"{rm}.resource-tracker.address": f"127.0.0.1:{ports.tracker}",
        f"{rm}.admin.address": f"127.0.0.1:{ports.admin}",
        f"{rm}.webapp.address": f"127.0.0.1:{ports.web}",
        f"{rm}.scheduler.class": config.scheduler_class,
        f"{rm}.nodemanagers.heartbeat-interval-ms": str(config.heartbeat_ms),
        f"{rm}.connect.retry-interval.ms": "1000",
        f"{rm}.recovery.enabled": "true",
        f"{rm}.store.class": f"{STORE_PACKAGE}.FileSystemRMStateStore",
        f"{rm}.fs.state-store.uri": (state_dir / "store").as_uri(),
        f"{rm}.work-preserving-recovery.enabled": "true",
        f"{rm}.work-preserving-recovery.scheduling-wait-ms": str(config.recovery_wait_ms),
        f"{rm}.scheduler.monitor.enable": "false",  # YARN's own preemption
        "yarn.acl.enable": "false",
        "yarn.scheduler.minimum-allocation-mb": str(config.min_allocation_mb),
        "yarn.scheduler.maximum-allocation-mb": str(config.memory_mb),
        "yarn.scheduler.maximum-allocation-vcores": str(config.vcores),
    }
    if config.gateway_dir is not None:
        site["themis.gateway.dir"] = str(config.gateway_dir)
    return site


def _nm_site(config: LocalYarnConfig) -> dict[str, str]:
    nm = "yarn.nodemanager"
    return {
        f"{nm}.resource.memory-mb": str(config.memory_mb),
        f"{nm}.resource.cpu-vcores": str(config.vcores),
        f"{nm}.pmem-check-enabled": "false",
        f"{nm}.vmem-check-enabled": "false",
        f"{nm}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
        f"{nm}.disk-health-checker.min-free-space-per-disk-mb": "0",
        f"{nm}.recovery.enabled": "false",
        f"{nm}.env-whitelist": f"{ENV_WHITELIST},JDK_JAVA_OPTIONS,{MARK_VARIABLE}",
        "yarn.log-aggregation-enable": "false",
        "yarn.timeline-service.enabled": "false",
    }


def _gpu_site(config: LocalYarnConfig) -> dict[str, str]:
    # Both in yarn-site.xml: from resource-types.xml, 3.2.0's CapacityScheduler takes a maximum of 0.
    most = max(1, *(node.gpus for node in config.nodes))
    return {"yarn.resource-types": GPU, f"yarn.resource-types.{GPU}.maximum-allocation": str(most)}


def _capacity(config: LocalYarnConfig) -> dict[str, str]:
    base = "yarn.scheduler.capacity"
    values = {
        f"{base}.maximum-am-resource-percent": "0.9",
        f"{base}.resource-calculator": DOMINANT_CALCULATOR,
        # A relaxed ask is served at the first heartbeat of any node that fits.
        f"{base}.node-locality-delay": "-1",
        # Else a gang of asks that relax locality would start at one container a heartbeat and node.
        f"{base}.per-node-heartbeat.maximum-offswitch-assignments": str(OFFSWITCH_ASSIGNMENTS),
        f"{base}.rack-locality-additional-delay": "0",
        f"{base}.root.queues": ",".join(config.queues),
    }
    for queue, percent in config.queues.items():
        values |= {
            f"{base}.root.{queue}.capacity": str(percent),
            f"{base}.root.{queue}.maximum-capacity": "100",
            f"{base}.root.{queue}.user-limit-factor": "100",
            f"{base}.root.{queue}.state": "RUNNING",
        }
    return values


def _log4j(config: LocalYarnConfig) -> str:
    """One line an event, UTC, to the millisecond. SchedulerNode says which container is on which node."""
    lines = [
        "log4j.rootLogger=INFO,out",
        "log4j.appender.out=org.apache.log4j.ConsoleAppender",
        "log4j.appender.out.target=System.err",
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout",
        "log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n",
    ]
    placed = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode"
    lines += [f"log4j.logger.{name}=DEBUG" for name in (placed, *config.debug_loggers)]
    return "\n".join(lines) + "\n"


def _write_xml(path: Path, values: Mapping[str, str]) -> None:
    rows = (
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n" for name, value in values.items()
    )
    path.write_text('<?xml version="1.0"?>\n<configuration>\n' + "".join(rows) + "</configuration>\n")
