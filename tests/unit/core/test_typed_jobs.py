"""Live jobs that declare speeds by GPU type: who is given what, is told what, and runs how fast."""

import re
from dataclasses import replace
from math import isnan

from tests.support.bench import NODES, Bench, container, job, of_type, running
from tests.support.world import SHORT
from themis_arbiter.core.effects import GrantGpus, RoundClosed, TellJob
from themis_arbiter.core.events import ContainerReport, EpochAcquired, JobReport, NodeReport, RmAttached, RmReported, Timer
from themis_arbiter.core.explain import explain
from themis_arbiter.core.settings import Settings, ShareBy
from themis_arbiter.core.types import GpuSpeeds
from themis_arbiter.core.views_of import apps, nodes

V100, K80 = replace(NODES[0], gpu_type="V100"), replace(NODES[1], gpu_type="k80")
BOTH: GpuSpeeds = (("k80", 0.25), ("v100", 1.0))
FAST: GpuSpeeds = (("v100", 1.0),)


def typed(name: str, asked: int, speeds: GpuSpeeds, *, gang: int = 1) -> JobReport:
    return replace(job(name, asked, gang=gang), gpu_speeds=speeds)


def up(
    *jobs: JobReport,
    nodes: tuple[NodeReport, ...] = (V100, K80),
    containers: tuple[ContainerReport, ...] = (),
    settings: Settings = SHORT,
) -> Bench:
    bench = Bench(settings)
    bench.at(0, EpochAcquired(at_ms=0, epoch=1))
    bench.at(0, RmAttached(at_ms=0, start_id="s1"))
    report = RmReported(at_ms=0, start_id="s1", is_full=True, nodes=nodes, jobs=jobs, containers=containers)
    bench.at(0, report)
    return bench


def granted(bench: Bench, at_ms: int) -> dict[str, list[str]]:
    """GPUs that a round grants, by job."""
    out: dict[str, list[str]] = {}
    for effect in of_type(bench.wake(at_ms, Timer.ROUND), GrantGpus):
        assert isinstance(effect, GrantGpus)
        for lease in effect.leases:
            out.setdefault(lease.job_id, []).append(lease.gpu)
    return out


def test_what_is_not_declared_is_not_granted_and_what_is_left_goes_to_others() -> None:
    bench = up(typed("fast", 8, FAST), typed("other", 8, ()))
    assert granted(bench, 500) == {
        "fast": ["n0:0", "n0:1", "n0:2", "n0:3"],
        "other": ["n1:0", "n1:1", "n1:2", "n1:3"],
    }


def test_nobody_grows_by_gpus_that_would_slow_it_down() -> None:
    assert granted(up(typed("both", 8, BOTH)), 500) == {"both": ["n0:0", "n0:1", "n0:2", "n0:3"]}  # 4 x 1 > 8 x .25


def test_a_gang_that_needs_both_types_gets_both() -> None:
    assert len(granted(up(typed("both", 8, BOTH, gang=8)), 500)["both"]) == 8


def test_work_is_metered_at_the_speed_of_the_slowest_type() -> None:
    bench = up(typed("both", 8, BOTH, gang=8), typed("slow", 2, (("k80", 0.5),)))
    bench.wake(500, Timer.ROUND)
    running(bench, "both")
    before = bench.arbiter.state.jobs["both"]
    assert (before.gpus_running, before.rate) == (8, 2.0)
    assert before.at(bench.now + 1_000).done == before.done + 2_000.0
    assert before.attained == -8_000.0  # eight starts of a second each
    assert before.done == -2_000.0  # which cost as much less of work


def test_who_asks_for_more_than_there_is_of_its_types_is_told_so_and_takes_no_share() -> None:
    bench = up(typed("large", 6, FAST, gang=6), typed("old", 1, (("a100", 1.0), ("k80", 0.0))))
    told = {e.job_id: e.text for e in of_type(bench.wake(500, Timer.ROUND), TellJob) if isinstance(e, TellJob)}
    told |= dict(bench.arbiter.state.told)
    assert "needs 6 GPUs at once" in told["large"]
    assert "has 4 of types that it declares (v100=1)" in told["large"]
    assert "no GPUs of types that it declares (a100=1;k80=0)" in told["old"]
    assert "of type k80, v100" in told["old"]
    state = bench.arbiter.state
    assert not state.apps["large"].is_flowing
    assert not state.ledger.of_job("old")
    more = replace(V100, node="n2")
    bench.at(1_000, RmReported(at_ms=1_000, start_id="s1", nodes=(more,)))
    assert "large" in granted(bench, 1_500)
    assert state.apps["large"].is_flowing


