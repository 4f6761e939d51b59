"""CancelJob on a running job: its worker is notified, and the job ends with its run."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import GRACE_S_DEFAULT, LEASE_S_DEFAULT, TAKE_BACK_S
from tests.runs.rig import Site


async def _running(site: Site, **options: Any) -> dict[str, Any]:
    await site.create("a", **options)
    return await site.leased("a")


async def _gone(site: Site, job_id: int = 1) -> bool:
    return (await site.http("QueryJob", {"jobID": job_id})).code == 404


async def test_a_waiting_heartbeat_hears_of_it_at_once(site: Site) -> None:
    job = await _running(site, retries=3, onLost="retry")
    talk = await site.waiting_beat(1)
    assert await talk.silent()
    assert await site.ok("CancelJob", jobID=1) == {"runID": 1}
    assert (await talk.reply()).json == {"stop": [{"runID": 1, "signal": "TERM"}], "quiet": False}
    assert await site.ok("CancelJob", jobID=1) == {"runID": 1}, "twice is as good as once"
    await site.fail(job, error="SIGTERM")
    assert await _gone(site)
    assert (await site.run(1))["status"] == "terminated"
    (event,) = await site.events("stop")
    assert event["detail"] == "TERM for CancelJob"


async def test_kill_follows_after_the_grace_and_then_the_job_is_over(site: Site) -> None:
    await _running(site, grace="20s")
    await site.ok("CancelJob", jobID=1)
    await site.later(19)
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "TERM"}]
    await site.later(2)
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "KILL"}]
    await site.later(TAKE_BACK_S + 1)
    assert await _gone(site)
    run = await site.run(1)
    assert (run["status"], run["error"]) == ("killed", "Run did not end after its job was cancelled")
    assert await site.events("timeout") == []
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "LOST"}]


async def test_the_grace_begins_with_the_cancel(site: Site) -> None:
    await _running(site, runTimeout="1h")
    await site.later(60)
    await site.ok("CancelJob", jobID=1)
    await site.later(GRACE_S_DEFAULT + 1)
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "KILL"}]


async def test_a_run_that_is_over_its_time_is_stopped_no_later_for_it(site: Site) -> None:
    await _running(site, runTimeout="60s", grace="20s", retries=3)
    await site.later(61)
    await site.ok("CancelJob", jobID=1)
    await site.later(20)
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "KILL"}]
    await site.later(TAKE_BACK_S + 1)
    assert await _gone(site)
    assert (await site.run(1))["status"] == "timeout"


async def test_a_silent_worker_s_job_is_over_with_its_lease(site: Site) -> None:
    await _running(site)
    await site.ok("CancelJob", jobID=1)
    await site.silence(LEASE_S_DEFAULT + 1)
    assert await _gone(site)
    assert await site.nothing("a")


async def test_a_restart_forgets_nothing_of_it(site: Site) -> None:
    await _running(site, repeat="FINISHED, +1 DAY", grace="20s")
    await site.ok("CancelJob", jobID=1)
    await site.crash(down=5)
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "TERM"}]
    await site.later(16)
    await site.later(TAKE_BACK_S + 1)
    row = await site.row(1)
    assert (row["state"], row["memory"], row["expires"]) == ("QUEUED", {}, "")


async def test_a_job_whose_worker_sends_no_heartbeats_is_left_alone(site: Site) -> None:
    await site.create("a")
    await site.take("a")
    assert await site.refused("CancelJob", jobID=1) == (
        404,
        "Invalid jobID - Cannot cancel a job without a parent",
    )
    assert (await site.beat(1))["stop"] in ([], [{"runID": 1, "signal": "LOST"}])
    assert (await site.row(1))["state"] == "RUNNING"


async def test_a_trigger_that_comes_later_runs_it_once_more(site: Site) -> None:
    job = await _running(site)
    await site.ok("TriggerJob", jobID=1)
    await site.ok("CancelJob", jobID=1)
    await site.fail(job)
    assert await _gone(site), "what was asked for before is cancelled too"
    await site.create("a")
    job = await site.leased("a")
    await site.ok("CancelJob", jobID=2)
    await site.ok("TriggerJob", jobID=2)
    await site.fail(job)
    assert (await site.take("a"))["jobID"] == 2


async def test_its_lock_is_free_for_the_next(site: Site) -> None:
    job = await _running(site, lock="l")
    await site.create("b", lock="l")
    await site.ok("CancelJob", jobID=1)
    assert await site.nothing("b")
    await site.fail(job)
    assert (await site.take("b"))["jobID"] == 2


async def test_an_answer_that_nobody_got_is_not_given_to_another(site: Site) -> None:
    await site.create("a")
    talk = await site.posted("GetJob", name="a", worker="w", heartbeat=True)
    assert (await talk.reply()).code == 200
    await site.ok("CancelJob", jobID=1)
    await site.ok("RetryJob", jobID=1, returned=True)
    assert await _gone(site)
    assert await site.nothing("a")


@pytest.mark.parametrize("end", ["FinishJob", "FailJob"])
async def test_a_schedule_goes_on_and_its_tick_counts_as_fired(site: Site, end: str) -> None:
    await site.create("a", repeat="CRON * * * * *")
    await site.later(60)
    job = await site.leased("a")
    await site.ok("CancelJob", jobID=1)
    await site.end(end, job)
    assert (await site.row(1))["state"] == "QUEUED"
    await site.later(60)
    assert (await site.leased("a"))["attempt"] == 1
    ticks = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert {tick["outcome"] for tick in ticks} == {"fired"}
    assert sum(tick["count"] for tick in ticks) == 2
