"""For how long nobody led, by the journals of several arbiters."""

import json
from pathlib import Path

from tests.chaos.campaign import Record
from tests.chaos.ensemble import leaderless
from tests.chaos.report import Facts, write
from tests.support.bench import NODES
from themis_arbiter.core.events import EpochAcquired, RmReported
from themis_arbiter.core.settings import Settings
from themis_arbiter.engine.journal_format import effects_line, event_line, header_line


def journal(path: Path, epoch: int, began_ms: int) -> Path:
    lines = [header_line(Settings())]
    report = RmReported(at_ms=began_ms + 10, start_id="s1", is_full=True, nodes=NODES)
    for event in (EpochAcquired(at_ms=began_ms, epoch=epoch), report):
        lines += [event_line(event), effects_line(())]
    path.write_text("\n".join([*lines, ""]))
    return path


def record(scenario: str, number: int, hit_ms: int) -> Record:
    return Record(
        scenario=scenario,
        number=number,
        at_ms=hit_ms - 50,
        apps_running=4,
        gpus_running=12,
        settle_s=1.0,
        ask_s=2.0,
        leases_compared=12,
        lease_error_ms=0,
        told_error_ms=0,
        violations=(),
        hit_ms=hit_ms,
    )


def test_nobody_led_from_the_fault_to_the_next_term(tmp_path: Path) -> None:
    terms_ms = (1_000, 102_200, 302_900, 512_500)
    journals = [journal(tmp_path / f"{epoch}.journal", epoch, at_ms) for epoch, at_ms in enumerate(terms_ms, start=1)]
    records = [
        record("arbiter-kill", 0, 100_000),
        record("arbiter-stop", 0, 300_000),
        record("arbiter-stop", 1, 400_000),  # it was back before its session was over
        record("zookeeper-kill", 0, 510_000),
    ]
    found = leaderless(records, journals)
    assert found == {"arbiter-kill": [2_200], "arbiter-stop": [2_900]}
    facts = Facts(seed=1, stop_s=5.0, wall_s=60.0, run_dir=tmp_path)
    text = write(facts, records, [], found, 2_000)
    line = "arbiter-kill: until another led 2.2 s (1.10) in the median, 2.2 s (1.10) at most, of 1 (in sessions of 2000 ms)"
    assert line in text.splitlines()
    assert json.loads((tmp_path / "chaos.json").read_text())["leaderless_ms"] == found
