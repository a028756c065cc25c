"""`make run`: a cluster, an arbiter and four sample apps on this machine, from start to a closing account.

    python -m themis_arbiter.cli.local_run [--keep] [--dir DIR] [--json] [--simulated]

Exit status 0 where every app finished with exact counts and the judge (sim/run_check.py) found nothing; else 1 with what
was wrong, 2 for wrong use. A Ctrl-C ends everything that was started.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

import click

from themis_arbiter.cli.arbiter_client import ArbiterClient, connected
from themis_arbiter.cli.failures import DONE, NOT_SO, WRONG_USE, NotSo
from themis_arbiter.cli.local import samples as made
from themis_arbiter.cli.local.account import Account, as_json, print_account, settle
from themis_arbiter.cli.local.children import ChildError
from themis_arbiter.cli.local.memory import PeakMemory
from themis_arbiter.cli.local.stage import Stage, StageError, YarnStage
from themis_arbiter.cli.local.watch import node_line, progress_line, short_names
from themis_arbiter.engine.journal_format import JournalFormatError
from themis_arbiter.gen.themis.v1 import admin_pb2
from themis_arbiter.server.values import Address
from themis_arbiter.sim.run_facts import read_facts
from themis_arbiter.sim.run_picture import draw
from yarn_bridge.local import LocalYarnError

RUNS_DIR: Final = Path(".run")
RUN_S_MAX: Final = 300.0  # for the apps; then the run counts as failed
ATTACH_S_MAX: Final = 60.0
POLL_S: Final = 0.5
TELL_S: Final = 3.0
TOLD_MAX: Final = 100  # ended processes that somebody who stays is told of
SETTLE_S: Final = 1.5  # after the last app: its last leases end, and the journal is written
JAVA_PACKAGES: Final = {"javac": "openjdk-17-jdk-headless", "mvn": "maven"}
INTERRUPTED: Final = 130


class RunFailedError(Exception):
    """The run cannot go on; the message says why."""


class Run:
    """One run, step by step. Lines for people go to `out`."""

    def __init__(self, run_dir: Path, stage: Stage, out: TextIO, *, is_real: bool) -> None:
        self._run_dir, self._stage, self._out, self._is_real = run_dir, stage, out, is_real
        self._began_s = time.monotonic()
        self._jobs: dict[str, str] = {}
        self._views: dict[str, admin_pb2.AppView] = {}
        self._nodes: dict[str, str] = {}
        self._memory = PeakMemory()

    def go(self) -> tuple[Account, dict[str, Any]]:
        """From nothing to the account. Errors: what the stage raises, NotSo, RunFailedError."""
        self._stage.start()
        self._tell(f"the arbiter is up: {self._stage.http_url}")
        host, _, port = self._stage.grpc_address.rpartition(":")
        with connected(Address(host, int(port))) as arbiter:
            self._await_nodes(arbiter)
            self._run_apps(arbiter)
            time.sleep(SETTLE_S)
            self._look(arbiter)
        self._stage.save()
        return self._account()

    def _await_nodes(self, arbiter: ArbiterClient) -> None:
        deadline_s = time.monotonic() + ATTACH_S_MAX
        while True:
            self._stage.check()
            nodes = list(arbiter.nodes().nodes)
            if len(nodes) == len(made.CLUSTER):
                break
            if time.monotonic() > deadline_s:
                raise RunFailedError(f"the arbiter knows {len(nodes)} of {len(made.CLUSTER)} nodes after {ATTACH_S_MAX:g} s")
            time.sleep(POLL_S / 5)
        self._nodes = short_names(n.node for n in nodes)
        self._tell(f"nodes: {node_line(nodes)}")

    def _run_apps(self, arbiter: ArbiterClient) -> None:
        wait_s = made.until_start_s(time.time_ns() // 1_000_000)
        self._tell(f"the first app comes after the next round of the lease grid, in {wait_s:.0f} s")
        started_s, told_s = time.monotonic() + wait_s, time.monotonic()
        waiting = sorted(made.SAMPLES, key=lambda s: s.submit_after_s)
        while waiting or not self._is_over():
            now_s = time.monotonic() - started_s
            if waiting and waiting[0].submit_after_s <= now_s:
                self._submit(waiting.pop(0))
            self._look(arbiter)
            if time.monotonic() - told_s >= TELL_S:
                told_s = time.monotonic()
                self._out.write(progress_line(told_s - self._began_s, made.SAMPLES, self._views, self._nodes) + "\n")
                self._out.flush()
            if now_s > RUN_S_MAX:
                return  # the account tells which app did not end
            time.sleep(POLL_S)

    def _submit(self, sample: made.Sample) -> None:
        kind = f"{sample.gpus_max} containers of `{sample.command}`" if sample.command else "training"
        size = f"gang of {sample.gang}" if sample.gang > 1 else f"up to {sample.gpus_max} GPUs"
        self._jobs[sample.name] = self._stage.submit(sample)
        what = f"{kind}, {size}, {sample.work_gpu_s} GPU-s"
        self._tell(f"submitted {sample.app_id} ({what}) as {self._jobs[sample.name]}")

    def _look(self, arbiter: ArbiterClient) -> None:
        self._stage.check()
        self._views = {app.app_id: app for app in arbiter.apps(include_ended=True).apps}

    def _is_over(self) -> bool:
        """Both sides have to say so: the arbiter's view and the cluster's word."""
        if not all(self._views.get(s.app_id, admin_pb2.AppView()).finish_ms for s in made.SAMPLES):
            return False
        return all(self._stage.final_status(job_id) for job_id in self._jobs.values())

    def _account(self) -> tuple[Account, dict[str, Any]]:
        journals = sorted((self._run_dir / "journal").glob("*.journal"))
        if len(journals) != 1:
            raise RunFailedError(f"{len(journals)} journals in {self._run_dir}, there must be one: was the arbiter restarted?")
        facts = read_facts(journals[0])
        account = settle(self._run_dir, journals[0], facts, self._stage.stays(), self._views, self._jobs, self._is_real)
        picture = self._run_dir / "leases.svg"
        picture.write_text(draw(facts))
        more = {
            "cluster": "yarn" if self._is_real else "simulated",
            "run_dir": str(self._run_dir),
            "picture": str(picture),
            "http_url": self._stage.http_url,
            "grpc_address": self._stage.grpc_address,
            "wall_s": round(time.monotonic() - self._began_s, 1),
            "peak_memory_mb": self._memory.stop(),
            "jobs": self._jobs,
        }
        return account, more

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:5.0f} s  {text}", file=self._out, flush=True)


def missing_tools() -> list[str]:
    """Programs that a local YARN needs and that are not here."""
    return [tool for tool in JAVA_PACKAGES if shutil.which(tool) is None]


def choose_stage(run_dir: Path, out: TextIO, *, is_simulated: bool) -> tuple[Stage, bool]:
    """The stage, and whether it is a real YARN."""
    missing = missing_tools()
    if missing and not is_simulated:
        packages = " ".join(JAVA_PACKAGES[tool] for tool in missing)
        text = f"no {' and no '.join(missing)} here, so the apps run on a simulated cluster"
        print(f"{text}; for a real YARN: apt install {packages}", file=out, flush=True)
    if missing or is_simulated:
        from themis_arbiter.cli.local.simulated import SimulatedStage

        return SimulatedStage(run_dir), False
    return YarnStage(run_dir, lambda text: print(f"         {text}", file=out, flush=True)), True


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as a Ctrl-C does; while it is being ended, further ones do not break that off."""

    def on_signal(number_heard: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number_heard).name)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it goes on
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_once(run_dir: Path, *, is_kept: bool, is_json: bool, is_simulated: bool) -> int:
    """A whole run; the exit status."""
    out = sys.stderr if is_json else sys.stdout
    print(made.PROFILE, file=out, flush=True)
    stage, is_real = choose_stage(run_dir, out, is_simulated=is_simulated)
    (run_dir / "themis.toml").write_text(made.arbiter_toml(run_dir))
    try:
        account, more = Run(run_dir, stage, out, is_real=is_real).go()
        tell_account(account, more, out)
        document = as_json(account, more)
        (run_dir / "summary.json").write_text(document + "\n")
        if is_json:
            print(document, flush=True)
        if is_kept:
            print("everything stays up until Ctrl-C", file=out, flush=True)
            stay_up(stage, out)
    finally:
        stage.stop()
    return NOT_SO if account.problems else DONE


