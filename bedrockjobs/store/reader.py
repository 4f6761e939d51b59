"""Reads outside of the writer: the views of ``views.sql`` on sandboxed connections, and Query."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiosqlite
from typing_extensions import override

from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.priority import give_way
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.base import Page, Parameters, PendingReads, Reader, StoreDamaged
from bedrockjobs.store.queries import Queries
from bedrockjobs.store.sandbox import SandboxedConnection, is_damage, refusal
from bedrockjobs.store.sqlite_unit import is_undecodable, replacing
from bedrockjobs.store.statements import METRICS, QUEUES, VIEWS

SEEKS_WAITING_MAX = 1_000
"""Maximum number of running and waiting index seeks; at well under a millisecond each, less than a second of
work."""

SLOWED_MAX = 10
"""Maximum elapsed time of a view, as a multiple of its maximum CPU time ``query_s``. Reads give way to all
other work: on a busy machine a view of a tenth of a second takes more than a second."""

_VIEWS = {**VIEWS, **METRICS, **QUEUES}


class _ReadConnection:
    """One read-only connection; its reads run one after another."""

    def __init__(
        self, path: Path, seconds: float, waiting_max: int, on_damage: Callable[[Exception], object]
    ) -> None:
        self._path = path
        self._on_damage = on_damage
        self._seconds = seconds
        self._pending = PendingReads(waiting_max)
        self._turn = asyncio.Lock()
        self._guarded: SandboxedConnection | None = None
        self._connection: aiosqlite.Connection | None = None
        self._closed = False

    async def open(self) -> None:
        self._connection = await aiosqlite.connect(
            f"{self._path.absolute().as_uri()}?mode=ro", uri=True, factory=self._connect, isolation_level=None
        )

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        give_way()  # this is the thread of the connection
        self._guarded = SandboxedConnection(*args, **kwargs)
        return self._guarded

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None and self._guarded is not None:
            self._guarded.interrupt()  # running reads are cancelled
            await self._connection.close()

    async def fetch(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int, *, again: bool = False
    ) -> tuple[list[str], Page]:
        """Return the column names and at most ``rows_max`` rows, up to the row that exceeds ``bytes_max``.

        Raises TooMany if too many reads wait, unless ``again``; Unavailable once the connection is closed.
        """
        return await self._pending.run(
            lambda: self._in_turn(sql, parameters, rows_max, bytes_max), again=again
        )

    async def _in_turn(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        async with self._turn:
            if self._closed:
                raise Unavailable("Server is stopping", "try again in a moment")
            return await self._fetch(sql, parameters, rows_max, bytes_max)

    async def _fetch(
        self, sql: str, parameters: Parameters, rows_max: int, bytes_max: int
    ) -> tuple[list[str], Page]:
        guarded = self._guarded
        assert guarded is not None
        guarded.limit(self._seconds, self._seconds * SLOWED_MAX, bytes_max)
        try:
            names, rows = await self._rows(sql, parameters, rows_max)
        except (sqlite3.Error, sqlite3.Warning) as error:
            if is_damage(error):
                self._on_damage(StoreDamaged(str(error)))
            if not is_undecodable(error):
                raise refusal(error) from None
            guarded.text_factory = replacing
            names, rows = await self._rows(sql, parameters, rows_max)
        finally:
            guarded.unlimit()
            guarded.text_factory = str
        more = guarded.cut or len(rows) > rows_max
        return names, Page([tuple(row) for row in rows[:rows_max]], more)

    async def _rows(self, sql: str, parameters: Parameters, rows_max: int) -> tuple[list[str], list[Any]]:
        assert self._connection is not None
        async with self._connection.execute(sql, parameters) as cursor:
            rows = list(await cursor.fetchmany(rows_max + 1))
            return [column[0] for column in cursor.description or ()], rows


class SQLiteReader(Reader):
    """Reads a database file for one server; the SQL of Query runs in separate processes."""

    _seeks: _ReadConnection
    _scans: _ReadConnection
    queries: Queries

    def __init__(
        self, path: Path, settings: Settings, on_damage: Callable[[Exception], object] = lambda error: None
    ) -> None:
        """Read the database at ``path``; call ``open`` before use.

        ``on_damage`` is called if the file is damaged.
        """
        seconds = settings.query_s
        self._seeks = _ReadConnection(path, seconds, SEEKS_WAITING_MAX, on_damage)
        self._scans = _ReadConnection(path, seconds, settings.query_waiting_max, on_damage)
        self.queries = Queries(path, settings, on_damage)

    @override
    async def open(self) -> None:
        await self._seeks.open()
        await self._scans.open()
        self.queries.start_processes()

    async def _page(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        bytes_max: int,
        *,
        scans: bool,
        again: bool,
    ) -> Page:
        connection = self._scans if scans else self._seeks
        _, page = await connection.fetch(_VIEWS[name], parameters, limit, bytes_max, again=again)
        return page
