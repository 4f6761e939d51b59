"""The page of one name: its counts, who takes it, its limits and pauses, and its history as charts."""

from __future__ import annotations

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


async def test_a_name_has_its_counts_takers_limits_and_charts(site: Site, page: Page) -> None:
    await site.fail("mail/a")
    for name in ("mail/a", "mail/a", "mail/b"):
        await site.create(name)
    await site.ask("Heartbeat", worker="w1", names=["mail/*"])
    await site.take("mail/a")
    await site.ask("SetLimit", name="mail/*", running=5)
    await site.ask("SetLimit", name="report", running=5)
    await site.open(page, "ui/queues?under=mail/")
    await page.locator("#queues").get_by_role("link", name="mail/a", exact=True).click()
    await page.wait_for_url("**/ui/queue?name=mail%2Fa")
    assert await page.locator("h1").inner_text() == "mail/a"
    tiles = dict(
        reversed(text.split("\n", 1)) for text in await page.locator("#queue .tile").all_inner_texts()
    )
    assert {name.strip(): figure for name, figure in tiles.items()} | {"oldest": ""} == {
        "ready": "1",
        "later": "0",
        "running": "1",
        "paused": "0",
        "failed": "1",
        "oldest": "",
    }
    said = await page.locator("#queue").inner_text()
    assert "Taken by w1." in said
    assert "mail/* allows 5 at once (1 now)." in said
    assert "report" not in said
    assert "3 created, 2 taken, 0 finished, 1 failed" in await page.locator("#sums").inner_text()
    for series in ("created", "wait_p50", "took_p50", "depth"):
        chart = page.locator(f'[data-series^="{series}"]')
        await expect(chart).to_have_attribute("data-points", "60")
    await expect(page.locator('[data-series^="created"]')).to_have_attribute("data-sum", "3")
    await expect(page.locator("#latest-runs tbody tr")).to_have_count(2)
    await expect(page.locator("#queued-jobs tbody tr")).to_have_count(1)
    await check(page)
    await expect(page.locator('[data-series="depth"]')).to_have_attribute("data-empty", "")
    await site.server.depths.sample()
    await site.create("mail/a")
    await expect(page.locator('[data-series^="created"]')).to_have_attribute("data-sum", "4")
    await expect(page.locator('[data-series="depth"]')).to_have_attribute("data-sum", "1")
    await expect(page.locator("[data-empty]")).to_have_count(0)
    await page.get_by_role("link", name="30 d", exact=True).click()
    await expect(page.locator("#jobs-title")).to_have_text("Jobs per 4 hours")
    await expect(page.locator('[data-series^="created"]')).to_have_attribute("data-sum", "4")


async def test_a_name_is_paused_and_resumed_where_it_stands(site: Site, page: Page) -> None:
    await site.create("a[1]")
    await site.create("a1")
    await site.open(page, "ui/queue?name=a[1]")
    await page.get_by_role("button", name="Pause…").click()
    await page.get_by_label("Reason").fill("moving")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator("#confirm-which")).to_contain_text("a[[]1]")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#queue .why")).to_contain_text("moving")
    await site.open(page, "ui/queue?name=a1")
    assert await page.locator("#queue .why").get_by_text("moving").count() == 0
    await site.open(page, "ui/queue?name=a[1]")
    await page.get_by_role("button", name="Resume").click()
    await page.locator("#confirm-yes").click()
    await expect(page.get_by_role("button", name="Pause…")).to_be_visible()


async def test_a_name_without_jobs_and_one_that_is_none(site: Site, page: Page) -> None:
    await site.open(page, "ui/queue?name=nobody/../x")
    assert await page.locator("#queue .tile:not(.zero)").count() == 0
    assert "Taken by no live worker." in await page.locator("#queue").inner_text()
    await check(page)
    assert (await page.request.get(f"{site.root}/ui/queue")).status == 400


WIDTHS = """(chart) => {
  const text = document.createElement("canvas").getContext("2d");
  text.font = "12px system-ui, sans-serif";
  return [chart.querySelector(".u-over").offsetLeft, text.measureText("1 min 40 s").width];
}"""
"""The room of a chart's labels, and what a long one takes."""


async def test_labels_of_durations_have_room(site: Site, page: Page) -> None:
    await site.create("mail/a")
    job = await site.take("mail/a")
    await site.ask("AdvanceClock", seconds=100)
    await site.ask("FinishJob", jobID=job["jobID"], runID=job["runID"])
    await site.open(page, "ui/queue?name=mail/a")
    chart = page.locator('[data-series^="took_p50"]')
    await expect(chart).to_have_attribute("data-points", "60")
    room, needed = await chart.evaluate(WIDTHS)
    assert room > needed + 15, "a label, its tick and its gap"


async def test_a_chart_never_makes_a_page_wider_than_its_window(site: Site, page: Page) -> None:
    """It leaves its old width at once, and is drawn again in the new one."""
    await site.create("mail/a")
    await site.open(page, "ui/queue?name=mail/a")
    await expect(page.locator(".chart canvas")).to_have_count(4)
    wide = await page.evaluate(
        """() => {
          document.querySelector("main").style.width = "300px";
          return document.querySelector("main").scrollWidth;
        }"""
    )
    assert wide <= 300, "measured before the chart was drawn again"
    await page.wait_for_function(
        """() => [...document.querySelectorAll(".chart")].every((chart) =>
          chart.clientWidth < 300 && chart.querySelector(".u-wrap").offsetWidth === chart.clientWidth)"""
    )
