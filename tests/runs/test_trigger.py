"""TriggerJob: run now, and keep the schedule."""

from __future__ import annotations

import pytest

from tests.runs.rig import Site

TICK = "2026-11-21 04:00:00"


async def schedule(site: Site, name: str = "s", **more: object) -> int:
    """Create an hourly schedule, whose first tick is at 04:00."""
    return await site.create(name, repeat="CRON 0 * * * *", **more)


@pytest.mark.parametrize("by", ["jobID", "name"])
async def test_a_queued_schedule_is_due_now_and_its_tick_comes_back(site: Site, by: str) -> None:
    await schedule(site)
    assert await site.due(1) == TICK
    assert await site.nothing("s")
    answer = await site.ok("TriggerJob", **{by: {"jobID": 1, "name": "s"}[by]})
    assert answer == {"jobID": 1, "pending": False}
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.due(1) == TICK
    assert await site.ticks(1) == [], "nothing for a manual run"
    await site.until_time(TICK)
    job = await site.take("s")
    run = await site.run(job["runID"])
    assert (run["cause"], run["scheduledFor"]) == ("schedule", TICK)
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]


async def test_a_waiting_worker_gets_it_at_once(site: Site) -> None:
    await schedule(site)
    talk = await site.asking("s")
    await site.ok("TriggerJob", name="s")
    assert (await talk.reply()).json["jobID"] == 1


async def test_triggering_twice_before_the_take_is_one_run(site: Site) -> None:
    await schedule(site)
    for _ in range(3):
        await site.ok("TriggerJob", name="s")
    await site.finish(await site.take("s"))
    assert await site.due(1) == TICK
    assert await site.nothing("s")


@pytest.mark.parametrize("end", ["FailJob", "RetryJob", "lease", "timeout"])
async def test_the_tick_comes_back_however_the_run_ends(site: Site, end: str) -> None:
    await schedule(site, runTimeout=20, grace=1)
    await site.ok("TriggerJob", name="s")
    job = await site.leased("s")
    if end == "lease":
        await site.silence(46)
    elif end == "timeout":
        for seconds in (21, 1, 10):
            await site.later(seconds)
    else:
        await site.end(end, job)
    row = await site.row(1)
    assert (row["state"], row["nextRun"]) == ("QUEUED", TICK)
    assert await site.ticks(1) == []


async def test_a_returned_manual_run_is_still_wanted(site: Site) -> None:
    await schedule(site)
    await site.ok("TriggerJob", name="s")
    await site.end("RetryJob", await site.take("s"), returned=True)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.due(1) == TICK


async def test_a_paused_one_runs_once_and_stays_paused(site: Site) -> None:
    await schedule(site)
    await schedule(site, "s")
    await site.ok("PauseJobs", name="s")
    await site.ok("TriggerJob", jobID=1)
    job = await site.take("s")
    assert job["jobID"] == 1
    await site.finish(job)
    assert await site.nothing("s")
    await site.until_time("2026-11-21 04:00:30")
    assert await site.nothing("s")
    await site.ok("ResumeJobs", name="s")
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "paused")]
    assert await site.ticks(2) == [(TICK, TICK, 1, "skipped", "paused")]


async def test_a_waiting_worker_gets_a_paused_one_that_was_triggered(site: Site) -> None:
    await schedule(site)
    await site.ok("PauseJobs")
    talk = await site.asking("*")
    await site.ok("TriggerJob", name="s")
    assert (await talk.reply()).json["jobID"] == 1


async def test_the_retry_of_a_paused_manual_run_does_not_pass_the_pause(site: Site) -> None:
    await schedule(site, retries=1, backoff=0)
    await site.ok("PauseJobs")
    await site.ok("TriggerJob", name="s")
    await site.fail(await site.take("s"))
    assert await site.nothing("s"), "only that run passes the pause"


async def test_a_running_one_runs_once_more_at_its_end(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.take("s")
    for _ in range(3):
        assert await site.ok("TriggerJob", name="s") == {"jobID": 1, "pending": True}
    assert await site.nothing("s")
    await site.finish(job)
    again = await site.take("s")
    assert (await site.run(again["runID"]))["cause"] == "manual"
    await site.finish(again)
    assert await site.nothing("s"), "at most one was pending"
    assert await site.due(1) == "2026-11-21 05:00:00"
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]


