"""What arbiters on one store tell each other of how they decide, and what comes of comparing it."""

import json
from pathlib import Path

from themis_arbiter import __version__
from themis_arbiter.adapters.zookeeper.session import REQUEST_BYTES_MAX
from themis_arbiter.server.alike import DECIDING, SHOWN_MAX, VALUE_LENGTH_MAX, differences, told
from themis_arbiter.server.config import BY_KEY, load_config

HOSTILE = "\x1b[31m" + "x" * 5_000


def card(tmp_path: Path, text: str = "") -> dict[str, str]:
    file = tmp_path / "a.toml"
    file.write_text(text, encoding="utf-8")
    return told(load_config(file))


def test_what_decides_is_compared_and_nothing_else_is(tmp_path: Path) -> None:
    plain = card(tmp_path)
    assert json.loads(plain["settings"]).keys() == DECIDING | {"queues and users", "models"}
    assert BY_KEY.keys() > DECIDING
    assert differences(plain, card(tmp_path, 'grpc_address = "127.0.0.1:1"\n[log]\nlevel = "debug"'), "zk1") == ()
    assert differences(plain, {}, "zk1") == (), "nobody told, as where an admin raised the epoch"
    (tmp_path / "m.csv").write_text("model,slot,machine,rack,cluster\nvgg,1,1.2,1.5,2\n", encoding="utf-8")
    for text, key, says in (
        ('lease = "20 s"\nnotice = 3\nrestart_cost = 1', "lease", "lease is 5 min here, 20 s at zk1"),
        ('policy = "fifo"', "policy", "policy is themis here, fifo at zk1"),
        ("recall = false", "recall", "recall is true here, false at zk1"),
        ("[users.u]\nweight = 2", "users", "queues and users is none here, "),
        ('models = "m.csv"', "models", "models is none here, "),
    ):
        found = differences(plain, card(tmp_path, text), "zk1")
        assert [x for x in found if key in x and x.startswith(says)], (text, found)


def test_versions_that_tell_other_things_or_nothing_are_understood(tmp_path: Path) -> None:
    plain = card(tmp_path)
    older = {"name": "h:1", "grpc": "h:1"}
    assert differences(plain, older, "h:1") == (f"version is {__version__} here, an older one at h:1",)
    newer = plain | {"version": "9", "settings": json.dumps(json.loads(plain["settings"]) | {"new": HOSTILE, "lease": None})}
    found = differences(plain, newer, "h:1")
    assert [x.split(" is ")[0] for x in found] == ["version", "lease", "new"]
    assert max(map(len, found)) < 2 * VALUE_LENGTH_MAX
    for settings in ("", "[", "[1]", "{" * 9_999, '{"a":'):
        assert differences(plain, plain | {"settings": settings}, "h:1") == (), settings
    many = differences(plain, plain | {"settings": json.dumps({f"s{n}": "1" for n in range(99)})}, "h:1")
    assert (len(many), many[-1].endswith(" more")) == (SHOWN_MAX + 1, True)


def test_a_card_is_small_however_many_users_there_are(tmp_path: Path) -> None:
    text = "".join(f"[users.u{n}]\nweight = 2\n" for n in range(1_000))
    assert len(json.dumps(card(tmp_path, text))) < 2_000 < REQUEST_BYTES_MAX
