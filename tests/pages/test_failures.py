"""The page of failures: grouped by name and first line, opened, retried, page by page."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from bedrockjobs.views.failures import line_of
from tests.pages.conftest import StartSite
from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def test_nothing_failed(site: Site, page: Page) -> None:
    await site.open(page, "ui/failures")
    await expect(page.locator(".problem.well")).to_have_count(2)
    await check(page)


async def test_what_failed_alike_stands_together(site: Site, page: Page) -> None:
    for number in range(3):
        await site.fail("mail/send", f"SMTP 550: no mailbox\nat line {number}")
    last = await site.fail("mail/send", "SMTP 421: <busy>")
    await site.open(page, "ui/failures")
    groups = page.locator("#jobs .group")
    await expect(groups).to_have_count(2)
    await expect(groups.first).to_contain_text("SMTP 421: <busy>")
    await expect(groups.nth(1)).to_contain_text("3 jobs")
    await expect(groups.nth(1).locator("table")).to_be_hidden()
    await groups.first.locator("summary").click()
    await expect(groups.first.get_by_role("link", name=str(last), exact=True)).to_be_visible()
    await expect(page.locator("#runs .group")).to_have_count(2)
    await page.locator("#runs summary").first.click()
    await check(page)
    await page.locator("#runs .group").first.get_by_role("link").click()
    await expect(page.locator("h1")).to_contain_text("Run 4 of mail/send")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("exit status 3\ncopying\nno space left on device\n", "no space left on device"),
        ("SIGKILL\nhalf of it", "half of it"),
        ("exit status 3", "exit status 3"),
        ("SMTP 550: no mailbox\nat line 3", "SMTP 550: no mailbox"),
        ("", ""),
    ],
)
async def test_failures_are_alike_by_the_line_that_says_what_was_wrong(error: str, line: str) -> None:
    assert line_of(error) == line


async def test_a_groups_jobs_are_retried_and_leave_the_list(site: Site, page: Page) -> None:
    jobs = [await site.fail("a", "same") for _ in range(3)]
    other = await site.fail("b", "same")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group", has_text="3 jobs")
    await group.locator("summary").focus()
    await page.keyboard.press("Enter")
    await group.get_by_label("all").check()
    await group.get_by_label(f"Select job {jobs[0]}").uncheck()
    await expect(group.locator("[data-count]")).to_have_text("2 selected")
    await site.create("something else")
    await page.keyboard.press("r")
    await group.get_by_role("button", name="Retry").click()
    await expect(page.locator("#confirm-which")).to_contain_text("2 jobs")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#jobs .group", has_text="1 job")).to_have_count(2)
    assert [await site.state(job) for job in [*jobs, other]] == ["FAILED", "QUEUED", "QUEUED", "FAILED"]


async def test_a_group_is_marked_as_seen_and_comes_back_when_it_fails_anew(site: Site, page: Page) -> None:
    jobs = [await site.fail("mail/send", "no mailbox") for _ in range(2)]
    await site.fail("other", "x")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs > .group", has_text="no mailbox")
    await group.locator("summary").click()
    await group.get_by_role("button", name="Mark as seen").click()
    await expect(page.locator("#confirm-which")).to_have_text(
        "Mark 2 jobs of mail/send as seen? They come back when they fail anew."
    )
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_have_text("Marked as seen: 2 jobs of mail/send.")
    await expect(group).to_have_count(0)
    folded = page.locator("#seen-jobs")
    await expect(folded.locator("> summary")).to_have_text("1 group of jobs that somebody has seen")
    await expect(folded.locator(".group.seen")).to_be_hidden()
    await folded.locator("> summary").click()
    await expect(folded.locator(".group.seen > summary")).to_contain_text("seen ")
    await check(page)
    await site.ask("RetryJob", jobID=jobs[0], revive=True)
    taken = await site.take("mail/send")
    await site.ask("FailJob", jobID=jobs[0], runID=taken["runID"], error="no mailbox")
    await expect(group).to_contain_text("2 jobs, 1 new")
    await site.open(page, "ui/")
    await expect(page.locator("#problems")).to_contain_text("2 jobs have failed")
    await expect(page.locator("#tiles .tile", has_text="failed")).to_contain_text(
        "3 in all: others were seen"
    )


async def test_seen_can_be_taken_back_and_runs_have_it_too(site: Site, page: Page) -> None:
    await site.fail("a", "first")
    run = (await site.ask("ListRuns"))["runs"][0]["runID"]
    await site.ask("MarkSeen", runIDs=[run], by="ann")
    await site.open(page, "ui/failures")
    await expect(page.locator("#runs .problem.well")).to_contain_text(
        "No run has failed that nobody has seen."
    )
    await page.locator("#seen-runs > summary").click()
    group = page.locator("#seen-runs .group")
    await expect(group.locator("summary")).to_contain_text("seen by ann")
    await group.locator("summary").click()
    await group.get_by_role("button", name="Not seen").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#runs > .group")).to_have_count(1)
    assert (await site.ask("ListFailures"))["runs"][0]["unseen"] == 1


async def test_a_failure_appears_and_what_is_open_stays_open(site: Site, page: Page) -> None:
    await site.fail("a", "first")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group", has_text="first")
    await group.locator("summary").click()
    await group.get_by_label("Select job").check()
    await site.fail("b", "second")
    await expect(page.locator("#jobs .group", has_text="second")).to_have_count(1)
    await expect(group.locator("table")).to_be_visible()
    await expect(group.get_by_label("Select job")).to_be_checked()


async def test_timeouts_and_lost_runs_are_there_and_successes_are_not(site: Site, page: Page) -> None:
    await site.create("slow", runTimeout="1s", grace="1s", onLost="fail")
    await site.take("slow", heartbeat=True)
    job = await site.create("fine")
    good = await site.take("fine")
    await site.ask("FinishJob", jobID=job, runID=good["runID"])
    await site.ask("AdvanceClock", seconds=60)
    await site.open(page, "ui/failures")
    await expect(page.locator("#runs .group")).to_contain_text("timeout")
    await expect(page.locator("#runs .group")).to_have_count(1)


async def test_pages_and_the_filter_by_name(site: Site, page: Page) -> None:
    for number in range(101):
        await site.fail(f"n/{number}", "x")
    await site.open(page, "ui/failures")
    groups = page.locator("#jobs .group")
    await expect(groups).to_have_count(100)
    await expect(page.locator("#runs .group")).to_have_count(100)
    await page.get_by_role("link", name="Older runs").click()
    await expect(page.locator("#runs .group").first).to_contain_text("n/0")
    await awake(page)
    await page.keyboard.press("n")
    await expect(groups).to_have_count(1)
    await awake(page)
    await page.keyboard.press("/")
    await page.keyboard.type("n/1?")
    await page.keyboard.press("Enter")
    await expect(groups).to_have_count(10)
    await expect(page.locator("#runs .group")).to_have_count(10)
