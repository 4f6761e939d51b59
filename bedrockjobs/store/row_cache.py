"""Cache of the rows written last.

Most jobs are taken soon after they are created, and finished soon after they are taken. Reading a row costs
as much as finding it, and there is only one writer.
"""

from __future__ import annotations

from collections import OrderedDict

from bedrockjobs.base.config import RECENT_DATA_CHARS_MAX, RECENT_ROWS_MAX
from bedrockjobs.job.rows import Job


class RowCache:
    """Rows by jobID, as the open transaction has them."""

    def __init__(self) -> None:
        """Begin empty."""
        self._rows: OrderedDict[int, Job] = OrderedDict()  # popping the oldest item of a plain dict is O(n)
        self.get = self._rows.get
        """Return a cached row, or None."""
        self.forget = self._rows.clear
        """Drop all rows."""

    def keep(self, row: Job) -> None:
        """Cache a written row; evict the oldest one if the cache is full."""
        rows = self._rows
        if len(row.data) > RECENT_DATA_CHARS_MAX:
            rows.pop(row.job_id, None)
            return
        if len(rows) >= RECENT_ROWS_MAX and row.job_id not in rows:
            rows.popitem(last=False)
        rows[row.job_id] = row

    def drop(self, job_id: int) -> None:
        """Drop a deleted row."""
        self._rows.pop(job_id, None)

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Return nothing: rows are cheap to read again."""

    def undo(self, mark: None) -> None:
        """Drop all rows: some belong to the part that was rolled back."""
        self.forget()
