"""A run that somebody asked for (TriggerJob), and the job's own next run, which comes afterwards.

``Memory.trigger`` holds the job's own nextRun while it waits for or does such a run, ``Memory.pending`` says
that such a run is to follow the present one. Nothing here sets a state.
"""

from __future__ import annotations

from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.next_run import next_run_of
from bedrockjobs.job.placement import placed
from bedrockjobs.job.rows import Job


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
