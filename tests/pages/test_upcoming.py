"""The page of the next 24 hours: in order, bounded, each tick once."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from bedrockjobs.pages.schedules import MARKS_SHOWN
from tests.pages.conftest import StartSite
from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake, tick

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def ids(page: Page) -> list[str]:
    """Return the ticks of a page, each as its moment and job."""
    return list(await page.locator("[data-row]").evaluate_all("rows => rows.map((row) => row.id)"))


async def test_nothing_comes(site: Site, page: Page) -> None:
    await site.create("rarely", repeat="CRON 0 0 29 2 *")
    await site.open(page, "ui/upcoming")
    await expect(page.locator("main")).to_contain_text("No schedule ticks in the next 24 hours.")
    await check(page)


async def test_ticks_of_all_schedules_come_in_order(site: Site, page: Page) -> None:
    often = await site.create("often", repeat="CRON 0 */6 * * *")
    seldom = await site.create("seldom", repeat="CRON 30 3 * * *")
    await site.create("by hand", repeat="CRON @never")
    await site.ask("PauseJobs", name="seldom")
    await site.open(page, "ui/upcoming")
    found = await ids(page)
    assert found == sorted(found)
    assert len([row for row in found if row.endswith(f"-{often}")]) == 4
    assert len([row for row in found if row.endswith(f"-{seldom}")]) == 1
    await expect(page.locator("[data-row]", has_text="seldom")).to_contain_text("paused")
    await expect(page.locator("[data-row] .countdown").first).to_contain_text("in ")
    await check(page)
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text("often" if found[0].endswith(f"-{often}") else "seldom")


async def test_the_day_is_drawn_and_frequent_ticks_are_one_bar(site: Site, page: Page) -> None:
    await site.ask("AdvanceClock", to="2031-01-01 00:30:00")
    often = await site.create("often", repeat="CRON * * * * *")
    await site.create("seldom", repeat="CRON 0 */6 * * *")
    await site.create("rarely", repeat="CRON 0 0 29 2 *")
    for number in range(20):
        await site.create(f"many/{number}", repeat="CRON 30 23 * * *")
    await site.open(page, "ui/upcoming")
    lines = page.locator(".day li:not(.hours)")
    await expect(lines).to_have_count(20)
    await expect(
        page.get_by_role("img", name=f"often: every minute, more than {MARKS_SHOWN} times")
    ).to_be_visible()
    drawn = page.get_by_role("img", name="seldom")
    await expect(drawn).to_have_attribute("aria-label", re.compile("4 times$"))
    await expect(drawn.locator("rect")).to_have_count(4)
    await drawn.locator("rect").first.hover()
    await expect(page.locator(".tip")).to_contain_text("every 6 hours")
    await expect(page.locator(".day")).not_to_contain_text("rarely")
    await check(page)
    await page.locator(".day").get_by_role("link", name="often").click()
    await expect(page).to_have_url(f"{site.root}/ui/schedules/{often}")


async def test_a_page_is_bounded_and_the_next_goes_on_behind_it(site: Site, page: Page) -> None:
    for number in range(3):
        await site.create(f"m/{number}", repeat="CRON 0 * * * * *")
    await site.open(page, "ui/upcoming")
    first = await ids(page)
    assert len(first) == 100
    await page.keyboard.press("n")
    await expect(page.locator(f"[id='{first[0]}']")).to_have_count(0)
    await awake(page)
    second = await ids(page)
    assert len(second) == 100
    both = [*first, *second]
    assert both == sorted(set(both))
    minutes = sorted({row[5:25] for row in both})
    assert len(minutes) * 3 - len(both) in (0, 1, 2), "no tick is missing between the pages"


async def test_of_very_many_schedules_those_that_run_next_are_shown(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in (5, 1, 4, 2, 3):
        await site.create(f"at/{hour}", repeat="CRON 0 0 1 1 *", firstRun=f"2031-01-02 0{hour}:00:00")
    await site.ask("AdvanceClock", to="2031-01-02 00:00:00")
    monkeypatch.setattr("bedrockjobs.pages.schedules.SCHEDULES_EXAMINED", 3)
    await site.open(page, "ui/upcoming")
    await expect(page.locator("[data-row] th")).to_have_text(["at/1", "at/2", "at/3"])
    await expect(page.locator(".notice")).to_contain_text("2031-01-02 03:00:00 UTC")
    await check(page)


async def test_a_tick_leaves_when_it_has_passed(site: Site, page: Page) -> None:
    await site.create("hourly", repeat="CRON 0 * * * *")
    await site.open(page, "ui/upcoming?name=hour*")
    first = (await ids(page))[0]
    await tick(site, "hourly")
    await expect(page.locator(f"[id='{first}']")).to_have_count(0)


async def test_a_malformed_cursor_is_told(site: Site, page: Page) -> None:
    site.expected.add(400)
    for after in ("x", "2026-13-01 00:00:00 5"):
        await page.goto(f"{site.root}/ui/upcoming?after={after}")
        await expect(page.locator("main")).to_contain_text("after: expected a tick")
