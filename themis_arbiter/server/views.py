"""What may be asked of the arbiter at work: the views that services show, the admin service over them, a scrape's snapshot."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from themis_arbiter.adapters.grpc.admin import About, AdminService
from themis_arbiter.adapters.grpc.audit import AuditTrail
from themis_arbiter.adapters.grpc.seams import Engine, Views
from themis_arbiter.core import explain, views_of
from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.types import AppId, Epoch, JobId, Millis
from themis_arbiter.core.views import AppView, NodeState
from themis_arbiter.obs.snapshot import Snapshot
from themis_arbiter.ports import Clock
from themis_arbiter.server.config import ServerConfig


def _apps(arbiter: Arbiter, now_ms: Millis, include_ended: bool) -> tuple[AppView, ...]:
    return views_of.listed(arbiter, now_ms, include_ended=include_ended)


def _has_job(arbiter: Arbiter, app_id: AppId, job_id: JobId) -> bool:
    job = arbiter.state.jobs.get(job_id)
    return job is not None and job.report.app_id == app_id and not job.report.is_finished


VIEWS: Final[Views[Arbiter]] = Views(
    apps=_apps,
    leases=views_of.leases,
    nodes=views_of.nodes,
    status=views_of.status,
    explain=explain.explain,
    rounds=views_of.rounds,
    is_stored=views_of.is_stored,
    has_job=_has_job,
)


def no_notes(_app_id: AppId) -> tuple[str, ...]:
    """Nothing is known of an app's tags where no bridge reads them."""
    return ()


def make_admin(
    engine: Engine[Arbiter],
    clock: Clock,
    config: ServerConfig,
    audit: AuditTrail,
    about: About,
    *,
    notes: Callable[[AppId], tuple[str, ...]] = no_notes,
) -> AdminService:
    """The admin service of an arbiter; `audit` has to be among its driver's observers."""
    return AdminService(engine, VIEWS, clock, config.settings, about, notes=notes, audit=audit)


def nothing_led(epoch: Epoch) -> Snapshot:
    """What a scrape of a standby shows: the epoch it knows of, and that it leads nothing."""
    return Snapshot(
        epoch=epoch,
        is_leader=False,
        is_bridge_connected=False,
        apps=(),
        lease_counts={},
        max_rho=0.0,
        gpus_leased=0,
        gpus_free=0,
        gpus_lost=0,
        gpus_oversubscribed=0,
        node_counts={},
        is_paused=False,
        is_observing=False,
    )


def take_snapshot(arbiter: Arbiter, now_ms: Millis) -> Snapshot:
    """What a scrape shows; called between two steps."""
    status, nodes = views_of.status(arbiter, now_ms), views_of.nodes(arbiter)
    return Snapshot(
        epoch=status.epoch,
        is_leader=status.epoch > 0,
        is_bridge_connected=status.is_rm_attached,
        apps=views_of.apps(arbiter, now_ms, include_ended=False),
        lease_counts=Counter(lease.state for lease, _is_next in views_of.leases(arbiter)),
        max_rho=status.max_rho,
        gpus_leased=status.gpus_leased,
        gpus_free=status.gpus_free,
        gpus_lost=sum(node.gpus_total for node in nodes if node.state is NodeState.LOST),
        gpus_oversubscribed=sum(node.gpus_over for node in nodes),
        node_counts=Counter(node.state for node in nodes),
        is_paused=status.is_paused,
        is_observing=status.is_observing,
    )
