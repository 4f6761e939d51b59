"""TriggerJob's memory: a run that somebody asked for, and the job's own next run, which comes afterwards.

``options.trigger`` holds what the job's nextRun was, while it waits for or does such a run; a retry that was
asked for holds none, as the job then goes on as after any run. ``options.pending`` says that such a run is to
follow the present one.
"""

from __future__ import annotations

from bedrockjobs import jsontext
from bedrockjobs.handlers import ticks
from bedrockjobs.handlers.placing import ENDED, has_option, placed, with_options
from bedrockjobs.handlers.turn import Turn
from bedrockjobs.jsontext import quoted
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.rows import JobRow


def triggered(turn: Turn, row: JobRow) -> JobRow:
    """Return a queued job that runs now, for somebody."""
    again = has_option(row, "trigger")  # it is tried again, and remembers already
    known = with_options(row, {"cause": None}) if again else _remember(row, row.next_run)
    return placed(known._replace(next_run=turn.now_ms))


def _remember(row: JobRow, own: str) -> JobRow:
    memory = {} if has_option(row, "cause") else {"nextRun": quoted(own) if row.repeat else "null"}
    return with_options(row, {"trigger": jsontext.join(memory), "cause": None})


def with_next_tick(turn: Turn, row: JobRow) -> JobRow:
    """Return a schedule whose repeat has changed, for its next tick; a run that was asked for comes first."""
    tick = ticks.next_after(row, turn.now_ms)
    if not has_option(row, "trigger"):
        return ticks.with_tick(row, tick)
    own = ticks.with_tick(row, tick)
    return _remember(own, own.next_run)._replace(next_run=row.next_run)


def pass_over(turn: Turn, row: JobRow, reason: str) -> None:
    """Enter the overdue ticks of a queued schedule as skipped; it goes on with the next one."""
    if has_option(row, "cause"):  # it tries a tick again, which has its entry
        return
    if not has_option(row, "trigger"):
        ticks.skip_overdue(turn, row, reason)
        return
    own = _own(row)
    if own is not None and ticks.tick_of(own) <= turn.now:
        own = ticks.skipped(turn, own, reason)
        turn.tx.save(_remember(own, own.next_run)._replace(next_run=row.next_run, lane=row.lane))


def has_more(row: JobRow) -> bool:
    """Tell whether a run that somebody asked for is over, or one is to follow."""
    return has_option(row, "trigger") or has_option(row, "pending")


def after_trigger(turn: Turn, row: JobRow) -> JobRow | None:
    """Return a job after a run that somebody asked for, or before one; None where nothing more comes."""
    options = jsontext.members(row.options)
    trigger = options.get("trigger")
    kept = with_options(row, {**ENDED, "trigger": None, "pending": None})._replace(
        state="QUEUED", run_id=0, expires=""
    )
    own = _own_next_run(turn, kept, trigger)
    if "pending" in options:
        return triggered(turn, kept if own is None else own)
    return own


def _own(row: JobRow) -> JobRow | None:
    """Return a job with the nextRun that it had before it was triggered; None where it had none."""
    memory = jsontext.members(jsontext.members(row.options)["trigger"])
    found = jsontext.parse(memory.get("nextRun", "null"))
    return None if found is None else row._replace(next_run=str(found))


def _own_next_run(turn: Turn, row: JobRow, trigger: str | None) -> JobRow | None:
    if trigger is None or '"nextRun"' not in trigger:
        return next_run_of(turn, row)
    own = _own(with_options(row, {"trigger": trigger}))
    if own is None or not row.repeat:
        return next_run_of(turn, row)
    own = with_options(own, {"trigger": None})
    if ticks.is_schedule(row):
        return ticks.after_other_run(turn, own)
    return placed(own)


def next_run_of(turn: Turn, row: JobRow) -> JobRow | None:
    """Return a repeating job whose run is over, queued for its next run; None where there is none."""
    if not row.repeat or row.mocked:
        return None
    if ticks.is_schedule(row):
        return ticks.after_run(turn, row)
    found = repeats.next_run(
        row.repeat,
        scheduled=original_next_run(row.data) or row.next_run,
        started=row.last_run,
        finished=turn.now_ms,
        compatibility=turn.compatibility,
    )
    return None if found is None else placed(row._replace(state="QUEUED", run_id=0, next_run=found))


def original_next_run(data: str) -> str | None:
    """Return the scheduled time that data remembers while a job may be lost."""
    if '"originalNextRun"' not in data:
        return None
    text = jsontext.members(data).get("originalNextRun", "null")
    return str(jsontext.parse(text)) if text.startswith('"') else None
