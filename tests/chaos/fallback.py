"""Nobody leads for longer than the plugin waits: it falls back at its time, places as plain YARN does, and is adopted after."""

import signal
import time
from typing import Final

from tests.chaos import evidence
from tests.chaos.campaign import READY_S_MAX, Campaign, Record, now_ms
from tests.chaos.stage import ChaosError
from tests.chaos.workload import SPARE

SCENARIO: Final = "fall-back"
AFTER_MS: Final = 20_000
# The plugin looks each second; the last message may be as old as the pause between two signs of life.
LATE_MS_MAX: Final = 3_000
EARLY_MS_MAX: Final = 12_000
PLACED_S_MAX: Final = 40.0
ADOPTED_S_MAX: Final = 60.0
ASK_SECONDS: Final = 90  # it has to be there still when it is to be adopted
RUN_ON_S: Final = 4.0


def prepare(campaign: Campaign, after_ms: int = AFTER_MS) -> None:
    """Restart the ResourceManager with another time to fall back after."""
    campaign.stage.set_fallback(after_ms)
    campaign.stage.yarn.restart_rm()
    if not campaign.await_(lambda: not campaign.unsettled(), READY_S_MAX):
        raise ChaosError(f"after a restart of the ResourceManager: {campaign.unsettled()}")


def one(campaign: Campaign, number: int) -> Record:
    """The arbiter and the bridge die, an app ends, another one asks; nothing of it may wait for them past AFTER_MS."""
    campaign.await_ready()
    stage, log, problems = campaign.stage, campaign.log, list[str]()
    before, running, at_ms = stage.stored_leases(), log.running(), now_ms()
    apps_running = len({job for job, _ in running} & campaign.watched())
    for process in (stage.bridge, stage.arbiter):
        process.send(signal.SIGKILL)
    ended = campaign.work.kill(SPARE)
    ask = campaign.ask(seconds=ASK_SECONDS)
    notes: list[str] = []
    falls = len(log.fallbacks)
    if not campaign.await_(lambda: len(log.fallbacks) > falls, AFTER_MS / 1_000 + 15.0):
        problems.append(f"no fall-back {now_ms() - at_ms} ms after the last message")
        fell_ms = now_ms()
    else:
        fell_ms, mode, silent_ms = log.fallbacks[-1]
        problems += _times(mode, silent_ms, fell_ms - at_ms)
        notes.append(f"{mode} {fell_ms - at_ms} ms after the kill, after {silent_ms} ms of silence; {AFTER_MS} ms are set")
    started = [c for c in log.containers.values() if c.since_ms > at_ms + 1_000]
    watched = campaign.watched()
    problems += [
        f"{c.container_id} of {c.job_id} was let in {c.since_ms - fell_ms} ms before the fall-back"
        for c in started
        if c.since_ms < fell_ms and not (c.job_id in watched and _is_covered(campaign, c.job_id, c.node))
    ]
    campaign.await_(lambda: _has_placed(campaign, ask.application_id), PLACED_S_MAX)
    if not _has_placed(campaign, ask.application_id):
        problems.append("the ask was not placed though the plugin had fallen back")
    placed_s = (now_ms() - fell_ms) / 1_000
    time.sleep(RUN_ON_S)
    back_s = time.monotonic()
    stage.arbiter.start()
    stage.bridge.start()
    if not campaign.await_(lambda: _is_adopted(campaign), ADOPTED_S_MAX):
        still = campaign.unsettled() or evidence.adopted(stage.stored_leases(), log)[1]
        problems.append(f"not adopted after {ADOPTED_S_MAX:g} s: {still}")
    settle_s = time.monotonic() - back_s
    adopted, wrong = evidence.adopted(stage.stored_leases(), log)
    problems += wrong
    if not any(x.job_id == ask.application_id for x in adopted):
        problems.append("what was placed without a lease was not adopted under one")
    kept = evidence.leases_kept(before, stage.told_leases() or {}, log, watched)
    problems += [*kept.lost, *campaign.checks()]
    stage.yarn.client.kill(ask.application_id)
    campaign.work.submit(SPARE)
    notes.append(f"{ended} had ended; the ask ran {placed_s:.1f} s after the fall-back; {len(adopted)} leases adopted")
    return Record(
        scenario=SCENARIO,
        number=number,
        at_ms=at_ms,
        apps_running=apps_running,
        gpus_running=sum(running.values()),
        settle_s=round(settle_s, 2),
        ask_s=round(placed_s, 2),
        leases_compared=kept.compared,
        lease_error_ms=kept.error_ms,
        told_error_ms=kept.told_error_ms,
        violations=tuple(problems),
        notes=tuple(notes),
    )


def _times(mode: str, silent_ms: int, after_kill_ms: int) -> list[str]:
    found = []
    if mode != "PASS_THROUGH":
        found.append(f"it fell back to {mode}")
    if not AFTER_MS <= silent_ms <= AFTER_MS + LATE_MS_MAX:
        found.append(f"it fell back after {silent_ms} ms of silence, {AFTER_MS} are set")
    if not AFTER_MS - EARLY_MS_MAX <= after_kill_ms <= AFTER_MS + LATE_MS_MAX:
        found.append(f"it fell back {after_kill_ms} ms after the bridge died, {AFTER_MS} are set")
    return found


def _is_covered(campaign: Campaign, job_id: str, node: str) -> bool:
    """Whether the gate has a lease for each container of the application there."""
    leased = sum(x.gpus for x in campaign.log.in_gate.values() if (x.job_id, x.node) == (job_id, node))
    used = sum(c.gpus for c in campaign.log.live().values() if (c.job_id, c.node) == (job_id, node))
    return used <= leased


def _has_placed(campaign: Campaign, application_id: str) -> bool:
    return any(c.job_id == application_id and c.is_running for c in campaign.log.containers.values())


def _is_adopted(campaign: Campaign) -> bool:
    return not campaign.unsettled() and not evidence.adopted(campaign.stage.stored_leases(), campaign.log)[1]
