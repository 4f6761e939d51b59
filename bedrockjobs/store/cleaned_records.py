"""What is too old to be kept, in the tables beside jobs: forgotten bit by bit, in short transactions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from datetime import datetime

from bedrockjobs.base.config import (
    EVENTS_KEPT_MAX,
    JOB_ID_MAX,
    OUTPUT_KEPT_S,
    RUNS_KEPT_MAX,
    STATS_KEPT_S,
)
from bedrockjobs.base.name_limits import EVENTS_KEPT_S_MIN
from bedrockjobs.base.wire import after_seconds, stamp, stamp_ms
from bedrockjobs.job.retention import Retention, rule_for, rules_of, value_for
from bedrockjobs.job.rows import RunRow
from bedrockjobs.store.access_records import AccessRecords

CLEANED_MAX = 10_000
"""Rows of one kind that one look for old ones deletes: its transaction must be short."""

LOOKED_AT_MAX = 1_000
"""Runs, runs with output, events and ledgers that one look goes through."""

MEASURED_MAX = 10
"""Ledgers of which one look adds up the room: each has up to a thousand rows."""


@dataclass(slots=True)
class _Walk:
    """How far a walk through runs or events is, from the newest to the oldest."""

    before: int = JOB_ID_MAX
    """The one that was looked at last."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The room that those of each pattern take that were looked at."""

    def is_over(self, rule: tuple[str, int] | None, size: int) -> bool:
        """Tell whether one of this size, and all older ones, are beyond the room of their pattern."""
        if rule is None:
            return False
        pattern, most = rule
        self.sizes[pattern] = self.sizes.get(pattern, 0) + size
        return self.sizes[pattern] > most


