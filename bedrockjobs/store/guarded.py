"""A connection that only reads and stops at its deadline, whatever the SQL says, and what its errors mean.

It is opened read-only, an authorizer lets nothing but SELECT through, and time and size are limited. It knows
nothing but what the lowest layer offers: the processes of Query load it in an instant.
"""

from __future__ import annotations

import sqlite3
from itertools import islice
from typing import Any

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, TimedOut, Unavailable
from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS, rest

monotonic = SystemClock().monotonic
"""The seconds that deadlines are counted in."""

_VALUE_BYTES_MAX = 32 * 1024 * 1024
"""Size of one value that SQL may make: over that of the largest data, and of a few of them joined."""

_WORDS_MAX = 500
"""Length of what SQLite says of an error: it may quote a name as long as the whole text."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

_ABOUT_THE_DISK = ("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_PROTOCOL")
"""Beginnings of the names of errors that are not the text's fault."""


class _Measured(sqlite3.Cursor):
    """A cursor that stops fetching when the rows are large."""

    connection: Guarded

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        rows: list[Any] = []
        left = self.connection.bytes_max
        for row in islice(self, size):
            rows.append(row)
            left -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if left < 0:
                self.connection.cut = True
                break
        return rows


class Guarded(sqlite3.Connection):
    """A connection that only reads, and stops at its deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Open what ``sqlite3.connect`` is given."""
        super().__init__(*args, **kwargs)
        self.deadline = float("inf")
        """When a statement is stopped, in monotonic seconds."""
        self.bytes_max = 0
        """The size from which on no more rows are fetched."""
        self.cut = False
        """Whether rows were left out for their size."""
        self.execute("PRAGMA query_only = ON")
        self.execute("PRAGMA temp_store = MEMORY")
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.execute("SELECT 1 FROM json_each('[]')").close()  # made at its first use, which no SELECT may do
        self.set_authorizer(_authorize)
        self.set_progress_handler(self._late, STEPS_BETWEEN_RESTS)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Run a statement; its cursor stops fetching when the rows are large."""
        return self.cursor(_Measured).execute(sql, parameters)

    def limit(self, seconds: float, bytes_max: int) -> None:
        """Give the next statement so many seconds from now, and so many bytes of rows."""
        self.deadline = monotonic() + seconds
        self.bytes_max = bytes_max
        self.cut = False

    def _late(self) -> int:
        rest()
        return int(monotonic() > self.deadline)


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if two in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def is_damage(error: Exception) -> bool:
    """Tell whether an error says that the file is damaged, or is no database.

    What a virtual table says of itself is not meant: its SQL may ask for that.
    """
    name = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_NOTADB" or (name.startswith("SQLITE_CORRUPT") and name != "SQLITE_CORRUPT_VTAB")


def refusal(error: Exception) -> CommandError:
    """Return what a client is told when a statement failed."""
    name = getattr(error, "sqlite_errorname", "")
    text = " ".join(str(error).split())
    text = text if len(text) <= _WORDS_MAX else f"{text[:_WORDS_MAX]}…"
    if name == "SQLITE_INTERRUPT":
        return TimedOut("Timeout", "query: it took too long")
    if is_damage(error) or name.startswith(_ABOUT_THE_DISK):
        return Unavailable("Disk error", f"the database cannot be read: {text} ({name})")
    if isinstance(error, MemoryError):
        return BadQuery("Query aborted", "query: expected a SELECT that takes less memory")
    if name in ("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_TOOBIG", "SQLITE_NOMEM") or "prohibited" in text:
        return BadQuery("Query aborted", f"query: expected a SELECT within the limits: {text}")
    return BadArguments("Bad query", text)
