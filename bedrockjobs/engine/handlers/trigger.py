"""Runs triggered by hand (TriggerJob, RunAgain), and the job's own next run afterwards.

``Memory.trigger`` holds the job's own nextRun while a triggered run waits or is in progress;
``Memory.pending`` means that a triggered run follows the current one. Nothing here sets a state.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.commands import RunAgain
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.ticks import next_run_of
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, Job, RunGiven, RunRow, is_mock_data
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import AccessPlan

NO_TICKS = "CRON @never"
"""Stands for the former repeat of a job that was not a schedule."""


def triggered(context: Context, job: Job) -> Job:
    """Return a queued job due now for a triggered run; attempts of a schedule restart from zero."""
    attempt = 0 if ticks.is_schedule(job) else job.attempt
    return placed(_with_trigger(job)._replace(next_run=context.now_ms, attempt=attempt))


def _with_trigger(job: Job) -> Job:
    memory = job.memory
    if memory.trigger is not None:  # a retry has already stored its own next run
        return job.noting(cause="")
    own = "" if memory.cause or not job.repeat else job.next_run
    return job.noting(trigger=own, cause="")


def with_repeat(context: Context, before: Job, changed: Job, *, explicit: bool = False) -> Job:
    """Return a job that becomes or was a schedule, planned by its new repeat.

    ``changed`` is the job with its new repeat, ``before`` the job without it; ``explicit`` means that the
    caller sets nextRun. Pending runs are preserved: retries, triggered runs, and a due tick, whether it waits
    for a worker, a lock, its jitter or the end of a pause. A different spelling of the same ticks changes
    nothing. Raises CannotEvaluate.
    """
    was, becomes = ticks.is_schedule(before), ticks.is_schedule(changed)
    if not becomes:
        return changed.noting(formers=(), tick="") if was else changed
    if before.state == "FAILED":
        planned = changed if explicit else with_next_tick(context, changed)
        _skip_failed(context, before, planned)
        return planned
    if was and repeats.same_ticks(before.repeat, changed.repeat):
        return changed
    if explicit and before.state == "QUEUED" and not before.memory.cause:
        return changed.noting(formers=())
    if explicit or has_due_run(context, before):
        return ticks.with_former(context, changed, before.repeat if was else NO_TICKS)
    return with_next_tick(context, changed)


def plan_by_new_rules(context: Context, job: Job) -> None:
    """Plan a queued schedule again if its time zone rules have changed since its tick was planned.

    Raises CannotEvaluate.
    """
    if job.state != "QUEUED" or job.memory.cause or job.memory.trigger == "":
        return
    own = _own_time(job)
    moved = ticks.moved_by_rules(own)
    if moved is None:
        return
    before, tick = ticks.tick_of(own), ticks.next_after(own, after_seconds(moved, -1))
    planned = ticks.with_tick(own, tick)
    if job.memory.trigger is not None:  # the triggered run comes first
        planned = planned.noting(trigger=planned.next_run)._replace(
            next_run=job.next_run, lane=job.lane, expires=job.expires, attempt=job.attempt
        )
    context.unit.save(planned)
    detail = f"from {before} to {tick}: the rules of its time zone have changed"
    context.note("replanned", name=job.name, job_id=job.job_id, detail=detail)


def has_due_run(context: Context, job: Job) -> bool:
    """Return True if the job has a run in progress or to be retried, or is a schedule with a due tick."""
    if job.state != "QUEUED" or job.memory.cause:
        return True
    return ticks.is_schedule(job) and ticks.tick_of(_own_time(job)) <= context.now


def _own_time(job: Job) -> Job:
    """Return a queued job with its own nextRun, disregarding a triggered run."""
    return job._replace(next_run=job.memory.trigger) if job.memory.trigger else job


def _skip_failed(context: Context, before: Job, planned: Job) -> None:
    """Record the tick for which a schedule could not be evaluated as skipped."""
    tick = ticks.tick_of(_own_time(before))
    if before.memory.broken and ticks.is_schedule(before) and tick <= context.now:
        ticks.skip(context, planned, tick, tick, ticks.FAILED)


def with_next_tick(context: Context, job: Job) -> Job:
    """Return a schedule planned for its next tick by a new repeat; a triggered run comes first."""
    asked_for = job.memory.trigger is not None
    own = ticks.with_tick(job, ticks.next_after(job, context.now_ms))._replace(attempt=job.attempt)
    return own.noting(trigger=own.next_run)._replace(next_run=job.next_run) if asked_for else own


def skip_queued(context: Context, job: Job, reason: str) -> None:
    """Record the overdue ticks of a queued schedule as skipped, and plan its next tick."""
    memory = job.memory
    if memory.cause:  # a retry, whose tick is already in the history
        return
    if memory.trigger is None:
        ticks.skip_overdue(context, job, reason)
    elif memory.trigger and ticks.tick_of(own := job._replace(next_run=memory.trigger)) <= context.now:
        own = ticks.after_skipping(context, own, reason)
        back = own.noting(trigger=own.next_run)
        context.unit.save(back._replace(next_run=job.next_run, lane=job.lane))


def after_triggered_run(context: Context, job: Job) -> Job | None:
    """Return a job planned for its next run after a triggered run; None if there is no next run.

    If another triggered run is pending, it is the next run.
    """
    memory = job.memory
    kept = job.remembering(memory.after_end()._replace(trigger=None, pending=False))._replace(expires="")
    own = _own_next_run(context, kept, memory.trigger)
    if memory.pending:
        return triggered(context, kept if own is None else own)
    return own


def _own_next_run(context: Context, job: Job, own: str | None) -> Job | None:
    if not own or not job.repeat:
        return next_run_of(context, job)
    planned = job._replace(next_run=own)
    if not ticks.is_schedule(job):
        return placed(planned)
    return ticks.after_other_run(context, planned._replace(attempt=0))


# RunAgain replays a run.


OF_A_SCHEDULE = ("source", "catchup", "overlap", "maxLate", "jitter", "hosts")
"""Options of a schedule that do not apply to a job that runs once."""


@handles(RunAgain, plan=lambda command: AccessPlan(runs=(command.run_id,), new_jobs=1))
def run_again(context: Context, command: RunAgain) -> Answer:
    """Trigger the schedule of a run, or create a job from the run's input; reply with the jobID."""
    run = context.unit.records.read_run(command.run_id)
    if run is None:
        raise NotFound("No run with this runID", f"runID: there is no run {command.run_id}")
    job = context.unit.job(run.job_id)
    pending = False
    if job is not None and _can_be_triggered(job):
        pending = job.state in lifecycle.WORKING
        if pending:
            context.save(job.noting(pending=True))
        elif job.memory.trigger is None or job.memory.cause:
            context.save(triggered(context, job))
    else:
        job = _new_job_from(context, run, context.unit.records.input_of(run.run_id))
        context.unit.insert(job)
        context.created.append(job.name)
    detail = f"run {run.run_id} again"
    context.note("triggered", name=job.name, job_id=job.job_id, by=command.by, detail=detail)
    return Answer(jsontext.dump({"jobID": job.job_id, "pending": pending}))


def _can_be_triggered(job: Job) -> bool:
    """Return True if a job is an active schedule: RunAgain triggers it, so that its runs do not overlap."""
    return ticks.is_schedule(job) and not job.memory.removed and job.state in ("QUEUED", *lifecycle.WORKING)


def _new_job_from(context: Context, run: RunRow, run_input: RunGiven) -> Job:
    """Return a job that runs once, with the data and options that a run was given."""
    if not run_input.data:
        raise WrongState("Run has no data", f"runID: the input of run {run.run_id} was not stored")
    options = jsontext.with_members(run_input.options_json, dict.fromkeys(OF_A_SCHEDULE))
    return placed(
        Job(
            context.now,
            context.unit.new_job_id(),
            lifecycle.QUICK_CREATE[2],
            run.name,
            context.now_ms,
            data=run_input.data,
            priority=run_input.priority,
            options_json=options,
            lane=MOCK_LANE if is_mock_data(run_input.data) else OPEN_LANE,
        )
    )
