"""What goes wrong around the bridge, on the real plugin: stops, ports, tokens, a ResourceManager that hangs in mid-grant."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.live_yarn import Live, command_lines, live, until
from yarn_bridge.local import LocalYarnConfig, NodeSpec, ShellJob

pytestmark = [pytest.mark.yarn, pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG: Final = LocalYarnConfig(nodes=(NodeSpec(gpus=2, rack="rack0"),), host_net=13)
PROCESS_STOP_S: Final = 5.0
RM_STOP_S: Final = 15.0
HUNG_S: Final = 16.0  # longer than the bridge waits for an answer
PY4J_PORTS: Final = (25333, 25334)  # Py4J's own choice where nobody makes one


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with ExitStack() as stack:
        for port in PY4J_PORTS:
            other = stack.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
        # What is not used because the ResourceManager hangs is no no-show.
        yield stack.enter_context(live(tmp_path_factory.mktemp("bridged"), CONFIG, no_show="60 s", gang_wait="60 s"))


def gateway(system: Live) -> dict[str, str | int]:
    return dict(json.loads((system.gateway_dir / "gateway.json").read_text()))


def speak(port: int, said: str) -> str:
    """What the gateway answers before it hangs up, or after a call of its entry point."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(said.encode())
        heard = b""
        try:
            while chunk := connection.recv(4096):
                heard += chunk
                if heard.count(b"\n") >= 2:
                    break
        except ConnectionResetError:
            pass  # it has hung up on what it did not read
        return heard.decode()


def test_only_the_token_opens_the_gateway_and_nobody_is_told_it(system: Live) -> None:
    info = gateway(system)
    port, token = int(info["port"]), str(info["token"])
    assert port not in PY4J_PORTS
    call = "c\nt\ncounters\ne\n"
    assert "!yj" in speak(port, f"A\n{token}\n{call}")
    for wrong in (call, f"A\n\n{call}", f"A\n{token[:-1]}\n{call}", f"A\n{token.lower()}\n{call}", f"A\n{token} \n{call}"):
        assert "!yj" not in speak(port, wrong)
    listening = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [local for local, _, state in listening if state == "0A" and local.endswith(f":{port:04X}")]
    assert ours == [f"0100007F:{port:04X}"], "loopback only"
    logs = "".join(
        p.read_text(errors="replace") for d in (system.run_dir, system.yarn.work_dir / "logs") for p in d.glob("*.log")
    )
    assert "gateway.json" in logs
    assert token not in logs + command_lines()
    assert token not in "".join(p.read_text(errors="replace") for p in (system.run_dir / "journal").glob("*"))


def test_a_hung_resource_manager_places_what_was_granted_once(system: Live) -> None:
    system.ask("admin", "pause", "--yes")
    job = ShellJob(command="exec sleep 600", n_containers=2, tags=("themis.app=once",))
    job_id = system.yarn.client.submit_distributed_shell(job)
    until(lambda: any(j["gpus_wanted"] for j in system.ask("apps")["apps"]), "the arbiter knows the asks")
    system.yarn.rm.pause()
    try:
        system.ask("admin", "resume", "--yes")
        until(lambda: len(system.leases(job_id)) == 2, "both are granted while nobody listens")
        time.sleep(HUNG_S)
    finally:
        system.yarn.rm.resume()
    until(lambda: system.counters()["containers"] == 2, "both are placed")
    until(lambda: system.counters()["mode"] == "LEASES", "the bridge is back")
    time.sleep(3)
    number = job_id.removeprefix("application")
    runs = [run for run in system.yarn.container_runs() if run.gpus and number in run.container_id]
    assert len(runs) == 2, "one set of containers, ever"
    assert all(run.end_ms is None for run in runs)
    assert len(system.leases(job_id)) == 2
    system.yarn.client.kill(job_id)
    until(lambda: (system.leases(), system.counters()["gpus_counted"]) == ([], 0), "the books are empty")


def test_idle_processes_end_soon_when_told(system: Live) -> None:
    assert system.parts["bridge"].terminate(PROCESS_STOP_S) == 0
    assert system.parts["serve"].terminate(PROCESS_STOP_S) == 0
    system.serve()
    system.bridge()
    until(lambda: system.ask("nodes")["nodes"] != [], "they are back")


def test_the_resource_manager_ends_with_a_bridge_attached_and_after_the_arbiter_was_killed(system: Live) -> None:
    for is_arbiter_killed in (False, True):
        if is_arbiter_killed:
            os.kill(system.parts["serve"].process.pid, signal.SIGKILL)
            system.parts["serve"].end()
            time.sleep(1)
        began_s = time.monotonic()
        system.yarn.rm.terminate()
        assert system.yarn.rm.wait(RM_STOP_S), "it hangs in its end"
        print(f"the ResourceManager ended after {time.monotonic() - began_s:.1f} s")
        assert not (system.gateway_dir / "gateway.json").exists()
        system.yarn.rm.start()
        system.yarn.wait_for_nodes(120)
        if not is_arbiter_killed:
            until(lambda: system.counters()["mode"] == "LEASES", "the bridge finds the new one")
