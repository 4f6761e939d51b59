"""When a job runs next: ticks of schedules, triggered runs, and the run after them.

Every tick ends in the tick history: fired, caught up, or skipped with a reason. A tick is a timestamp in
whole seconds; a job's nextRun is its next tick plus the jitter, if any. Nothing here sets a state.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from zlib import crc32

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds, moment_of, timestamp
from bedrockjobs.base.config import CATCHUP_MAX, FORMER_REPEATS_MAX
from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.commands import RunAgain
from bedrockjobs.engine.events import TicksEntered
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed
from bedrockjobs.job.rows import MOCK_LANE, OPEN_LANE, Job, RunGiven, RunRow, TickRow, is_mock_data
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.schedule.cron.plan import forget_zones
from bedrockjobs.store.base import AccessPlan

_SECOND = timedelta(seconds=1)

NO_PING = "no ping"
"""Why a tick was skipped: no expected ping arrived."""

MOVED = "moved"
"""Why a tick was skipped: it was due when the job was given another nextRun."""

FAILED = "failed"
"""Why a tick was skipped: it came while the schedule was FAILED."""

MISSED = frozenset({"no worker", "server down", "too late", MOVED, FAILED})
"""Reasons for which a skipped tick also raises the event ``missed``."""


class CannotEvaluate(ValueError):
    """Raised if a stored repeat can no longer be evaluated, since its time zone is gone."""


DueTick = tuple[Job, bool]
"""A job as it will be taken, and whether its run catches up for missed ticks."""


def is_schedule(job: Job) -> bool:
    """Return True if a job is a schedule."""
    return bool(job.repeat) and repeats.is_cron(job.repeat) and not job.mocked


def stands_for_a_tick(job: Job) -> bool:
    """Return True if a schedule's next or current run belongs to a tick: no retry or triggered run."""
    return job.memory.trigger is None and not job.memory.cause


def tick_of(job: Job) -> str:
    """Return the tick to which a schedule's nextRun belongs."""
    return (job.memory.tick or job.next_run)[:19]


def with_tick(job: Job, tick: str) -> Job:
    """Return a schedule planned for a new tick, in its lane; its attempts restart from zero."""
    job = job._replace(attempt=0)
    memory = job.memory.after_end()
    if memory.formers:
        memory = memory._replace(formers=tuple(each for each in memory.formers if each[1] > tick))
    memory = memory._replace(offset=_offset_at(job.repeat, tick))
    jitter = job.options.jitter
    if jitter:
        wait = crc32(f"{job.job_id} {tick}".encode()) % (jitter + 1)
        return placed(
            job.remembering(memory._replace(tick=tick))._replace(next_run=after_seconds(tick, wait))
        )
    return placed(job.remembering(memory._replace(tick=""))._replace(next_run=tick))


def _offset_at(repeat: str, tick: str) -> int | None:
    try:
        return repeats.offset_at(repeat, tick)
    except ValueError:
        return None


def moved_by_rules(job: Job) -> str | None:
    """Return where new time zone rules move a schedule's tick, which keeps its local time; None if nowhere.

    Also None if it is unknown by which rules the tick was planned.
    """
    offset, tick = job.memory.offset, tick_of(job)
    if offset is None or job.memory.formers or _offset_at(job.repeat, tick) in (None, offset):
        return None
    return repeats.same_wall_time(job.repeat, tick, offset)


def forget_rules() -> None:
    """Clear the caches of time zone rules and ticks."""
    forget_zones()
    _next_after.cache_clear()
    _count_of.cache_clear()


def next_after(job: Job, moment: str) -> str:
    """Return the first tick after ``moment``, by the repeat valid at that time; NEVER if there is none.

    Raises CannotEvaluate.
    """
    return _next_by(job.repeat, job.memory.formers, moment[:19])  # ticks have whole seconds


def _next_by(repeat: str, formers: tuple[tuple[str, str], ...], moment: str) -> str:
    for former, until in formers:
        if moment < until:
            with suppress(CannotEvaluate):  # its time zone is gone, so its ticks are unknown
                tick = _next_after(former, moment)
                if tick <= until:
                    return tick
            moment = until
    return _next_after(repeat, moment)


def with_former(context: Context, job: Job, former: str) -> Job:
    """Return a job with a new repeat that keeps the ticks of its former repeat up to now.

    After too many changes while one tick is due, the repeats in between are ignored.
    """
    formers = job.memory.formers
    if len(formers) >= FORMER_REPEATS_MAX:
        former, _ = formers[-1]
        formers = formers[:-1]
    return job.noting(formers=(*formers, (former, context.now)))


