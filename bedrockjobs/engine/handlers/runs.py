"""Runs: opened by a take that names a worker, closed at their end, and deleted by DeleteRuns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices, yield_to_loop
from bedrockjobs.base.clock import after_seconds, moment_of
from bedrockjobs.base.config import (
    GRACE_S_DEFAULT,
    HISTORY_DEFAULT,
    JOB_ID_MAX,
    LEASE_S_DEFAULT,
    RUN_BYTES_DELETED_AT_ONCE,
    RUNS_DELETED_AT_ONCE_MAX,
    SLICE,
)
from bedrockjobs.base.errors import BadArguments, WrongState, shortened
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.jsontext import without_zeros
from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import DeleteRuns
from bedrockjobs.engine.events import OutputChanged, RunEnded, RunForgotten, RunOpened, RunStopped
from bedrockjobs.engine.handlers import families, graph, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.job.rows import Job, RunGiven, RunHead, RunRow
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import AccessPlan

TIMED_OUT = " timeout"
"""Suffix of a stop signal that was sent because of a timeout."""

BY_STOP = {"": "fail", "TERM": "terminated", "KILL": "killed"}
"""Status of a failed run by the signal that its worker was asked to send."""


def value_or(value: int | None, default: int) -> int:
    """Return the value of an option, or its default if it is not set."""
    return default if value is None else value


def open_run(context: Context, job: Job, request: TakeRequest, data: str) -> None:
    """Open the run of a taken job; ``job`` is its row after the take, ``data`` is sent to the worker."""
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
    lease = value_or(job.options.lease, LEASE_S_DEFAULT) if request.leased else 0
    context.unit.records.open_run(
        RunRow(
            job.run_id,
            job.job_id,
            job.name,
            job.attempt,
            cause,
            scheduled_for,
            context.now_ms,
            lease,
            worker=request.worker,
            host=request.host,
            pid=request.pid,
        ),
        RunGiven(data, job.options_json, job.priority),
    )
    wait_s = (context.moment - moment_of(scheduled_for)).total_seconds()
    context.emit(RunOpened(job.run_id, job.job_id, request.worker, lease, cause, wait_s))


def cause_of(job: Job) -> str:
    """Return the cause of a run that was neither triggered nor a retry."""
    return "schedule" if job.repeat else "queue"


def deadline(context: Context, job: Job, *, supervised: bool) -> str:
    """Return when a run that starts now times out; empty: never.

    ``supervised`` says whether the worker can be asked to stop the run; if not, the grace period is added.
    """
    limit = job.options.run_timeout
    if not limit:
        return ""
    if not supervised:
        limit += value_or(job.options.grace, GRACE_S_DEFAULT)
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
    """Close the current run of a job, if it has one; return its final status.

    If the run failed after a stop signal, the status becomes terminated, killed or timeout.
    """
    records = context.unit.records
    run = records.read_run(job.run_id) if job.run_id else None
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
        output=records.last_lines(run.run_id, value_or(options.output_lines, 10)),  # as Cronken
        kept=kept,
        created=job.created if kept else "",
    )
    records.end_run(
        run,
        keep_success=value_or(options.keep_success, HISTORY_DEFAULT),
        keep_fail=value_or(options.keep_fail, HISTORY_DEFAULT),
    )
    if status in FAILED_STATUSES:
        context.add_failure("run", run.run_id, run.name, run.error)
    families.recheck_limits(context, run.name)
    took_s = (context.moment - moment_of(run.started)).total_seconds()
    context.emit(
        RunEnded(
            run.run_id,
            run.job_id,
            run.name,
            run.attempt,
            run.cause,
            run.worker,
            run.started,
            run.ended,
            status,
            exit_code,
            run.error,
            options.traceparent or "",
            took_s,
        )
    )
    return status


def keep_plain(context: Context, job: Job, exit_code: int | None, result: str) -> None:
    """Store a run for a successful job that must be retained and has no run, as its take named no worker."""
    until = "" if job.run_id or job.mocked else _kept_until(context, job)
    if until:
        context.unit.records.add_ended_run(
            RunRow(
                context.unit.new_run_id(),
                job.job_id,
                job.name,
                job.attempt,
                job.memory.cause or cause_of(job),
                job.next_run,
                job.last_run,
                lease=0,
                ended=context.now_ms,
                status="success",
                exit_code=exit_code,
                result=result,
                kept=until,
                created=job.created,
            ),
            RunGiven(job.data, job.options_json, job.priority),
        )


def _kept_until(context: Context, job: Job) -> str:
    """Return until when a successful run is retained regardless of other limits; empty if not requested."""
    default = 0.0 if job.repeat else context.unit.records.keep_finished_s
    seconds = default if job.options.keep is None else job.options.keep
    return after_seconds(context.now_ms, seconds) if seconds else ""


def undo(context: Context, job: Job) -> None:
    """Delete the current run of a job whose reply could not be delivered, since the run never started."""
    ticks.remove_fired(context, job)
    if job.run_id:
        context.unit.records.delete_run(job.run_id)
        families.recheck_limits(context, job.name)
        context.emit(RunForgotten(job.run_id))


def stop(context: Context, run_id: int, signal: str) -> None:
    """Ask the worker of a run to send it a signal."""
    context.unit.records.stop_run(run_id, signal)
    context.emit(RunStopped(run_id, signal.split()[0]))


def set_progress(context: Context, run_id: int, progress: str) -> None:
    """Store the progress of a run, as JSON text."""
    context.unit.records.set_progress(run_id, progress)
    context.emit(OutputChanged(run_id))


# DeleteRuns: delete the history of runs, for example because it contains a password. One command handles a
# limited number of runs and bytes; its reply says where the next one continues.


REMOVED = "removed"
"""Replaces a text that may contain the text to delete: the detail of an event, or the reason of a workflow's
job."""

EACH = 20
"""Number of runs after which the event loop gets a turn; each run takes a few statements."""


@handles(DeleteRuns, plan=lambda command: AccessPlan(runs=tuple(command.run_ids)))
def delete_runs(context: Context, command: DeleteRuns) -> Answer:
    """Delete matching runs, or list them in a dry run; reply with the position to continue from."""
    _check(command)
    records, text = context.unit.records, command.text
    found: list[RunHead] = []
    heads, running, spent, events = _heads(context, command), 0, 0, 0
    before = heads[-1].run_id if len(heads) == RUNS_DELETED_AT_ONCE_MAX and not command.run_ids else None
    reached = None
    for head in in_slices(heads, EACH):
        if spent >= RUN_BYTES_DELETED_AT_ONCE:
            before = reached
            break
        reached = head.run_id
        if not _is_meant(context, command, head):
            continue
        spent += records.size_of_run(head.run_id)
        if text is not None and not _holds(records.texts_of_run(head.run_id), text):
            continue
        if head.status == "running":
            running += 1
            continue
        found.append(head)
        if not command.dry_run:
            records.erase_run(head.run_id)
            quoting = records.quoting_in_workflow(head.job_id, graph.beginning_behind(head.job_id))
            _forget_in_workflow(context, [head.job_id, *quoting])
    if not command.dry_run:
        events = _remove_details(context, found)
        if before is None:
            if text is not None:
                events += _remove_text(context, text)
                _remove_text_of_workflows(context, text)
            context.unit.wipe_log()
        _record_deletion(context, command, found)
    runs = [
        {
            "runID": head.run_id,
            "jobID": head.job_id,
            "name": head.name,
            "status": head.status,
            "ended": head.ended,
        }
        for head in found
    ]
    return Answer(jsontext.dump({"runs": runs, "running": running, "events": events, "before": before}))


def _check(command: DeleteRuns) -> None:
    filters = (command.name, command.text, command.ended_before)
    if not command.run_ids and all(each is None for each in filters):
        raise BadArguments("Missing runIDs", "expected runIDs, name, text or endedBefore")


def _heads(context: Context, command: DeleteRuns) -> list[RunHead]:
    """Return the next runs to check, newest first; raise WrongState if one of `runIDs` is running."""
    records = context.unit.records
    below = JOB_ID_MAX if command.before is None else command.before
    if not command.run_ids:
        name = command.name if command.name and literal_prefix(command.name) == command.name else None
        return records.runs_below(below, name, RUNS_DELETED_AT_ONCE_MAX)
    heads = []
    for run_id in sorted(set(command.run_ids), reverse=True):
        run = records.read_run(run_id)
        if run is not None and run.status == "running":
            raise WrongState(
                "Run is running", f"runIDs: run {run_id} has not ended; stop it, or wait for its end"
            )
        if run is not None and run_id < below:
            heads.append(RunHead(run_id, run.job_id, run.name, run.status, run.ended))
    return heads


def _is_meant(context: Context, command: DeleteRuns, head: RunHead) -> bool:
    """Return True if the caller may see a run that matches the filters, apart from ``text``."""
    if not context.sees(head.name) or (command.name is not None and not glob(head.name, command.name)):
        return False
    return command.ended_before is None or "" < head.ended < stamped(command.ended_before, context.now_ms)


def _remove_details(context: Context, found: list[RunHead]) -> int:
    """Remove the details of deleted runs' events; return their number."""
    if not found:
        return 0
    records, deleted = context.unit.records, {head.run_id for head in found}
    events = [seq for seq, run_id in records.events_of_runs(min(deleted), max(deleted)) if run_id in deleted]
    for seq in in_slices(events):
        records.put_detail(seq, REMOVED)
    return len(events)


