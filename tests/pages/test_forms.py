"""The forms: create, copy and change jobs and schedules; errors appear next to their fields."""

from __future__ import annotations

import json
import re

import aiohttp
import pytest
from playwright.async_api import Page, Route, expect

from bedrockjobs.base.clock import moment_of
from bedrockjobs.pages.forms import CHECK_BYTES_MAX, DATA_CHECKED_CHARS
from tests.pages.looking import Site, check
from tests.pages.test_widths import MEASURE, OPENED

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def sent(page: Page) -> None:
    await page.locator("#send").click()


async def wrong(page: Page) -> dict[str, str]:
    """Return what is told beside each field."""
    told = page.locator(".wrong:not([hidden])")
    return {
        (await one.get_attribute("id") or "").removeprefix("wrong-"): await one.inner_text()
        for one in await told.all()
    }


async def test_a_job_is_made(site: Site, page: Page) -> None:
    await site.open(page, "ui/jobs")
    await page.get_by_role("link", name="New job").click()
    await page.wait_for_url("**/ui/jobs/new")
    await page.get_by_label("Name").fill("mail/welcome")
    await page.get_by_label("Data").fill('{"to": "ann", "sum": 1.50}')
    await page.get_by_label("Priority").select_option("750")
    await page.get_by_label("First run").select_option("delay")
    await page.get_by_label("Delay").fill("2h")
    await page.get_by_label("Retry after").fill("+5 MINUTES")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Retries").fill("3")
    await page.get_by_label("Tags").fill("money, eu")
    await page.get_by_label("Other options").fill('{"lease": "90s"}')
    await check(page)
    await sent(page)
    await page.wait_for_url(re.compile(r"/ui/jobs/\d+$"))
    job = await site.ask("QueryJob", jobID=int(page.url.rpartition("/")[2]))
    assert (job["name"], job["priority"], job["retryAfter"]) == ("mail/welcome", 750, "+5 MINUTES")
    assert (job["retries"], job["tags"], job["lease"]) == (3, ["money", "eu"], 90)
    await expect(page.locator(".json")).to_contain_text("sum: 1.50")
    waits = (moment_of(job["nextRun"]) - moment_of(job["created"])).total_seconds()
    assert abs(waits - 7_200) < 60


async def test_all_that_is_wrong_stands_beside_its_field_and_nothing_is_lost(site: Site, page: Page) -> None:
    site.expected.add(400)
    await site.open(page, "ui/jobs/new")
    await page.get_by_label("Data").fill('{"to": ')
    await page.get_by_label("Repeat").fill("EVERY DAY")
    await expect(page.locator("#wrong-repeat")).to_contain_text("repeat: expected HOURLY, DAILY, WEEKLY")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Time limit of a run").fill("soon")
    await page.get_by_label("Other options").fill('{"leese": 3}')
    await sent(page)
    await expect(page.locator("#wrong")).to_have_text("Not created: 5 fields need another value.")
    told = await wrong(page)
    assert told["name"] == "name is required"
    assert told["data"].startswith("data: expected a JSON object")
    assert "like 90s, 5m, 1h30m" in told["runTimeout"]
    assert told["other"] == "leese: there is no such attribute"
    assert told.keys() == {"name", "data", "repeat", "runTimeout", "other"}
    await expect(page.get_by_label("Name")).to_be_focused()
    await check(page)
    assert await page.get_by_label("Data").input_value() == '{"to": '
    await page.get_by_label("Name").fill("a")
    await page.get_by_label("Data").fill("{}")
    await page.get_by_label("Time limit of a run").fill("10m")
    await page.get_by_label("Other options").fill("")
    await page.get_by_label("Repeat").fill("DAILY")
    await page.get_by_label("Retry after").fill("+1 HOUR")
    await sent(page)
    await expect(page.locator("#wrong-retryAfter")).to_have_text("retryAfter: expected nothing with repeat")
    await page.get_by_label("Retry after").fill("")
    await sent(page)
    await page.wait_for_url(re.compile(r"/ui/jobs/1$"))


async def test_an_answer_that_got_lost_makes_no_second_job(site: Site, page: Page) -> None:
    await site.open(page, "ui/jobs/new")
    await page.get_by_label("Name").fill("once")

    async def lose(route: Route) -> None:
        await route.fetch()
        await route.abort()

    site.complaints.append("Failed to load resource: net::ERR_FAILED")
    await page.route("**/CreateJob", lose, times=1)
    await sent(page)
    await expect(page.locator("#wrong")).to_contain_text("What you typed is still here")
    await sent(page)
    await page.wait_for_url("**/ui/jobs/1")
    assert len((await site.ask("ListJobs"))["jobs"]) == 1


