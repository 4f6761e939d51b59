"""Pgqueuer as its own documentation and benchmark use it, doing what the connections of the others do.

A connection for each producer and each consumer; a producer stores one job a call, a consumer is a
``PgQueuer`` that runs with its defaults: it takes ten jobs at a time, waits for notices, and gathers what is
finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.models import Job

if TYPE_CHECKING:
    from peer_load import Stats

NAME = "queue"


async def connect(port: int) -> asyncpg.Connection:
    """Return a connection to the server."""
    return await asyncpg.connect(host="127.0.0.1", port=port, user="postgres", database="postgres")


async def prepare(port: int) -> None:
    """Make the tables, all of them logged, with the vacuum settings that pgqueuer recommends."""
    connection = await connect(port)
    queries = Queries.from_asyncpg_connection(connection)
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


class Parties:
    """Producers and consumers of one phase."""

    def __init__(self, port: int, stats: Stats) -> None:
        """Speak to the server on ``port``."""
        self._port = port
        self._stats = stats
        self._connections: list[asyncpg.Connection] = []
        self._consumers: list[PgQueuer] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, producers: int, consumers: int) -> None:
        """Begin; consumers first."""
        for _ in range(consumers):
            consumer = PgQueuer.from_asyncpg_connection(await self._connection())
            consumer.entrypoint(NAME)(self._work)
            self._consumers.append(consumer)
            self._begin(consumer.run())
        for _ in range(producers):
            queries = Queries.from_asyncpg_connection(await self._connection())
            self._begin(self._produce(queries))

    async def stop(self) -> None:
        """End the consumers, which store what they have finished; the producers have ended."""
        for consumer in self._consumers:
            consumer.shutdown.set()
        await asyncio.gather(*self._tasks)
        for connection in self._connections:
            await connection.close()

    async def _connection(self) -> asyncpg.Connection:
        self._connections.append(await connect(self._port))
        return self._connections[-1]

    async def _work(self, job: Job) -> None:
        self._stats.take(job.payload or b"")
        self._stats.done += 1

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._stats.refuse(repr(error).encode())

    async def _produce(self, queries: Queries) -> None:
        stats, loop = self._stats, asyncio.get_running_loop()
        for pause in stats.turns():
            if pause is None:
                room = loop.create_future()
                stats.parked.append(partial(room.set_result, None))
                await room
            elif pause > 0:
                await asyncio.sleep(pause)
            else:
                await queries.enqueue(NAME, stats.payload())
                stats.stored += 1
        stats.producing -= 1