def skip_until(context: Context, job: Job, next_run: str) -> None:
    """Record the due ticks of a queued schedule as skipped if its nextRun is set to a later time."""
    tick = tick_of(job)
    if stands_for_a_tick(job) and tick <= context.now:
        last = _before(job, tick, min(next_run[:19], after_seconds(context.now, 1)))
        if last is not None:
            skip(context, job, tick, last, MOVED)


@lru_cache(maxsize=512)
def _next_after(repeat: str, moment: str) -> str:
    try:
        return repeats.next_run(repeat, scheduled="", started="", finished=moment) or repeats.NEVER
    except ValueError as error:
        raise CannotEvaluate(repeats.complaint(error)) from None


def _latest(job: Job, tick: str, now: str) -> str:
    """Return the last tick up to ``now``, or ``tick`` if no later one has passed."""
    back = 1.0
    found = next_after(job, tick)
    if found > now:
        return tick
    while True:
        behind = after_seconds(now, -back)
        found = next_after(job, max(behind, tick))
        if found <= now:
            break
        back *= 2
    while (after := next_after(job, found)) <= now:
        found = after
    return found


def _count(job: Job, first: str, last: str) -> int:
    return _count_of(job.repeat, job.memory.formers, first, last)


@lru_cache(maxsize=1_024)
def _count_of(repeat: str, formers: tuple[tuple[str, str], ...], first: str, last: str) -> int:
    """Return the number of ticks from ``first`` to ``last``; both are ticks, and are counted."""
    count, after = 1, first[:19]
    for former, until in formers:
        if after < until:
            with suppress(CannotEvaluate):  # its time zone is gone
                count += _count_by(former, after, min(until, last))
            after = until
    return count + (_count_by(repeat, after, last) if after < last else 0)


def _count_by(repeat: str, after: str, until: str) -> int:
    try:
        return repeats.count_ticks(repeat, after[:19], until[:19])
    except ValueError as error:
        raise CannotEvaluate(repeats.complaint(error)) from None


def _before(job: Job, tick: str, limit: str) -> str | None:
    """Return the last tick from ``tick`` on that is before ``limit``, or None if there is none."""
    return _latest(job, tick, after_seconds(limit, -1)) if tick < limit else None


def fire(context: Context, job: Job) -> DueTick | None:
    """Return a due schedule as it will be taken, with the tick to which its run belongs.

    Passed ticks are recorded in the tick history. Returns None if all due ticks are too late: then the next
    tick has been planned. Raises CannotEvaluate before anything is written.
    """
    tick, now = tick_of(job), context.now
    if not stands_for_a_tick(job) or tick > now:  # a triggered run, a retry, or a nextRun set by hand
        return job, False
    options = job.options
    latest = _latest(job, tick, now)
    caught_up = bool(context.since) and context.seen <= latest < context.since
    oldest = "" if options.max_late is None else after_seconds(now, -options.max_late)
    if oldest and latest < oldest:
        _skip_missed(context, job, tick, latest, too_late=True)
        context.unit.save(with_tick(job, next_after(job, now)))
        return None
    if latest == tick:
        return job._replace(attempt=0), caught_up
    every = options.catchup == "all" and not options.hosts
    first = _first_of_all(job, tick, latest, oldest) if every else latest
    last_skipped = _before(job, tick, first)
    if last_skipped is not None:
        _skip_missed(context, job, tick, last_skipped, too_late=bool(oldest) and last_skipped < oldest)
    return with_tick(job, first)._replace(next_run=first), True


def _first_of_all(job: Job, tick: str, latest: str, oldest: str) -> str:
    """Return the first of the missed ticks to catch up; at most CATCHUP_MAX are caught up."""
    if oldest and tick < oldest:
        tick = next_after(job, after_seconds(oldest, -1))
    if _count(job, tick, latest) <= CATCHUP_MAX:
        return tick
    low, high = moment_of(tick), moment_of(latest)
    while high - low > _SECOND:  # invariant: too many ticks after ``low``, not too many after ``high``
        middle = low + (high - low) // 2
        if _count(job, timestamp(middle), latest) - 1 > CATCHUP_MAX:
            low = middle
        else:
            high = middle
    return next_after(job, timestamp(high))


