"""What is too old to be kept, in the tables beside jobs: forgotten bit by bit, in short transactions."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

from bedrockjobs.base.config import EVENTS_KEPT_MAX, KEYS_KEPT_S, OUTPUT_KEPT_S, RUNS_KEPT_MAX, STATS_KEPT_S
from bedrockjobs.base.wire import after_seconds, stamp, stamp_ms
from bedrockjobs.job.rows import RunRow
from bedrockjobs.store.access_records import AccessRecords

CLEANED_MAX = 10_000
"""Rows of one kind that one look for old ones deletes: its transaction must be short."""

LOOKED_AT_MAX = 1_000
"""Runs with output, and ledgers, that one look goes through."""


class CleanedRecords(AccessRecords):
    """The tables of which what is too old is forgotten."""

    _trimmed = 0
    """The oldest runs up to this one are trimmed."""
    _cleaned = (0, 0)
    """The ledger and the run with output that ``drop_old`` looked at last; 0: it begins anew."""

    @abstractmethod
    def run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""

    @abstractmethod
    def delete_ticks(self, job_id: int) -> None:
        """Forget a schedule's ledger."""

    def drop_old(self, moment: datetime) -> bool:
        """Forget some of what is too old at a moment; return whether there is more of it."""
        now = stamp_ms(moment)
        self._execute(self._sql["trim_keys"], (after_seconds(now, -KEYS_KEPT_S), CLEANED_MAX))
        more = self._drop_runs(now)
        self._execute(self._sql["trim_events"], (EVENTS_KEPT_MAX,))
        self._execute(self._sql["trim_minutes"], (after_seconds(stamp(moment), -STATS_KEPT_S),))
        self.drop_old_access(moment)
        self._cleaned = (self._drop_ledgers(self._cleaned[0]), self._drop_output(self._cleaned[1], now))
        return more or any(self._cleaned)

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
        ended_before = after_seconds(now, -OUTPUT_KEPT_S)
        for _ in range(LOOKED_AT_MAX):
            found = self._execute(self._sql["next_run_with_output"], (after,)).fetchone()
            if found is None:
                return 0
            after = found[0]
            run = self.run(after)
            if run is None or (run.ended and run.ended <= ended_before):
                self._execute(self._sql["delete_output"], (after,))
        return after

    def _drop_ledgers(self, after: int) -> int:
        """Forget the ledgers of jobs that are gone; return the jobID to go on after, 0 at the end."""
        for _ in range(LOOKED_AT_MAX):
            found = self._execute(self._sql["next_ledger"], (after,)).fetchone()
            if found is None:
                return 0
            after = found[0]
            if not found[1]:
                self.delete_ticks(after)
        return after
