"""How long a tuning app still takes on a number of GPUs: the paper's formulas (4.3), for agents that value offers.

Source: Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020, section 4.3; successive halving and
its example 4.3.3. An allocation is thought to be held until the app ends. Slowdowns S >= 1 stretch iteration time.
Durations are milliseconds; estimates are not rounded, so that rho keeps its exact value.

The tuner splits GPUs evenly over a phase's jobs, what is left over to the longest. With fewer GPUs than jobs, each GPU
works off a queue, jobs longest first (Graham's rule). Jobs of future phases are not known yet: each counts as the median
of today's, the longer one of two in the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from themis_arbiter.core.types import GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One job as the tuner knows it: an iteration on one GPU takes `serial_iteration_ms`."""

    serial_iteration_ms: float
    max_parallelism: int
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        assert self.serial_iteration_ms > 0, f"an iteration takes time: {self}"
        assert self.max_parallelism >= 1, f"a job can use at least one GPU: {self}"
        assert self.slowdown >= 1.0, f"slowdown stretches time, so it is at least 1: {self}"

    def iteration_ms(self, gpu_count: int) -> float:
        """One iteration on `gpu_count` GPUs; those beyond the job's parallelism idle."""
        assert gpu_count >= 1, "nothing runs on no GPUs"
        return self.serial_iteration_ms * self.slowdown / min(gpu_count, self.max_parallelism)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of successive halving: so many jobs, each for so many iterations."""

    jobs: int
    iterations: float


def one_job_t_shared_ms(elapsed_ms: Millis, trial: Trial, iterations_left: float, gpu_count: int) -> float:
    """Finish time since arrival of an app of one job: T_sh = elapsed + iterations left * iteration time (4.3.1)."""
    return elapsed_ms + iterations_left * trial.iteration_ms(gpu_count)


def halving_t_shared_ms(elapsed_ms: Millis, trials: Sequence[Trial], phases: Sequence[Phase], gpu_count: int) -> float:
    """T_sh of successive halving (4.3.2): `trials` are the jobs of the first of `phases`, the one that runs now."""
    assert phases, "an app that still runs is in some phase"
    assert len(trials) == phases[0].jobs, f"{len(trials)} jobs, but {phases[0]}"
    by_length = {trial.serial_iteration_ms * trial.slowdown: trial for trial in trials}
    typical = by_length[median_high(trial.serial_iteration_ms * trial.slowdown for trial in trials)]
    left = stage_ms([(trial, phases[0].iterations) for trial in trials], gpu_count)
    for phase in phases[1:]:
        left += stage_ms([(typical, phase.iterations)] * phase.jobs, gpu_count)
    return elapsed_ms + left


def curve_t_shared_ms(elapsed_ms: Millis, forecasts: Sequence[tuple[Trial, float]], gpu_count: int) -> float:
    """T_sh of curve stopping (4.3.2): each job runs to its forecast stop, in iterations from now; the last one counts."""
    return elapsed_ms + stage_ms(forecasts, gpu_count)


def t_cluster_ms(work: GpuMillis, cluster_gpus: int, app_max_parallelism: int) -> float:
    """Finish time alone on the whole cluster: serial work over the GPUs that the app can use, no slowdown."""
    return work / min(cluster_gpus, app_max_parallelism)


def paper_t_independent_ms(work: GpuMillis, cluster_gpus: int, app_max_parallelism: int, n_avg: float) -> float:
    """The paper's T_id = T_cluster * N_avg; the `paper` policy's only."""
    return t_cluster_ms(work, cluster_gpus, app_max_parallelism) * n_avg


def stage_ms(jobs: Sequence[tuple[Trial, float]], gpu_count: int) -> float:
    """Time until the last of `jobs` (job, iterations) is through, as the tuner splits `gpu_count` GPUs."""
    assert gpu_count >= 1, "nothing runs on no GPUs"
    longest_first = sorted(jobs, key=lambda job: -job[1] * job[0].serial_iteration_ms * job[0].slowdown)
    if gpu_count < len(jobs):
        busy_ms = [0.0] * gpu_count
        for trial, iterations in longest_first:
            soonest = busy_ms.index(min(busy_ms))
            busy_ms[soonest] += iterations * trial.iteration_ms(1)
        return max(busy_ms)
    even, extra = divmod(gpu_count, len(jobs)) if jobs else (0, 0)
    return max((its * trial.iteration_ms(even + (k < extra)) for k, (trial, its) in enumerate(longest_first)), default=0.0)