def enter_fired(context: Context, job: Job, run_id: int, *, caught_up: bool) -> None:
    """Record the tick for which a schedule was taken; ``job`` is its row after the take."""
    tick = tick_of(job)
    if not stands_for_a_tick(job) or tick > context.now:
        return
    late = int((moment_of(context.now) - moment_of(tick)).total_seconds())
    outcome = "caught up" if caught_up else "fired"
    last = context.unit.records.last_tick(job.job_id)
    if last is not None and last.until >= tick:  # its nextRun was set back, so the tick fires again
        context.unit.records.put_tick(last._replace(run_id=run_id, late=late))
        return
    _enter(context, job, last, TickRow(job.job_id, tick, tick, 1, outcome, _note(job, tick), late, run_id))


def _note(job: Job, tick: str) -> str:
    """Return text about what a change to or from summer time did to a tick that ran; empty for most."""
    try:
        return repeats.clock_change_note(job.repeat, tick)
    except ValueError:
        return ""


def remove_fired(context: Context, job: Job) -> None:
    """Remove the tick of a run that counts as never taken from the history.

    Such a run was handed back, or its reply was not delivered. The tick is recorded again when the job is
    taken, or when the tick is skipped.
    """
    if not is_schedule(job) or not stands_for_a_tick(job):
        return
    tick, last = tick_of(job), context.unit.records.last_tick(job.job_id)
    if last is None or last.until != tick or last.outcome == "skipped":
        return
    if last.count == 1:
        context.unit.records.delete_tick(last)
    else:
        until = _latest(job, last.tick, after_seconds(tick, -1))
        context.unit.records.put_tick(last._replace(until=until, count=last.count - 1, run_id=0))


def forget_ticks_to_come(context: Context, job: Job) -> bool:
    """Remove ticks after now from the history, since the clock was set back; return True if any were."""
    found = False
    while (last := context.unit.records.last_tick(job.job_id)) is not None and last.until > context.now:
        found = True
        context.unit.records.delete_tick(last)
        if last.tick <= context.now:
            until = _latest(job, last.tick, context.now)
            context.unit.records.put_tick(last._replace(until=until, count=_count(job, last.tick, until)))
    return found


def skip(context: Context, job: Job, first: str, last: str, reason: str) -> None:
    """Record ticks as skipped, except those already in the history."""
    known = context.unit.records.last_tick(job.job_id)
    if known is not None and known.until >= first:
        first = next_after(job, known.until)
    if first <= last:
        ticks = TickRow(job.job_id, first, last, _count(job, first, last), "skipped", reason, 0, 0)
        _enter(context, job, known, ticks)
        if reason in MISSED and not job.options.expect:  # the remote job may have run without a ping
            span = first if first == last else f"{ticks.count} ticks from {first} to {last}"
            context.note("missed", name=job.name, job_id=job.job_id, detail=f"{span}: {reason}")


def _skip_missed(context: Context, job: Job, first: str, last: str, *, too_late: bool) -> None:
    """Record missed ticks as skipped; the ticks for which a lock was held get a reason of their own."""
    locked = _ticks_missed_by_lock(context, job, first, last, too_late=too_late)
    if locked is not None:
        begin, end = locked
        if (before := _before(job, first, begin)) is not None:
            _skip_free(context, job, first, before, too_late=too_late)
        skip(context, job, begin, end, "lock held")
        first = next_after(job, end)
    if first <= last:
        _skip_free(context, job, first, last, too_late=too_late)


def _ticks_missed_by_lock(
    context: Context, job: Job, first: str, last: str, *, too_late: bool
) -> tuple[str, str] | None:
    """Return the first and last tick that a schedule missed because its lock was held.

    A tick counts as missed if the next tick had come by the time the lock was released; with ``too_late``, if
    its ``maxLate`` had passed by then.
    """
    held = context.unit.lock_held(job.lane)
    if held is None:
        return None
    since, until = held.since[:19], (held.until or context.now)[:19]
    begin = first if since <= first else next_after(job, after_seconds(since, -1))
    if begin > min(last, until):
        return None
    limit = after_seconds(until, -(job.options.max_late or 0)) if too_late else _latest(job, begin, until)
    end = _before(job, begin, limit)
    return None if end is None else (begin, min(end, last))


def _skip_free(context: Context, job: Job, first: str, last: str, *, too_late: bool) -> None:
    """Record missed ticks that no lock prevented, separately for the time when the server was down."""
    if too_late:
        skip(context, job, first, last, "too late")
        return
    nobody = NO_PING if job.options.expect else "no worker"
    for until, why in ((context.seen, nobody), (context.since, "server down")):
        end = _before(job, first, until) if until else None
        if end is not None and first <= last:
            end = min(end, last)
            skip(context, job, first, end, why)
            first = next_after(job, end)
    if first <= last:
        skip(context, job, first, last, nobody)


