"""Waits for the end of a job, without I/O: yields commands and receives their replies.

A job that ended successfully is deleted but its run stays, so both are queried. While a run is in progress
the server reports its end at once; before that, the job is polled at most once a second.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator
from typing import Any, NamedTuple

from bedrockjobs.base.config import WAIT_MS_MAX, WHOLE_MAX
from bedrockjobs.base.errors import (
    CommandError,
    JobFailed,
    JobNotEnded,
    NoResult,
    NotFound,
    NoWorkerTakes,
    WaitNeverEnds,
)
from bedrockjobs.client.tries import backoff_s
from bedrockjobs.commands import (
    Command,
    ExplainJob,
    ExplainReply,
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
"""Max polling interval for a job that has not been taken."""

LOOKS_FOR_RUN_MAX = 4
"""Queries for the run of a deleted job; a server may read from a standby that lags a moment."""

WARN_AFTER_S = 5.0
"""Waiting time after which a warning is issued if no live worker takes the job."""

GENERATIONS_MAX = 100
"""Max ancestors of a job that are checked."""

KEEP_LONGER = "a result is kept as long as the job's keep says: f.using(keep='1d').enqueue(...)"
"""Advice if nothing is left of a job."""

ENDED = ("FAILED", "CANCELLED", "FINISHED")
"""States of jobs that have ended."""

WAIT_MS = min(30_000, WAIT_MS_MAX)
"""Wait of one request for the end of a run: below the timeout of most proxies and firewalls."""

Asked = Command[Any] | float
"""A command to send, or seconds to pause."""
Told = Reply | CommandError | float
"""Its reply or error; ignored after a pause."""


class OwnRun(NamedTuple):
    """The run that this process belongs to."""

    job_id: int
    run_id: int


def own_run() -> OwnRun | None:
    """Return the run named by the environment, or None outside of a run."""
    try:
        return OwnRun(int(os.environ["BEDROCK_JOB_ID"]), int(os.environ["BEDROCK_RUN_ID"]))
    except (KeyError, ValueError):
        return None


Asking = Generator[Asked, tuple[Told, float], RunReply]


def end_of_job(job_id: int, seconds: float | None, own: OwnRun | None = None) -> Asking:
    """Wait until a job has ended, and return its last run.

    Yields a command to send, or a pause; receives the reply and the seconds since the start. Raises
    JobFailed, NoResult, WaitNeverEnds if the job waits for the run ``own``, and JobNotEnded after ``seconds``
    (None: never). Warns if no live worker takes the job.
    """
    looks = gone = 0
    warned = False
    if own is not None and seconds != 0:
        yield from _refuse_deadlock(job_id, own)
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
            raise NoResult(f"job {job_id}: it is gone, and no run of it says how it ended; {KEEP_LONGER}")
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
        if not warned and passed >= WARN_AFTER_S and job is not None and job.state == "QUEUED":
            warned = True
            told, passed = yield ExplainJob(job_id=job_id)
            if isinstance(told, ExplainReply):
                _warn(told)
        looks += 1
        pause = min(backoff_s(looks), LOOK_S_MAX)
        yield pause if left is None else min(pause, left)


def _refuse_deadlock(job_id: int, own: OwnRun) -> Generator[Asked, tuple[Told, float], None]:
    """Raise WaitNeverEnds if a job cannot end before our run: an ancestor, or a job that needs its lock.

    Information that is unavailable, for example forbidden, is ignored.
    """
    runs, _ = yield ListRuns(job_id=own.job_id, limit=1)
    run = runs.runs[0] if isinstance(runs, RunsReply) and runs.runs else None
    if run is None or (run.run_id, run.status) != (own.run_id, "running"):  # it is a run of another server
        return
    mine, _ = yield QueryJob(job_id=own.job_id)
    if not isinstance(mine, JobReply):
        return
    if job_id == own.job_id:
        raise WaitNeverEnds(f"job {job_id}: a run cannot wait for the end of its own job")
    other, _ = yield QueryJob(job_id=job_id)
    if not isinstance(other, JobReply) or other.state in ENDED:
        return
    if mine.lock and mine.lock == other.lock and other.state not in ("RUNNING", "RUNQUEUED"):
        words = f"it needs the lock {mine.lock}, which this run of job {own.job_id} holds until its end"
        raise WaitNeverEnds(f"job {job_id}: {words}")
    for first, last, words in (
        (other, own.job_id, f"it is a child of job {own.job_id}, and starts when this run of it has ended"),
        (mine, job_id, f"its child, job {own.job_id}, waits for it, and has to end first"),
    ):
        parent_id, generations = first.parent_job_id, 0
        while parent_id and generations < GENERATIONS_MAX:
            if parent_id == last:
                raise WaitNeverEnds(f"job {job_id}: {words}")
            parent, _ = yield QueryJob(job_id=parent_id)
            parent_id = parent.parent_job_id if isinstance(parent, JobReply) else None
            generations += 1


def _warn(told: ExplainReply) -> None:
    """Warn that nobody takes a job."""
    for waits in told.waits_for:
        if waits.reason in ("no worker", "own command"):
            words = f"job {told.job_id} ({told.name}) is waited for, but no live worker takes it"
            warnings.warn(f"{words}: {waits.detail}", NoWorkerTakes, stacklevel=2)
            return


def _unless_gone(told: Told) -> JobReply | None:
    """Return the job, or None if it is gone; raises other errors."""
    if isinstance(told, CommandError) and not isinstance(told, NotFound):
        raise told
    return told if isinstance(told, JobReply) else None


def _first(told: Told) -> RunReply | None:
    if isinstance(told, CommandError):
        raise told
    assert isinstance(told, RunsReply)
    return told.runs[0] if told.runs else None


def _is_over(job: JobReply | None, run: RunReply | None) -> bool:
    """Return whether a job has ended, also without a run."""
    if job is not None:
        return job.state in ENDED
    return run is not None and run.status != "running"


def _ended(job_id: int, job: JobReply | None, run: RunReply | None) -> RunReply:
    """Return the run of a successful job; raises JobFailed."""
    run_id = None if run is None else run.run_id
    if job is not None and job.state != "FINISHED" and (run is None or run.status == "success"):
        raise JobFailed(job_id, "fail" if job.state == "FAILED" else "cancelled", job.error or "", run_id)
    if run is None:
        raise NoResult(f"job {job_id}: it was taken by no worker with a name, so nothing is kept of its run")
    if run.status != "success":
        raise JobFailed(job_id, run.status, run.error, run_id)
    return run
