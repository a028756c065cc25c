"""Fixtures for tests on a real ZooKeeper. A module asks for them with `pytest_plugins = ["tests.support.zookeeper"]`."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.support.zookeeper_clients import CONNECT_S, Connect, OpenStore
from tests.support.zookeeper_server import ZooKeeper, run_zookeeper
from themis_arbiter.adapters.zookeeper.session import Place, Session
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One server that tests share, each in a folder of its own."""
    with run_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


# Closed whatever becomes of the test: a client that is left looks for its server for ever, beside all later tests.


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    with ExitStack() as stack:
        yield lambda place, **others: stack.enter_context(closing(ZooKeeperStore(place, **others)))


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def make(place: Place) -> Session:
            session = stack.enter_context(closing(Session(place)))
            session.open()
            session.wait_connected(CONNECT_S)
            return session

        yield make
