"""Reading values back: the quick way for flat ones says what the careful way says, of good and of bad input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.core import codec
from themis_arbiter.core.events import Meter
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.types import CoreError

LEASE = Lease(
    lease_id="l",
    grant_id="g",
    gpu="n:0",
    app_id="a",
    job_id="j",
    epoch=1,
    round_no=2,
    start_ms=3,
    end_ms=9,
    state=LeaseState.DRAINING,
    cause=Cause.RECALL,
)
JSON: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-5, 20) | st.floats(0, 9) | st.text(max_size=3) | st.just([]) | st.just("active")
)


def outcome(plain: Any) -> Any:
    try:
        return codec.from_plain(Lease, plain)
    except (CoreError, ValueError) as err:
        return type(err), str(err)


@given(st.dictionaries(st.sampled_from([*codec.to_plain(LEASE), "unknown"]), JSON, max_size=3), st.integers(0, 11))
def test_the_quick_way_says_what_the_careful_way_says(changed: dict[str, Any], left_out: int) -> None:
    plain = {name: value for k, (name, value) in enumerate(codec.to_plain(LEASE).items()) if k != left_out} | changed
    quick = outcome(plain)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec, "_flat", lambda _kind: None)
        assert outcome(plain) == quick


def test_values_come_back() -> None:
    assert codec.from_plain(Lease, codec.to_plain(LEASE)) == LEASE
    meter = Meter(attained=1.0, done=2, metered_ms=3)
    assert codec.from_plain(Meter, codec.to_plain(meter)) == meter
    assert codec._flat(Lease) is not None
    assert codec._flat(Meter) is None
