"""Two ResourceManagers, of which one is active: what makes a pair of them, with YARN's own automatic failover on a ZooKeeper.

Each has ports and a log of its own, and a folder of its own for the gateway, which only the active one opens. The state of
applications is in ZooKeeper too, so the one that takes over recovers them, and NodeManagers and masters find it by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from yarn_bridge.local.config import STORE_PACKAGE, RmPorts
from yarn_bridge.local.jars import JarSet

RM_NAMES: Final = ("rm", "rm2")  # of their daemons; the first is the only one where there is no ZooKeeper
CLUSTER_ID: Final = "themis-local"
SESSION_MS: Final = 4_000  # after so long without a sign of life the active one is succeeded
CLIENT_JARS: Final = JarSet(
    name="ZooKeeper-client",
    version="3.5.10",
    pom=Path(__file__).with_name("zookeeper-client-jars.pom.xml"),
    proof="zookeeper-jute-*.jar",
    size_mb=2,
)


def pair_site(ports: Sequence[RmPorts], zookeeper: str) -> dict[str, str]:
    """What yarn-site.xml has beside what one ResourceManager needs. `zookeeper` names the servers, HOST:PORT by commas."""
    rm = "yarn.resourcemanager"
    site = {
        f"{rm}.ha.enabled": "true",
        f"{rm}.ha.automatic-failover.enabled": "true",
        f"{rm}.ha.automatic-failover.embedded": "true",
        f"{rm}.ha.rm-ids": ",".join(RM_NAMES),
        f"{rm}.cluster-id": CLUSTER_ID,
        f"{rm}.store.class": f"{STORE_PACKAGE}.ZKRMStateStore",
        "hadoop.zk.address": zookeeper,
        "hadoop.zk.timeout-ms": str(SESSION_MS),
    }
    for name, its in zip(RM_NAMES, ports, strict=True):
        site |= {
            f"{rm}.hostname.{name}": "127.0.0.1",
            f"{rm}.address.{name}": f"127.0.0.1:{its.client}",
            f"{rm}.scheduler.address.{name}": f"127.0.0.1:{its.scheduler}",
            f"{rm}.resource-tracker.address.{name}": f"127.0.0.1:{its.tracker}",
            f"{rm}.admin.address.{name}": f"127.0.0.1:{its.admin}",
            f"{rm}.webapp.address.{name}": f"127.0.0.1:{its.web}",
        }
    return site


def rm_arguments(name: str, gateway_dir: Path | None) -> list[str]:
    """The `-D` pairs that tell one of the two from the other."""
    values = {"yarn.resourcemanager.ha.id": name} | ({"themis.gateway.dir": str(gateway_dir)} if gateway_dir else {})
    return [argument for key, value in values.items() for argument in ("-D", f"{key}={value}")]


def gateway_dirs(first: Path | None, count: int) -> tuple[Path, ...]:
    """Gateway folders of `count` ResourceManagers, beside each other; none without the plugin."""
    return () if first is None else (first, *(first.with_name(f"{first.name}{k}") for k in range(2, count + 1)))
