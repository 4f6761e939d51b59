"""The page of failures: grouped by name and first line, opened, retried, page by page."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from bedrockjobs.base.errors import line_of
from bedrockjobs.pages import tables
from bedrockjobs.views.failures import GROUPS_SHOWN, LISTED_MAX, LISTED_OF_GROUP
from tests.pages.conftest import StartSite
from tests.pages.looking import Site, check
from tests.pages.test_schedules import awake

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def site(start_site: StartSite) -> Site:
    """Return a server whose clock a test moves."""
    return await start_site(test_clock=True)


async def fail_and_revive(site: Site, name: str, error: str) -> int:
    """Let a job fail that somebody revives, so that its run stands alone; return the jobID."""
    job = await site.fail(name, error)
    await site.ask("RetryJob", jobID=job, revive=True)
    return job


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
    await expect(page.locator("#runs .problem.well")).to_contain_text("No other run has failed.")
    await site.ask("RetryJob", jobID=last, revive=True)
    await expect(page.locator("#runs .group")).to_have_count(1)
    await page.locator("#runs summary").first.click()
    await check(page)
    await page.locator("#runs .group").first.get_by_role("link").click()
    await expect(page.locator("h1")).to_contain_text("Run 4 of mail/send")


async def test_each_group_has_a_sparkline_of_its_last_24_hours(site: Site, page: Page) -> None:
    """Of its failed runs: a job whose client has no name has none."""
    for count in (3, 1):
        for number in range(count):
            await site.fail("mail/send", f"SMTP 550: no mailbox {number}")
        await site.ask("AdvanceClock", seconds=6_000)
    unnamed = await site.create("unnamed")
    await site.ask("GetJob", name="unnamed")
    await site.ask("FailJob", jobID=unnamed, error="no disk")
    await site.open(page, "ui/failures")
    spark = page.locator("#jobs .group", has_text="no mailbox").get_by_role("img")
    words = "Failed runs: 4 in 24 h, most 3 to 4 h ago: 3"
    await expect(spark).to_have_accessible_name(words)
    await spark.hover()
    await expect(page.locator(".tip")).to_have_text(words)
    await expect(page.locator("#jobs .group", has_text="no disk").get_by_role("img")).to_have_count(0)
    await check(page)
    await site.ask("AdvanceClock", seconds=86_400)
    await site.open(page, "ui/failures")
    await expect(page.locator("#jobs .group")).to_have_count(2)
    await expect(page.locator("#jobs .group").get_by_role("img")).to_have_count(0)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("exit status 3\ncopying\nno space left on device\n", "no space left on device"),
        ("SIGKILL\nhalf of it", "half of it"),
        ("exit status 3", "exit status 3"),
        ("SMTP 550: no mailbox\nat line 3", "SMTP 550: no mailbox"),
        ("", ""),
        ("Traceback (most recent call last):\n  f()\nValueError: a\nb", "ValueError: a"),
        ("exit status 1\nTraceback (most recent call last):\n  f()\nKeyError: 1\nbye", "KeyError: 1"),
        ("ValueError: a\nTraceback (most recent call last):\n  f()\nValueError: a", "ValueError: a"),
        (
            "  + Exception Group Traceback (most recent call last):\n  |   f()\n"
            "  | ExceptionGroup: x (1 sub)\n  +-+-------- 1 --------\n    | ValueError: a\n    +-----",
            "ExceptionGroup: x (1 sub)",
        ),
    ],
)
async def test_failures_are_alike_by_the_line_that_says_what_was_wrong(error: str, line: str) -> None:
    assert line_of(error) == line


async def test_a_groups_jobs_are_retried_and_leave_the_list(site: Site, page: Page) -> None:
    jobs = [await site.fail("a", "same") for _ in range(3)]
    other = await site.fail("b", "another")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group", has_text="3 jobs")
    await group.locator("summary").focus()
    await page.keyboard.press("Enter")
    await group.get_by_label("all").check()
    await group.get_by_label(f"Select job {jobs[0]}").uncheck()
    await expect(group.locator("[data-count]")).to_have_text("2 selected")
    await site.create("something else")
    await page.keyboard.press("r")
    await group.get_by_role("button", name="Retry", exact=True).click()
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
        "Mark 2 jobs of mail/send as seen? They reappear if they fail again."
    )
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_have_text("Marked as seen: 2 jobs of mail/send.")
    await expect(group).to_have_count(0)
    folded = page.locator("#seen-jobs")
    await expect(folded.locator("> summary")).to_have_text("1 group of jobs that were marked as seen")
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
    await fail_and_revive(site, "a", "first")
    run = (await site.ask("ListRuns"))["runs"][0]["runID"]
    await site.ask("MarkSeen", runIDs=[run], by="ann")
    await site.open(page, "ui/failures")
    await expect(page.locator("#runs .problem.well")).to_contain_text(
        "No run has failed except those marked as seen."
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
    slow = await site.create("slow", runTimeout="1s", grace="1s", onLost="fail")
    await site.take("slow", heartbeat=True)
    job = await site.create("fine")
    good = await site.take("fine")
    await site.ask("FinishJob", jobID=job, runID=good["runID"])
    await site.ask("AdvanceClock", seconds=60)
    await site.ask("RetryJob", jobID=slow, revive=True)
    await site.open(page, "ui/failures")
    await expect(page.locator("#runs .group")).to_contain_text("timeout")
    await expect(page.locator("#runs .group")).to_have_count(1)


async def test_pages_and_the_filter_by_name(site: Site, page: Page) -> None:
    words = [f"{first}{second} broke" for first in "abcdef" for second in "ghijklmno"]
    for word in words:
        await site.fail(f"n/{word[:2]}", word)
    await site.open(page, "ui/failures")
    groups = page.locator("#jobs .group")
    await expect(groups).to_have_count(GROUPS_SHOWN)
    await awake(page)
    await page.keyboard.press("n")
    await expect(groups).to_have_count(len(words) - GROUPS_SHOWN)
    await expect(groups.last).to_contain_text(words[0])
    await awake(page)
    await page.keyboard.press("/")
    await page.keyboard.type("n/a?")
    await page.keyboard.press("Enter")
    await expect(groups).to_have_count(9)


TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 7, in charge
    raise LookupError(number)
LookupError: order {number} is not there"""


