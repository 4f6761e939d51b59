"""Maintenance: what is due by time alone, such as leases, deadlines, ends of pauses and retention.

It runs inside the transactions, each task as its own unit of work. A task that fails affects no other: the
failure is logged and recorded as an event once, and the task is retried with backoff. ``Done`` collects the
results of a transaction, which count only after its commit.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
from math import inf
from typing import Any, Protocol, cast

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import Clock, StandingClock, after_seconds, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.config import AWAY_S, HOSTS_PER_CALLER_MAX, WATCH_EVERY_S, WATCHED_EVERY_S
from bedrockjobs.base.vocabulary import CLOCK_SET
from bedrockjobs.engine.events import DrainsChanged, HoldChanged, RunKeyKnown, RunRestored
from bedrockjobs.engine.handlers import control, failing, families, ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.ticks import after_triggered_run, plan_by_new_rules, skip_queued
from bedrockjobs.engine.unit import unit
from bedrockjobs.engine.workers import Worker, WorkerRegistry
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import hold_of, placed
from bedrockjobs.job.rows import OPTION_NAMES, Job, Memory, PauseRow, encode_memory, parse_lane
from bedrockjobs.store.base import Engine, RowDamaged, SharedUnit, StoreError, Watch

# Interface used to persist the counters of each completed minute.


class Minutes(Protocol):
    """The counters of the current minute, and the counters of earlier minutes that are not yet written."""

    def to_write(self, minute: str) -> Sequence[tuple[Any, ...]]:
        """Return rows of the table ``stats`` to write now that ``minute`` has begun, perhaps not all."""

    def begin_minute(self, minute: str, written: int) -> None:
        """Make ``minute`` the current minute; drop the first ``written`` rows, since they are stored now."""


log = logging.getLogger(__name__)

AT_ONCE_MAX = 100
"""Maximum number of overdue jobs that one transaction handles, so that it stays short."""

CLEAN_EVERY = timedelta(hours=1)
"""Interval between two retention runs."""

RULES_EVERY = timedelta(days=1)
"""Interval between checks whether time zone rules have changed, which happens a few times a year."""

SETTLE_S = 15.0
"""Seconds that workers have to reconnect after a restart before broadcast schedules fire: more than
HEARTBEAT_S."""

JUMP_S = 60.0
"""Minimum change of the clock, in seconds, that is reported and for which schedules are planned again; NTP
corrects the clock by less."""

TRY_AGAIN_S = 2.0
"""Seconds before the first retry of a failed task; doubled with each failure."""


class Done:
    """What maintenance did in a transaction, usually nothing; applied to the memory after the commit."""

    started: bool = False
    worker_events: int = 0
    """How many of the worker registry's events were written."""
    rules_checked: bool = False
    """Whether planned ticks were compared with the current time zone rules."""
    cleaned: bool = False
    clean_more: bool = False
    """Whether one transaction could not delete everything past its retention."""
    minute: str | None = None
    """The current minute if it began, or if counters were written."""
    stats: int = 0
    """How many rows of counters were written."""
    ahead_s: float | None = None
    """How far the date is ahead of the monotonic clock, if the clock was set."""
    set_back: tuple[str, list[int]] | None = None
    """The time that the clock showed before it was set back, and the jobs to plan again."""
    planned: int = 0
    """How many of the jobs to plan again have been planned again."""


