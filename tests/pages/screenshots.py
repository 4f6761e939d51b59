"""Make the pictures of the pages in ``docs/screenshots``: ``python -m tests.pages.screenshots``.

A server with a test clock lives through a month first. With a folder as argument each page is drawn wide and
narrow, light and dark, as long as it is, to be looked at; further arguments are the only pages to draw.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from bedrockjobs.base.clock import StandingClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.client import AsyncClient
from bedrockjobs.server import Server
from tests.conftest import Live
from tests.pages.looking import CHROMIUM, FLAGS, Site
from tests.pages.month import START, Month
from tests.pages.picture import small

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
WIDE, NARROW = (1400, 900), (390, 844)

PAGES = {
    "overview": ("ui/", "light"),
    "queues": ("ui/queues", "light"),
    "jobs": ("ui/jobs", "light"),
    "job": ("ui/jobs/{failed}", "light"),
    "form": ("ui/schedules/{schedule}/edit", "light"),
    "runs": ("ui/runs", "light"),
    "run": ("ui/runs/{run}", "dark"),
    "schedules": ("ui/schedules", "light"),
    "schedule": ("ui/schedules/{schedule}", "light"),
    "upcoming": ("ui/upcoming", "light"),
    "workers": ("ui/workers", "light"),
    "failures": ("ui/failures", "light"),
    "events": ("ui/events", "dark"),
}
"""Each picture: its page and its theme."""

LOOKED_AT = {
    "queue": ("ui/queue?name=mail/receipt&range=24h", "light"),
    "jobs-queued": ("ui/jobs?state=QUEUED", "light"),
    "jobs-failed": ("ui/jobs?state=FAILED", "light"),
    "failing": ("ui/schedules/{failing}", "light"),
    "workflows": ("ui/workflows", "light"),
    "workflow": ("ui/workflows/{workflow}", "light"),
    "limits": ("ui/limits", "light"),
    "retention": ("ui/kept", "light"),
    "notifications": ("ui/notifications", "light"),
    "access": ("ui/access", "light"),
    "gone": ("ui/jobs/999999", "light"),
    "login": ("ui/login", "light"),
}
"""Pages that are drawn only to be looked at."""


async def open_page(browser: Browser, site: Site, size: tuple[int, int]) -> Page:
    """Return a page of a size, with a person's own zone, at the server's time."""
    viewport = {"width": size[0], "height": size[1]}
    page = await browser.new_page(viewport=viewport, locale="en-GB", timezone_id="Europe/Berlin")  # type: ignore[arg-type]
    await page.clock.set_fixed_time(site.server.clock.now())
    return page


async def draw(site: Site, browser: Browser, folder: Path | None, month: Month, named: list[str]) -> None:
    """Let a month pass, and make each picture: one of each page for the documentation, or four of it."""
    await month.live()
    numbers = {
        "failed": month.failed_job,
        "run": month.failed_run,
        "schedule": month.schedule,
        "failing": month.failing,
        "workflow": month.workflow,
    }
    pages = {**PAGES, **LOOKED_AT} if folder else PAGES
    for size, mark in ((WIDE, "wide"), (NARROW, "narrow")):
        if folder is None and size is NARROW:
            continue
        page = await open_page(browser, site, size)
        for name, (path, chosen) in pages.items():
            if named and name not in named:
                continue
            await month.beat()
            if name in ("gone", "login"):
                await page.goto(f"{site.root}/{path}")
            else:
                await site.open(page, path.format(**numbers))
            for theme in ("light", "dark") if folder else (chosen,):
                await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                file = folder / f"{name}-{mark}-{theme}.png" if folder else FOLDER / f"{name}.png"
                png = await page.screenshot(full_page=folder is not None)
                file.write_bytes(png if folder else await small(page, png))
                print(f"{file.name}: {file.stat().st_size:,} bytes", flush=True)


async def main(folder: Path | None, named: list[str]) -> None:
    """Start a server and a browser, and draw."""
    (folder or FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as database:
        settings = Settings(port=0, database=f"{database}/jobs.db", test_clock=True, durability="relaxed")
        server = Server(settings, StandingClock(START))
        await server.start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(server.stop)
            async with async_playwright() as playwright, AsyncClient(f"127.0.0.1:{server.port}") as client:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
                await draw(Site(Live(server, stack, keeps=True)), browser, folder, Month(client), named)
                await browser.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:]))
