"""How a client finds out that a job has ended, and how. No I/O: it says what to ask, and is told the answer.

A job that ended well is deleted and its run stays, so both are asked for. While a run goes on the server
tells its end at once; until somebody takes the job it is looked at again and again, at the most each second.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from bedrockjobs.base.config import WAIT_MS_MAX, WHOLE_MAX
from bedrockjobs.base.errors import CommandError, JobFailed, JobNotEnded, NoResult, NotFound
from bedrockjobs.client.tries import backoff_s
from bedrockjobs.commands import (
    Command,
    JobReply,
    ListRuns,
    OutputReply,
    QueryJob,
    ReadOutput,
    Reply,
    RunReply,
    RunsReply,
)

LOOK_S_MAX = 1.0
"""The longest time between two looks at a job that nobody has taken yet: nobody is told of that."""

LOOKS_FOR_RUN_MAX = 4
"""Looks for the run of a job that is gone; a server may read from a standby that is a moment behind."""

WAIT_MS = min(30_000, WAIT_MS_MAX)
"""Time that one request waits for the end of a run: below what most proxies and firewalls cut."""

Asked = Command[Any] | float
"""A command to be sent, or seconds to pause."""
Told = Reply | CommandError | float
"""Its reply or its refusal; after a pause nothing that counts."""


def end_of_job(job_id: int, seconds: float | None) -> Generator[Asked, tuple[Told, float], RunReply]:
    """Ask until a job has ended, and return its last run.

    What is yielded is to be sent, or a pause to be made; then the answer comes in, with the seconds that have
    passed since the beginning. Raises JobFailed, NoResult, and JobNotEnded after ``seconds``; None: never.
    """
    looks = gone = 0
    while True:
        told, passed = yield QueryJob(job_id=job_id)
        job = _unless_gone(told)
        told, passed = yield ListRuns(job_id=job_id, limit=1)
        run = _first(told)
        if _is_over(job, run):
            return _ended(job_id, job, run)
        left = None if seconds is None else seconds - passed
        over = left is not None and left <= 0
        gone += job is None
        if gone >= LOOKS_FOR_RUN_MAX or (over and job is None and run is None):
            raise NoResult(f"job {job_id}: it is gone, and no run of it says how it ended")
        if over:
            state = "its run is not over" if job is None else job.state
            raise JobNotEnded(f"job {job_id} has not ended within {seconds:g} s: {state}")
        if run is not None and run.status == "running" and job is not None:
            wait_ms = WAIT_MS if left is None else min(WAIT_MS, int(left * 1000) + 1)
            told, passed = yield ReadOutput(
                run_id=run.run_id, after=WHOLE_MAX, connection="wait", timeout=wait_ms
            )
            if isinstance(told, OutputReply) and told.ended:
                continue
        looks += 1
        pause = min(backoff_s(looks), LOOK_S_MAX)
        yield pause if left is None else min(pause, left)


def _unless_gone(told: Told) -> JobReply | None:
    """Return the job; raises any other refusal than that it is gone."""
    if isinstance(told, CommandError) and not isinstance(told, NotFound):
        raise told
    return told if isinstance(told, JobReply) else None


def _first(told: Told) -> RunReply | None:
    if isinstance(told, CommandError):
        raise told
    assert isinstance(told, RunsReply)
    return told.runs[0] if told.runs else None


def _is_over(job: JobReply | None, run: RunReply | None) -> bool:
    """Tell whether a job has ended; what has ended without a run too, but for what is gone."""
    if job is not None:
        return job.state in ("FAILED", "CANCELLED", "FINISHED")
    return run is not None and run.status != "running"


def _ended(job_id: int, job: JobReply | None, run: RunReply | None) -> RunReply:
    """Return the run of a job that ended well; raises JobFailed."""
    run_id = None if run is None else run.run_id
    if job is not None and job.state != "FINISHED" and (run is None or run.status == "success"):
        raise JobFailed(job_id, "fail" if job.state == "FAILED" else "cancelled", job.error or "", run_id)
    if run is None:
        raise NoResult(f"job {job_id}: it was taken by no worker with a name, so nothing is kept of its run")
    if run.status != "success":
        raise JobFailed(job_id, run.status, run.error, run_id)
    return run
