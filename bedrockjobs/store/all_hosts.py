"""Cache of the queued broadcast schedules, for which the server creates a job per host when they are due.

A server has few of them, so all are cached.
"""

from __future__ import annotations

from collections.abc import Callable

from bedrockjobs.job.lanes import EVERY_LANE
from bedrockjobs.job.rows import Job


class AllHostsSchedules:
    """The queued broadcast schedules, and when the next one is due."""

    lane = EVERY_LANE

    def __init__(self, is_paused: Callable[[str], bool]) -> None:
        """Begin empty; ``is_paused`` returns whether a name is paused."""
        self.rows: dict[int, Job] = {}
        self._is_paused = is_paused
        self._next: str | None = None
        self._known = False

    def load(self, rows: list[Job]) -> None:
        """Replace all rows."""
        self.rows.clear()
        self.rows.update((row.job_id, row) for row in rows)
        self._known = False

    def note(self, row: Job) -> None:
        """Add, update or remove a written job."""
        if row.lane == EVERY_LANE and row.queued:
            self.rows[row.job_id] = row
            self._known = False
        else:
            self.set_aside(row.job_id)

    def set_aside(self, job_id: int) -> None:
        """Remove a schedule until it is written again."""
        if self.rows.pop(job_id, None) is not None:
            self._known = False

    def pauses_changed(self) -> None:
        """Handle a change of the pauses."""
        self._known = False

    @property
    def next(self) -> str | None:
        """Return when the next one is due."""
        if not self._known:
            rows = self.rows.values()
            self._next = min((row.next_run for row in rows if not self._waits(row)), default=None)
            self._known = True
        return self._next

    def due(self, now: str) -> list[Job]:
        """Return the due ones, oldest first."""
        if self.next is None or self.next > now:
            return []
        rows = [row for row in self.rows.values() if row.next_run <= now and not self._waits(row)]
        return sorted(rows, key=lambda row: (row.next_run, row.job_id))

    def _waits(self, row: Job) -> bool:
        return self._is_paused(row.name) and row.memory.trigger is None
