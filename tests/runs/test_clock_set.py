"""The machine's clock is set: that is reported, and no schedule stays silent until the wrong time comes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.runs.conftest import Open
from tests.runs.rig import Site

YEAR = timedelta(days=365)


async def set_clock(site: Site, by: timedelta) -> None:
    """Set the wall clock; monotonic seconds go on."""
    site.clock.set_to(site.clock.now() + by)
    await site.rest()


async def ran(site: Site, name: str) -> None:
    """Run a schedule once, now."""
    await site.finish(await site.take(name))


async def test_a_year_forward_and_back_leaves_no_schedule_silent(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.create("minutely", repeat="CRON * * * * *")
    await site.create("daily", repeat="CRON 0 5 * * *", jitter=60)
    await site.create("hosts", repeat="CRON * * * * *", hosts="all")
    await site.create("late", repeat="CRON * * * * *", maxLate=30)
    await site.create("repeats", repeat="STARTED, +1 HOUR")
    await site.asking("hosts")
    await set_clock(site, YEAR)
    for name in ("minutely", "daily", "repeats"):
        await ran(site, name)
    await site.later(40)
    assert await site.nothing("late", worker="w")
    assert {(await site.due(job_id))[:7] for job_id in range(1, 6)} == {"2027-11"}
    await set_clock(site, -YEAR)
    assert await site.due(1) == "2026-11-21 03:31:00"
    assert "2026-11-21 05:00:00" <= await site.due(2) <= "2026-11-21 05:01:00"
    assert await site.due(3) == "2026-11-21 03:31:00"
    assert await site.due(4) == "2026-11-21 03:31:00"
    assert await site.due(5) <= "2026-11-21 04:31:00"
    told = [event["detail"] for event in await site.events("clock set")]
    assert told == [
        "from 2026-11-21 03:29:56 to 2027-11-21 03:29:56",
        "from 2027-11-21 03:30:36 to 2026-11-21 03:30:36",
    ]
    assert f"the system's clock was set {told[1]}" in caplog.messages
    await site.both(60)
    await ran(site, "minutely")
    assert await site.due(1) == "2026-11-21 03:32:00"
    assert (await site.ticks(1))[-1][:2] == ("2026-11-21 03:31:00", "2026-11-21 03:31:00")


async def test_a_run_that_began_in_the_wrong_year_goes_on_in_the_right_one(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *")
    await set_clock(site, YEAR)
    job = await site.take("a")
    await set_clock(site, -YEAR)
    await site.finish(job)
    assert await site.due(1) == "2026-11-21 03:30:00"


async def test_a_retry_of_the_wrong_year_comes_now(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *", retries=3, backoff=300)
    await set_clock(site, YEAR)
    await site.fail(await site.take("a"))
    await set_clock(site, -YEAR)
    assert (await site.take("a"))["attempt"] == 2


async def test_what_somebody_planned_stays(site: Site) -> None:
    await site.create("a", repeat="CRON 0 0 * * *", firstRun="2027-03-01 00:00:00")
    await site.create("b", repeat="CRON * * * * *")
    await ran_and_postponed(site)
    await set_clock(site, YEAR)
    await set_clock(site, -YEAR)
    assert await site.due(1) == "2027-03-01 00:00:00"
    assert await site.due(2) == "2026-12-01 00:00:00"


async def ran_and_postponed(site: Site) -> None:
    """Run the second schedule, and postpone it."""
    await site.later(10)
    await ran(site, "b")
    await site.ok("UpdateJob", jobID=2, nextRun="2026-12-01 00:00:00")


async def test_a_correction_by_seconds_is_not_told(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *")
    for seconds in (59, -59, 30, -20):
        await set_clock(site, timedelta(seconds=seconds))
    assert await site.events("clock set") == []


async def test_time_that_passes_is_no_jump(site: Site) -> None:
    await site.both(86_400)
    assert await site.events("clock set") == []


async def test_a_clock_that_was_set_back_while_no_server_ran(site: Site) -> None:
    await site.create("a", repeat="CRON * * * * *")
    await set_clock(site, YEAR)
    await ran(site, "a")
    await site.restart(down=-YEAR.total_seconds())
    assert await site.due(1) == "2026-11-21 03:30:00"
    assert len(await site.events("clock set")) == 2


async def test_many_schedules_are_planned_in_parts(open_site: Open) -> None:
    site = await open_site()
    jobs = [{"name": f"s/{number}", "repeat": "CRON * * * * *"} for number in range(250)]
    await site.ok("CreateJobs", jobs=jobs)
    await set_clock(site, YEAR)
    taken = (await site.ok("GetJobs", name="s/*", numResults=1_000))["jobs"]
    await site.ok("FinishJobs", jobs=[{"jobID": job["jobID"]} for job in taken])
    await set_clock(site, -YEAR)
    await site.rest()
    found = await site.select("SELECT DISTINCT nextRun FROM jobs")
    assert [row["nextRun"] for row in found] == ["2026-11-21 03:30:00"]
