"""Fixtures for tests on a real ZooKeeper. A module asks for them with `pytest_plugins = ["tests.support.zookeeper"]`."""

from collections.abc import Iterator

import pytest

from tests.support.zookeeper_server import ZooKeeper, run_zookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One server that tests share, each in a folder of its own."""
    with run_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running
