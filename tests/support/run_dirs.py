"""Run directories as contracts.md has them, made without a simulator: first come, first served, on the GPUs free first."""

import csv
import heapq
import json
import random
from pathlib import Path

LEASE_S = 3_600.0


def write_run(
    folder: Path,
    *,
    policy: str = "themis",
    apps: int = 12,
    jobs_per_app: int = 3,
    gpus: int = 16,
    seed: int = 0,
    names: str = "app{}",
) -> Path:
    """A run of `apps` apps; every job holds its gang by leases of an hour until its work is done."""
    draw = random.Random(f"{policy}/{seed}")
    folder.mkdir(parents=True)
    free = [(0.0, f"r{k // 8}m{k // 4 % 2}:{k % 4}") for k in range(gpus)]
    allocations: list[list[object]] = []
    jobs: list[list[object]] = []
    rows: list[list[object]] = []
    arrival = 0.0
    for number in range(apps):
        app = names.format(number)
        finish, held = arrival, 0.0
        for job in range(jobs_per_app):
            gang, length = draw.choice((1, 1, 2, 4)), draw.uniform(0.5, 9) * 3_600
            taken = [heapq.heappop(free) for _ in range(gang)]
            start = max(arrival, *(at for at, _ in taken))
            end, at = start + length, start
            while at < end:
                until = min(end, at + LEASE_S)
                allocations.append(
                    [app, f"j{job}", ";".join(g for _, g in taken), at, until, f"g{len(allocations)}", len(allocations)]
                )
                at = until
            for _, gpu in taken:
                heapq.heappush(free, (end, gpu))
            jobs.append([app, f"j{job}", arrival, start, end, gang * length, 0])
            finish, held = max(finish, end), held + gang * length
        fair = (finish - arrival) / draw.uniform(0.6, 1.6)
        rho = (finish - arrival) / fair
        rows.append([app, arrival, finish, finish - arrival, fair, 3.2, rho, rho * 1.1, rho * 0.4, held, 1])
        arrival += draw.expovariate(gpus / 90_000)
    table(folder / "allocations.csv", "app_id,job_id,gpus,start_s,end_s,grant_id,round", allocations)
    table(folder / "jobs.csv", "app_id,job_id,arrival_s,start_s,finish_s,gpu_seconds,restarts", jobs)
    columns = "app_id,arrival_s,finish_s,t_shared_s,t_independent_s,n_avg,rho,rho_own,rho_paper,gpu_seconds,restarts"
    table(folder / "apps.csv", columns, rows)
    rhos = sorted(float(str(r[6])) for r in rows)
    summary = {
        "policy": policy,
        "seed": seed,
        "n_apps": apps,
        "n_jobs": len(jobs),
        "rejected_jobs": [],
        "max_rho": rhos[-1],
        "median_rho": rhos[len(rhos) // 2],
        "frac_rho_le_1": sum(r <= 1 for r in rhos) / len(rhos),
        "avg_jct_s": sum(float(str(r[3])) for r in rows) / apps,
        "gpu_hours": sum(float(str(r[9])) for r in rows) / 3_600,
        "restarts": apps,
        "wall_s": 1.5,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return folder


def table(path: Path, columns: str, rows: list[list[object]]) -> None:
    """A CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns.split(","))
        writer.writerows(rows)