def stay_up(stage: Stage, out: TextIO) -> None:
    """Until Ctrl-C; a process that ends is told of, and the others go on: killing one is what people stay to try."""
    told: set[str] = set()
    with suppress(KeyboardInterrupt):
        while True:
            try:
                stage.check()
            except (ChildError, LocalYarnError) as err:
                text = str(err).partition("\n")[0]
                if text not in told and len(told) < TOLD_MAX:
                    told.add(text)
                    print(f"{text}; the rest stays up", file=out, flush=True)
            time.sleep(POLL_S)


def tell_account(account: Account, more: Mapping[str, Any], out: TextIO) -> None:
    """The closing words."""
    print(file=out)
    print_account(account, out)
    print(f"HTTP       {more['http_url']}", file=out)
    print(f"run        {more['run_dir']}", file=out)
    print(f"picture    {more['picture']}", file=out)
    print(f"took       {more['wall_s']:.0f} s, at most {more['peak_memory_mb']} MB of memory", file=out)
    for problem in account.problems:
        print(f"WRONG      {problem}", file=out)
    for late in account.slow:
        print(f"SLOW       {late}", file=out)
    if not account.problems:
        counted = ", every unit of work was done once" if any(app.counts for app in account.apps) else ""
        print(f"every app finished{counted}, no invariant was broken", file=out)
    out.flush()


