"""The tabs of the list of jobs: the number of jobs in each state, and their details."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import jobs
from bedrockjobs.views import states
from tests.pages.looking import Site, check
from tests.pages.test_jobs import listed, select
from tests.pages.test_widths import OPENED

pytestmark = pytest.mark.asyncio(loop_scope="session")


JUST_NOW = r"\d+ sec\.? ago|now|in 1 sec\.?"
"""What stands for a moment that has just passed, by clocks of whole seconds."""


async def tabs(page: Page) -> dict[str, str]:
    """Return the tabs with their counts."""
    texts = await page.get_by_role("navigation", name="Jobs by state").get_by_role("link").all_inner_texts()
    return {text.rstrip("0123456789,+ "): text.rpartition(" ")[2] for text in texts}


async def row(page: Page, job: int) -> list[str]:
    """Return the cells of a job's row, behind its number."""
    cells = await page.locator(f"#job-{job} td").all_inner_texts()
    return [" ".join(cell.split()) for cell in cells[1:]]


async def heads(page: Page) -> list[str]:
    return [text for text in await page.locator("#jobs thead th").all_inner_texts() if text]


async def parent(site: Site) -> int:
    """Make a job that waits for two children, of which one is done."""
    job = await site.create("family")
    run = (await site.take("family"))["runID"]
    for _ in range(2):
        await site.create("child", parentJobID=job)
    await site.ask("FinishJob", jobID=job, runID=run)
    child = await site.take("child")
    await site.ask("FinishJob", jobID=child["jobID"], runID=child["runID"])
    return job


async def test_tabs_say_how_many_and_lead_to_them(site: Site, page: Page) -> None:
    waiting = await parent(site)
    failed = await site.fail("mail/1")
    await site.create("mail/2")
    await site.open(page, "ui/jobs?name=*")
    await page.get_by_role("link", name=re.compile("^Waiting")).click()
    await page.wait_for_url("**state=PAUSED**")
    assert await listed(page) == [waiting]
    current = page.get_by_role("navigation", name="Jobs by state").locator("[aria-current=page]")
    await expect(current).to_have_text("Waiting 1")
    assert await tabs(page) == {
        "All": "5",
        "Queued": "2",
        "Running": "0",
        "Waiting": "1",
        "Failed": "1",
        "Finished": "1",
        "Cancelled": "0",
    }
    await page.get_by_label("Name, such as").fill("mail/*")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.wait_for_url("**name=mail**")
    assert (await tabs(page))["All"] == "2"
    assert await listed(page) == []
    await page.get_by_role("link", name=re.compile("^Failed")).click()
    await page.wait_for_url("**state=FAILED**")
    assert await listed(page) == [failed]
    await site.open(page, "ui/jobs?text=x")
    assert (await tabs(page))["Queued"] == "Queued"
    await check(page)


async def test_counts_end_with_a_plus_and_are_live(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "JOBS_COUNTED_MAX", 2)
    for name in "ab":
        await site.create(name)
    await site.open(page, "ui/jobs")
    assert (await tabs(page))["Queued"] == "2"
    await site.create("c")
    await expect(page.get_by_role("link", name="Queued 2+")).to_be_visible()


async def test_a_queued_job_says_why_it_waits(site: Site, page: Page) -> None:
    ready = await site.create("report", jobPriority=850)
    later = await site.create("later", firstRun="2040-01-01 00:00:00")
    paused = await site.create("mail/1")
    await site.ask("PauseJobs", name="mail/*", by="ann", reason="x")
    await site.create("locking", lock="db")
    holder = (await site.take("locking"))["jobID"]
    locked = await site.create("locked", lock="db")
    by_hand = await site.create("hand", repeat="CRON @never")
    await site.open(page, "ui/jobs?state=QUEUED")
    assert await heads(page) == ["Job", "Standing", "Name", "Priority", "Due", "Waiting since", "Attempt"]
    assert await listed(page) == [by_hand, locked, paused, later, ready]
    assert (await row(page, ready))[:3] == ["ready no worker takes it", "report", "850"]
    assert re.fullmatch(JUST_NOW, (await row(page, ready))[4])
    assert (await row(page, later))[0] == "later"
    assert (await row(page, later))[4] == "\N{EN DASH}"
    assert "2040" in (await row(page, later))[3]
    assert re.match(r"paused mail/\* has been paused by ann since \d", (await row(page, paused))[0])
    assert (await row(page, locked))[0] == f"blocked job {holder} holds its lock"
    assert (await row(page, by_hand))[3] == "only by hand"
    await check(page)


