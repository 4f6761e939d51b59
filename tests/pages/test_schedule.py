"""The page of one schedule: next ticks, changes of the clock, history, durations, options."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.pages.conftest import StartSite
from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake, tick

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def test_it_shows_ten_ticks_in_both_zones_and_what_the_clock_does(site: Site, page: Page) -> None:
    job = await site.create("night", repeat="CRON TZ=Europe/Berlin 30 2 * * *", runTimeout="5m")
    await site.open(page, f"ui/schedules/{job}")
    rows = page.locator("#next tbody tr")
    await expect(rows).to_have_count(10)
    await expect(rows.first).to_contain_text("02:30:00 +0")
    await expect(rows.first).to_contain_text("UTC")
    await expect(page.locator(".warnings")).to_contain_text("the clock is put forward")
    await expect(page.locator("dl.facts").last).to_contain_text("runTimeout")
    await expect(page.locator("#history")).to_contain_text("No ticks yet.")
    await check(page)


async def test_its_last_days_are_drawn_in_its_own_zone(site: Site, page: Page) -> None:
    job = await site.create("night", repeat="CRON TZ=Asia/Tokyo 0 1 * * *")
    fates = (True, False, True)
    for fine in fates:
        row = (await site.ask("ListSchedules", name="night"))["schedules"][0]
        await site.ask("AdvanceClock", to=row["nextRun"])
        run = (await site.take("night"))["runID"]
        end = {"jobID": job, "runID": run}
        await (site.ask("FinishJob", **end) if fine else site.ask("FailJob", error="x", **end))
    await site.open(page, f"ui/schedules/{job}")
    chart = page.locator("#days svg")
    await expect(chart).to_have_attribute(
        "aria-label", "Ticks of the last 30 days, the oldest first; at most 1 a day"
    )
    days = chart.locator("g")
    await expect(days).to_have_count(30)
    words = [await day.get_attribute("aria-label") or "" for day in (await days.all())[-3:]]
    assert [text.partition(": ")[2] for text in words] == ["1 ran", "1 failed", "1 ran"]
    assert words[-1].split()[1] > row["nextRun"][:10], "it is the next day there"
    await expect(chart.locator("rect[data-bad]")).to_have_count(1)
    await expect(page.locator("#days .legend span", has_text="ran")).to_have_text("2 ran")
    await expect(page.locator("#days li")).to_have_text([words[1]])
    await days.last.focus()
    await expect(page.locator("body > .tip")).to_contain_text(words[-1])
    await check(page)


async def test_its_runs_are_drawn_and_listed_with_how_long_they_took(site: Site, page: Page) -> None:
    job = await site.create("timed", repeat="CRON 0 * * * *")
    for seconds in (10, 90):
        row = (await site.ask("ListSchedules", name="timed"))["schedules"][0]
        await site.ask("AdvanceClock", to=row["nextRun"])
        taken = await site.take("timed")
        await site.ask("AdvanceClock", seconds=seconds)
        await site.ask("FinishJob", jobID=job, runID=taken["runID"])
    await tick(site, "timed", fails=True)
    await site.open(page, f"ui/schedules/{job}")
    chart = page.locator("#took svg")
    await expect(chart).to_have_attribute(
        "aria-label", "Durations of the last 3 runs, the oldest first; the longest took 1 min 30 s"
    )
    heights = [float(await bar.get_attribute("height") or 0) for bar in await chart.locator("rect").all()]
    assert heights[1] > heights[0] > heights[2]
    await expect(chart.locator("rect[data-bad]")).to_have_count(1)
    await expect(page.locator("#took tbody tr").nth(1)).to_contain_text("1 min 30 s")
    assert await chart.locator("text").all_text_contents() == ["0", "45 s", "1 min 30 s"]
    await expect(page.locator("#took .axis time")).to_have_count(2)
    tip = page.locator("body > .tip")
    await expect(tip).to_be_hidden()
    await chart.locator("a").nth(1).focus()
    await expect(tip).to_contain_text("run 2: success, 1 min 30 s")
    await chart.locator("rect").first.hover()
    await expect(tip).to_contain_text("run 1: success, 10 s")
    await page.keyboard.press("Escape")
    await expect(tip).to_be_hidden()
    await check(page)


async def test_the_history_has_pages(site: Site, page: Page) -> None:
    job = await site.create("paged", repeat="CRON * * * * *", overlap="skip", maxLate="30s")
    for _ in range(26):
        await tick(site, "paged")
        await site.ask("AdvanceClock", seconds=120)
    rows = (await site.ask("ListTicks", jobID=job, limit=1000))["ticks"]
    assert len(rows) > 50
    await site.open(page, f"ui/schedules/{job}")
    shown = page.locator("#history tbody tr")
    await expect(shown).to_have_count(50)
    await page.keyboard.press("n")
    await expect(shown).to_have_count(len(rows) - 50)
    await awake(page)
    await page.keyboard.press("p")
    await expect(shown).to_have_count(50)


async def test_it_says_that_each_run_failed(site: Site, page: Page) -> None:
    job = await site.create("sad", repeat="CRON * * * * *")
    for _ in range(3):
        await site.ask("AdvanceClock", seconds=60)
        run = await site.ask("GetJob", name="sad", worker="w")
        await site.ask("FailJob", jobID=job, runID=run["runID"], error="no")
    await site.open(page, f"ui/schedules/{job}")
    row = page.locator("#history tbody tr")
    await expect(row).to_have_count(3)
    await expect(row.first).to_contain_text("fail")
    await expect(page.locator("#history tbody")).not_to_contain_text("ran")
    await expect(page.locator("#head .status")).to_have_text(
        re.compile(r"Failing since .*, 3 in a row, never succeeded$")
    )
    await expect(page.locator("#head .strip li")).to_have_count(3)


async def test_what_is_no_schedule_is_told_so(site: Site, page: Page) -> None:
    job = await site.create("plain")
    site.expected.add(404)
    await page.goto(f"{site.root}/ui/schedules/{job}")
    await expect(page.locator("main")).to_contain_text("has no repeat that begins with CRON")
    await page.goto(f"{site.root}/ui/schedules/999")
    await expect(page.locator("h1")).to_contain_text("No job")


async def test_it_can_be_paused_and_shows_what_happens_meanwhile(site: Site, page: Page) -> None:
    job = await site.create("held", repeat="CRON * * * * *")
    await site.open(page, f"ui/schedules/{job}")
    await page.get_by_text("Pause…").click()
    await page.get_by_label("Reason").fill("works on the roof")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#head")).to_contain_text("works on the roof")
    since = page.locator("#head dd", has_text="has been paused since").locator("time")
    await expect(since).to_have_attribute("title", re.compile(" UTC$"))
    await expect(since.locator(".local")).not_to_be_empty()
    await tick_fired(site, page)


async def tick_fired(site: Site, page: Page) -> None:
    """Resume, run a tick, and see it in the history without reading the page again."""
    await page.get_by_role("button", name="Resume").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#head")).not_to_contain_text("works on the roof")
    await tick(site, "held")
    await expect(page.locator("#history tbody tr").first).to_contain_text("ran")
