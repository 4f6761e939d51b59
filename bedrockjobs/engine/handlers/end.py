"""FinishJob, FinishJobs, RetryJob and FailJob: the ends of a run."""

from __future__ import annotations

from typing import Literal

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import DATA_CHARS_PER_COMMAND_MAX, UNFIT_MAX
from bedrockjobs.base.errors import CommandError, MockMismatch, NotFound, WrongState, shortened
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import FailJob, FinishJob, FinishJobs, RetryJob
from bedrockjobs.engine.events import JobRetried, RunFailed
from bedrockjobs.engine.handlers import families, graph, runs, ticks
from bedrockjobs.engine.handlers.context import (
    Answer,
    Context,
    handles,
    plan_ending,
    plan_finish,
    plan_finishes,
)
from bedrockjobs.engine.handlers.create import check_amount, refuse_waiting
from bedrockjobs.engine.handlers.failing import after_failure, resume_parent, stop_schedule, stopped
from bedrockjobs.engine.handlers.take import before_the_take, then_get, then_get_jobs, then_names
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, after_triggered_run, next_run_of
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.lifecycle import Transition
from bedrockjobs.job.rows import RETRY_AFTER_KEYS, Job, is_mock_data, keep_mark
from bedrockjobs.schedule import repeat as repeats

RetryEvent = Literal["retry", "revive", "retry mocked"]


@handles(FinishJob, plan=plan_finish)
def finish_job(context: Context, command: FinishJob) -> Answer:
    """Finish a run, and take the next job if ``thenGet`` asks for one."""
    then_names(command)
    _finish(context, command.job_id, command.data, command.run_id, command.exit_code)
    return then_get(context, command, command.job_priority)


@handles(FinishJobs, plan=plan_finishes)
def finish_jobs(context: Context, command: FinishJobs) -> Answer:
    """Finish each job separately, and take the next jobs if ``thenGet`` asks for them."""
    then_names(command)
    results = []
    until = context.unit.chars_read + DATA_CHARS_PER_COMMAND_MAX
    for spec in in_slices(command.jobs):
        code, reason = 200, "OK"
        try:
            check_amount(context, until)
            _finish(context, spec.job_id, spec.data, spec.run_id, spec.exit_code)
        except CommandError as error:
            code, reason = error.code, error.reason
        results.append(f'{{"jobID":{spec.job_id},"code":{code},"reason":{quoted(reason)}}}')
    return then_get_jobs(context, command, f'"results":[{",".join(results)}]')


def _finish(
    context: Context, job_id: int, data: str | None, run_id: int | None, exit_code: int | None
) -> None:
    if run_id is None and (data is None or '"mockRequest"' not in data):
        name = context.unit.delete_plain(job_id)  # lifecycle.QUICK_FINISH
        if name is not None:
            context.finished.append(name)
            return
    job = existing(context, job_id)
    check_run(job, run_id)
    event: Transition = "finish"
    if not lifecycle.allows(event, job.state):
        if not job.mocked or graph.waits(context, job):
            raise _not_running(job)
        event = "finish mocked"
    parent = families.live_parent(context, job)
    check_mark(job, data)
    context.finished.append(job.name)
    if job.run_id:
        runs.close(context, job, "success", exit_code=exit_code, result=data or "")
    if context.unit.has_children(job_id):
        families.delete_reported_children(context, job)
        if context.unit.has_pending_children(job_id):
            _pause(context, _ended(job, data, exit_code, pauses=True), event)
            return
    runs.keep_plain(context, job, exit_code, data or "")
    if job.memory.failed:
        context.note("recovered", name=job.name, job_id=job.job_id, run_id=job.run_id)
    ended = _ended(job, data, exit_code)
    try:
        following = _following(context, job, ended, data)
    except CannotEvaluate as error:
        stop_schedule(context, ended, error)
        return
    if following is not None:
        again = following._replace(data=without(following.data, "originalNextRun"))
        context.save(lifecycle.move(again, event, "runs again"))
    elif parent is not None:
        context.save(lifecycle.move(ended, event, "has parent"))
        resume_parent(context, parent.job_id)
    else:
        context.save(lifecycle.move(ended, event), data or "")


def _following(context: Context, job: Job, ended: Job, data: str | None) -> Job | None:
    """Return a job planned for its next run after a success, or None if there is no next run."""
    if job.memory.has_triggered_run:
        return after_triggered_run(context, ended)
    if not _asks_for_deletion(data):
        return next_run_of(context, ended)
    if job.repeat:
        context.note(
            "deleted",
            name=job.name,
            job_id=job.job_id,
            run_id=job.run_id,
            detail="delete: true in its result",
        )
    return None


def _ended(job: Job, data: str | None, exit_code: int | None, *, pauses: bool = False) -> Job:
    """Return a job without the notes about its ended run; with ``pauses``, a later run continues the work."""
    memory = job.memory.after_run(exit_code=exit_code).after_end()
    if not pauses:
        memory = memory._replace(failed=False)
    elif ticks.is_schedule(job):  # the rest of its run belongs to the same tick
        memory = memory._replace(tick=ticks.tick_of(job), cause="schedule")
    data = without(job.data if data is None else data, "retryAfterCount")
    return job.remembering(memory)._replace(data=data, expires="")