class Maintenance:
    """Runs the maintenance of a single server."""

    def __init__(self, engine: Engine, workers: WorkerRegistry, minutes: Minutes, clock: Clock) -> None:
        """Maintain ``engine`` and ``workers`` by ``clock``; write the counters of ``minutes``."""
        self._engine = engine
        self._workers = workers
        self._minutes = minutes
        self._minute = ""
        self._all_written = True
        """Whether all counters of earlier minutes are written."""
        self._clock = clock
        self.since = timestamp_ms(clock.now())
        """When this server started."""
        self.seen = engine.seen()
        """When the previous server was last known to be alive."""
        self._seen_at = clock.monotonic()
        self._settled_at = clock.monotonic() + (SETTLE_S if self.seen else 0)
        """When the workers of the previous server have had time to reconnect."""
        self._clean_at = clock.now() + CLEAN_EVERY
        """When the next retention run is due, as a date, since retention is counted in dates."""
        self._rules_at = clock.now() + RULES_EVERY
        """When planned ticks are next compared with the time zone rules, as a date."""
        self._clean_more_at: float | None = None
        """When the next retention run is due in monotonic seconds if the last one was incomplete, else
        None."""
        self._failures: dict[Hashable, int] = {}
        self._not_before: dict[Hashable, float] = {}
        """When failed tasks that no table can postpone are retried, in monotonic seconds."""
        self._started = False
        self._quiet_until = -inf
        """Until when there is nothing to do, in monotonic seconds, unless ``_due_times`` changes."""
        self._due_times_before: tuple[object, ...] = ()
        """The result of ``_due_times`` when ``_quiet_until`` was determined."""
        self._written = False
        """Whether a transaction has committed since ``_quiet_until`` was last checked."""
        self._more = False
        """Whether more is overdue than one transaction handles."""
        self._ahead_s = clock.ahead_s()
        self._before, self._to_plan = "", list[int]()
        """The time that the clock showed before it was set back, and the jobs that are still to be planned
        again."""

    # --- when maintenance is due -------------------------------------------------------------------------

    def due(self) -> bool:
        """Return True if there is something to do."""
        quiet = self._quiet_until > self._clock.monotonic() and not self._written
        if quiet and not (self._workers.pending_events or self._to_plan):
            return False
        return self.sleep_s() <= 0

    def as_before(self) -> bool:
        """Return True if nothing is due, and the result of the last ``sleep_s`` still holds."""
        if self._workers.pending_events or self._to_plan or not self._started or self._clock_moved_s():
            return False
        if self._due_times() != self._due_times_before or self._quiet_until <= self._clock.monotonic():
            return False
        self._written = False
        return True

    def sleep_s(self) -> float:
        """Return the seconds until there is something to do."""
        if not self._started or self._workers.pending_events or self._to_plan:
            return 0.0
        if self._written:
            self._written = False
            if self._clock_moved_s() or self._due_times() != self._due_times_before:
                self.recheck()  # while the clock was wrong, a job may have been planned for a wrong time
        quiet_s = self._quiet_until - self._clock.monotonic()
        if quiet_s > 0:
            return quiet_s
        self._due_times_before = self._due_times()
        sleep = self._sleep_s()
        self._quiet_until = self._clock.monotonic() + sleep
        return sleep

    def recheck(self) -> None:
        """Discard the cached time until which there is nothing to do."""
        self._quiet_until = -inf

    def _due_times(self) -> tuple[object, ...]:
        """Return the next due times of jobs, pauses, schedules and workers; few transactions change them."""
        return self._engine.planned(), self._workers.next_check_at

    def _sleep_s(self) -> float:
        if self._clock_moved_s():
            return 0.0
        now = self._clock.monotonic()
        sleep = min(self._workers.sleep_s(), self._until_cleaning_s(now), self._until_rules_s())
        if self._engine.next_on_all_hosts() is not None and self._settled_at > now:
            sleep = min(sleep, self._settled_at - now)
        soonest = self.next_timestamp()
        if soonest is not None:
            until = (moment_of(soonest) - self._clock.now()).total_seconds()
            if until <= 0 and self._not_before:  # the failed task may be the one that is due
                until = max(until, min(self._not_before.values()) - now)
            sleep = min(sleep, until)
        return sleep

    def _until_cleaning_s(self, now: float) -> float:
        """Return the seconds until the next retention run; ``now`` is in monotonic seconds."""
        today = self._clock.now()
        self._clean_at = min(self._clean_at, today + CLEAN_EVERY)  # the date may have been set back
        until = (self._clean_at - today).total_seconds()
        return until if self._clean_more_at is None else min(until, self._clean_more_at - now)

    def _until_rules_s(self) -> float:
        """Return the seconds until planned ticks are compared with the time zone rules."""
        today = self._clock.now()
        self._rules_at = min(self._rules_at, today + RULES_EVERY)  # the date may have been set back
        return (self._rules_at - today).total_seconds()

    def _clock_moved_s(self) -> float:
        """Return by how many seconds the clock was set since the last report; 0 if less than ``JUMP_S``."""
        moved = self._clock.ahead_s() - self._ahead_s
        if abs(moved) >= JUMP_S:
            return moved
        self._ahead_s += moved
        return 0.0

    def next_timestamp(self) -> str | None:
        """Return the next timestamp at which a job or a pause is due."""
        moment, tick = self._engine.next_moment(), self._engine.next_on_all_hosts()
        if tick is None or self._clock.monotonic() < self._settled_at:
            return moment
        return tick if moment is None else min(moment, tick)

    def is_behind(self) -> bool:
        """Return True if something is due that another server is working on."""
        return False

    # --- the tasks ---------------------------------------------------------------------------------------

    def act(self, context: Context, done: Done) -> None:
        """Do what is due, in the open transaction."""
        self.recheck()
        if not self._started:
            self._start(context)
            done.started = True
            if self.seen and after_seconds(self.seen, -JUMP_S) > context.now_ms:
                self._report_clock_change(
                    context, done, (context.moment - moment_of(self.seen)).total_seconds()
                )
        moved_s = self._clock_moved_s()
        if moved_s:
            done.ahead_s = self._ahead_s + moved_s
            self._report_clock_change(context, done, moved_s)
        self._replan(context, done)
        self._end_expired_rows(context)
        if self._workers.pending_events:
            done.worker_events = self._write_worker_events(context)
        if self._clock.monotonic() >= self._settled_at:
            self._fire_on_all_hosts(context)
        if self._until_rules_s() <= 0:
            ticks.forget_rules()
            self._plan_by_new_rules(context)
            done.rules_checked = True
        if self._until_cleaning_s(self._clock.monotonic()) <= 0:
            done.cleaned, done.clean_more = True, self._clean(context)

    def _end_expired_rows(self, context: Context) -> None:
        """End runs whose lease has expired, jobs past their deadline, and pauses."""
        overdue = self._workers.overdue(context.unit)
        for run_id in overdue:
            self._attempt(
                context,
                ("run", run_id),
                partial(failing.lease_over, context, run_id),
                partial(self._workers.postpone, run_id),
            )
        expired = context.unit.expired(context.now_ms, AT_ONCE_MAX)
        self._more = max(len(overdue), len(expired)) >= AT_ONCE_MAX
        for job in expired:
            self._attempt(
                context,
                ("expiry", job.job_id),
                partial(failing.time_over, context, job),
                partial(_expire_later, context, job),
            )
        self._end_pauses(context)

    def _fire_on_all_hosts(self, context: Context) -> None:
        """Create the jobs of the broadcast schedules that are due."""
        due = context.unit.due_on_all_hosts(context.now_ms)
        self._more = self._more or len(due) > AT_ONCE_MAX
        for job in due[:AT_ONCE_MAX]:
            fire = partial(fire_on_all_hosts, context, job)
            self._attempt(
                context,
                ("tick", job.job_id),
                partial(failing.unless_broken, context, job, fire),
                partial(_fire_later, context, job),
            )

    def _attempt(
        self, context: Context, key: Hashable, act: Callable[[], object], later: Callable[[float], object]
    ) -> None:
        """Do one task as a unit of work; if it fails, call ``later`` with the retry delay in seconds."""
        try:
            unit(context, act)
        except StoreError:
            raise
        except RowDamaged as error:
            unit(context, partial(failing.set_aside, context, error.job))
            if not isinstance(key, tuple) or key[1] != error.job.job_id:
                later(TRY_AGAIN_S)
        except Exception as error:
            failures = self._failures.get(key, 0) + 1
            # Maximum number of tasks whose failures are counted; beyond that, the counts start again from one
            if len(self._failures) >= 1_000:
                self._failures.clear()
            self._failures[key] = failures
            # Maximum retry delay
            delay_s = min(TRY_AGAIN_S * 2 ** (failures - 1), 600.0)
            if failures == 1:
                log.exception("maintenance failed: %s", key)
                what, number = key if isinstance(key, tuple) else (key, 0)
                context.note(
                    "maintenance failed",
                    job_id=0 if what == "run" else int(number),
                    run_id=int(number) if what == "run" else 0,
                    detail=f"{what}: {error}",
                )
            later(delay_s)
        else:
            self._failures.pop(key, None)

    def _start(self, context: Context) -> None:
        """Give open runs a new lease, publish the stored state, and handle ticks missed before the start."""
        context.note("server started")
        for run_id, job_id, worker, lease_s, stop in context.unit.records.open_runs():
            context.emit(RunRestored(run_id, job_id, worker, lease_s, stop))
        self._publish_stored(context)
        self._pass_over_missed(context)

    def _publish_stored(self, context: Context) -> None:
        """Publish the stored state, and plan schedules by the current time zone rules."""
        context.emit(DrainsChanged(context.unit.records.drains()))
        context.emit(HoldChanged(hold_of(context.unit.records.pauses())))
        context.emit(RunKeyKnown(context.unit.records.run_key()))
        ticks.forget_rules()
        self._plan_by_new_rules(context)

    def _plan_by_new_rules(self, context: Context) -> None:
        """Plan schedules again whose ticks were planned by time zone rules that have changed."""
        for job in in_slices(context.unit.repeating()):
            if job.memory_json != "{}" and ticks.is_schedule(job) and job.memory.offset is not None:
                plan = partial(plan_by_new_rules, context, job)
                self._attempt(
                    context,
                    ("plan", job.job_id),
                    partial(failing.unless_broken, context, job, plan),
                    lambda _: None,  # it runs at the time planned before
                )

    def _pass_over_missed(self, context: Context) -> None:
        """Skip the ticks that were missed while no server ran, for schedules that ask for that."""
        for job in context.unit.repeating(due=context.now_ms):
            if job.options.catchup == "skip" and ticks.is_schedule(job):
                skip = partial(skip_queued, context, job, "server down")
                self._attempt(
                    context,
                    ("start", job.job_id),
                    partial(failing.unless_broken, context, job, skip),
                    lambda _: None,  # its take handles the missed ticks again
                )

    def _report_clock_change(self, context: Context, done: Done, moved_s: float) -> None:
        """Report that the clock was set; if it was set back, collect the schedules to plan again."""
        now = self._clock.now()  # the transaction may have begun before the clock was set
        before = now - timedelta(seconds=moved_s)
        detail = f"from {timestamp(before)} to {timestamp(now)}"
        log.warning("the system's clock was set %s", detail)
        context.note(CLOCK_SET, detail=detail)
        if moved_s < 0:
            found = [job.job_id for job in context.unit.repeating() if job.state == "QUEUED"]
            done.set_back = (timestamp(before), found)
            families.recheck_after_clock_change(context)

    def _replan(self, context: Context, done: Done) -> None:
        """Plan some of the jobs again that were planned while the clock was ahead."""
        now = self._to_plan[:AT_ONCE_MAX]
        for job_id in now:
            self._attempt(
                context,
                ("plan", job_id),
                partial(ticks.replan, context, job_id, self._before),
                lambda _: None,  # it runs at the time planned before
            )
        done.planned = len(now)

    def _end_pauses(self, context: Context) -> None:
        now = self._clock.monotonic()
        pauses = context.unit.records.pauses()
        for pause in pauses:
            if not pause.until or pause.until > context.now_ms:
                continue
            key = f"pause {pause.pattern}"
            if self._not_before.get(key, 0.0) > now:
                continue
            self._not_before.pop(key, None)
            self._attempt(
                context, key, partial(control.end_pause, context, pause), partial(self._postpone_end, pause)
            )

    def _postpone_end(self, pause: PauseRow, delay_s: float) -> None:
        self._not_before[f"pause {pause.pattern}"] = self._clock.monotonic() + delay_s

    def _write_worker_events(self, context: Context) -> int:
        events = list(self._workers.pending_events)
        for kind, worker, there in events:
            context.note(kind, name=worker, detail=there)
        return len(events)

    def _clean(self, context: Context) -> bool:
        """Delete some rows past their retention; return True if there are more."""
        more = False

        def clean() -> None:
            nonlocal more
            more = context.unit.records.drop_old(context.moment)

        self._attempt(context, "cleaning", clean, lambda _: None)
        return more

    def note_alive(self, context: Context, done: Done) -> None:
        """Record that the server is alive, and the last minute's counters, along with another write."""
        self._note_counts(context, done)
        if self._clock.monotonic() >= self._seen_at:
            context.unit.set_seen(context.now)
            # Interval for recording that the server is alive, which is done together with other writes.
            self._seen_at = self._clock.monotonic() + 10.0

    def _note_counts(self, context: Context, done: Done) -> None:
        """Record some counters of minutes that are over."""
        if self._all_written and context.now[:16] == self._minute[:16]:
            return
        done.minute = f"{context.now[:16]}:00"
        rows = () if self._engine.tight else self._minutes.to_write(done.minute)
        if rows:
            context.unit.records.add_stats(rows)
            done.stats = len(rows)

    def committed(self, done: Done) -> None:
        """Apply what was committed to the state in memory."""
        self._written = True
        if not vars(done):
            return
        if done.started:
            self._started = True
        if done.worker_events:
            self._workers.discard_events(done.worker_events)
        if done.rules_checked:
            self._rules_at = self._clock.now() + RULES_EVERY
        if done.cleaned:
            self._clean_at = self._clock.now() + CLEAN_EVERY
            # Seconds until the next retention run if one transaction could not delete everything.
            self._clean_more_at = self._clock.monotonic() + 1 if done.clean_more else None
        if done.ahead_s is not None:
            self._ahead_s = done.ahead_s
        del self._to_plan[: done.planned]
        if done.set_back is not None:
            self._before, self._to_plan = done.set_back
        if done.minute is not None:
            self._minute = done.minute
            self._all_written = not done.stats
            self._minutes.begin_minute(done.minute, done.stats)


