"""What must hold after every step, whatever happened. Checked in tests and simulation; each claim names its culprit."""

from dataclasses import replace

from themis_arbiter.core.lease import Cause, LeaseState
from themis_arbiter.core.market_view import Offered, is_as_seen, look_at_app
from themis_arbiter.core.state import State
from themis_arbiter.core.types import AppId, CoreError, JobId, NodeName


def check(state: State) -> None:
    """Errors: CoreError naming the first claim that fails."""
    _check_leases(state)
    _check_counts(state)
    _check_seen(state)
    _check_gangs(state)
    _check_persistence(state)


def _claim(holds: bool, text: str) -> None:
    if not holds:
        raise CoreError(f"invariant broken: {text}")


def _check_leases(state: State) -> None:
    for lease in state.ledger:
        current, following = state.ledger.current(lease.gpu), state.ledger.next(lease.gpu)
        _claim(lease in (current, following), f"{lease} is in no place of the ledger")
        if lease is following:
            _claim(lease.state in (LeaseState.PENDING, LeaseState.WAITING), f"{lease} is promised, so it cannot be active")
            _claim(current is not None and current.state is LeaseState.DRAINING, f"{lease} waits for a GPU that is not drained")
        else:
            _claim(lease.state is not LeaseState.WAITING, f"{lease} waits for its own GPU")
        if lease.state is LeaseState.DRAINING:
            _claim(lease.lease_id in state.deadlines, f"{lease} drains without a deadline")
        is_new = lease.state in (LeaseState.PENDING, LeaseState.WAITING) and lease.cause is not Cause.ADOPTED
        if is_new and lease.job_id in state.typed:
            usable = state.is_usable(state.jobs[lease.job_id], lease.gpu)
            _claim(usable or lease.gpu not in state.topology.places, f"{lease} is of a type that its job must not have")
        longest = state.settings.lease_ms + state.settings.notice_ms + state.settings.restart_cost_ms
        _claim(lease.end_ms - max(lease.start_ms, state.now_ms) <= longest, f"{lease} has more than the longest lease left")


def _check_counts(state: State) -> None:
    """What is kept beside the facts, for speed, agrees with them."""
    for job_id in state.jobs:
        kept = tuple(sorted(x.gpu for x in state.kept_leases(job_id)))
        _claim(len(kept) == state.ledger.kept_count(job_id), f"{job_id}: kept leases are miscounted")
        _claim(kept == state.ledger.gpus_kept(job_id), f"{job_id}: kept GPUs are not {kept}")
    use: dict[JobId, dict[NodeName, int]] = {}
    for c in state.containers.values():
        if not c.is_am:
            on = use.setdefault(c.job_id, {})
            on[c.node] = on.get(c.node, 0) + c.gpus
    _claim(use == state.usage, f"what runs is miscounted: {state.usage}, not {use}")
    live = {a: set(jobs) for a, jobs in state.live_jobs.items()}
    expected: dict[AppId, set[JobId]] = {}
    for job_id, job in state.jobs.items():
        if not job.report.is_finished:
            expected.setdefault(job.report.app_id, set()).add(job_id)
    _claim(live == expected, "live jobs are miscounted")
    typed = {j for j, job in state.jobs.items() if job.report.gpu_speeds and not job.report.is_finished}
    _claim(typed == state.typed, f"who declares speeds by GPU type is miscounted: {state.typed}, not {typed}")


def _check_seen(state: State) -> None:
    """What would be shown to a policy again is what would be made anew."""
    version, listed = state.listed
    for app_id, _, shown in listed if version == state.version else ():
        known = state.seen_apps.get(app_id)
        is_same = shown is None or (known is not None and is_as_seen(state, known) and known.market_app is shown)
        _claim(is_same, f"something has happened to {app_id} and version {version} is still the state's")
        _claim(shown is None or shown.t_independent_ms == state.t_independent_ms(state.apps[app_id]), f"T of {app_id}")
    for app_id, seen in state.seen_apps.items():
        if is_as_seen(state, seen):
            anew = look_at_app(state, app_id, Offered((), {}), {}, {}, seen.market_app.weight)
            shown = replace(seen.market_app, t_independent_ms=anew.t_independent_ms) if anew is not None else None
            _claim(anew == shown, f"{app_id} is shown as {seen.market_app}, not {anew}")


def _check_gangs(state: State) -> None:
    for job_id, job in state.jobs.items():
        kept = state.kept_leases(job_id)
        # A gang that was adopted in part has until its deadline to become whole.
        if state.is_live(job_id) and kept and job.wanted >= job.report.gang and job_id not in state.gang_deadlines:
            _claim(len(kept) >= job.report.gang, f"{job_id} holds {len(kept)} leases of a gang of {job.report.gang}")


def _check_persistence(state: State) -> None:
    numbers = [p.batch.batch_no for p in state.pending]
    _claim(numbers == sorted(set(numbers)), f"batches out of order: {numbers}")
    for lease_id in state.persisted:
        lease = state.ledger.get(lease_id)
        _claim(lease is not None and lease.state is LeaseState.PENDING, f"{lease_id} is stored and not granted, yet {lease}")
        assert lease is not None
        others = [x for x in state.grant_leases(lease.job_id, lease.grant_id) if x.lease_id not in state.persisted]
        waits = any(x.state in (LeaseState.PENDING, LeaseState.WAITING) for x in others)
        _claim(waits, f"{lease} is stored, waits for nothing and is not granted")
