"""Parts of a decision record are made when they are read, once, and stand where they were put."""

import pytest

from themis_arbiter.core.codec import dumps
from themis_arbiter.core.later import Later, Record


def test_a_part_is_made_when_it_is_read_and_once() -> None:
    asked: list[str] = []

    def make() -> list[int]:
        asked.append("made")
        return [1, 2]

    record = Record({"a": 1, "b": Later(make)}, {"c": 3})
    again = Record(record, {"d": 4})
    assert (list(record), len(record), "b" in record, asked) == (["a", "b", "c"], 3, True, [])
    assert record["b"] is record["b"]
    assert asked == ["made"]
    assert dumps(again) == '{"a":1,"b":[1,2],"c":3,"d":4}'
    assert record == {"a": 1, "b": [1, 2], "c": 3}


def test_of_equal_keys_the_last_value_stands_in_the_first_place() -> None:
    assert dumps(Record({"a": Later(lambda: 1), "b": 2}, {"a": 3})) == '{"a":3,"b":2}'
    with pytest.raises(KeyError):
        Record({"a": 1})["b"]
