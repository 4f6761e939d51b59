"""How a client finds out that a job has ended, and how. No I/O: it says what to ask, and is told the answer.

A job that ended well is deleted and its run stays, so both are asked for. While a run goes on the server
tells its end at once; until somebody takes the job it is looked at again and again, at the most each second.
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
"""The longest time between two looks at a job that nobody has taken yet: nobody is told of that."""

LOOKS_FOR_RUN_MAX = 4
"""Looks for the run of a job that is gone; a server may read from a standby that is a moment behind."""

WARN_AFTER_S = 5.0
"""Time after which somebody who waits is warned of a job that no live worker takes."""

GENERATIONS_MAX = 100
"""Parents above a job that are looked at: deeper families are not made by hand."""

KEEP_LONGER = "a result is kept as long as the job's keep says: f.using(keep='1d').enqueue(...)"
"""What to do if nothing is left of a job."""

ENDED = ("FAILED", "CANCELLED", "FINISHED")
"""States of jobs that have ended."""

WAIT_MS = min(30_000, WAIT_MS_MAX)
"""Time that one request waits for the end of a run: below what most proxies and firewalls cut."""

Asked = Command[Any] | float
"""A command to be sent, or seconds to pause."""
Told = Reply | CommandError | float
"""Its reply or its refusal; after a pause nothing that counts."""


class OwnRun(NamedTuple):
    """The run in which this process is, if it is in one."""

    job_id: int
    run_id: int


def own_run() -> OwnRun | None:
    """Return the run that the environment tells of; None outside of a run."""
    try:
        return OwnRun(int(os.environ["BEDROCK_JOB_ID"]), int(os.environ["BEDROCK_RUN_ID"]))
    except (KeyError, ValueError):
        return None


Asking = Generator[Asked, tuple[Told, float], RunReply]


def end_of_job(job_id: int, seconds: float | None, own: OwnRun | None = None) -> Asking:
    """Ask until a job has ended, and return its last run.

    What is yielded is to be sent, or a pause to be made; then the answer comes in, with the seconds that have
    passed since the beginning. Raises JobFailed, NoResult, WaitNeverEnds if it waits for the run ``own``, and
    JobNotEnded after ``seconds``; None: never. Warns of a job that nobody takes.
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
    """Raise WaitNeverEnds for a job that cannot end before our run does: its family, or what needs its lock.

    What cannot be found out, such as for want of rights, refuses nothing.
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
    """Warn of a job that nobody takes."""
    for waits in told.waits_for:
        if waits.reason in ("no worker", "own command"):
            words = f"job {told.job_id} ({told.name}) is waited for, but no live worker takes it"
            warnings.warn(f"{words}: {waits.detail}", NoWorkerTakes, stacklevel=2)
            return


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
        return job.state in ENDED
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
