"""Make the pictures of the pages in ``docs/screenshots``: ``python -m tests.pages.screenshots``."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.pages.looking import CHROMIUM, FLAGS, Site

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SIZE = (1280, 800)

PICTURES = {
    "overview": ("ui/", "light"),
    "jobs": ("ui/jobs", "light"),
    "job": ("ui/jobs/{failed}", "light"),
    "run": ("ui/runs/{run}", "dark"),
    "schedules": ("ui/schedules", "light"),
    "schedule": ("ui/schedules/{schedule}", "light"),
    "upcoming": ("ui/upcoming", "light"),
    "workers": ("ui/workers", "light"),
    "failures": ("ui/failures", "light"),
    "events": ("ui/events", "dark"),
}
"""Each picture: its page and its theme."""


async def fill(site: Site) -> dict[str, int]:
    """Let things happen on a server; return the numbers that addresses of pages need."""
    schedule = await site.create("nightly/backup", repeat="CRON TZ=Europe/Berlin 30 2 * * *")
    await site.create("report/weekly", repeat="CRON 0 9 * * MON")
    for number in range(12):
        await site.create(f"mail/{number}", data={"to": f"person{number}@example.com", "tries": number})
    failed = await site.create("thumbnail/41", data={"image": "cat.png", "sizes": [64, 256, 1024]})
    taken = await site.take("thumbnail/41", worker="eu/1", heartbeat=True)
    lines = ["reading cat.png", {"line": "cat.png: not an image", "stream": "err"}]
    await site.ask("AppendOutput", runID=taken["runID"], seq=1, lines=lines)
    await site.ask("FailJob", jobID=failed, runID=taken["runID"], error="not an image", exitCode=3)
    await site.ask("Heartbeat", worker="eu/1", host="db1", pid=4711, names=["thumbnail/*", "mail/*"], slots=4)
    taken = await site.take("mail/3", worker="eu/1", heartbeat=True)
    return {"failed": failed, "run": taken["runID"] - 1, "schedule": schedule}


async def draw(site: Site, page: Page) -> None:
    """Make each picture."""
    numbers = await fill(site)
    for name, (path, theme) in PICTURES.items():
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        await site.open(page, path.format(**numbers))
        await page.screenshot(path=FOLDER / f"{name}.png")


async def main() -> None:
    """Start a server and a browser, and draw."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Settings(port=0, database=f"{folder}/jobs.db"))
        await server.start()
        try:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
                page = await browser.new_page(
                    viewport={"width": SIZE[0], "height": SIZE[1]},
                    locale="en-GB",
                    timezone_id="Europe/Berlin",
                )
                await draw(Site(server), page)
                await browser.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
