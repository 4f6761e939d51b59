"""Make the pictures of the pages in ``docs/screenshots``: ``python -m tests.pages.screenshots``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

from bedrockjobs.base.clock import StandingClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.client import AsyncClient
from bedrockjobs.server import Server
from tests.pages.looking import CHROMIUM, FLAGS, Site
from tests.pages.month import START, Month
from tests.pages.picture import small

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SIZE = (1280, 800)

PICTURES = {
    "overview": ("ui/", "light"),
    "queues": ("ui/queues", "light"),
    "jobs": ("ui/jobs", "light"),
    "job": ("ui/jobs/{failed}", "light"),
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


async def draw(site: Site, page: Page, numbers: dict[str, int]) -> None:
    """Make each picture."""
    await page.clock.set_fixed_time(site.server.clock.now())
    for name, (path, theme) in PICTURES.items():
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        await site.open(page, path.format(**numbers))
        picture = await small(page, await page.screenshot())
        (FOLDER / f"{name}.png").write_bytes(picture)
        print(f"{name}: {len(picture):,} bytes")


async def main() -> None:
    """Start a server and a browser, live through a month, and draw."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, database=f"{folder}/jobs.db", test_clock=True, durability="relaxed")
        server = Server(settings, StandingClock(START))
        await server.start()
        try:
            async with AsyncClient(f"127.0.0.1:{server.port}") as client:
                month = Month(client)
                await month.live()
            numbers = {"failed": month.failed_job, "run": month.failed_run, "schedule": month.schedule}
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
                page = await browser.new_page(
                    viewport={"width": SIZE[0], "height": SIZE[1]},
                    locale="en-GB",
                    timezone_id="Europe/Berlin",
                )
                await draw(Site(server), page, numbers)
                await browser.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