def _remove_text(context: Context, text: str) -> int:
    """Remove the details of all visible events that contain a text; return their number."""
    records = context.unit.records
    count = after = 0
    # Number of events read at once, after which the event loop gets a turn.
    while events := records.events_with_detail(after, 1_000):
        for seq, name, detail in events:
            if text in detail and context.sees(name):
                records.put_detail(seq, REMOVED)
                count += 1
        after = events[-1][0]
        yield_to_loop()
    return count


def _forget_in_workflow(context: Context, job_ids: Sequence[int]) -> None:
    """Remove the results and reasons that workflows keep of some jobs, and the errors of cancelled ones."""
    for job_id in in_slices(job_ids, EACH):
        context.unit.records.forget_in_workflow(job_id, REMOVED)
    for first in range(0, len(job_ids), SLICE):
        for job in in_slices(context.unit.several(job_ids[first : first + SLICE]), EACH):
            if job.state == "CANCELLED" and job.memory.error:
                context.unit.save(job.noting(error=REMOVED))


def _remove_text_of_workflows(context: Context, text: str) -> None:
    """Remove the result and the reason that a workflow keeps of a job, if one of them contains the text and
    the caller may see the job."""
    after = 0
    while rows := context.unit.records.texts_of_workflows(after, EACH):
        _forget_in_workflow(
            context,
            [
                job_id
                for job_id, name, reason, result in rows
                if context.sees(name) and _holds(iter((reason, result)), text)
            ],
        )
        after = rows[-1][0]
        yield_to_loop()


