"""What a standby shows of a store on which nobody has led yet."""

from dataclasses import replace

import pytest

from themis_arbiter.adapters.clock import SystemClock
from themis_arbiter.adapters.zookeeper.reading import Stored
from themis_arbiter.core.events import Meter
from themis_arbiter.engine.loop import NotLeading
from themis_arbiter.ports import StoredState
from themis_arbiter.server.documents import NotFoundError, dumps
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


def test_leases_of_no_app_are_not_found_in_a_leaders_words() -> None:
    account = Meter(attained=1.0, done=1.0, metered_ms=1, app_id="a/waits")
    state = replace(NOTHING, meters=(("j1", account),))
    standing_by = NotLeading("h:1 leads", leader="h:1", epoch=1)
    views = StoredViews(lambda: Stored(state, written_ms=1), lambda: standing_by, lambda: False, SystemClock())
    assert views.leases("a/waits")["leases"] == views.leases("")["leases"] == []
    with pytest.raises(NotFoundError, match="no app 'nope': `themis apps --all` lists those there are"):
        views.leases("nope")
