"""jobIDs and runIDs, drawn from a sequence; those of units that were undone are used again by this server."""

from __future__ import annotations

from collections import deque

from bedrockjobs.store.postgresql.pipeline import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction

DRAWN_MAX = 1_000
"""Numbers beyond what was planned that are drawn at once: milliseconds of work."""


class Numbers:
    """The next numbers of one kind."""

    def __init__(self, transaction: Transaction, draw: str) -> None:
        """Draw with the statement of that name."""
        self._transaction = transaction
        self._sql = SQL[draw]
        self._free: deque[int] = deque()
        self._used: list[int] = []

    def planned(self, count: int) -> list[Statement]:
        """Return the statement that draws what is missing to ``count``, if anything is."""
        missing = count - len(self._free)
        return [(self._sql, (missing,))] if missing > 0 else []

    def drawn(self, rows: list[Row]) -> None:
        """Keep numbers that were drawn."""
        self._free.extend(number for (number,) in rows)

    def new(self) -> int:
        """Return the next number.

        A unit that needs more than was planned draws as many as it has used: it may need very many. What is
        left over is for the units to come.
        """
        count = max(len(self._used), 1)
        while not self._free:  # fewer may have come than were drawn, as other hands have used some
            (rows,) = self._transaction.read(*self.planned(min(count, DRAWN_MAX)))
            self.drawn(rows)
            count *= 2
        number = self._free.popleft()
        self._used.append(number)
        return number

    def committed(self) -> None:
        """Note that what was used stays used."""
        self._used.clear()

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> int:
        """Return how many were used."""
        return len(self._used)

    def undo(self, mark: int) -> None:
        """Use those again that were used since the mark."""
        self._free.extendleft(reversed(self._used[mark:]))
        del self._used[mark:]

    def forget(self) -> None:
        """Use all again that the open unit has used."""
        self.undo(0)
