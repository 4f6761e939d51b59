"""The overview: problems first, counts that stay fresh, charts of an hour, a day and a week."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from bedrockjobs.pages import overview
from bedrockjobs.pages.overview import NEEDS_SHOWN
from tests.effort import crossed
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def figures(page: Page) -> dict[str, str]:
    tiles = await page.locator(".tile").all()
    return {
        (await tile.locator(".what").inner_text()).strip(): await tile.locator(".figure").inner_text()
        for tile in tiles
    }


async def test_nothing_is_wrong_with_an_empty_server(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    assert (await page.locator("#problems").inner_text()).strip() == "Nothing is wrong."
    found = await figures(page)
    assert found["ready"] == found["failed"] == found["workers"] == "0"
    await check(page)


async def test_one_is_not_many(site: Site, page: Page) -> None:
    await site.create("night", repeat="CRON 0 3 * * *")
    await site.create("now")
    await site.take("now", worker="w")
    await site.open(page, "ui/")
    found = await figures(page)
    assert (found["schedule"], found["worker"]) == ("1", "1")


async def test_what_runs_what_failed_and_names_are_there(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    await expect(page.locator("#now-running")).to_contain_text("No job is running.")
    await expect(page.locator("#now-failed")).to_contain_text("No run has failed.")
    for number in range(7):
        await site.fail(f"mail/{number}", "no mailbox")
    await site.create("thumbnail")
    job = await site.take("thumbnail")
    await site.ask("UpdateJob", jobID=job["jobID"], runID=job["runID"], progress={"percent": 40})
    await site.open(page, "ui/")
    await expect(page.locator("#now-running")).to_contain_text("40 %")
    await expect(page.locator("#now-failed tbody tr")).to_have_count(5)
    await expect(page.locator("#now-failed")).to_contain_text("no mailbox")
    await expect(page.locator("#by-name tbody tr")).to_have_count(2)
    assert (await page.title()).startswith("Overview "), "not the title of a page that a part came from"
    await expect(page.locator(".brief input[type=checkbox]:visible")).to_have_count(0)
    await check(page)
    await page.locator("#now-failed").get_by_role("link", name="7", exact=True).click()
    await expect(page.locator("h1")).to_have_text("Run 7 of mail/6")


async def test_problems_come_first(site: Site, page: Page) -> None:
    await site.create("nightly", repeat="CRON 0 9 * * *")
    await site.fail("mail/1")
    await site.ask("PauseJobs", name="nightly", reason="move")
    await site.ask("Heartbeat", worker="w1", leaving=True)
    await site.create("a")
    await site.open(page, "ui/")
    problems = [text.strip() for text in await page.locator("#problems li").all_inner_texts()]
    assert problems[0].startswith("1 job is ready and no worker is alive.")
    assert problems[1].startswith("1 job has failed")
    assert problems[2].startswith("nightly has been paused since")
    assert "1 job waits, not due yet; reason: move." in problems[2]
    heights = [
        await page.locator(place).first.evaluate("place => place.getBoundingClientRect().top")
        for place in ("#problems", "#tiles", ".chart")
    ]
    assert heights == sorted(heights)
    await check(page)
    await page.locator("#problems a").nth(1).click()
    await page.wait_for_url("**/ui/failures")


async def test_schedules_that_failed_are_named(site: Site, page: Page) -> None:
    sentences = {
        1: "The last run of s1 failed.",
        4: "The last runs of s1, s2, s3 and 1 more schedule failed.",
    }
    await site.open(page, "ui/")
    for number in range(1, max(sentences) + 1):
        job = await site.create(f"s{number}", repeat="CRON 0 0 1 1 *")
        await site.ask("TriggerJob", jobID=job)
        taken = await site.take(f"s{number}")
        await site.ask("FailJob", jobID=job, runID=taken["runID"], error="no disk")
        if number in sentences:
            await expect(page.locator("#problems")).to_contain_text(sentences[number])


async def test_long_names_are_cut_in_a_sentence(site: Site, page: Page) -> None:
    for letter in "xyz":
        await site.create(letter * 255)
        await site.ask("PauseJobs", name=letter * 255)
    await site.open(page, "ui/")
    for letter in "xyz":
        cut = f"{letter * 30}…{letter * 29} has been paused"
        await expect(page.locator("#problems")).to_contain_text(cut)
    await check(page)


async def test_problems_of_a_kind_are_one_row_and_rows_are_at_most_four(site: Site, page: Page) -> None:
    await site.fail("mail/1")
    await site.ask("Heartbeat", worker="w1", names=["other"])
    await site.ask("DrainWorker", worker="w1", by="ann")
    for name in ("a", "b", "c"):
        await site.create(name)
    for name in ("x", "y"):
        await site.ask("PauseJobs", name=name)
    await site.create("s1", repeat="CRON 0 0 1 1 *")
    job = await site.create("s2", repeat="CRON 0 0 1 1 *")
    await site.ask("TriggerJob", jobID=job)
    taken = await site.take("s2", "w2")
    await site.ask("FailJob", jobID=job, runID=taken["runID"], error="no disk")
    await site.open(page, "ui/")
    await expect(page.locator("#problems .status")).to_contain_text(re.compile(r"\d things need you"))
    rows = page.locator("#problems .needs > li")
    await expect(rows).to_have_count(NEEDS_SHOWN)
    await expect(rows.first).to_contain_text("3 names have no worker")
    more = rows.last
    await expect(more.locator("summary")).to_have_text("3 more")
    await more.locator("summary").click()
    await more.locator("li", has_text="x has been paused").get_by_role("button", name="Resume").click()
    await page.locator("#confirm-yes").click()
    await expect(more.locator("summary")).to_have_text("2 more")
    await more.get_by_role("button", name="Take jobs again").click()
    await page.locator("#confirm-yes").click()
    await expect(rows).to_have_count(NEEDS_SHOWN)
    await expect(rows.last).to_contain_text("y has been paused")
    await check(page)


async def test_a_paused_queue_is_no_peace(site: Site, page: Page) -> None:
    await site.ask("Heartbeat", worker="w1", names=["*"])
    await site.ask("CreateJobs", jobs=[{"name": "mail/x"}] * 500)
    await site.ask("PauseJobs", name="mail/*", by="ann")
    await site.open(page, "ui/")
    notice = page.locator("#problems li")
    await expect(notice).to_contain_text("mail/* has been paused by ann since")
    await expect(notice).to_contain_text("500 jobs wait.")
    assert (await figures(page))["paused"] == "500"
    await notice.get_by_role("link").click()
    await page.wait_for_url("**/ui/queues?name=mail%2F*")
    await expect(page.locator("#queues tbody th")).to_contain_text("mail/x")


async def test_a_name_that_nobody_takes_leads_to_its_queue(site: Site, page: Page) -> None:
    await site.ask("Heartbeat", worker="w1", names=["b"])
    await site.create("a[1]")
    await site.open(page, "ui/")
    problem = page.locator("#problems li")
    await expect(problem).to_contain_text("No worker takes a[1]")
    await problem.get_by_role("link").click()
    await page.wait_for_url("**/ui/queues?name=a%5B%5B%5D1%5D")
    assert await page.locator("#queues tbody th > a").all_inner_texts() == ["a[1]"]


async def test_counts_stay_fresh(site: Site, page: Page) -> None:
    await site.open(page, "ui/")
    ready = page.locator(".tile", has_text="ready").locator(".figure").first
    await expect(ready).to_have_text("0")
    await site.create("a")
    await site.create("b", firstRun="2040-01-01 00:00:00")
    await expect(ready).to_have_text("1")
    found = await figures(page)
    assert found["later"] == "1"
    assert "2 created" in await page.locator("#sums").inner_text()


async def test_tiles_say_what_changed_within_an_hour(site: Site, page: Page) -> None:
    for _ in range(3):
        await site.create("a")
    await site.fail("b")
    await site.open(page, "ui/")
    changes = {
        (await tile.locator(".what").inner_text()).strip(): await tile.locator(".change").inner_text()
        for tile in await page.locator(".tile", has=page.locator(".change")).all()
    }
    assert changes == {"failed": "+1 in 1 h"}, "how many were queued an hour ago is not known"
    hour = await site.server.service.views.histories.of_all("1h")
    before = hour.steps[0].model_copy(update={"depth": 1})
    reply = await site.server.service.views.standings.overview(ahead=False)
    known = hour.model_copy(update={"steps": [before, *hour.steps[1:]]})
    assert overview._changes(reply, known) == {"failed": 1, "queued": 2}
    late = hour.model_copy(update={"steps": [*hour.steps[1:30], before]})
    assert overview._changes(reply, late) == {"failed": 1}


async def test_charts_show_what_was_done(site: Site, page: Page) -> None:
    for number in range(3):
        await site.create(f"a{number}")
    await site.fail("b")
    await site.open(page, "ui/")
    chart = page.locator('[data-series^="created"]')
    shown = {"1 h": (60, "Jobs a minute"), "24 h": (144, "Jobs per 10 minutes"), "7 d": (168, "Jobs an hour")}
    for range_, (steps, title) in shown.items():
        await page.get_by_role("link", name=range_, exact=True).click()
        await expect(page.locator("#throughput-title")).to_have_text(title)
        await expect(chart).to_have_attribute("data-points", str(steps))
        await expect(chart).to_have_attribute("data-sum", "4")
        assert await chart.locator("canvas").count() == 1
        assert (
            f"In the last {range_}: 4 created, 1 taken, 0 finished, 1 failed"
            in await page.locator("#sums").inner_text()
        )
    await site.create("c")
    await expect(chart).to_have_attribute("data-sum", "5")
    await page.keyboard.press("t")
    await expect(chart.locator("canvas")).to_have_count(1)


WRITTEN = """
window.written = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.written.push(text);
  return write.call(this, text, ...rest);
};
"""


LOCALES = {
    "de-DE": (r"\d+\. \w+\.?", r"\d\d:\d\d", r"\d\d\.\d\d\.\d{4}, \d\d:\d\d"),
    "en-GB": (r"\d+ \w+", r"\d\d:\d\d", r"\d+ \w+ \d{4}, \d\d:\d\d"),
    "en-US": (r"\w+ \d+", r"\d+:\d\d\s[AP]M", r"\w+ \d+, \d{4}, \d+:\d\d\s[AP]M"),
}
"""How a locale writes a day, a time of day, and a moment."""


@pytest.mark.parametrize(("locale", "range_"), crossed(LOCALES, ["24h", "7d"]))
async def test_charts_write_dates_as_the_browser_does(
    site: Site, browser: Browser, locale: str, range_: str
) -> None:
    day, clock, moment = LOCALES[locale]
    context = await browser.new_context(locale=locale, timezone_id="Asia/Kolkata")
    try:
        page = await context.new_page()
        await page.add_init_script(WRITTEN)
        await site.open(page, f"ui/?range={range_}")
        chart = page.locator('[data-series^="created"]')
        await chart.locator("canvas").wait_for()
        written = [text for text in await page.evaluate("window.written") if re.search(r"\D", text)]
        assert any(re.fullmatch(day, text) for text in written), written
        wrong = [text for text in written if not re.fullmatch(rf"{day}|{clock}|[\d.,]+ s", text)]
        assert not wrong
        if range_ == "24h":
            assert any(re.fullmatch(clock, text) for text in written), written
        await chart.locator(".u-over").hover()
        await expect(chart.locator(".tip")).to_have_text(re.compile(f"^{moment}: created 0, finished 0"))
    finally:
        await context.close()


async def test_a_chart_says_what_each_point_is_by_pointer_and_by_keys(site: Site, page: Page) -> None:
    for number in range(3):
        await site.create(f"a{number}")
    await page.add_init_script(WRITTEN)
    await site.open(page, "ui/")
    chart = page.locator('[data-series^="created"]')
    await expect(chart).to_have_attribute("data-sum", "3")
    written = set(await page.evaluate("window.written"))
    assert {"0", "1", "2", "3", "0 s"} <= written
    tip = chart.locator(".tip")
    await expect(tip).to_be_hidden()
    await chart.focus()
    await expect(tip).to_contain_text(re.compile("created [03], finished 0, failed 0"))
    last = await tip.inner_text()
    await page.keyboard.press("ArrowLeft")
    await expect(tip).not_to_have_text(last)
    before = await tip.inner_text()
    await check(page)
    await page.keyboard.press("End")
    await expect(tip).not_to_have_text(before)  # nor need it be the last: a minute may have passed
    for _ in range(20):  # it is drawn anew where news comes, and has no place at that moment
        await page.keyboard.press("Home")
        box = await tip.bounding_box()
        if box is not None:
            break
    around = await chart.bounding_box()
    assert box is not None
    assert around is not None
    assert box["x"] >= around["x"]
    await page.keyboard.press("Escape")
    await expect(tip).to_be_hidden()
    await page.keyboard.press("End")
    await page.keyboard.press("Shift+Tab")
    await expect(tip).to_be_hidden()
    await page.locator('[data-series^="wait_p50"]').hover()
    await expect(page.locator('[data-series^="wait_p50"] .tip')).to_contain_text(
        re.compile(": median \N{EN DASH}, 95 % \N{EN DASH}$")
    )
