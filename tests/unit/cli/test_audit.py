"""`themis audit`: a run's auctions held again."""

import json
from pathlib import Path

import pytest

from themis_arbiter.cli.audit import best_of_any, figures
from themis_arbiter.cli.main import run
from themis_arbiter.core.misreports import FACTORS, About
from themis_arbiter.engine.audit import Gain, Ground

CLUSTER = "racks: [{count: 2, machines: [{gpus: 4, gpus_per_slot: 2}]}]\n"
ROWS = [f"app{k},j{i},{k * 60},{1 + k % 4},{3000 + 500 * i}," for k in range(8) for i in range(2)]


def simulated(folder: Path, policy: str, *more: str) -> Path:
    (folder / "t.csv").write_text("\n".join(["app_id,job_id,arrival_s,n_gpus,duration_s,model", *ROWS]), encoding="utf-8")
    (folder / "c.yaml").write_text(CLUSTER, encoding="utf-8")
    out = folder / policy
    files = [f"--trace={folder / 't.csv'}", f"--cluster={folder / 'c.yaml'}", f"--out={out}"]
    assert run(["simulate", *files, f"--policy={policy}", "--restart-cost=40", *more]) == 0
    return out


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = run(["audit", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_run_is_audited_and_twice_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = simulated(tmp_path, "paper", "--journal")
    status, text, _ = audited(capsys, str(out), "--rounds=5", "--json")
    assert status == 0
    found = json.loads(text)
    assert found["audited"] == 5
    assert found["contested"] > 5
    assert found["unexplained"] == 0
    assert found["factors"] == list(FACTORS)
    assert {(r["value"], r["lie"]) for r in found["table"]} == {(str(g), a) for g in Ground for a in (*About, "any")}
    assert all(r["bids"] == found["bids"] and 0 <= r["median"] <= r["p95"] <= r["max"] for r in found["table"])
    assert audited(capsys, str(out / "arbiter.journal"), "--rounds=5", "--json")[1].splitlines()[2:] == text.splitlines()[2:]
    status, text, _ = audited(capsys, str(out), "--rounds=2")
    assert status == 0
    assert "2 audited" in text
    whole = (out / "arbiter.journal").read_bytes()
    half = tmp_path / "half.journal"
    half.write_bytes(whole[: len(whole) // 2].rpartition(b"\n")[0][:-20])
    status, text, told = audited(capsys, str(half), "--rounds=2", "--json")
    found = json.loads(text)
    assert (status, found["parts"], found["is_cut_off"]) == (0, 1, True)
    assert "cut off" in told


@pytest.mark.parametrize(
    ("policy", "journal", "status", "says"),
    [
        ("fifo", True, 2, "fifo holds no auctions; name a run of themis or paper"),
        ("paper", False, 2, "simulate with --journal"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, journal: bool, status: int, says: str
) -> None:
    out = simulated(tmp_path, policy, *(["--journal"] if journal else []))
    found, text, err = audited(capsys, str(out))
    assert (found, text) == (status, "")
    assert err.count("\n") == 1
    assert says in err


def test_a_file_that_is_no_journal_and_one_of_another_rule_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "j"
    path.write_text("{}\n", encoding="utf-8")
    assert audited(capsys, str(path))[0] == 2
    out = simulated(tmp_path, "paper", "--journal") / "arbiter.journal"
    path.write_text(out.read_text(encoding="utf-8").replace('"lease_ms":600000', '"lease_ms":900000', 1), encoding="utf-8")
    status, _, err = audited(capsys, str(path))
    assert status == 1
    assert "decided otherwise now" in err


def gain(app_id: str, about: About, size: float) -> Gain:
    return Gain(
        round_no=1,
        app_id=app_id,
        about=about,
        ground=Ground.PAID,
        gain=size,
        factor=1.1,
        rho_true=1.0,
        rho_lied=1.0 / (1.0 + size),
        open_share=0.0,
    )


def test_figures_are_by_nearest_rank_and_the_best_lie_counts_once() -> None:
    gains = [gain(f"a{k}", About.WORK, k / 100) for k in range(20)]
    assert figures(gains) == {"bids": 20, "gaining": 19, "mean": pytest.approx(0.095), "median": 0.09, "p95": 0.18, "max": 0.19}
    assert figures([])["max"] == 0.0
    best = best_of_any([gain("a", About.WORK, 0.1), gain("a", About.SLOWDOWN, 0.3), gain("b", About.WORK, 0.0)])
    assert [(g.app_id, g.gain) for g in best] == [("a", 0.3), ("b", 0.0)]