def _enter(context: Context, job: Job, last: TickRow | None, row: TickRow) -> None:
    """Add a row to the tick history; adjacent ticks with the same outcome share a row."""
    context.emit(TicksEntered(row.outcome, row.count, row.late, row.reason))
    # Only ticks that fired less than 2 seconds late share a row.
    if (
        last is not None
        and (last.outcome, last.reason) == (row.outcome, row.reason)
        and max(last.late, row.late) < 2
        and next_after(job, last.until) == row.tick
    ):
        row = last._replace(
            until=row.until, count=last.count + row.count, run_id=row.run_id, late=max(last.late, row.late)
        )
    context.unit.records.put_tick(row)


def after_run(context: Context, job: Job, reason: str = "running") -> Job:
    """Return a schedule planned for its next tick after a run; skip ticks in between for ``reason``."""
    tick = min(tick_of(job), job.last_run or context.now, context.now)  # the clock may have been set back
    tick = max(tick, moved_by_rules(job) or tick)  # a local time that occurs twice is one tick
    following = next_after(job, tick)
    if following <= context.now:
        backlog = job.options.catchup == "all" and following <= job.last_run
        if job.options.overlap != "queue" and not backlog:
            skip(context, job, following, _latest(job, following, context.now), reason)
            following = next_after(job, context.now_ms)
        elif job.options.catchup != "all":
            return _due_for_latest(context, with_tick(job, following), reason)
    return with_tick(job, following)


def after_other_run(context: Context, job: Job) -> Job:
    """Return a schedule planned for its own next tick after a run that belonged to no tick."""
    if not job.last_run < tick_of(job) <= context.now:
        return placed(job)
    if job.options.overlap != "queue":
        return after_skipping(context, job, "running")
    return _due_for_latest(context, job, "running") if job.options.catchup != "all" else placed(job)


def _due_for_latest(context: Context, job: Job, reason: str) -> Job:
    """Record the due ticks before the latest one as skipped; return the schedule due for the latest.

    The schedule keeps its first due tick, so that the take counts as catching up, and also finds ticks that
    become due until then.
    """
    tick = tick_of(job)
    latest = _latest(job, tick, context.now)
    before = _before(job, tick, latest)
    if before is None:
        return placed(job)
    skip(context, job, tick, before, reason)
    return placed(job.noting(tick=tick)._replace(next_run=latest))


def after_skipping(context: Context, job: Job, reason: str) -> Job:
    """Record the due ticks as skipped, and return the schedule planned for its next tick."""
    tick = tick_of(job)
    skip(context, job, tick, _latest(job, tick, context.now), reason)
    return with_tick(job, next_after(job, context.now_ms))


def skip_overdue(context: Context, job: Job, reason: str) -> None:
    """Record the overdue ticks of a queued schedule as skipped, and plan its next tick."""
    if tick_of(job) <= context.now:
        context.unit.save(after_skipping(context, job, reason))


def skip_one(context: Context, job: Job, reason: str) -> None:
    """Record the current tick of a queued schedule as skipped, and plan the tick after it."""
    tick = tick_of(job)
    skip(context, job, tick, tick, reason)
    context.unit.save(with_tick(job, next_after(job, tick)))


# The next run of any repeating job, after a run or a change of its repeat. Nothing here sets a state.


def next_run_of(context: Context, job: Job) -> Job | None:
    """Return a repeating job planned for its next run after a run; None if there is none.

    Raises CannotEvaluate for a schedule whose repeat can no longer be evaluated.
    """
    if not job.repeat or job.mocked:
        return None
    if is_schedule(job):
        return after_run(context, job)
    found = next_by_repeat(context, job)
    return None if found is None else placed(job._replace(next_run=found))


def next_by_repeat(context: Context, job: Job) -> str | None:
    """Return the next run, after a run that ends now, of a job that repeats but is no schedule."""
    return repeats.next_run(
        job.repeat,
        scheduled=original_next_run(job.data) or job.next_run,
        started=job.last_run,
        finished=context.now_ms,
        compatibility=context.compatibility,
    )


def original_next_run(data: str) -> str | None:
    """Return the originally scheduled time stored in the data of a job with retryAfter, if any."""
    if '"originalNextRun"' not in data:
        return None
    text = jsontext.members(data).get("originalNextRun", "null")
    return str(jsontext.parse(text)) if text.startswith('"') else None


