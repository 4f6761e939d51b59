"""A run that is told to stop: what happens to it, and whether it ended."""

from __future__ import annotations

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import GRACE_S_DEFAULT, TAKE_BACK_S
from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.errors import NotFound
from bedrockjobs.cli.follow import WAIT_MS, Pace
from bedrockjobs.cli.output import Record, text_of, write_one
from bedrockjobs.cli.session import TIMED_OUT, Refusal, Session, built
from bedrockjobs.cli.time_text import local_text
from bedrockjobs.commands import QueryJob, ReadOutput

MARGIN_S = 2.0 * TAKE_BACK_S
"""Time beyond the grace that a run is waited for: by then the server has taken it back from a mute worker."""

AFTER_ALL = 2**53 - 1
"""Number of a line that no run reaches: who reads after it waits for the end alone."""


def stop_told(session: Session, job_id: str, run_id: str, *, wait: bool) -> None:
    """Say that a run is being stopped and, with ``wait``, how it ended; exit status 124 where it did not."""
    grace = _grace(session, job_id)
    how = f"it gets SIGTERM, and SIGKILL after {duration_text(grace)}"
    tells = f"`bedrockjobs run show {run_id}` tells how it ends"
    record: Record = {"jobID": int(job_id), "outcome": "stopping", "runID": int(run_id)}
    if not wait:
        said = f"Stopping run {run_id} of job {job_id}: {how}; {tells}."
        write_one(record, session.form, said)
        return
    click.echo(f"Stopping run {run_id} of job {job_id}: {how}.", err=True)
    clock = SystemClock()
    begun = clock.monotonic()
    status = _ended(session, run_id, grace + MARGIN_S)
    spent = duration_text(round(clock.monotonic() - begun, 1))
    if not status:
        said = f"Run {run_id} has not ended after {spent}; {tells}."
        write_one(record, session.form, said)
        click.get_current_context().exit(TIMED_OUT)
    record = {**record, "outcome": "cancelled", "status": status}
    write_one(record, session.form, f"Run {run_id} ended after {spent}: {status}. {_left(session, job_id)}")


def _grace(session: Session, job_id: str) -> float:
    try:
        return float(text_of(session.record(built(QueryJob, {"jobID": job_id})), "grace") or GRACE_S_DEFAULT)
    except Refusal as refusal:
        if not isinstance(refusal.error, NotFound):
            raise
        return GRACE_S_DEFAULT  # it has ended, and the job with it


def _ended(session: Session, run_id: str, most_s: float) -> str:
    """Return the status that a run ended with; empty where it did not within this time."""
    clock, pace = SystemClock(), Pace()
    deadline = clock.monotonic() + most_s
    while True:
        left_ms = max(round((deadline - clock.monotonic()) * 1000), 0)
        asked = {**pace.asking(), "timeout": min(left_ms, WAIT_MS)}
        reply = session.record(built(ReadOutput, {"runID": run_id, "after": AFTER_ALL, "limit": 1, **asked}))
        if reply["ended"] == "true":
            return text_of(reply, "status")
        if clock.monotonic() >= deadline:
            return ""
        pace.answered(something=False)


def _left(session: Session, job_id: str) -> str:
    """Return what became of the job."""
    try:
        job = session.record(built(QueryJob, {"jobID": job_id}))
    except Refusal as refusal:
        if not isinstance(refusal.error, NotFound):
            raise
        return f"Job {job_id} is deleted."
    state, next_run = text_of(job, "state"), text_of(job, "nextRun")
    when = f" for its next run, {local_text(next_run)}" if state == "QUEUED" and next_run else ""
    return f"Job {job_id} is {state}{when}."
