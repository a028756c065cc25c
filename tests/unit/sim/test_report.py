"""The report: its arithmetic, its files, and that no name or file can break it."""

import csv
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.run_dirs import table, write_run
from themis_arbiter.sim import report_png
from themis_arbiter.sim.report import ReportError, read_report, write_report
from themis_arbiter.sim.report_data import cdf_share
from themis_arbiter.sim.report_figures import ticks
from themis_arbiter.sim.report_series import averaged, merged, thinned

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028{}"


def data_of(page: Path) -> Any:
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [write_run(tmp_path / policy, policy=policy) for policy in ("themis", "fifo")]


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_averages_over_bins_by_hand() -> None:
    assert averaged([(0, 10, 1.0), (2.5, 5.0, 2.0), (9, 99, 4.0)], 10, 4) == pytest.approx([1, 3, 1, 1 + 4 * 1 / 2.5])


@given(
    st.lists(st.tuples(st.floats(-5, 15), st.floats(-5, 15), st.floats(-3, 3)), max_size=12),
    st.integers(1, 9),
)
def test_averages_agree_with_their_definition(spans: list[tuple[float, float, float]], bins: int) -> None:
    width = 10 / bins
    expected = [
        sum(h * max(0.0, min(b, (k + 1) * width) - max(a, k * width)) for a, b, h in spans) / width for k in range(bins)
    ]
    assert averaged(spans, 10, bins) == pytest.approx(expected, abs=1e-9)


def test_renewed_leases_of_one_app_are_one_stay() -> None:
    assert merged([(5, 9, "a"), (0, 5, "a"), (9.5, 12, "a"), (20, 21, "a"), (12, 14, "b")]) == [
        (0, 12, "a"),
        (12, 14, "b"),
        (20, 21, "a"),
    ]


def test_long_timelines_show_who_held_the_gpu_at_each_steps_middle() -> None:
    row = [(float(k), k + 1.0, f"a{k % 7}") for k in range(4_000)]
    ((cut,), step_s) = thinned([row], 4_000.0, 500)
    assert step_s == 10.0
    assert len(cut) <= 500
    for start, end, owner in cut:
        assert owner == f"a{int((start + end) / 2 if end - start == step_s else start + step_s / 2) % 7}"
    assert thinned([row], 4_000.0, 5_000) == ([row], 0.0)


def test_cdf_counts_apps_at_or_below() -> None:
    assert [cdf_share((0.5, 1.0, 1.0, 2.0), at) for at in (0.4, 0.5, 1.0, 3.0)] == [0, 0.25, 0.75, 1]


@pytest.mark.parametrize("high", [0.003, 1.0, 1.05, 7.0, 12345.0])
def test_ticks_are_few_round_and_inside(high: float) -> None:
    found = ticks(high)
    assert found[0] == 0
    assert 3 <= len(found) <= 8
    assert found[-1] <= high


# --- data -------------------------------------------------------------------------------------------------------------


def small_run(folder: Path) -> Path:
    folder.mkdir()
    allocations: list[list[object]] = [
        ["a", "1", "g0;g1", 0, 100, "x", 1],
        ["a", "1", "g0;g1", 100, 200, "y", 2],
        ["b", "1", "g0", 300, 400, "z", 3],
    ]
    table(folder / "allocations.csv", "app_id,job_id,gpus,start_s,end_s,grant_id,round", allocations)
    jobs: list[list[object]] = [["a", "1", 0, 0, 200, 400, 0], ["b", "1", 100, 300, 400, 100, 0], ["b", "2", 150, "", "", 0, 0]]
    table(folder / "jobs.csv", "app_id,job_id,arrival_s,start_s,finish_s,gpu_seconds,restarts", jobs)
    apps: list[list[object]] = [["a", 0, 200, 200, 200, 1, 1.0, 1, 1, 400, 0], ["b", 100, "", "", 80, 1.5, "", "", "", 100, 0]]
    table(
        folder / "apps.csv",
        "app_id,arrival_s,finish_s,t_shared_s,t_independent_s,n_avg,rho,rho_own,rho_paper,gpu_seconds,restarts",
        apps,
    )
    (folder / "summary.json").write_text('{"policy": "fifo", "max_rho": 1.0, "rejected_jobs": [["b", "2"]]}')
    return folder


def test_queue_and_contention_by_hand(tmp_path: Path) -> None:
    (run,) = read_report([small_run(tmp_path / "run")]).runs
    per_s = len(run.queue) / 400
    at = [int(s * per_s) for s in (50, 120, 250, 350)]
    assert [run.queue[k] for k in at] == pytest.approx([0, 1, 2, 1])  # b/2 never runs and waits to the end
    assert [run.contention[k] for k in at] == pytest.approx([1.0, 1.5, 0.5, 0.5])
    assert [run.present[k] for k in at] == pytest.approx([1, 2, 1, 1])
    assert run.timeline == (((0, 200, "a"), (300, 400, "b")), ((0, 200, "a"),))
    assert run.rho == (1.0,)


def test_runs_of_one_policy_are_told_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, policy="themis") for name in ("one", "two")]
    other = write_run(tmp_path / "x", policy="guard")
    labels = [r.label for r in read_report([*runs, other]).runs]
    assert labels == ["themis (one)", "themis (two)", "guard"]
    assert len({r.label for r in read_report([runs[0], runs[0]]).runs}) == 2


