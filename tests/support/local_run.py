"""One whole `make run` for every test that looks at what a live run left behind.

A test module asks for it with `pytest_plugins = ["tests.support.local_run"]`, never by import, which would make a second run.
"""

import pytest

from tests.support.runs import LocalRun, run_locally


@pytest.fixture(scope="session")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> LocalRun:
    """The sample apps on a real YARN with plugin, arbiter and bridge."""
    return run_locally(tmp_path_factory.mktemp("local-run"))
