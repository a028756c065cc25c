"""What every journal must do: hold each step whole, in order, as the same bytes for the same steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import pytest

from themis_arbiter.adapters.journal import FileJournal, MemoryJournal
from themis_arbiter.core.effects import Effect, PersistLeases, RoundClosed, SyncLeases, WakeAt
from themis_arbiter.core.events import (
    Batch,
    EpochAcquired,
    Event,
    JobReport,
    LeasesPersisted,
    Meter,
    NodeReport,
    RmReported,
    Timer,
    Woke,
)
from themis_arbiter.core.lease import Lease, LeaseState
from themis_arbiter.core.settings import Settings
from themis_arbiter.core.speedup import SlowdownModel
from themis_arbiter.core.types import OnLeaseEnd
from themis_arbiter.engine.journal_format import effects_line, parse_header, parse_steps
from themis_arbiter.ports import Journal

SETTINGS: Final = Settings(
    policy="guard", lease_ms=150_000, slowdowns=SlowdownModel({"vgg": (1.0, 1.5, 2.0, 2.5)}, (1.0, 1.0, 1.0, 1.25))
)
LEASE: Final = Lease(
    lease_id="l1",
    grant_id="g1",
    gpu="n1:0",
    app_id='app-é\n\u2028"\\',
    job_id="j1",
    epoch=2,
    round_no=1,
    start_ms=5,
    end_ms=9,
    state=LeaseState.DRAINING,
)
STEPS: Final[tuple[tuple[Event, tuple[Effect, ...]], ...]] = (
    (EpochAcquired(at_ms=1, epoch=2, leases=(LEASE,), meters=(("j1", Meter(attained=0.1, done=0.2, metered_ms=3)),)), ()),
    (
        RmReported(
            at_ms=2,
            start_id="s",
            nodes=(NodeReport(node="n1", rack="r", gpus=4, memory_free_mb=1, vcores_free=2),),
            jobs=(JobReport(app_id="a", job_id="j1", arrival_ms=0, work=1e9, on_lease_end=OnLeaseEnd.NEVER),),
        ),
        (
            PersistLeases(batch=Batch(batch_no=1, epoch=2, start_id="s", last_round=1, last_serial=1, meters=(("j1", None),))),
            WakeAt(timer=Timer.GRID, at_ms=77),
        ),
    ),
    (
        LeasesPersisted(at_ms=2, batch_no=1),
        (
            SyncLeases(epoch=2, start_id="s", seq=1, leases=(LEASE,), drains=(("l1", 9),)),
            RoundClosed(round_no=1, record={"offered": ["n1:0"], "gap": 0.0, "none": None}),
        ),
    ),
    (Woke(at_ms=77, timer=Timer.GRID), ()),
)


class Kept(Protocol):
    """A journal, and what was kept of it after it was closed."""

    journal: Journal

    def text(self) -> str: ...


class FileKept:
    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{len(list(folder.iterdir()))}.jsonl"
        self.journal: Journal = FileJournal(self._path, SETTINGS)

    def text(self) -> str:
        return self._path.read_bytes().decode()


class MemoryKept:
    def __init__(self, _folder: Path) -> None:
        self._memory = MemoryJournal(SETTINGS)
        self.journal: Journal = self._memory

    def text(self) -> str:
        return self._memory.text()


JOURNALS: Final[dict[str, Callable[[Path], Kept]]] = {"file": FileKept, "memory": MemoryKept}


@pytest.fixture(params=sorted(JOURNALS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Kept]:
    return lambda: JOURNALS[request.param](tmp_path)


def write_all(kept: Kept) -> str:
    for event, effects in STEPS:
        kept.journal.record(event, effects)
    kept.journal.close()
    return kept.text()


def test_steps_come_back_as_they_were(make: Callable[[], Kept]) -> None:
    lines = write_all(make()).split("\n")[:-1]  # not splitlines: names hold other line ends
    assert parse_header(lines[0]) == SETTINGS
    steps = list(parse_steps(line + "\n" for line in lines[1:]))
    assert [s.event for s in steps] == [event for event, _ in STEPS]
    assert [s.effects_line for s in steps] == [effects_line(effects) for _, effects in STEPS]
    assert [s.line_no for s in steps] == [2, 4, 6, 8]


def test_equal_steps_give_equal_bytes(make: Callable[[], Kept]) -> None:
    assert write_all(make()) == write_all(make())


def test_what_was_flushed_can_be_read_while_it_is_written(make: Callable[[], Kept]) -> None:
    kept = make()
    for n, (event, effects) in enumerate(STEPS, start=1):
        kept.journal.record(event, effects)
        kept.journal.flush()
        lines = kept.text().split("\n")[1:-1]
        assert len(list(parse_steps(line + "\n" for line in lines))) == n
    kept.journal.close()


def test_effects_may_come_from_any_iterable(make: Callable[[], Kept]) -> None:
    kept = make()
    event, effects = STEPS[1]
    kept.journal.record(event, (e for e in effects))
    kept.journal.close()
    assert kept.text().split("\n")[2] == effects_line(effects)


def test_a_closed_journal_takes_no_steps(make: Callable[[], Kept]) -> None:
    kept = make()
    kept.journal.close()
    kept.journal.close()
    with pytest.raises(ValueError, match="closed"):
        kept.journal.record(*STEPS[0])