async def test_a_job_is_copied_with_all_its_options(site: Site, page: Page) -> None:
    given = {
        "data": {"n": [1, {"a": None}]},
        "retries": 2,
        "runTimeout": "90m",
        "argv": ["x", "y z"],
        "note": "n",
    }
    job = await site.create("a/b", jobPriority=250, retryAfter="+1 HOUR", **given)
    await site.open(page, f"ui/jobs/{job}")
    await page.get_by_role("link", name="Duplicate").click()
    await page.wait_for_url(f"**/ui/jobs/new?like={job}")
    assert await page.get_by_label("Data").input_value() == json.dumps(given["data"], indent=2)
    assert await page.get_by_label("Time limit of a run").input_value() == "1h30m"
    await sent(page)
    await page.wait_for_url(f"**/ui/jobs/{job + 1}")
    before, copy = [await site.ask("QueryJob", jobID=number) for number in (job, job + 1)]
    differ = {key for key in before.keys() | copy.keys() if before.get(key) != copy.get(key)}
    assert differ <= {"jobID", "created", "nextRun"}


async def test_a_queued_job_is_changed_where_it_was_changed(site: Site, page: Page) -> None:
    job = await site.create("a", data={"n": 1}, firstRun="2031-02-03 04:05:06", note="old", lock="db")
    await site.open(page, f"ui/jobs/{job}")
    await page.get_by_role("link", name="Edit").click()
    await page.wait_for_url(f"**/ui/jobs/{job}/edit")
    assert await page.locator("#field-nextRun").input_value() == "2031-02-03T09:35:06"
    await sent(page)
    await expect(page.locator("#wrong")).to_have_text("Nothing was changed.")
    await page.get_by_label("Data").fill('{"n": 2.50}')
    await page.get_by_label("Priority").select_option("1000")
    await page.locator("#field-nextRun").fill("2031-02-04T00:00:00")
    await page.get_by_label("Note").fill("")
    await page.get_by_label("Other options").fill("")
    await check(page)
    await sent(page)
    await page.wait_for_url(f"**/ui/jobs/{job}")
    changed = await site.ask("QueryJob", jobID=job)
    assert (changed["data"], changed["priority"]) == ({"n": 2.5}, 1000)
    assert changed["nextRun"] == "2031-02-03 18:30:00"
    assert not changed.keys() & {"note", "lock"}


async def test_numbers_and_times_are_taken_back_by_empty_fields(site: Site, page: Page) -> None:
    job = await site.create("a", retries=3, runTimeout="5m", backoff="1m", catchup="all", argv=["ls"])
    await site.open(page, f"ui/jobs/{job}/edit")
    for label in ("Retries", "Time limit of a run", "Other options"):
        await page.get_by_label(label).fill("")
    await expect(page.locator(".wrong")).to_have_text([""] * await page.locator(".wrong").count())
    await sent(page)
    await page.wait_for_url(f"**/ui/jobs/{job}")
    changed = await site.ask("QueryJob", jobID=job)
    assert not changed.keys() & {"retries", "runTimeout", "backoff", "catchup", "argv"}


async def test_what_somebody_else_changed_meanwhile_is_told(site: Site, page: Page) -> None:
    site.expected.add(412)
    job = await site.create("a", data={"n": 1})
    await site.open(page, f"ui/jobs/{job}/edit")
    await site.ask("UpdateJob", jobID=job, data={"n": 7})
    await page.get_by_label("Priority").select_option("0")
    await sent(page)
    await expect(page.locator("#wrong")).to_contain_text("has changed since this form was opened")
    await page.get_by_role("button", name="Save anyway").click()
    await page.wait_for_url(f"**/ui/jobs/{job}")
    changed = await site.ask("QueryJob", jobID=job)
    assert (changed["data"], changed["priority"]) == ({"n": 7}, 0)


async def test_a_schedule_shows_its_next_ticks_while_it_is_typed(site: Site, page: Page) -> None:
    await site.open(page, "ui/schedules")
    await page.get_by_role("link", name="New schedule").click()
    await page.wait_for_url("**/ui/schedules/new")
    await expect(page.get_by_label("Time zone")).to_have_value(re.compile("^Asia/(Kolkata|Calcutta)$"))
    await page.get_by_label("Name").fill("backup/nightly")
    await page.get_by_label("When").fill("30 2 1 */3 *")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    rows = page.locator("#preview-next tr")
    await expect(page.locator("#preview-zone")).to_have_text("Europe/Berlin")
    await expect(rows).to_have_count(5)
    there = await rows.locator("td:last-child").all_inner_texts()
    assert {each.rpartition(" ")[2] for each in there} == {"+0100", "+0200"}
    assert all(" 02:30:00 " in each for each in there)
    yours = await rows.locator("td:first-child").all_inner_texts()
    assert {each.partition(", ")[2].split(", ")[-1][:5] for each in yours} == {"06:00", "07:00"}
    await page.get_by_label("When").fill("30 2 * * *")
    await expect(page.locator("#preview-warnings")).to_contain_text(
        "does not exist because the clock is put forward"
    )
    await check(page)
    await page.get_by_label("When").fill("61 2 * * *")
    await expect(page.locator("#wrong-expression")).to_contain_text("minute")
    await expect(page.locator("#preview")).to_be_hidden()
    await page.get_by_label("When").fill("30 2 * * *")
    await page.get_by_label("Time zone").fill("Europe/Berlim")
    await expect(page.locator("#wrong-expression")).to_contain_text("Europe/Berlim")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await sent(page)
    await page.wait_for_url("**/ui/schedules/1")
    assert (await site.ask("QueryJob", jobID=1))["repeat"] == "CRON TZ=Europe/Berlin 30 2 * * *"


