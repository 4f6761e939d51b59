"""The open transaction: writes are remembered, and sent with the next read or with the commit.

Most units so take two round trips: one that locks and reads, one that writes and commits. What is remembered
is a list of statements in order; a part that is undone before it was sent leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bedrockjobs.store.postgresql.pipeline import Row, Statement, columns
from bedrockjobs.store.postgresql.session import Session
from bedrockjobs.store.postgresql.statements import EVENTS
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

_PARTS = frozenset({SQL["savepoint"], SQL["release"], SQL["undo_part"]})
"""Statements that write nothing themselves."""


class Mark(NamedTuple):
    """Where a part began."""

    writes: int
    events: int


class Found(list[Row]):
    """The rows of one statement, to be read as those of a cursor are."""

    def fetchone(self) -> Row | None:
        """Return the first row, or None."""
        return self[0] if self else None

    def fetchall(self) -> list[Row]:
        """Return all rows."""
        return self


class Transaction:
    """What one unit has written and not yet sent."""

    def __init__(self, session: Session, differences: Callable[[bool], list[Statement]]) -> None:
        """Send over ``session``; ``differences`` returns what changed in rows since it was last asked.

        It is told whether that are the last ones.
        """
        self._session = session
        self._differences = differences
        self._writes: list[Statement] = []
        self._events: list[Row] = []
        self._mark: Mark | None = None
        """Where the open part began, if it is not known to the database."""
        self.wrote = False
        """Whether anything was sent that writes."""

    def begin(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Begin, and do what locks and reads."""
        self.forget()
        return self._session.run([(SQL["begin"], ()), *statements])[1:]

    @property
    def changed(self) -> bool:
        """Tell whether anything was written beside what changed in jobs."""
        return self.wrote or bool(self._events) or any(sql not in _PARTS for sql, _ in self._writes)

    # --- statements --------------------------------------------------------------------------------------

    def write(self, sql: str, *parameters: Any) -> None:
        """Remember a statement that writes."""
        self._writes.append((sql, parameters))

    def read(self, *statements: Statement) -> list[list[Row]]:
        """Do statements that see all that was written; return the rows of each."""
        pending = self._pending()
        return self._session.run([*pending, *statements])[len(pending) :]

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Found:
        """Do a statement that reads, or remember one that writes."""
        if sql.startswith("SELECT"):
            return Found(self.read((sql, parameters))[0])
        if sql in EVENTS:
            self._events.append(tuple(parameters))
        else:
            self._writes.append((sql, parameters))
        return Found()

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Remember a statement that writes, for each row."""
        self._writes += [(sql, row) for row in rows]

    def _pending(self) -> list[Statement]:
        """Return what is to be sent before anything can be read, and remember it no more."""
        self.collect()
        writes, self._writes = self._writes, []
        self.wrote = self.wrote or any(sql not in _PARTS for sql, _ in writes)
        if writes:
            self._mark = None  # the database knows of the part from now on
        return writes

    def collect(self) -> None:
        """Remember what changed in rows that are kept elsewhere: what follows is done after it."""
        self._writes += self._differences(False)

    # --- parts -------------------------------------------------------------------------------------------

    def savepoint(self) -> Mark:
        """Begin a part."""
        self.collect()
        self._mark = Mark(len(self._writes), len(self._events))
        self._writes.append((SQL["savepoint"], ()))
        return self._mark

    def release(self) -> None:
        """Keep the part."""
        if self._mark is None:
            self._writes.append((SQL["release"], ()))
        else:
            del self._writes[self._mark.writes]  # nobody has to know of it
            self._mark = None

    def undo(self, mark: Mark) -> None:
        """Undo the part that began at a mark; what changed in jobs is undone by who keeps them."""
        del self._events[mark.events :]
        if self._mark is None:
            self._session.script(SQL["undo_part"])
            self._writes = [(SQL["release"], ())]
        else:
            del self._writes[mark.writes :]
            self._mark = None

    def forget(self) -> None:
        """Remember nothing: the transaction is over."""
        self._writes, self._events, self._mark, self.wrote = [], [], None, False

    # --- the end -----------------------------------------------------------------------------------------

    def commit(
        self, before_events: Statement, last: Statement, reads: Sequence[Statement] = ()
    ) -> list[list[Row]]:
        """Send what is left, and commit; return what was read as it is then. Raises StoreError.

        ``before_events`` precedes the events, if there are any; ``last`` is done where anything was written.
        """
        self._writes += self._differences(True)
        statements = self._pending()
        first = len(statements)
        statements += reads
        if self._events:
            statements += [before_events, (SQL["add_events"], columns(self._events))]
            self.wrote = True
        if self.wrote:
            statements.append(last)
        found = self._session.commit([*statements, (SQL["commit"], ())])
        self.forget()
        return found[first : first + len(reads)]
