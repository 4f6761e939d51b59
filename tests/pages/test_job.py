"""The page of a job: its state, why it waits, its history, its family, and its actions."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from bedrockjobs.pages.job import timeline
from bedrockjobs.pages.jobs import progress_bar
from bedrockjobs.views.states import CHILDREN_COUNTED, FamilyCounts
from tests.pages.looking import Site, check

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def act(page: Page, label: str, *, question: str) -> None:
    await page.get_by_role("button", name=label, exact=True).click()
    await expect(page.locator("#confirm-which")).to_have_text(
        re.compile(re.escape(question).replace("NAMED", r"\w+"))
    )
    await page.locator("#confirm-yes").click()


async def test_a_waiting_job_says_why(site: Site, page: Page) -> None:
    job = await site.create(
        "mail/1", firstRun="2040-01-01 00:00:00", data={"to": ["ann", 1.50], "deep": {"a": None}}, retries=3
    )
    await site.ask("PauseJobs", name="mail/*", reason="move", by="ann")
    await site.open(page, f"ui/jobs/{job}")
    text = await page.locator("#job").inner_text()
    assert "paused: mail/* has been paused by ann since " in text
    assert "nextRun: it is due at 1 Jan 2040, 05:30:00" in text
    since = page.locator("#job p").first.locator("time").first
    assert re.search(r"\n[-\d]{10} [:\d]{8} UTC$", await since.get_attribute("title") or "")
    assert await since.locator(".local").inner_text()
    assert "retries" in text
    await check(page)


async def test_data_is_a_tree_with_numbers_as_they_are_spelled(site: Site, page: Page) -> None:
    status, _ = await site.http(
        "CreateJob", name="a", data='{"sum":1.50,"big":12345678901234567890,"in":{"x":"y"}}'
    )
    assert status == 200
    await site.open(page, "ui/jobs/1")
    tree = page.locator(".json")
    assert "sum: 1.50" in await tree.inner_text()
    assert "big: 12345678901234567890" in await tree.inner_text()
    inner = tree.get_by_text('"y"')
    assert not await inner.is_visible()
    await tree.locator("summary").nth(1).click()
    assert await inner.is_visible()
    await site.ask("UpdateJob", jobID=1, jobPriority=750)
    await expect(page.locator(".facts")).to_contain_text("750")
    assert await inner.is_visible()


async def test_long_data_is_cut(site: Site, page: Page) -> None:
    job = await site.create("a", data={"long": "x" * 100_000})
    await site.open(page, f"ui/jobs/{job}")
    assert "its first 20,000 characters" in await page.locator("#job").inner_text()
    assert len(await page.locator("#job pre.code").inner_text()) == 20_000


async def test_the_timeline_is_of_runs_and_events(site: Site, page: Page) -> None:
    job = await site.fail("a", error="no paper")
    await site.open(page, f"ui/jobs/{job}")
    happened = await page.locator(".timeline li").all_inner_texts()
    assert any("fail: no paper" in text and "run 1" in text for text in happened)
    assert any("taken by w1 (attempt 1)" in text for text in happened)
    assert "created" in happened[-1]
    assert "no paper" in await page.locator(".problem").inner_text()
    row = page.locator("#run-1")
    assert await row.locator("a").get_attribute("href") == "../../ui/runs/1"
    await check(page)


async def test_nothing_is_said_twice(site: Site, page: Page) -> None:
    job = await site.create("a", retries=1, backoff=0)
    for _ in range(2):
        taken = await site.take("a")
        await site.ask("FailJob", jobID=job, runID=taken["runID"], error="exit status 1", exitCode=1)
    await site.open(page, f"ui/jobs/{job}")
    assert (await page.locator(".problem").inner_text()).strip() == "exit status 1"
    happened = [
        text.partition(" \N{EN DASH}")[0] for text in await page.locator(".timeline li").all_inner_texts()
    ]
    assert sorted(text for text in happened if "exit status 1" in text) == [
        "fail: exit status 1",
        "fail: exit status 1",
    ]
    other = await site.create("b")
    taken = await site.take("b")
    await site.ask("FailJob", jobID=other, runID=taken["runID"], error="exit status 12", exitCode=1)
    await site.open(page, f"ui/jobs/{other}")
    assert (await page.locator(".problem").inner_text()).strip() == "exit status 12 (exit status 1)"


async def test_options_that_are_durations_have_a_unit(site: Site, page: Page) -> None:
    job = await site.create("a", retries=3, backoff=1, maxBackoff=5400, grace=0, repeat="CRON 0 0 * * *")
    for path in (f"ui/jobs/{job}", f"ui/schedules/{job}"):
        await site.open(page, path)
        facts = page.locator(".facts").last
        shown = dict(
            zip(
                await facts.locator("dt").all_inner_texts(),
                await facts.locator("dd").all_inner_texts(),
                strict=True,
            )
        )
        named = {name: shown[name] for name in ("retries", "backoff", "maxBackoff", "grace")}
        assert named == {"retries": "3", "backoff": "1s", "maxBackoff": "1h30m", "grace": "0s"}


async def test_how_long_a_run_took_is_on_one_line(site: Site, page: Page) -> None:
    job = await site.fail("a")
    await site.open(page, f"ui/jobs/{job}")
    took = page.locator("#run-1 .amount")
    await expect(took).to_be_in_viewport(ratio=1)
    await page.set_viewport_size({"width": 390, "height": 900})
    lines = await took.evaluate(
        """place => {
          const range = document.createRange();
          range.selectNodeContents(place);
          return new Set([...range.getClientRects()].map((box) => box.top)).size;
        }"""
    )
    assert lines == 1


async def test_it_is_live(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    badge = page.locator("#job .badge").first
    await expect(badge).to_contain_text("queued")
    run = (await site.take("a"))["runID"]
    await expect(badge).to_contain_text("running")
    await site.ask("FinishJob", jobID=job, runID=run)
    await expect(page.locator("#job")).to_contain_text("This job has ended and was removed")
    await expect(page.locator("#run-1")).to_contain_text("success")


async def test_a_job_of_which_nothing_stays_ends_before_the_eyes(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    await site.ask("GetJob", name="a")
    await site.ask("FinishJob", jobID=job)
    await expect(page.locator("#job")).to_contain_text("This job has ended and was removed")


async def test_the_family_is_shown(site: Site, page: Page) -> None:
    parent = await site.create("parent")
    await site.take("parent")
    await asyncio.gather(*(site.create(f"child/{number}", parentJobID=parent) for number in range(53)))
    await site.open(page, f"ui/jobs/{parent}")
    rows = page.locator('[id^="child-"]')
    assert await rows.count() == 50
    await page.keyboard.press("n")
    await page.wait_for_url("**children=**")
    assert await rows.count() == 3
    await check(page)
    await rows.first.get_by_role("link").click()
    await page.wait_for_url("**/ui/jobs/52")
    await page.get_by_role("link", name=f"job {parent}", exact=True).click()
    await page.wait_for_url(f"**/ui/jobs/{parent}")


async def test_how_far_a_family_is_stands_above_it_with_those_that_failed(site: Site, page: Page) -> None:
    parent = await site.create("parent")
    run = (await site.take("parent"))["runID"]
    for number in range(12):
        await site.create(f"child/{number % 4}", parentJobID=parent)
    await site.ask("FinishJob", jobID=parent, runID=run)
    for name in ("child/0", "child/1"):
        for _ in range(3):
            child = await site.take(name)
            given = {"jobID": child["jobID"], "runID": child["runID"]}
            await (
                site.ask("FinishJob", **given)
                if name == "child/0"
                else site.ask("FailJob", **given, error="no ink")
            )
    await site.take("child/2")
    await site.open(page, f"ui/jobs/{parent}")
    words = "12 children: 3 done, 3 failed, 1 running, 5 waiting"
    await expect(page.locator("svg.family")).to_have_attribute("aria-label", words)
    widths = [
        float(await part.get_attribute("width") or 0) for part in await page.locator("svg.family rect").all()
    ]
    assert widths == [25, 25, 8.333, 41.667]
    rows = page.locator("#family-failed tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("no ink")
    above = [
        await page.locator(place).evaluate("place => place.getBoundingClientRect().top")
        for place in ("svg.family", "#family-failed", "#child-2")
    ]
    assert above == sorted(above)
    await check(page)
    await site.ask("FinishJob", jobID=(await site.take("child/2"))["jobID"])
    await expect(page.locator("#family-words")).to_contain_text("4 done")


async def test_a_family_is_counted_up_to_a_bound() -> None:
    assert CHILDREN_COUNTED == 10_000
    found = progress_bar(FamilyCounts({"FINISHED": 9_000, "CANCELLED": 1_000}, more=True), [])
    assert (found.more, found.text) == (True, "10,000+ children: 9,000 done, 1,000 cancelled")
    assert [(part.begins, part.width) for part in found.parts] == [(0, 90), (90, 10)]
    assert progress_bar(FamilyCounts({"QUEUED": 1}, more=False), []).text == "1 child: 1 waiting"


async def test_lines_are_copied(site: Site, page: Page) -> None:
    installed = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    port = site.server.port
    wanted = {
        "nc": f"printf 'QueryJob\\njobID: {job}\\n\\n' | nc -q 1 127.0.0.1 {port}",
        "curl": f"curl -d '{{\"jobID\":{job}}}' http://127.0.0.1:{port}/QueryJob",
        "command": f"bedrockjobs job show {job} --server 127.0.0.1:{port}",
    }
    for label, line in wanted.items():
        await page.get_by_role("button", name=f"Copy the {label} line").click()
        await expect(page.locator("#news")).to_have_text("Copied.")
        assert await page.evaluate("navigator.clipboard.readText()") == line
        shell = await asyncio.create_subprocess_shell(
            line, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PATH": installed}
        )
        assert shell.stdout is not None
        printed, _ = await asyncio.gather(shell.stdout.read(), shell.wait())
        assert shell.returncode == 0
        assert b"QUEUED" in printed


async def test_retry(site: Site, page: Page) -> None:
    job = await site.fail("a")
    await site.open(page, f"ui/jobs/{job}")
    await act(page, "Retry", question=f"Queue job {job} (NAMED) again?")
    await expect(page.locator("#job .badge").first).to_contain_text("queued")
    await expect(page.locator("#news")).to_have_text(f"Retried: job {job}.")


async def test_run_now_reschedule_and_priority(site: Site, page: Page) -> None:
    job = await site.create("a", firstRun="2040-01-01 00:00:00")
    await site.open(page, f"ui/jobs/{job}")
    await page.get_by_label("Priority").select_option("850")
    await act(page, "Set priority", question=f"Change the priority of job {job} (NAMED)?")
    await expect(page.locator(".facts")).to_contain_text("850")
    await page.get_by_label("Next run").fill("2031-05-06T12:38:09")
    await act(page, "Reschedule", question=f"Set the next run of job {job} (NAMED)?")
    await expect(page.locator(".facts")).to_contain_text("2031-05-06 07:08:09 UTC")
    await act(page, "Run now", question=f"Run job {job} (NAMED) now?")
    await expect(page.locator("#news")).to_have_text(f"Due now: job {job}.")
    assert (await site.take("a"))["jobID"] == job


async def test_stop(site: Site, page: Page) -> None:
    for label, word, signal in (("Terminate", "SIGTERM", "TERM"), ("Kill", "SIGKILL", "KILL")):
        job = await site.create("a")
        run = (await site.take("a", heartbeat=True))["runID"]
        await site.open(page, f"ui/jobs/{job}")
        await act(page, label, question=f"Stop the run of job {job} (NAMED) with {word}?")
        await expect(page.locator("#news")).to_have_text(f"Stop requested: job {job}.")
        answer = await site.ask("Heartbeat", worker="w1", runIDs=[run])
        assert answer["stop"] == [{"runID": run, "signal": signal}]


async def test_cancel(site: Site, page: Page) -> None:
    parent = await site.create("parent")
    await site.take("parent")
    child = await site.create("child", parentJobID=parent)
    await site.ask("FinishJob", jobID=parent)
    await site.open(page, f"ui/jobs/{child}")
    await act(page, "Cancel", question=f"Cancel job {child} (NAMED)?")
    await expect(page.locator("#job .badge").first).to_contain_text("cancelled")
    plain = await site.create("plain")
    await site.open(page, f"ui/jobs/{plain}")
    await act(page, "Cancel", question=f"Cancel job {plain} (NAMED)?")
    await expect(page.locator("#job .badge").first).to_contain_text("cancelled")
    await site.open(page, f"ui/jobs/{plain}")
    await expect(page.get_by_text("Kept until", exact=True)).to_be_visible()


async def test_delete_leads_back_to_the_list(site: Site, page: Page) -> None:
    job = await site.create("a")
    await site.open(page, f"ui/jobs/{job}")
    await act(page, "Delete", question=f"Delete job {job} (NAMED)? This cannot be undone.")
    await page.wait_for_url("**/ui/jobs")
    assert await site.state(job) == "gone"


async def test_its_newest_runs_output_is_followed(site: Site, page: Page) -> None:
    job = await site.create("build")
    await site.open(page, f"ui/jobs/{job}")
    await expect(page.locator("#log")).to_have_count(0)
    run = (await site.take("build", heartbeat=True))["runID"]
    await site.ask("AppendOutput", runID=run, seq=1, lines=["one"])
    await expect(page.locator("#output h2")).to_have_text(f"Output of run {run}")
    await expect(page.locator("#following")).to_have_text("Following.")
    await site.ask("AppendOutput", runID=run, seq=2, lines=["\x1b[31mtwo\x1b[0m"])
    await expect(page.locator("#line-2 .fg-red")).to_have_text("two")
    await check(page)
    await site.ask("RetryJob", jobID=job, runID=run)
    await expect(page.locator("#following")).to_contain_text("The run has ended")
    following = (await site.take("build", heartbeat=True))["runID"]
    await expect(page.locator("#output h2")).to_have_text(f"Output of run {following}")
    await site.ask("AppendOutput", runID=following, seq=1, lines=["another"])
    await expect(page.locator("#log .line")).to_have_count(1)
    await expect(page.locator("#line-1")).to_contain_text("another")


async def test_only_the_end_of_a_long_output_is_shown(site: Site, page: Page) -> None:
    job = await site.create("build")
    taken = await site.take("build", heartbeat=True)
    lines = [f"line {number}" for number in range(1, 251)]
    await site.ask("AppendOutput", runID=taken["runID"], seq=1, lines=lines)
    await site.ask("FailJob", jobID=job, runID=taken["runID"], error="it broke")
    await site.open(page, f"ui/jobs/{job}")
    await expect(page.locator("#log .line")).to_have_count(100)
    await expect(page.locator("#log")).to_contain_text("Lines up to 150 are on previous pages.")
    await page.get_by_label("Timestamps").check()
    await expect(page.locator("#line-250 .when")).to_be_visible()
    await page.get_by_role("link", name="Full output").click()
    await expect(page.locator("#log .line")).to_have_count(250)


async def test_things_of_one_moment_stand_in_the_order_in_which_they_happened() -> None:
    at = "2026-11-21 10:00:37.074"
    run = {"worker": "w", "attempt": 1, "cause": "queue", "started": at, "ended": at, "status": "fail"}
    runs = [{**run, "runID": number, "error": f"no {number}"} for number in (2, 1)]
    events = [
        (7, at, "recovered", "a", 1, 2, "", ""),
        (6, at, "deferred", "a", 1, 2, "", ""),
        (5, at, "triggered", "a", 1, 0, "ann", ""),
    ]
    said = [moment.text.partition(" ")[0] for moment in timeline({"created": at}, runs, events)]
    assert said[::-1] == ["created", "triggered", "taken", "fail:", "taken", "fail:", "deferred", "recovered"]


MOMENTS = {
    "a run without an event, then the deletion": ([1], [(9, "deleted", 0)], "created taken success deleted"),
    "an event between two runs": (
        [1, 2],
        [(5, "requeued", 1), (6, "muted", 0), (7, "deferred", 2)],
        "created taken success requeued muted taken success deferred",
    ),
    "events only": ([], [(8, "deleted", 0), (7, "cancelled", 0)], "created cancelled deleted"),
    "before the run": (
        [3],
        [(4, "paused", 0), (5, "recovered", 3)],
        "created paused taken success recovered",
    ),
    "after it": ([3], [(5, "recovered", 3), (6, "paused", 0)], "created taken success recovered paused"),
}
"""Runs, and events with the run that they are about, all of one moment; and the order that is right."""


@pytest.mark.parametrize("name", MOMENTS)
async def test_each_history_of_one_moment_is_in_order(name: str) -> None:
    numbers, happened, order = MOMENTS[name]
    at = "2026-11-21 10:00:37.074"
    run = {"worker": "w", "attempt": 1, "cause": "queue", "started": at, "ended": at, "error": ""}
    runs = [{**run, "runID": number, "status": "success"} for number in numbers[::-1]]
    events = [(seq, at, kind, "a", 1, number, "", "") for seq, kind, number in happened]
    said = [moment.text.partition(" ")[0] for moment in timeline({"created": at}, runs, events)]
    assert " ".join(said[::-1]) == order


async def test_a_job_that_was_not_taken_is_not_said_to_have_been(site: Site, page: Page) -> None:
    job = await site.create("untaken")
    await site.open(page, f"ui/jobs/{job}")
    await expect(page.get_by_text("This job has not been taken yet.")).to_be_visible()
    await site.ask("GetJob", name="untaken")
    await site.open(page, f"ui/jobs/{job}")
    await expect(page.get_by_text("the worker that took this job gave no name")).to_be_visible()
    gone = await site.create("gone", repeat="CRON 0 3 * * *")
    await site.ask("TriggerJob", jobID=gone)
    await site.ask("DeleteJob", jobID=gone)
    await site.open(page, f"ui/jobs/{gone}")
    await expect(page.get_by_text("No run is recorded.", exact=True)).to_be_visible()
