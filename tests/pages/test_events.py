"""The page of events: newest first, filtered by kind and name, page by page, refreshed."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_events_come_newest_first_and_by_themselves(site: Site, page: Page) -> None:
    await site.ask("PauseJobs", name="a/*", reason="roof <works>", by="ann")
    await site.open(page, "ui/events")
    rows = page.locator("[data-row]")
    for text in ("paused", "a/*", "ann", "roof <works>", "UTC"):
        await expect(rows.first).to_contain_text(text)
    await check(page)
    await site.ask("ResumeJobs", name="a/*", by="bob")
    await expect(rows.first).to_contain_text("bob")


async def test_filters_by_kind_and_name(site: Site, page: Page) -> None:
    for name in ("a/1", "a/2", "b/1"):
        await site.ask("PauseJobs", name=name)
        await site.ask("ResumeJobs", name=name)
    await site.open(page, "ui/events")
    rows = page.locator("[data-row]")
    await page.get_by_label("Kind").fill("paused")
    await page.get_by_label("Name (GLOB)").fill("a/*")
    await page.get_by_role("button", name="Show").click()
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("a/2")
    assert "kind=paused" in page.url
    await page.get_by_role("link", name="a/1").click()
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("resumed")


async def test_a_job_is_linked(site: Site, page: Page) -> None:
    job = await site.create("now", firstRun="2099-01-01")
    await site.ask("TriggerJob", jobID=job)
    await site.open(page, "ui/events?kind=triggered")
    await expect(page.get_by_role("link", name=str(job), exact=True)).to_have_attribute(
        "href", re.compile(rf"jobs/{job}$")
    )


async def test_pages_hold_each_event_once(site: Site, page: Page) -> None:
    for number in range(125):
        await site.ask("PauseJobs", name=f"n{number:03d}")
        if number % 5 == 0:
            await site.ask("ResumeJobs", name=f"n{number:03d}")
    total = (await site.ask("Events", limit=1000))["events"]
    await site.open(page, "ui/events")
    rows = page.locator("[data-row]")
    seen: list[str] = []
    while True:
        await awake(page)
        seen += await rows.evaluate_all("rows => rows.map((row) => row.id)")
        more = page.get_by_role("link", name="Next page")
        if not await more.count():
            break
        address = str(await more.evaluate("link => link.href"))
        await site.open(page, address.removeprefix(f"{site.root}/"))
    assert seen == [f"event-{event['seq']}" for event in reversed(total)]
    await site.open(page, "ui/events?kind=paused")
    await expect(rows).to_have_count(100)
    await page.keyboard.press("n")
    await expect(rows).to_have_count(25)
    await expect(rows.last).to_contain_text("n000")


async def test_a_rare_event_is_sought_stretch_by_stretch(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.ask("PauseJobs", name="rare")
    for _ in range(18):
        await site.ask("PauseJobs", name="common")
    monkeypatch.setattr("bedrockjobs.views.find.STRETCH_MIN", 10)
    monkeypatch.setattr("bedrockjobs.views.find.FIND_S", 0.0)
    await site.open(page, "ui/events?name=rare")
    await expect(page.locator("main")).to_contain_text("No match among the events searched so far.")
    await page.keyboard.press("n")
    await expect(page.locator("[data-row]")).to_have_count(1)


async def test_a_malformed_cursor_is_told(site: Site, page: Page) -> None:
    site.expected.add(400)
    await page.goto(f"{site.root}/ui/events?before=x")
    await expect(page.locator("main")).to_contain_text("before: expected the number of an event")
