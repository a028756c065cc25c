"""Large gangs that are owed a first lease: their app's share has paid for it, and they never ran.

A gang of half the cluster or more fits only where many leases end together and nobody else takes their GPUs. An order
that looks at rho alone serves it late: one lease's delay is little beside the fair time of so much work, so it is passed over
until its whole work is due, and what its share has added up to meanwhile is of no use to it. As in deficit round robin, where
a queue sends once its quanta have added up to its next packet, it is served when what it was due comes to its first lease
(docs/adr/0009). So such a gang goes before all others, once: what it was due, of its app's ideal share as an average over its
fair time, less what its app has had, is a lease of its gang, and a lease has passed since. Who has run is no longer owed,
however it goes on.
"""

from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.types import JobId


def owed_a_lease(market: Market) -> tuple[MarketJob, ...]:
    """Large gangs that have never run and are owed their first lease: who has been owed it longest first."""
    large = market.settings.large_gang * market.supply.topology.gpu_count
    if not any(j.gang >= large for app in market.apps for j in app.jobs):
        return ()
    found = [owed for app in market.apps for owed in _owed_in(market, app, large)]
    return tuple(job for _, _, job in sorted(found, key=lambda owed: owed[:2]))


def _owed_in(market: Market, app: MarketApp, large: float) -> list[tuple[float, JobId, MarketJob]]:
    """Those of one app: minus the ms for which it has been owed, its id, the job. What one is owed pays for no other."""
    if app.work <= 0.0:
        return []
    settings = market.settings
    rate = app.work / app.t_independent_ms  # GPUs
    late_ms = settings.owed_leases * settings.lease_ms
    due = rate * (market.now_ms - app.arrival_ms - late_ms) - app.attained
    found = []
    for job in app.in_order:
        if job.has_run or job.has_gpus or job.gang < large:
            continue
        due -= min(job.gang * settings.lease_ms, job.remaining)
        if due < 0:
            break
        found.append((-due / rate, job.job_id, job))
    return found
