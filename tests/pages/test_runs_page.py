"""The page of runs: filtered by name, status, worker, time and last output, and run again."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages import runs
from bedrockjobs.pages.runs import last_message
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fill(site: Site) -> None:
    """Let one run fail, one end well, and one go on."""
    job = await site.create("mail/a", data={"to": "ann"})
    run = (await site.take("mail/a", heartbeat=True))["runID"]
    await site.ask("AppendOutput", runID=run, seq=1, lines=["dialling", 'no "route" to host', ""])
    await site.ask("FailJob", jobID=job, runID=run, error="", exitCode=3)
    job = await site.create("report/day")
    run = (await site.take("report/*", worker="eu-1"))["runID"]
    await site.ask("FinishJob", jobID=job, runID=run)
    await site.create("mail/b")
    await site.take("mail/b")


FOUND = {
    "": ["mail/b", "report/day", "mail/a"],
    "?status=failed": ["mail/a"],
    "?status=running": ["mail/b"],
    "?worker=eu-*": ["report/day"],
    "?name=mail/*": ["mail/b", "mail/a"],
    "?name=report/day": ["report/day"],
    "?text=no+%22route%22": ["mail/a"],
    "?from=2099-01-01T00:00:00Z": [],
    "?to=2020-01-01T00:00:00Z": [],
}


async def test_runs_are_found(site: Site, page: Page) -> None:
    await fill(site)
    found = {}
    for query in FOUND:
        await page.goto(f"{site.root}/ui/runs{query}")
        found[query] = await page.locator("#runs td.name").all_inner_texts()
    assert found == FOUND


async def test_a_run_is_run_again(site: Site, page: Page) -> None:
    await fill(site)
    await site.open(page, "ui/runs?status=failed")
    row = page.locator("#runs tbody tr")
    await expect(row.locator(".said-last")).to_have_text('no "route" to host')
    await expect(row.locator(".badge")).to_contain_text("fail exit 3")
    bar = page.locator("[data-bulk]")
    await expect(bar).to_be_hidden()
    await check(page)
    await row.get_by_role("checkbox").check()
    await expect(bar).to_be_visible()
    await bar.get_by_role("button", name="Run again").click()
    await expect(page.locator("#confirm-which")).to_have_text("Run run 1 (mail/a) again?")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_contain_text("Run again: run 1")
    jobs = (await site.ask("ListJobs", name="mail/a"))["jobs"]
    assert [(job["state"], job["data"]) for job in jobs if job["state"] == "QUEUED"] == [
        ("QUEUED", {"to": "ann"})
    ]


async def test_selected_runs_are_deleted(site: Site, page: Page) -> None:
    await fill(site)
    kept = [run["runID"] for run in (await site.ask("ListRuns"))["runs"] if run["runID"] != 1]
    await site.open(page, "ui/runs?status=failed")
    await page.locator("#runs tbody tr").get_by_role("checkbox").check()
    await page.locator("[data-bulk]").get_by_role("button", name="Delete").click()
    await expect(page.locator("#confirm-which")).to_contain_text("Delete run 1 (mail/a) with their data")
    await page.locator("#confirm-yes").click()
    await expect(page.locator("#news")).to_contain_text("Deleted: run 1")
    assert [run["runID"] for run in (await site.ask("ListRuns"))["runs"]] == kept


async def test_all_that_match_are_run_again_and_deleted_slice_by_slice(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MATCHING_SLICE", 2)
    for number in range(5):
        await site.fail(f"mail/{number}", "no host")
    await fill(site)
    await site.open(page, "ui/runs?text=no+host")
    bar = page.locator("[data-bulk]")
    for label, question, news, verb in (
        ("Run again", "Run 2 runs and all others that match again?", "Run again: 5 runs.", "QUEUED"),
        ("Delete", "Delete 2 runs and all others that match with their data", "Deleted: 5 runs.", ""),
    ):
        await page.locator("#runs tbody tr").first.get_by_role("checkbox").check()
        await page.get_by_label("all that match").check()
        await bar.get_by_role("button", name=label).click()
        await expect(page.locator("#confirm-which")).to_contain_text(question)
        await page.locator("#confirm-yes").click()
        await expect(page.locator("#news")).to_have_text(news)
        if verb:
            queued = (await site.ask("ListJobs", state=verb))["jobs"]
            assert {job["name"] for job in queued} == {f"mail/{number}" for number in range(5)}
    left = (await site.ask("ListRuns"))["runs"]
    assert {run["name"] for run in left} == {"mail/a", "mail/b", "report/day"}


async def test_pages_follow_each_other(site: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "ROWS", 2)
    await fill(site)
    await site.open(page, "ui/runs")
    assert await page.locator("#runs td.name").count() == 2
    await page.locator("a[rel=next]").click()
    await expect(page.locator("#runs td.name")).to_have_text(["mail/a"])
    await page.locator("a[rel=first]").click()
    await expect(page.locator("#runs td.name")).to_have_count(2)


async def test_what_cannot_be_asked_is_refused_and_an_empty_page_teaches(site: Site, page: Page) -> None:
    site.expected = {400}
    await page.goto(f"{site.root}/ui/runs?status=tired")
    await expect(page.locator(".problem")).to_contain_text("status: expected failed or one of running,")
    await site.open(page, "ui/runs")
    await expect(page.locator("#runs tbody code")).to_contain_text("bedrock-worker")


async def test_last_words_are_short() -> None:
    assert last_message("first\nsecond", "[]") == "first"
    assert last_message("exit status 1\ncopying\nno space left on device", "[]") == "no space left on device"
    assert last_message("", '["a", "\\u001b[31mred\\u001b[0m", "  "]') == "red"
    assert last_message("", "[]") == ""
    assert len(last_message("x" * 999, "[]")) == 201
