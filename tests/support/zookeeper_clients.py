"""What the fixtures of tests/support/zookeeper.py give, for annotations: that module is a plugin and not to be imported."""

from typing import Any, Final, Protocol

from themis_arbiter.adapters.zookeeper.session import Place, Session
from themis_arbiter.adapters.zookeeper.store import ZooKeeperStore

CONNECT_S: Final = 10.0


class OpenStore(Protocol):
    """ZooKeeperStore's constructor."""

    def __call__(self, place: Place, **others: Any) -> ZooKeeperStore: ...


class Connect(Protocol):
    """A session that is connected."""

    def __call__(self, place: Place) -> Session: ...