def test_gpus_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    (run,) = read_report([write_run(tmp_path / "r", gpus=96, apps=40)]).runs
    machines = [name.split(":")[0] for name in run.gpu_names]
    assert machines.index("r2m0") < machines.index("r10m0")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("apps.csv", None, "cannot be read"),
        ("allocations.csv", "a,b\n1,2\n", "no column app_id, job_id"),
        ("jobs.csv", "app_id,job_id,arrival_s,finish_s\na,1,soon,2\n", "column arrival_s: 'soon'"),
        ("apps.csv", "app_id,arrival_s,finish_s,rho\na,1,2,nan\n", "column rho"),
        ("summary.json", "[]", "not a JSON object"),
        ("summary.json", "{", "not a JSON object"),
        ("summary.json", None, "cannot be read"),
    ],
)
def test_directory_that_is_no_run_is_refused(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    run = write_run(tmp_path / "run")
    (run / file).unlink()
    if text is not None:
        (run / file).write_text(text)
    with pytest.raises(ReportError, match=message):
        write_report([run], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="0 run directories"):
        write_report([], tmp_path / "report.html")


def test_run_in_which_nothing_ran_has_a_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for name in ("apps.csv", "jobs.csv", "allocations.csv"):
        header = (run / name).read_text().splitlines()[0]
        (run / name).write_text(header + "\n")
    write_report([run], tmp_path / "report.html")
    assert data_of(tmp_path / "report.html")["runs"][0]["table"] == []


def test_place_that_cannot_be_written_is_told(tmp_path: Path, two: list[Path]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="cannot be written"):
        write_report(two, tmp_path / "file" / "report.html")


# --- files ------------------------------------------------------------------------------------------------------------


def test_page_holds_everything_and_fetches_nothing(tmp_path: Path, two: list[Path]) -> None:
    page = tmp_path / "report.html"
    write_report(two, page)
    text = page.read_text(encoding="utf-8")
    assert not re.search(
        r"""(src|href)\s*=|@import|url\((?!#)|fetch\(|XMLHttpRequest""", text.replace("http://www.w3.org/2000/svg", "")
    )
    assert "default-src 'none'" in text
    data = data_of(page)
    assert [r["label"] for r in data["runs"]] == ["themis", "fifo"]
    assert len(data["runs"][0]["table"]) == 12
    assert {len(data["runs"][0][key]) for key in ("queue", "contention", "present")} == {data["bins"]}


def test_figures_stand_beside_it(tmp_path: Path, two: list[Path]) -> None:
    write_report(two, tmp_path / "out" / "report.html")
    figures = tmp_path / "out" / "figures"
    names = {p.name for p in figures.iterdir()}
    stems = {"rho_cdf", "contention", "queue", "gpu_timeline_00", "gpu_timeline_01"}
    assert {f"{s}.{kind}" for s in stems for kind in ("svg", "csv")} <= names
    for path in figures.glob("*.svg"):
        assert ET.fromstring(path.read_text(encoding="utf-8")).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own
    rows = list(csv.DictReader((figures / "rho_cdf.csv").read_text(encoding="utf-8").splitlines()))
    assert {r["run"] for r in rows} == {"themis", "fifo"}
    assert [float(r["share of apps"]) for r in rows if r["run"] == "fifo"][-1] == 1.0
    assert {p.read_bytes()[:4] for p in figures.glob("*.png")} == {b"\x89PNG"}


def test_without_matplotlib_there_is_no_png(tmp_path: Path, two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_png, "find_spec", lambda _name: None)
    write_report(two, tmp_path / "report.html")
    assert list((tmp_path / "figures").glob("*.png")) == []


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", policy="$x_<b>&\x07", names=HOSTILE)
    write_report([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert HOSTILE.format(3) in data_of(tmp_path / "report.html")["apps"]
    for path in (tmp_path / "figures").glob("*.svg"):
        ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own


def test_large_comparison_stays_a_page_that_opens(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", apps=1_100, gpus=600)
    write_report([run] * 2, tmp_path / "report.html")
    page = tmp_path / "report.html"
    assert page.stat().st_size < 6_000_000
    (first, _) = data_of(page)["runs"]
    assert len(first["gpus"]) <= 256 < first["gpu_count"]


@pytest.mark.browser
def test_script_draws_the_page(tmp_path: Path, two: list[Path]) -> None:
    hostile = write_run(tmp_path / "hostile", policy="<i>evil</i>", names=HOSTILE)
    page = tmp_path / "report.html"
    write_report([*two, hostile], page)
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]
    flags += [
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=3000",
    ]
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", f"file://{page}"], capture_output=True, text=True, check=True, timeout=90
    )
    dom = done.stdout
    drawn = re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "3 runs of one input" in drawn
    assert drawn.count('class="run"') == 9  # three lines in each of three charts
    assert "<canvas" in drawn
    assert drawn.count("<tr") == 1 + 3 + 1 + 12
    assert "&lt;i&gt;evil&lt;/i&gt;" in drawn
    assert "<i>evil" not in drawn
