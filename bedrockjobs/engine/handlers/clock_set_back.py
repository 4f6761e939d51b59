"""Planning after the clock was set back: repeating jobs whose next run was planned by a clock that was ahead.

A schedule that ran while the clock was ahead would otherwise not run until the clock shows that time again.
So the schedule is planned again, by its first tick from now on.
"""

from __future__ import annotations

from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.ticks import next_run_of
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import Job


def replan(context: Context, job_id: int, before: str) -> None:
    """Plan a queued repeating job again if its next run was planned by a clock that was ahead.

    ``before`` is what the clock showed before it was set back. A next run later than the one that follows
    ``before`` was not planned by that clock and is left alone. So are jobs that neither ran nor were created
    while the clock was ahead. Raises CannotEvaluate.
    """
    job = context.unit.job(job_id)
    if job is None or job.state != "QUEUED" or not job.repeat:
        return
    ran_ahead = max(job.last_run, job.created) > context.now_ms
    if not ticks.is_schedule(job):
        if ran_ahead and job.next_run > context.now_ms:
            planned = next_run_of(context, job._replace(next_run=context.now, last_run=context.now))
            if planned is not None:
                context.save(planned._replace(last_run=job.last_run))
        return
    if any(until > context.now for _, until in job.memory.formers):
        formers = tuple((repeat, min(until, context.now)) for repeat, until in job.memory.formers)
        job = job.noting(formers=formers)
        context.save(job)
    ran_ahead = ticks.forget_ticks_to_come(context, job) or ran_ahead
    if not ran_ahead:
        return
    if ticks.stands_for_a_tick(job):
        following = _sooner(context, job, ticks.tick_of(job), before)
        if following is not None:
            context.save(ticks.with_tick(job, following))
    elif job.memory.trigger:  # its own next run, after the triggered one
        following = _sooner(context, job, job.memory.trigger[:19], before)
        if following is not None:
            context.save(job.noting(trigger=following))
    elif job.next_run > context.now_ms:  # a retry
        context.save(placed(job._replace(next_run=context.now_ms)))


def _sooner(context: Context, job: Job, tick: str, before: str) -> str | None:
    """Return the next tick from now on if ``tick`` is later and at most the next one after ``before``."""
    following = ticks.next_after(job, context.now_ms)
    return following if following < tick <= ticks.next_after(job, before) else None
