"""The campaign's judge finds what it is there to find: each check on a log that breaks it, and on one that does not."""

from pathlib import Path
from typing import Final

import pytest

from tests.chaos.evidence import Endings, adopted, leased_twice, leases_kept, over_used, used_without_lease
from tests.chaos.faults import SCENARIOS, draw
from tests.chaos.rm_log import RmLog
from themis_arbiter.adapters.journal import FileJournal
from themis_arbiter.core.effects import GrantGpus, LeaseMoved
from themis_arbiter.core.events import EpochAcquired, RmDetached
from themis_arbiter.core.lease import Cause, Lease, LeaseState
from themis_arbiter.core.settings import Settings

JOB: Final = "application_7_0001"
MIDNIGHT_MS: Final = 1_795_910_400_000  # 2026-11-29T00:00:00Z, a grid end


def stamp(second: float) -> str:
    return f"2026-11-29 00:00:{int(second):02d},{round(second * 1000) % 1000:03d} INFO"


def container(number: int) -> str:
    return f"container_7_0001_01_{number:06d}"


def starts(second: float, number: int, node: str = "n1") -> list[str]:
    room = "<memory:128, vCores:1, yarn.io/gpu: 1>"
    return [
        f"{stamp(second)} SchedulerNode: Assigned container {container(number)} of capacity {room} on host {node}:1, which",
        f"{stamp(second)} RMContainerImpl: {container(number)} Container Transitioned from ACQUIRED to RUNNING",
    ]


def ends(second: float, number: int, how: str = "KILLED") -> str:
    return f"{stamp(second)} RMContainerImpl: {container(number)} Container Transitioned from RUNNING to {how}"


def gate(second: float, what: str, lease: str, seq: int, kill_in_ms: int | None = None, node: str = "n1") -> str:
    kill = "" if kill_in_ms is None else f" kill_in_ms={kill_in_ms}"
    who = f"lease={lease} application={JOB} node={node} gpus=1"
    return f"{stamp(second)} EntryPoint: Themis lease {what}: {who}{kill} epoch=1 seq={seq}"


LISTENS: Final = f"{stamp(0)} Gateway: Themis gateway listens on 127.0.0.1:1 start_id=s file=f"


def read(tmp_path: Path, *lines: str) -> RmLog:
    path = tmp_path / "rm.log"
    path.write_text("\n".join((LISTENS, *lines)) + "\n")
    log = RmLog(path, gpus_of={"n1": 2})
    log.poll()
    return log


def lease(lease_id: str = "L1", end_s: int = 20, state: LeaseState = LeaseState.ACTIVE, gpu: str = "n1:0") -> Lease:
    return Lease(
        lease_id=lease_id,
        grant_id="G1",
        gpu=gpu,
        app_id="a",
        job_id=JOB,
        epoch=1,
        round_no=1,
        start_ms=MIDNIGHT_MS,
        end_ms=MIDNIGHT_MS + end_s * 1_000,
        state=state,
    )


# -- containers


def test_a_container_that_ends_under_a_valid_lease_is_found(tmp_path: Path) -> None:
    log = read(tmp_path, gate(1, "granted", "L1", 1), *starts(2, 2), ends(5, 2))
    (found,) = Endings().unexplained(log, {JOB: 1})
    assert "its lease was valid" in found


def test_a_drained_lease_accounts_for_one_container_and_no_more(tmp_path: Path) -> None:
    leases = [gate(1, "granted", "L1", 1), gate(1, "granted", "L2", 1), gate(6, "drained", "L1", 2, 3_000)]
    log = read(tmp_path, *leases, *starts(2, 2), *starts(2, 3), ends(9.1, 2), ends(9.2, 3))
    endings = Endings()
    (found,) = endings.unexplained(log, {JOB: 1})
    assert container(3) in found
    assert endings.unexplained(log, {JOB: 1}) == []  # each is told once


