"""Schedules: which tick a run stands for, what became of the others, and when the next one is due.

Every tick ends in the ledger: fired, caught up, or skipped with its reason. A tick is a stamp in whole
seconds; a job's nextRun is its next tick, later by the jitter where it has one.
"""

from __future__ import annotations

from functools import lru_cache, partial
from zlib import crc32

from bedrockjobs.base.config import CATCHUP_MAX
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import moment_of
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import (
    ENDED,
    after_seconds,
    has_any,
    has_option,
    option,
    placed,
    with_options,
    word,
)
from bedrockjobs.job.rows import Job, TickRow
from bedrockjobs.schedule import repeat as repeats

COUNTED_MAX = 10_000
"""Missed ticks that are counted one by one; a longer stretch counts as so many, which takes 0.1 s."""

SAME_LATE_S = 2
"""Ticks that fired with less delay than this share a row."""


def is_schedule(row: Job) -> bool:
    """Tell whether a job is a schedule."""
    return bool(row.repeat) and repeats.is_cron(row.repeat) and not row.mocked


def tick_of(row: Job) -> str:
    """Return the tick that a schedule's nextRun stands for."""
    return word(row, "tick", row.next_run)[:19]


def with_tick(row: Job, tick: str) -> Job:
    """Return a queued schedule for which a fresh tick begins, in its place in the queue."""
    if has_any(row, ENDED):
        row = with_options(row, ENDED)
    jitter = option(row, "jitter", 0)
    if jitter:
        wait = crc32(f"{row.job_id} {tick}".encode()) % (jitter + 1)
        row = with_options(row, {"tick": quoted(tick)})._replace(next_run=after_seconds(tick, wait))
    else:
        row = row._replace(next_run=tick)
        if has_option(row, "tick"):
            row = with_options(row, {"tick": None})
    return placed(row)


def next_after(row: Job, moment: str) -> str:
    """Return the first tick after a moment; the end of time where there is none any more."""
    return _next_after(row.repeat, moment[:19])  # ticks have whole seconds


@lru_cache(maxsize=4_096)
def _next_after(repeat: str, moment: str) -> str:
    return repeats.next_run(repeat, scheduled="", started="", finished=moment) or repeats.NEVER


def _latest(row: Job, tick: str, now: str) -> str:
    """Return the last tick up to now, which is ``tick`` or a later one."""
    back = 1.0
    found = next_after(row, tick)
    if found > now:
        return tick
    while True:
        behind = after_seconds(now, -back)
        found = next_after(row, max(behind, tick))
        if found <= now:
            break
        back *= 2
    while (after := next_after(row, found)) <= now:
        found = after
    return found


def _count(row: Job, first: str, last: str) -> int:
    count = 1
    while first < last and count < COUNTED_MAX:
        first = next_after(row, first)
        count += 1
    return count


def _before(row: Job, tick: str, limit: str) -> str | None:
    """Return the last tick from ``tick`` on that is before ``limit``; None where there is none."""
    return _latest(row, tick, after_seconds(limit, -1)) if tick < limit else None


def fire(context: Context, row: Job) -> Job | None:
    """Return the row of a due schedule as it is to be taken, for the tick that its run stands for.

    The ticks that this passes over are entered in the ledger. None: all of them are too late; the schedule
    was moved on.
    """
    if has_option(row, "trigger") or has_option(row, "cause"):
        return row  # it runs for somebody, or again: no tick of its own
    tick, now = tick_of(row), context.now
    if tick > now:
        return row  # its nextRun was set by hand
    latest = _latest(row, tick, now)
    context.caught_up = bool(context.since) and context.seen <= latest < context.since
    late = option(row, "maxLate", -1)
    oldest = after_seconds(now, -late) if late >= 0 else ""
    if late >= 0 and latest < oldest:
        skip(context, row, tick, latest, "too late")
        context.tx.save(with_tick(row, next_after(row, now)))
        return None
    if latest == tick:
        return row
    every = word(row, "catchup", "once") == "all" and not has_option(row, "hosts")
    first = _first_of_all(row, tick, latest, oldest) if every else latest
    context.caught_up = True
    last_skipped = _before(row, tick, first)
    if last_skipped is not None:
        _skip_missed(context, row, tick, last_skipped, "too late" if oldest and last_skipped < oldest else "")
    return with_tick(row, first)._replace(next_run=first)


def _first_of_all(row: Job, tick: str, latest: str, oldest: str) -> str:
    """Return the first of the missed ticks that are all made up for."""
    if oldest and tick < oldest:
        tick = next_after(row, after_seconds(oldest, -1))
    while (count := _count(row, tick, latest)) >= COUNTED_MAX:
        middle = moment_of(tick) + (moment_of(latest) - moment_of(tick)) / 2
        tick = next_after(row, middle.isoformat(" ", "seconds")[:19])
    for _ in range(count - CATCHUP_MAX):
        tick = next_after(row, tick)
    return tick


