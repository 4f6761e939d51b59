"""TriggerJob's memory: a run that somebody asked for, and the job's own next run, which comes afterwards.

``options.trigger`` holds what the job's nextRun was, while it waits for or does such a run; a retry that was
asked for holds none, as the job then goes on as after any run. ``options.pending`` says that such a run is to
follow the present one.
"""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import ENDED, has_option, placed, with_options
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats


def triggered(context: Context, row: Job) -> Job:
    """Return a queued job that runs now, for somebody."""
    again = has_option(row, "trigger")  # it is tried again, and remembers already
    known = with_options(row, {"cause": None}) if again else _remember(row, row.next_run)
    return placed(known._replace(next_run=context.now_ms))


def _remember(row: Job, own: str) -> Job:
    memory = {} if has_option(row, "cause") else {"nextRun": quoted(own) if row.repeat else "null"}
    return with_options(row, {"trigger": jsontext.join(memory), "cause": None})


def with_next_tick(context: Context, row: Job) -> Job:
    """Return a schedule whose repeat has changed, for its next tick; a run that was asked for comes first."""
    tick = ticks.next_after(row, context.now_ms)
    if not has_option(row, "trigger"):
        return ticks.with_tick(row, tick)
    own = ticks.with_tick(row, tick)
    return _remember(own, own.next_run)._replace(next_run=row.next_run)


def pass_over(context: Context, row: Job, reason: str) -> None:
    """Enter the overdue ticks of a queued schedule as skipped; it goes on with the next one."""
    if has_option(row, "cause"):  # it tries a tick again, which has its submission
        return
    if not has_option(row, "trigger"):
        ticks.skip_overdue(context, row, reason)
        return
    own = _own(row)
    if own is not None and ticks.tick_of(own) <= context.now:
        own = ticks.skipped(context, own, reason)
        context.tx.save(_remember(own, own.next_run)._replace(next_run=row.next_run, lane=row.lane))


def has_more(row: Job) -> bool:
    """Tell whether a run that somebody asked for is over, or one is to follow."""
    return has_option(row, "trigger") or has_option(row, "pending")


def after_trigger(context: Context, row: Job) -> Job | None:
    """Return a job after a run that somebody asked for, or before one; None where nothing more comes."""
    options = jsontext.members(row.options)
    trigger = options.get("trigger")
    kept = with_options(row, {**ENDED, "trigger": None, "pending": None})._replace(
        state="QUEUED", run_id=0, expires=""
    )
    own = _own_next_run(context, kept, trigger)
    if "pending" in options:
        return triggered(context, kept if own is None else own)
    return own


def _own(row: Job) -> Job | None:
    """Return a job with the nextRun that it had before it was triggered; None where it had none."""
    memory = jsontext.members(jsontext.members(row.options)["trigger"])
    found = jsontext.parse(memory.get("nextRun", "null"))
    return None if found is None else row._replace(next_run=str(found))


def _own_next_run(context: Context, row: Job, trigger: str | None) -> Job | None:
    if trigger is None or '"nextRun"' not in trigger:
        return next_run_of(context, row)
    own = _own(with_options(row, {"trigger": trigger}))
    if own is None or not row.repeat:
        return next_run_of(context, row)
    own = with_options(own, {"trigger": None})
    if ticks.is_schedule(row):
        return ticks.after_other_run(context, own)
    return placed(own)


def next_run_of(context: Context, row: Job) -> Job | None:
    """Return a repeating job whose run is over, queued for its next run; None where there is none."""
    if not row.repeat or row.mocked:
        return None
    if ticks.is_schedule(row):
        return ticks.after_run(context, row)
    found = repeats.next_run(
        row.repeat,
        scheduled=original_next_run(row.data) or row.next_run,
        started=row.last_run,
        finished=context.now_ms,
        compatibility=context.compatibility,
    )
    return None if found is None else placed(row._replace(state="QUEUED", run_id=0, next_run=found))


def original_next_run(data: str) -> str | None:
    """Return the scheduled time that data remembers while a job may be lost."""
    if '"originalNextRun"' not in data:
        return None
    text = jsontext.members(data).get("originalNextRun", "null")
    return str(jsontext.parse(text)) if text.startswith('"') else None