def test_a_kill_before_the_leases_end_is_found_and_a_release_is_none(tmp_path: Path) -> None:
    leases = [gate(1, "granted", "L1", 1), gate(6, "drained", "L1", 2, 3_000)]
    (found,) = Endings().unexplained(read(tmp_path, *leases, *starts(2, 2), ends(7, 2)), {JOB: 1})
    assert "killed 2000 ms before the end of L1" in found
    assert Endings().unexplained(read(tmp_path, *leases, *starts(2, 2), ends(7, 2, "RELEASED")), {JOB: 1}) == []


def test_what_the_master_of_a_gang_hands_back_while_its_leases_are_too_few_is_its_own_doing(tmp_path: Path) -> None:
    two = [gate(1, "granted", "L1", 1), gate(1, "granted", "L2", 1), *starts(2, 2), *starts(2, 3)]
    # L2 is drained and gone; what starts anew under L1 alone is no gang of 2.
    half = [*two, gate(3, "drained", "L2", 2, 3_000), ends(4, 2, "RELEASED"), ends(4, 3, "RELEASED"), *starts(5, 4)]
    assert Endings().unexplained(read(tmp_path, *half, ends(15, 4, "RELEASED")), {JOB: 2}) == []
    (killed,) = Endings().unexplained(read(tmp_path, *half, ends(15, 4)), {JOB: 2})  # nobody may kill it
    assert container(4) in killed
    assert len(Endings().unexplained(read(tmp_path, *two, ends(4, 2, "RELEASED")), {JOB: 2})) == 1  # a whole gang stays
    assert len(Endings().unexplained(read(tmp_path, *half, ends(15, 4, "RELEASED")), {JOB: 1})) == 2  # so does who is no gang


def test_an_end_that_is_told_too_late_is_found_but_not_one_that_is_told_again(tmp_path: Path) -> None:
    granted = gate(1, "granted", "L1", 1)
    late = [granted, gate(6, "drained", "L1", 2, 0)]
    (found,) = Endings().unexplained(read(tmp_path, *late, *starts(2, 2), ends(6.2, 2)), {JOB: 1})
    assert "the end of L1 was told 0 ms before it came" in found
    again = [granted, gate(6, "drained", "L1", 2, 3_000), gate(9, "drained", "L1", 3, 0)]
    assert Endings().unexplained(read(tmp_path, *again, *starts(2, 2), ends(9.2, 2)), {JOB: 1}) == []


def test_a_container_that_a_restarted_resource_manager_never_hears_of_is_lost(tmp_path: Path) -> None:
    log = read(tmp_path, gate(1, "granted", "L1", 1), *starts(2, 2), *starts(2, 3), LISTENS, *starts(9, 3))
    assert log.awaited == {container(2)}
    log.give_up_awaited(MIDNIGHT_MS + 30_000)
    (found,) = Endings().unexplained(log, {JOB: 1})
    assert f"{container(2)} on n1 LOST" in found


def test_more_containers_than_gpus_or_leases_are_found(tmp_path: Path) -> None:
    log = read(tmp_path, gate(1, "granted", "L1", 1), *starts(2, 2), *starts(2, 3), *starts(2, 4))
    assert over_used(log) == ["n1: 3 GPUs in containers, 2 in all"]
    assert used_without_lease(log, MIDNIGHT_MS + 3_000) == [f"{JOB} uses 3 GPUs of n1 under 1 leases"]


def test_more_leases_than_gpus_are_found_when_the_update_is_whole(tmp_path: Path) -> None:
    both = [gate(1, "granted", "L1", 1), gate(1, "granted", "L2", 1)]
    handed_on = [gate(2, "granted", "L3", 2), gate(2, "removed", "L1", 2), gate(3, "drained", "L3", 3, 1_000)]
    assert read(tmp_path, *both, *handed_on).over_leased == []
    twice = [gate(2, "granted", "L3", 2), gate(3, "drained", "L3", 3, 1_000)]
    assert "n1 has 3 GPUs under lease and 2 in all" in read(tmp_path, *both, *twice).over_leased[0]


