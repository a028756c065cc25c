"""Values copied field by field are what the constructor would have made."""

from dataclasses import replace

import pytest

from themis_arbiter.core.effects import LeaseMoved
from themis_arbiter.core.events import Meter
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.value import changed, made

LEASE = Lease(lease_id="L1", grant_id="G1", gpu="n0:0", app_id="a", job_id="j", epoch=1, round_no=2, start_ms=3, end_ms=4)


def test_a_changed_value_has_all_other_fields_of_the_one_before() -> None:
    again = changed(Lease, "end_ms", "state")
    assert again(LEASE, 9, LeaseState.ACTIVE) == replace(LEASE, end_ms=9, state=LeaseState.ACTIVE)
    assert LEASE.end_ms == 4
    assert hash(again(LEASE, LEASE.end_ms, LEASE.state)) == hash(LEASE)


def test_a_made_value_is_the_constructors() -> None:
    moved = LeaseMoved(lease=LEASE, state_from=None, cause=Cause.RENEWAL)
    assert made(LeaseMoved)(LEASE, None, Cause.RENEWAL) == moved
    with pytest.raises(TypeError):
        made(Meter)(1.0, 2.0)


def test_only_fields_can_change() -> None:
    with pytest.raises(AssertionError, match="Lease has no"):
        changed(Lease, "end")
