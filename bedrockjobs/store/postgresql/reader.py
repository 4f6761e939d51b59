"""Reads of committed rows on PostgreSQL, for lists, pages and metrics; and Query, for whoever writes SQL.

Each kind of read has a connection of its own, which is opened again where it broke. None of them waits for a
unit, nor a unit for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from bedrockjobs.base.config import ANSWER_BYTES_MAX, PG_CONNECT_S_MAX
from bedrockjobs.base.errors import BadQuery, CommandError, TimedOut, TooMany, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Page
from bedrockjobs.store.postgresql.free_query import FreeQuery
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.postgresql.views import LIST_JOBS, VIEWS, View
from bedrockjobs.store.reader import SEEKS_WAITING_MAX

log = logging.getLogger(__name__)

FETCHED_AT_ONCE = 200
"""Rows between two looks at how large an answer is."""

_OPTIONS = {
    "default_transaction_read_only": "on",
    "enable_seqscan": "off",
    "jit": "off",
}
"""A view follows the indexes, whatever statistics say, and changes nothing."""


class _Line:
    """One connection; its reads run one after another."""

    def __init__(self, url: str, schema: str, seconds: float, waiting_max: int) -> None:
        self._url = url
        options = {**_OPTIONS, "statement_timeout": f"{int(seconds * 1000)}ms"}
        self._options = " ".join(f"-c {name}={value}" for name, value in options.items())
        self._options += f' -c search_path="{schema}"'
        self._waiting_max = waiting_max
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.cancel()
            await self._connection.close()

    async def read(
        self, view: View, given: Mapping[str, Any], rows_max: int, bytes_max: int, *, again: bool = False
    ) -> Page:
        """Return at most ``rows_max`` rows, fewer where they are large; raises CommandError.

        A read whose caller is cancelled keeps its turn until it has ended, so that its limits go on to count.
        """
        if self._waiting >= self._waiting_max and not again:
            raise TooMany("Too many queries", f"expected at most {self._waiting_max} at once")
        self._waiting += 1
        read = asyncio.ensure_future(self._in_turn(view, given, rows_max, bytes_max))
        read.add_done_callback(_heard)
        return await asyncio.shield(read)

    async def _in_turn(self, view: View, given: Mapping[str, Any], rows_max: int, bytes_max: int) -> Page:
        try:
            async with self._turn:
                if self._closed:
                    raise Unavailable("Server is stopping", "try again in a moment")
                try:
                    return await self._fetch(view, given, rows_max, bytes_max)
                except psycopg.OperationalError:
                    if self._connection is None or not self._connection.closed:
                        raise
                    return await self._fetch(view, given, rows_max, bytes_max)  # it had been idle and was cut
        except psycopg.Error as error:
            raise refusal(error) from error
        finally:
            self._waiting -= 1

    async def _fetch(self, view: View, given: Mapping[str, Any], rows_max: int, bytes_max: int) -> Page:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(
                self._url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, client_encoding="UTF8",
                connect_timeout=PG_CONNECT_S_MAX, options=self._options,
            )  # fmt: skip
            self._connection.adapters.register_dumper(int, Int8Dumper)
        cursor = await self._connection.execute(view.sql, view.parameters(given))
        rows: list[Row] = []
        size = 0
        while some := await cursor.fetchmany(FETCHED_AT_ONCE):
            for row in some:
                if size > bytes_max or len(rows) == rows_max:
                    return Page(rows, more=True)
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, str))
        return Page(rows, more=False)


def refusal(error: psycopg.Error) -> CommandError:
    """Return what a client is told when a read failed."""
    text = " ".join(str(error).split())
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TimedOut("Timeout", "query: it took too long")
    if error.sqlstate is None or isinstance(error, psycopg.OperationalError):
        return Unavailable("Database away", f"the database cannot be read: {text}")
    return BadQuery("Query aborted", text)


def _heard(read: asyncio.Future[Any]) -> None:
    """Take note of how a read ended: whoever asked for it may be gone, and then nobody else does."""
    if not read.cancelled():
        read.exception()


class PostgreSQLReader:
    """The reads of one server: what an index bounds on one connection, what may look at much on another."""

    def __init__(self, url: str, settings: Settings, schema: str) -> None:
        """Read the tables of ``schema`` in the database at ``url``; connections are opened when needed."""
        self._seeks = _Line(url, schema, settings.query_s, SEEKS_WAITING_MAX)
        self._scans = _Line(url, schema, settings.query_s, settings.query_waiting_max)
        self.queries = FreeQuery(url, schema, settings)
        """What does the SQL of Query."""

    async def open(self) -> None:
        """Make sure that Query has a role that may read and nothing else."""
        await self.queries.open()

    async def close(self) -> None:
        """Close the connections, and end what still runs."""
        await self._seeks.close()
        await self._scans.close()
        await self.queries.close()

    async def query(self, sql: str, form: str) -> str:
        """Run one SELECT that ends in ``;``; return its rows as text: see ``Reader.query``."""
        if not sql.rstrip().endswith(";"):
            raise BadQuery("Query Missing Semicolon", "query: expected one SELECT that ends in ;")
        return await self.queries.run(sql, form)

    async def jobs(self, after: int, state: str | None, name: str | None, limit: int) -> list[Job]:
        """Return a page of jobs by jobID; raises TimedOut where filters find too little in ``query_s``."""
        given = {"after": after, "state": state, "name": name, "limit": limit}
        page = await self._scans.read(LIST_JOBS, given, limit, ANSWER_BYTES_MAX)
        return [job_from(row) for row in page.rows]

    async def view(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        *,
        scans: bool = False,
        again: bool = False,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Page:
        """Return at most ``limit`` rows of a named statement: see ``Reader.view``."""
        line = self._scans if scans else self._seeks
        return await line.read(VIEWS[name], {**parameters, "limit": limit + 1}, limit, bytes_max, again=again)
