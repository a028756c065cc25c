"""Equal inputs give equal journals, byte for byte: again, under other hash seeds, and on other numbers of processes."""

import csv
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from themis_arbiter.core.machine import Arbiter
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.engine.replay import replay_with
from themis_arbiter.sim.sweep import parse_axis, plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

POLICY_NAMES: Final = sorted(POLICIES)
JOURNAL: Final = "arbiter.journal"
GENERATE: Final = ["--seed", "7", "--apps", "6", "--gpus", "12", "--load", "1.1", "--burst-gap", "40"]
MIXES: Final = ["--styles", "parallel=0.5,halving=0.5", "--gangs", "1=0.4,2=0.3,4=0.3"]
MODELS: Final = "model,slot,machine,rack,cluster\nvgg,1,1.1,1.5,2\nresnet,1,1,1.05,1.1\n"
CLUSTER: Final = """racks:
- {machines: [{count: 2, gpus: 4, gpus_per_slot: 2}]}
- {machines: [{count: 2, gpus: 2}]}
"""
ROWS_MAX: Final = 40  # jobs: a dozen days of virtual time, some seconds of ours for all policies


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with everything in it: models, growth, kinds of lease ends, curves, owners; a cluster and a models file."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "m.csv").write_text(MODELS, encoding="utf-8")
    (folder / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    themis(folder, "0", "trace", "generate", "all.csv", *GENERATE, *MIXES)
    with (folder / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:ROWS_MAX]
    first = min(float(row["arrival_s"]) for row in rows)
    kinds = ("checkpoint", "checkpoint", "restart", "never")
    for k, row in enumerate(rows):
        row |= {
            "arrival_s": f"{(float(row['arrival_s']) - first) / 200:.3f}",
            "duration_s": f"{float(row['duration_s']) / 10:.3f}",
        }
        row |= {"stop_after_s": "", "max_gpus": str(int(row["n_gpus"]) * (1 + k % 2)), "model": ("vgg", "resnet", "")[k % 3]}
        row |= {"on_lease_end": kinds[k % 4], "user": f"u{k % 3}", "weight": "1"}
        row |= {"loss_curve": ("", "2;20;0.5")[k % 2]}
    with (folder / "t.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def themis(folder: Path, hash_seed: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "themis_arbiter.cli", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]


FLAGS: Final = [
    "--trace",
    "t.csv",
    "--cluster",
    "c.yaml",
    "--models",
    "m.csv",
    "--restart-cost",
    "40",
    "--estimate-error",
    "0.5",
    "--journal",
    "--no-report",
]


def compared(folder: Path, out: str, hash_seed: str, jobs: str) -> dict[str, str]:
    """Digests of what all policies wrote, by file."""
    themis(folder, hash_seed, "compare", *FLAGS, "--policy", ",".join(POLICY_NAMES), "--jobs", jobs, "--out", out)
    return digests(folder / out)


def digests(folder: Path) -> dict[str, str]:
    files = [p for p in folder.rglob("*") if p.suffix in {".journal", ".csv", ".jsonl"}]
    return {str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest() for p in sorted(files)}


@pytest.fixture(scope="module")
def reference(inputs: Path) -> dict[str, str]:
    return compared(inputs, "reference", "0", "1")


@pytest.mark.parametrize(("hash_seed", "jobs"), [("0", "1"), ("1", "2"), ("4711", "2")])
def test_every_policys_journal_is_the_same_again(inputs: Path, reference: dict[str, str], hash_seed: str, jobs: str) -> None:
    assert {f"{policy}/{JOURNAL}" for policy in POLICY_NAMES} < reference.keys()
    assert len({reference[f"{policy}/{JOURNAL}"] for policy in POLICY_NAMES}) == len(POLICY_NAMES)
    assert compared(inputs, f"again-{hash_seed}-{jobs}", hash_seed, jobs) == reference


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policys_journal_replays(inputs: Path, reference: dict[str, str], policy: str) -> None:
    result = replay_with(inputs / "reference" / policy / JOURNAL, lambda settings: Arbiter(settings, is_checked=True))
    assert result.first_difference is None
    assert result.steps > 2 * ROWS_MAX


def test_a_run_of_its_own_is_that_of_the_comparison(inputs: Path, reference: dict[str, str]) -> None:
    themis(inputs, "3", "simulate", *FLAGS, "--policy", "quincy", "--out", "alone")
    assert digests(inputs / "alone") == {
        name.removeprefix("quincy/"): digest for name, digest in reference.items() if name.startswith("quincy/")
    }


def test_a_sweep_on_two_cores_is_the_sweep_on_one(inputs: Path) -> None:
    axis = "policy=themis,tiresias"
    found = []
    for jobs, hash_seed in (("1", "0"), ("2", "99")):
        out = f"sweep-{jobs}"
        themis(inputs, hash_seed, "sweep", "--out", out, "--grid", axis, "--seeds", "0-1", "--jobs", jobs, "--", *FLAGS)
        found.append(digests(inputs / out / "points"))
    assert found[0] == found[1]
    points = plan([parse_axis(axis)], (0, 1), FLAGS)
    journals = [found[0][f"{point.key}/{JOURNAL}"] for point in points]
    assert len(set(journals)) == len(journals) == 4  # each seed errs in its own way