def _pause(context: Context, job: Job, event: Transition) -> None:
    """Pause a parent and start its children; the parent is queued again when its last child has ended."""
    context.save(placed(lifecycle.move(job, event, "children pending", next_run=job.last_run)))
    families.start_children(context, job)


@handles(RetryJob, plan=plan_ending)
def retry_job(context: Context, command: RetryJob) -> Answer:
    """Requeue a running job, or with ``revive`` a FAILED job."""
    then_names(command)
    job = existing(context, command.job_id)
    check_run(job, command.run_id)
    event = _retry_event(context, job, command)
    families.live_parent(context, job)
    check_mark(job, command.data)
    if command.name not in (None, job.name):
        context.check_repeats(job, "name")
    changed = job._replace(
        name=command.name or job.name,
        priority=job.priority if command.job_priority is None else command.job_priority,
    )
    if job.memory.cancelled:
        runs.close(context, job, "fail", error="retried", result=command.data or "")
        stopped(context, changed)
    elif command.is_requeued:
        _requeue(context, job, changed, command)
    elif event != "retry":
        _queue_again(context, job, changed, command, event)
    else:
        status, error = ("snoozed", "") if command.snoozed else ("fail", "retried")
        status = runs.close(
            context, job, status, error=error, exit_code=command.exit_code, result=command.data or ""
        )
        if status in ("terminated", "killed", "timeout") or job.memory.removed:
            after_failure(context, changed.remembering(job.memory.after_run()), final=status != "timeout")
        else:
            if command.snoozed:
                changed = changed._replace(attempt=job.attempt - 1)
            _queue_again(context, job, changed, command, "retry")
            if job.run_id and not command.snoozed:
                context.note("retried", name=job.name, job_id=job.job_id, run_id=job.run_id)
    context.emit(JobRetried(job.name))
    return then_get(context, command, None)


def _retry_event(context: Context, job: Job, command: RetryJob) -> RetryEvent:
    """Return the transition that a RetryJob causes in the job's state; raise WrongState if there is none."""
    if lifecycle.allows("retry", job.state):
        return "retry"
    if not command.is_requeued:  # only a taken job can be requeued
        if lifecycle.allows("revive", job.state) and (command.revive or job.mocked):
            return "revive"
        if job.mocked and not graph.waits(context, job):
            return "retry mocked"
    raise _not_running(job)


def _not_running(job: Job) -> WrongState:
    """Return the error for a command that ends the run of a job without a run."""
    return WrongState("Can only retry/finish RUNNING and RUNQUEUED jobs", f"jobID: the job is {job.state}")


def _requeue(context: Context, job: Job, changed: Job, command: RetryJob) -> None:
    """Requeue a job as if it had not been taken; its run is closed as returned.

    ``changed`` is the job with the changes that the command makes. If the worker is ``unfit`` for the job,
    the job waits so that another worker can take it. After UNFIT_MAX such attempts the job fails.
    """
    unfit = None if command.unfit is None else shortened(command.unfit)
    times = job.memory.unfit + 1
    if unfit is not None and times > UNFIT_MAX:
        error = shortened(f"No worker could run it in {times} tries: {unfit}")
        runs.close(context, job, "fail", error=error, exit_code=command.exit_code)
        notes = job.memory.after_run(error=error, exit_code=command.exit_code)
        after_failure(context, changed.remembering(notes)._replace(expires=""), final=True)
        return
    if job.run_id:
        context.note("handed back", name=job.name, job_id=job.job_id, run_id=job.run_id, detail=unfit or "")
    ticks.remove_fired(context, job)
    runs.close(
        context, job, "returned", error=unfit or "", exit_code=command.exit_code, result=command.data or ""
    )
    back = _as_before_the_take(changed, job)
    if unfit is not None:
        # The first delay is one second, and each further one is twice as long
        delay_s = min(2.0 ** (times - 1), 60)
        tick = ticks.tick_of(back) if ticks.is_schedule(back) else back.memory.tick
        back = back.noting(unfit=times, tick=tick, error=unfit)
        back = back._replace(next_run=after_seconds(context.now_ms, delay_s))
    if command.data is not None:
        back = back._replace(data=without(command.data, "retryAfterCount"))
    context.save(placed(lifecycle.move(back, "return")))


def _queue_again(context: Context, job: Job, changed: Job, command: RetryJob, event: RetryEvent) -> None:
    """Queue a job for another attempt, at a time by its repeat, the command's nextRun or a delay."""
    families.delete_reported_children(context, job)
    revived = event == "revive"
    memory = job.memory.after_run()
    if revived:
        memory = memory.after_end()._replace(broken=False)
    if revived or job.run_id or ticks.is_schedule(job):
        memory = memory._replace(cause="" if job.memory.broken else "retry")
    again = changed.remembering(memory)
    try:
        again = _next_time(context, again, job, command)
    except CannotEvaluate as error:
        if revived:  # it stays FAILED
            raise WrongState("Repeat can not be evaluated", f"repeat: {error}") from None
        stop_schedule(context, again, error)
        return
    if command.data is not None:
        again = again._replace(data=without(command.data, "retryAfterCount"))
    if revived:
        context.unit.records.delete_seen("job", job.job_id)
    context.save(placed(lifecycle.move(again, event)))


