"""The driver of the sample training app: the Python child of the thin application master.

    python -m themis_arbiter.agent.training --steps 200 --step-ms 200 --max-containers 3 --dir DIR
    python -m themis_arbiter.agent.training --steps 100 --step-ms 200 --gang 4 --dir DIR

The shell around job.py: carries YARN's and the tasks' news to the machine and performs its effects. The job's folder
holds job.json (what was asked for), checkpoint.json, tasks/*.jsonl and, at the end, result.json. A second attempt of
the application goes on from there.
"""

import argparse
import json
import os
import queue
import secrets
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from py4j.protocol import Py4JError

import themis_arbiter
from themis_arbiter.agent import yarn_am
from themis_arbiter.agent.crew import Crew
from themis_arbiter.agent.job import Counters, JobPlan, TrainingJob
from themis_arbiter.agent.job_events import (
    AskContainer,
    AssignUnit,
    CancelAsk,
    ContainerAllocated,
    ContainerCompleted,
    ContainerStartFailed,
    Disconnect,
    FinishJob,
    JobEffect,
    JobEvent,
    JobStarted,
    LogRead,
    PreemptionNoticed,
    ReadLog,
    ReleaseContainer,
    ReportProgress,
    StartTask,
    StopTask,
    Ticked,
    WriteCheckpoint,
)
from themis_arbiter.agent.steps import StepLedger
from themis_arbiter.agent.tasklog import read_log, read_logs
from themis_arbiter.agent.verify import JOB_FILE, RESULT_FILE
from themis_arbiter.agent.work import expected_sum

CHECKPOINT_FILE: Final = "checkpoint.json"
TOKEN_ENV: Final = "THEMIS_TASK_TOKEN"  # noqa: S105 - the name of a variable
TICK_MS: Final = 200
FAREWELL_MS_MAX: Final = 1_000
EXIT_USAGE: Final = 2
EXIT_MASTER_GONE: Final = 3
EXIT_SHUT_DOWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What each container is asked for, and where its task finds us."""

    gpus: int
    memory_mb: int
    vcores: int
    listen_host: str


def now_ms() -> int:
    """Wall clock, milliseconds."""
    return time.time_ns() // 1_000_000


def write_atomically(path: Path, document: dict[str, Any]) -> None:
    """Replace a file so that a reader, or a crash, sees the old or the new one whole."""
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def open_job(job_dir: Path, plan: JobPlan, steps: int) -> TrainingJob:
    """A new job, or the one in the folder with all that its tasks' logs show done. Raises ValueError, OSError."""
    job_dir.mkdir(parents=True, exist_ok=True)
    wanted = {"steps": steps, "parts": plan.gang}
    job_file = job_dir / JOB_FILE
    if job_file.exists():
        found = json.loads(job_file.read_text())
        if {key: found.get(key) for key in wanted} != wanted:
            raise ValueError(f"{job_dir} holds another job: {found}; give a new --dir")
    else:
        write_atomically(job_file, wanted | {"step_ms": plan.step_ms, "created_ms": now_ms()})
    checkpoint = job_dir / CHECKPOINT_FILE
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        ledger = StepLedger.from_checkpoint(saved, steps, plan.gang)
        job = TrainingJob(plan, ledger, Counters(**saved["counters"]), int(saved["generation"]))
    else:
        ledger = StepLedger(steps, plan.gang)
        job = TrainingJob(plan, ledger)
    for log in read_logs(job_dir):
        for line in log.done:
            job.counters.units_recovered += ledger.adopt(line.unit, line.value)
    return job


