"""The URL that the server calls while it is healthy, and calls that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bedrockjobs.observe.telemetry import CALL_S_MAX, EVERY_S, RECHECK_S, HeartbeatURL
from tests.conftest import Serve
from tests.protocol.talk import DEADLINE_S


class Watch:
    """Somebody else's watch: counts the calls of a path, and answers them with a status."""

    def __init__(self) -> None:
        """Begin without calls."""
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.status = 200
        self.url = ""

    async def called(self) -> str:
        """Return the path of the next call."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.calls.get()

    async def _call(self, request: web.Request) -> web.Response:
        self.calls.put_nowait(f"{request.method} {request.path}")
        return web.Response(status=self.status)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Watch]:
        """Listen on a free port."""
        app = web.Application()
        app.add_routes([web.get("/{path:.*}", self._call)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/secret"
        try:
            yield self
        finally:
            await runner.cleanup()


async def test_a_server_calls_it_from_its_start(serve: Serve) -> None:
    assert RECHECK_S < CALL_S_MAX < EVERY_S == 60
    async with Watch().open() as watch:
        await serve(heartbeat_url=watch.url)
        assert await watch.called() == "GET /secret"


async def test_it_is_called_while_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    well, looks = True, asyncio.Semaphore(0)

    def is_healthy() -> bool:
        looks.release()
        return well

    async def looked(count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(count):
                await looks.acquire()

    async with Watch().open() as watch:
        heartbeat = HeartbeatURL(watch.url, is_healthy, every_s=0.001)
        heartbeat.start()
        await watch.called()
        watch.status = 503
        for _ in range(4):
            await watch.called()
        watch.status = 200
        for _ in range(3):
            await watch.called()
        well = False
        while not looks.locked():
            await looks.acquire()
        await looked(3)  # the last call before it is over by then
        while not watch.calls.empty():
            watch.calls.get_nowait()
        await looked(3)
        assert watch.calls.empty()
        await heartbeat.stop()
    told = [record.getMessage() for record in caplog.records if record.name.endswith("observe.telemetry")]
    assert told == [
        "the heartbeat URL was not reached: it answered 503",
        "the heartbeat URL is reached again",
    ]


async def test_a_watch_that_is_gone_is_told_once_without_the_url(caplog: pytest.LogCaptureFixture) -> None:
    async with Watch().open() as watch:
        url = watch.url
    tries = asyncio.Semaphore(0)

    def is_healthy() -> bool:
        tries.release()
        return True

    heartbeat = HeartbeatURL(url, is_healthy, every_s=0.001)
    heartbeat.start()
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(4):
            await tries.acquire()
    await heartbeat.stop()
    assert caplog.text.count("was not reached: ClientConnectorError") == 1
    assert "secret" not in caplog.text
