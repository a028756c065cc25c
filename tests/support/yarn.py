"""Fixtures for tests on a real YARN. One cluster a session: a test ends the applications that it starts.

A test module asks for them with `pytest_plugins = ["tests.support.yarn"]`, never by import, which would
make a second cluster.
"""

from collections.abc import Iterator

import pytest

from yarn_bridge.local import HadoopJars, LocalYarn, fetch_jars


def _tell(text: str) -> None:
    print(text, flush=True)


@pytest.fixture(scope="session")
def hadoop_jars() -> HadoopJars:
    """The jars of YARN 3.2.0 and its clients, from the user's cache."""
    return fetch_jars(progress=_tell)


@pytest.fixture(scope="session")
def local_yarn(hadoop_jars: HadoopJars) -> Iterator[LocalYarn]:
    """Plain YARN with the stock CapacityScheduler: nodes of 4, 4, 2 and 2 GPUs on two racks."""
    with LocalYarn(progress=_tell) as yarn:
        yield yarn