# Planning after the clock was set back: a schedule that ran while the clock was ahead would otherwise not run
# until the clock shows that time again.


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
    if not is_schedule(job):
        if ran_ahead and job.next_run > context.now_ms:
            planned = next_run_of(context, job._replace(next_run=context.now, last_run=context.now))
            if planned is not None:
                context.save(planned._replace(last_run=job.last_run))
        return
    if any(until > context.now for _, until in job.memory.formers):
        formers = tuple((repeat, min(until, context.now)) for repeat, until in job.memory.formers)
        job = job.noting(formers=formers)
        context.save(job)
    ran_ahead = forget_ticks_to_come(context, job) or ran_ahead
    if not ran_ahead:
        return
    if stands_for_a_tick(job):
        following = _sooner(context, job, tick_of(job), before)
        if following is not None:
            context.save(with_tick(job, following))
    elif job.memory.trigger:  # its own next run, after the triggered one
        following = _sooner(context, job, job.memory.trigger[:19], before)
        if following is not None:
            context.save(job.noting(trigger=following))
    elif job.next_run > context.now_ms:  # a retry
        context.save(placed(job._replace(next_run=context.now_ms)))


def _sooner(context: Context, job: Job, tick: str, before: str) -> str | None:
    """Return the first tick after now if ``tick`` is later, and at most the first tick after ``before``."""
    following = next_after(job, context.now_ms)
    return following if following < tick <= next_after(job, before) else None


# Runs triggered by hand (TriggerJob, RunAgain), and the job's own next run afterwards.
#
# ``Memory.trigger`` holds the job's own nextRun while a triggered run waits or is in progress;
# ``Memory.pending`` means that a triggered run follows the current one.


NO_TICKS = "CRON @never"
"""Stands for the former repeat of a job that was not a schedule."""


def triggered(context: Context, job: Job) -> Job:
    """Return a queued job due now for a triggered run; attempts of a schedule restart from zero."""
    attempt = 0 if is_schedule(job) else job.attempt
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
    was, becomes = is_schedule(before), is_schedule(changed)
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
        return with_former(context, changed, before.repeat if was else NO_TICKS)
    return with_next_tick(context, changed)


def plan_by_new_rules(context: Context, job: Job) -> None:
    """Plan a queued schedule again if its time zone rules have changed since its tick was planned.

    Raises CannotEvaluate.
    """
    if job.state != "QUEUED" or job.memory.cause or job.memory.trigger == "":
        return
    own = _own_time(job)
    moved = moved_by_rules(own)
    if moved is None:
        return
    before, tick = tick_of(own), next_after(own, after_seconds(moved, -1))
    planned = with_tick(own, tick)
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
    return is_schedule(job) and tick_of(_own_time(job)) <= context.now


def _own_time(job: Job) -> Job:
    """Return a queued job with its own nextRun, disregarding a triggered run."""
    return job._replace(next_run=job.memory.trigger) if job.memory.trigger else job


def _skip_failed(context: Context, before: Job, planned: Job) -> None:
    """Record the tick for which a schedule could not be evaluated as skipped."""
    tick = tick_of(_own_time(before))
    if before.memory.broken and is_schedule(before) and tick <= context.now:
        skip(context, planned, tick, tick, FAILED)


def with_next_tick(context: Context, job: Job) -> Job:
    """Return a schedule planned for its next tick by a new repeat; a triggered run comes first."""
    asked_for = job.memory.trigger is not None
    own = with_tick(job, next_after(job, context.now_ms))._replace(attempt=job.attempt)
    return own.noting(trigger=own.next_run)._replace(next_run=job.next_run) if asked_for else own


def skip_queued(context: Context, job: Job, reason: str) -> None:
    """Record the overdue ticks of a queued schedule as skipped, and plan its next tick."""
    memory = job.memory
    if memory.cause:  # a retry, whose tick is already in the history
        return
    if memory.trigger is None:
        skip_overdue(context, job, reason)
    elif memory.trigger and tick_of(own := job._replace(next_run=memory.trigger)) <= context.now:
        own = after_skipping(context, own, reason)
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
    if not is_schedule(job):
        return placed(planned)
    return after_other_run(context, planned._replace(attempt=0))


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
    return is_schedule(job) and not job.memory.removed and job.state in ("QUEUED", *lifecycle.WORKING)


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
