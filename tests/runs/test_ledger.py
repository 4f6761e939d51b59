"""The tick history: the outcome of each tick of a schedule."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import CATCHUP_MAX, TICK_ROWS_MAX
from tests.runs.rig import Site
from tests.runs.ticks import at, every_minute, outcomes, row

# --- fired -----------------------------------------------------------------------------------------------


async def test_the_rows_nextrun_is_the_next_tick(site: Site) -> None:
    await every_minute(site)
    assert await site.due(1) == at(30)
    await site.until_time("2026-11-21 03:29:59.999")
    assert await site.nothing("s")
    await site.until_time(at(30))
    job = await site.take("s")
    assert job["nextRun"] == at(30)
    await site.finish(job)
    assert await site.due(1) == at(31)


async def test_a_take_fires_the_tick(site: Site) -> None:
    await every_minute(site)
    await site.until_time("2026-11-21 03:30:07.900")
    job = await site.take("s")
    (tick,) = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert tick == {
        "tick": at(30),
        "until": at(30),
        "count": 1,
        "outcome": "fired",
        "reason": "",
        "late": 7,
        "runID": job["runID"],
        "status": "running",
    }
    assert (await site.run(job["runID"]))["scheduledFor"] == at(30)


async def test_it_is_there_in_the_commit_of_the_take(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.take("s")
    await site.crash()
    assert await site.ticks(1) == [row(30, 30, "fired")]


async def test_without_a_worker_too(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.take("s", None)
    assert await site.ticks(1) == [row(30, 30, "fired")]


async def test_returned_fires_the_tick_again_and_the_ledger_has_it_once(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    await site.end("RetryJob", await site.take("s"), returned=True)
    assert await site.due(1) == at(30)
    await site.later(5)
    await site.finish(await site.take("s"))
    assert await site.ticks(1) == [row(30, 30, "fired")]
    assert await site.due(1) == at(31)


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob", "lease"])
async def test_however_it_ends_the_next_tick_follows(site: Site, end: str) -> None:
    await every_minute(site)
    for minute in (30, 31, 32):
        await site.until_time(at(minute))
        job = await site.leased("s")
        if end == "lease":
            await site.silence(46)
        else:
            await site.end(end, job)
        assert await site.due(1) == at(minute + 1)
        assert await site.state(1) == "QUEUED"
    assert outcomes(await site.ticks(1)) == ([30, 31, 32], {"fired"})


async def test_a_failed_run_never_ends_the_schedule(site: Site) -> None:
    await every_minute(site)
    for minute in range(30, 50):
        await site.until_time(at(minute))
        await site.fail(await site.take("s"), final=True)
    assert await site.due(1) == at(50)


# --- nobody took them ------------------------------------------------------------------------------------


async def test_once_the_latest_missed_tick_is_caught_up(site: Site) -> None:
    await every_minute(site)
    await site.until_time("2026-11-21 03:33:09")
    job = await site.take("s")
    assert await site.ticks(1) == [row(30, 32, "skipped", "no worker"), row(33, 33, "caught up")]
    run = await site.run(job["runID"])
    assert (run["scheduledFor"], run["cause"]) == (at(33), "schedule")
    newest = (await site.ok("ListTicks", jobID=1))["ticks"][0]
    assert (newest["late"], newest["runID"]) == (9, job["runID"])
    await site.finish(job)
    assert await site.due(1) == at(34)


async def test_all_every_missed_tick_gets_its_run(site: Site) -> None:
    await every_minute(site, catchup="all")
    await site.until_time("2026-11-21 03:33:09")
    for minute in (30, 31, 32, 33):
        job = await site.take("s")
        assert (await site.run(job["runID"]))["scheduledFor"] == at(minute)
        assert await site.nothing("s"), "one after another"
        await site.finish(job)
    assert await site.nothing("s")
    assert await site.due(1) == at(34)
    rows = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert [(r["tick"], r["count"], r["late"]) for r in rows] == [
        (at(33), 1, 9),
        (at(32), 1, 69),
        (at(31), 1, 129),
        (at(30), 1, 189),
    ]
    assert {r["outcome"] for r in rows[1:]} == {"caught up"}


async def test_all_at_most_a_thousand(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * * *", catchup="all")
    await site.later(CATCHUP_MAX + 500)
    job = await site.take("s")
    rows = await site.ticks(1)
    assert rows[0][3] == "skipped"
    assert rows[0][0] == "2026-11-21 03:29:57"
    skipped = sum(tick[2] for tick in rows if tick[3] == "skipped")
    assert skipped == 500, "1,500 are missed, 1,000 of them get their runs"
    assert rows[-1][:4] == (
        (await site.run(job["runID"]))["scheduledFor"],
        (await site.run(job["runID"]))["scheduledFor"],
        1,
        "caught up",
    )


async def test_skipped_neighbours_share_a_row(site: Site) -> None:
    await every_minute(site, overlap="skip")
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:40:30")
    await site.finish(job)
    assert await site.ticks(1) == [row(30, 30, "fired"), row(31, 40, "skipped", "running")]


# --- during a run ----------------------------------------------------------------------------------------


async def test_overlap_skip(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:32:30")
    await site.finish(job)
    assert await site.due(1) == at(33)
    assert await site.ticks(1) == [row(30, 30, "fired"), row(31, 32, "skipped", "running")]


async def test_a_run_that_ends_before_the_next_tick_skips_nothing(site: Site) -> None:
    await every_minute(site)
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:30:59.999")
    await site.finish(job)
    assert await site.due(1) == at(31)
    assert await site.ticks(1) == [row(30, 30, "fired")]


async def test_overlap_queue_once_is_one_run_at_once_for_the_latest(site: Site) -> None:
    await every_minute(site, overlap="queue")
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:33:30")
    await site.finish(job)
    assert await site.due(1) == at(33)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(33)
    await site.finish(job)
    assert await site.nothing("s")
    assert await site.due(1) == at(34)
    fired, skipped, caught_up = await site.ticks(1)
    assert fired == row(30, 30, "fired")
    assert skipped == row(31, 32, "skipped", "running")
    assert caught_up == row(33, 33, "caught up")


QUEUED = {
    "once": ({}, 33),
    "all": ({"catchup": "all"}, 31),
    "skip": ({"overlap": "skip"}, 34),
    "jitter": ({"jitter": 1}, 33),
}


@pytest.mark.parametrize("triggered", [False, True])
@pytest.mark.parametrize("given", QUEUED)
async def test_the_next_run_is_the_one_of_the_tick_that_comes_next(
    site: Site, given: str, triggered: bool
) -> None:
    """After ticks that came during a run, also one that was triggered, every view shows the same tick."""
    options, minute = QUEUED[given]
    await every_minute(site, **{"overlap": "queue", **options})
    if triggered:
        await site.ok("TriggerJob", name="s")
        job = await site.take("s")
        await site.finish(job)
        assert (await site.due(1))[:16] == at(30)[:16]
        await site.ok("TriggerJob", name="s")
    await site.until_time("2026-11-21 03:29:59" if triggered else "2026-11-21 03:30:02")
    job = await site.take("s")
    await site.until_time("2026-11-21 03:33:30")
    await site.finish(job)
    minute = 30 if triggered and given == "all" else minute
    assert (await site.due(1))[:16] == at(minute)[:16]
    (row,) = (await site.ok("ListSchedules"))["schedules"]
    assert row["nextRun"][:16] == at(minute)[:16]
    if minute < 34:
        job = await site.take("s")
        assert (await site.run(job["runID"]))["scheduledFor"][:16] == at(minute)[:16]


async def test_overlap_queue_all_is_a_run_for_each(site: Site) -> None:
    await every_minute(site, overlap="queue", catchup="all")
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:33:30")
    for minute in (31, 32, 33):
        await site.finish(job)
        job = await site.take("s")
        assert (await site.run(job["runID"]))["scheduledFor"] == at(minute)
    await site.finish(job)
    assert await site.due(1) == at(34)
    assert outcomes(await site.ticks(1))[0] == [30, 31, 32, 33]


async def test_a_waiting_worker_gets_a_queued_tick_at_the_end_of_the_run(site: Site) -> None:
    await every_minute(site, overlap="queue")
    await site.until_time(at(30))
    job = await site.take("s")
    await site.until_time("2026-11-21 03:31:30")
    talk = await site.asking("s")
    assert await talk.silent()
    await site.finish(job)
    assert (await talk.reply()).json["jobID"] == 1


# --- maxLate ---------------------------------------------------------------------------------------------


async def test_a_tick_older_than_max_late_is_skipped_at_the_take(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", maxLate=60)
    await site.until_time("2026-11-21 03:31:01")
    assert await site.nothing("s", worker="w")
    assert await site.due(1) == at(35)
    assert await site.ticks(1) == [row(30, 30, "skipped", "too late")]
    assert await site.runs() == []


async def test_a_tick_within_max_late_fires(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", maxLate=60)
    await site.until_time("2026-11-21 03:30:59")
    await site.take("s")
    assert await site.ticks(1) == [row(30, 30, "fired")]


async def test_max_late_looks_at_the_latest_missed_tick(site: Site) -> None:
    await every_minute(site, maxLate=30)
    await site.until_time("2026-11-21 03:32:10")
    job = await site.take("s")
    assert (await site.run(job["runID"]))["scheduledFor"] == at(32)
    await site.finish(job)
    await site.until_time("2026-11-21 03:34:40")
    assert await site.nothing("s")
    assert await site.due(1) == at(35)
    covered = sum(tick[2] for tick in await site.ticks(1))
    assert covered == 5, "03:30 to 03:34, each once"


async def test_a_too_late_schedule_does_not_hide_other_jobs(site: Site) -> None:
    await site.create("a/s", repeat="CRON */5 * * * *", maxLate=60, jobPriority=1000)
    await site.create("a/plain")
    await site.until_time("2026-11-21 03:32:00")
    assert (await site.take("a/*"))["name"] == "a/plain"


# --- listed ----------------------------------------------------------------------------------------------


async def test_the_newest_first_page_by_page(site: Site) -> None:
    await every_minute(site)
    for minute in (31, 33, 35):
        await site.until_time(at(minute))
        await site.finish(await site.take("s"))
    first = (await site.ok("ListTicks", jobID=1, limit=2))["ticks"]
    assert [tick["tick"] for tick in first] == [at(35), at(34)]
    page = (await site.ok("ListTicks", jobID=1, limit=2, before=first[-1]["tick"]))["ticks"]
    assert [tick["tick"] for tick in page] == [at(33), at(32)]


async def test_an_unknown_job_has_no_ticks(site: Site) -> None:
    reply = await site.http("ListTicks", {"jobID": 9})
    assert (reply.code, reply.json.get("ticks", [])) in ((200, []), (404, []))


async def test_the_last_thousand_rows_are_kept(site: Site) -> None:
    await site.create("s", repeat="CRON * * * * * *")
    talk = await site.connect()
    for _ in range((TICK_ROWS_MAX + TICK_ROWS_MAX // 10) // 2 + 50):
        site.clock.advance(2)  # one tick is skipped, one caught up: two rows
        assert (await talk.ask("GetJob", name="s")).code == 200
        assert (await talk.ask("FinishJob", jobID=1)).code == 200
    (found,) = await site.select("SELECT count(*) AS n, max(tick) AS last FROM ticks WHERE jobID = 1")
    assert TICK_ROWS_MAX <= found["n"] <= TICK_ROWS_MAX * 1.1


async def test_repeats_that_are_no_schedules_have_no_ledger(site: Site) -> None:
    await site.create("a", repeat="SCHEDULED, +1 MINUTE")
    for _ in range(3):
        await site.finish(await site.take("a"))
        await site.later(60)
    assert await site.ticks(1) == []


async def test_a_ledger_is_trimmed_whatever_else_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.TICK_ROWS_MAX", 20)
    await every_minute(site)
    for _ in range(30):
        await site.later(120)
        await site.finish(await site.take("s"))
        await site.ok("CreateJobs", jobs=[{"name": "other"}] * 9)
        for job in (await site.ok("GetJobs", name="other", numResults=9, worker="w"))["jobs"]:
            await site.finish(job)
    rows = (await site.select("SELECT count(*) AS n FROM ticks"))[0]["n"]
    assert 20 <= rows <= 22
