"""FinishJob, FinishJobs, RetryJob and FailJob: the ends of a run."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import ERROR_CHARS_MAX
from bedrockjobs.base.errors import CommandError, MockMismatch, NotFound, WrongState
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.commands import FailJob, FinishJob, FinishJobs, RetryJob
from bedrockjobs.engine.handlers import families, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.create import is_mock_data, keep_mark
from bedrockjobs.engine.handlers.failing import after_failure
from bedrockjobs.engine.handlers.job_options import ENDED, has_option, placed, with_options
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.handlers.take import MARKS, before_the_take, then_get, then_names
from bedrockjobs.engine.handlers.trigger import after_trigger, has_more, next_run_of
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats

UNDONE: dict[str, str | None] = {"before": None, "overtime": None}
"""What an end takes out of a job's options however it comes."""


@handles(FinishJob)
def finish_job(context: Context, command: FinishJob) -> Answer:
    """End a run well, and take the next job where ``thenGet`` asks for it."""
    then_names(command)
    _finish(context, command.job_id, command.data, command.run_id, command.exit_code)
    return then_get(context, command, command.job_priority)


@handles(FinishJobs)
def finish_jobs(context: Context, command: FinishJobs) -> Answer:
    """Finish each job for itself; answers what became of each."""
    results = []
    for spec in command.jobs:
        code, reason = 200, "OK"
        try:
            _finish(context, spec.job_id, spec.data, spec.run_id, spec.exit_code)
        except CommandError as error:
            code, reason = error.code, error.reason
        results.append(f'{{"jobID":{spec.job_id},"code":{code},"reason":{quoted(reason)}}}')
    return Answer(f'{{"results":[{",".join(results)}]}}')


def _finish(
    context: Context, job_id: int, data: str | None, run_id: int | None, exit_code: int | None
) -> None:
    if run_id is None and (data is None or '"mockRequest"' not in data) and context.tx.delete_plain(job_id):
        return
    row = existing(context, job_id)
    check_run(row, run_id)
    if not lifecycle.allows("finish", row.state) and not row.mocked:
        raise WrongState("Can only retry/finish RUNNING and RUNQUEUED jobs", f"jobID: the job is {row.state}")
    parent = families.live_parent(context, row)
    check_mark(row, data)
    if row.run_id:
        runs.close(context, row, "success", exit_code=exit_code, result=data or "")
    if context.tx.has_children(job_id):
        families.delete_ended_children(context, row)
        if context.tx.has_pending_children(job_id):
            _pause(context, _ended(row, data, exit_code))
            return
    ended = _ended(row, data, exit_code)
    again = None
    if has_more(row):
        again = after_trigger(context, ended)
    elif not _asks_for_deletion(data):
        again = next_run_of(context, ended)
    if again is not None:
        context.tx.save(again._replace(data=_without(again.data, "originalNextRun")))
    elif parent is not None:
        context.tx.save(ended._replace(state="FINISHED"))
        families.resume_parent(context, parent.job_id)
    else:
        context.tx.delete(job_id)


def _ended(row: Job, data: str | None, exit_code: int | None) -> Job:
    """Return the row of a job whose run is over, for one that stays."""
    return row._replace(
        data=_without(row.data if data is None else data, "retryAfterCount"),
        run_id=0,
        expires="",
        options=_options(row.options, exit_code=exit_code),
    )


def _pause(context: Context, row: Job) -> None:
    """Let the children of a parent run; the parent is queued again when the last one has ended."""
    if ticks.is_schedule(row):  # the rest of its run stands for the same tick
        row = with_options(row, {"tick": quoted(ticks.tick_of(row)), "cause": '"schedule"'})
    context.tx.save(placed(row._replace(state="PAUSED", next_run=row.last_run)))
    for child in context.tx.children(row.job_id):
        if lifecycle.allows("parent pauses", child.state):
            context.tx.save(placed(child._replace(state="QUEUED"), context.now_ms))


@handles(RetryJob)
def retry_job(context: Context, command: RetryJob) -> Answer:
    """Queue a running job again, or with ``revive`` a FAILED one."""
    then_names(command)
    row = existing(context, command.job_id)
    check_run(row, command.run_id)
    revived = command.revive and not command.returned and lifecycle.allows("revive", row.state)
    if not revived and not lifecycle.allows("retry", row.state):
        raise WrongState("Can only retry/finish RUNNING and RUNQUEUED jobs", f"jobID: the job is {row.state}")
    families.live_parent(context, row)
    check_mark(row, command.data)
    again = row._replace(
        state="QUEUED",
        run_id=0,
        name=command.name or row.name,
        priority=row.priority if command.job_priority is None else command.job_priority,
        options=_options_again(row, revived=revived, returned=command.returned),
    )
    if command.returned:
        if row.run_id:  # nothing else tells that it was ever there
            context.note("handed back", name=row.name, job_id=row.job_id, run_id=row.run_id)
        runs.undo(context, row)
        again = _as_before_the_take(again, row)
    else:
        status = runs.close(context, row, "fail", error="retried", result=command.data or "")
        if status in ("terminated", "killed", "timeout") or has_option(row, "removed"):
            after_failure(context, again, final=status != "timeout")
            return then_get(context, command, None)
        families.delete_ended_children(context, row)
        again = _next_time(context, again, row, command)
    if command.data is not None:
        again = again._replace(data=_without(command.data, "retryAfterCount"))
    context.tx.save(placed(again))
    return then_get(context, command, None)