class Driver:
    """Performs a job's effects; one thread beside the one that polls the application master."""

    def __init__(self, job: TrainingJob, job_dir: Path, size: Size, master: yarn_am.AmClient) -> None:
        self._job = job
        self._job_dir = job_dir
        self._size = size
        self._master = master
        self._token = secrets.token_hex(16)
        self._crew = Crew(size.listen_host, self._token, now_ms)
        self._news: queue.SimpleQueue[yarn_am.AmEvent | Exception] = queue.SimpleQueue()
        self._stopping = threading.Event()

    def run(self) -> int:
        """Drive the job to its end; the process's exit status."""
        poller = threading.Thread(target=self._poll_master, name="poll-master", daemon=True)
        poller.start()
        events: deque[JobEvent] = deque([JobStarted(at_ms=now_ms())])
        next_tick_ms = now_ms() + TICK_MS
        while True:
            while events:
                for effect in self._job.step(events.popleft()):
                    if isinstance(effect, FinishJob):
                        return self._finish(effect, poller)
                    events.extend(self._perform(effect))
            events.extend(self._crew.wait(max(0, next_tick_ms - now_ms())))
            while not self._news.empty():
                news = self._news.get()
                if isinstance(news, yarn_am.Shutdown | Exception):
                    print(f"training: cannot go on in this attempt: {news}", file=sys.stderr)
                    self._crew.close()
                    return EXIT_SHUT_DOWN
                events.extend(_as_job_events(news))
            if now_ms() >= next_tick_ms:
                next_tick_ms = now_ms() + TICK_MS
                events.append(Ticked(at_ms=now_ms()))

    def _poll_master(self) -> None:
        while not self._stopping.is_set():
            try:
                found = self._master.poll(yarn_am.POLL_MS_MAX)
            except (Py4JError, OSError, ValueError) as err:
                # The driver's own thread has to hear of it and ends the attempt.
                self._news.put(err)
                found = []
                self._stopping.set()
            for each in found:
                self._news.put(each)
            self._crew.wake()

    def _perform(self, effect: JobEffect) -> list[JobEvent]:
        match effect:
            case AskContainer():
                size = self._size
                self._master.ask(effect.request_id, memory_mb=size.memory_mb, vcores=size.vcores, gpus=size.gpus)
            case CancelAsk():
                self._master.cancel(effect.request_id)
            case StartTask():
                self._master.start(effect.container_id, *self._launch(effect))
            case AssignUnit():
                self._crew.assign(effect.container_id, effect.unit, effect.checkpoint)
            case StopTask():
                self._crew.stop(effect.container_id)
            case Disconnect():
                return self._crew.disconnect(effect.container_id)
            case ReleaseContainer():
                self._master.release(effect.container_id)
            case ReadLog():
                done = tuple((line.unit, line.value) for line in read_log(self._job_dir, effect.container_id).done)
                return [LogRead(at_ms=now_ms(), container_id=effect.container_id, done=done)]
            case WriteCheckpoint():
                write_atomically(self._job_dir / CHECKPOINT_FILE, effect.document)
            case ReportProgress():
                self._master.progress(effect.fraction)
            case FinishJob():
                raise AssertionError("the loop handles the end itself")
            case _:
                assert_never(effect)
        return []

    def _launch(self, effect: StartTask) -> tuple[list[str], dict[str, str]]:
        words = [sys.executable, "-S", "-m", "themis_arbiter.agent.task"]
        options = {
            "driver": self._crew.address,
            "token-env": TOKEN_ENV,
            "container": effect.container_id,
            "slot": str(effect.slot),
            "dir": str(self._job_dir),
            "step-ms": str(self._job.plan.step_ms),
        }
        for name, value in options.items():
            words += [f"--{name}", value]
        source = str(Path(themis_arbiter.__file__).resolve().parent.parent)
        return words, {"PYTHONPATH": source, TOKEN_ENV: self._token}

    def _finish(self, effect: FinishJob, poller: threading.Thread) -> int:
        deadline_ms = now_ms() + FAREWELL_MS_MAX
        while self._crew.size and now_ms() < deadline_ms:
            self._crew.wait(50)
        status, reason = "FAILED", effect.reason
        if not reason:
            result = self._result()
            write_atomically(self._job_dir / RESULT_FILE, result)
            if result["is_right"]:
                status, reason = "SUCCEEDED", f"{self._job.ledger.units} units, sum {result['value']}"
            else:
                reason = f"the sum is {result['value']}, not {result['expected']}"
        self._master.finish(status, reason)
        # The poller lets go of the crew's waker before it closes.
        self._stopping.set()
        poller.join(2 * yarn_am.POLL_MS_MAX / 1000)
        self._crew.close()
        return 0

    def _result(self) -> dict[str, Any]:
        ledger, counters = self._job.ledger, self._job.counters
        expected = expected_sum(ledger.steps, ledger.parts)
        return {
            "steps": ledger.steps,
            "parts": ledger.parts,
            "value": ledger.running_sum,
            "expected": expected,
            "is_right": ledger.running_sum == expected,
            "checkpoints": self._job.generation,
            "finished_ms": now_ms(),
            **{name: getattr(counters, name) for name in Counters.__slots__},
            "timeline": [{"at_ms": at_ms, "what": what, "detail": detail} for at_ms, what, detail in self._job.timeline],
        }


