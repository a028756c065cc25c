"""What a standby shows of leases and apps: what the leader has stored, marked as such. It decides nothing by it.

The store has no names of queues, no declared work and no rho: those come from the ResourceManager, to whom only the leader
listens. Such fields are null in the documents.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from themis_arbiter.adapters.grpc.gate import lease_message
from themis_arbiter.adapters.zookeeper.reading import Stored
from themis_arbiter.core.events import Meter
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.types import AppId, JobId
from themis_arbiter.core.views import AppState
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.ports import Clock, StoreError
from themis_arbiter.server.documents import Document, UnavailableError, document

UNKNOWN: Final = ("queue", "rho", "rho_forecast", "t_independent_s", "work_gpu_s", "gpus_wanted", "final_status")
UNKNOWN_OF_JOBS: Final = ("gang", "max_gpus")
COUNTED: Final = ("leases_granted", "leases_renewed", "leases_ended")  # since the leader began


class StoredViews:
    """The documents, read through `read` (errors: StoreError).

    `standing_by` says who leads, as told to whoever asks to act; `leads` whether this arbiter does.
    """

    def __init__(
        self,
        read: Callable[[], Stored],
        standing_by: Callable[[], NotLeading],
        leads: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._read, self._standing_by, self._leads, self._clock = read, standing_by, leads, clock

    @property
    def is_standby(self) -> bool:
        """Whether these views are the ones to show."""
        return not self._leads()

    def leases(self, app_id: str) -> Document:
        """As /api/v1/leases of a leader. Errors: UnavailableError."""
        stored = self._stored()
        found = [x for x in stored.state.leases if app_id in {"", x.app_id}]
        ordered = sorted(found, key=lambda x: (x.gpu, x.state is LeaseState.WAITING))
        leases = [document(lease_message(x, x.state is LeaseState.WAITING)) for x in ordered]
        return {"leases": leases, **self._marks(stored)}

    def apps(self, *, include_ended: bool) -> Document:
        """As /api/v1/apps of a leader: apps with leases or accounts. Errors: UnavailableError."""
        stored = self._stored()
        held: dict[AppId, list[Lease]] = {}
        for lease in stored.state.leases:
            if lease.state is not LeaseState.WAITING:
                held.setdefault(lease.app_id, []).append(lease)
        accounts: dict[AppId, list[tuple[JobId, Meter]]] = {}
        for job_id, meter in stored.state.meters:
            if meter.app_id:
                accounts.setdefault(meter.app_id, []).append((job_id, meter))
        apps = [_app(name, held.get(name, []), accounts.get(name, [])) for name in held.keys() | accounts.keys()]
        apps.sort(key=lambda app: (app["arrival_ms"], app["app_id"]))
        return {"apps": [x for x in apps if include_ended or x["state"] != AppState.ENDED], **self._marks(stored)}

    def _stored(self) -> Stored:
        try:
            return self._read()
        except StoreError as error:
            raise UnavailableError(f"{self._standing_by()}; what is stored cannot be read: {error}") from error

    def _marks(self, stored: Stored) -> Document:
        who = self._standing_by()
        return {
            "now_ms": self._clock.now_ms(),
            "is_leader": False,
            "leader_address": who.leader,
            "stored_at_ms": stored.written_ms,
            "note": f"{who}; this is what was stored last",
        }


def _app(app_id: AppId, leases: list[Lease], accounts: list[tuple[JobId, Meter]]) -> Document:
    gpus_of = Counter(x.job_id for x in leases)
    ended = {job_id for job_id, meter in accounts if meter.ended is not None}
    jobs = sorted({*gpus_of, *(job_id for job_id, _ in accounts)})
    message = admin_pb2.AppView(
        app_id=app_id,
        state=AppState.RUNNING if leases else AppState.ENDED if jobs and ended >= set(jobs) else AppState.WAITING,
        arrival_ms=min((meter.arrival_ms for _, meter in accounts), default=0),
        attained_gpu_s=sum(meter.attained for _, meter in accounts) / 1_000,
        gpus_held=len(leases),
        gpus_by_node=Counter(x.node_of_gpu for x in leases),
        jobs=(_job(job_id, gpus_of[job_id], is_over=job_id in ended) for job_id in jobs),
    )
    plain: Document = document(message) | dict.fromkeys((*UNKNOWN, *COUNTED))
    user, slash, _ = app_id.partition("/")  # an app without a tag has no user in its name
    plain["user"] = unquote(user) if slash else None
    plain["jobs"] = [job | dict.fromkeys(UNKNOWN_OF_JOBS) for job in plain["jobs"]]
    return plain


def _job(job_id: JobId, gpus: int, *, is_over: bool) -> admin_pb2.JobView:
    state = AppState.RUNNING if gpus else AppState.ENDED if is_over else AppState.WAITING
    return admin_pb2.JobView(job_id=job_id, gpus_held=gpus, state=state)
