"""The page of workers: load, current jobs, quiet and back."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_no_worker(site: Site, page: Page) -> None:
    await site.open(page, "ui/workers")
    await expect(page.locator("main")).to_contain_text("No worker is there.")
    await check(page)


async def test_each_worker_shows_what_it_does(site: Site, page: Page) -> None:
    await site.ask(
        "Heartbeat", worker="eu/1", host="db1", pid=4711, version="1.2", names=["mail/*", "a"], slots=4
    )
    await site.create("mail/send")
    taken = await site.take("mail/send", worker="eu/1", heartbeat=True)
    await site.open(page, "ui/workers")
    row = page.locator("[data-row]")
    for text in (
        "eu/1",
        "db1, process 4711, version 1.2",
        "active",
        "1 of 4",
        "mail/*",
        f"run {taken['runID']} mail/send",
    ):
        await expect(row).to_contain_text(text)
    await expect(page.locator("main")).to_contain_text(
        "1 worker is there, with 1 run in progress on 4 slots."
    )
    await check(page)
    await page.keyboard.press("j")
    await expect(row.get_by_role("link").first).to_be_focused()
    await row.get_by_role("link", name=f"run {taken['runID']}").click()
    await expect(page.locator("h1")).to_contain_text("mail/send")


async def test_a_worker_comes_and_goes_by_itself(site: Site, page: Page) -> None:
    await site.open(page, "ui/workers")
    await site.ask("Heartbeat", worker="w9", slots=1)
    await site.create("wakes")
    await expect(page.locator("[data-row]")).to_have_count(1)
    await site.ask("Heartbeat", worker="w9", leaving=True)
    await site.create("again")
    await expect(page.locator("[data-row]")).to_have_count(0)


async def test_quiet_and_back(site: Site, page: Page) -> None:
    await site.ask("Heartbeat", worker="w1", slots=1)
    await site.ask("Heartbeat", worker="w2", slots=1)
    await site.open(page, "ui/workers")
    row = page.locator("[data-row]", has_text="w1")
    await row.get_by_role("button", name="Quiet").click()
    await expect(page.locator("#confirm-which")).to_contain_text("worker w1")
    await page.locator("#confirm-yes").click()
    await expect(row).to_contain_text("drained")
    assert (await site.ask("Heartbeat", worker="w1"))["quiet"]
    assert not (await site.ask("Heartbeat", worker="w2"))["quiet"]
    await row.get_by_role("button", name="Take jobs again").click()
    await page.locator("#confirm-yes").click()
    await expect(row).to_contain_text("active")
    assert not (await site.ask("Heartbeat", worker="w1"))["quiet"]


async def test_many_workers_come_in_pages_and_can_be_sought(site: Site, page: Page) -> None:
    for number in range(51):
        await site.ask("Heartbeat", worker=f"w{number:02d}", slots=1)
    await site.open(page, "ui/workers")
    await expect(page.locator("[data-row]")).to_have_count(50)
    await page.keyboard.press("n")
    await expect(page.locator("[data-row]")).to_have_count(1)
    await awake(page)
    await page.keyboard.press("/")
    await page.keyboard.type("w4*")
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-row]")).to_have_count(10)
    await site.open(page, "ui/workers?name=w[^4]0")
    await expect(page.locator("[data-row]")).to_have_count(5)


@pytest.mark.parametrize("databases", ["sqlite", "postgresql"], indirect=True)
async def test_servers_stand_below_where_there_may_be_several(site: Site, page: Page) -> None:
    await site.ask("Heartbeat", worker="w1", slots=1)
    await site.open(page, "ui/workers")
    if not site.server.settings.on_postgresql:
        await expect(page.locator("#servers")).to_have_count(0)
        return
    row = page.locator("#servers tbody tr")
    for text in ("server-1", "serving", site.server.where()):
        await expect(row).to_contain_text(text)
    await expect(page.locator("#servers")).to_contain_text("1 server shares the database.")
    await check(page)
