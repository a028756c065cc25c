"""A leader that freezes with a grant and a write on their way and wakes when another has led for long: real ZooKeeper and YARN.

The grant is of a GPU that another app runs on by the time it wakes: let through, it would be a second live lease there. Its
bridge has stayed with it, and its store's connection too, so that nothing stands in its way but what is under test.
"""

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.arbiters import SESSION_S, ArbiterProcess, Arbiters
from tests.support.live_yarn import until
from tests.support.small_yarn import SETTLED_S, System, calm_arbiters, end_apps, leases_of, small_yarn, wait_bridge, wait_lease
from tests.support.worst_moment import FROZEN
from yarn_bridge import relay

pytest_plugins = ["tests.support.yarn"]
pytestmark = [pytest.mark.yarn, pytest.mark.zookeeper, pytest.mark.slow, pytest.mark.timeout(300)]

KEPT_S: Final = 300.0  # that the bridge of the frozen arbiter keeps its connection, which answers nothing
SET_WEIGHT: Final = (sys.executable, "-m", "themis_arbiter.cli", "admin", "set-weight", "root/steady", "2", "--yes")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with small_yarn(tmp_path_factory.mktemp("frozen"), host_net=19) as running:
        yield running


@pytest.fixture
def arbiters(system: System, tmp_path: Path) -> Iterator[Arbiters]:
    with calm_arbiters(system.place, tmp_path) as started:
        yield started


def since_it_woke(deeds: Path) -> list[str]:
    lines = deeds.read_text(encoding="utf-8").splitlines()
    return lines[lines.index(FROZEN) + 1 :]


def take_over_gpu(system: System, leader: ArbiterProcess, job_id: str) -> str:
    """The app that ran on one GPU has ended, and another one runs there: that one's id."""
    _, *gpu, _ = wait_lease(leader, job_id)
    system.yarn.client.kill(job_id)
    until(lambda: len(leases_of(leader)) == 1, "its lease is over")
    taking = system.submit("taking")
    _, *same_gpu, _ = wait_lease(leader, taking)
    assert same_gpu == gpu, "the GPU of the grant that is still on its way has gone to another"
    return taking


@pytest.mark.parametrize("how", ["blind", "sighted"])
def test_a_leader_that_froze_before_a_grant_harms_nobody_when_it_wakes(
    system: System,
    arbiters: Arbiters,
    tmp_path: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = dict(relay._OPTIONS) | {"grpc.keepalive_time_ms": int(KEPT_S * 1_000)}
    monkeypatch.setattr(relay, "_OPTIONS", tuple(kept.items()))
    deeds = tmp_path / "deeds"
    arbiters.start("old", program=("tests.support.worst_moment", str(tmp_path), how))
    old = arbiters.wait_leader()
    with ExitStack() as stack:
        stack.enter_context(caplog.at_level(logging.INFO, "yarn_bridge"))
        stack.enter_context(system.pinned_bridge(old))
        wait_bridge(old)
        steady = system.submit("steady")
        wait_lease(old, steady)
        arbiters.start("new")
        new = arbiters.all[-1]
        stack.enter_context(system.bridge_process([new], f"bridge-{how}"))

        (tmp_path / "armed").touch()
        passing = system.submit("passing")
        until(deeds.exists, "it has won a GPU, and its grant is on its way")
        asking = subprocess.Popen([*SET_WEIGHT, "--arbiter", old.grpc_address], stderr=subprocess.PIPE, text=True)
        stack.callback(asking.communicate)
        until(lambda: FROZEN in deeds.read_text(encoding="utf-8"), "a write is on its way too, and it has frozen")
        frozen_s = time.monotonic()
        assert arbiters.wait_leader(but=old) is new
        wait_bridge(new)
        taking = take_over_gpu(system, new, passing)
        leases, runs, epoch = leases_of(new), system.runs(), new.status()["epoch"]

        time.sleep(max(0.0, 2 * SESSION_S - (time.monotonic() - frozen_s)))
        assert since_it_woke(deeds) == []
        old.signal(signal.SIGCONT)
        until(lambda: old.status().get("leader_address") == new.grpc_address, "it stands by", SETTLED_S)
        assert old.status()["is_leader"] is False
        assert "no longer leading" in old.log.read_text(encoding="utf-8")
        done = since_it_woke(deeds)
        refused = [record.getMessage() for record in caplog.records if "refused a lease update" in record.getMessage()]
        if how == "blind":
            text = f"the batch is of epoch {epoch - 1}, the store is at {epoch}"
            assert sorted(done) == [
                f"message of epoch {epoch - 1} with 1 leases",
                f"write of epoch {epoch - 1}: StaleEpochError: {text}",
            ]
            until(lambda: "OLD_EPOCH" in caplog.text, "the plugin's word on the message")
        else:
            assert (done, refused) == ([], [])
        time.sleep(SESSION_S)
        assert since_it_woke(deeds) == done
        assert (new.status()["epoch"], new.leads) == (epoch, True)
        assert leases_of(new) == leases, "the same leases"
        assert system.runs() == runs, "no container has ended, none was started"

        end_apps(system, new, steady, taking)
