"""Make the pictures of the pages in ``docs/screenshots``: ``python -m tests.pages.screenshots [FOLDER]``.

A server with a test clock lives through 30 days first: schedules tick and fail now and then, jobs pile up,
somebody pauses what has to rest. With a FOLDER each page is drawn wide and narrow, light and dark, to be looked at.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from random import Random

from playwright.async_api import Browser, Page, async_playwright

from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.pages.looking import CHROMIUM, FLAGS, Site

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
WIDE, NARROW = (1400, 900), (390, 844)
DAYS = 30

PAGES = {
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

NIGHTLY = {
    "backup/database": "CRON TZ=Europe/Berlin 30 2 * * *",
    "backup/files": "CRON TZ=Europe/Berlin 0 4 * * *",
    "report/weekly": "CRON 0 9 * * MON",
    "cleanup/sessions": "CRON 15 */6 * * *",
}
ERRORS = ("connection to db1 was refused", "no space left on device", "mailbox unknown: ann@example.com")


async def work(site: Site, name: str, worker: str, error: str = "") -> int:
    """Take a job, print some lines, and end it; return its run, or 0 where there is nothing to take."""
    status, taken = await site.http("GetJob", name=name, worker=worker, heartbeat=True)
    if status != 200:
        return 0
    run = int(taken["runID"])
    lines = [f"{taken['name']}: begins", "reading 1,204 rows", error or "all done"]
    await site.ask("AppendOutput", runID=run, seq=1, lines=lines)
    await site.ask("AdvanceClock", seconds=7)
    if error:
        await site.ask("FailJob", jobID=taken["jobID"], runID=run, error=error, exitCode=1)
    else:
        await site.ask("FinishJob", jobID=taken["jobID"], runID=run, result={"rows": 1204})
    return run


async def fill(site: Site) -> dict[str, int]:
    """Let 30 days pass; return the numbers that addresses of pages need."""
    chance = Random(7)
    made = {name: await site.create(name, repeat=repeat) for name, repeat in NIGHTLY.items()}
    for day in range(DAYS):
        for _ in range(4):
            await site.ask("AdvanceClock", seconds=6 * 3_600)
            for name in NIGHTLY:
                bad = chance.random() < 0.08 or (day == DAYS - 1 and name == "backup/files")
                run = await work(site, name, "cron-1", ERRORS[day % 2] if bad else "")
                if bad and run:
                    await site.http("RetryJob", jobID=made[name], revive=True)
    for number in range(240):
        await site.create(
            f"mail/{('welcome', 'receipt', 'digest')[number % 3]}", data={"to": f"person{number}@example.com"}
        )
    for number in range(60):
        await site.create(f"thumbnail/{number % 12}", data={"image": f"cat-{number}.png", "sizes": [64, 256]})
    for number in range(40):
        await work(site, "mail/*", f"eu-{number % 2 + 1}", ERRORS[2] if number % 9 == 4 else "")
    failed = run = 0
    for _ in range(3):
        run = await work(site, "thumbnail/*", "eu-2", "not an image")
        failed = int((await site.ask("QueryRun", runID=run))["jobID"])
    await site.create("invoice/2026-11", data={"customer": 41})
    for name in ("eu-1", "eu-2"):
        told = {"host": "db1", "pid": 4711, "names": ["mail/*", "thumbnail/*"], "slots": 4, "version": "1.4"}
        await site.ask("Heartbeat", worker=name, **told)
        taken = await site.take("mail/*", worker=name, heartbeat=True)
        await site.ask("Heartbeat", worker=name, runIDs=[taken["runID"]], **told)
    await site.ask("Heartbeat", worker="cron-1", host="db2", pid=17, names=list(NIGHTLY), slots=2)
    await site.ask("DrainWorker", worker="cron-1", by="ann")
    await site.ask("TriggerJob", jobID=made["cleanup/sessions"], by="ann")
    await site.ask("PauseJobs", name="mail/digest", reason="the mail server is down", by="ann")
    return {"failed": failed, "run": run, "schedule": made["backup/database"]}


async def open_page(browser: Browser, size: tuple[int, int]) -> Page:
    """Return a page of a size, with a person's own zone."""
    viewport = {"width": size[0], "height": size[1]}
    return await browser.new_page(viewport=viewport, locale="en-GB", timezone_id="Europe/Berlin")  # type: ignore[arg-type]


async def draw(site: Site, browser: Browser, folder: Path | None) -> None:
    """Make each picture: one of each page for the documentation, or four of it."""
    numbers = await fill(site)
    for size, mark in ((WIDE, "wide"), (NARROW, "narrow")):
        if folder is None and size is NARROW:
            continue
        page = await open_page(browser, size)
        for name, (path, chosen) in PAGES.items():
            await site.open(page, path.format(**numbers))
            for theme in ("light", "dark") if folder else (chosen,):
                await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                file = folder / f"{name}-{mark}-{theme}.png" if folder else FOLDER / f"{name}.png"
                await page.screenshot(path=file, full_page=folder is not None)


async def main(folder: Path | None) -> None:
    """Start a server and a browser, and draw."""
    (folder or FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as database:
        server = Server(Settings(port=0, database=f"{database}/jobs.db", test_clock=True))
        await server.start()
        try:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
                await draw(Site(server), browser, folder)
                await browser.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
