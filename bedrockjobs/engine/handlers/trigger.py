"""A run that somebody asked for (TriggerJob), and the job's own next run, which comes afterwards.

``Memory.trigger`` holds the job's own nextRun while it waits for or does such a run, ``Memory.pending`` says
that such a run is to follow the present one. Nothing here sets a state.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.commands import RunAgain
from bedrockjobs.engine.events import JOB_CREATED
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.ticks import next_run_of
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, Job, RunGiven, RunRow, is_mock_data
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import AccessPlan

NO_TICKS = "CRON @never"
"""What counts as the former repeat of a job that was no schedule."""


def triggered(context: Context, job: Job) -> Job:
    """Return a queued job that runs now, for somebody; a schedule's attempts count anew."""
    attempt = 0 if ticks.is_schedule(job) else job.attempt
    return placed(_asked_for(job)._replace(next_run=context.now_ms, attempt=attempt))


def _asked_for(job: Job) -> Job:
    memory = job.memory
    if memory.trigger is not None:  # it is tried again, and remembers its own next run already
        return job.noting(cause="")
    own = "" if memory.cause or not job.repeat else job.next_run
    return job.noting(trigger=own, cause="")


def with_repeat(context: Context, before: Job, changed: Job, *, explicit: bool = False) -> Job:
    """Return a job that becomes or was a schedule, planned by its new repeat.

    ``changed`` is the job with its new repeat, ``before`` the job as it was; ``explicit`` says that the
    caller sets nextRun. What already waits or runs is not lost: a due tick stays due, whether it waits for a
    worker, a lock, its jitter or the end of a pause; so does a retry, and a run that somebody asked for.
    Another spelling of the same ticks changes nothing. Raises CannotEvaluate.
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
    """Plan a queued schedule anew if the rules of its zone have changed since its tick was planned.

    Raises CannotEvaluate.
    """
    if job.state != "QUEUED" or job.memory.cause or job.memory.trigger == "":
        return
    own = _own(job)
    moved = ticks.moved_by_rules(own)
    if moved is None:
        return
    before, tick = ticks.tick_of(own), ticks.next_after(own, after_seconds(moved, -1))
    planned = ticks.with_tick(own, tick)
    if job.memory.trigger is not None:  # the run that somebody asked for comes first
        planned = planned.noting(trigger=planned.next_run)._replace(
            next_run=job.next_run, lane=job.lane, expires=job.expires, attempt=job.attempt
        )
    context.unit.save(planned)
    detail = f"from {before} to {tick}: the rules of its time zone have changed"
    context.note("planned anew", name=job.name, job_id=job.job_id, detail=detail)


def has_due_run(context: Context, job: Job) -> bool:
    """Tell whether a run is in progress or to be tried again, or a schedule's tick is due."""
    if job.state != "QUEUED" or job.memory.cause:
        return True
    return ticks.is_schedule(job) and ticks.tick_of(_own(job)) <= context.now


def _own(job: Job) -> Job:
    """Return a queued job with the nextRun that it has apart from a run that somebody asked for."""
    return job._replace(next_run=job.memory.trigger) if job.memory.trigger else job


def _skip_failed(context: Context, before: Job, planned: Job) -> None:
    """Enter the tick as skipped for which a schedule could not be evaluated."""
    tick = ticks.tick_of(_own(before))
    if before.memory.broken and ticks.is_schedule(before) and tick <= context.now:
        ticks.skip(context, planned, tick, tick, ticks.FAILED)


def with_next_tick(context: Context, job: Job) -> Job:
    """Return a schedule whose repeat has changed, for its next tick; a run that was asked for comes first."""
    asked_for = job.memory.trigger is not None
    own = ticks.with_tick(job, ticks.next_after(job, context.now_ms))._replace(attempt=job.attempt)
    return own.noting(trigger=own.next_run)._replace(next_run=job.next_run) if asked_for else own


def pass_over(context: Context, job: Job, reason: str) -> None:
    """Enter the overdue ticks of a queued schedule as skipped; it goes on with the next one."""
    memory = job.memory
    if memory.cause:  # it tries a tick again, which has its entry
        return
    if memory.trigger is None:
        ticks.skip_overdue(context, job, reason)
    elif memory.trigger and ticks.tick_of(own := job._replace(next_run=memory.trigger)) <= context.now:
        own = ticks.after_skipping(context, own, reason)
        back = own.noting(trigger=own.next_run)
        context.unit.save(back._replace(next_run=job.next_run, lane=job.lane))


def after_asked_run(context: Context, job: Job) -> Job | None:
    """Return a job after a run that somebody asked for, or before one; None where nothing more comes."""
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


# RunAgain: what a run was given is done once more.


OF_A_SCHEDULE = ("source", "catchup", "overlap", "maxLate", "jitter", "hosts")
"""Options that say nothing of a single run."""


@handles(RunAgain, plan=lambda command: AccessPlan(runs=(command.run_id,), new_jobs=1))
def run_again(context: Context, command: RunAgain) -> Answer:
    """Trigger the schedule of a run, or make a job of what the run was given; answers which job runs."""
    run = context.unit.records.run(command.run_id)
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
        job = _made_anew(context, run, context.unit.records.given_to(run.run_id))
        context.unit.insert(job)
        context.emit(JOB_CREATED)
    detail = f"run {run.run_id} again"
    context.note("triggered", name=job.name, job_id=job.job_id, by=command.by, detail=detail)
    return Answer(jsontext.dump({"jobID": job.job_id, "pending": pending}))


def _can_be_triggered(job: Job) -> bool:
    """Tell whether a job is a schedule that is there: two runs of it are never at work at once."""
    return ticks.is_schedule(job) and not job.memory.removed and job.state in ("QUEUED", *lifecycle.WORKING)


def _made_anew(context: Context, run: RunRow, given: RunGiven) -> Job:
    """Return a job that runs once, of what a run was given."""
    if not given.data:
        raise WrongState("Run has no data", f"runID: what run {run.run_id} was given was not kept")
    options = jsontext.with_members(given.options_json, dict.fromkeys(OF_A_SCHEDULE))
    return placed(
        Job(
            context.now,
            context.unit.new_job_id(),
            lifecycle.QUICK_CREATE[2],
            run.name,
            context.now_ms,
            data=given.data,
            priority=given.priority,
            options_json=options,
            lane=MOCK_LANE if is_mock_data(given.data) else OPEN_LANE,
        )
    )
