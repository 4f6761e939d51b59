"""A stored schedule that can no longer be evaluated is FAILED with the reason, and affects no other."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import AWAY_S
from tests.runs.conftest import Open
from tests.runs.rig import Site

GONE = "CRON TZ=Mars/Base 0 4 * * *"


async def break_zone(site: Site, job_id: int) -> None:
    """Let a stored schedule's zone be gone, as on a machine with another tzdata; start the server anew."""
    settings = site.server.settings
    await site.server.stop()
    broken = f"UPDATE jobs SET repeat = '{GONE}' WHERE jobID = {job_id}"
    site.databases.change(settings.database, broken)
    await site._start(
        settings, AWAY_S + 1, 0
    )  # missed ticks are looked for where no server was there for so long


@pytest.mark.parametrize("catchup", ["once", "skip", "all"])
async def test_it_hurts_nobody_else_after_a_restart(open_site: Open, catchup: str) -> None:
    site = await open_site()
    await site.create("old", repeat="CRON * * * * *", catchup=catchup)
    await site.later(200)
    await break_zone(site, 1)
    assert await site.create("new") == 2
    job = await site.take("*")
    assert job["name"] == "new"
    await site.finish(job)
    shown = await site.ok("QueryJob", jobID=1)
    assert shown["state"] == "FAILED"
    assert "Mars/Base" in shown["error"]
    told = await site.events("failed")
    assert [(event["jobID"], "Mars/Base" in event["detail"]) for event in told] == [(1, True)]


async def test_a_new_repeat_brings_it_back(open_site: Open) -> None:
    site = await open_site()
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await site.later(200)
    await break_zone(site, 1)
    assert await site.state(1) == "FAILED"
    assert await site.refused("RetryJob", jobID=1, revive=True) == (405, "Repeat can not be evaluated")
    await site.ok("UpdateJob", jobID=1, repeat="CRON */5 * * * *")
    assert (await site.state(1), await site.due(1)) == ("QUEUED", "2026-11-21 03:35:00")
    assert "error" not in await site.ok("QueryJob", jobID=1)
    await site.later(300)
    assert (await site.take("s"))["jobID"] == 1


async def test_retry_brings_it_back_where_the_zone_is_there_again(open_site: Open) -> None:
    site = await open_site()
    await site.create("s", repeat="CRON * * * * *", catchup="skip")
    await site.later(200)
    await break_zone(site, 1)
    settings = site.server.settings
    await site.server.stop()
    site.databases.change(settings.database, "UPDATE jobs SET repeat = 'CRON * * * * *'")
    await site._start(settings, 0, 0)
    await site.ok("RetryJob", jobID=1, revive=True)
    assert (await site.state(1), await site.due(1)) == ("QUEUED", "2026-11-21 03:34:00")


async def test_one_that_runs_ends_and_then_fails(open_site: Open) -> None:
    site = await open_site()
    await site.create("s", repeat="CRON * * * * *")
    await site.later(70)
    job = await site.leased("s")
    await break_zone(site, 1)
    await site.finish(job)
    assert await site.state(1) == "FAILED"
    assert (await site.run(job["runID"]))["status"] == "success"


async def test_one_on_all_hosts_fails_when_it_is_due(open_site: Open) -> None:
    site = await open_site()
    await site.create("e", repeat="CRON * * * * *", hosts="all")
    await break_zone(site, 1)
    await site.beat(worker="h", names=["e"])
    await site.both(120)
    assert await site.state(1) == "FAILED"
    assert await site.create("other") == 2


async def test_a_paused_one_fails_when_it_is_resumed(open_site: Open) -> None:
    site = await open_site()
    await site.create("p", repeat="CRON * * * * *")
    await site.ok("PauseJobs", name="p")
    await site.later(200)
    await break_zone(site, 1)
    await site.ok("ResumeJobs", name="p")
    assert await site.state(1) == "FAILED"
