"""What a standby shows of leases and apps: what the leader has stored, marked as such. It decides nothing by it.

The store has no names of queues, no declared work and no rho: those come from the ResourceManager, to whom only the leader
listens. Such fields are null in the documents.
"""

from collections.abc import Callable
from typing import Final

from themis_arbiter.adapters.grpc.admin import app_message, no_app
from themis_arbiter.adapters.grpc.gate import lease_message
from themis_arbiter.adapters.zookeeper.reading import Stored
from themis_arbiter.core.events import Meter
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.types import AppId, JobId
from themis_arbiter.core.views import AppState
from themis_arbiter.core.views_of import stored_app
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.ports import Clock, StoreError
from themis_arbiter.server.documents import Document, NotFoundError, UnavailableError, document

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
        """As /api/v1/leases of a leader. Errors: UnavailableError, NotFoundError."""
        stored = self._stored()
        found = [x for x in stored.state.leases if app_id in {"", x.app_id}]
        if app_id and not found and app_id not in {meter.app_id for _, meter in stored.state.meters}:
            raise NotFoundError(no_app(app_id))
        ordered = sorted(found, key=lambda x: (x.gpu, x.state is LeaseState.WAITING))
        leases = [document(lease_message(x, x.state is LeaseState.WAITING)) for x in ordered]
        return {"leases": leases, **self._marks(stored)}

    def apps(self, *, include_ended: bool) -> Document:
        """As /api/v1/apps of a leader: apps with leases or accounts. Errors: UnavailableError."""
        stored = self._stored()
        held: dict[AppId, list[Lease]] = {}
        for lease in stored.state.leases:
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
            "leader_address": who.leader or None,
            "stored_at_ms": stored.written_ms or None,
            "note": f"{who}; this is what was stored last",
        }


def _app(app_id: AppId, leases: list[Lease], accounts: list[tuple[JobId, Meter]]) -> Document:
    plain: Document = document(app_message(stored_app(app_id, leases, accounts))) | dict.fromkeys((*UNKNOWN, *COUNTED))
    plain["user"] = plain["user"] or None  # an app without a tag has no user in its name
    plain["jobs"] = [job | dict.fromkeys(UNKNOWN_OF_JOBS) for job in plain["jobs"]]
    return plain