async def test_a_running_job_says_who_runs_it_and_how_far_it_is(site: Site, page: Page) -> None:
    job = await site.create("mail")
    run = (await site.take("mail", worker="eu-1"))["runID"]
    await site.ask("UpdateJob", jobID=job, runID=run, progress={"percent": 40, "message": "2 of 5"})
    plain = await site.create("plain", retryAfter="+1 HOUR")
    await site.ask("GetJob", name="plain")
    await site.create("other")
    await site.open(page, "ui/jobs?state=RUNNING")
    assert await heads(page) == ["Job", "Name", "Worker", "Since", "Progress", "Attempt", "Run"]
    assert await listed(page) == [plain, job]
    name, worker, _, progress, *_ = await row(page, job)
    assert (name, worker, progress.removeprefix("40 % ")) == ("mail", "eu-1", "2 of 5")
    assert (await row(page, plain))[1] == "gave no name"
    await select(page, job)
    bar = page.get_by_role("group", name="Actions on the selected jobs")
    assert await bar.get_by_role("button").all_inner_texts() == ["Cancel"]
    await check(page)
    await page.locator(f"#job-{job}").get_by_role("link", name=str(run), exact=True).last.click()
    await page.wait_for_url(f"**/ui/runs/{run}")


async def test_a_waiting_job_says_how_far_its_children_are(site: Site, page: Page) -> None:
    job = await parent(site)
    await site.open(page, "ui/jobs?state=PAUSED")
    assert (await row(page, job))[1] == "2 children: 1 done, 1 waiting"
    await expect(page.get_by_role("img", name=f"Children of job {job}")).to_be_visible()
    running = await site.create("above")
    await site.take("above")
    child = await site.create("below", parentJobID=running)
    await site.open(page, "ui/jobs?state=PAUSED")
    assert (await row(page, child))[1] == f"for its parent, job {running}"
    await check(page)


async def test_a_failed_job_says_why(site: Site, page: Page) -> None:
    job = await site.fail("mail", "exit status 1\nconnecting\nno route to host")
    await site.open(page, "ui/jobs?state=FAILED")
    assert await heads(page) == ["Job", "Name", "Failed", "Why", "Attempt", "Run"]
    name, when, why, attempt, run = await row(page, job)
    assert (name, why, attempt, run) == ("mail", "no route to host", "1", "1")
    assert re.fullmatch(JUST_NOW, when)
    await check(page)


async def test_finished_jobs_are_children_and_what_is_kept(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ROWS", 2)
    await parent(site)
    for number in range(3):
        job = await site.create(f"mail/{number}", keep="1d")
        run = (await site.take(f"mail/{number}"))["runID"]
        await site.ask("FinishJob", jobID=job, runID=run)
    await site.open(page, "ui/jobs?state=FINISHED")
    assert (await tabs(page))["Finished"] == "4"
    await expect(page.locator("#jobs tr[id^=job-]")).to_have_count(1)
    kept = page.get_by_role("region", name="Jobs that are kept").locator("tbody tr")
    assert [" ".join(text.split())[:8] for text in await kept.all_inner_texts()] == ["6 mail/2", "5 mail/1"]
    await check(page)
    await page.get_by_role("link", name="Older »").click()
    await page.wait_for_url("**keptBefore=**")
    assert [" ".join(text.split())[:8] for text in await kept.all_inner_texts()] == ["4 mail/0"]


async def test_without_the_setting_it_is_said_how_jobs_are_kept(site: Site, page: Page) -> None:
    await site.open(page, "ui/jobs?state=FINISHED")
    await expect(page.locator("#jobs")).to_contain_text("bedrockjobs serve --keep-finished 7d")
    await check(page)


@pytest.mark.parametrize("widths", OPENED)
async def test_no_tab_is_wider_than_its_window(site: Site, page: Page, widths: tuple[int, ...]) -> None:
    await parent(site)
    await site.fail("f" * 200, "e" * 500)
    job = await site.create("r" * 200)
    run = (await site.take("r*", worker="w" * 200))["runID"]
    await site.ask("UpdateJob", jobID=job, runID=run, progress={"percent": 4, "message": "m" * 400})
    await site.create("q" * 200)
    await site.ask("PauseJobs", name="q*", by="b" * 200, reason="x")
    for state, *_ in jobs.TABS:
        await page.set_viewport_size({"width": widths[0], "height": 900})
        await site.open(page, f"ui/jobs?state={state}")
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 900})
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, state
