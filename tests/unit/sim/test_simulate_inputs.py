import csv
from pathlib import Path

import pytest

from themis_arbiter.core.types import Locality
from themis_arbiter.sim.clusterfile import read_cluster
from themis_arbiter.sim.shares import read_shares
from themis_arbiter.sim.trace import TraceError, TraceJob


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    return path


def test_names_count_up_where_none_are_given(tmp_path: Path) -> None:
    text = "racks: [{count: 2, machines: [{count: 2, gpus: 4, gpus_per_slot: 2}, {gpus: 1}]}, "
    text += "{name: x, machines: [{name: big, gpus: 8}]}]"
    topology = read_cluster(write(tmp_path, text))
    assert sorted(m.name for m in topology.machines) == ["big", "r0m0", "r0m1", "r0m2", "r1m0", "r1m1", "r1m2"]
    assert topology.gpu_count == 26
    assert topology.locality(["r0m0:0", "r0m0:1"]) is Locality.SLOT
    assert topology.locality(["r0m0:1", "r0m0:2"]) is Locality.MACHINE
    assert topology.locality(["r0m0:1", "r0m2:0"]) is Locality.RACK
    assert topology.locality(["big:0", "r0m2:0"]) is Locality.CLUSTER


def test_json_is_read_as_well(tmp_path: Path) -> None:
    assert read_cluster(write(tmp_path, '{"racks": [{"machines": [{"gpus": 3}]}]}')).gpu_count == 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1, 2]", "must be a mapping"),
        ("racks: []", "`racks` must be a list"),
        ("racks: [{machines: [{gpus: 0}]}]", "has no GPU"),
        ("racks: [{machines: [{gpus: -1}]}]", "`gpus` must be a whole number"),
        ("racks: [{machines: [{gpus: true}]}]", "`gpus` must be a whole number"),
        ("racks: [{machines: [{gpu: 1}]}]", "unknown gpu"),
        ("racks: [{machines: [{gpus: 1, name: m}, {gpus: 1, name: m}]}]", "two machines are called m"),
        ("racks: [{count: 900000, machines: [{gpus: 9}]}]", "more than"),
        ("racks: [", "neither JSON nor YAML"),
        ("racks: [{machines: [{gpus: 1, gpu_type: v 100}]}]", "machine 0 of rack 0: `gpu_type`: 'v 100' is no name of a type"),
        ("racks: [{machines: [{gpus: 1, gpu_type: v100=1}]}]", "`gpu_type`: 'v100=1' is no name of a type"),
        ("racks: [{machines: [{gpus: 1, gpu_type: [v100]}]}]", r"`gpu_type` must be the name of a type, .*, not \['v100'\]"),
        ("racks: [{machines: [{gpus: 1, gpu_type: .nan}]}]", "`gpu_type` must be the name of a type, .*, not nan"),
        ("racks: [{machines: [{gpus: 1, gpu_type: false}]}]", "`gpu_type` must be the name of a type, .*, not False"),
        ("racks: [{machines: [{gpus: 1, gpu_type: " + "v" * 41 + "}]}]", "has 41 signs, at most 40"),
        ("racks:\n- machines:\n  - gpus: 1\n    gpus: 2", "line 4: key 'gpus' is there twice"),
        ("racks: [{machines: [{gpus: 1, gpu_type: none}]}]", "no type may be called 'none'"),
        ("racks: !!map [1]", "neither JSON nor YAML"),
        ('{"racks": [{"machines": [{"gpus": 1, "gpu_type": "a", "gpu_type": "b"}]}]}', "key 'gpu_type' is there twice"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TraceError, match=what) as caught:
        read_cluster(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_types_of_machines_are_names_or_whole_numbers(tmp_path: Path) -> None:
    text = "racks: [{machines: [{gpus: 1, gpu_type: V100}, {gpus: 2, gpu_type: 3090}, {gpus: 4, gpu_type: ''}, {gpus: 8}]}]"
    assert read_cluster(write(tmp_path, text)).gpus_by_type == (("", 12), ("3090", 2), ("v100", 1))


def test_a_merged_mapping_may_say_a_key_again(tmp_path: Path) -> None:
    text = "racks: [{machines: [&a {gpus: 1, gpu_type: x}, {<<: *a, gpus: 2}]}]"
    assert read_cluster(write(tmp_path, text)).gpus_by_type == (("x", 3),)


def job(app_id: str, user: str, weight: float = 1.0) -> TraceJob:
    return TraceJob(
        app_id=app_id, job_id="j", arrival_s=0, gang=1, max_gpus=1, duration_s=1, user=user, queue="q", weight=weight
    )


APPS = {"a": (job("a", "ann"),), "b": (job("b", "bob", 5.0),), "c": (job("c", "ann"),)}


def test_an_owners_weight_is_split_among_its_apps(tmp_path: Path) -> None:
    assert read_shares(write(tmp_path, "user,weight\nann,3\n"), APPS) == {"a": 1.5, "b": 5.0, "c": 1.5}
    assert read_shares(write(tmp_path, "queue,weight\nq,3\n"), APPS) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert read_shares(write(tmp_path, "weight,app_id\n2,c\n"), APPS) == {"a": 1.0, "b": 5.0, "c": 2.0}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("weight\n1\n", "must name one of"),
        ("user,queue,weight\na,b,1\n", "must name one of"),
        ("user,weight\nann,0\n", "line 2: column weight"),
        ("user,weight\nann,1\nann,2\n", "line 3: column user: there already"),
        ("user,weight\neve,1\n", "has no app in the trace"),
    ],
)
def test_shares_that_cannot_be_used_are_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TraceError, match=what):
        read_shares(write(tmp_path, text), APPS)


def test_a_field_that_is_too_long_is_told_in_one_line(tmp_path: Path) -> None:
    csv.field_size_limit(1_000_000)  # the limit is the process's: what another reader allowed does not count here
    with pytest.raises(TraceError, match="line 1: not CSV: field larger than field limit"):
        read_shares(write(tmp_path, "user,weight\n" + "a" * 200_000 + ",1\n"), APPS)


def test_gpus_come_in_whole_slots(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="5 GPUs are no whole slots of 2"):
        read_cluster(write(tmp_path, "racks: [{machines: [{gpus: 5, gpus_per_slot: 2}]}]\n"))


def test_shares_with_more_fields_than_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2: 3 fields for 2 columns"):
        read_shares(write(tmp_path, "user,weight\nann,3,4\n"), APPS)