def _record_deletion(context: Context, command: DeleteRuns, found: list[RunHead]) -> None:
    """Record an event about the deletion, without any content of the runs."""
    if not found:
        return
    names, jobs = {head.name for head in found}, {head.job_id for head in found}
    context.note(
        "runs deleted",
        name=names.pop() if len(names) == 1 else command.name or "",
        job_id=jobs.pop() if len(jobs) == 1 else 0,
        by=command.by,
        detail=f"run {found[0].run_id}" if len(found) == 1 else f"{len(found):,} runs",
    )


def _holds(texts: Iterator[str], text: str) -> bool:
    """Return True if the concatenated texts contain ``text``, also if JSON escapes are used."""
    last = ""
    for each in texts:
        if text in each or text in f"{last}\n{each[: len(text)]}" or _holds_escaped(each, text):
            return True
        last = each[-len(text) :]
        yield_to_loop()
    return False


def _holds_escaped(stored: str, text: str) -> bool:
    r"""Return True if a string in stored JSON contains ``text`` spelled with escapes like ``\u0041``."""
    if "\\" not in stored:
        return False
    try:
        values = [jsontext.parse(stored)]
    except ValueError:
        return False
    return any(text in value for value in _walked(values))


def _walked(values: list[object]) -> Iterator[str]:
    """Yield all strings in nested JSON values, including keys."""
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value
