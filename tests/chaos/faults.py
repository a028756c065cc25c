"""What is done to the system, to whom, and how it comes back."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.stage import LEASE_MS, Process, Stage

RESTART_S: Final = (1.0, 2.0)  # as long as a supervisor takes to start again what died
DELAY_S_MAX: Final = LEASE_MS / 1_000 / 3  # a fault comes at a random moment within so long


class Target(StrEnum):
    """Who is hit."""

    BRIDGE = "bridge"
    ARBITER = "arbiter"
    BOTH = "both"
    RM = "rm"
    ZOOKEEPER = "zookeeper"  # killed: one server; stopped: all of them


class How(StrEnum):
    """By what."""

    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; everything about it hangs on the campaign's seed and its own number."""

    target: Target
    how: How
    number: int
    delay_s: float
    restart_s: tuple[float, float]  # of the two processes, or of the ResourceManager (the first)

    @property
    def scenario(self) -> str:
        """Which row of the report it belongs to."""
        return f"{self.target}-{self.how}"


SCENARIOS: Final = tuple(f"{target}-{how}" for target in Target for how in How)
OF_ENSEMBLES: Final = tuple(s for s in SCENARIOS if s.startswith(Target.ZOOKEEPER))


def draw(scenario: str, number: int, seed: int) -> Fault:
    """The fault of that number. Errors: ValueError for a scenario that is none."""
    target, _, how = scenario.partition("-")
    chance = random.Random(f"{seed}/{scenario}/{number}")
    delay_s = chance.uniform(0.0, DELAY_S_MAX)
    restart_s = (chance.uniform(*RESTART_S), chance.uniform(*RESTART_S))
    return Fault(target=Target(target), how=How(how), number=number, delay_s=delay_s, restart_s=restart_s)


def inject(stage: Stage, fault: Fault, stop_s: float, meanwhile: Callable[[], None]) -> float:
    """Do it, call `meanwhile`, and bring back what went; returns the moment when the last part was back (time.monotonic).

    Of several arbiters it is the leader that is hit.
    """
    if fault.target is Target.ZOOKEEPER:
        return _inject_zookeeper(stage, fault, stop_s, meanwhile)
    hit = _processes(stage, fault.target)
    if fault.how is How.STOP:
        for process in hit:
            process.send(signal.SIGSTOP)
        if fault.target is Target.RM:
            stage.yarn.rm.pause()
        meanwhile()
        time.sleep(stop_s)
        if fault.target is Target.RM:
            stage.yarn.rm.resume()
        for process in hit:
            process.send(signal.SIGCONT)
        return time.monotonic()
    for process in hit:
        process.send(signal.SIGKILL)
    if fault.target is Target.RM:
        stage.yarn.kill_rm()
    meanwhile()
    if fault.target is Target.RM:
        time.sleep(fault.restart_s[0])
        stage.yarn.rm.start()
        return time.monotonic()
    _restart(hit, fault.restart_s)
    return time.monotonic()


def _inject_zookeeper(stage: Stage, fault: Fault, stop_s: float, meanwhile: Callable[[], None]) -> float:
    servers = stage.zookeeper_servers()
    if fault.how is How.STOP:
        for server in servers:
            server.pause()
        meanwhile()
        time.sleep(stop_s)
        for server in servers:
            server.resume()
        return time.monotonic()
    server = servers[fault.number % len(servers)]
    server.kill()
    meanwhile()
    time.sleep(fault.restart_s[0])
    server.start()
    return time.monotonic()


def _restart(processes: list[Process], after_s: tuple[float, float]) -> None:
    passed_s = 0.0
    for wait_s, process in sorted(zip(after_s, processes, strict=False), key=lambda each: each[0]):
        time.sleep(wait_s - passed_s)
        passed_s = wait_s
        process.start()


def _processes(stage: Stage, target: Target) -> list[Process]:
    arbiter = [stage.leader()] if target in (Target.ARBITER, Target.BOTH) else []
    return [*arbiter, *([stage.bridge] if target in (Target.BRIDGE, Target.BOTH) else [])]
