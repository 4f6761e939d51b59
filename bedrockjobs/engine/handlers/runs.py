"""Runs: opened by a take that names its worker, closed by every end. What follows is decided elsewhere."""

from __future__ import annotations

from bedrockjobs.base.config import (
    GRACE_S_DEFAULT,
    HISTORY_DEFAULT,
    LEASE_S_DEFAULT,
    OUTPUT_TAIL_DEFAULT,
)
from bedrockjobs.base.failure_text import fingerprint_of, shortened
from bedrockjobs.base.jsontext import without_zeros
from bedrockjobs.base.statuses import FAILED_STATUSES
from bedrockjobs.base.wire import after_seconds, moment_of
from bedrockjobs.engine.events import OutputChanged, RunEnded, RunForgotten, RunOpened, RunStopped
from bedrockjobs.engine.handlers import running, ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.rows import Job, RunGiven, RunRow
from bedrockjobs.job.take_request import TakeRequest

TIMED_OUT = " timeout"
"""What a stop ends with that no person asked for."""

BY_STOP = {"": "fail", "TERM": "terminated", "KILL": "killed"}
"""How a run ended that its worker calls failed, by what it was told to do."""


def given(value: int | None, default: int) -> int:
    """Return an option, or what counts where it was left out."""
    return default if value is None else value


def open_run(context: Context, job: Job, request: TakeRequest, data: str) -> None:
    """Open the run of a job that was just taken; the job as its take leaves it, and the data that is sent."""
    assert request.worker is not None
    memory = job.memory
    if memory.trigger is not None:
        cause, scheduled_for = "manual", context.now
    else:
        cause, scheduled_for = memory.cause or cause_of(job), job.next_run
        if job.retry_after:
            scheduled_for = context.now
        elif ticks.is_schedule(job):
            scheduled_for = ticks.tick_of(job)
    lease = given(job.options.lease, LEASE_S_DEFAULT) if request.leased else 0
    context.unit.records.open_run(
        RunRow(
            job.run_id, job.job_id, job.name, job.attempt, cause, scheduled_for, context.now_ms, lease, "",
            request.worker, request.host, request.pid, "", "running", None, "", "", "", "[]",
        ),
        RunGiven(data, job.options_json, job.priority),
    )  # fmt: skip
    wait_s = (context.moment - moment_of(scheduled_for)).total_seconds()
    context.emit(RunOpened(job.run_id, job.job_id, request.worker, lease, cause, wait_s))


def cause_of(job: Job) -> str:
    """Return why a job is taken that neither a person nor a run before it caused."""
    return "schedule" if job.repeat else "queue"


def deadline(context: Context, job: Job, *, supervised: bool) -> str:
    """Return when a run that begins now is over its time; without a worker to tell, when it is taken back."""
    limit = job.options.run_timeout
    if not limit:
        return ""
    if not supervised:
        limit += given(job.options.grace, GRACE_S_DEFAULT)
    return after_seconds(context.now_ms, limit)


def close(
    context: Context,
    job: Job,
    status: str,
    *,
    error: str = "",
    exit_code: int | None = None,
    result: str = "",
) -> str:
    """Close the current run of a job, if it has one; return the status it got.

    What is no success becomes what the run was told to do: terminated, killed, or over its time.
    """
    records = context.unit.records
    run = records.run(job.run_id) if job.run_id else None
    if run is None or run.status != "running":
        return status
    if status in (*FAILED_STATUSES, "snoozed"):
        if run.stop.endswith(TIMED_OUT):
            status = "timeout"
        elif run.stop:
            status = BY_STOP[run.stop]
    options = job.options
    kept = _kept_until(context, job) if status == "success" else ""
    run = run._replace(
        status=status,
        ended=context.now_ms,
        error=without_zeros(shortened(error)),
        exit_code=exit_code,
        result=result,
        output=records.last_lines(run.run_id, given(options.output_lines, OUTPUT_TAIL_DEFAULT)),
        kept=kept,
        created=job.created if kept else "",
    )
    records.end_run(
        run,
        keep_success=given(options.keep_success, HISTORY_DEFAULT),
        keep_fail=given(options.keep_fail, HISTORY_DEFAULT),
    )
    if status in FAILED_STATUSES:
        records.put_fingerprint("run", run.run_id, fingerprint_of(run.error))
    running.went_on(context, run.name)
    took_s = (context.moment - moment_of(run.started)).total_seconds()
    context.emit(
        RunEnded(
            run.run_id, run.job_id, run.name, run.attempt, run.cause, run.worker, run.started, run.ended,
            status, exit_code, run.error, options.traceparent or "", took_s,
        )
    )  # fmt: skip
    return status


def keep_plain(context: Context, job: Job, exit_code: int | None, result: str) -> None:
    """Keep a job that ended well, and has no run as no worker gave its name, where that is wanted."""
    until = "" if job.run_id or job.mocked else _kept_until(context, job)
    if until:
        context.unit.records.add_ended_run(
            RunRow(
                context.unit.new_run_id(), job.job_id, job.name, job.attempt,
                job.memory.cause or cause_of(job), job.next_run, job.last_run, 0, context.now_ms, "", "", 0,
                "", "success", exit_code, "", result, "", "[]", until, job.created,
            ),
            RunGiven(job.data, job.options_json, job.priority),
        )  # fmt: skip


def _kept_until(context: Context, job: Job) -> str:
    """Return until when the run of a job that ends well is kept for sure; empty: no time was asked for."""
    default = 0.0 if job.repeat else context.unit.records.keep_finished_s
    seconds = default if job.options.keep is None else job.options.keep
    return after_seconds(context.now_ms, seconds) if seconds else ""


def undo(context: Context, job: Job) -> None:
    """Remove the current run of a job whose answer reached nobody: it was never begun."""
    ticks.take_back_fired(context, job)
    if job.run_id:
        context.unit.records.delete_run(job.run_id)
        running.went_on(context, job.name)
        context.emit(RunForgotten(job.run_id))


def stop(context: Context, run_id: int, signal: str) -> None:
    """Let a run's worker be told to send a signal."""
    context.unit.records.stop_run(run_id, signal)
    context.emit(RunStopped(run_id, signal.split()[0]))


def set_progress(context: Context, run_id: int, progress: str) -> None:
    """Note how far a run is, as JSON text."""
    context.unit.records.set_progress(run_id, progress)
    context.emit(OutputChanged(run_id))