async def test_a_running_manual_run_can_have_one_pending_too(site: Site) -> None:
    await schedule(site)
    await site.ok("TriggerJob", name="s")
    job = await site.take("s")
    assert (await site.ok("TriggerJob", name="s"))["pending"] is True
    await site.finish(job)
    await site.finish(await site.take("s"))
    assert await site.nothing("s")
    assert await site.due(1) == TICK


async def test_the_tick_that_passes_during_a_manual_run_is_accounted_for(site: Site) -> None:
    await schedule(site)
    await site.ok("TriggerJob", name="s")
    job = await site.take("s")
    await site.until_time("2026-11-21 04:10:00")
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 05:00:00"
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "running")]


async def test_a_tick_that_is_due_and_not_taken_yet_is_not_lost_by_a_trigger(site: Site) -> None:
    await schedule(site)
    await site.until_time("2026-11-21 04:00:10")
    await site.ok("TriggerJob", name="s")
    await site.finish(await site.take("s"))
    accounted = [tick[0] for tick in await site.ticks(1)]
    assert accounted == [TICK] or await site.due(1) == TICK, "it has an outcome, or it is the next to fire"


async def test_a_plain_job_that_waits_for_its_time_runs_now(site: Site) -> None:
    await site.create("a", firstRun="2026-12-01 00:00:00")
    assert await site.ok("TriggerJob", jobID=1) == {"jobID": 1, "pending": False}
    job = await site.take("a")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.state(1) == "(deleted)"


async def test_a_running_plain_job_runs_once_more(site: Site) -> None:
    await site.create("a", data={"x": 1})
    job = await site.take("a")
    assert (await site.ok("TriggerJob", jobID=1))["pending"] is True
    await site.finish(job)
    again = await site.take("a")
    assert again["jobID"] == 1
    assert (await site.run(again["runID"]))["cause"] == "manual"
    await site.finish(again)
    assert await site.state(1) == "(deleted)"


async def test_a_retry_that_waits_for_its_backoff_runs_now(site: Site) -> None:
    await site.create("a", retries=1, backoff=1000)
    await site.fail(await site.take("a"))
    await site.ok("TriggerJob", jobID=1)
    assert (await site.take("a"))["attempt"] == 2


async def test_never_is_only_by_trigger(site: Site) -> None:
    await site.create("s", repeat="CRON @never")
    for _ in range(2):
        await site.ok("TriggerJob", name="s")
        await site.finish(await site.take("s"))
        assert await site.due(1) == "9999-12-31 23:59:59"
        assert await site.ticks(1) == []


async def test_other_states_are_refused(site: Site) -> None:
    await site.create("f")
    await site.fail(await site.take("f"))
    assert (await site.refused("TriggerJob", jobID=1))[0] == 405
    await site.create("p")
    parent = await site.take("p")
    await site.create("c", parentJobID=2)
    await site.create("d", parentJobID=2)
    await site.finish(parent)
    await site.ok("CancelJob", jobID=4)
    assert (await site.state(2), await site.state(4)) == ("PAUSED", "CANCELLED")
    for job_id in (2, 4):
        assert (await site.refused("TriggerJob", jobID=job_id))[0] == 405
    assert (await site.refused("TriggerJob", name="f"))[0] == 405


async def test_unknown_ambiguous_and_missing(site: Site) -> None:
    assert (await site.refused("TriggerJob", jobID=7))[0] == 404
    assert (await site.refused("TriggerJob", name="x"))[0] == 404
    assert (await site.refused("TriggerJob"))[0] == 402
    for _ in range(2):
        await site.create("a")
    assert await site.refused("TriggerJob", name="a") == (405, "Several jobs have this name")
    assert (await site.ok("TriggerJob", jobID=2))["jobID"] == 2


async def test_it_is_an_event(site: Site) -> None:
    await schedule(site)
    await site.ok("TriggerJob", name="s", by="ann")
    (event,) = await site.events("triggered")
    assert (event["name"], event["jobID"], event["by"]) == ("s", 1, "ann")


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_it_survives_a_restart(site: Site, how: str) -> None:
    await schedule(site)
    await schedule(site, "t")
    await site.ok("TriggerJob", name="s")
    running = await site.take("s")
    await site.ok("TriggerJob", name="s")
    await site.ok("TriggerJob", name="t")
    await site.ok("PauseJobs")
    await getattr(site, how)(down=10)
    job = await site.take("t")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(running)
    again = await site.take("s")
    assert (await site.run(again["runID"]))["cause"] == "manual"
    for taken in (job, again):
        await site.finish(taken)
    assert (await site.due(1), await site.due(2)) == (TICK, TICK)
    assert await site.nothing("*")


