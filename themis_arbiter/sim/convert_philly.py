"""Converter of the Philly job log: a JSON array of jobs, each with its attempts.

A job's gang is that of its longest attempt; its duration is the GPU time of all its attempts over that gang, so that the GPU
time stays what it was where attempts ran on different numbers of GPUs. Attempts without a start or an end (the log's own
authors say that there are some) count for nothing; a job whose last attempt has no end was still running and is left out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from themis_arbiter.sim.convert_rows import (
    NOT_ENDED,
    BadField,
    LeftOut,
    SourceJob,
    StatusRule,
    Tally,
    Unconvertible,
    between,
    checked_gpus,
    checked_name,
    open_text,
    optional_name,
    parsed_moment,
    shown,
)

TEXT_MAX: Final = 1024**3  # characters; the published log has a tenth of that
ATTEMPTS_MAX: Final = 10_000
STATUS: Final = StatusRule(
    column="status",
    completed=frozenset({"pass"}),
    ended=frozenset({"killed", "failed"}),
    not_ended=frozenset({"running", "queued", "waiting"}),
)


def read(path: Path, tally: Tally, *, is_completed_only: bool) -> None:
    """Every job of the log into `tally`. Errors: Unconvertible."""
    has_clock = False
    for line, entry in _entries(path):
        has_clock = has_clock or (isinstance(entry, dict) and "submitted_time" in entry)
        tally.take(path, line, lambda entry=entry: _job(entry, tally, is_completed_only=is_completed_only))  # type: ignore[misc]
    if tally.rows and not has_clock:
        raise Unconvertible(f"{path}: no job has submitted_time; without it nobody knows when a job could have started")


def _entries(path: Path) -> Iterator[tuple[int, Any]]:
    """The array's elements with the lines that they start on."""
    try:
        with open_text(path) as file:
            text = file.read(TEXT_MAX + 1)
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise Unconvertible(f"{path}: cannot be read as UTF-8 text ({error}); get the file again") from error
    if len(text) > TEXT_MAX:
        raise Unconvertible(f"{path}: more than {TEXT_MAX} characters; convert it in parts")
    decoder = json.JSONDecoder()
    at, line = _past_space(text, 0), 1
    if not text.startswith("[", at):
        raise Unconvertible(f"{path}: no JSON array of jobs; name the file cluster_job_log")
    line += text.count("\n", 0, at)
    at += 1
    counted = at
    while True:
        at = _past_space(text, at)
        line, counted = line + text.count("\n", counted, at), at
        if text.startswith("]", at):
            return
        try:
            entry, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise Unconvertible(f"{path}: line {line}: not JSON ({error}); get the file again") from error
        yield line, entry
        at = _past_space(text, end)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith("]", at):
            raise Unconvertible(f"{path}: line {line}: the array is cut off after the job that starts here; get the file again")


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _job(entry: Any, tally: Tally, *, is_completed_only: bool) -> SourceJob:
    if not isinstance(entry, dict):
        raise BadField("(all)", f"{shown(str(entry))} is not a job")
    job_id = checked_name(_text(entry, "jobid"), "jobid")
    submitted_s = parsed_moment(_text(entry, "submitted_time"), "submitted_time")
    attempts = entry.get("attempts")
    if not isinstance(attempts, list) or len(attempts) > ATTEMPTS_MAX or not all(isinstance(a, dict) for a in attempts):
        raise BadField("attempts", f"no list of at most {ATTEMPTS_MAX} attempts")
    STATUS.check(_text(entry, "status"), tally, is_completed_only=is_completed_only)
    if attempts and not _has(attempts[-1], "end_time"):
        raise LeftOut(NOT_ENDED)
    n_gpus, duration_s = _gang_and_time(attempts)
    return SourceJob(
        job_id=job_id,
        submitted_s=submitted_s,
        n_gpus=n_gpus,
        duration_s=duration_s,
        user=optional_name(_text(entry, "user"), "user"),
        queue=optional_name(_text(entry, "vc"), "vc"),
    )


def _gang_and_time(attempts: list[dict[str, Any]]) -> tuple[int, float]:
    """The gang of the longest attempt, and all attempts' GPU time over it, in seconds."""
    runs: list[tuple[float, int]] = []
    for attempt in attempts:
        if _has(attempt, "start_time") and _has(attempt, "end_time"):
            start_s = parsed_moment(_text(attempt, "start_time"), "attempts.start_time")
            end_s = parsed_moment(_text(attempt, "end_time"), "attempts.end_time")
            runs.append((between(start_s, end_s, "attempts.end_time"), _gpu_count(attempt)))
    if not runs:
        raise BadField("attempts", "none with a start and an end; nobody knows how long it ran")
    longest = max(runs)[1]
    gang = checked_gpus(longest, "attempts.detail")
    return gang, sum(run_s * count for run_s, count in runs) / gang


def _gpu_count(attempt: dict[str, Any]) -> int:
    details = attempt.get("detail")
    if not isinstance(details, list):
        raise BadField("attempts.detail", "no list of servers")
    count = 0
    for server in details:
        held = server.get("gpus") if isinstance(server, dict) else None
        if not isinstance(held, list):
            raise BadField("attempts.detail", "a server without its list of GPUs")
        count += len(held)
    return count


def _has(attempt: dict[str, Any], key: str) -> bool:
    return _text(attempt, key).lower() not in {"", "none", "null"}


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key)
    return "" if value is None else str(value).strip()
