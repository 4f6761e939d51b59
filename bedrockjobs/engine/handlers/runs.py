"""Runs: opened by a take that names its worker, closed by every end. What follows is decided elsewhere."""

from __future__ import annotations

from functools import partial

from bedrockjobs.base.config import (
    ERROR_CHARS_MAX,
    GRACE_S_DEFAULT,
    HISTORY_DEFAULT,
    LEASE_S_DEFAULT,
    OUTPUT_TAIL_DEFAULT,
)
from bedrockjobs.base.wire import moment_of
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context, TakeRequest
from bedrockjobs.engine.handlers.job_options import after_seconds, has_option, option, word
from bedrockjobs.engine.workers import OpenRun
from bedrockjobs.job.rows import Job, RunRow
from bedrockjobs.observe.measurements import EndedRun

TIMED_OUT = " timeout"
"""What a stop ends with that no person asked for."""

BY_STOP = {"": "fail", "TERM": "terminated", "KILL": "killed"}
"""How a run ended that its worker calls failed, by what it was told to do."""


def open_run(context: Context, row: Job, request: TakeRequest) -> None:
    """Open the run of a job that was just taken; the row as it is now."""
    assert request.worker is not None
    if has_option(row, "trigger"):
        cause, scheduled_for = "manual", context.now
    else:
        cause, scheduled_for = word(row, "cause", "schedule"), row.next_run
        if row.state == "RUNQUEUED":
            scheduled_for = context.now
        elif ticks.is_schedule(row):
            scheduled_for = ticks.tick_of(row)
    lease = option(row, "lease", LEASE_S_DEFAULT) if request.leased else 0
    context.tx.records.open_run(
        RunRow(
            row.run_id, row.job_id, row.name, row.attempt, cause, scheduled_for, context.now_ms, "",
            request.worker, request.host, request.pid, "running", None, "", "", "", "[]", lease, "",
        )
    )  # fmt: skip
    context.after.append(
        partial(context.presence.opened, OpenRun(row.run_id, row.job_id, request.worker, lease))
    )
    wait_s = (context.moment - moment_of(scheduled_for)).total_seconds()
    context.after.append(partial(context.measurements.started, cause, wait_s))


def deadline(context: Context, row: Job, *, supervised: bool) -> str:
    """Return when a run that begins now is over its time; without a worker to tell, when it is taken back."""
    limit = option(row, "runTimeout", 0)
    if not limit:
        return ""
    if not supervised:
        limit += option(row, "grace", GRACE_S_DEFAULT)
    return after_seconds(context.now_ms, limit)


def close(
    context: Context,
    row: Job,
    status: str,
    *,
    error: str = "",
    exit_code: int | None = None,
    result: str = "",
) -> str:
    """Close the current run of a job, if it has one; return the status it got.

    ``fail`` becomes what the run was told to do: terminated, killed, or over its time.
    """
    run = context.tx.records.run(row.run_id) if row.run_id else None
    if run is None or run.status != "running":
        return status
    if status in ("fail", "frozen"):
        if run.stop.endswith(TIMED_OUT):
            status = "timeout"
        elif run.stop:
            status = BY_STOP[run.stop]
    run = run._replace(
        status=status,
        ended=context.now_ms,
        error=error[:ERROR_CHARS_MAX],
        exit_code=exit_code,
        result=result,
        output=context.tx.records.last_lines(run.run_id, option(row, "outputLines", OUTPUT_TAIL_DEFAULT)),
    )
    context.tx.records.end_run(
        run,
        keep_success=option(row, "keepSuccess", HISTORY_DEFAULT),
        keep_fail=option(row, "keepFail", HISTORY_DEFAULT),
    )
    _forget(context, run.run_id)
    took_s = (context.moment - moment_of(run.started)).total_seconds()
    context.after.append(partial(context.measurements.ended, status, took_s))
    if context.measurements.on_run is not None:
        told = EndedRun(
            run.run_id, run.job_id, run.name, run.attempt, run.cause, run.worker, run.started, run.ended,
            status, exit_code, run.error, word(row, "traceparent", ""),
        )  # fmt: skip
        context.after.append(partial(context.measurements.on_run, told))
    return status


def undo(context: Context, row: Job) -> None:
    """Remove the current run of a job that is handed back as if it had never been taken."""
    ticks.unfired(context, row)
    if row.run_id:
        context.tx.records.delete_run(row.run_id)
        _forget(context, row.run_id)


def _forget(context: Context, run_id: int) -> None:
    context.after.append(partial(context.presence.closed, run_id))
    context.topics.add(("output", run_id))


def stop(context: Context, run_id: int, signal: str) -> None:
    """Let a run's worker be told to send a signal."""
    context.tx.records.stop_run(run_id, signal)
    context.after.append(partial(context.presence.stop, run_id, signal.split()[0]))
