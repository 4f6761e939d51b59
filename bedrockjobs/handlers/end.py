"""FinishJob, FinishJobs, RetryJob and FailJob: the ends of a run."""

from __future__ import annotations

from bedrockjobs import jsontext, lifecycle
from bedrockjobs.commands import FailJob, FinishJob, FinishJobs, RetryJob
from bedrockjobs.config import ERROR_CHARS_MAX
from bedrockjobs.errors import CommandError, NotFound, ServerFault, WrongState
from bedrockjobs.handlers import families
from bedrockjobs.handlers.create import is_mock_data, keep_mark
from bedrockjobs.handlers.take import MARKS, before_the_take, original_next_run, then_get, then_names
from bedrockjobs.handlers.turn import Answer, Turn
from bedrockjobs.jsontext import quoted
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.rows import JobRow


def finish_job(turn: Turn, command: FinishJob) -> Answer:
    """End a run well, and take the next job where ``thenGet`` asks for it."""
    then_names(command)
    _finish(turn, command.job_id, command.data, command.run_id, command.exit_code)
    return then_get(turn, command, command.job_priority)


def finish_jobs(turn: Turn, command: FinishJobs) -> Answer:
    """Finish each job for itself; answers what became of each."""
    results = []
    for spec in command.jobs:
        code, reason = 200, "OK"
        try:
            _finish(turn, spec.job_id, spec.data, spec.run_id, spec.exit_code)
        except CommandError as error:
            code, reason = error.code, error.reason
        results.append(f'{{"jobID":{spec.job_id},"code":{code},"reason":{quoted(reason)}}}')
    return Answer(f'{{"results":[{",".join(results)}]}}')


def _finish(turn: Turn, job_id: int, data: str | None, run_id: int | None, exit_code: int | None) -> None:
    if (data is None or '"mockRequest"' not in data) and turn.tx.delete_plain(job_id, run_id):
        return
    row = existing(turn, job_id)
    check_run(row, run_id)
    if not lifecycle.allows("finish", row.state) and not row.mocked:
        raise WrongState("Can only retry/finish RUNNING and RUNQUEUED jobs", f"jobID: the job is {row.state}")
    parent = families.live_parent(turn, row)
    check_mark(row, data)
    if turn.tx.has_children(job_id):
        families.delete_ended_children(turn, row)
        if turn.tx.has_pending_children(job_id):
            _pause(turn, _ended(row, data, exit_code))
            return
    next_run = None
    if row.repeat and not row.mocked and not _asks_for_deletion(data):
        next_run = next_by_repeat(turn, row)
    if next_run is not None:
        ended = _ended(row, data, exit_code)
        data = _without(ended.data, "originalNextRun")
        turn.tx.save(ended._replace(state="QUEUED", next_run=next_run, data=data))
    elif parent is not None:
        turn.tx.save(_ended(row, data, exit_code)._replace(state="FINISHED"))
        families.resume_parent(turn, parent.job_id)
    else:
        turn.tx.delete(job_id)


def _ended(row: JobRow, data: str | None, exit_code: int | None) -> JobRow:
    """Return the row of a job whose run is over, for one that stays."""
    return row._replace(
        data=_without(row.data if data is None else data, "retryAfterCount"),
        run_id=0,
        options=_options(row.options, exit_code=exit_code),
    )


def _pause(turn: Turn, row: JobRow) -> None:
    """Let the children of a parent run; the parent is queued again when the last one has ended."""
    turn.tx.save(row._replace(state="PAUSED", next_run=row.last_run))
    for child in turn.tx.children(row.job_id):
        if lifecycle.allows("parent pauses", child.state):
            turn.tx.save(child._replace(state="QUEUED"))


def retry_job(turn: Turn, command: RetryJob) -> Answer:
    """Queue a running job again, or with ``revive`` a FAILED one."""
    then_names(command)
    row = existing(turn, command.job_id)
    check_run(row, command.run_id)
    revived = command.revive and not command.returned and lifecycle.allows("revive", row.state)
    if not revived and not lifecycle.allows("retry", row.state):
        raise WrongState("Can only retry/finish RUNNING and RUNQUEUED jobs", f"jobID: the job is {row.state}")
    families.live_parent(turn, row)
    check_mark(row, command.data)
    again = row._replace(
        state="QUEUED",
        run_id=0,
        name=command.name or row.name,
        priority=row.priority if command.job_priority is None else command.job_priority,
        options=_options(row.options),
    )
    if command.returned:
        again = _as_before_the_take(again, row)
    else:
        families.delete_ended_children(turn, row)
        again = _next_time(turn, again, row, command)
    if command.data is not None:
        again = again._replace(data=_without(command.data, "retryAfterCount"))
    turn.tx.save(again)
    return then_get(turn, command, None)


