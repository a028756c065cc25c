"""Policies that are one number per job or app: fifo, las, tiresias, srtf, srsf, strawman (docs/policies.md compares them)."""

from themis_arbiter.core.policies.base import Market, MarketApp, MarketJob
from themis_arbiter.core.policies.order import AppOrderPolicy, JobOrderPolicy, Key
from themis_arbiter.core.policies.placing import best_speed
from themis_arbiter.core.rho import as_held, rho_of, time_left
from themis_arbiter.core.settings import Settings


class FifoPolicy(JobOrderPolicy):
    """First come, first served, by the app's arrival, then the job's; what YARN's FIFO ordering policy does inside a queue.

    Here with backfill and on leases. As the order never changes, who once runs is renewed until it ends.
    """

    order_by = "when its app arrived (ms)"

    def key(self, settings: Settings, app: MarketApp, job: MarketJob) -> Key:
        """Arrivals."""
        return (app.arrival_ms, job.arrival_ms)


class LasPolicy(AppOrderPolicy):
    """Least attained service: the app that has had the fewest GPU-seconds for its weight comes first.

    Nothing has to be declared, so nothing can be gained by lying. Taken per app, as fairness is: an app gains nothing by
    having many jobs. Between grid ends nobody is displaced, so a lease is its quantum.
    """

    order_by = "GPU-ms that its app has had, for its weight"

    def app_key(self, market: Market, app: MarketApp) -> Key:
        """Attained service."""
        return (app.attained / app.weight,)


class TiresiasPolicy(JobOrderPolicy):
    """Tiresias (Gu et al., NSDI 2019), discretised two-dimensional LAS: two queues by GPUs x time, FIFO inside each.

    As in the paper per job, a job falls into the second queue once it has had the setting `first_queue_max`; inside a queue
    the order is that of arrival, which spares the switching that pure LAS does. Differences: no promotion of jobs that
    starve (the paper's knob at infinity), and placement is ours for every model: the paper consolidates only
    models with skewed tensors, ours are told apart by their measured slowdowns.
    """

    order_by = "queue by GPU time (0 or 1), then arrival"

    def key(self, settings: Settings, app: MarketApp, job: MarketJob) -> Key:
        """Queue and arrival."""
        return (float(job.attained >= settings.first_queue_max), job.arrival_ms)


class SrtfPolicy(AppOrderPolicy):
    """Shortest remaining time first, by app: the time it would still take with all that it wants, best placed.

    The Themis paper's baseline of that name; work is what is declared and metered, never an oracle's.
    """

    order_by = "time its app still needs with all that it wants (ms)"

    def app_key(self, market: Market, app: MarketApp) -> Key:
        """Remaining time."""
        return (max(j.remaining / best_speed(market, j, max(j.gang, j.wanted)) for j in app.jobs),)


class SrsfPolicy(AppOrderPolicy):
    """Shortest remaining service first, by app: GPUs x time still needed, which is the serial work left of its jobs.

    The strongest of the simple rules on mean completion time (policy-study.md), and what the default falls back to for
    everything that is not urgent.
    """

    order_by = "work that its app has left (GPU-ms)"

    def app_key(self, market: Market, app: MarketApp) -> Key:
        """Remaining service."""
        return (app.remaining,)


class StrawmanPolicy(AppOrderPolicy):
    """The strawman of the Themis paper (3.1): all GPUs to the app with the worst rho, then the next.

    Rho is what the app would end with if it got nothing of what is on offer (held GPUs counted in), against the ideal fluid
    share; so it does not hang on who happens to hold the GPUs that are on offer.
    """

    order_by = "minus its app's rho"

    def app_key(self, market: Market, app: MarketApp) -> Key:
        """Minus rho: the worst first."""
        return (-rho_of(market, app, time_left(market, app, as_held(market, app))),)