def new_run_dir(wanted: Path | None) -> Path:
    """An empty folder of the run's own. Errors: click.ClickException where `wanted` holds something."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    run_dir = (wanted or RUNS_DIR / f"{stamp}-{os.getpid()}").absolute()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        is_empty = not any(run_dir.iterdir())
    except OSError as error:
        raise click.UsageError(f"--dir: {error}") from error
    if not is_empty:
        raise click.UsageError(f"--dir: {run_dir} is not empty; name a new folder")
    return run_dir


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--keep", "is_kept", is_flag=True, help="Stay up until Ctrl-C.")
@click.option("--dir", "wanted", type=click.Path(path_type=Path), help="Folder of the run; without: a new one in .run.")
@click.option("--json", "is_json", is_flag=True, help="One JSON document on stdout, everything else on stderr.")
@click.option("--simulated", "is_simulated", is_flag=True, help="The simulated cluster, even where YARN could run.")
def command(wanted: Path | None, *, is_kept: bool, is_json: bool, is_simulated: bool) -> int:
    """A local cluster with the arbiter and sample apps, from start to a closing account."""
    return run_once(new_run_dir(wanted), is_kept=is_kept, is_json=is_json, is_simulated=is_simulated)


def main() -> int:
    """Run the command line; the exit status."""
    try:
        with ends_on_signals():
            return int(command.main(standalone_mode=False, prog_name="make run") or DONE)
    except click.UsageError as error:
        print(f"run: {error.format_message()}", file=sys.stderr)
        return WRONG_USE
    except (KeyboardInterrupt, click.Abort):
        print("run: ended by a signal; everything was stopped", file=sys.stderr)
        return INTERRUPTED
    except (StageError, ChildError, LocalYarnError, NotSo, RunFailedError, JournalFormatError, OSError, ValueError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"run: {text}", file=sys.stderr)
        return NOT_SO


if __name__ == "__main__":
    sys.exit(main())
