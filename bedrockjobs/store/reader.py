"""Reads that need no write: Query and ListJobs, on a read-only connection of their own.

The connection cannot write whatever the SQL says: it is opened read-only, an authorizer lets nothing but
SELECT through, and time, rows and size of an answer are limited. Never used by the writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Any

import aiosqlite

from bedrockjobs import jsontext
from bedrockjobs.clock import SystemClock
from bedrockjobs.config import Settings
from bedrockjobs.errors import BadArguments, BadQuery, TimedOut, TooMany
from bedrockjobs.store.rows import JobRow
from bedrockjobs.store.statements import STATEMENTS as SQL

_monotonic = SystemClock().monotonic

_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock, well under a millisecond."""

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

_JSON_COLUMNS = frozenset({"data", "options"})
"""Columns that hold JSON objects, which an answer embeds as they are spelled."""


class _Guarded(sqlite3.Connection):
    """A connection that only reads, and stops at its deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deadline = float("inf")
        self.execute("PRAGMA query_only = ON")
        self.execute("PRAGMA temp_store = MEMORY")
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.set_authorizer(_authorize)
        self.set_progress_handler(self._late, _STEPS_PER_LOOK)

    def _late(self) -> int:
        return int(_monotonic() > self.deadline)


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if two in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


class Reader:
    """One read-only connection; its queries run one after another."""

    def __init__(self, path: str, settings: Settings) -> None:
        """Read the database at ``path``; ``open`` before use."""
        self._path = path
        self._settings = settings
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._guarded: _Guarded | None = None
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Open the connection."""
        self._connection = await aiosqlite.connect(
            f"file:{self._path}?mode=ro", uri=True, factory=self._connect, isolation_level=None
        )

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        self._guarded = _Guarded(*args, **kwargs)
        return self._guarded

    async def close(self) -> None:
        """Close it."""
        if self._connection is not None:
            await self._connection.close()

    async def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one SELECT that ends in ``;``; return the names of its columns and its rows.

        Raises BadArguments for SQL that cannot be read, BadQuery for what is not allowed or too much,
        TimedOut after ``query_s``, TooMany when very many queries wait.
        """
        if not sql.rstrip().endswith(";"):
            raise BadQuery("Query Missing Semicolon", "query: expected one SELECT that ends in ;")
        return await self._run(sql, (), self._settings.query_rows_max)

    async def jobs(self, after: int, state: str | None, name: str | None, limit: int) -> list[JobRow]:
        """Return a page of jobs by jobID; raises TimedOut where filters find too little in ``query_s``."""
        _, rows = await self._run(SQL["list_jobs"], (after, state, name, limit), limit)
        return [JobRow._make(row) for row in rows]

    async def _run(
        self, sql: str, parameters: Iterable[Any], rows_max: int
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        if self._waiting >= self._settings.query_waiting_max:
            raise TooMany("Too many queries", f"expected at most {self._settings.query_waiting_max} at once")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._fetch(sql, parameters, rows_max)
        finally:
            self._waiting -= 1

    async def _fetch(
        self, sql: str, parameters: Iterable[Any], rows_max: int
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        assert self._connection is not None
        assert self._guarded is not None
        self._guarded.deadline = _monotonic() + self._settings.query_s
        try:
            async with self._connection.execute(sql, parameters) as cursor:
                rows = list(await cursor.fetchmany(rows_max + 1))
                names = [column[0] for column in cursor.description or ()]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _refusal(error) from None
        finally:
            self._guarded.deadline = float("inf")
        if not names:
            raise BadQuery("Query aborted", "query: expected a SELECT")
        if len(rows) > rows_max:
            raise BadQuery("Too many rows", f"query: expected at most {rows_max} rows; use LIMIT")
        return names, [tuple(row) for row in rows]

    def rendered(self, names: list[str], rows: list[tuple[Any, ...]], form: str) -> str:
        """Return rows as text: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines."""
        if form == "text":
            lines = ["|".join(names), *("|".join(_plain(value) for value in row) for row in rows)]
            body = "\n".join(lines) + "\n"
        else:
            spliced = [name in _JSON_COLUMNS for name in names]
            arrays = ",".join(
                f"[{','.join(_json(value, splice) for value, splice in zip(row, spliced, strict=True))}]"
                for row in rows
            )
            body = f"[{arrays}]"
            if form == "json":
                body = f'{{"headers":{jsontext.dump(names)},"rows":{body}}}'
        if len(body.encode(errors="replace")) > self._settings.query_bytes_max:
            raise BadQuery(
                "Answer too large",
                f"query: expected at most {self._settings.query_bytes_max} bytes; use LIMIT",
            )
        return body


def _refusal(error: sqlite3.Error | sqlite3.Warning) -> Exception:
    name = getattr(error, "sqlite_errorname", "")
    text = " ".join(str(error).split())
    if name == "SQLITE_INTERRUPT":
        return TimedOut("Timeout", "query: it took too long")
    if name in ("SQLITE_AUTH", "SQLITE_READONLY", "SQLITE_TOOBIG", "SQLITE_NOMEM") or "prohibited" in text:
        return BadQuery("Query aborted", f"query: expected a SELECT within the limits: {text}")
    return BadArguments("Bad query", text)


def _json(value: Any, splice: bool) -> str:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "null"
    if splice and isinstance(value, str) and value.startswith("{"):
        try:
            jsontext.check_object(value)
        except ValueError:
            return jsontext.quoted(value)
        return value
    return jsontext.dump(value)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value.hex() if isinstance(value, bytes) else str(value)
