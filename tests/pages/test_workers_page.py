"""The page of workers: load, runs, why one is idle, drained and back."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_no_worker(site: Site, page: Page) -> None:
    await site.open(page, "ui/workers")
    await expect(page.locator("main")).to_contain_text("No worker is live.")
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
    await expect(page.locator("main")).to_contain_text("1 worker is live, with 1 run in progress on 4 slots.")
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


async def test_an_idle_worker_says_why(site: Site, page: Page) -> None:
    for _ in range(2):
        await site.create("locked", lock="disk")
    await site.ask("Heartbeat", worker="other", names=["locked"])
    await site.take("locked", worker="other")
    await site.create("ready")
    await site.create("paused")
    await site.create("later", firstRun="2031-01-01 00:00:00")
    await site.ask("PauseJobs", name="paused")
    for name in ("ready", "paused", "locked", "later"):
        await site.ask("Heartbeat", worker=f"w-{name}", names=[name], slots=1)
    await site.ask("Heartbeat", worker="w-quiet", names=["ready"], slots=1, quiet=True)
    await site.ask("Heartbeat", worker="w-drained", names=["ready"], slots=1)
    await site.ask("DrainWorker", worker="w-drained", by="ann")
    await site.open(page, "ui/workers")
    for name, words in {
        "ready": "jobs are ready for it",
        "paused": "its jobs are paused",
        "locked": "its jobs need a lock that another job holds",
        "later": "nothing is due for it",
        "quiet": "it is quiet",
        "drained": "it has been drained since ",
    }.items():
        await expect(page.locator(f"#worker-w-{name} .why-idle")).to_contain_text(words)
    told = page.locator("#worker-w-drained .why-idle")
    await expect(told).to_contain_text(", by ann")
    await expect(told.locator("time")).to_have_count(1)
    await expect(page.locator("#worker-other .why-idle")).to_have_count(0)
    await check(page)


async def test_drained_and_back(site: Site, page: Page) -> None:
    await site.ask("Heartbeat", worker="w1", slots=1)
    await site.ask("Heartbeat", worker="w2", slots=1)
    await site.open(page, "ui/workers")
    row = page.locator("[data-row]", has_text="w1")
    await row.get_by_role("button", name="Drain").click()
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