def _expire_later(context: Context, job: Job, delay_s: float) -> None:
    context.save(job._replace(expires=after_seconds(context.now_ms, delay_s)))


def _fire_later(context: Context, job: Job, delay_s: float) -> None:
    later = job.noting(tick=ticks.tick_of(job))
    context.save(later._replace(next_run=after_seconds(context.now_ms, delay_s)))


# Maintenance of a database shared by several servers: whichever server comes first does it. Each server
# checks twice a second, as it cannot know what the others wrote. A lock held until the end of the transaction
# ensures that only one works at a time. There is no leader, so the failure of a server does not matter.


class SharedMaintenance(Maintenance):
    """Runs the maintenance of a database together with other servers."""

    def __init__(self, engine: Engine, workers: WorkerRegistry, minutes: Minutes, clock: Clock) -> None:
        """Maintain ``engine`` and ``workers`` by ``clock``; write the counters of ``minutes``."""
        super().__init__(engine, workers, minutes, clock)
        self._watch_at = clock.monotonic()
        self._settled_at = clock.monotonic()

    def sleep_s(self) -> float:
        """Return the seconds until there is something to do or to check."""
        if not self._started or self._workers.pending_events or self._to_plan:
            return 0.0
        return max(self._watch_at - self._clock.monotonic(), 0.0)

    def recheck(self) -> None:
        """Check now for maintenance that is due."""
        self._watch_at = self._clock.monotonic()

    def is_behind(self) -> bool:
        """Return True if something is due and not yet done."""
        try:
            soonest = self.next_timestamp()
        except StoreError:  # the database is unreachable: waiting would not help
            return False
        return soonest is not None and soonest <= timestamp_ms(self._clock.now())

    def act(self, context: Context, done: Done) -> None:
        """Write this server's events, and do what is due unless another server is doing it."""
        unit = cast(SharedUnit, context.unit)
        watch = unit.watch()
        self.seen, self.since = watch.away
        if watch.mine:
            self._look_after(context, unit, watch, done)
            super().act(context, done)
        else:
            if not self._started:
                self._start(context)
                done.started = True
            if self._workers.pending_events:
                done.worker_events = self._write_worker_events(context)
        context.seen, context.since = self.seen, self.since
        again_s = 0.0 if watch.mine and self._more else WATCH_EVERY_S
        self._watch_at = self._clock.monotonic() + again_s

    def _look_after(self, context: Context, unit: SharedUnit, watch: Watch, done: Done) -> None:
        """Record that maintenance runs; catch up if no server ran it for a while."""
        now = timestamp_ms(self._workers.lease_moment())
        if watch.seen and after_seconds(watch.seen, AWAY_S) < now:
            unit.record_outage(watch.seen, now)
            self.seen, self.since = watch.seen, now
            self._settled_at = self._clock.monotonic() + SETTLE_S
            self._pass_over_missed(context)
        if watch.seen > after_seconds(now, JUMP_S) and not self._clock_moved_s():
            self._set_back_before(context, watch.seen, done)
        if not watch.seen or not watch.seen <= now < after_seconds(watch.seen, WATCHED_EVERY_S):
            unit.watched(now)

    def _set_back_before(self, context: Context, seen: str, done: Done) -> None:
        """Report that the clock was set back before this start; a test clock only moves by command."""
        if not isinstance(self._clock, StandingClock):
            self._report_clock_change(context, done, (context.moment - moment_of(seen)).total_seconds())

    def _start(self, context: Context) -> None:
        """Publish the stored state only: other servers may have renewed the leases of open runs."""
        self._publish_stored(context)

    def note_alive(self, context: Context, done: Done) -> None:
        """Record the last minute's counters, along with another write."""
        self._note_counts(context, done)

    def as_before(self) -> bool:
        """Return False: other servers may have changed something."""
        return False