def _next_time(context: Context, again: Job, row: Job, command: RetryJob) -> Job:
    """Return the row with the time of its next run: by its repeat, by nextRun, or after a delay."""
    data = _without(row.data, "retryAfterCount")
    if row.repeat and not row.mocked and not command.ignore_repeat:
        following = after_trigger(context, again) if has_more(row) else next_run_of(context, again)
        if following is not None:
            data = _without(data, "originalNextRun")
            if ticks.is_schedule(row):
                return with_options(following, ENDED)._replace(data=data)
            return again._replace(next_run=following.next_run, data=data)
    if ticks.is_schedule(row):
        again = with_options(again, {"tick": quoted(ticks.tick_of(row))})
    found = command.next_run or repeats.later(context.now_ms, (f"+{command.delay or 0} SECONDS",))
    return again._replace(next_run=found or context.now_ms, data=data)


@handles(FailJob)
def fail_job(context: Context, command: FailJob) -> Answer:
    """End a run badly: the job stays, as FAILED."""
    then_names(command)
    row = existing(context, command.job_id)
    check_run(row, command.run_id)
    if not lifecycle.allows("fail", row.state):
        raise WrongState("Can only fail RUNNING or RUNQUEUED jobs", f"jobID: the job is {row.state}")
    data = row.data if command.data is None else keep_mark(command.data, row)
    options = _options(row.options, error=command.error, exit_code=command.exit_code, keep=True)
    error = command.error or ""
    status = runs.close(
        context, row, "fail", error=error, exit_code=command.exit_code, result=command.data or ""
    )
    failed = row._replace(data=data, options=options, expires="")
    after_failure(context, failed, final=command.final or status in ("terminated", "killed"))
    return then_get(context, command, command.job_priority)


def existing(context: Context, job_id: int) -> Job:
    """Return a job; raises NotFound."""
    row = context.tx.job(job_id)
    if row is None:
        raise NotFound("No job with this jobID", f"jobID: there is no job {job_id}")
    return row


def check_run(row: Job, run_id: int | None) -> None:
    """Refuse whoever speaks for a run that is over: a late worker must not end its successor's run."""
    if run_id is not None and run_id != row.run_id:
        raise WrongState("Run is over", f"runID: run {run_id} is not the current run of job {row.job_id}")


def check_mark(row: Job, data: str | None) -> None:
    """Refuse data of a mocked job for a real one, and the reverse."""
    if data is not None and is_mock_data(data) != row.mocked:
        raise MockMismatch(
            "Mock Mismatch", f"data: mockRequest must {'be' if row.mocked else 'not be'} in it, as in the job"
        )


def _asks_for_deletion(data: str | None) -> bool:
    return data is not None and '"delete"' in data and jsontext.members(data).get("delete") == "true"


def _without(data: str, mark: str) -> str:
    """Return data without one of the marks that a retryAfter job carries in it."""
    return jsontext.with_members(data, {mark: None}) if f'"{mark}"' in data else data


def _as_before_the_take(again: Job, taken: Job) -> Job:
    """Return the row as the take found it, with what was changed since."""
    before = before_the_take(taken)
    data = taken.data
    if taken.retry_after and any(f'"{mark}"' in data for mark in MARKS):
        present = [mark for mark in MARKS if mark in jsontext.members(data)]
        data = jsontext.with_members(data, {mark: before.get(mark) for mark in present})
    return again._replace(
        next_run=str(jsontext.parse(before["nextRun"])),
        last_run=str(jsontext.parse(before["lastRun"])),
        attempt=taken.attempt - 1,
        data=data,
    )


def _options_again(row: Job, *, revived: bool, returned: bool) -> str:
    """Return the options of a job that is queued again: its next run is another try."""
    if returned:
        return row.options if row.options == "{}" else jsontext.with_members(row.options, UNDONE)
    another_try = {"cause": '"retry"'} if row.run_id or revived or ticks.is_schedule(row) else {}
    forgotten = {**UNDONE, "error": None, "exitCode": None, **(ENDED if revived else {})}
    if row.options == "{}" and not another_try:
        return row.options
    return jsontext.with_members(row.options, {**forgotten, **another_try})


def _options(
    options: str, *, error: str | None = None, exit_code: int | None = None, keep: bool = False
) -> str:
    """Return a job's options with what the last end left behind replaced.

    With ``keep`` it is kept how often the job failed.
    """
    if options == "{}" and error is None and exit_code is None:
        return options
    changes: dict[str, str | None] = {
        **UNDONE,
        "error": None if error is None else quoted(error[:ERROR_CHARS_MAX]),
        "exitCode": None if exit_code is None else str(exit_code),
    }
    if not keep:
        changes |= ENDED
    return jsontext.with_members(options, changes)
