"""Reads of committed rows on PostgreSQL, for lists, pages and metrics; and Query, for whoever writes SQL.

Each kind of read has a connection of its own. None of them waits for a unit, nor a unit for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import psycopg

from bedrockjobs.base.settings import Settings
from bedrockjobs.store.base import Page
from bedrockjobs.store.named_reads import NamedReads
from bedrockjobs.store.postgresql.free_query import FreeQuery
from bedrockjobs.store.postgresql.line import Connection, Line, refusal_of
from bedrockjobs.store.postgresql.pipeline import Row
from bedrockjobs.store.postgresql.standby import Reads, Standby
from bedrockjobs.store.postgresql.views import VIEWS, View
from bedrockjobs.store.reader import SEEKS_WAITING_MAX

_BY_INDEX = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
"""A view follows the indexes, whatever statistics say."""

LARGE_AT_ONCE = 8
"""Large rows that come at once: what is too much is known some 4 MiB of data each too late at the most."""

_CHUNK = LARGE_AT_ONCE if psycopg.capabilities.has_stream_chunked() else 1
"""The same, as far as libpq is new enough."""


class PostgreSQLReader(NamedReads[Reads, FreeQuery]):
    """The reads of one server: what an index bounds on one connection, what may look at much on another."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        schema: str,
        session: str = "",
        confirmed: Callable[[], str] = lambda: "",
    ) -> None:
        """Read the tables of ``schema`` in the database at ``url``; connections are opened when needed.

        Where a pooler is in between, ``database_direct`` is read: the time of a read is a parameter of its
        connection. ``database_read`` is a standby, for what may look at much; for ``session`` and
        ``confirmed`` see ``Standby``.
        """
        url = settings.database_direct or url
        seeks = Line(url, schema, settings.query_s, SEEKS_WAITING_MAX, _BY_INDEX)
        scans = Line(url, schema, settings.query_s, settings.query_waiting_max, _BY_INDEX)
        there = settings.database_read
        self._standby = Standby(there, seeks, session, confirmed) if there else None
        super().__init__(
            self._beside(seeks, first=False),  # who follows must miss nothing
            self._beside(scans),
            FreeQuery(url, schema, settings, self._beside),
        )

    def _beside(self, line: Line, *, first: bool = True) -> Reads:
        return line if self._standby is None else self._standby.beside(line, first=first)

    async def open(self) -> None:
        """Make sure that Query has a role that may read and nothing else."""
        await self.queries.open()
        if self._standby is not None:
            self._standby.start()

    async def close(self) -> None:
        """Close the connections, and end what still runs."""
        if self._standby is not None:
            await self._standby.close()
        await super().close()

    async def _page(
        self, name: str, given: Mapping[str, Any], limit: int, bytes_max: int, *, scans: bool, again: bool
    ) -> Page:
        line = self._scans if scans else self._seeks
        return await _read(line, VIEWS[name], given, limit, bytes_max, again=again)


async def _read(
    line: Reads, view: View, given: Mapping[str, Any], rows_max: int, bytes_max: int, *, again: bool = False
) -> Page:
    """Return at most ``rows_max`` rows, none behind one that exceeds ``bytes_max``; raises CommandError."""
    parameters = view.parameters(given)

    async def fetched(connection: Connection) -> Page:
        rows: list[Row] = []
        size, more = 0, False
        async with aclosing(_rows(connection, view, parameters)) as found:
            async for row in found:
                if size > bytes_max:
                    return Page(rows, more=True)
                if len(rows) == rows_max:
                    more = True  # to leave it there would take longer: it is the last one
                    continue
                rows.append(row)
                size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        return Page(rows, more)

    try:
        return await line.do(fetched, again=again)
    except psycopg.Error as error:
        raise refusal_of(error) from error


async def _rows(connection: Connection, view: View, parameters: list[Any]) -> AsyncGenerator[Row]:
    """Yield rows: large ones as they come, so that no more of them are in memory than are wanted."""
    async with connection.cursor() as cursor:
        if view.large:
            stream = cast("AsyncGenerator[Row]", cursor.stream(view.sql, parameters, size=_CHUNK))
            async with aclosing(stream) as rows:
                async for row in rows:
                    yield row
        else:
            await cursor.execute(view.sql, parameters)
            for row in await cursor.fetchall():
                yield row
