"""Query on PostgreSQL: the SQL of users, done by a role that may read our tables and nothing else.

A connection of its own does one Query after another, each in a read-only transaction with a time limit. The
rows are counted and weighed by PostgreSQL before any of them comes here.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress

import psycopg

from bedrockjobs.base.config import JSON_DEPTH_MAX, PG_CONNECT_S_MAX
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, TimedOut, TooMany, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.store import statements
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.query_process import rendered

log = logging.getLogger(__name__)

ROLE = "bedrockjobs_query"
"""The role that may read the tables, and nothing else."""

_REFUSED = re.compile(
    r"\b(pg_(try_)?advisory\w*|pg_sleep\w*|pg_notify|pg_terminate_backend|pg_cancel_backend|pg_read\w*|pg_ls\w*"
    r"|pg_stat_file|set_config|dblink\w*|lo_\w+|nextval|setval|\w+_to_xml\w*|ts_stat|ts_rewrite|U&)",
    re.IGNORECASE,
)
"""Functions that wait, hold locks, act on others or run other SQL; and spellings that would hide them."""

_SPELLED = {
    name.lower(): name
    for text in (statements.COLUMNS, statements.RUN, statements.EVENT, "scheduledFor, waitMs")
    for name in re.findall(r"\w+", text)
}
"""Columns as Bedrock spells them: PostgreSQL knows them in small letters."""


class FreeQuery:
    """One Query after another."""

    def __init__(self, url: str, schema: str, settings: Settings) -> None:
        """Read the tables of ``schema`` in the database at ``url``; ``open`` before use."""
        self._url = url
        self._schema = schema
        self._settings = settings
        self._turn = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._refusal: CommandError | None = None
        self.pending = 0
        """Queries that run or wait."""

    async def open(self) -> None:
        """Make the role, unless it is there; where that is not allowed, Query is refused."""
        try:
            connection = await self._connected()
            await connection.execute(
                f"DO $$ BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL;"
                " WHEN unique_violation THEN NULL; END $$"
            )
            await connection.execute(f'GRANT USAGE ON SCHEMA "{self._schema}" TO {ROLE}')
            await connection.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{self._schema}" TO {ROLE}')
            await connection.execute(f"GRANT {ROLE} TO CURRENT_USER")
        except psycopg.Error as error:
            words = " ".join(str(error).split())
            log.warning("Query is refused: the role %s cannot be made or used: %s", ROLE, words)
            self._refusal = Unavailable("No role for Query", f"{ROLE}: {words}")

    def refuse(self) -> None:
        """Begin nothing more: the server stops."""
        self._refusal = Unavailable("Server is stopping", "try again in a moment")

    async def close(self) -> None:
        """End what runs."""
        self.refuse()
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.cancel()
            await self._connection.close()

    async def run(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text. Raises CommandError.

        A Query whose caller is cancelled keeps its place until it has ended.
        """
        if self._refusal is not None:
            raise self._refusal
        if self.pending >= self._settings.query_waiting_max:
            raise TooMany("Too many queries", f"expected at most {self._settings.query_waiting_max} at once")
        if found := _REFUSED.search(sql):
            raise BadQuery("Query aborted", f"query: expected a SELECT without {found[0]}")
        self.pending += 1
        task = asyncio.ensure_future(self._in_turn(sql.strip().rstrip(";"), form))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _in_turn(self, sql: str, form: str) -> str:
        try:
            async with self._turn:
                if self._refusal is not None:
                    raise self._refusal
                names, rows = await self._rows(sql)
            body = rendered(names, rows, form, JSON_DEPTH_MAX)
            if len(body.encode(errors="replace")) > self._settings.query_bytes_max:
                raise self._too_large()
            return body
        finally:
            self.pending -= 1

    def _too_large(self) -> BadQuery:
        most = self._settings.query_bytes_max
        return BadQuery("Answer too large", f"query: expected at most {most} bytes; use LIMIT")

    async def _connected(self) -> psycopg.AsyncConnection[Row]:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, client_encoding="UTF8",
                connect_timeout=PG_CONNECT_S_MAX, prepare_threshold=None,
                options=f'-c search_path="{self._schema}" -c jit=off',
            )  # fmt: skip
        return self._connection

    async def _rows(self, sql: str) -> tuple[list[str], list[Row]]:
        """Return the names of the columns and the rows, after PostgreSQL has counted and weighed them."""
        rows_max, bytes_max = self._settings.query_rows_max, self._settings.query_bytes_max
        inner = f"SELECT * FROM ({sql}\n) AS asked LIMIT {rows_max + 1}"  # noqa: S608  the role may only read
        weighed = f"SELECT count(*), coalesce(sum(octet_length(counted::text)), 0) FROM ({inner}) AS counted"  # noqa: S608
        try:
            connection = await self._connected()
            await self._begin(connection)
            try:
                ((count, size),) = await (await self._one(connection, weighed)).fetchall()
                if count > rows_max:
                    raise BadQuery("Too many rows", f"query: expected at most {rows_max} rows; use LIMIT")
                if size > bytes_max:
                    raise self._too_large()
                cursor = await self._one(connection, inner)
                names = [_SPELLED.get(column.name, column.name) for column in cursor.description or ()]
                return names, [tuple(map(_plain, row)) for row in await cursor.fetchall()]
            finally:
                await connection.rollback()
                await connection.execute("DISCARD ALL", prepare=False)
        except psycopg.Error as error:
            raise _refusal(error) from error

    async def _begin(self, connection: psycopg.AsyncConnection[Row]) -> None:
        limit_ms = int(self._settings.query_s * 1000)
        await connection.execute(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
            f' SET LOCAL search_path = "{self._schema}"; SET LOCAL ROLE {ROLE};'
            f" SET LOCAL statement_timeout = {limit_ms}; SET LOCAL work_mem = '16MB'"
        )

    async def _one(self, connection: psycopg.AsyncConnection[Row], sql: str) -> psycopg.AsyncCursor[Row]:
        """Do one statement: several in one text are an error of the extended protocol."""
        async with connection.pipeline():
            return await connection.execute(sql)


def _plain(value: object) -> object:
    """Return a value as SQLite has them: a number, text, bytes or nothing."""
    return value if value is None or isinstance(value, (int, float, str, bytes)) else str(value)


def _refusal(error: psycopg.Error) -> CommandError:
    """Return what a client is told when its SQL failed."""
    words = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TimedOut("Timeout", "query: it took too long")
    if isinstance(error, (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
        return BadQuery("Query aborted", f"query: expected a SELECT of our tables: {words}")
    if error.sqlstate is None:
        return Unavailable("Database away", f"the database cannot be read: {words}")
    return BadArguments("Bad query", words)
