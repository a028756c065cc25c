"""Whose a place in ZooKeeper is: other arbiters' places must not lie above or below it, and it serves one YARN cluster.

    /serves      the cluster, by the id that its ResourceManagers have (yarn.resourcemanager.cluster-id); made by the first
                 leader to which a bridge says one

Two clusters on one path would be one election with one book: whoever leads would end the other cluster's leases, because the
ResourceManager does not name them. A cluster without an id cannot be told apart from others.
"""

import json
from collections import deque
from typing import Final

from kazoo.exceptions import NodeExistsError, NoNodeError

from themis_arbiter.adapters.zookeeper.segments import FORMAT, READABLE_BY, FormatError, record
from themis_arbiter.adapters.zookeeper.session import Refused, Session

SERVES: Final = "/serves"

EPOCH_NAME: Final = "epoch"  # what every place has that was ever led at
NODES_LOOKED_AT_MAX: Final = 200  # below a new place
CLUSTER_LENGTH_MAX: Final = 256  # of an id; what is longer is cut


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


def cluster_of(session: Session) -> str:
    """The cluster that the place serves, "" where none has said its id. Errors: ZooKeeperError, FormatError."""
    try:
        data, _stat = session.read(SERVES)
    except Refused as err:
        if isinstance(err.cause, NoNodeError):
            return ""
        raise
    try:
        return str(record(data, "the cluster served")["cluster"])
    except KeyError as err:
        raise FormatError("the cluster served cannot be read: there is no name in it") from err


def keep_for(session: Session, cluster: str) -> str:
    """Let the place serve `cluster`, unless it serves one; returns which it serves. Errors: ZooKeeperError, FormatError."""
    known = cluster_of(session)
    if known or not cluster:
        return known
    try:
        session.create(SERVES, json.dumps({"format": FORMAT, "readable_by": READABLE_BY, "cluster": cluster}).encode())
    except Refused as err:
        if not isinstance(err.cause, NodeExistsError):  # another was faster
            raise
    return cluster_of(session)


def forget_cluster(session: Session) -> str:
    """Let the place serve whoever says an id next; returns which it served. Errors: ZooKeeperError, FormatError."""
    known = cluster_of(session)
    session.delete(SERVES)
    return known


def why_another(session: Session, served: str, cluster: str) -> str:
    """Why an arbiter whose bridge is of `cluster` must not lead at a place that serves `served`; "": it may."""
    if not served or not cluster or served == cluster:
        return ""
    text = f"{session.place} serves the YARN cluster {served!r}, and this arbiter's bridge is of {cluster!r}"
    advice = "give each cluster a path of its own in `store`; to let this one have that path, `themis admin reset-cluster`"
    return f"{text}: {advice}"