def maintenance_of(engine: Engine, workers: WorkerRegistry, minutes: Minutes, clock: Clock) -> Maintenance:
    """Return the maintenance for the engine: of a single server, or shared with other servers."""
    kind = SharedMaintenance if engine.shared else Maintenance
    return kind(engine, workers, minutes, clock)


# Broadcast jobs: each tick of a schedule with ``hosts: all`` creates one job for each live worker.
#
# Such a job is bound to its worker and has no parent or children. It is deleted when it ends, and dropped if
# its worker does not take it before the next tick.


PASSED_ON = OPTION_NAMES - {"hosts", "catchup", "overlap", "maxLate", "jitter", "expireAfter", "source"}
"""Options that the created jobs inherit from the schedule."""


def workers_for(context: Context, job: Job) -> list[str]:
    """Return the names of the live workers that take jobs and may run a schedule.

    Any token holder may invent workers, so each token gets jobs for a limited number of them. Workers that
    ever got a job come first, then the workers that have been alive the longest.
    """
    own = job.options.own_command
    drains = context.unit.records.drains()
    presence = context.presence
    found: dict[str, Worker] = {}
    for pattern in presence.requested_names.patterns_of(job.name):
        for name in presence.requested_names.workers(pattern):
            worker = presence.workers[name]
            if name not in drains and not worker.quiet and (not own or own in worker.accepts):
                found[name] = worker
    by_token: defaultdict[str, list[Worker]] = defaultdict(list)
    for worker in found.values():
        by_token[worker.by or ""].append(worker)
    for token, some in by_token.items():
        if len(some) > HOSTS_PER_CALLER_MAX:
            some.sort(key=lambda worker: (not worker.served, worker.joined, worker.name))
            for worker in some[HOSTS_PER_CALLER_MAX:]:
                del found[worker.name]
            whose = f" of token {token}" if token else ""
            detail = f"{HOSTS_PER_CALLER_MAX:,} of {len(some):,} workers{whose} got a job of this tick"
            context.note("limited", name=job.name, job_id=job.job_id, detail=detail)
    return sorted(found)