async def test_one_that_waits_for_its_retry_runs_at_once(site: Site) -> None:
    """Also where the run that failed was asked for itself; its own next run is not forgotten."""
    await schedule(site, retries=2, backoff=60)
    for _ in range(2):
        await site.ok("TriggerJob", name="s")
        await site.fail(await site.take("s"))
        assert await site.nothing("s")
    await site.ok("TriggerJob", name="s")
    await site.finish(await site.take("s"))
    assert await site.due(1) == TICK


async def test_a_plain_job_taken_without_a_worker_runs_once_more(site: Site) -> None:
    await site.create("a")
    job = await site.take("a", None)
    assert await site.ok("TriggerJob", jobID=1) == {"jobID": 1, "pending": True}
    await site.finish(job)
    assert await site.state(1) == "QUEUED"
    await site.finish(await site.take("a", None))
    assert await site.state(1) == "(deleted)"


async def test_a_repeat_that_was_given_to_a_triggered_job_counts(site: Site) -> None:
    await site.create("a", firstRun="2027-01-01 00:00:00")
    await site.ok("TriggerJob", jobID=1)
    await site.ok("UpdateJob", jobID=1, repeat="FINISHED, +1 DAY", nextRun="2026-11-21 00:00:00")
    await site.finish(await site.take("a"))
    assert (await site.state(1), (await site.due(1))[:19]) == ("QUEUED", "2026-11-22 03:29:56")


async def test_a_retry_of_a_manual_run_does_not_run_at_its_tick_too(site: Site) -> None:
    """Without a delay it is a run at the next tick: a pause holds that one, and its skipping is noted."""
    await schedule(site)
    await site.ok("TriggerJob", jobID=1)
    await site.end("RetryJob", await site.take("s"))
    assert await site.due(1) == TICK
    await site.ok("PauseJobs", name="s")
    await site.until_time("2026-11-21 04:00:05")
    assert await site.nothing("s")
    await site.ok("ResumeJobs", name="s")
    assert await site.nothing("s")
    assert await site.ticks(1) == [(TICK, TICK, 1, "skipped", "paused")]


@pytest.mark.parametrize("how", ["UpdateJob", "CreateJob", "SyncSchedules"])
async def test_a_new_repeat_does_not_take_the_manual_run_away(site: Site, how: str) -> None:
    first, then = "CRON 0 * * * *", "CRON 45 * * * *"
    if how == "SyncSchedules":
        await site.ok(how, source="x", schedules=[{"name": "s", "repeat": first}])
    else:
        await site.create("s", repeat=first)
    await site.ok("TriggerJob", jobID=1)
    if how == "SyncSchedules":
        await site.ok(how, source="x", schedules=[{"name": "s", "repeat": then}])
    elif how == "UpdateJob":
        await site.ok(how, jobID=1, repeat=then)
    else:
        await site.ok(how, name="s", repeat=then, unique=True, overwrite=True)
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "manual"
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 03:45:00"


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob"])
async def test_what_was_asked_for_during_a_run_follows_however_it_ends(site: Site, end: str) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.take("s")
    assert await site.ok("TriggerJob", jobID=1) == {"jobID": 1, "pending": True}
    await site.end(end, job)
    again = await site.take("s")
    assert (await site.run(again["runID"]))["cause"] == "manual"
    await site.finish(again)
    assert await site.due(1) == "2026-11-21 05:00:00"
    assert await site.ticks(1) == [(TICK, TICK, 1, "fired", "")]


async def test_what_was_asked_for_follows_also_without_a_repeat(site: Site) -> None:
    await schedule(site)
    await site.until_time(TICK)
    job = await site.take("s")
    await site.ok("TriggerJob", jobID=1)
    await site.ok("UpdateJob", jobID=1, shouldClearRepeat=True)
    await site.finish(job)
    await site.finish(await site.take("s"))
    assert await site.state(1) == "(deleted)"


async def test_the_list_shows_the_next_run_of_its_own(site: Site) -> None:
    await site.create("s", repeat="CRON 0 12 * * *")
    noon = "2026-11-21 12:00:00"
    await site.ok("TriggerJob", name="s")
    for step in ("waits", "runs", "over"):
        (row,) = (await site.ok("ListSchedules"))["schedules"]
        assert row["nextRun"] == noon, step
        if step == "waits":
            job = await site.take("s")
        elif step == "runs":
            await site.finish(job)
