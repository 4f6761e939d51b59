"""Helpers for tests of pages: fill a server, open a page, check its layout and accessibility."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

from playwright.async_api import Page, expect

from tests.conftest import Live
from tests.effort import PROFILE, examples

CHROMIUM = shutil.which("chromium-headless-shell") or "/usr/bin/chromium"
"""The shell opens pages in two thirds of the time that the whole browser needs."""

FLAGS = (
    "--renderer-process-limit=1",  # to start one for each page takes longer than most pages
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()

AXE_OPTIONS = "resultTypes: ['violations'], selectors: false, preload: false"
"""A fault is shown by its HTML, and no page has sounds or style sheets from elsewhere: half the time."""

SERIOUS = """({violations}) => violations
    .filter(({impact}) => ["serious", "critical"].includes(impact))
    .flatMap(({id, nodes}) => nodes.map(({html, failureSummary}) =>
        `${id}: ${html.slice(0, 150)} ${failureSummary.slice(0, 300)}`))"""
"""Takes what axe complains of out of its answer."""

STATE_EACH = examples(12, night=1)
"""By day axe checks one test's states of a page in so many, and each page in ``test_every_page.py``."""


class Site:
    """A server with pages, and what a test needs to fill it and to look at it."""

    def __init__(self, live: Live) -> None:
        """Hold a started server."""
        self.live, self.server = live, live.server
        self.root = f"http://127.0.0.1:{live.port}"
        self.expected: set[int] = set()
        """HTTP statuses of refusals that a test wants to see, and the browser's console complains of."""
        self.complaints: list[str] = []
        """Beginnings of other complaints of the console that a test wants."""

    async def http(self, command: str, **parameters: Any) -> tuple[int, Any]:
        """Send a command; return the HTTP status and the answer."""
        reply = await self.live.http(command, parameters)
        return reply.code, reply.json

    async def ask(self, command: str, **parameters: Any) -> Any:
        """Send a command that must be done; return the answer."""
        status, answer = await self.http(command, **parameters)
        assert status == 200, answer
        return answer

    async def create(self, name: str, **parameters: Any) -> int:
        """Create a job; return its number."""
        answer = await self.ask("CreateJob", name=name, **parameters)
        return int(answer["jobID"])

    async def take(self, name: str, worker: str = "w1", **parameters: Any) -> Any:
        """Take a job as a worker; return it with its runID."""
        return await self.ask("GetJob", name=name, worker=worker, **parameters)

    async def fail(self, name: str, error: str = "it broke") -> int:
        """Create a job and let it fail; return its number."""
        job = await self.create(name)
        taken = await self.take(name)
        await self.ask("FailJob", jobID=job, runID=taken["runID"], error=error)
        return job

    async def state(self, job: int) -> str:
        """Return a job's state; ``gone`` where there is no such job."""
        status, answer = await self.http("QueryJob", jobID=job)
        return "gone" if status == 404 else str(answer["state"])

    async def open(self, page: Page, path: str) -> None:
        """Open a page of this server and wait until its stream and the parts it asks for are there."""
        await page.goto(f"{self.root}/{path}")
        await page.locator('#link[data-state="open"]').wait_for()
        await whole(page)


async def whole(page: Page) -> None:
    """Wait for the parts that a page takes from other pages once it is there: they come in any order."""
    await expect(page.locator('[hx-trigger^="load"]:empty')).to_have_count(0)


THEMES = ("light", "dark")


async def check(page: Page, theme: str = "") -> None:
    """Fail if axe-core finds a serious accessibility problem, in the light theme and in the dark one.

    By day only one theme is checked: the light one in some of the tests, or ``theme``, which
    ``test_every_page.py`` asks for. At night both are; as they differ in colors only, the second time only
    contrast is.
    """
    await whole(page)
    if not theme and crc32(os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].encode()) % STATE_EACH:
        return
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    first = theme or THEMES[0]
    for scheme in sorted(THEMES, key=lambda scheme: scheme != first)[
        : len(THEMES) if PROFILE == "random" else 1
    ]:
        rules = "" if scheme == first else ", runOnly: ['color-contrast']"
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        serious = await page.evaluate(f"axe.run(document, {{{AXE_OPTIONS}{rules}}}).then({SERIOUS})")
        assert not serious, f"{scheme}: {serious}"
