"""Two faults of the campaign, as part of every `make test`: the long one is `make chaos`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.yarn, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(420)]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SEED: Final = "20"


def test_four_apps_live_through_the_death_of_bridge_and_arbiter(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--only", "bridge-kill,arbiter-kill", "--count", "1", "--seed", SEED]
    done = subprocess.run(
        [*command, "--dir", str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-2_000:]}"
    told = json.loads((tmp_path / "chaos.json").read_text())
    assert [r["scenario"] for r in told["records"]].count("bridge-kill") == 1
    for record in told["records"]:
        assert (record["violations"], record["apps_running"], record["lease_error_ms"]) == ([], 4, 0)
        assert record["leases_compared"] >= record["gpus_running"] - 1
    assert "VIOLATED" not in (tmp_path / "chaos.txt").read_text()
