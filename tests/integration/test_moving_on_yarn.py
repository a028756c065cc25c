"""A store is moved, backed up, lost and restored, as the guide says, under a container that runs on a real YARN."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.arbiters import ArbiterProcess, Arbiters
from tests.support.live_yarn import until
from tests.support.small_yarn import SETTLED_S, System, calm_arbiters, end_apps, small_yarn, wait_bridge, wait_lease
from tests.support.zookeeper_server import free_ports
from themis_arbiter.adapters.sqlite_store import SqliteStore

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.zookeeper, pytest.mark.slow, pytest.mark.timeout(300)]

EPOCH: Final = 1_000  # of the first store, so that an empty one's epoch is far below what the plugin has seen
FAR: Final = 100

STORED_S: Final = 7.0  # accounts go to the store every 5 s


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with small_yarn(tmp_path, host_net=20) as running:
        yield running


def admin(*words: str, status: int = 0) -> dict[str, Any]:
    """What a verb of `themis admin` says as JSON; {} where it is to refuse."""
    command = [sys.executable, "-m", "themis_arbiter.cli", "admin", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == status, done.stderr
    return dict(json.loads(done.stdout)) if status == 0 else {"error": done.stderr}


def end(arbiters: Arbiters, one: ArbiterProcess) -> None:
    one.signal(signal.SIGTERM)
    assert one.process.wait(10) == 0
    arbiters.forget(one)


def used_by_app(arbiter: ArbiterProcess) -> float:
    """GPU-seconds of the one app."""
    (app,) = arbiter.document("apps")["apps"]
    return float(app["attained_gpu_s"])


def epoch_seen(arbiter: ArbiterProcess) -> int:
    """What its log says that the plugin has listened to; 0: nothing."""
    found = re.findall(r"the plugin has listened to epoch (\d+)", arbiter.log.read_text(encoding="utf-8"))
    return int(found[-1]) if found else 0


def raise_epoch(arbiter: ArbiterProcess, store: str) -> int:
    """As the runbook says, above the number in the log; far above, so that a backup's epoch is too low again."""
    until(lambda: epoch_seen(arbiter) > 0, "the log tells which epoch the plugin has seen", SETTLED_S)
    seen = epoch_seen(arbiter) + FAR
    admin("reset-epoch", "--yes", "--store", store, "--to", str(seen))
    return seen


def test_a_store_is_moved_backed_up_lost_and_restored_under_a_running_container(system: System, tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "file.db")) as file:
        file.raise_epoch(EPOCH)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    moved, lost, restored = (f"{system.place}/{name}" for name in ("moved", "lost", "restored"))
    with calm_arbiters(f"sqlite:{tmp_path}/file.db", tmp_path) as arbiters:
        arbiters.start("file", grpc_address=address)
        first = arbiters.wait_leader()
        with system.bridge_process([first], "bridge"):
            wait_bridge(first)
            steady = system.submit("steady")
            lease, runs = wait_lease(first, steady), system.runs()
            assert len(runs) == 1
            until(lambda: used_by_app(first) > STORED_S, "what it has used is in the store")

            # From SQLite to ZooKeeper.
            end(arbiters, first)
            path = str(tmp_path / "moving")
            admin("export-state", path, "--store", f"sqlite:{tmp_path}/file.db")
            told = admin("import-state", path, "--yes", "--store", moved)
            assert (told["leases"], told["epoch"]) == (1, EPOCH + 2)
            arbiters.start("moved", store=moved, grpc_address=address)
            second = arbiters.wait_leader()
            wait_bridge(second)
            assert wait_lease(second, steady) == lease, "the same lease, with the same end"
            used_s = used_by_app(second)
            assert used_s > 1.0

            # A backup while it leads; nothing is put into a store that somebody uses.
            path = str(tmp_path / "backup")
            assert admin("export-state", path, "--store", moved)["is_in_use"] is True
            assert (
                "an arbiter stands for election there"
                in admin("import-state", path, "--yes", "--store", moved, status=1)["error"]
            )

            # ZooKeeper's state is lost, and there is no backup.
            second.signal(signal.SIGKILL)
            arbiters.forget(second)
            arbiters.start("lost", store=lost, grpc_address=address)
            third = arbiters.all[-1]
            seen = raise_epoch(third, lost)
            assert seen > EPOCH
            until(lambda: third.status().get("epoch", 0) > seen, "it leads above that epoch", SETTLED_S)
            wait_bridge(third)
            adopted = wait_lease(third, steady)
            assert adopted[1:3] == lease[1:3], "what runs is adopted on its GPU"
            end(arbiters, third)

            # The same, with the backup.
            assert admin("import-state", path, "--yes", "--store", restored)["epoch"] < seen
            arbiters.start("restored", store=restored, grpc_address=address)
            fourth = arbiters.all[-1]
            seen = raise_epoch(fourth, restored)
            until(lambda: fourth.status().get("epoch", 0) > seen, "it leads above that epoch", SETTLED_S)
            wait_bridge(fourth)
            assert wait_lease(fourth, steady) == lease, "the lease of the backup"
            assert used_by_app(fourth) >= used_s, "with what the app had used"
            assert system.runs() == runs, "no container has ended, none was started"
            end_apps(system, fourth, steady)