def test_explain_says_what_it_declares_and_how_much_of_that_there_is() -> None:
    bench = up(typed("fast", 2, FAST))
    lines = explain(bench.arbiter, "fast", 0)
    assert lines is not None
    assert any("fast declares speeds by GPU type (v100=1): 4 of the cluster's 8 GPUs" in line for line in lines)


def test_nodes_are_shown_with_their_types() -> None:
    assert {n.node: n.gpu_type for n in nodes(up().arbiter)} == {"n0": "V100", "n1": "k80"}


def test_a_declaration_cannot_change() -> None:
    bench = up(typed("fast", 8, FAST))
    bench.report(100, typed("fast", 8, ()))
    assert bench.arbiter.state.jobs["fast"].report.gpu_speeds == FAST
    assert set(granted(bench, 600)["fast"]) == {"n0:0", "n0:1", "n0:2", "n0:3"}


def test_a_node_that_comes_back_with_another_type_has_lost_what_it_had() -> None:
    bench = up(typed("fast", 4, FAST, gang=4))
    bench.is_store_held = True
    bench.wake(500, Timer.ROUND)
    assert bench.states() == {"fast": ["pending"] * 4}
    bench.at(600, RmReported(at_ms=600, start_id="s1", nodes=(replace(V100, gpu_type="t4"),)))
    assert bench.states() == {}


def test_what_runs_on_a_type_that_it_must_not_have_is_adopted_and_not_given_again() -> None:
    asked = replace(typed("fast", 0, FAST), gpus_asked=1)
    bench = up(asked, containers=(container(1, "fast", "n1"),))
    state = bench.arbiter.state
    assert [x.gpu for x in state.ledger.of_job("fast")] == ["n1:0"]  # adopted
    assert state.jobs["fast"].rate == 1.0  # as on the slowest that it may have
    bench.wake(17_000, Timer.GRID)
    assert bench.states()["fast"].count("draining") == 1
    assert {x.gpu.split(":")[0] for x in state.ledger.of_job("fast") if x.state.value != "draining"} <= {"n0"}


def test_a_record_says_types_once_and_room_only_of_memory_and_cpu() -> None:
    bench = up(typed("fast", 2, FAST), typed("large", 6, FAST, gang=6), typed("other", 8, ()))
    (closed,) = of_type(bench.wake(500, Timer.ROUND), RoundClosed)
    assert isinstance(closed, RoundClosed)
    record = dict(closed.record)
    assert record["room"] == {}
    assert record["gpu_types"] == {"n0": "V100", "n1": "k80"}
    assert record["gpu_speeds"] == {"fast": "v100=1"}


def test_who_can_never_run_is_told_of_no_fair_time_and_no_part_of_a_share() -> None:
    never = replace(typed("never", 2, (("a100", 1.0),)), user="ann")
    bench = up(never, replace(typed("fast", 2, FAST), user="ann"), settings=replace(SHORT, share_by=ShareBy.USER))
    text = "\n".join(explain(bench.arbiter, "never", 60_000) or ())
    assert "never is waiting: it has no share of the cluster that would ever get it done, and so no rho." in text
    assert not re.search(r"rho [0-9]|31536000|beside the others", text)
    assert "counts 0.5 beside the others" in "\n".join(explain(bench.arbiter, "fast", 60_000) or ())
    shown = {a.app_id: a for a in apps(bench.arbiter, 60_000)}
    assert all(isnan(x) for x in (shown["never"].rho, shown["never"].rho_forecast, shown["never"].t_independent_ms))
    assert shown["fast"].rho > 0
    bench.at(60_000, RmReported(at_ms=60_000, start_id="s1", nodes=(replace(V100, node="n2", gpu_type="a100"),)))
    bench.wake(60_500, Timer.ROUND)
    assert "alone on its share of the cluster it would take" in (explain(bench.arbiter, "never", 60_500) or ("",))[0]


def test_a_gang_of_two_types_is_due_what_it_can_do_with_them_also_when_there_are_others() -> None:
    gang = replace(typed("both", 8, BOTH, gang=8), work=8 * 3_600_000.0)
    bench = up(gang)
    state = bench.arbiter.state
    assert state.t_independent_ms(state.apps["both"]) == 4 * 3_600_000  # 8 at .25
    bench.at(1_000, RmReported(at_ms=1_000, start_id="s1", nodes=(replace(V100, node="n2"),)))
    assert state.t_independent_ms(state.apps["both"]) == 3_600_750  # a second of that at .25


def test_an_app_is_due_no_less_time_than_its_longest_job_takes_at_best() -> None:
    gang = replace(typed("both", 8, BOTH, gang=8), app_id="two", work=8 * 3_600_000.0)
    bench = up(gang, replace(typed("small", 1, FAST), app_id="two", work=1_000.0))
    state = bench.arbiter.state
    assert state.t_independent_ms(state.apps["two"]) >= 4 * 3_600_000 * (1 - 1e-9)
