"""One fault after the other on one cluster, each followed by the checks of evidence.py."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos import evidence
from tests.chaos.faults import Fault, draw, inject
from tests.chaos.rm_log import RmLog
from tests.chaos.stage import NOTICE_MS, POLL_S, Ask, ChaosError, Stage
from tests.chaos.workload import KINDS, Workload
from themis_arbiter.cli.local.samples import CLUSTER
from themis_arbiter.core.lease import LeaseState

READY_S_MAX: Final = 120.0  # until four apps run, before a fault
SETTLE_S_MAX: Final = 60.0
SUBMIT_S_MAX: Final = 120.0  # until an ask's master has started, which is YARN's and the machine's business
ASK_S_MAX: Final = 70.0  # three leases and what a container takes to start
TOLD: Final = (LeaseState.GRANTED, LeaseState.ACTIVE, LeaseState.DRAINING)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one fault did. `settle_s` counts from the moment when everything was back, `ask_s` from then or from when the
    ask's master registered, whichever is later."""

    scenario: str
    number: int
    at_ms: int
    apps_running: int
    gpus_running: int
    settle_s: float
    ask_s: float
    leases_compared: int
    lease_error_ms: int
    told_error_ms: int
    hit_ms: int = 0  # the moment of the fault
    violations: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Campaign:
    """Faults against `stage`. `seed` draws their order and everything about each."""

    def __init__(self, stage: Stage, seed: int, stop_s: float, tell: Tell) -> None:
        self.stage, self.seed, self.stop_s, self.tell = stage, seed, stop_s, tell
        self.work = Workload(stage)
        gpus_of = {stage.yarn.config.host(k): gpus for k, (gpus, _) in enumerate(CLUSTER)}
        self.log = RmLog(stage.yarn.rm_log, gpus_of=gpus_of)
        self.endings = evidence.Endings()
        self._asks = 0

    def plan(self, scenarios: Sequence[str], count: int) -> list[Fault]:
        """All faults, in the seed's order."""
        faults = [draw(scenario, number, self.seed) for scenario in scenarios for number in range(count)]
        random.Random(f"{self.seed}/order").shuffle(faults)
        return faults

    def watched(self) -> set[str]:
        """The applications that nobody may take anything from."""
        return set(self.work.job_ids.values())

    def one(self, fault: Fault) -> Record:
        """A fault from its random moment to its checks. Errors: ChaosError where no fault can be made."""
        self.await_ready()
        time.sleep(fault.delay_s)
        self.log.poll()
        at_ms = now_ms()
        before = self.stage.stored_leases()
        running = self.log.running()
        problems: list[str] = []
        asks: list[Ask] = []
        hit_ms = now_ms()
        back_s = inject(self.stage, fault, self.stop_s, lambda: asks.append(self.ask()))
        back_ms = now_ms() - round((time.monotonic() - back_s) * 1_000)
        settle_s = self._await_settled(back_s, problems)
        ask_s = self.await_ask(asks[0], back_ms, problems)
        kept = evidence.leases_kept(before, self.stage.told_leases() or {}, self.log, self.watched())
        problems += kept.lost
        problems += self.checks()
        return Record(
            scenario=fault.scenario,
            number=fault.number,
            at_ms=at_ms,
            apps_running=len({job for job, _ in running} & self.watched()),
            gpus_running=sum(running.values()),
            settle_s=round(settle_s, 2),
            ask_s=round(ask_s, 2),
            leases_compared=kept.compared,
            lease_error_ms=kept.error_ms,
            told_error_ms=kept.told_error_ms,
            hit_ms=hit_ms,
            violations=tuple(problems),
        )

    def ask(self, *, seconds: int = 1) -> Ask:
        """A new small app that asks for one GPU."""
        self._asks += 1
        return Ask(self.stage, f"ask-{self._asks}", seconds=seconds)

    def checks(self) -> list[str]:
        """What must hold at every moment."""
        self.log.poll()
        found = [f"a container of a valid lease ended: {x}" for x in self.endings.unexplained(self.log, self.work.gangs())]
        found += [f"a GPU is used twice: {x}" for x in evidence.over_used(self.log)]
        found += [f"a GPU is leased twice: {x}" for x in self.log.over_leased]
        found += [f"the plugin failed: {x}" for x in self.log.failures]
        if self.log.mode == "LEASES":
            found += [f"used without a lease: {x}" for x in evidence.used_without_lease(self.log, now_ms())]
        self.log.over_leased.clear()
        self.log.failures.clear()
        return found

    def await_ready(self) -> None:
        """All four apps run on GPUs, and nothing is amiss. Errors: ChaosError."""
        wanted = {self.work.job_ids[kind.name] for kind in KINDS}

        def is_ready() -> bool:
            return wanted <= {job for job, _ in self.log.running()} and not self.unsettled()

        if not self.await_(is_ready, READY_S_MAX):
            missing = sorted(wanted - {job for job, _ in self.log.running()})
            raise ChaosError(f"not ready for a fault after {READY_S_MAX:g} s: without GPUs {missing}; {self.unsettled()}")

    def await_(self, holds: Callable[[], bool], limit_s: float) -> bool:
        """Poll the log until `holds`; whether it came to hold."""
        deadline_s = time.monotonic() + limit_s
        while True:
            self.log.poll()
            if holds():
                return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)

    def _await_settled(self, back_s: float, problems: list[str]) -> float:
        settled = self.await_(lambda: not self.unsettled(), SETTLE_S_MAX)
        if not settled:
            problems.append(f"not settled after {SETTLE_S_MAX:g} s: {self.unsettled()}")
            self.log.give_up_awaited(now_ms())
        return time.monotonic() - back_s

    def unsettled(self) -> str:
        """What the system has yet to do after a fault; empty: nothing.

        The gate works by leases and has what the store has, the ResourceManager knows all containers again, the arbiter
        answers with its bridge on, and every lease in use has its container.
        """
        if self.log.mode != "LEASES":
            return f"the gate is {self.log.mode}"
        if self.log.awaited:
            return f"the ResourceManager has not heard of {sorted(self.log.awaited)}"
        told = self.stage.told_leases()
        if told is None:
            return "no arbiter with a bridge answers"
        stored = {i: x for i, x in self.stage.stored_leases().items() if x.state in TOLD or i in self.log.in_gate}
        if stored.keys() != self.log.in_gate.keys():
            return f"the gate has {sorted(self.log.in_gate)} and the store {sorted(stored)}"
        late = [x.lease_id for x in stored.values() if x.end_ms < now_ms() - NOTICE_MS and x.state is not LeaseState.DRAINING]
        if late:
            return f"past their end: {late}"
        return ""

    def await_ask(self, ask: Ask, back_ms: int, problems: list[str]) -> float:
        """Seconds until the ask's container ran, from when everything was back and its master had registered (negative:
        before everything was back)."""

        def is_there() -> bool:
            return bool(ask.failure) or ask.application_id in self.log.registered

        def is_served() -> bool:
            return self._served_ms(ask) is not None

        if not self.await_(is_there, SUBMIT_S_MAX) or ask.failure:
            problems.append(f"an ask did not come to YARN: {ask.failure or ask.application_id or 'not submitted'}")
            return SUBMIT_S_MAX
        since_ms = max(back_ms, self.log.registered[ask.application_id])
        if not self.await_(is_served, ASK_S_MAX):
            problems.append(f"an ask was not served within {ASK_S_MAX:g} s: {ask.application_id}")
        return ((self._served_ms(ask) or now_ms()) - since_ms) / 1_000

    def _served_ms(self, ask: Ask) -> int | None:
        mine = [c for c in self.log.containers.values() if c.job_id == ask.application_id]
        return min((c.since_ms for c in mine if c.is_running or c.end == "COMPLETED"), default=None)

    def closing(self) -> list[str]:
        """Checks over the whole campaign: the journals of all terms, the masters' attempts, the tasks' own logs."""
        found = [f"a GPU is leased twice: {x}" for x in evidence.leased_twice(self.stage.journals())]
        for kind in KINDS:
            job_id = self.work.job_ids.get(kind.name, "")
            app = self.stage.yarn.client.app(job_id) if job_id else {"state": "ended"}
            if app["state"] != "RUNNING":
                found.append(f"{kind.name} ({job_id}) is {app['state']}: {app.get('diagnostics', '')}")
            elif str(app["amContainerLogs"]).rstrip("/").split("/")[-2].split("_")[-2] != "01":
                found.append(f"{kind.name} ({job_id}) lost its master: {app['amContainerLogs']}")
        for name, counts in self.work.counts().items():
            if counts.done_twice or counts.wrong_values:
                found.append(f"{name}: its tasks' logs do not add up: {counts}")
        return found


def now_ms() -> int:
    """Wall clock, milliseconds; the clock of the ResourceManager's log and of leases."""
    return time.time_ns() // 1_000_000
