"""What time alone changes, done inside the transactions: leases, deadlines, pauses that end, what is old.

Nothing is remembered here that the tables and the workers' registry do not know: after a failed transaction
all of it is simply looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import EVENTS_KEPT_MAX, KEYS_KEPT_S, OUTPUT_KEPT_S, RUNS_KEPT_MAX, STATS_KEPT_S
from bedrockjobs.base.wire import moment_of, stamp_ms
from bedrockjobs.engine.handlers import control, failing, hosts, ticks
from bedrockjobs.engine.handlers import trigger as again
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.handlers.job_options import after_seconds, word
from bedrockjobs.engine.workers import OpenRun, WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.store.sqlite import SQLiteStore

log = logging.getLogger(__name__)

AT_ONCE_MAX = 100
"""Jobs whose time is over that one transaction deals with, so that it stays short."""

CLEAN_S = 3_600
"""Time between two looks for what is too old to be kept."""

SETTLE_S = 15.0
"""Time for workers to come back after a restart, before schedules on all hosts fire; over HEARTBEAT_S."""

SEEN_S = 10.0
"""Time between two notes that the server is alive, which go with other writes."""

OUTPUT_RUNS_MAX = 1_000
"""Runs with output, and ledgers, that one look goes through."""

CLEANED_MAX = 10_000
"""Rows of one kind that one look deletes: its transaction must be short."""


class Maintenance:
    """Keeps the time of one server."""

    def __init__(self, store: SQLiteStore, presence: WorkerRegistry, stats: Stats, clock: Clock) -> None:
        """Keep the time of ``store`` and ``desk`` by ``clock``; write the minutes of ``stats``."""
        self._store = store
        self.stats = stats
        self._presence = presence
        self._clock = clock
        self.since = stamp_ms(clock.now())
        """When this server started."""
        self.seen = store.seen()
        """When the one before was last known to be alive."""
        self._seen_at = clock.monotonic()
        self._settled_at = clock.monotonic() + (SETTLE_S if self.seen else 0)
        """When the workers of the server before this one have said that they are there."""
        self._clean_at = clock.monotonic() + CLEAN_S
        self._cleaned = self._ledgers = 0
        self._started = False

    def due(self) -> bool:
        """Tell whether there is something to do."""
        return self.sleep_s() <= 0

    def sleep_s(self) -> float:
        """Return the seconds until there is something to do."""
        if not self._started or self._presence.news:
            return 0.0
        sleep = min(self._presence.sleep_s(), self._clean_at - self._clock.monotonic())
        if self._store.ready.all_hosts.next is not None:
            unsettled = self._settled_at - self._clock.monotonic()
            sleep = min(sleep, unsettled) if unsettled > 0 else sleep
        soonest = self.next_stamp()
        if soonest is not None:
            sleep = min(sleep, (moment_of(soonest) - self._clock.now()).total_seconds())
        return sleep

    def next_stamp(self) -> str | None:
        """Return the next date that matters to a job or a pause."""
        moments = [pause.until for pause in self._store.records.pauses() if pause.until]
        if self._store.next_expiry is not None:
            moments.append(self._store.next_expiry)
        every = self._store.ready.all_hosts.next
        if every is not None and self._clock.monotonic() >= self._settled_at:
            moments.append(every)
        return min(moments, default=None)

    def act(self, context: Context) -> None:
        """Do what is due, in the open transaction."""
        if not self._started:
            self._start(context)
        for run_id in self._presence.overdue():
            if not self._tried(context, partial(failing.lease_over, context, run_id)):
                context.after.append(partial(self._presence.closed, run_id))
        self._expire(context)
        ended = [
            pause for pause in context.tx.records.pauses() if pause.until and pause.until <= context.now_ms
        ]
        if ended:
            control.resume(context, ended)
        if self._presence.news:
            self._write_news(context)
        if self._clock.monotonic() >= self._settled_at:
            for row in self._store.ready.all_hosts.due(context.now_ms)[:AT_ONCE_MAX]:
                if not self._tried(context, partial(hosts.fire, context, row)):
                    self._store.ready.all_hosts.set_aside(row.job_id)
        if self._clock.monotonic() >= self._clean_at:
            self._clean(context)

    def _tried(self, context: Context, act: Callable[[], None]) -> bool:
        """Do one thing; where it fails, undo and log it, so that nothing else fails with it."""
        newly_ready, after = list(self._store.ready.newly_ready), len(context.after)
        self._store.savepoint()
        try:
            act()
        except Exception:
            log.exception("what time asked for could not be done")
            self._store.undo()
            self._store.ready.newly_ready[:] = newly_ready
            del context.after[after:]
            return False
        self._store.release()
        return True

    def note_alive(self, context: Context) -> None:
        """Note that the server is alive and what the last minute was, where something is written anyway."""
        minute = f"{context.now[:16]}:00"
        if minute != self.stats.open.minute:
            if any(self.stats.open.counts()):
                context.tx.records.add_minute(self.stats.open.minute, self.stats.open.counts())
            context.after.append(lambda: self.stats.begin(minute))
        if self._clock.monotonic() >= self._seen_at:
            self._store.set_seen(context.now)
            self._seen_at = self._clock.monotonic() + SEEN_S

    def _start(self, context: Context) -> None:
        """Give open runs a new lease; let schedules pass over what they missed, where they want that."""
        context.note("server started")
        for run_id, job_id, worker, lease, stop in context.tx.records.open_runs():
            run = OpenRun(run_id, job_id, worker, lease, stop=stop.split()[0] if stop else "")
            context.after.append(lambda run=run: self._presence.opened(run))  # type: ignore[misc]
        context.after.append(lambda: self._presence.drained(context.tx.records.drains()))
        for row in context.tx.repeating():
            if row.state == "QUEUED" and ticks.is_schedule(row) and word(row, "catchup", "once") == "skip":
                again.pass_over(context, row, "server down")
        context.after.append(self._set_started)

    def _set_started(self) -> None:
        self._started = True

    def _expire(self, context: Context) -> None:
        soonest = self._store.next_expiry
        if soonest is None or soonest > context.now_ms:
            return
        for row in context.tx.expired(context.now_ms, AT_ONCE_MAX):
            if not self._tried(context, partial(failing.time_over, context, row)):
                context.tx.save(row._replace(expires=""))
        self._store.look_for_expiry()

    def _write_news(self, context: Context) -> None:
        news = list(self._presence.news)
        for kind, worker, there in news:
            context.note(kind, name=worker, detail=there)
        context.after.append(lambda: self._forget(len(news)))

    def _forget(self, count: int) -> None:
        del self._presence.news[:count]

    def _clean(self, context: Context) -> None:
        """Forget what is too old."""
        records = context.tx.records
        records.drop_keys(after_seconds(context.now_ms, -KEYS_KEPT_S), CLEANED_MAX)
        records.drop_runs(RUNS_KEPT_MAX, CLEANED_MAX)
        self._ledgers = records.drop_orphan_ticks(self._ledgers, OUTPUT_RUNS_MAX)
        records.drop_events(EVENTS_KEPT_MAX)
        records.drop_minutes(after_seconds(context.now, -STATS_KEPT_S))
        ended_before = stamp_ms(context.moment - timedelta(seconds=OUTPUT_KEPT_S))
        self._cleaned = records.drop_output(ended_before, self._cleaned, OUTPUT_RUNS_MAX)
        again = CLEAN_S if not (self._cleaned or self._ledgers) else 1
        context.after.append(lambda: self._clean_in(again))

    def _clean_in(self, seconds: float) -> None:
        self._clean_at = self._clock.monotonic() + seconds