def _next_time(turn: Turn, again: JobRow, row: JobRow, command: RetryJob) -> JobRow:
    """Return the row with the time of its next run: by its repeat, by nextRun, or after a delay."""
    data = _without(row.data, "retryAfterCount")
    if row.repeat and not row.mocked and not command.ignore_repeat:
        found = next_by_repeat(turn, row)
        if found is not None:
            return again._replace(next_run=found, data=_without(data, "originalNextRun"))
    found = command.next_run or repeats.later(turn.now_ms, (f"+{command.delay or 0} SECONDS",))
    return again._replace(next_run=found or turn.now_ms, data=data)


def next_by_repeat(turn: Turn, row: JobRow) -> str | None:
    """Return when a job runs next by its repeat, None where that gives no date."""
    return repeats.next_run(
        row.repeat,
        scheduled=original_next_run(row.data) or row.next_run,
        started=row.last_run,
        finished=turn.now_ms,
        compatibility=turn.compatibility,
    )


def fail_job(turn: Turn, command: FailJob) -> Answer:
    """End a run badly: the job stays, as FAILED."""
    then_names(command)
    row = existing(turn, command.job_id)
    check_run(row, command.run_id)
    if not lifecycle.allows("fail", row.state):
        raise WrongState("Can only fail RUNNING or RUNQUEUED jobs", f"jobID: the job is {row.state}")
    data = row.data if command.data is None else keep_mark(command.data, row)
    options = _options(row.options, error=command.error, exit_code=command.exit_code)
    failed = row._replace(data=data, options=options)
    tick = next_by_repeat(turn, row) if repeats.is_cron(row.repeat) and not row.mocked else None
    if tick is not None:  # a failed run does not end a schedule
        families.cancel_unstarted_children(turn, row)
        turn.tx.save(failed._replace(state="QUEUED", run_id=0, next_run=tick))
    else:
        families.fail_for_good(turn, failed)
    return then_get(turn, command, command.job_priority)


def existing(turn: Turn, job_id: int) -> JobRow:
    """Return a job; raises NotFound."""
    row = turn.tx.job(job_id)
    if row is None:
        raise NotFound("No job with this jobID", f"jobID: there is no job {job_id}")
    return row


def check_run(row: JobRow, run_id: int | None) -> None:
    """Refuse whoever speaks for a run that is over: a late worker must not end its successor's run."""
    if run_id is not None and run_id != row.run_id:
        raise WrongState("Run is over", f"runID: run {run_id} is not the current run of job {row.job_id}")


def check_mark(row: JobRow, data: str | None) -> None:
    """Refuse data of a mocked job for a real one, and the reverse."""
    if data is not None and is_mock_data(data) != row.mocked:
        raise ServerFault(
            "Mock Mismatch", f"data: mockRequest must {'be' if row.mocked else 'not be'} in it, as in the job"
        )


def _asks_for_deletion(data: str | None) -> bool:
    return data is not None and '"delete"' in data and jsontext.members(data).get("delete") == "true"


def _without(data: str, mark: str) -> str:
    """Return data without one of the marks that a retryAfter job carries in it."""
    return jsontext.with_members(data, {mark: None}) if f'"{mark}"' in data else data


def _as_before_the_take(again: JobRow, taken: JobRow) -> JobRow:
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


def _options(options: str, *, error: str | None = None, exit_code: int | None = None) -> str:
    """Return a job's options with what the last end left behind replaced."""
    if options == "{}" and error is None and exit_code is None:
        return options
    changes = {
        "before": None,
        "error": None if error is None else quoted(error[:ERROR_CHARS_MAX]),
        "exitCode": None if exit_code is None else str(exit_code),
    }
    return jsontext.with_members(options, changes)