def fired(context: Context, row: Job, run_id: int) -> None:
    """Enter the tick for which a schedule was taken; the row as it is now RUNNING."""
    if has_option(row, "trigger") or has_option(row, "cause"):
        return
    tick = tick_of(row)
    if tick > context.now:
        return
    late = int((moment_of(context.now) - moment_of(tick)).total_seconds())
    outcome = "caught up" if context.caught_up else "fired"
    last = context.tx.records.last_tick(row.job_id)
    if last is not None and last.until >= tick:  # somebody set its nextRun back: it fires once more
        context.tx.records.put_tick(last._replace(run_id=run_id, late=late))
        return
    _enter(context, row, last, TickRow(row.job_id, tick, tick, 1, outcome, "", late, run_id))


def unfired(context: Context, row: Job) -> None:
    """Take the tick of a run that is handed back out of the ledger: it will be taken again, or skipped."""
    if not is_schedule(row) or has_option(row, "trigger") or has_option(row, "cause"):
        return
    tick, last = tick_of(row), context.tx.records.last_tick(row.job_id)
    if last is None or last.until != tick or last.outcome == "skipped":
        return
    if last.count == 1:
        context.tx.records.delete_tick(last)
    else:
        until = _latest(row, last.tick, after_seconds(tick, -1))
        context.tx.records.put_tick(last._replace(until=until, count=last.count - 1, run_id=0))


def skip(context: Context, row: Job, first: str, last: str, reason: str) -> None:
    """Enter ticks that are skipped, but for those that have their submission."""
    known = context.tx.records.last_tick(row.job_id)
    if known is not None and known.until >= first:
        first = next_after(row, known.until)
    if first <= last:
        ticks = TickRow(row.job_id, first, last, _count(row, first, last), "skipped", reason, 0, 0)
        _enter(context, row, known, ticks)


def _skip_missed(context: Context, row: Job, first: str, last: str, reason: str) -> None:
    """Enter ticks that nobody took, apart from each other by whether the server was there."""
    if reason:
        skip(context, row, first, last, reason)
        return
    for until, why in ((context.seen, "no worker"), (context.since, "server down")):
        end = _before(row, first, until) if until else None
        if end is not None and first <= last:
            end = min(end, last)
            skip(context, row, first, end, why)
            first = next_after(row, end)
    if first <= last:
        skip(context, row, first, last, "no worker")


def _enter(context: Context, job: Job, last: TickRow | None, row: TickRow) -> None:
    """Write a row of the ledger behind the last one; neighbours with the same outcome share one."""
    context.after.append(partial(context.measurements.ticked, row.outcome, row.count, row.late))
    if (
        last is not None
        and (last.outcome, last.reason) == (row.outcome, row.reason)
        and max(last.late, row.late) < SAME_LATE_S
        and next_after(job, last.until) == row.tick
    ):
        row = last._replace(
            until=row.until, count=last.count + row.count, run_id=row.run_id, late=max(last.late, row.late)
        )
    context.tx.records.put_tick(row)


def after_run(context: Context, row: Job) -> Job:
    """Return a schedule whose run is over, queued for the tick that comes next."""
    tick = min(tick_of(row), row.last_run or context.now)
    following = next_after(row, tick)
    if following <= context.now:
        backlog = word(row, "catchup", "once") == "all" and following <= row.last_run
        if word(row, "overlap", "skip") == "skip" and not backlog:
            skip(context, row, following, _latest(row, following, context.now), "running")
            following = next_after(row, context.now_ms)
    return with_tick(row._replace(state="QUEUED", run_id=0), following)


def after_other_run(context: Context, row: Job) -> Job:
    """Return a schedule after a run that stood for no tick, queued for its own next tick as it was."""
    tick = tick_of(row)
    row = row._replace(state="QUEUED", run_id=0)
    if row.last_run < tick <= context.now and word(row, "overlap", "skip") == "skip":
        return skipped(context, row, "running")
    return placed(row)


def skipped(context: Context, row: Job, reason: str) -> Job:
    """Return a schedule queued for its next tick, and enter those up to now as skipped."""
    tick = tick_of(row)
    skip(context, row, tick, _latest(row, tick, context.now), reason)
    return with_tick(row, next_after(row, context.now_ms))


def skip_overdue(context: Context, row: Job, reason: str) -> None:
    """Move a queued schedule on to its next tick, and enter those that are overdue as skipped."""
    if tick_of(row) <= context.now:
        context.tx.save(skipped(context, row, reason))