def _next_time(context: Context, again: Job, job: Job, command: RetryJob) -> Job:
    """Return a job planned for its next attempt."""
    data = without(job.data, "retryAfterCount")
    if job.memory.broken and ticks.is_schedule(job):
        if job.memory.trigger is None and ticks.tick_of(again) <= context.now:
            return ticks.after_skipping(context, again, ticks.FAILED)
        return ticks.with_tick(again, ticks.next_after(again, context.now_ms))
    if job.repeat and not job.mocked and not command.ignore_repeat:
        following: Job | None
        if job.memory.has_triggered_run:
            following = after_triggered_run(context, again)
        elif job.state == "FAILED" and ticks.is_schedule(job):
            following = ticks.after_run(context, again, ticks.FAILED)
        else:
            following = next_run_of(context, again)
        if following is not None:
            data = without(data, "originalNextRun")
            if ticks.is_schedule(job):
                return following.remembering(following.memory.after_end())._replace(data=data)
            return again._replace(next_run=following.next_run, data=data)
    if ticks.is_schedule(job):
        again = again.noting(tick=ticks.tick_of(job))
    found = stamped(command.next_run, context.now_ms) or repeats.later(
        context.now_ms, (f"+{command.delay or 0} SECONDS",)
    )
    return again._replace(next_run=found or context.now_ms, data=data)


@handles(FailJob, plan=lambda command: plan_ending(command, command.job_priority))
def fail_job(context: Context, command: FailJob) -> Answer:
    """End a run as failed; the job is retried, continues its schedule or becomes FAILED."""
    then_names(command)
    job = existing(context, command.job_id)
    check_run(job, command.run_id)
    if not lifecycle.allows("fail", job.state):
        raise WrongState("Can only fail RUNNING or RUNQUEUED jobs", f"jobID: the job is {job.state}")
    data = job.data if command.data is None else keep_mark(command.data, job)
    error = None if command.error is None else shortened(command.error)
    notes = job.memory.after_run(error=error, exit_code=command.exit_code)
    status = runs.close(
        context,
        job,
        "timeout" if command.timed_out else "fail",
        error=error or "",
        exit_code=command.exit_code,
        result=command.data or "",
    )
    if command.timed_out:
        context.note("timeout", name=job.name, job_id=job.job_id, run_id=job.run_id, detail=error or "")
    failed = job.remembering(notes)._replace(data=data, expires="")
    if job.memory.cancelled:
        stopped(context, failed)
    else:
        final = command.final or status in ("terminated", "killed")
        after_failure(context, failed, final=final, delay_s=command.delay, retries=command.retries)
    context.emit(RunFailed(job.name))
    return then_get(context, command, command.job_priority)


def existing(context: Context, job_id: int) -> Job:
    """Return a job; raise NotFound."""
    job = context.unit.job(job_id)
    if job is None:
        refuse_waiting(context, job_id)
        raise NotFound("No job with this jobID", f"jobID: there is no job {job_id}")
    return job


def check_run(job: Job, run_id: int | None) -> None:
    """Raise WrongState for a run that is over, so that a late worker cannot end a later run."""
    if run_id is not None and run_id != job.run_id:
        raise WrongState("Run is over", f"runID: run {run_id} is not the current run of job {job.job_id}")


def check_mark(job: Job, data: str | None) -> None:
    """Raise MockMismatch for mocked data in a real job, or the reverse."""
    if data is not None and is_mock_data(data) != job.mocked:
        raise MockMismatch(
            "Mock Mismatch", f"data: mockRequest must {'be' if job.mocked else 'not be'} in it, as in the job"
        )


def _asks_for_deletion(data: str | None) -> bool:
    return data is not None and '"delete"' in data and jsontext.members(data).get("delete") == "true"


def without(data: str, mark: str) -> str:
    """Return data without the member ``mark``, one of those that retryAfter adds to it."""
    return jsontext.with_members(data, {mark: None}) if f'"{mark}"' in data else data


def _as_before_the_take(changed: Job, taken: Job) -> Job:
    """Return ``changed`` with the effects of its take undone; ``taken`` is the job as the take left it."""
    before = before_the_take(taken)
    data = taken.data
    if taken.retry_after and any(f'"{key}"' in data for key in RETRY_AFTER_KEYS):
        known = dict(before.data_keys)
        present = [key for key in RETRY_AFTER_KEYS if key in jsontext.members(data)]
        data = jsontext.with_members(data, {key: known.get(key) for key in present})
    takes = taken.memory.takes + (not taken.run_id)
    return changed.noting(before=None, overtime=0, takes=takes)._replace(
        next_run=before.next_run, last_run=before.last_run, attempt=taken.attempt - 1, data=data
    )