def _as_job_events(news: yarn_am.AmEvent) -> list[JobEvent]:
    at_ms = now_ms()
    match news:
        case yarn_am.Allocated():
            return [
                ContainerAllocated(
                    at_ms=at_ms,
                    container_id=news.container_id,
                    request_id=news.allocation_request_id,
                    node=news.node,
                )
            ]
        case yarn_am.StartFailed():
            return [ContainerStartFailed(at_ms=at_ms, container_id=news.container_id, diagnostics=news.diagnostics)]
        case yarn_am.Preempt():
            return [PreemptionNoticed(at_ms=at_ms, container_id=news.container_id)]
        case yarn_am.Completed():
            return [
                ContainerCompleted(
                    at_ms=at_ms,
                    container_id=news.container_id,
                    exit_status=news.exit_status,
                    diagnostics=news.diagnostics,
                )
            ]
        case yarn_am.Started() | yarn_am.Shutdown():
            return []  # a start shows when the task connects; a shutdown never gets here
        case _:
            assert_never(news)


def _watch_standard_input() -> None:
    """The master holds the other end: when it closes, nobody is left who could speak to YARN for us."""
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(EXIT_MASTER_GONE)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; exits with status 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="training", description="A training app that counts its steps.")
    parser.add_argument("--steps", type=int, required=True, help="how many steps the job has")
    parser.add_argument("--step-ms", type=int, required=True, help="how long a task takes for its part of a step")
    parser.add_argument("--gang", type=int, default=1, help="tasks that each step needs at once; 1: elastic")
    parser.add_argument("--max-containers", type=int, help="default: the gang's size")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="units between checkpoints")
    parser.add_argument("--dir", type=Path, required=True, help="the job's folder, which every node can write to")
    parser.add_argument("--gpus-per-container", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, default=128)
    parser.add_argument("--vcores", type=int, default=1)
    parser.add_argument("--gang-wait-ms", type=int, default=10_000, help="how long part of a gang holds idle GPUs")
    parser.add_argument("--failures-max", type=int, default=10, help="exits other than -100 and -102")
    parser.add_argument("--listen-host", default="127.0.0.1", help="where tasks find the driver")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run one attempt of the job; the process's exit status."""
    args = parse(argv)
    try:
        plan = JobPlan(
            gang=args.gang,
            containers_max=args.max_containers or args.gang,
            checkpoint_every=args.checkpoint_every,
            step_ms=args.step_ms,
            gang_wait_ms=args.gang_wait_ms,
            failures_max=args.failures_max,
        )
        job = open_job(args.dir.resolve(), plan, args.steps)
        master = yarn_am.AmClient.from_environment()
    except (ValueError, OSError) as err:
        print(f"training: {err}", file=sys.stderr)
        return EXIT_USAGE
    except KeyError as err:
        print(f"training: {err} is not set: this runs under the application master org.themis.app.Master", file=sys.stderr)
        return EXIT_USAGE
    threading.Thread(target=_watch_standard_input, name="watch-master", daemon=True).start()
    size = Size(gpus=args.gpus_per_container, memory_mb=args.memory_mb, vcores=args.vcores, listen_host=args.listen_host)
    status = Driver(job, args.dir.resolve(), size, master).run()
    master.close()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
