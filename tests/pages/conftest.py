"""A live server, a real browser, and pages that fail a test if they show anything undesirable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from bedrockjobs.base.clock import StandingClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import START, Live, begin
from tests.engines import Databases
from tests.pages.looking import CHROMIUM, FLAGS, Site
from tests.postgresql.cluster import quiet_port
from tests.protocol.talk import DEADLINE_S

DEADLINE_MS = 1_000 * DEADLINE_S
"""Time for a page, and for what it is expected to show: as for any answer, on a busy machine."""

expect.set_options(timeout=DEADLINE_MS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Return the browser, Debian's."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield browser
        await browser.close()


StartSite = Callable[..., Awaitable[Site]]


@pytest.fixture(scope="session")
def port() -> int:
    """Return where the first server of each test listens: from there the browser keeps files."""
    return quiet_port()


@pytest.fixture
def keeps_connections() -> bool:
    """Keep them: these tests send many requests, and none of them is about connections."""
    return True


@pytest_asyncio.fixture(loop_scope="session")
async def start_site(databases: Databases, port: int) -> AsyncIterator[StartSite]:
    """Return a function that starts a server with pages; settings are its named arguments."""
    ports = [port]
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Site:
            given = {**databases.settings(settings.pop("database", "")), **settings}
            settings = Settings(port=ports.pop() if ports else 0, **given)
            # It begins at the same second of a minute in each run: which ticks are late depends on it.
            server = Server(settings, StandingClock(START) if settings.test_clock else None)
            await begin(server)
            stack.push_async_callback(server.stop)
            return Site(Live(server, stack, keeps=True))

        yield start


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server with pages."""
    return await start_site()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def window(browser: Browser) -> AsyncIterator[Page]:
    """Return the first page of a window in a zone that is not UTC: it stays, as windows take long to open."""
    context = await browser.new_context(
        timezone_id="Asia/Kolkata",
        locale="en-GB",
        reduced_motion="reduce",
        viewport={"width": 1280, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(DEADLINE_MS)
    yield await context.new_page()
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(window: Page) -> AsyncIterator[BrowserContext]:
    """Return a browser without a past: what a test leaves of pages, cookies and storage is removed.

    What it has loaded of scripts and styles stays: their addresses name their content.
    """
    yield window.context
    for page in window.context.pages:
        if page != window:
            await page.close()
    await window.context.clear_cookies()
    devtools = await window.context.new_cdp_session(window)
    await devtools.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    await devtools.detach()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, site: Site) -> AsyncIterator[Page]:
    """Return a page; the test fails where it complained, lacked something or asked somebody else."""
    page = await context.new_page()
    wrong: list[str] = []

    def complained(text: str) -> None:
        wanted = any(f"status of {status} " in text for status in site.expected)
        if not wanted and not text.startswith(tuple(site.complaints)):
            wrong.append(text)

    page.on("console", lambda told: complained(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((site.root, "data:")) else wrong.append(asked.url),
    )
    yield page
    assert wrong == []
