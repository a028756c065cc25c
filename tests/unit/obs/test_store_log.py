"""A store that takes no writes is told of, once in a while, and when it does again."""

import logging

import pytest

from themis_arbiter.core.events import LeasesPersisted, StoreFailed
from themis_arbiter.obs.store_log import StoreLog


def test_failures_are_logged_once_in_a_while_and_their_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = StoreLog(logging.getLogger("t"), every_s=3600.0)
    log.observe(LeasesPersisted(at_ms=0, batch_no=1), ())
    assert caplog.records == []
    for k in range(5):
        log.observe(StoreFailed(at_ms=1_000 + 1_000 * k, batch_no=2, reason="StoreError: disk full"), ())
    (told,) = caplog.records
    assert told.levelno == logging.ERROR
    assert "takes no writes" in told.getMessage()
    assert told.fields["reason"] == "StoreError: disk full"  # type: ignore[attr-defined]
    log.observe(LeasesPersisted(at_ms=9_000, batch_no=2), ())
    log.observe(LeasesPersisted(at_ms=9_500, batch_no=3), ())
    _, again = caplog.records
    assert "takes writes again" in again.getMessage()
    assert again.fields["after_s"] == 8.0  # type: ignore[attr-defined]


def test_a_failure_that_lasts_is_told_of_again(caplog: pytest.LogCaptureFixture) -> None:
    log = StoreLog(logging.getLogger("t"), every_s=0.0)
    for k in range(3):
        log.observe(StoreFailed(at_ms=60_000 * k, batch_no=2, reason="x"), ())
    assert [r.fields["for_s"] for r in caplog.records] == [0.0, 60.0, 120.0]  # type: ignore[attr-defined]
