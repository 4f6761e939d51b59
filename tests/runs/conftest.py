"""Fixtures for tests of runs: a server whose wall clock and whose leases stand still until they are moved.

The server runs on uvloop, as it does where it can, and at night also on asyncio's own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from zlib import crc32

import pytest
import uvloop

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import START, Live, begin
from tests.effort import PROFILE
from tests.engines import Databases
from tests.runs.rig import Site
from tests.runs.two_kinds import Place, place_of

EACH = 8
"""By day one in so many tests runs on asyncio's own loop instead."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose the event loops of a test."""
    both = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    if PROFILE == "random":
        return both
    name = "uvloop" if crc32(item.nodeid.encode()) % EACH else "asyncio"
    return {name: both[name]}


Open = Callable[..., Awaitable[Site]]


@pytest.fixture
def keeps_connections() -> bool:
    """Keep them: these tests send many requests, and none of them is about connections."""
    return True


@pytest.fixture
async def open_site(databases: Databases) -> AsyncIterator[Open]:
    """Return a function that starts a server; settings are its named arguments."""
    async with AsyncExitStack() as stack:

        async def start(*, database: str = "", **settings: Any) -> Site:
            leases = ManualClock(START)
            clock = None if settings.get("test_clock") else ManualClock(START)
            given = Settings(port=0, **{**databases.settings(database), **settings})
            server = Server(given, clock, databases.lease_clock(clock, leases))
            site = Site(server, stack, leases, databases)
            await begin(server)
            stack.push_async_callback(_stop, site)
            return site

        yield start


async def _stop(site: Site) -> None:
    await site.server.stop()  # the server there is then: a test may have started another one


@pytest.fixture
async def site(open_site: Open) -> Site:
    """Return a server at 2026-11-21 03:29:56.332, a Saturday."""
    return await open_site()


@pytest.fixture
async def place(live: Live) -> Place:
    """Return a server with jobs of two kinds of names."""
    return await place_of(live)


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where anything a client did ended in a traceback in the server's log."""
    yield
    for record in caplog.get_records("call"):
        assert not record.exc_info, f"a traceback in the log: {record.getMessage()}: {record.exc_info}"
        assert "Traceback" not in record.getMessage()