async def test_a_schedule_is_changed_copied_and_deleted(site: Site, page: Page) -> None:
    given = {"name": "night", "repeat": "CRON TZ=Europe/Berlin 30 2 * * *", "retries": 2}
    await site.ask("SyncSchedules", source="shop", schedules=[given])
    job = 1
    await site.open(page, f"ui/schedules/{job}")
    await page.get_by_role("link", name="Edit").click()
    await expect(page.locator("main")).to_contain_text(
        "the next bedrockjobs apply of that source overwrites changes made here"
    )
    assert await page.get_by_label("When").input_value() == "30 2 * * *"
    await expect(page.locator("#preview-next tr")).to_have_count(5)
    await page.get_by_label("Time zone").fill("")
    await expect(page.locator("#preview-zone")).to_have_text("UTC")
    await sent(page)
    await page.wait_for_url(f"**/ui/schedules/{job}")
    assert (await site.ask("QueryJob", jobID=job))["repeat"] == "CRON 30 2 * * *"
    await page.get_by_role("link", name="Duplicate").click()
    await page.get_by_label("When").fill("@hourly")
    await sent(page)
    await page.wait_for_url(f"**/ui/schedules/{job + 1}")
    copy = await site.ask("QueryJob", jobID=job + 1)
    assert (copy["name"], copy["repeat"], copy["retries"]) == ("night", "CRON @hourly", 2)
    site.expected.add(404)  # a part of the page may be requested again between its deletion and the next page
    await page.get_by_role("button", name="Delete").click()
    await page.locator("#confirm-yes").click()
    await page.wait_for_url("**/ui/schedules")
    assert await site.state(job + 1) == "gone"


@pytest.mark.parametrize("widths", OPENED)
async def test_forms_fit_their_window(site: Site, page: Page, widths: tuple[int, ...]) -> None:
    job = await site.create("W" * 255, repeat="CRON 0 0 1 1 *", data={"k" * 300: "v" * 500}, cmd="c" * 500)
    for path in ("ui/jobs/new", f"ui/jobs/{job}/edit", f"ui/schedules/new?like={job}"):
        await page.set_viewport_size({"width": widths[0], "height": 900})
        await site.open(page, path)
        if "new" not in path or "like" in path:
            await expect(page.locator("#preview-next tr")).to_have_count(5)
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate(MEASURE) == "", path


async def test_long_data_are_judged_when_they_are_sent(site: Site, page: Page) -> None:
    site.expected.add(400)
    assert CHECK_BYTES_MAX > 4 * DATA_CHECKED_CHARS
    await site.open(page, "ui/jobs/new")
    await page.get_by_label("Name").fill("large")
    await page.get_by_label("Data").fill(json.dumps({"x": "y" * DATA_CHECKED_CHARS}) + "}")
    await sent(page)
    await expect(page.locator("#wrong-data")).to_contain_text("data: expected a JSON object")
    await page.get_by_label("Data").fill(json.dumps({"x": "y" * DATA_CHECKED_CHARS}))
    await sent(page)
    await page.wait_for_url("**/ui/jobs/1")
    assert len((await site.ask("QueryJob", jobID=1))["data"]["x"]) == DATA_CHECKED_CHARS


@pytest.mark.parametrize(
    "body",
    ["[]", "{}", '{"command": "DeleteJob", "schedule": false, "fields": {}, "changed": []}', "[" * 9_000],
)
async def test_what_is_no_form_is_refused(site: Site, body: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"{site.root}/ui/check", data=body) as answer:
        assert answer.status == 400
        assert (await answer.json())["reason"] == "Malformed body"


async def test_a_text_that_is_not_unicode_is_checked_as_any_other(site: Site) -> None:
    form = {"command": "CreateJob", "schedule": False, "changed": ["name"], "fields": {"name": "\ud800"}}
    body = json.dumps(form)
    async with aiohttp.ClientSession() as session, session.post(f"{site.root}/ui/check", data=body) as answer:
        assert answer.status == 200
        assert "name" in json.dumps(await answer.json())


async def test_a_form_that_is_too_large_is_not_read(site: Site) -> None:
    large = "x" * (CHECK_BYTES_MAX + 1)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{site.root}/ui/check", data=large) as answer,
    ):
        assert answer.status == 400


async def test_a_job_that_is_over_and_kept_is_copied(site: Site, page: Page) -> None:
    job = await site.create("a", keep="1d", data={"n": 1}, jobPriority=750)
    await site.ask("FinishJob", jobID=job, runID=(await site.take("a"))["runID"])
    assert (await site.ask("QueryJob", jobID=job))["state"] == "FINISHED"
    await site.open(page, f"ui/jobs/new?like={job}")
    await sent(page)
    await page.wait_for_url(f"**/ui/jobs/{job + 1}")
    assert (await site.ask("QueryJob", jobID=job + 1))["data"] == {"n": 1}
