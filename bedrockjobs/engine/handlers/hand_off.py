"""A new job for which somebody waits is stored as taken: it is never queued between.

That saves what queueing it costs, two entries of indexes and their removal, and finding it again.
"""

from __future__ import annotations

from bedrockjobs.engine.handlers import runs, take
from bedrockjobs.engine.handlers.context import Context, Taken
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import Job, is_plain


def handed_off(context: Context, job: Job) -> bool:
    """Store a new job as taken by who waits for it; False where it has to be queued first.

    It has to where anything was asked for that a take deals with, and where something may keep it back.
    """
    unit, waiters = context.unit, context.waiters
    if not waiters or not is_plain(job) or job.next_run > context.now_ms:
        return False
    if unit.records.pauses() or unit.crash_patterns():
        return False
    waiter = waiters.first_for(job, context.now_ms)
    if waiter is None or (waiter.request.worker and unit.records.limits()):
        return False
    request = waiter.request
    after = lifecycle.after_take(job, context.now, unit.new_run_id() if request.worker else 0)
    unit.insert(after)
    if request.worker:
        runs.open_run(context, after, request, job.data)
    waiters.remove(waiter)
    context.outcomes.append((waiter.submission, take.handed_out(context, request, Taken(job, after))))
    return True
