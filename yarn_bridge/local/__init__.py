"""A real YARN on one machine: one ResourceManager and several NodeManagers with declared GPUs, no root needed."""

from yarn_bridge.local.client import ShellJob, YarnClient, YarnRestError
from yarn_bridge.local.cluster import LocalYarn, attach
from yarn_bridge.local.config import DEFAULT_NODES, LocalYarnConfig, NodeSpec
from yarn_bridge.local.jars import HadoopJars, JarFetchError, LocalYarnError, MissingToolError, fetch_jars
from yarn_bridge.local.rmlog import ContainerRun, container_runs

__all__ = [
    "DEFAULT_NODES",
    "ContainerRun",
    "HadoopJars",
    "JarFetchError",
    "LocalYarn",
    "LocalYarnConfig",
    "LocalYarnError",
    "MissingToolError",
    "NodeSpec",
    "ShellJob",
    "YarnClient",
    "YarnRestError",
    "attach",
    "container_runs",
    "fetch_jars",
]
