"""What is told of a ZooKeeper that nobody reaches; tests/integration has those that come back."""

import time
from collections import Counter
from contextlib import closing

import pytest

from tests.support.zookeeper_server import eventually, free_ports
from themis_arbiter.adapters.zookeeper import elector as elector_module
from themis_arbiter.adapters.zookeeper.elector import ZooKeeperElector
from themis_arbiter.adapters.zookeeper.session import Place, Session


def test_an_arbiter_that_finds_no_zookeeper_says_so_once_and_names_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(elector_module, "PATIENCE_MS", 300)
    hosts = f"127.0.0.1:{free_ports(1)[0]}"
    elector = ZooKeeperElector(Place(hosts=hosts, chroot="/x"), {}, on_lead=lambda _: None, on_stand_down=lambda _: None)
    told = f"this arbiter does not reach ZooKeeper at {hosts}; it goes on trying"
    elector.start()
    try:
        assert told not in caplog.text
        eventually(lambda: told in caplog.text, 10.0, "it is told")
        time.sleep(1.5)  # several of kazoo's tries
    finally:
        elector.stop()
    assert caplog.text.count("this arbiter does not reach ZooKeeper") == 1
    repeated = Counter(record.getMessage() for record in caplog.records)
    assert f"Connecting to 127.0.0.1({hosts.replace(':', '):')}, use_ssl: False" in repeated
    assert set(repeated.values()) == {1}, repeated


def test_lines_of_other_tries_and_of_other_things_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    first, second = (f"Connection dropped: {time.monotonic_ns()} {n}" for n in range(2))
    with closing(Session(Place(hosts="127.0.0.1:1"))) as session:
        kazoo = session._client.logger
        for text in (first, second, first, "lost", "lost"):
            kazoo.warning(text)
    assert [record.getMessage() for record in caplog.records] == [first, second, "lost", "lost"]