async def test_a_group_tells_its_true_total_and_leads_to_all_of_it(site: Site, page: Page) -> None:
    for number in range(105):
        await site.fail(f"order/{number % 2}", TRACEBACK.format(number=number))
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group")
    await expect(group.locator("summary")).to_contain_text("LookupError: order 104 is not there")
    await expect(group.locator("summary")).to_contain_text("105 jobs")
    await expect(group.locator("summary")).to_contain_text("and 1 more name")
    await group.locator("summary").click()
    await expect(group.locator("tbody tr")).to_have_count(LISTED_OF_GROUP)
    await group.get_by_role("link", name="All 105 jobs").click()
    await expect(group.locator("tbody tr")).to_have_count(100)
    await awake(page)
    await page.keyboard.press("n")
    await expect(group.locator("tbody tr")).to_have_count(5)
    await group.locator("summary").click()
    await group.get_by_role("button", name="Mark as seen").click()
    await expect(page.locator("#confirm-which")).to_contain_text("Mark 105 jobs of 2 names as seen?")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_have_text("Marked as seen: 105 jobs of 2 names.")
    assert [one["unseen"] for one in (await site.ask("ListFailures"))["jobs"]] == [0]


async def test_all_failures_of_a_group_are_acted_on_slice_by_slice(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MATCHING_SLICE", 2)
    for number in range(5):
        job = await site.fail("mail/send", f"no mailbox {number}")
        await site.ask("RetryJob", jobID=job, revive=True)
        await site.ask("DeleteJob", jobID=job)
    for number in range(3):
        await site.fail("mail/send", f"no mailbox {number}")
    await site.open(page, "ui/failures")
    for what, count in (("run", 5), ("job", 3)):
        group = page.locator(f"#{what}s > .group", has_text="no mailbox")
        await group.locator("summary").click()
        await group.get_by_role("button", name="Mark as seen").click()
        await expect(page.locator("#confirm-which")).to_contain_text(f"{count} {what}s of mail/send")
        await page.locator("#confirm-yes").click()
        await expect(page.locator("#news")).to_have_text(f"Marked as seen: {count} {what}s of mail/send.")
        await expect(group).to_have_count(0)
    failed = await site.ask("ListFailures")
    assert [(one["count"], one["unseen"]) for one in failed["jobs"] + failed["runs"]] == [(3, 0), (5, 0)]


async def test_many_groups_list_few_failures_each_and_lead_to_all(site: Site, page: Page) -> None:
    words = [f"{first}{second} broke" for first in "abcdef" for second in "ghijkl"]
    for _ in range(3):
        for word in words:
            await site.fail("n", word)
    await site.open(page, "ui/failures")
    groups = page.locator("#jobs .group")
    await expect(groups).to_have_count(len(words))
    each = LISTED_MAX // len(words)
    await expect(page.locator("#jobs tbody tr")).to_have_count(each * len(words))
    await groups.first.locator("summary").click()
    await expect(groups.first.locator("summary")).to_contain_text("3 jobs")
    await groups.first.get_by_role("link", name="All 3 jobs").click()
    await expect(page.locator("#jobs tbody tr")).to_have_count(3)
    assert all(len(group["failures"]) == 3 for group in (await site.ask("ListFailures"))["jobs"])


async def test_errors_of_several_lines_stand_as_they_were_written(site: Site, page: Page) -> None:
    """On the pages of a failure, of its job and its run; in lists the line of the exception stands alone."""
    library = '  File "/srv/venv/lib/python3.11/site-packages/pay.py", line 9, in take\n    check()\n'
    error = TRACEBACK.format(number=7).replace("LookupError:", f"{library}LookupError:")
    job = await site.fail("order", error)
    run = (await site.ask("ListRuns"))["runs"][0]["runID"]
    for path, place in (
        (f"ui/jobs/{job}", "div.problem pre"),
        (f"ui/runs/{run}", "dd pre"),
        ("ui/failures", "td.error"),
    ):
        await site.open(page, path)
        found = page.locator(place).first
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            assert error.rstrip() in str(await found.text_content()), (path, place)
            spaces = await found.evaluate("each => getComputedStyle(each).whiteSpace")
            assert spaces in ("pre", "pre-wrap"), (path, width, spaces)
            if place.endswith("pre"):
                await expect(found.get_by_text("site-packages")).to_be_hidden()
                frames = page.get_by_role("button", name="Frames of libraries").first
                await frames.click()
                await expect(found.get_by_text("site-packages")).to_be_visible()
                await frames.click()
    for path in ("ui/runs", "ui/jobs?state=FAILED", "ui/events"):
        await site.open(page, path)
        await expect(page.locator("main")).to_contain_text("LookupError: order 7 is not there")
        await expect(page.locator("main")).not_to_contain_text("Traceback")


async def test_all_jobs_of_a_group_are_retried_or_deleted_at_once(site: Site, page: Page) -> None:
    alike = [await site.fail("mail/send", f"SMTP 550: no mailbox {n}") for n in range(LISTED_OF_GROUP + 5)]
    other = await site.fail("mail/send", "no disk")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group", has_text="no mailbox")
    await expect(group.locator("summary .badge").nth(1)).to_contain_text("new")
    await group.locator("summary").click()
    await group.get_by_role("button", name=f"Retry all {len(alike)}", exact=True).click()
    await expect(page.locator("#confirm-which")).to_contain_text(str(len(alike)))
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#jobs .group")).to_have_count(1)
    states = {job: (await site.ask("QueryJob", jobID=job))["state"] for job in [*alike, other]}
    assert states == {**dict.fromkeys(alike, "QUEUED"), other: "FAILED"}
    await page.locator("#jobs .group summary").click()
    await page.get_by_role("button", name="Delete all", exact=True).click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#jobs")).to_contain_text("No job has failed")
    assert (await site.ask("ListFailures"))["jobs"] == []


async def test_a_group_is_muted_with_a_reason_and_unmuted(site: Site, page: Page) -> None:
    await site.fail("mail/send", "no disk")
    await site.open(page, "ui/failures")
    group = page.locator("#jobs .group", has_text="no disk")
    await group.locator("summary").click()
    await group.get_by_role("button", name="Mute…").click()
    await page.get_by_role("dialog").get_by_label("Reason").fill("the disk is ordered")
    await page.get_by_role("dialog").get_by_role("button", name="Mute", exact=True).click()
    await page.locator("#confirm-yes").click()
    folded = page.locator("#seen-jobs")
    await folded.locator("summary").first.click()
    await expect(folded).to_contain_text("muted until a new release: the disk is ordered")
    await site.fail("mail/send", "no disk")
    await expect(folded).to_contain_text("2 jobs")
    await check(page)
    await folded.get_by_role("button", name="Unmute").click()
    await page.locator("#confirm-yes").click()
    await expect(folded).not_to_contain_text("muted until")