class CleanedRecords(AccessRecords):
    """The tables of which what is too old is forgotten."""

    _trimmed = 0
    """The oldest runs up to this one are trimmed."""
    _cleaned = (0, 0)
    """The ledger and the run with output that ``drop_old`` looked at last; 0: it begins anew."""

    _walk: _Walk | None = None
    """A walk through the runs of which names or the server have limits, where it is not at its end."""
    _events_after = 0
    """The event up to which it was looked for what is too old by name; 0: it begins anew."""
    _events_walk: _Walk | None = None
    """A walk through the events of which names have limits of room, where it is not at its end."""

    @property
    def keep_finished_s(self) -> float:
        """Return how long a job that ended well is kept; 0: the quick way to end a job need not ask."""
        return self.obeyed.keep_finished

    @property
    def keys_kept_s(self) -> float:
        """Return how long an idempotency key is remembered."""
        return self.obeyed.keep_keys_s

    @abstractmethod
    def retention(self) -> tuple[Retention, ...]:
        """Return what is kept of names, by pattern."""

    @abstractmethod
    def run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""

    @abstractmethod
    def delete_ticks(self, job_id: int) -> None:
        """Forget a schedule's ledger."""

    def drop_old(self, moment: datetime) -> bool:
        """Forget some of what is too old at a moment; return whether there is more of it."""
        now = stamp_ms(moment)
        self._execute(self._sql["trim_keys"], (after_seconds(now, -self.keys_kept_s), CLEANED_MAX))
        more = self._drop_runs(now)
        self._execute(self._sql["trim_events"], (EVENTS_KEPT_MAX,))
        self._execute(self._sql["trim_minutes"], (after_seconds(stamp(moment), -STATS_KEPT_S),))
        self.drop_old_access(moment)
        more = self._drop_by_limits(now) or more
        more = self._drop_events(now) or more
        more = self._drop_events_by_room(now) or more
        self._cleaned = (self._drop_ledgers(self._cleaned[0], now), self._drop_output(self._cleaned[1], now))
        return more or any(self._cleaned)

    def _drop_by_limits(self, now: str) -> bool:
        """Forget runs beyond the limits of their names, from the newest on; return whether there are more.

        Room is for those as well that are kept for a time: a disk is no larger for them.
        """
        times, sizes = rules_of(self.retention(), "runs"), rules_of(self.retention(), "runs_bytes")
        if not (times or sizes):
            self._walk = None
            return False
        walk = self._walk or _Walk()
        statement = self._sql["ended_runs_and_sizes" if sizes else "ended_runs"]
        rows = self._execute(statement, (walk.before, LOOKED_AT_MAX)).fetchall()
        for run_id, name, ended, kept, size in rows:
            walk.before = run_id
            over = walk.is_over(rule_for(sizes, name), size)
            time = None if kept else rule_for(times, name)
            if over or (time is not None and ended <= after_seconds(now, -time[1])):
                self._execute(self._sql["delete_output"], (run_id,))
                self._execute(self._sql["delete_run"], (run_id,))
        self._walk = walk if len(rows) == LOOKED_AT_MAX else None
        return self._walk is not None

    def _drop_events(self, now: str) -> bool:
        """Forget events too old for their names, from the oldest on; return whether there are more."""
        rules = rules_of(self.retention(), "events")
        if not rules:
            return False
        soonest = after_seconds(now, -max(min(seconds for _, seconds in rules), EVENTS_KEPT_S_MIN))
        rows = self._execute(self._sql["oldest_events"], (self._events_after, LOOKED_AT_MAX)).fetchall()
        for seq, at, name in rows:
            if at > soonest:
                break
            self._events_after = seq
            rule = rule_for(rules, name)
            if rule is not None and at <= after_seconds(now, -max(rule[1], EVENTS_KEPT_S_MIN)):
                self._execute(self._sql["delete_event"], (seq,))
        else:
            if len(rows) == LOOKED_AT_MAX:
                return True
        self._events_after = 0
        return False

    def _drop_events_by_room(self, now: str) -> bool:
        """Forget events beyond the room of their names, from the newest on; return whether there are more."""
        rules = rules_of(self.retention(), "events_bytes")
        if not rules:
            self._events_walk = None
            return False
        walk, old = self._events_walk or _Walk(), after_seconds(now, -EVENTS_KEPT_S_MIN)
        rows = self._execute(self._sql["newest_events_and_sizes"], (walk.before, LOOKED_AT_MAX)).fetchall()
        for seq, at, name, size in rows:
            walk.before = seq
            if walk.is_over(rule_for(rules, name), size) and at <= old:
                self._execute(self._sql["delete_event"], (seq,))
        self._events_walk = walk if len(rows) == LOOKED_AT_MAX else None
        return self._events_walk is not None

    def _drop_runs(self, now: str) -> bool:
        """Forget runs that were kept for a time, and the oldest others; return whether there may be more."""
        self._execute(self._sql["trim_kept"], (now, CLEANED_MAX))
        next_kept = self._execute(self._sql["next_kept"]).fetchone()[0]
        more: bool = next_kept is not None and next_kept <= now
        given = (self._trimmed, RUNS_KEPT_MAX, CLEANED_MAX)
        last = self._execute(self._sql["old_runs"], given).fetchone()[0]
        if last is None:
            return more
        self._execute(self._sql["trim_runs"], (self._trimmed, last))
        self._trimmed = last
        return True

    def _drop_output(self, after: int, now: str) -> int:
        """Forget the output of runs that ended long ago; return the run to go on after, 0 at the end."""
        rules = rules_of(self.retention(), "output")
        for _ in range(LOOKED_AT_MAX):
            found = self._execute(self._sql["next_run_with_output"], (after,)).fetchone()
            if found is None:
                return 0
            after = found[0]
            run = self.run(after)
            kept_s = OUTPUT_KEPT_S if run is None else value_for(rules, run.name, OUTPUT_KEPT_S)
            if run is None or (run.ended and run.ended <= after_seconds(now, -kept_s)):
                self._execute(self._sql["delete_output"], (after,))
        return after

    def _drop_ledgers(self, after: int, now: str) -> int:
        """Forget ledgers of jobs that are gone, and old ticks; return the jobID to go on after, or 0."""
        times, sizes = rules_of(self.retention(), "ticks"), rules_of(self.retention(), "ticks_bytes")
        measured = 0
        for _ in range(LOOKED_AT_MAX):
            found = self._execute(self._sql["next_ledger"], (after,)).fetchone()
            if found is None:
                return 0
            after, name = found[0], found[1] or ""
            if not name:
                self.delete_ticks(after)
                continue
            if (time := rule_for(times, name)) is not None:
                self._execute(self._sql["trim_old_ticks"], (after, after_seconds(now, -time[1])))
            if (size := rule_for(sizes, name)) is not None:
                self._execute(self._sql["trim_ticks_to_size"], (after, size[1]))
                measured += 1
                if measured == MEASURED_MAX:
                    break
        return after
