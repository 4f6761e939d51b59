"""The tick history of a schedule that is changed, set back, requeued, or that waits for its children."""

from __future__ import annotations

import asyncio

from bedrockjobs.commands import GetJob
from tests.runs.rig import Site
from tests.runs.ticks import at, every_minute, outcomes, row


async def test_a_new_repeat_starts_from_now(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.finish(await site.take("s"))
    await site.ok("UpdateJob", jobID=1, repeat="CRON */10 * * * *")
    assert await site.due(1) == at(40)
    await site.until_time(at(40))
    await site.take("s")
    ledger = await site.ticks(1)
    assert (ledger[0][0], ledger[-1][1], sum(tick[2] for tick in ledger)) == (at(30), at(40), 2)


async def test_a_repeat_changed_during_a_run_counts_at_its_end(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    job = await site.take("s")
    await site.ok("UpdateJob", jobID=1, repeat="CRON */10 * * * *")
    await site.finish(job)
    assert await site.due(1) == at(40)


async def test_the_ledger_outlives_a_restart_and_goes_on(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.finish(await site.take("s"))
    await site.restart()
    await site.until_time(at(31))
    await site.finish(await site.take("s"))
    assert outcomes(await site.ticks(1)) == ([30, 31], {"fired"})


async def test_a_tick_that_was_handed_back_is_taken_again_once(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.finish(await site.take("s"))
    await site.until_time(at(31))
    await site.end("RetryJob", await site.take("s"), returned=True)
    assert [tick[:2] for tick in await site.ticks(1)] == [(at(30), at(30))]
    await site.finish(await site.take("s"))
    assert await site.ticks(1) == [(at(30), at(31), 2, "fired", "")]


async def test_a_tick_that_was_handed_back_may_be_skipped(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.end("RetryJob", await site.take("s"), returned=True)
    assert await site.ticks(1) == []
    await site.until_time(at(34))
    await site.take("s")
    assert await site.ticks(1) == [row(30, 33, "skipped", "no worker"), row(34, 34, "caught up")]


async def test_a_tick_that_was_handed_back_during_a_pause(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    job = await site.take("s")
    await site.ok("PauseJobs", name="s")
    await site.end("RetryJob", job, returned=True)
    await site.until_time(at(34))
    await site.ok("ResumeJobs", name="s")
    assert await site.ticks(1) == [(at(30), at(34), 5, "skipped", "paused")]
    assert await site.due(1) == at(35)


async def test_a_tick_whose_answer_reached_nobody_is_taken_again(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    gone = asyncio.get_running_loop().create_future()

    def nowhere(_: object) -> bool:
        gone.set_result(None)
        return False

    site.server.dispatcher.submit(GetJob(name="s", worker="w"), nowhere)
    await gone
    await site.rest()
    assert await site.ticks(1) == []
    await site.take("s")
    assert await site.ticks(1) == [row(30, 30, "fired")]


async def test_a_schedule_that_is_set_back_fires_once_more(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.finish(await site.take("s"))
    await site.ok("UpdateJob", jobID=1, nextRun=at(30))
    job = await site.take("s")
    await site.finish(job)
    (tick,) = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert (tick["count"], tick["runID"]) == (1, job["runID"])


async def test_the_rest_of_a_run_is_never_too_late(site: Site) -> None:
    """A parent goes on after its children, however long they took; its tick fired already."""
    await every_minute(site, maxLate=10)
    await site.until_time(at(30))
    job = await site.take("s")
    await site.create("c", parentJobID=1)
    await site.finish(job)
    child = await site.take("c")
    await site.until_time(at(35))
    await site.finish(child)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(30)
    assert [found["jobID"] for found in job["finishedChildJobs"]] == [child["jobID"]]
    await site.finish(job)
    fired = [tick for tick in await site.ticks(1) if tick[3] == "fired"]
    assert fired == [row(30, 30, "fired")], "one tick, one entry"
    assert await site.due(1) == at(36)


async def test_the_rest_of_a_run_stands_for_its_tick(site: Site) -> None:
    await every_minute(site)
    await site.until_time("2026-11-21 03:30:20")
    job = await site.take("s")
    await site.create("c", parentJobID=1)
    await site.finish(job)
    await site.finish(await site.take("c"))
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(30)
    await site.finish(job)
    assert [tick[:2] for tick in await site.ticks(1)] == [(at(30), at(30))]
    assert await site.due(1) == at(31)


async def test_the_history_says_how_runs_ended(site: Site) -> None:
    """Ticks that all fired share a row, also if each of their runs failed."""
    await every_minute(site)
    for minute in (30, 31, 32):
        await site.until_time(at(minute))
        await site.fail(await site.take("s"), error="no")
    found = await site.ok("ListTicks", jobID=1)
    (row,) = found["ticks"]
    assert (row["count"], row["outcome"], row["status"], row["failed"]) == (3, "fired", "fail", 3)
    assert (found["failingSince"], found["neverSucceeded"]) == (at(30), True)
    await site.until_time(at(33))
    job = await site.take("s")
    found = await site.ok("ListTicks", jobID=1)
    assert (found["ticks"][0]["status"], found["failingSince"]) == ("running", at(30))
    await site.finish(job)
    found = await site.ok("ListTicks", jobID=1)
    assert (found["ticks"][0]["status"], found["ticks"][0]["failed"]) == ("success", 3)
    assert "failingSince" not in found
    await site.until_time(at(34))
    await site.fail(await site.take("s"), error="no")
    found = await site.ok("ListTicks", jobID=1)
    assert (found["failingSince"], "neverSucceeded" in found) == (at(34), False)


async def test_a_success_that_is_not_kept_is_no_reason_to_say_never(site: Site) -> None:
    await every_minute(site, keepSuccess=0)
    await site.until_time(at(30))
    await site.finish(await site.take("s"))
    await site.until_time(at(31))
    await site.fail(await site.take("s"), error="no")
    found = await site.ok("ListTicks", jobID=1)
    assert (found["failingSince"], "neverSucceeded" in found) == (at(31), False)


async def test_a_tick_failed_if_its_last_try_did(site: Site) -> None:
    await every_minute(site, retries=1, backoff=1)
    await site.until_time(at(30))
    await site.fail(await site.take("s"), error="no")
    found = await site.ok("ListTicks", jobID=1)
    assert (found["ticks"][0]["status"], found["ticks"][0]["failed"]) == ("fail", 1)
    await site.later(5)
    await site.finish(await site.take("s"))
    found = await site.ok("ListTicks", jobID=1)
    assert (found["ticks"][0]["status"], "failed" in found["ticks"][0]) == ("success", False)
