"""Whose share an app draws on: its own, or a part of its user's or its queue's (mechanism.md, section 5, "app").

Where every app counts for itself, an owner who splits an app in ten gains tenfold. So owners share first, and each owner's
live apps share what the owner has, by their own weights.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from themis_arbiter.core.settings import Settings, ShareBy
from themis_arbiter.core.types import AppId
from themis_arbiter.core.workload import App

if TYPE_CHECKING:
    from themis_arbiter.core.state import State

Owners = tuple[tuple[str, float], ...]
"""From the outermost in: each owner's name and its weight among its siblings."""

WEIGHT_MIN: Final = 1e-6  # of an app's part of its owner's share: policies divide by it


def owners_of(settings: Settings, app: App) -> Owners:
    """Who shares before the app does; nobody where each app counts for itself."""
    rule = settings.queues.get(app.queue)
    of_queue = (app.queue, 1.0 if rule is None else rule.weight)
    of_user = (app.user, settings.users.get(app.user, 1.0))
    match settings.share_by:
        case ShareBy.APP:
            return ()
        case ShareBy.USER:
            return (of_user,)
        case ShareBy.QUEUE:
            return (of_queue,)
        case ShareBy.QUEUE_USER:
            return (of_queue, of_user)


def counted_weights(state: "State", among: Iterable[AppId] | None = None) -> Mapping[AppId, float]:
    """What each live app (or each of `among`) counts beside the others: its weight, or its part of its owners' by all weights.

    An owner's weight is not passed on to others where its apps cannot use it all: only the fluid share does that.
    """
    apps = [state.apps[app_id] for app_id in (state.live_jobs if among is None else among)]
    if state.settings.share_by is ShareBy.APP:
        return {app.app_id: app.weight for app in apps}
    members: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
    paths = {}
    for app in apps:
        owners = owners_of(state.settings, app)
        path = paths[app.app_id] = (*owners, (app.app_id, app.weight))
        names = tuple(name for name, _ in path)
        for depth, (_, weight) in enumerate(path):
            members.setdefault(names[:depth], {})[names[: depth + 1]] = weight
    whole = {names: sum(weights.values()) for names, weights in members.items()}
    counted = {}
    for app_id, path in paths.items():
        names = tuple(name for name, _ in path)
        part = path[0][1]
        for depth, (_, weight) in enumerate(path[1:], start=1):
            part *= weight / whole[names[:depth]]
        counted[app_id] = max(WEIGHT_MIN, part)
    return counted
