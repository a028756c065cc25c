import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis_arbiter.adapters.grpc.tags import app_id_of, parse_tags
from themis_arbiter.core.types import OnLeaseEnd


def test_every_tag_is_read() -> None:
    tags = parse_tags(
        [
            "themis.app=tune",
            "themis.gang=4",
            "themis.model=vgg16",
            "themis.work-gpu-s=3600",
            "themis.on-lease-end=restart",
            "themis.checkpoint-s=2.5",
            "themis.gpu-speeds=V100=1;k80=.25",
            "somebody-else",
        ]
    )
    assert (tags.app, tags.gang, tags.model, tags.work) == ("tune", 4, "vgg16", 3_600_000.0)
    assert (tags.on_lease_end, tags.checkpoint_ms, tags.is_any, tags.notes) == (OnLeaseEnd.RESTART, 2_500, True, ())
    assert tags.gpu_speeds == (("k80", 0.25), ("v100", 1.0))


def test_tags_compare_case_insensitively() -> None:
    assert parse_tags(["Themis.App=Tune", " THEMIS.ON-LEASE-END=NEVER "]) == parse_tags(
        ["themis.app=tune", "themis.on-lease-end=never"]
    )


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("themis.gang=0", "between 1"),
        ("themis.gang=-1", "not a number"),
        ("themis.gang=1.5", "whole"),
        ("themis.gang=٣", "not a number"),
        ("themis.gang=999999999", "between"),
        ("themis.work-gpu-s=nan", "not a number"),
        ("themis.work-gpu-s=0", "between"),
        ("themis.work-gpu-s=1e9", "not a number"),
        ("themis.on-lease-end=later", "one of checkpoint, restart, never"),
        ("themis.app=", "empty"),
        ("themis.app=a\x00b", "control"),
        ("themis.app=a\udc80", "lone surrogates"),
        ("themis.app=" + "x" * 101, "characters"),
        ("themis.gpu-speeds=v100", "type=speed"),
        ("themis.gpu-speeds=v100=nan", "not a number"),
        ("themis.gpu-speeds=v100=0", "above 0"),
        ("themis.gpu-speeds=v100=1e9", "between"),
        ("themis.gnag=2", "no such tag"),
        ("themis.gang", "no such tag"),
    ],
)
def test_a_bad_tag_is_left_out_with_a_note(tag: str, why: str) -> None:
    tags = parse_tags([tag, "themis.model=ok"])
    assert (tags.app, tags.gang, tags.work, tags.on_lease_end, tags.gpu_speeds) == (None, None, None, None, None)
    assert tags.model == "ok"
    (note,) = tags.notes
    assert why in note
    assert note.isprintable()


def test_of_two_values_for_one_key_neither_counts() -> None:
    tags = parse_tags(["themis.gang=2", "themis.gang=4"])
    assert tags.gang is None
    assert "2 different values" in tags.notes[0]


@given(st.text(max_size=8), st.text(min_size=1, max_size=8), st.text(max_size=8), st.text(min_size=1, max_size=8))
def test_nobody_joins_the_app_of_another_user(user: str, app: str, other: str, other_app: str) -> None:
    if (user, app) != (other, other_app):
        assert app_id_of(user, app, "application_1_1") != app_id_of(other, other_app, "application_1_2")
    assert app_id_of(user, app, "application_1_1") != app_id_of(other, None, "application_1_3")