def fire_on_all_hosts(context: Context, job: Job) -> None:
    """Create the jobs of a due schedule, and plan its next tick; raise CannotEvaluate."""
    manual = job.memory.trigger is not None
    job = job.remembering(job.memory.after_end())  # it was a retry when it became a broadcast schedule
    due = (job, False) if manual else ticks.fire(context, job)
    if due is None:
        return
    job, caught_up = due
    workers = workers_for(context, job)
    tick = context.now if manual else ticks.tick_of(job)
    following = ticks.next_after(job, context.now_ms)
    if not workers and not manual:
        ticks.skip(context, job, tick, tick, "no worker")
    elif not manual:
        ticks.enter_fired(context, job, 0, caught_up=caught_up)
    busy = frozenset() if job.options.overlap == "queue" else _busy(context, job)
    for worker in in_slices(workers):
        if worker not in busy:
            context.unit.insert(_job_for(context, job, worker, tick, following, manual=manual))
    ran = job._replace(last_run=context.now, attempt=job.attempt + 1)
    again = after_triggered_run(context, ran) if manual else ticks.with_tick(ran, following)
    assert again is not None
    context.save(again)


def _busy(context: Context, job: Job) -> frozenset[str]:
    """Return the workers whose job of an earlier tick is still pending."""
    jobs = context.unit.bound_of_name(job.name)
    return frozenset(parse_lane(one.lane).worker for one in jobs if one.state in lifecycle.PENDING)


def _job_for(context: Context, schedule: Job, worker: str, tick: str, following: str, *, manual: bool) -> Job:
    options = {key: text for key, text in jsontext.members(schedule.options_json).items() if key in PASSED_ON}
    left = (moment_of(following) - moment_of(tick)).total_seconds()
    options["expireAfter"] = str(max(int(left) - 1, 1))
    memory = Memory(bound_to=worker, cause="manual" if manual else "")
    return placed(
        Job(
            context.now,
            context.unit.new_job_id(),
            lifecycle.target("create", lifecycle.GONE),
            schedule.name,
            tick,
            data=schedule.data,
            priority=schedule.priority,
            options_json=jsontext.join(options),
            memory_json=encode_memory(memory),
        )
    )
