import json
import logging
from typing import Any

import pytest

from themis_arbiter.gen.themis.v1 import cluster_pb2 as pb
from yarn_bridge import wire
from yarn_bridge.wire import Teller, WireError, check_size, parse, parse_report, to_json

TELLER = Teller(logging.getLogger("test"))


def report(**fields: Any) -> pb.Report:
    return parse_report(json.dumps({"start_id": "s", "seq": 3} | fields).encode(), TELLER)


def test_numbers_may_be_texts_and_unknown_fields_are_ignored() -> None:
    got = report(seq="12", rm_now_ms=9, later={"a": [1]}, nodes=[{"node": "n1", "gpus_total": 4, "new": True}])
    assert (got.seq, got.rm_now_ms, got.nodes[0].gpus_total) == (12, 9, 4)


@pytest.mark.parametrize(
    "bad",
    [
        '{"node": "a\\ud800b"}',
        '{"node": "n", "gpus_total": 4294967296}',
        '{"node": "n", "gpus_total": "many"}',
        '{"node": ["n"]}',
        '"n"',
        "null",
        "{" + '"a":{' * 40 + "}" * 41,
    ],
)
def test_a_bad_entry_is_left_out_alone(bad: str) -> None:
    text = '{"start_id": "s", "nodes": [{"node": "n1"}, %s, {"node": "n2"}], "containers": [{"container_id": "c"}]}'
    got = parse_report((text % bad).encode(), TELLER)
    good = [n.node for n in got.nodes if n.node]
    assert good == ["n1", "n2"]
    assert [c.container_id for c in got.containers] == ["c"]


def test_a_progress_that_is_no_number_costs_only_itself() -> None:
    text = b'{"applications": [{"application_id": "a", "progress": NaN}, {"application_id": "b", "progress": -Infinity}]}'
    assert [(a.application_id, a.progress) for a in parse_report(text, TELLER).applications] == [("a", 0), ("b", 0)]


def test_a_list_that_is_none_is_left_out() -> None:
    assert list(report(nodes={"node": "n"}, containers=[{"container_id": "c"}]).nodes) == []


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{", b"\xff\xfe", b'{"seq": "x"}', b'{"start_id": "\\ud800"}', b"[" * 100_000, b'{"seq": 1e400}']
)
def test_an_answer_without_a_usable_head_is_an_error(answer: bytes) -> None:
    with pytest.raises(WireError) as err:
        parse_report(answer, TELLER)
    assert str(err.value).isascii()
    assert len(str(err.value)) < 300


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "JSON_BYTES_MAX", 10)
    with pytest.raises(WireError, match="at most 10"):
        parse(pb.Hello(), b'{"start_id": "s"}')
    monkeypatch.setattr(wire, "MESSAGE_BYTES_MAX", 10)
    with pytest.raises(WireError, match="at most 10"):
        check_size(pb.Hello(start_id="x" * 20))


def test_what_the_plugin_reads_has_the_original_names() -> None:
    update = pb.LeaseUpdate(epoch=2, start_id="s", is_full=True, drains=[pb.Drain(lease_ids=["l"], kill_in_ms=5)])
    plain = json.loads(to_json(update))
    assert plain == {
        "epoch": "2",
        "start_id": "s",
        "is_full": True,
        "drains": [{"lease_ids": ["l"], "kill_in_ms": "5"}],
    }


def test_a_kind_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    teller = Teller(logging.getLogger("test"), lambda: now[0])
    for _ in range(5):
        teller.tell("a", "first")
    teller.tell("b", "other")
    now[0] = wire.TELL_EVERY_S
    teller.tell("a", "again")
    assert [r.getMessage() for r in caplog.records] == ["first", "other", "again (and 4 times more)"]
