"""The how-to from a failed night to its repair, executed in a browser step by step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.pages.conftest import StartSite
from tests.pages.looking import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = Path(__file__).parents[2] / "docs/how-to/recover-from-a-failed-night.md"
_TOKEN = re.compile(r"\*\*(?P<press>[^*]+)\*\*|`(?P<see>[^`]+)`")
OUTPUT = ["copying /srv", "no space left on device"]


def steps() -> list[list[tuple[str, str]]]:
    """Return what is pressed and seen in each step, in the order of the text."""
    numbered = re.split(r"^\d+\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return [
        [
            ("press", found["press"]) if found["press"] else ("see", found["see"])
            for found in _TOKEN.finditer(step.partition("\n\n")[0])
        ]
        for step in numbered
    ]


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server after the night: four runs have failed, that of the schedule last."""
    site = await start_site(test_clock=True)
    await site.create("backup/nightly", repeat="CRON 0 3 * * *")
    for _ in range(3):
        await site.create("report")
    await site.ask("AdvanceClock")
    for name in ("report", "report", "report", "backup/nightly"):
        await _run(site, name, fails=True)
    return site


async def _run(site: Site, name: str, *, fails: bool) -> None:
    """Be the worker of a job that is due."""
    job = await site.take(name, connection="wait", timeout=10_000)
    run = {"jobID": job["jobID"], "runID": job["runID"]}
    if fails:
        await site.ask("AppendOutput", runID=job["runID"], seq=1, lines=OUTPUT)
        await site.ask("FailJob", error="\n".join(["exit status 3", *OUTPUT]), exitCode=3, **run)
    else:
        await site.ask("FinishJob", exitCode=0, **run)


async def press(page: Page, words: str) -> None:
    """Press what has a name: a button, a tick, a link, or the line of a group."""
    asking = page.locator("dialog[open]")
    place = asking if await asking.count() else page
    button = place.get_by_role("button", name=words, exact=True)
    tick = place.get_by_role("checkbox", name=words, exact=True)
    link = place.get_by_role("link", name=words, exact=True)
    line = place.locator("summary", has=page.get_by_text(words, exact=True))
    await button.or_(tick).or_(link).or_(line).locator("visible=true").first.click()


async def test_the_night_is_mended_as_the_page_says(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    pressed = 0
    for number, step in enumerate(steps(), 1):
        for kind, words in step:
            if (number, words) == (5, "recovered"):
                assert [one["name"] for one in (await site.ask("Events", kind=words))["events"]] == [
                    "backup/nightly"
                ]
            elif kind == "see":
                await expect(page.get_by_text(words).locator("visible=true").first).to_be_visible()
            else:
                await press(page, words)
                pressed += 1
        if number == 4:
            await expect(page.locator("#confirm")).to_be_hidden()
            await _run(site, "backup/nightly", fails=False)
        elif number == 6:
            await expect(page.locator("#jobs .group")).to_have_count(0)
            for _ in range(3):
                await _run(site, "report", fails=False)
    assert pressed == 11
