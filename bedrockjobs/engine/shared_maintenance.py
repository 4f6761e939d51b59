"""What time asks for where several servers share a database: one of them does it, whichever comes first.

Each server looks twice a second, as it cannot know what the others wrote. A lock that ends with the
transaction makes sure that one of them is at it; nobody leads, and nobody is missed.
"""

from __future__ import annotations

from typing import cast

from bedrockjobs.base.clock import Clock, StandingClock
from bedrockjobs.base.config import AWAY_S, WATCH_EVERY_S, WATCHED_EVERY_S
from bedrockjobs.base.wire import after_seconds, moment_of, stamp_ms
from bedrockjobs.engine.events import DrainsChanged, HoldChanged, RunKeyKnown
from bedrockjobs.engine.handlers import ticks
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.maintenance import JUMP_S, SETTLE_S, Done, Maintenance
from bedrockjobs.engine.minutes import Minutes
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.hold import hold_of
from bedrockjobs.store.base import Engine
from bedrockjobs.store.faults import StoreError
from bedrockjobs.store.sharing import SharedUnit, Watch


class SharedMaintenance(Maintenance):
    """Keeps the time of a database together with other servers."""

    def __init__(self, engine: Engine, workers: WorkerRegistry, minutes: Minutes, clock: Clock) -> None:
        """Keep the time of ``engine`` and ``workers`` by ``clock``; write what ``minutes`` counted."""
        super().__init__(engine, workers, minutes, clock)
        self._watch_at = clock.monotonic()
        self._settled_at = clock.monotonic()

    def sleep_s(self) -> float:
        """Return the seconds until there is something to do, or to be looked for."""
        if not self._started or self._workers.news or self._to_plan:
            return 0.0
        return max(self._watch_at - self._clock.monotonic(), 0.0)

    def look_anew(self) -> None:
        """Look now at what time asks for."""
        self._watch_at = self._clock.monotonic()

    def is_behind(self) -> bool:
        """Tell whether time asks for something that is not yet done."""
        try:
            soonest = self.next_stamp()
        except StoreError:  # it cannot be done by now
            return False
        return soonest is not None and soonest <= stamp_ms(self._clock.now())

    def act(self, context: Context, done: Done) -> None:
        """Write what this server has to tell, and do what is due, unless another server is at it."""
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
            if self._workers.news:
                done.news = self._write_news(context)
        context.seen, context.since = self.seen, self.since
        again_s = 0.0 if watch.mine and self._more else WATCH_EVERY_S
        self._watch_at = self._clock.monotonic() + again_s

    def _look_after(self, context: Context, unit: SharedUnit, watch: Watch, done: Done) -> None:
        """Note that time is looked after; where nobody did for a while, make up for it."""
        now = stamp_ms(self._workers.lease_moment())
        if watch.seen and after_seconds(watch.seen, AWAY_S) < now:
            unit.was_away(watch.seen, now)
            self.seen, self.since = watch.seen, now
            self._settled_at = self._clock.monotonic() + SETTLE_S
            self._pass_over_missed(context)
        if watch.seen > after_seconds(now, JUMP_S) and not self._clock_moved_s():
            self._set_back_before(context, watch.seen, done)
        if not watch.seen or not watch.seen <= now < after_seconds(watch.seen, WATCHED_EVERY_S):
            unit.watched(now)

    def _set_back_before(self, context: Context, seen: str, done: Done) -> None:
        """Tell that the clock was set back before this server started; a test clock goes by itself."""
        if not isinstance(self._clock, StandingClock):
            self._tell_clock(context, done, (context.moment - moment_of(seen)).total_seconds())

    def _start(self, context: Context) -> None:
        """Tell who is drained, and plan by the rules of zones as they are now."""
        context.emit(DrainsChanged(context.unit.records.drains()))
        context.emit(HoldChanged(hold_of(context.unit.records.pauses())))
        context.emit(RunKeyKnown(context.unit.records.run_key()))
        ticks.forget_rules()
        self._plan_by_new_rules(context)

    def note_alive(self, context: Context, done: Done) -> None:
        """Write what the last minute was, where something is written anyway."""
        self._note_minute(context, done)


def maintenance_of(engine: Engine, workers: WorkerRegistry, minutes: Minutes, clock: Clock) -> Maintenance:
    """Return what keeps the time of an engine: alone, or together with other servers."""
    kind = SharedMaintenance if engine.shared else Maintenance
    return kind(engine, workers, minutes, clock)
