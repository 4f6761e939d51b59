"""The rows that were written last, kept in memory.

Most jobs are taken soon after they were created, and ended soon after they were taken. Reading a row costs
as much as finding it, so what the only writer has just written it does not read again.
"""

from __future__ import annotations

from collections import OrderedDict

from bedrockjobs.base.config import RECENT_DATA_CHARS_MAX, RECENT_ROWS_MAX
from bedrockjobs.job.rows import Job


class RowCache:
    """Rows by jobID, as the open transaction has them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._rows: OrderedDict[int, Job] = OrderedDict()  # of a dict, to find the first is a long way
        self.get = self._rows.get
        """Return a row that is kept, or None."""
        self.forget = self._rows.clear
        """Forget all rows."""

    def keep(self, row: Job) -> None:
        """Keep a row that was written, in place of what was kept of it; the oldest one makes room."""
        rows = self._rows
        if len(row.data) > RECENT_DATA_CHARS_MAX:
            rows.pop(row.job_id, None)
            return
        if len(rows) >= RECENT_ROWS_MAX and row.job_id not in rows:
            rows.popitem(last=False)
        rows[row.job_id] = row

    def drop(self, job_id: int) -> None:
        """Forget a row that was deleted."""
        self._rows.pop(job_id, None)

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Nothing is needed: rows are quickly read anew."""

    def undo(self, mark: None) -> None:
        """Forget all rows: some are as the part had them that is undone."""
        self.forget()
