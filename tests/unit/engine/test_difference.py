"""The first place where two decisions differ."""

import json
from typing import Any

import pytest

from themis_arbiter.engine.difference import NOTHING, SHOWN_CHARS_MAX, Place, first_place


def line(*effects: Any) -> str:
    return json.dumps({"effects": list(effects)})


A = {"type": "WakeAt", "timer": "grid", "at_ms": 1}
DEEP = {"type": "PersistLeases", "batch": {"puts": [{"end_ms": 5}, {"end_ms": 6}], "admin": ""}}


@pytest.mark.parametrize(
    ("recorded", "replayed", "where"),
    [
        (line(A), line({**A, "at_ms": 2}), (1, "WakeAt", "at_ms", "1", "2")),
        (line(A, DEEP), line(A), (2, "PersistLeases", "", json.dumps(DEEP, separators=(",", ":")), NOTHING)),
        (line(), line(A), (1, "WakeAt", "", NOTHING, json.dumps(A, separators=(",", ":")))),
        (
            line(A, DEEP),
            line(A, {**DEEP, "batch": {"puts": [{"end_ms": 5}, {"end_ms": 7}], "admin": ""}}),
            (2, "PersistLeases", "batch.puts[1].end_ms", "6", "7"),
        ),
        (
            line(DEEP),
            line({**DEEP, "batch": {"puts": [{"end_ms": 5}], "admin": ""}}),
            (1, "PersistLeases", "batch.puts[1]", '{"end_ms":6}', NOTHING),
        ),
        (line(DEEP), line({**DEEP, "batch": {**DEEP["batch"], "more": 1}}), (1, "PersistLeases", "batch.more", NOTHING, "1")),  # type: ignore[dict-item]
        (line({"type": "X", "v": 1}), line({"type": "X", "v": 1.0}), (1, "X", "v", "1", "1.0")),
        (line({"type": "X"}), line({"type": "Y"}), (1, "X", "", '{"type":"X"}', '{"type":"Y"}')),
        (line({"type": "X", "v": {}}), line({"type": "X", "v": None}), (1, "X", "v", "{}", "null")),
        ('{"effects":[', line(A), (0, "", "", '{"effects":[', line(A))),
        ('{"effects":[7]}', line(A), (1, "WakeAt", "", "7", json.dumps(A, separators=(",", ":")))),
    ],
)
def test_the_place_names_effect_field_and_both_values(
    recorded: str, replayed: str, where: tuple[int, str, str, str, str]
) -> None:
    effect, kind, path, before, now = where
    assert first_place(recorded, replayed) == Place(effect=effect, kind=kind, path=path, recorded=before, replayed=now)


def test_long_values_are_cut() -> None:
    place = first_place(line({"type": "X", "v": "a" * 9_999}), line({"type": "X", "v": "b" * 9_999}))
    assert len(place.recorded) == len(place.replayed) == SHOWN_CHARS_MAX + 3
    assert place.path == "v"


def test_nesting_without_end_is_shown_as_it_is() -> None:
    deep = '{"effects":[' + "[" * 100_000
    assert first_place(deep, line(A)).effect == 0
