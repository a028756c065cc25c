"""The parts of the local YARN harness that need neither Java nor Maven."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree as ET

import pytest

from yarn_bridge.local import (
    HadoopJars,
    JarFetchError,
    LocalYarnConfig,
    LocalYarnError,
    MissingToolError,
    NodeSpec,
    YarnClient,
    YarnRestError,
    container_runs,
    fetch_jars,
)
from yarn_bridge.local import jars as jars_module
from yarn_bridge.local.config import RmPorts, draw_ports, node_arguments, write_conf
from yarn_bridge.local.pair import gateway_dirs, pair_site, rm_arguments
from yarn_bridge.local.reaper import MARK_VARIABLE, end_marked, marked_pids

PORTS = RmPorts(client=1, scheduler=2, tracker=3, admin=4, web=5)

# Counts its calls, fails as often as told, then writes one jar where Maven would have.
FAKE_MAVEN = """#!/bin/sh
echo call >> {calls}
if [ $(wc -l < {calls}) -le {failures} ]; then echo "[ERROR] connection reset"; exit 1; fi
for word; do case $word in -DoutputDirectory=*) out=${{word#*=}};; esac; done
mkdir -p "$out"; sleep 0.2; echo jar > "$out/hadoop-yarn-server-resourcemanager-3.2.0.jar"
"""


def fake_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, failures: int = 0) -> Path:
    """Puts a java and a mvn on PATH; answers the file with a line for each call of mvn."""
    calls, tools = tmp_path / "calls", tmp_path / "tools"
    tools.mkdir()
    for name, text in (("java", "#!/bin/sh\n"), ("mvn", FAKE_MAVEN.format(calls=calls, failures=failures))):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(jars_module, "RETRY_PAUSE_S", 0)
    return calls


def read_xml(path: Path) -> dict[str, str]:
    return {row.findtext("name", ""): row.findtext("value", "") for row in ET.parse(path).getroot()}  # noqa: S314 (our own file)


def test_jars_are_fetched_once_and_again_when_one_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_tools(tmp_path, monkeypatch)
    first = fetch_jars(tmp_path / "cache")
    assert fetch_jars(tmp_path / "cache") == first
    assert calls.read_text().count("call") == 1
    jar = first.named("hadoop-yarn-server-resourcemanager")
    jar.unlink()
    assert fetch_jars(tmp_path / "cache") == first
    assert jar.exists()
    assert calls.read_text().count("call") == 2


def test_those_who_fetch_at_once_run_maven_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_tools(tmp_path, monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fetch_jars(tmp_path / "cache"), range(4)))
    assert len(set(found)) == 1
    assert calls.read_text().count("call") == 1


def test_a_passing_failure_of_maven_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_tools(tmp_path, monkeypatch, failures=2)
    told: list[str] = []
    fetch_jars(tmp_path / "cache", told.append)
    assert calls.read_text().count("call") == 3
    assert sum("connection reset" in line for line in told) == 2


def test_a_lasting_failure_leaves_nothing_and_says_what_maven_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tools(tmp_path, monkeypatch, failures=99)
    with pytest.raises(JarFetchError, match=r"3 times .*3\.2\.0(.|\n)*connection reset"):
        fetch_jars(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "hadoop-3.2.0").iterdir()] == ["lock"]


@pytest.mark.parametrize(("missing", "package"), [("java", "openjdk-17-jdk-headless"), ("mvn", "maven")])
def test_a_missing_tool_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    fake_tools(tmp_path, monkeypatch)
    (tmp_path / "tools" / missing).unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    with pytest.raises(MissingToolError, match=f"{missing} .*apt install {package}"):
        fetch_jars(tmp_path / "cache")


def test_a_version_is_never_a_path(tmp_path: Path) -> None:
    with pytest.raises(LocalYarnError, match="not a Hadoop version"):
        fetch_jars(tmp_path, version="../3.2.0")


def test_conf_declares_gpus_racks_and_what_the_caller_adds(tmp_path: Path) -> None:
    config = LocalYarnConfig(
        nodes=(NodeSpec(gpus=1, rack="a"), NodeSpec(gpus=8, rack="b")),
        queues={"x": 30, "y": 70},
        yarn_site={"themis.fallback": "closed & <quiet>", "yarn.acl.enable": "true"},
        host_offset=10,
    )
    write_conf(tmp_path, config, ports=PORTS, state_dir=tmp_path / "state", container_classpath="/jars/*")
    site = read_xml(tmp_path / "yarn-site.xml")
    assert site["yarn.resource-types.yarn.io/gpu.maximum-allocation"] == "8"
    assert site["themis.fallback"] == "closed & <quiet>"
    assert site["yarn.acl.enable"] == "true"  # the caller's word is the last
    assert site["yarn.resourcemanager.webapp.address"] == "127.0.0.1:5"
    assert site["yarn.application.classpath"] == f"{tmp_path},/jars/*"
    queues = read_xml(tmp_path / "capacity-scheduler.xml")
    assert queues["yarn.scheduler.capacity.root.queues"] == "x,y"
    assert queues["yarn.scheduler.capacity.root.y.capacity"] == "70"
    assert (tmp_path / "topology.table").read_text() == "127.0.1.11 /a\n127.0.1.12 /b\n"
    arguments = node_arguments(config, 1, tmp_path)
    assert "yarn.nodemanager.hostname=127.0.1.12" in arguments
    assert "yarn.nodemanager.resource-type.yarn.io/gpu=8" in arguments


def test_ports_are_drawn_apart() -> None:
    first = draw_ports()
    assert len({*astuple(first), *astuple(draw_ports([first]))}) == 10


def test_two_resource_managers_differ_in_ports_name_and_gateway(tmp_path: Path) -> None:
    second = RmPorts(client=11, scheduler=12, tracker=13, admin=14, web=15)
    site = pair_site([PORTS, second], "zk:1,zk:2")
    assert site["yarn.resourcemanager.ha.rm-ids"] == "rm,rm2"
    assert site["hadoop.zk.address"] == "zk:1,zk:2"
    addresses = [value for key, value in site.items() if ".rm" in key.removeprefix("yarn.resourcemanager") and ":" in value]
    assert sorted(int(value.partition(":")[2]) for value in addresses) == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]
    folders = gateway_dirs(tmp_path / "gateway", 2)
    assert folders == (tmp_path / "gateway", tmp_path / "gateway2")
    assert gateway_dirs(None, 2) == ()
    assert rm_arguments("rm2", folders[1])[1::2] == ["yarn.resourcemanager.ha.id=rm2", f"themis.gateway.dir={folders[1]}"]


class Web(BaseHTTPRequestHandler):
    """A ResourceManager's: a standby sends the caller elsewhere."""

    status: ClassVar[int]

    def do_GET(self) -> None:
        body = b'{"clusterMetrics": {"activeNodes": 3}}' if self.status == 200 else b"This is standby RM."
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


@contextmanager
def web(status: int) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), type("Its", (Web,), {"status": status}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client_of(tmp_path: Path, *webs: str) -> YarnClient:
    jars = HadoopJars(version="3.2.0", lib_dir=tmp_path)
    return YarnClient(rm_webs=webs, conf_dir=tmp_path, jars=jars, java=tmp_path, env={}, work_dir=tmp_path)


def test_a_client_finds_the_active_resource_manager_past_dead_ones_and_standbys(tmp_path: Path) -> None:
    with web(200) as active, web(307) as standby, web(404) as refusing:
        with web(200) as gone:
            pass
        client = client_of(tmp_path, gone, standby, active)
        assert client.metrics() == {"activeNodes": 3}
        assert client.rm_web == active
        with pytest.raises(YarnRestError) as standing_by:
            client_of(tmp_path, gone, standby).metrics()
        assert standing_by.value.status == 307
        with pytest.raises(YarnRestError) as refused:  # an error of the active one is its answer
            client_of(tmp_path, refusing, active).metrics()
        assert refused.value.status == 404


def test_queues_must_add_up() -> None:
    with pytest.raises(LocalYarnError, match="add up to 100"):
        LocalYarnConfig(queues={"a": 50, "b": 40})


def test_the_rm_log_tells_who_ran_where_and_when() -> None:
    one, two = "container_e02_1_0001_01_000001", "container_1_0001_01_000002"
    assigned = "2026-01-02 03:04:0{s},250 INFO FiCaSchedulerNode: Assigned container {c} of capacity <{r}> on host {h}, x"
    released = "2026-01-02 03:04:09,000 DEBUG SchedulerNode: Released container {c} of capacity <{r}> on host {h}, x"
    gpu = "memory:128, vCores:1, yarn.io/gpu: 2"
    lines = [
        assigned.format(s=5, c=one, r="memory:256, vCores:1", h="127.0.1.4:4242"),
        assigned.format(s=6, c=two, r=gpu, h="127.0.1.2:4243"),
        "2026-01-02 03:04:07,000 INFO ResourceManager: STARTUP_MSG",
        assigned.format(s=8, c=two, r=gpu, h="127.0.1.2:4243"),  # recovered by a restarted ResourceManager
        released.format(c=two, r=gpu, h="127.0.1.2:4243"),
    ]
    first, second = container_runs(lines)
    assert (first.container_id, first.host, first.gpus, first.memory_mb) == (one, "127.0.1.4", 0, 256)
    assert first.end_ms is None
    assert (second.container_id, second.host, second.gpus) == (two, "127.0.1.2", 2)
    assert second.start_ms == 1_767_323_046_250  # 2026-01-02T03:04:06.250Z
    assert second.end_ms == 1_767_323_049_000


def test_the_reaper_ends_what_carries_the_mark_and_nothing_else() -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen(sleep, env={MARK_VARIABLE: "unit-mine"}, start_new_session=True) as mine,
        subprocess.Popen(sleep, env={MARK_VARIABLE: "unit-mine-too"}) as other,
    ):
        try:
            assert marked_pids("unit-mine") == [mine.pid]
            # Nobody reaps it meanwhile; a zombie has no environment, so it is not found any more.
            assert end_marked("unit-mine") == []
            assert mine.wait(10) < 0
            assert other.poll() is None
        finally:
            mine.kill()
            other.kill()
