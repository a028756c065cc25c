"""The transition table and the ledger: what cannot be is refused, with the lease's story."""

from dataclasses import fields, replace

import pytest

from themis_arbiter.core.lease import (
    TRANSITIONS,
    Cause,
    IllegalTransition,
    Lease,
    LeaseInput,
    LeaseState,
    state_after,
    with_cause,
    with_state,
    with_times,
)
from themis_arbiter.core.ledger import STORY_STEPS_MAX, Ledger
from themis_arbiter.core.types import CoreError


def lease(number: int = 1, gpu: str = "n1:0", job: str = "j1") -> Lease:
    return Lease(
        lease_id=f"L{number}",
        grant_id="G1",
        gpu=gpu,
        app_id="a1",
        job_id=job,
        epoch=1,
        round_no=1,
        start_ms=0,
        end_ms=100,
    )


def active(ledger: Ledger, one: Lease) -> None:
    ledger.add(one)
    ledger.move([one.lease_id], LeaseInput.PERSISTED, 1, Cause.AUCTION)
    ledger.move([one.lease_id], LeaseInput.USE_SEEN, 2, Cause.STARTED)


def test_what_is_remade_by_hand_leaves_no_field_out() -> None:
    other = {f.name: k + 1 for k, f in enumerate(fields(Lease)) if f.name not in {"end_ms", "state", "cause"}}
    before = Lease(**other, end_ms=100, state=LeaseState.ACTIVE, cause=Cause.AUCTION)  # type: ignore[arg-type]
    assert with_times([before], LeaseState.ACTIVE, None, 200) == [replace(before, end_ms=200)]
    later = replace(before, start_ms=150, end_ms=200, state=LeaseState.PENDING)
    assert with_times([before], LeaseState.PENDING, 150, 200) == [later]
    assert with_state(before, LeaseState.WAITING) == replace(before, state=LeaseState.WAITING)
    drains = replace(before, state=LeaseState.DRAINING, cause=Cause.RECALL)
    assert with_cause(before, LeaseState.DRAINING, Cause.RECALL) == drains


@pytest.mark.parametrize("state", list(LeaseState))
@pytest.mark.parametrize("happened", list(LeaseInput))
def test_every_pair_is_in_the_table_or_raises_and_changes_nothing(state: LeaseState, happened: LeaseInput) -> None:
    before = replace(lease(), state=state)
    if (state, happened) in TRANSITIONS:
        assert state_after(before, happened, 5) is TRANSITIONS[state, happened]
    else:
        with pytest.raises(IllegalTransition, match=f"{happened} at 5 is not possible in state {state}"):
            state_after(before, happened, 5)
        assert before.state is state


def test_an_ended_lease_moves_no_more() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is LeaseState.ENDED]


def test_a_wrong_transition_tells_the_leases_story() -> None:
    ledger = Ledger()
    active(ledger, lease())
    with pytest.raises(IllegalTransition) as caught:
        ledger.move(["L1"], LeaseInput.RELEASE_CONFIRMED, 9, Cause.RELEASED)
    text = str(caught.value)
    assert "L1 of j1 on n1:0: release_confirmed at 9 is not possible in state active" in text
    assert "1: pending --persisted--> granted (auction)" in text
    assert "2: granted --use_seen--> active (started)" in text
    assert [x.state for x in ledger] == [LeaseState.ACTIVE]


def test_a_gpu_takes_one_current_and_one_next_lease_and_no_more() -> None:
    ledger = Ledger()
    with pytest.raises(CoreError, match="needs a current one"):
        ledger.add(lease(1), as_next=True)
    ledger.add(lease(1))
    with pytest.raises(CoreError, match="already leased"):
        ledger.add(lease(2, job="j2"))
    ledger.add(lease(3, job="j3"), as_next=True)
    with pytest.raises(CoreError, match="already leased"):
        ledger.add(lease(4, job="j4"), as_next=True)
    with pytest.raises(CoreError, match="in the ledger already"):
        ledger.add(lease(1, gpu="n1:1"))
    assert [x.lease_id for x in ledger] == ["L1", "L3"]


def test_the_next_lease_takes_over_only_after_the_current_one() -> None:
    ledger = Ledger()
    active(ledger, lease(1))
    ledger.add(lease(2, job="j2"), as_next=True)
    ledger.move(["L2"], LeaseInput.PERSISTED_AS_NEXT, 3, Cause.AUCTION)
    with pytest.raises(CoreError, match="must end before"):
        ledger.promote(["n1:0"], 4, 200)
    ledger.move(["L1"], LeaseInput.DRAIN_REQUESTED, 5, Cause.LEASE_END)
    ledger.move(["L1"], LeaseInput.RELEASE_CONFIRMED, 6, Cause.RELEASED)
    assert ledger.get("L1") is None
    assert ledger.of_job("j1") == ()
    (promoted,) = [x for m in ledger.promote(["n1:0"], 7, 200) for x in m.leases]
    assert (promoted.start_ms, promoted.end_ms, promoted.state) == (7, 200, LeaseState.PENDING)
    assert ledger.current("n1:0") == promoted
    assert ledger.next("n1:0") is None


def test_a_drained_lease_says_why_it_ends() -> None:
    ledger = Ledger()
    active(ledger, lease())
    (moved,) = ledger.move(["L1"], LeaseInput.DRAIN_REQUESTED, 5, Cause.UNWANTED)
    assert [x.cause for x in moved.leases] == [Cause.UNWANTED]


def test_stories_are_bounded() -> None:
    ledger = Ledger()
    active(ledger, lease())
    for at in range(100):
        ledger.move(["L1"], LeaseInput.RENEWED, at, Cause.RENEWAL, end_ms=200 + at)
    assert len(ledger.story("L1")) == STORY_STEPS_MAX


def test_a_lease_must_end_after_its_start() -> None:
    with pytest.raises(CoreError, match="not after its start"):
        replace(lease(), end_ms=0)


def test_what_happens_to_many_happens_to_each_of_them() -> None:
    ledger = Ledger()
    for number in range(1, 4):
        active(ledger, lease(number, gpu=f"n1:{number}", job="j1" if number < 3 else "j2"))
    moved = ledger.move(["L1", "L3"], LeaseInput.DRAIN_REQUESTED, 5, Cause.LEASE_END)
    assert [(m.lease.lease_id, m.state_from, m.lease.state) for one in moved for m in one.singly()] == [
        ("L1", LeaseState.ACTIVE, LeaseState.DRAINING),
        ("L3", LeaseState.ACTIVE, LeaseState.DRAINING),
    ]
    assert [(x.lease_id, x.state) for x in ledger.of_job("j1")] == [("L1", LeaseState.DRAINING), ("L2", LeaseState.ACTIVE)]
    assert (ledger.kept_count("j1"), ledger.kept_count("j2"), ledger.kept_by_app("a1")) == (1, 0, 1)
    assert ledger.draining_places() == {("j1", "n1"), ("j2", "n1")}
    assert ledger.gpus_kept("j1") == ("n1:2",)
    with pytest.raises(IllegalTransition, match="L2"):
        ledger.move(["L1", "L2", "L3"], LeaseInput.RELEASE_CONFIRMED, 6, Cause.RELEASED)
