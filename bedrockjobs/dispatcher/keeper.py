"""What time alone changes, done inside the transactions: leases, deadlines, pauses that end, what is old.

Nothing is remembered here that the tables and the desk do not know: after a failed transaction all of it is
simply looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from bedrockjobs.clock import Clock
from bedrockjobs.config import EVENTS_KEPT_MAX, KEYS_KEPT_S, OUTPUT_KEPT_S, RUNS_KEPT_MAX, STATS_KEPT_S
from bedrockjobs.desk import Desk, OpenRun
from bedrockjobs.handlers import again, control, failing, hosts, ticks
from bedrockjobs.handlers.placing import after_seconds, word
from bedrockjobs.handlers.turn import Turn
from bedrockjobs.store.sqlite import SQLiteStore
from bedrockjobs.tally import Tally
from bedrockjobs.wire import moment_of, stamp_ms

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


class Keeper:
    """Keeps the time of one server."""

    def __init__(self, store: SQLiteStore, desk: Desk, tally: Tally, clock: Clock) -> None:
        """Keep the time of ``store`` and ``desk`` by ``clock``; write the minutes of ``tally``."""
        self._store = store
        self.tally = tally
        self._desk = desk
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
        if not self._started or self._desk.news:
            return 0.0
        sleep = min(self._desk.sleep_s(), self._clean_at - self._clock.monotonic())
        if self._store.ready.every.next is not None:
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
        every = self._store.ready.every.next
        if every is not None and self._clock.monotonic() >= self._settled_at:
            moments.append(every)
        return min(moments, default=None)

    def act(self, turn: Turn) -> None:
        """Do what is due, in the open transaction."""
        if not self._started:
            self._start(turn)
        for run_id in self._desk.overdue():
            if not self._tried(turn, partial(failing.lease_over, turn, run_id)):
                turn.after.append(partial(self._desk.closed, run_id))
        self._expire(turn)
        ended = [pause for pause in turn.tx.records.pauses() if pause.until and pause.until <= turn.now_ms]
        if ended:
            control.resume(turn, ended)
        if self._desk.news:
            self._write_news(turn)
        if self._clock.monotonic() >= self._settled_at:
            for row in self._store.ready.every.due(turn.now_ms)[:AT_ONCE_MAX]:
                if not self._tried(turn, partial(hosts.fire, turn, row)):
                    self._store.ready.every.set_aside(row.job_id)
        if self._clock.monotonic() >= self._clean_at:
            self._clean(turn)

    def _tried(self, turn: Turn, act: Callable[[], None]) -> bool:
        """Do one thing; where it fails, undo and log it, so that nothing else fails with it."""
        freed, after = list(self._store.ready.freed), len(turn.after)
        self._store.savepoint()
        try:
            act()
        except Exception:
            log.exception("what time asked for could not be done")
            self._store.undo()
            self._store.ready.freed[:] = freed
            del turn.after[after:]
            return False
        self._store.release()
        return True

    def note_alive(self, turn: Turn) -> None:
        """Note that the server is alive and what the last minute was, where something is written anyway."""
        minute = f"{turn.now[:16]}:00"
        if minute != self.tally.open.minute:
            if any(self.tally.open.counts()):
                turn.tx.records.add_minute(self.tally.open.minute, self.tally.open.counts())
            turn.after.append(lambda: self.tally.begin(minute))
        if self._clock.monotonic() >= self._seen_at:
            self._store.set_seen(turn.now)
            self._seen_at = self._clock.monotonic() + SEEN_S

    def _start(self, turn: Turn) -> None:
        """Give open runs a new lease; let schedules pass over what they missed, where they want that."""
        turn.note("server started")
        for run_id, job_id, worker, lease, stop in turn.tx.records.open_runs():
            run = OpenRun(run_id, job_id, worker, lease, stop=stop.split()[0] if stop else "")
            turn.after.append(lambda run=run: self._desk.opened(run))  # type: ignore[misc]
        turn.after.append(lambda: self._desk.drained(turn.tx.records.drains()))
        for row in turn.tx.repeating():
            if row.state == "QUEUED" and ticks.is_schedule(row) and word(row, "catchup", "once") == "skip":
                again.pass_over(turn, row, "server down")
        turn.after.append(self._set_started)

    def _set_started(self) -> None:
        self._started = True

    def _expire(self, turn: Turn) -> None:
        soonest = self._store.next_expiry
        if soonest is None or soonest > turn.now_ms:
            return
        for row in turn.tx.expired(turn.now_ms, AT_ONCE_MAX):
            if not self._tried(turn, partial(failing.time_over, turn, row)):
                turn.tx.save(row._replace(expires=""))
        self._store.look_for_expiry()

    def _write_news(self, turn: Turn) -> None:
        news = list(self._desk.news)
        for kind, worker, there in news:
            turn.note(kind, name=worker, detail=there)
        turn.after.append(lambda: self._forget(len(news)))

    def _forget(self, count: int) -> None:
        del self._desk.news[:count]

    def _clean(self, turn: Turn) -> None:
        """Forget what is too old."""
        records = turn.tx.records
        records.drop_keys(after_seconds(turn.now_ms, -KEYS_KEPT_S), CLEANED_MAX)
        records.drop_runs(RUNS_KEPT_MAX, CLEANED_MAX)
        self._ledgers = records.drop_orphan_ticks(self._ledgers, OUTPUT_RUNS_MAX)
        records.drop_events(EVENTS_KEPT_MAX)
        records.drop_minutes(after_seconds(turn.now, -STATS_KEPT_S))
        ended_before = stamp_ms(turn.moment - timedelta(seconds=OUTPUT_KEPT_S))
        self._cleaned = records.drop_output(ended_before, self._cleaned, OUTPUT_RUNS_MAX)
        again = CLEAN_S if not (self._cleaned or self._ledgers) else 1
        turn.after.append(lambda: self._clean_in(again))

    def _clean_in(self, seconds: float) -> None:
        self._clean_at = self._clock.monotonic() + seconds
