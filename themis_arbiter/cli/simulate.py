"""`themis simulate`: parse, call, print; and what `themis compare` has in common with it."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from themis_arbiter.cli.failures import Interrupted, NotSo, WrongUse
from themis_arbiter.cli.options import JSON_OPTION
from themis_arbiter.cli.parameters import Finite, ResultFolder, inputs_named, once
from themis_arbiter.cli.tables import print_table
from themis_arbiter.core.policies import POLICIES
from themis_arbiter.core.speedup import NO_SLOWDOWN, SlowdownModel
from themis_arbiter.obs.labels import legible, visible
from themis_arbiter.sim.plain_numbers import finite

F = TypeVar("F", bound=Callable[..., Any])

SHOWN: Final = (
    ("max_rho", "MAX RHO", 3),
    ("p95_rho", "P95 RHO", 3),
    ("frac_rho_le_1_05", "RHO<=1.05", 3),
    ("jain", "JAIN", 3),
    ("avg_jct_s", "MEAN JCT S", 0),
    ("gpu_hours", "GPU HOURS", 1),
    ("restarts", "RESTARTS", 0),
    ("idle_while_demand", "IDLE", 4),
    ("wall_s", "WALL S", 1),
)
SECONDS_MAX: Final = 1e9
LEASE_COLUMN: Final = (("LEASE S", True),)
ONE_POLICY: Final = "--policy: one policy here; `themis compare` takes several"
PATH: Final = click.Path(path_type=Path)
INPUTS: Final = ("trace", "cluster", "models", "shares")  # flags that name files to read


def policy_names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Names of policies between commas, each once; none where the flag is not given."""
    if value is None:
        return ()
    names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        what = f"no policy is called {unknown[0][:40]!r}" if unknown else "no policy is named"
        raise click.BadParameter(f"{what}; there are {', '.join(sorted(POLICIES))}")
    return names


def _misreports(
    _context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, str, float], ...]:
    lies = [_misreport(text) for text in value]
    once((f"{app_id}:{about}", factor) for app_id, about, factor in lies)
    return tuple(lies)


def _misreport(text: str) -> tuple[str, str, float]:
    app_id, about, factor = ("", "", "", *text.rsplit(":", 2))[-3:]
    try:
        number = finite(factor)
    except ValueError:
        number = -1.0
    if not app_id or about not in {"work", "slowdown", "parallelism"} or not 0 < number <= 1e6:
        raise click.BadParameter(f"{text[:60]!r} is not APP:work|slowdown|parallelism:FACTOR with a factor above 0")
    return app_id, about, number


