"""A sandboxed read-only connection with a deadline, and the translation of its errors.

An authorizer allows only SELECT, and time and size are limited. The module imports only the lowest layer of
the package, so that Query processes start quickly.
"""

from __future__ import annotations

import sqlite3
from itertools import islice
from math import inf
from typing import Any

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, TimedOut, Unavailable
from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS, rest

CLOCK = SystemClock()
"""The clock of deadlines."""

WORDS_MAX = 500
"""Maximum number of characters of a database's error message, which may quote a name as long as the query."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

_ABOUT_THE_DISK = ("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_PROTOCOL")
"""Prefixes of the names of errors that are caused by the disk or another process, not by the query."""


class _BoundedCursor(sqlite3.Cursor):
    """A cursor that stops fetching when the rows exceed ``SandboxedConnection.bytes_max``."""

    connection: SandboxedConnection

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


class SandboxedConnection(sqlite3.Connection):
    """A read-only connection with a deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Open with the arguments of ``sqlite3.connect``, in the thread that will run the statements."""
        super().__init__(*args, **kwargs)
        self._cpu = CLOCK.thread_cpu()
        self._cpu_max = self._deadline = inf
        self.bytes_max = 0
        """Bytes of text and blobs in the rows of a statement beyond which no further row is fetched."""
        self.cut = False
        """Whether rows of the last statement were not fetched because of ``bytes_max``."""
        self.execute("PRAGMA query_only = ON")
        self.execute("PRAGMA temp_store = MEMORY")
        # Maximum size of a value in SQL: above that of the largest data, or of a few of them joined.
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.execute("SELECT 1 FROM json_each('[]')").close()  # its first use writes to the schema
        self.set_authorizer(_authorize)
        self.set_progress_handler(self._late, STEPS_BETWEEN_RESTS)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute a statement; its cursor stops fetching when the rows exceed ``bytes_max``."""
        return self.cursor(_BoundedCursor).execute(sql, parameters)

    def limit(self, cpu_s: float, wall_s: float, bytes_max: int) -> None:
        """Limit the next statement: its CPU time and elapsed time in seconds, and the size of its rows."""
        self._cpu_max = self._cpu() + cpu_s
        self._deadline = CLOCK.monotonic() + wall_s
        self.bytes_max = bytes_max
        self.cut = False

    def unlimit(self) -> None:
        """Remove the limits of time."""
        self._cpu_max = self._deadline = inf

    def _late(self) -> int:
        rest()
        return int(self._cpu() > self._cpu_max or CLOCK.monotonic() > self._deadline)


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if two in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the file is damaged or not a database.

    Errors of virtual tables do not count, since a query can cause them.
    """
    name = getattr(error, "sqlite_errorname", "")
    return name == "SQLITE_NOTADB" or (name.startswith("SQLITE_CORRUPT") and name != "SQLITE_CORRUPT_VTAB")


def in_one_line(message: str) -> str:
    """Return the error message of a database in one line, cut after ``WORDS_MAX`` characters."""
    text = " ".join(message.split())
    return text if len(text) <= WORDS_MAX else f"{text[:WORDS_MAX]}…"


def refusal(error: Exception) -> CommandError:
    """Return the error reply for a failed statement."""
    name = getattr(error, "sqlite_errorname", "")
    text = in_one_line(str(error))
    if name == "SQLITE_INTERRUPT":
        return TimedOut("Timeout", "query: it took too long")
    if is_damage(error) or name.startswith(_ABOUT_THE_DISK):
        return Unavailable("Disk error", f"the database cannot be read: {text} ({name})")
    if isinstance(error, MemoryError):
        return BadQuery("Query aborted", "query: expected a SELECT that takes less memory")
    if name in ("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_TOOBIG", "SQLITE_NOMEM") or "prohibited" in text:
        return BadQuery("Query aborted", f"query: expected a SELECT within the limits: {text}")
    return BadArguments("Bad query", text)
