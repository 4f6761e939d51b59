"""When a job that repeats runs next, after a run or a change of its repeat. Nothing here sets a state."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.placement import placed
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats


def next_run_of(context: Context, job: Job) -> Job | None:
    """Return a repeating job whose run is over, planned for its next run; None where there is none.

    Raises CannotEvaluate for a schedule whose repeat can be evaluated no more.
    """
    if not job.repeat or job.mocked:
        return None
    if ticks.is_schedule(job):
        return ticks.after_run(context, job)
    found = repeats.next_run(
        job.repeat,
        scheduled=original_next_run(job.data) or job.next_run,
        started=job.last_run,
        finished=context.now_ms,
        compatibility=context.compatibility,
    )
    return None if found is None else placed(job._replace(next_run=found))


def original_next_run(data: str) -> str | None:
    """Return the scheduled time that data remembers while a job may be lost."""
    if '"originalNextRun"' not in data:
        return None
    text = jsontext.members(data).get("originalNextRun", "null")
    return str(jsontext.parse(text)) if text.startswith('"') else None