# -- leases


def test_a_lease_that_is_kept_or_renewed_is_kept(tmp_path: Path) -> None:
    log = read(tmp_path)
    for end_s in (20, 40, 60):
        kept = leases_kept({"L1": lease()}, {"L1": MIDNIGHT_MS + end_s * 1_000}, log, {JOB: 1})
        assert (kept.compared, kept.lost, kept.error_ms) == (1, [], 0)


@pytest.mark.parametrize(("told", "what"), [({}, "is gone without a drain"), ({"L1": 25}, "5000 ms"), ({"L1": 0}, "-20000 ms")])
def test_a_lease_that_is_lost_or_moved_is_found(tmp_path: Path, told: dict[str, int], what: str) -> None:
    plain = {i: MIDNIGHT_MS + s * 1_000 for i, s in told.items()}
    kept = leases_kept({"L1": lease()}, plain, read(tmp_path), {JOB: 1})
    assert len(kept.lost) == 1
    assert what in kept.lost[0]


def test_a_drain_ends_a_lease_at_its_end_and_not_before(tmp_path: Path) -> None:
    granted = gate(1, "granted", "L1", 1)
    late = read(tmp_path, granted, gate(17.004, "drained", "L1", 2, 3_000))
    kept = leases_kept({"L1": lease()}, {}, late, {JOB: 1})
    assert (kept.lost, kept.told_error_ms) == ([], 4)
    early = read(tmp_path, granted, gate(10, "drained", "L1", 2, 3_000))
    assert "7000 ms before its time" in leases_kept({"L1": lease()}, {}, early, {JOB: 1}).lost[0]


def journal(tmp_path: Path, name: str, *steps: object) -> Path:
    path = tmp_path / name
    file = FileJournal(path, Settings())
    for step in steps:
        if isinstance(step, EpochAcquired):
            file.record(step, ())
        else:
            file.record(RmDetached(at_ms=1, start_id="s"), (step,))  # type: ignore[arg-type]
    file.close()
    return path


def grant(lease_id: str) -> GrantGpus:
    return GrantGpus(epoch=1, start_id="s", seq=1, leases=(lease(lease_id, state=LeaseState.GRANTED),))


def test_a_gpu_that_is_granted_while_another_has_it_is_found_also_across_terms(tmp_path: Path) -> None:
    first = journal(tmp_path, "1", EpochAcquired(at_ms=1, epoch=1), grant("L1"))
    twice = journal(tmp_path, "2", EpochAcquired(at_ms=1, epoch=2, leases=(lease(),)), grant("L2"))
    assert "n1:0 granted as L2 while L1 has it" in leased_twice([first, twice])[0]
    ended = LeaseMoved(lease=lease(state=LeaseState.ENDED), state_from=LeaseState.DRAINING, cause=Cause.RELEASED)
    handed = journal(tmp_path, "3", EpochAcquired(at_ms=1, epoch=2, leases=(lease(),)), ended, grant("L2"))
    assert leased_twice([first, handed]) == []


def test_what_runs_without_a_lease_after_a_fall_back_is_found(tmp_path: Path) -> None:
    log = read(tmp_path, *starts(2, 2))
    assert adopted({}, log)[1] == [f"{JOB} runs on 1 GPUs of n1 under 0 leases"]
    assert adopted({"L1": lease()}, log) == ([], [])


# -- the plan


def test_a_fault_hangs_on_seed_scenario_and_number_alone() -> None:
    assert draw("rm-stop", 3, 7) == draw("rm-stop", 3, 7)
    drawn = {draw(scenario, number, seed).delay_s for scenario in SCENARIOS for number in range(3) for seed in range(3)}
    assert len(drawn) == len(SCENARIOS) * 9