def shared_options(command: F) -> F:
    """The options that both verbs have."""
    seconds = Finite(min=0.0, max=SECONDS_MAX)
    options = (
        click.option("--trace", required=False, type=PATH, help="Trace (CSV)."),
        click.option("--cluster", type=PATH, help="Cluster (YAML or JSON)."),
        click.option("--models", type=PATH, help="Slowdowns by model (CSV); without: no slowdown."),
        click.option(
            "--lease", "lease_s", type=Finite(min=0.0, max=SECONDS_MAX, min_open=True), help="Seconds; default: the policy's."
        ),
        click.option("--fairness-knob", type=Finite(0.0, 1.0), help="f of the `paper` policy."),
        click.option("--restart-cost", "restart_cost_s", type=seconds, default=0.0, show_default=True, help="Seconds."),
        click.option("--rho-floor", "rho_floor_s", type=seconds, default=600.0, show_default=True, help="Seconds."),
        click.option("--shares", type=PATH, help="Weights of apps, users or queues (CSV)."),
        click.option(
            "--estimate-error",
            type=Finite(min=0.0, max=1e6),
            default=0.0,
            show_default=True,
            help="How far declared work may be off.",
        ),
        click.option(
            "--misreport", "misreports", multiple=True, callback=_misreports, metavar="APP:WHAT:FACTOR", help="A lie."
        ),
        click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting; see --list-settings."),
        click.option("--list-settings", is_flag=True, help="Print what --set takes and end."),
        click.option("--strict", is_flag=True, help="Stop at the trace's first bad row."),
        click.option("--seed", type=int, default=0, show_default=True, help="Of all chance."),
        click.option("--journal", "has_journal", is_flag=True, help="Write the arbiter's journal too, for `themis replay`."),
        click.option("--no-report", is_flag=True, help="Leave report.html and figures out."),
        click.option("--out", type=ResultFolder(), help="Folder for the results."),
        JSON_OPTION,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option("--policy", "policies", default="themis", show_default=True, callback=policy_names, help="Who gets which GPUs.")
@shared_options
def simulate(policies: tuple[str, ...], out: Path | None, *, list_settings: bool, as_json: bool, **flags: Any) -> None:
    """Replay a trace in virtual time through the arbiter that runs live.

    Writes allocations, jobs, apps, decision records, a summary and report.html to the --out folder.
    """
    if list_settings:
        print_settings(policies[:1], as_json=as_json)
        return
    if len(policies) > 1:
        raise WrongUse(ONE_POLICY)
    _run(policies[0], out, as_json=as_json, **flags)


def _run(policy: str, out: Path | None, *, as_json: bool, no_report: bool, **flags: Any) -> None:
    from themis_arbiter.sim.run_folder import check_apart, check_ours
    from themis_arbiter.sim.simulation import load, settings_of
    from themis_arbiter.sim.simulation import simulate as simulate_run

    out = named(out)
    with problems_told(out, [out]):
        check_apart([out], inputs_named(flags, INPUTS))
        check_ours(out)
        request = request_of(policy, **flags)
        settings_of(request)  # before anything is read
        tell_unread(request.sets, [policy])
        summary = simulate_run(request, load(request, tell), out, tell)
        report([out], out, is_wanted=not no_report)
    print_summaries({policy: summary}, summary if as_json else None)


def named(out: Path | None) -> Path:
    """The folder of --out. Errors: WrongUse."""
    if out is None:
        raise WrongUse("--out: missing; name a folder for the results")
    return out


@contextmanager
def problems_told(out: Path, folders: Sequence[Path] = ()) -> Iterator[None]:
    """What goes wrong, as exit statuses and one line each; `folders` are those of the runs, as far as they are known."""
    from themis_arbiter.sim.report import ReportError
    from themis_arbiter.sim.trace import TraceError

    try:
        yield
    except (TraceError, ReportError) as problem:
        if isinstance(problem.__cause__, OSError):
            raise NotSo(legible(str(problem))) from None
        raise WrongUse(legible(str(problem))) from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {kept(out, folders)}; start the same command again") from None
    except OSError as problem:
        raise NotSo(f"{problem.filename or out}: {problem.strerror or problem}; the results are not complete") from None


def report(folders: Sequence[Path], out: Path, *, is_wanted: bool) -> None:
    """The report of these runs in `out`, where it is wanted; whatever an earlier run left is gone already."""
    from themis_arbiter.sim.report import write_report
    from themis_arbiter.sim.run_folder import REPORT

    if is_wanted:
        write_report(folders, out / REPORT)


def kept(out: Path, folders: Sequence[Path]) -> str:
    """What broken-off runs left, for people; a run's summary is the last of its files."""
    from themis_arbiter.sim.run_folder import SUMMARY

    whole = [visible(str(folder)) for folder in folders if (folder / SUMMARY).exists()]
    return f"whole are the results in {', '.join(whole)}" if whole else f"no results are kept in {visible(str(out))}"


def print_settings(policies: Sequence[str], *, as_json: bool) -> None:
    """What --set takes, by policy; without one, all that any of them reads."""
    from themis_arbiter.server.documents import dumps
    from themis_arbiter.sim.setkeys import set_keys

    listed = {policy: set_keys(policy) for policy in policies} or {"any": set_keys()}
    if as_json:
        document = {
            policy: [{"key": k.key, "default": k.shown_default, "meaning": k.meaning} for k in keys]
            for policy, keys in listed.items()
        }
        click.echo(dumps(document, indent=2))
        return
    for policy, keys in listed.items():
        click.echo(f"--set keys of {f'policy {policy}' if policies else 'all policies'}:")
        rows = [[k.key, k.shown_default, k.meaning] for k in keys]
        print_table((("KEY", False), ("DEFAULT", False), ("MEANING", False)), rows)


def check_arguments(arguments: Sequence[str], out: Path) -> dict[str, Path | None]:
    """Refuse what `themis simulate` would refuse before it reads trace and cluster; the files that it reads, by flag.

    Errors: click.ClickException, TraceError.
    """
    from themis_arbiter.sim.simulation import settings_of

    with simulate.make_context("simulate", [*arguments, "--out", str(out)]) as context:
        flags = dict(context.params)
    policies = flags.pop("policies")
    if len(policies) > 1:
        raise WrongUse(ONE_POLICY)
    for name in ("out", "list_settings", "as_json", "no_report"):
        flags.pop(name)
    request = request_of(policies[0], **flags)
    settings_of(request)
    for name in INPUTS:
        path = flags.get(name)
        if path is not None and not path.exists():
            raise WrongUse(f"--{name} {path}: is not there; name a file that is")
    return inputs_named(flags, INPUTS)


def request_of(policy: str, **flags: Any) -> Any:
    """The flags as a request. Errors: WrongUse, TraceError."""
    from themis_arbiter.sim.setkeys import parse_sets
    from themis_arbiter.sim.simulate import Misreport
    from themis_arbiter.sim.simulation import Request

    models: Path | None = flags.pop("models")
    for name in ("trace", "cluster"):
        if flags[name] is None:
            raise WrongUse(f"--{name}: missing; name a file")
    lies = tuple(Misreport(*lie) for lie in flags.pop("misreports"))
    return Request(
        policy=policy,
        slowdowns=None if models is None else _slowdowns(models),
        models=str(models or ""),
        misreports=lies,
        sets=parse_sets(flags.pop("sets")),
        is_strict=flags.pop("strict"),
        **flags,
    )


def _slowdowns(path: Path) -> SlowdownModel:
    from themis_arbiter.server.models import read_models

    found, problems = read_models(path)
    if problems:
        raise WrongUse("\nthemis: ".join(legible(problem) for problem in problems))
    return replace(found, default=NO_SLOWDOWN)


def tell(line: str) -> None:
    """One line on stderr."""
    click.echo(f"themis: {legible(line)}", err=True)


def tell_unread(sets: Mapping[str, Any], policies: Sequence[str]) -> None:
    """Say which --set keys change nothing under any of these policies."""
    from themis_arbiter.sim.setkeys import unread

    for key in unread(sets, policies):
        whom = f"policy {policies[0]} does not read it" if len(policies) == 1 else "none of these policies reads it"
        tell(f"--set {key}: {whom}, so it changes nothing; --list-settings --policy NAME lists what a policy reads")


def leases(summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The lease of each policy in seconds, where they differ: then it is a part of what is compared."""
    found = {policy: f"{s['made_with']['lease_s']:g}" for policy, s in summaries.items()}
    return found if len(set(found.values())) > 1 else {}


def print_summaries(summaries: Mapping[str, Mapping[str, Any]], document: Any) -> None:
    """A table with a row a policy; or `document` as JSON where there is one."""
    from themis_arbiter.server.documents import dumps

    if document is not None:
        click.echo(dumps(document, indent=2))
        return
    lease_of = leases(summaries)
    columns = (("POLICY", False), *LEASE_COLUMN[: bool(lease_of)], *((title, True) for _, title, _ in SHOWN))
    rows = []
    for policy, s in summaries.items():
        lease = [lease_of[policy]] if lease_of else []
        rows.append([policy, *lease, *(f"{s[key]:.{digits}f}" for key, _, digits in SHOWN)])
    print_table(columns, rows)
    sys.stdout.flush()
