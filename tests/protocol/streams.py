"""A small application with nothing but the streams, and streams as a client reads them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.access import Access
from bedrockjobs.engine.events import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.protocol import sse
from bedrockjobs.protocol.http_answers import problem
from bedrockjobs.store import schema
from bedrockjobs.store.chunks import PrintedLine, chunk_of
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import EVENTS, Views, output_topic
from tests.protocol.talk import DEADLINE_S

AT = "2026-11-21 03:00:00"
STREAM = {"Accept": "text/event-stream"}


class Block(dict[str, str]):
    """One block of a stream, by field; a comment is under the empty name."""

    @property
    def data(self) -> Any:
        """Return what the data means."""
        return json.loads(self["data"])


class Stream:
    """A stream as a client reads it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        """Read from ``response``."""
        self.response = response

    async def block(self) -> Block | None:
        """Return the next block, None at the end."""
        found = Block()
        async with asyncio.timeout(DEADLINE_S):
            while line := (await self.response.content.readline()).decode():
                if line == "\n":
                    return found
                name, _, value = line.rstrip("\n").partition(":")
                found[name] = value.removeprefix(" ")
        assert not found, "a block was cut"
        return None

    async def blocks(self, count: int) -> list[Block]:
        """Return so many blocks that carry data."""
        found: list[Block] = []
        while len(found) < count:
            block = await self.block()
            assert block is not None
            if "data" in block:
                found.append(block)
        return found


class Site:
    """A small application with nothing but the streams."""

    def __init__(
        self, path: Path, notifier: Notifier, client: aiohttp.ClientSession, stack: AsyncExitStack
    ) -> None:
        """Write to the database at ``path``; ask with ``client``."""
        self.db = sqlite3.connect(path, isolation_level=None)
        self.notifier = notifier
        self.client = client
        self._stack = stack

    async def get(self, where: str, **headers: str) -> aiohttp.ClientResponse:
        """Return the answer to a GET."""
        return await self._stack.enter_async_context(self.client.get(where, headers=headers))

    async def stream(self, where: str, **headers: str) -> Stream:
        """Return a stream that has begun."""
        response = await self.get(where, **STREAM, **headers)
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        found = Stream(response)
        assert await found.block() == {"retry": "2000"}
        return found

    def run(self, run_id: int = 5, status: str = "running") -> None:
        """Add a run."""
        self.db.execute(
            "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker, status)"
            " VALUES (?, 1, 'a', 1, 'manual', '', '', 'w', ?)",
            (run_id, status),
        )

    def line(self, seq: int, line: str, run_id: int = 5) -> None:
        """Add a line of output and notify."""
        self.lines([(seq, line)], run_id)
        self.notifier.notify(output_topic(run_id))

    def lines(self, lines: list[tuple[int, str]], run_id: int = 5) -> None:
        """Add lines of output."""
        chunks = [chunk_of(run_id, seq, 0, [PrintedLine(AT, "out", line)]) for seq, line in lines]
        self.db.executemany("INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chunks)

    def end(self, status: str = "success", run_id: int = 5) -> None:
        """End a run and notify."""
        self.db.execute("UPDATE runs SET status = ? WHERE runID = ?", (status, run_id))
        self.notifier.notify(output_topic(run_id))

    def event(self, seq: int, kind: str = "paused", name: str = "") -> None:
        """Add an event and notify."""
        self.db.execute("INSERT INTO events (seq, at, kind, name) VALUES (?, ?, ?, ?)", (seq, AT, kind, name))
        self.notifier.notify(EVENTS)

    async def listeners(self, count: int) -> None:
        """Wait until so many topics are listened to."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.notifier) != count:
                await asyncio.sleep(0.001)


@web.middleware
async def _refuse(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        return await handler(request)  # type: ignore[no-any-return]
    except CommandError as error:
        return problem(error)


async def open_site(path: Path, stack: AsyncExitStack, **options: Any) -> Site:
    """Return a site with a new database at ``path`` until ``stack`` ends, with ``options`` of ``routes``."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    settings = Settings()
    reader = SQLiteReader(path, settings)
    await reader.open()
    stack.push_async_callback(reader.close)
    notifier = Notifier()
    app = web.Application(middlewares=[_refuse])
    views = Views(reader, notifier, WorkerRegistry(), Stats(), SystemClock(), settings)
    app.add_routes(sse.routes(views, Access(SystemClock(), settings, reachable=False), **options))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = runner.addresses[0]
    client = await stack.enter_async_context(
        aiohttp.ClientSession(f"http://127.0.0.1:{base[1]}", timeout=aiohttp.ClientTimeout(60))
    )
    site = Site(path, notifier, client, stack)
    stack.callback(site.db.close)
    return site
