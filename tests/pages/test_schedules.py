"""The page of schedules: countdown, last ticks, pause, resume and trigger."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.pages.conftest import StartSite
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def tick(site: Site, name: str, *, fails: bool = False, late_s: int = 0) -> int:
    """Move the clock to a schedule's next tick and run it; return the run."""
    job = (await site.ask("ListSchedules", name=name))["schedules"][0]
    await site.ask("AdvanceClock", to=job["nextRun"])
    await site.ask("AdvanceClock", seconds=late_s)
    taken = await site.take(name)
    ending = {"jobID": job["jobID"], "runID": taken["runID"]}
    await site.ask("FailJob", **ending, error="no disk") if fails else await site.ask("FinishJob", **ending)
    return int(taken["runID"])


async def awake(page: Page) -> None:
    """Wait until a page that a key or a click led to listens to keys itself."""
    await page.locator('#link[data-state="open"]').wait_for()


async def test_those_that_fail_stand_first_with_what_was_wrong(site: Site, page: Page) -> None:
    await site.create("fine", repeat="CRON 0 9 * * *")
    job = await site.create("backup/nightly", repeat="CRON 0 3 * * *")
    run = await tick(site, "backup/nightly", fails=True)
    await site.open(page, "ui/schedules")
    failing = page.get_by_role("list", name="Schedules that fail").get_by_role("listitem")
    await expect(failing).to_have_count(1)
    await expect(failing).to_contain_text("backup/nightly")
    await expect(failing).to_contain_text("no disk")
    await check(page)
    await tick(site, "backup/nightly")
    await expect(failing).to_have_count(0)
    await tick(site, "backup/nightly", fails=True)
    await failing.get_by_role("link", name=f"Run {run + 2}").click()
    await expect(page.locator("h1")).to_contain_text(f"Run {run + 2} of backup/nightly")
    await site.open(page, f"ui/schedules?name=f*&after={job - 2}")
    await expect(failing).to_have_count(0)


async def test_each_schedule_shows_its_words_its_next_tick_and_its_last_ones(site: Site, page: Page) -> None:
    job = await site.create("report/daily", repeat="CRON TZ=Europe/Berlin 0 9 * * 1-5")
    await tick(site, "report/daily")
    run = await tick(site, "report/daily", fails=True)
    await tick(site, "report/daily", late_s=30)
    await site.open(page, "ui/schedules")
    row = page.locator(f"#schedule-{job}")
    await expect(row).to_contain_text("09:00")
    await expect(row).to_contain_text("CRON TZ=Europe/Berlin 0 9 * * 1-5")
    await expect(row.locator(".countdown")).to_contain_text("in ")
    cells = row.locator(".strip li")
    await expect(cells).to_have_count(3)
    shapes = [await cell.locator(".shape").get_attribute("class") for cell in await cells.all()]
    assert len(set(shapes)) == 3, "each outcome has a shape of its own"
    await expect(cells.nth(1).locator("a")).to_have_attribute("href", re.compile(rf"runs/{run}$"))
    await expect(cells.nth(2).get_by_title("30 s late")).to_have_count(1)
    await check(page)


async def test_the_countdown_counts(site: Site, page: Page) -> None:
    await site.create("often", repeat="CRON * * * * *")
    await site.open(page, "ui/schedules")
    countdown = page.locator(".countdown")
    before = await countdown.text_content()
    assert before
    await expect(countdown).not_to_have_text(before)


async def test_pausing_asks_says_why_and_until_when_and_can_be_taken_back(site: Site, page: Page) -> None:
    job = await site.create("a[1]", repeat="CRON * * * * *")
    other = await site.create("a1", repeat="CRON * * * * *")
    await site.open(page, "ui/schedules")
    row = page.locator(f"#schedule-{job}")
    await row.get_by_text("Pause…").click()
    await row.get_by_label("Reason").fill("disk <full>")
    await row.get_by_label("Until").fill("2099-01-02T05:30")
    await site.create("meanwhile", repeat="CRON 0 0 * * *")
    await expect(page.locator("[data-row]")).to_have_count(3)
    await expect(row.get_by_label("Reason")).to_have_value("disk <full>")
    await expect(row.get_by_label("Until")).to_be_focused()
    await row.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator("#confirm-which")).to_contain_text("a[[]1]")
    await page.locator("#confirm-yes").click()
    why = row.locator(".why")
    until = "until 2 Jan 2099, 05:30:00: disk <full>"
    await expect(why).to_contain_text(until, use_inner_text=True)
    assert await why.locator("time").count() == 2
    await expect(page.locator(f"#schedule-{other}")).not_to_contain_text("has been paused")
    await site.open(page, "ui/schedules")
    await row.get_by_role("button", name="Resume").wait_for()
    await check(page)
    await row.get_by_role("button", name="Resume").click()
    await page.locator("#confirm-yes").click()
    await expect(row).not_to_contain_text("has been paused")


async def test_trigger_runs_it_now_and_cancel_does_not(site: Site, page: Page) -> None:
    job = await site.create("now", repeat="CRON 0 0 1 1 *")
    await site.open(page, "ui/schedules")
    button = page.locator(f"#schedule-{job}").get_by_role("button", name="Trigger")
    await button.click()
    await page.locator("#confirm-no").click()
    assert (await site.http("GetJob", name="now"))[0] == 404
    await button.click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_contain_text(f"job {job}")
    assert (await site.take("now"))["jobID"] == job


async def test_a_page_is_bounded_filters_and_has_keys(site: Site, page: Page) -> None:
    for number in range(26):
        await site.create(f"s/{number}", repeat="CRON 0 0 * * *")
    await site.create("other", repeat="CRON 0 0 * * *")
    await site.open(page, "ui/schedules")
    await expect(page.locator("[data-row]")).to_have_count(25)
    await page.keyboard.press("n")
    await expect(page.locator("[data-row]")).to_have_count(2)
    await awake(page)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.get_by_role("link", name="other")).to_be_focused()
    await page.keyboard.press("/")
    await page.keyboard.type("oth*")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-row]")).to_have_count(1)
    assert "name=oth" in page.url


async def test_a_tick_appears_by_itself(site: Site, page: Page) -> None:
    job = await site.create("alive", repeat="CRON * * * * *")
    await site.open(page, "ui/schedules")
    await expect(page.locator(f"#schedule-{job}")).to_contain_text("no tick yet")
    await tick(site, "alive")
    await expect(page.locator(f"#schedule-{job} .strip li")).to_have_count(1)
