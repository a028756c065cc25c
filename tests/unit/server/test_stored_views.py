"""What a standby shows of a store on which nobody has led yet."""

from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.zookeeper.reading import Stored
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.ports import StoredState
from themis_arbiter.server.documents import dumps
from themis_arbiter.server.page import stored_page
from themis_arbiter.server.stored_views import StoredViews

NOTHING = StoredState(epoch=0, start_id="", leases=(), meters=(), last_round=0, last_serial=0, admin="")


def test_what_is_not_known_is_null_and_not_a_moment_in_1970() -> None:
    standing_by = NotLeading("nobody is known to lead yet", leader="", epoch=0)
    views = StoredViews(lambda: Stored(NOTHING, written_ms=0), lambda: standing_by, lambda: False, SystemClock())
    shown = views.apps(include_ended=True)
    assert (shown["apps"], shown["stored_at_ms"], shown["leader_address"]) == ([], None, None)
    assert '"stored_at_ms": null' in dumps(shown)
    page = stored_page(shown)
    assert ("NOT the leader" in page, " ago" in page) == (True, False)
