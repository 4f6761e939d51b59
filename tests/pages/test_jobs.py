"""The list of jobs: filters that the address holds, pages by cursor, and every action on a selection."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import jobs
from bedrockjobs.views import find
from tests.effort import examples
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def listed(page: Page) -> list[int]:
    return [int(text) for text in await page.locator("#jobs tbody th").all_inner_texts()]


async def act(page: Page, label: str, *, question: str, rows: list[str] | None = None) -> None:
    """Press a button, and say yes to what it asks, with the names of what it asks about."""
    await page.get_by_role("button", name=label, exact=True).click()
    asked = page.locator("#confirm-which")
    await expect(asked).to_have_text(re.compile(f"^{re.escape(question).replace('NAMED', '[a-z]+')}$"))
    if rows is not None:
        assert await page.locator("#confirm-list li").all_inner_texts() == rows
    await page.locator("#confirm-yes").click()


async def select(page: Page, *job_ids: int) -> None:
    for job in job_ids:
        await page.locator(f"#select-{job}").check()


async def test_it_lists_the_newest_first_for_everybody(site: Site, page: Page) -> None:
    for number in range(3):
        await site.create(f"mail/{number}")
    failed = await site.fail("report")
    await site.open(page, "ui/jobs")
    assert await listed(page) == [4, 3, 2, 1]
    row = page.locator(f"#job-{failed}")
    assert "failed" in await row.inner_text()
    assert await row.locator(".shape.cross").count() == 1
    await check(page)


async def test_an_empty_list_says_so(site: Site, page: Page) -> None:
    await site.open(page, "ui/jobs?state=FAILED")
    assert "No job has failed." in await page.locator("#jobs").inner_text()
    await check(page)


async def test_a_job_for_hands_alone_is_not_due_in_7000_years(site: Site, page: Page) -> None:
    job = await site.create("by/hand", repeat="CRON @never")
    parent = await site.create("parent")
    run = (await site.take("parent"))["runID"]
    child = await site.create("child", parentJobID=parent, firstRun="9999-12-31 23:59:59")
    await site.ask("FinishJob", jobID=parent, runID=run)
    for path in ("ui/jobs", f"ui/jobs/{parent}", f"ui/jobs/{child}", "ui/schedules", f"ui/jobs/{job}"):
        await site.open(page, path)
        text = await page.locator("main").inner_text()
        assert "only by hand" in text, path
        assert "9999" not in text, path
    await expect(page.locator("#job p").first).to_contain_text("no tick: it never fires by itself")


async def test_filters_are_in_the_address(site: Site, page: Page) -> None:
    await site.create("mail/1", data={"to": "ann"})
    await site.create("mail/2", data={"to": "bob"})
    await site.create("report")
    failed = await site.fail("mail/3")
    await site.open(page, "ui/jobs")
    await page.get_by_label("Name, such as").fill("mail/*")
    await page.get_by_label("Name, such as").press("Enter")
    await page.wait_for_url("**name=mail**")
    assert await listed(page) == [4, 2, 1]
    await page.get_by_role("link", name=re.compile("^Failed")).click()
    await page.wait_for_url("**state=FAILED**")
    assert await listed(page) == [failed]
    await page.go_back()
    await page.get_by_label("Text in data").fill("bob")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.wait_for_url("**text=bob**")
    assert await listed(page) == [2]
    await page.reload()
    assert await listed(page) == [2]
    assert await page.get_by_label("Name, such as").input_value() == "mail/*"
    await page.get_by_role("link", name="Show all").click()
    await page.wait_for_url("**/ui/jobs")
    assert len(await listed(page)) == 4


async def test_a_time_is_typed_as_local_and_kept_as_utc(site: Site, page: Page) -> None:
    await site.create("soon", firstRun="2031-01-01 10:00:00")
    await site.create("later", firstRun="2031-01-01 12:00:00")
    await site.open(page, "ui/jobs")
    offset = await page.evaluate("-new Date('2031-01-01T11:00:00Z').getTimezoneOffset()")
    typed = datetime(2031, 1, 1, 11, 0, 30, tzinfo=UTC) + timedelta(minutes=offset)
    await page.get_by_label("Which time").select_option("next run")
    await page.get_by_label("from, ").fill(typed.strftime("%Y-%m-%dT%H:%M:%S"))
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.wait_for_url("**time=next&from=2031-01-01T11%3A00%3A30Z")
    assert await listed(page) == [2]
    assert await page.get_by_label("from, ").input_value() == typed.strftime("%Y-%m-%dT%H:%M:%S")
    await site.open(page, "ui/jobs?time=next&to=2031-01-01T11:00:01%2B01:00")
    assert await listed(page) == [1]
    await check(page)


async def test_names_are_completed(site: Site, page: Page) -> None:
    for name in ("mail/ann", "mail/bob", "report", "mail/ann"):
        await site.create(name)
    await site.open(page, "ui/jobs")
    await page.get_by_label("Name, such as").press_sequentially("mail")
    options = page.locator("#names option")
    await expect(options).to_have_count(2)
    assert [await option.get_attribute("value") for option in await options.all()] == ["mail/ann", "mail/bob"]


async def test_pages_go_on_where_the_last_ended(site: Site, page: Page) -> None:
    count = jobs.ROWS + 3
    await site.ask("CreateJobs", jobs=[{"name": "a"} for _ in range(count)])
    await site.open(page, "ui/jobs?name=a")
    assert await listed(page) == list(range(count, 3, -1))
    await page.keyboard.press("n")
    await page.wait_for_url("**before=4**")
    assert await listed(page) == [3, 2, 1]
    assert "End of the list" in await page.locator(".pager").inner_text()
    await page.keyboard.press("p")
    await page.wait_for_url("**/ui/jobs?name=a")


async def test_a_long_search_says_how_far_it_got(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "STRETCH_MIN", 5)
    monkeypatch.setattr(find.Finder.jobs, "__kwdefaults__", {**_DEFAULTS, "within_s": 0.0})
    await site.create("a", data={"to": "ann"})
    await site.ask("CreateJobs", jobs=[{"name": "a"} for _ in range(8)])
    await site.open(page, "ui/jobs?text=ann")
    assert "time limit at job 5" in await page.locator("#reached").inner_text()
    assert "None so far." in await page.locator("#jobs").inner_text()
    await check(page)
    await page.get_by_role("link", name="Next page").click()
    await page.wait_for_url("**before=5**")
    assert await listed(page) == [1]


_DEFAULTS = dict(find.Finder.jobs.__kwdefaults__ or {})


async def test_the_list_is_live_and_keeps_the_selection(site: Site, page: Page) -> None:
    first = await site.create("a")
    await site.open(page, "ui/jobs")
    await select(page, first)
    second = await site.create("b")
    await page.locator(f"#job-{second}").wait_for()
    assert await page.locator(f"#select-{first}").is_checked()
    assert await page.locator("#selected").inner_text() == "1 selected"
    await site.take("a")
    await expect(page.locator(f"#job-{first}")).to_contain_text("running")
    await site.ask("FinishJob", jobID=first)
    await page.locator(f"#job-{first}").wait_for(state="detached")


async def test_rows_are_walked_and_chosen_by_keys(site: Site, page: Page) -> None:
    for _ in range(3):
        await site.create("a")
    await site.open(page, "ui/jobs")
    for key in ("j", "j", "x", "j", "k", "k", "x"):
        await page.keyboard.press(key)
    assert await page.locator("#select-2").is_checked()
    assert await page.locator("#select-3").is_checked()
    assert not await page.locator("#select-1").is_checked()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/jobs/3")


# --- actions ---------------------------------------------------------------------------------------------


async def test_retry(site: Site, page: Page) -> None:
    failed = [await site.fail(name) for name in ("a", "b")]
    other = await site.fail("c")
    await site.open(page, "ui/jobs?state=FAILED")
    await select(page, *failed)
    await act(page, "Retry", question="Queue 2 jobs again?", rows=[f"{failed[1]} b", f"{failed[0]} a"])
    await expect(page.locator("#news")).to_contain_text("Retried: 2 jobs")
    assert [await site.state(job) for job in (*failed, other)] == ["QUEUED", "QUEUED", "FAILED"]
    await page.locator(f"#job-{failed[0]}").wait_for(state="detached")


async def test_cancelling_the_question_changes_nothing(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, "ui/jobs")
    await select(page, job)
    await page.get_by_role("button", name="Delete", exact=True).click()
    assert await page.evaluate("document.activeElement.id") == "confirm-no"
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_focused()
    assert await site.state(job) == "QUEUED"


async def test_delete(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, "ui/jobs")
    await select(page, job)
    await act(page, "Delete", question=f"Delete job {job} (NAMED)? This cannot be undone.")
    await expect(page.locator("#news")).to_have_text(f"Deleted: job {job}.")
    assert await site.state(job) == "gone"


async def test_run_now(site: Site, page: Page) -> None:
    job = await site.create("a", firstRun="2040-01-01 00:00:00")
    await site.open(page, "ui/jobs")
    await expect(page.locator(f"#job-{job}")).to_contain_text("later")
    await select(page, job)
    await act(page, "Run now", question=f"Run job {job} (NAMED) now?")
    await expect(page.locator("#news")).to_have_text(f"Due now: job {job}.")
    assert (await site.take("a"))["jobID"] == job


async def test_reschedule_takes_local_time(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, "ui/jobs")
    await select(page, job)
    await page.get_by_label("Next run").fill("2031-05-06T12:38:09")
    await act(page, "Reschedule", question=f"Set the next run of job {job} (NAMED)?")
    await expect(page.locator("#news")).to_have_text(f"Rescheduled: job {job}.")
    answer = await site.ask("QueryJob", jobID=job)
    assert datetime.fromisoformat(answer["nextRun"]).replace(tzinfo=UTC) == datetime(
        2031, 5, 6, 7, 8, 9, tzinfo=UTC
    )


async def test_priority(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, "ui/jobs")
    await select(page, job)
    await page.get_by_label("Priority").select_option("1000")
    await act(page, "Set priority", question=f"Change the priority of job {job} (NAMED)?")
    await expect(page.locator(f"#job-{job} .amount").first).to_have_text("1000")


async def test_cancel(site: Site, page: Page) -> None:
    parent = await site.create("parent")
    await site.take("parent")
    child = await site.create("child", parentJobID=parent)
    await site.ask("FinishJob", jobID=parent)
    await site.open(page, "ui/jobs")
    await select(page, child)
    await act(
        page,
        "Cancel",
        question=f"Cancel job {child} (NAMED)? Runs are stopped, and children are cancelled too; jobs that"
        " repeat stay.",
    )
    await expect(page.locator("#news")).to_have_text(f"Asked to cancel: job {child}.")
    assert await site.state(child) == "CANCELLED"


async def test_a_refusal_is_told_and_the_rest_is_done(site: Site, page: Page) -> None:
    running, queued = await site.create("a"), await site.create("b")
    await site.take("a")
    site.expected = {409}
    await site.open(page, "ui/jobs")
    await page.get_by_label("Select all on this page").check()
    assert await page.locator("#selected").inner_text() == "2 selected"
    await act(
        page, "Delete", question="Delete 2 jobs? This cannot be undone.", rows=[f"{queued} b", f"{running} a"]
    )
    news = page.locator("#news.bad")
    await expect(news).to_contain_text("1 of 2 done.")
    await expect(news).to_contain_text(f"job {running}: ")
    assert [await site.state(job) for job in (running, queued)] == ["RUNNING", "gone"]
    await check(page)


async def test_actions_come_with_a_selection(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, "ui/jobs")
    bar = page.get_by_role("group", name="Actions on the selected jobs")
    await expect(bar).to_be_hidden()
    await select(page, job)
    await expect(bar).to_be_visible()
    await page.locator(f"#select-{job}").uncheck()
    await expect(bar).to_be_hidden()


async def test_all_that_match_are_limited_to_the_filter(site: Site, page: Page) -> None:
    count = jobs.ROWS + 10
    await site.ask("CreateJobs", jobs=[{"name": "mail"} for _ in range(count)])
    other = await site.create("report")
    await site.open(page, "ui/jobs?name=mail")
    await page.locator("#jobs tbody input").first.check()
    await page.get_by_label("all that match").check()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.locator("#confirm-which")).to_contain_text(f"Delete {count} jobs?")
    rows = await page.locator("#confirm-list li").all_inner_texts()
    assert (rows[0], rows[-1]) == ("60 mail", f"and {count - 10} more")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_contain_text(f"Deleted: {count} jobs")
    answer = await site.ask("ListJobs")
    assert [job["jobID"] for job in answer["jobs"]] == [other]
    assert not await page.get_by_label("all that match").is_checked()


@pytest.mark.parametrize("count", [4, 5, 3][: examples(2, night=3)])
async def test_all_that_match_are_acted_on_slice_by_slice(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(jobs, "MATCHING_SLICE", 2)
    await asyncio.gather(*(site.create("a") for _ in range(count)))
    other = await site.create("b")
    await site.open(page, "ui/jobs?name=a")
    await page.locator("#jobs tbody input").first.check()
    await page.get_by_label("all that match").check()
    await act(page, "Delete", question="Delete 2 jobs and all others that match? This cannot be undone.")
    await expect(page.locator("#news")).to_have_text(f"Deleted: {count} jobs.")
    await expect(page.locator("#jobs")).to_contain_text("No job matches")
    assert [job["jobID"] for job in (await site.ask("ListJobs"))["jobs"]] == [other]


async def test_refusals_of_all_slices_are_counted_and_the_first_told(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state keeps a job that runs from being deleted: the others of the same and of later slices are."""
    monkeypatch.setattr(jobs, "MATCHING_SLICE", 2)
    kept = await site.create("a")
    await site.take("a")
    await asyncio.gather(*(site.create("a") for _ in range(4)))
    site.expected = {409}
    await site.open(page, "ui/jobs")
    await page.locator("#jobs tbody input").first.check()
    await page.get_by_label("all that match").check()
    await act(page, "Delete", question="Delete 2 jobs and all others that match? This cannot be undone.")
    await expect(page.locator("#news")).to_contain_text(f"4 of 5 done. job {kept}: ")
    assert [job["jobID"] for job in (await site.ask("ListJobs"))["jobs"]] == [kept]


async def test_a_search_without_a_match_in_its_time_goes_on(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "STRETCH_MIN", 1)
    monkeypatch.setattr(jobs, "MATCHING_S", 0)
    old = await site.create("a", data={"to": "ann"})
    await asyncio.gather(*(site.create("a") for _ in range(3)))
    await site.open(page, "ui/jobs")
    await page.locator("#jobs tbody input").first.check()
    await page.locator("#matching").evaluate("box => { box.dataset.matching += '?text=ann'; }")
    await page.get_by_label("all that match").check()
    await act(
        page, "Delete", question=f"Delete job {old} (a) and all others that match? This cannot be undone."
    )
    await expect(page.locator("#news")).to_have_text("Deleted: 1 job.")
