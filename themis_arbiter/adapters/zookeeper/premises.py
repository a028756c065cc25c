"""Whose a place in ZooKeeper is: other arbiters' places must not lie above or below it."""

from collections import deque
from typing import Final

from themis_arbiter.adapters.zookeeper.session import Refused, Session

EPOCH_NAME: Final = "epoch"  # what every place has that was ever led at
NODES_LOOKED_AT_MAX: Final = 200  # below a new place


class OccupiedError(Exception):
    """The place may not be used; the message says why and what to do."""


def look_around(session: Session) -> None:
    """For a place where nobody has led yet. Errors: OccupiedError where it lies in another one or has one below it.

    ZooKeeperError.
    """
    place = session.place
    if not place.chroot:
        return
    parts = place.chroot.split("/")[1:]
    for count in range(1, len(parts)):
        above = "/" + "/".join(parts[:count])
        if session.exists_at(f"{above}/{EPOCH_NAME}"):
            raise OccupiedError(f"{place}: lies inside {above}, where other arbiters keep their leases; name a path beside it")
    looked, to_look = 0, deque(["/"])
    while to_look and looked < NODES_LOOKED_AT_MAX:
        path, looked = to_look.popleft(), looked + 1
        if path != "/" and session.exists(f"{path}/{EPOCH_NAME}") is not None:
            inside = f"{place.chroot}{path}"
            raise OccupiedError(
                f"{place}: {inside}, where other arbiters keep their leases, lies inside it; name a path beside it"
            )
        try:
            to_look.extend(f"{path.rstrip('/')}/{name}" for name in session.children(path))
        except Refused:  # not ours to list, or gone
            continue
