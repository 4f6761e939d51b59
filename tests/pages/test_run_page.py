"""The page of a run: its outcome, its output (followed, searched, coloured, downloaded), and stopping it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def running(site: Site, lines: list[Any] | None = None, name: str = "build") -> tuple[int, int]:
    """Start a run that printed lines; return its job and itself."""
    job = await site.create(name)
    taken = await site.take(name, heartbeat=True)
    if lines:
        await site.ask("AppendOutput", runID=taken["runID"], seq=1, lines=lines)
    return job, int(taken["runID"])


async def test_a_run_shows_how_it_went_and_what_it_printed(site: Site, page: Page) -> None:
    job, run = await running(site, ["one", {"line": "<b>two</b>", "stream": "err"}])
    await site.ask("UpdateJob", jobID=job, runID=run, data={}, progress={"percent": 40, "message": "linking"})
    await site.ask("FailJob", jobID=job, runID=run, error="no space\nleft", exitCode=3)
    await site.open(page, f"ui/runs/{run}")
    head = page.locator("#head")
    for text in ("fail", "no space\nleft", "40 %", "linking", "w1"):
        await expect(head).to_contain_text(text)
    await expect(head.locator("dt:has-text('Exit status') + dd")).to_have_text("3")
    await expect(head.locator("dt:has-text('Attempt') + dd")).to_have_text("1")
    await expect(page.locator("#line-2.err")).to_contain_text("<b>two</b>")
    await expect(page.locator("#line-2 .stream")).to_have_text("err")
    await expect(page.get_by_role("button", name="Kill")).to_have_count(0)
    await check(page)


async def test_a_run_that_has_ended_is_deleted(site: Site, page: Page) -> None:
    job, run = await running(site, ["token=hunter2"])
    await site.open(page, f"ui/runs/{run}")
    await expect(page.get_by_role("button", name="Kill")).to_have_count(1)
    await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    await site.ask("FinishJob", jobID=job, runID=run)
    await page.get_by_role("button", name="Delete").click()
    await expect(page.locator("#confirm-which")).to_contain_text(f"Delete run {run} (build) with its data")
    await check(page)
    site.expected.add(404)  # of a refresh after the deletion, before the page is left
    await page.locator("#confirm-yes").click()
    await expect(page.locator("h1")).to_have_text("Runs")
    assert (await site.ask("ListRuns"))["runs"] == []


async def test_it_says_what_was_run_and_leads_to_the_runs_beside_it(site: Site, page: Page) -> None:
    runs = []
    for name in ("build", "other", "build", "build"):
        job = await site.create(name, argv=["make", "all of it"])
        runs.append((await site.take(name, accepts="argv"))["runID"])
        await site.ask("FinishJob", jobID=job, runID=runs[-1])
    await site.open(page, f"ui/runs/{runs[2]}")
    await expect(page.locator("dt:has-text('Command') + dd")).to_have_text("make 'all of it'")
    beside = page.get_by_role("navigation", name="Runs of build")
    await expect(beside.get_by_role("link")).to_have_text(
        [re.compile(f"Run {runs[0]}, the one before"), re.compile(f"Run {runs[3]}, the next one")]
    )
    await check(page)
    await beside.get_by_role("link").first.click()
    await expect(page.locator("h1")).to_contain_text(f"Run {runs[0]} of build")
    await expect(beside.get_by_role("link")).to_have_text([re.compile(f"Run {runs[2]}, the next one")])


async def test_it_follows_until_the_run_ends(site: Site, page: Page) -> None:
    job, run = await running(site, ["one"])
    await site.open(page, f"ui/runs/{run}")
    await expect(page.locator("#following")).to_have_text("Following.")
    await site.ask("AppendOutput", runID=run, seq=2, lines=["two", "\x1b[31mthree\x1b[0m"])
    await expect(page.locator("#line-3 .fg-red")).to_have_text("three")
    await check(page)
    await page.get_by_label("Follow").uncheck()
    await expect(page.locator("#following")).to_have_text("Not following.")
    await site.ask("AppendOutput", runID=run, seq=4, lines=["four"])
    await page.get_by_label("Follow").check()
    await expect(page.locator("#line-4")).to_contain_text("four")
    await site.ask("FinishJob", jobID=job, runID=run)
    await expect(page.locator("#following")).to_contain_text("The run has ended: success.")
    await expect(page.locator("#head")).to_contain_text("success")
    await expect(page.locator("#log .line")).to_have_count(4)


async def test_long_lines_are_wrapped_or_scrolled_and_the_browser_remembers(site: Site, page: Page) -> None:
    long = "x" * 2_000
    _, run = await running(site, ["short", long])
    await page.set_viewport_size({"width": 700, "height": 800})
    wide = (
        "() => { const log = document.getElementById('log'); return log.scrollWidth > log.clientWidth + 1; }"
    )
    await site.open(page, f"ui/runs/{run}")
    assert await page.get_by_label("Wrap long lines").is_checked()
    assert not await page.evaluate(wide)
    await page.get_by_label("Wrap long lines").uncheck()
    assert await page.evaluate(wide)
    await site.ask("AppendOutput", runID=run, seq=3, lines=["later"])
    await expect(page.locator("#line-3")).to_contain_text("later")
    await page.reload()
    await expect(page.get_by_label("Wrap long lines")).not_to_be_checked()
    assert await page.evaluate(wide)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 700
    await check(page)
    await page.get_by_label("Wrap long lines").check()
    await page.reload()
    assert not await page.evaluate(wide)


async def test_a_hidden_tab_does_not_follow_and_misses_nothing(site: Site, page: Page) -> None:
    _, run = await running(site, ["one"])
    await site.open(page, f"ui/runs/{run}")
    await expect(page.locator("#following")).to_have_text("Following.")
    turn = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    turn += " document.dispatchEvent(new Event('visibilitychange')); }"
    await page.evaluate(turn, True)
    await expect(page.locator("#link")).to_have_text("paused")
    await site.ask("AppendOutput", runID=run, seq=2, lines=["two"])
    await page.evaluate(turn, False)
    await expect(page.locator("#line-2")).to_contain_text("two")
    await expect(page.locator("#log .line")).to_have_count(2)


async def test_a_page_that_follows_keeps_a_bounded_number_of_lines(site: Site, page: Page) -> None:
    job, run = await running(site, ["one"])
    await site.open(page, f"ui/runs/{run}")
    for batch in range(6):
        lines = [f"line {number}" for number in range(batch * 900, batch * 900 + 900)]
        await site.ask("AppendOutput", runID=run, seq=2 + batch * 900, lines=lines)
    await expect(page.locator("#line-5401")).to_have_count(1)
    await expect(page.locator("#log .line")).to_have_count(5000)
    await site.ask("FinishJob", jobID=job, runID=run)
    await expect(page.locator("#following")).to_contain_text("401 lines left the page at its top.")


async def test_colours_and_timestamps(site: Site, page: Page) -> None:
    _, run = await running(
        site, ["\x1b[1;32mok\x1b[0m plain \x1b]0;title\x07\x1b[38;5;4mblue\x1b[2K", "a\rb\x07"]
    )
    await site.open(page, f"ui/runs/{run}")
    await expect(page.locator("#line-1 .said")).to_have_text("ok plain blue")
    await expect(page.locator("#line-1 .fg-green.b")).to_have_text("ok")
    await expect(page.locator("#line-1 .fg-blue")).to_have_text("blue")
    await expect(page.locator("#line-2 .said")).to_have_text("b\ufffd")
    when = page.locator("#line-1 .when")
    await expect(when).to_be_hidden()
    await page.get_by_label("Timestamps").check()
    await expect(when).to_be_visible()
    await expect(when).to_contain_text(" UTC")
    assert "times=1" in page.url
    await page.reload()
    await expect(when).to_be_visible()
    await check(page)


async def test_long_output_has_pages_and_opens_at_its_end(site: Site, page: Page) -> None:
    job, run = await running(site, [f"line {number} of many" for number in range(1, 1001)])
    await site.ask("AppendOutput", runID=run, seq=1001, lines=["the last"])
    await site.ask("FinishJob", jobID=job, runID=run)
    await site.open(page, f"ui/runs/{run}")
    lines = page.locator("#log .line")
    await expect(lines).to_have_count(500)
    await expect(lines.last).to_contain_text("the last")
    await expect(lines.first).to_contain_text("line 502 of many")
    await page.get_by_role("link", name="From the beginning").click()
    await expect(lines.first).to_contain_text("line 1 of many")
    await awake(page)
    await page.keyboard.press("n")
    await expect(lines.first).to_contain_text("line 501 of many")


async def test_a_search_finds_lines_anywhere(site: Site, page: Page) -> None:
    _, run = await running(
        site, [f"line {number} {'NEEDLE' if number % 250 == 0 else ''}" for number in range(1, 1001)]
    )
    await site.open(page, f"ui/runs/{run}")
    await page.keyboard.press("/")
    await page.keyboard.type("needle")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line")).to_have_count(4)
    await expect(page.locator("mark").first).to_have_text("NEEDLE")
    await expect(page.locator("main")).to_contain_text("4 lines with “needle”")
    await check(page)
    await page.get_by_role("link", name="All lines").click()
    await expect(page.locator("#log .line")).to_have_count(500)


async def test_a_search_stops_and_says_how_far_it_got(site: Site, page: Page) -> None:
    _, run = await running(site, [f"line {number}" for number in range(1, 1001)])
    await site.open(page, f"ui/runs/{run}?find=line")
    await expect(page.locator("#log .line")).to_have_count(200)
    await expect(page.locator("main")).to_contain_text("searched up to line 200")
    await page.get_by_role("link", name="Search on").click()
    await expect(page.locator("#log .line").first).to_contain_text("line 201")


async def test_the_whole_output_is_downloaded_as_text(site: Site, page: Page) -> None:
    _, run = await running(site, [f"line {number}" for number in range(1, 1001)])
    await site.ask("AppendOutput", runID=run, seq=1001, lines=["the last"])
    await site.open(page, f"ui/runs/{run}")
    async with page.expect_download() as begun:
        await page.get_by_role("link", name="Download as text").click()
    download = await begun.value
    assert download.suggested_filename == f"run-{run}.txt"
    text = (await download.path()).read_text()
    assert text.splitlines() == [*(f"line {number}" for number in range(1, 1001)), "the last"]


async def test_terminate_and_kill_reach_the_worker(site: Site, page: Page) -> None:
    _, run = await running(site)
    await site.open(page, f"ui/runs/{run}")
    await page.get_by_label("Reason").fill("takes too long")
    await page.get_by_role("button", name="Terminate").click()
    await expect(page.locator("#confirm-which")).to_contain_text(f"run {run}")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#head")).to_contain_text("TERM sent")
    told = await site.ask("Heartbeat", worker="w1", runIDs=[run])
    assert told["stop"] == [{"runID": run, "signal": "TERM"}]
    await page.get_by_role("button", name="Kill").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#head")).to_contain_text("KILL sent")


async def test_a_run_that_is_not_there(site: Site, page: Page) -> None:
    site.expected.update((400, 404))
    await page.goto(f"{site.root}/ui/runs/999")
    await expect(page.locator("main")).to_contain_text("there is no run 999")
    await page.goto(f"{site.root}/ui/runs/x")
    await expect(page.locator("main")).to_contain_text("runID: expected digits")
