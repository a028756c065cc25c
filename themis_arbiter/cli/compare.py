"""`themis compare`: several policies on one input, side by side."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from themis_arbiter.cli.failures import WrongUse
from themis_arbiter.cli.parameters import inputs_named
from themis_arbiter.cli.simulate import (
    INPUTS,
    LEASE_COLUMN,
    SHOWN,
    leases,
    named,
    policy_names,
    print_settings,
    print_summaries,
    problems_told,
    report,
    request_of,
    shared_options,
    tell,
    tell_unread,
)
from themis_arbiter.cli.tables import print_table
from themis_arbiter.obs.labels import legible
from themis_arbiter.sim.sweep import SEED_MARK, Interval, SweepError, parse_seeds


def _seeds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    try:
        return None if value is None else parse_seeds(value)
    except SweepError as problem:
        raise WrongUse(f"--seeds: {legible(str(problem))}") from problem


@click.command()
@click.option("--policy", "policies", callback=policy_names, metavar="A,B,...", help="Which ones.")
@click.option(
    "--seeds",
    callback=_seeds,
    metavar="0-4,7",
    help="Run each policy under each seed and tell means with 95 % intervals; {seed} in --trace becomes the seed.",
)
@click.option("--jobs", type=click.IntRange(1, 64), help="Runs at a time. [default: a processor each]")
@shared_options
def compare(policies: tuple[str, ...], out: Path | None, *, list_settings: bool, **flags: Any) -> None:
    """Replay a trace under several policies, side by side, and print one table.

    Writes a folder for each policy and one report.html to the --out folder. With --seeds also intervals.csv and intervals.json,
    and the runs of further seeds below the policies' folders.
    """
    if list_settings:
        print_settings(policies, as_json=flags["as_json"])
        return
    if not policies:
        raise WrongUse("--policy: missing; name policies, as in --policy themis,srsf")
    _run(policies, named(out), **flags)


def _run(
    policies: tuple[str, ...],
    out: Path,
    *,
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    as_json: bool,
    no_report: bool,
    **flags: Any,
) -> None:
    from themis_arbiter.sim import compare as comparing
    from themis_arbiter.sim.run_folder import check_apart, check_ours, clear
    from themis_arbiter.sim.simulation import load, settings_of

    chosen: Sequence[int] = seeds or (flags["seed"],)
    folders = [comparing.folder_of(out, policy, seed, chosen) for policy in policies for seed in chosen]
    with problems_told(out, folders):
        first = request_of(policies[0], **flags)
        requests = [replace(first, seed=s, trace=Path(str(first.trace).replace(SEED_MARK, str(s)))) for s in chosen]
        for policy in policies:
            settings_of(replace(first, policy=policy))
        tell_unread(first.sets, policies)
        for request in requests:
            check_apart([out, *folders], inputs_named({**flags, "trace": request.trace}, INPUTS))
        for folder in (out, *folders):
            check_ours(folder)
        is_one_trace = len({r.trace for r in requests}) == 1
        loads = [load(requests[0], tell)] * len(requests) if is_one_trace else [load(r, tell) for r in requests]
        cases = [
            comparing.Case(
                request=replace(request, policy=policy),
                loaded=loaded,
                folder=comparing.folder_of(out, policy, request.seed, chosen),
            )
            for policy in policies
            for request, loaded in zip(requests, loads, strict=True)
        ]
        for folder in (out, *folders):
            clear(folder)
        summaries = comparing.compare(cases, tell, jobs)
        runs = {p: summaries[k * len(chosen) : (k + 1) * len(chosen)] for k, p in enumerate(policies)}
        found = comparing.intervals(runs)
        if seeds is not None:
            comparing.write_intervals(out, found)
        report([out / policy for policy in policies], out, is_wanted=not no_report)
    for policy in comparing.seedless(runs):
        tell(f"{policy}: the seed changes nothing: that is one run, and there is no interval")
    firsts = {policy: by_seed[0] for policy, by_seed in runs.items()}
    if seeds is None:
        print_summaries(firsts, firsts if as_json else None)
    elif as_json:
        print_summaries(firsts, {"seeds": list(chosen), "policies": comparing.plain_intervals(found)})
    else:
        _print_intervals(found, leases(firsts))


def _print_intervals(found: Mapping[str, Mapping[str, Interval]], lease_of: Mapping[str, str]) -> None:
    columns = (("POLICY", False), *LEASE_COLUMN[: bool(lease_of)], *((title, True) for _, title, _ in SHOWN))
    rows = []
    for policy, by_name in found.items():
        lease = [lease_of[policy]] if lease_of else []
        rows.append([policy, *lease, *(_cell(by_name[key], digits) for key, _, digits in SHOWN)])
    print_table(columns, rows)
    sys.stdout.flush()


def _cell(found: Interval, digits: int) -> str:
    half = "" if found.low is None or found.high is None else f" ±{(found.high - found.low) / 2:.{digits}f}"
    return f"{found.mean:.{digits}f}{half}"
