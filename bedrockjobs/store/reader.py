"""Reads that need no write: Query, and the lists and views of ``views.sql``, on read-only connections.

The connections cannot write whatever the SQL says: they are opened read-only, an authorizer lets nothing but
SELECT through, and time, rows and size of an answer are limited. Never used by the writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from itertools import islice
from typing import Any

import aiosqlite

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import ANSWER_BYTES_MAX, Settings
from bedrockjobs.base.errors import BadArguments, BadQuery, TimedOut, TooMany
from bedrockjobs.job.rows import Job
from bedrockjobs.store.base import Page, Parameters
from bedrockjobs.store.statements import METRICS, QUEUES, STATEMENTS, VIEWS

_monotonic = SystemClock().monotonic

_STEPS_PER_LOOK = 10_000
"""Steps of SQLite's machine between two looks at the clock, well under a millisecond."""

SEEKS_WAITING_MAX = 1_000
"""Reads of an index that may run or wait; at well under a millisecond each, less than a second of work."""

_VIEWS = {**VIEWS, **METRICS, **QUEUES}

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})

_JSON_COLUMNS = frozenset({"data", "memory", "options"})
"""Columns that hold JSON objects, which an answer embeds as they are spelled."""


class _Measured(sqlite3.Cursor):
    """A cursor that stops fetching when the rows are large."""

    connection: _Guarded

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


class _Guarded(sqlite3.Connection):
    """A connection that only reads, and stops at its deadline."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deadline = float("inf")
        self.bytes_max = 0
        self.cut = False
        self.execute("PRAGMA query_only = ON")
        self.execute("PRAGMA temp_store = MEMORY")
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 32 * 1024 * 1024)
        self.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.execute("SELECT 1 FROM json_each('[]')").close()  # made at its first use, which no SELECT may do
        self.set_authorizer(_authorize)
        self.set_progress_handler(self._late, _STEPS_PER_LOOK)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self.cursor(_Measured).execute(sql, parameters)

    def _late(self) -> int:
        return int(_monotonic() > self.deadline)


def _authorize(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if two in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


class _ReadConnection:
    """One read-only connection; its reads run one after another."""

    def __init__(self, path: str, seconds: float, waiting_max: int) -> None:
        self._path = path
        self._seconds = seconds
        self._waiting_max = waiting_max
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._guarded: _Guarded | None = None
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        self._connection = await aiosqlite.connect(
            f"file:{self._path}?mode=ro", uri=True, factory=self._connect, isolation_level=None
        )

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        self._guarded = _Guarded(*args, **kwargs)
        return self._guarded

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def read(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int, *, again: bool = False
    ) -> tuple[list[str], Page]:
        """Return the names of the columns, and at most ``rows_max`` rows, fewer where they are large.

        Raises TooMany where too many reads wait, but not ``again``. A read whose caller is cancelled keeps
        its turn until it has ended, so that its limits go on to count.
        """
        if self._waiting >= self._waiting_max and not again:
            raise TooMany("Too many queries", f"expected at most {self._waiting_max} at once")
        self._waiting += 1
        return await asyncio.shield(self._in_turn(sql, parameters, rows_max, bytes_max))

    async def _in_turn(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        try:
            async with self._turn:
                return await self._fetch(sql, parameters, rows_max, bytes_max)
        finally:
            self._waiting -= 1

    async def _fetch(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        guarded = self._guarded
        assert self._connection is not None
        assert guarded is not None
        guarded.deadline = _monotonic() + self._seconds
        guarded.bytes_max = bytes_max
        guarded.cut = False
        try:
            async with self._connection.execute(sql, parameters) as cursor:
                rows = list(await cursor.fetchmany(rows_max + 1))
                names = [column[0] for column in cursor.description or ()]
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _refusal(error) from None
        finally:
            guarded.deadline = float("inf")
        more = guarded.cut or len(rows) > rows_max
        return names, Page([tuple(row) for row in rows[:rows_max]], more)


class SQLiteReader:
    """The reads of one server.

    What an index bounds is read on one connection, what may have to look at very many rows on another, so
    that a slow Query keeps nobody waiting who follows a run.
    """

    def __init__(self, path: str, settings: Settings) -> None:
        """Read the database at ``path``; ``open`` before use."""
        self._settings = settings
        self._seeks = _ReadConnection(path, settings.query_s, SEEKS_WAITING_MAX)
        self._scans = _ReadConnection(path, settings.query_s, settings.query_waiting_max)

    async def open(self) -> None:
        """Open the connections."""
        await self._seeks.open()
        await self._scans.open()

    async def close(self) -> None:
        """Close them."""
        await self._seeks.close()
        await self._scans.close()

    async def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one SELECT that ends in ``;``; return the names of its columns and its rows.

        Raises BadArguments for SQL that cannot be read, BadQuery for what is not allowed or too much,
        TimedOut after ``query_s``, TooMany when very many queries wait.
        """
        if not sql.rstrip().endswith(";"):
            raise BadQuery("Query Missing Semicolon", "query: expected one SELECT that ends in ;")
        rows_max, bytes_max = self._settings.query_rows_max, self._settings.query_bytes_max
        names, page = await self._scans.read(sql, (), rows_max, bytes_max)
        if not names:
            raise BadQuery("Query aborted", "query: expected a SELECT")
        if page.more and len(page.rows) == rows_max:
            raise BadQuery("Too many rows", f"query: expected at most {rows_max} rows; use LIMIT")
        if page.more:
            raise self._too_large()
        return names, page.rows

    async def jobs(self, after: int, state: str | None, name: str | None, limit: int) -> list[Job]:
        """Return a page of jobs by jobID; raises TimedOut where filters find too little in ``query_s``."""
        parameters = (after, state, name, limit)
        _, page = await self._scans.read(STATEMENTS["list_jobs"], parameters, limit, ANSWER_BYTES_MAX)
        return [Job._make(row) for row in page.rows]

    async def view(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        *,
        scans: bool = False,
        again: bool = False,
    ) -> Page:
        """Return at most ``limit`` rows of a named statement, fewer large ones.

        ``scans`` says that the statement may look at many rows for few. Raises TooMany when very many reads
        wait, unless somebody reads ``again`` who was let in before; TimedOut after ``query_s``.
        """
        connection = self._scans if scans else self._seeks
        given = {**parameters, "limit": limit + 1}
        _, page = await connection.read(_VIEWS[name], given, limit, ANSWER_BYTES_MAX, again=again)
        return page

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
            raise self._too_large()
        return body

    def _too_large(self) -> BadQuery:
        limit = self._settings.query_bytes_max
        return BadQuery("Answer too large", f"query: expected at most {limit} bytes; use LIMIT")


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
