"""expireAfter: jobs that are not taken in time are dropped with an event, others stay."""

from __future__ import annotations

import asyncio

import pytest

from tests.runs.rig import Site, failed_once_more


async def test_a_job_that_is_not_taken_in_time_is_deleted_with_an_event(site: Site) -> None:
    await site.create("a", expireAfter=60, firstRun="2026-11-21 03:30:00")
    await site.until_time("2026-11-21 03:30:59")
    assert await site.state(1) == "QUEUED"
    await site.later(2)
    assert await site.state(1) == "(deleted)"
    (event,) = await site.events("expired")
    assert (event["name"], event["jobID"]) == ("a", 1)


async def test_one_that_was_taken_in_time_does_not_expire(site: Site) -> None:
    await site.create("a", expireAfter=60)
    await site.later(59)
    job = await site.take("a")
    await site.later(1000)
    assert await site.state(1) == "RUNNING"
    await site.finish(job)
    assert await site.events("expired") == []


async def test_an_expired_job_is_never_handed_out(site: Site) -> None:
    await site.create("a", expireAfter=60)
    site.clock.advance(61)
    assert await site.nothing("a")
    assert await site.state(1) == "(deleted)"


async def test_a_retry_counts_from_its_own_time(site: Site) -> None:
    await site.create("a", expireAfter=60, retries=2, backoff=100)
    due = await failed_once_more(site)
    await site.until_time(due)
    await site.later(59)
    assert await site.state(1) == "QUEUED"
    await site.later(2)
    assert await site.state(1) == "(deleted)"


async def test_a_changed_nextrun_moves_the_end(site: Site) -> None:
    await site.create("a", expireAfter=60)
    await site.ok("UpdateJob", jobID=1, nextRun="2026-11-21 03:35:00")
    await site.until_time("2026-11-21 03:35:59")
    assert await site.state(1) == "QUEUED"
    await site.later(2)
    assert await site.state(1) == "(deleted)"


async def test_a_schedule_skips_the_tick_as_too_late(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", expireAfter=60)
    await site.until_time("2026-11-21 03:31:01")
    assert await site.state(1) == "QUEUED"
    assert await site.due(1) == "2026-11-21 03:35:00"
    assert await site.ticks(1) == [("2026-11-21 03:30:00", "2026-11-21 03:30:00", 1, "skipped", "too late")]
    assert await site.nothing("s")


async def test_the_parent_of_an_expired_child_goes_on(site: Site) -> None:
    await site.create("p")
    parent = await site.take("p")
    await site.create("c", parentJobID=1, expireAfter=60)
    await site.later(10)
    await site.finish(parent)
    assert await site.state(1) == "PAUSED"
    await site.later(200)
    assert await site.state(1) == "QUEUED", "no job may wait for something that cannot happen"


@pytest.mark.parametrize("how", ["restart", "crash"])
async def test_it_expires_while_the_server_is_down(site: Site, how: str) -> None:
    await site.create("a", expireAfter=60)
    await site.create("b", expireAfter=600)
    await getattr(site, how)(down=61)
    assert (await site.state(1), await site.state(2)) == ("(deleted)", "QUEUED")
    assert len(await site.events("expired")) == 1


async def test_many_expire_at_once(site: Site) -> None:
    jobs = [{"name": "a", "expireAfter": 60} for _ in range(1000)]
    await asyncio.gather(*(site.ok("CreateJobs", jobs=jobs) for _ in range(3)))
    await site.later(61)
    for _ in range(50):
        await site.settle()
    assert await site.select("SELECT jobID FROM jobs LIMIT 10") == []
    assert (await site.select("SELECT count(*) AS n FROM events WHERE kind = 'expired'"))[0]["n"] == 3000


async def test_an_overwritten_job_that_runs_does_not_expire(site: Site) -> None:
    await site.create("a", expireAfter=600, firstRun="2026-11-21 03:25:00")
    job = await site.leased("a")
    await site.ok("CreateJob", name="a", expireAfter=600, unique=True, overwrite=True, data={"x": 1})
    assert (await site.row(1))["expires"] == ""
    await site.later(700)
    assert (await site.run(job["runID"]))["stop"] == ""
    assert await site.state(1) == "RUNNING"


async def test_a_schedule_with_jitter_expires_once(site: Site) -> None:
    """RequeueJobs sets nextRun back before the tick that it brings, whose time is over too."""
    await site.create("s", repeat="CRON 0 * * * *", jitter=300, expireAfter=30)
    await site.later(100)
    await site.ok("RequeueJobs", jobIDs=[1])
    await site.later(31)
    for _ in range(20):
        await site.settle()
    assert len(await site.events("expired")) == 1
    assert (await site.due(1)) >= "2026-11-21 04:00:00"


async def test_after_a_retry_that_expired_comes_a_fresh_tick(site: Site) -> None:
    await site.create("s", repeat="CRON 0 * * * *", retries=3, expireAfter=60, backoff=10)
    await site.until_time("2026-11-21 04:00:00")
    await site.fail(await site.take("s"))
    await site.later(200)
    assert await site.due(1) == "2026-11-21 05:00:00"
    assert not {"failures", "cause"} & set(await site.memory(1))
    await site.until_time("2026-11-21 05:00:00")
    job = await site.take("s")
    assert (await site.run(job["runID"]))["cause"] == "schedule"
    assert [tick[:2] for tick in await site.ticks(1)] == [("2026-11-21 04:00:00", "2026-11-21 05:00:00")]


async def test_a_child_expires_from_when_its_parent_lets_it_run(site: Site) -> None:
    parent = await site.create("p")
    job = await site.take("p")
    child = await site.create("c", parentJobID=parent, expireAfter=60)
    await site.finish(job)
    await site.later(59)
    assert await site.state(child) == "QUEUED"
    await site.later(2)
    assert await site.state(child) == "(deleted)"
    assert await site.state(parent) == "QUEUED", "its parent waits for it no more"


async def test_a_parent_does_not_expire_after_its_children(site: Site) -> None:
    """It was started in time; the rest of its run may wait."""
    parent = await site.create("p", expireAfter=60)
    job = await site.take("p")
    await site.create("c", parentJobID=parent)
    await site.finish(job)
    await site.finish(await site.take("c"))
    await site.later(600)
    assert await site.state(parent) == "QUEUED"
