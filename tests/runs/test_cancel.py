"""CancelJob on a running job: its worker is notified, and the job ends with its run."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs import AsyncClient, JobFailed
from bedrockjobs.base.config import GRACE_S_DEFAULT, LEASE_S_DEFAULT, TAKE_BACK_S
from tests.runs.bearer import Bearer, admin_of
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


# --- any: true -------------------------------------------------------------------------------------------

KEPT = {"cancelled": True}
NOTHING = {"cancelled": False}


async def test_a_queued_job_is_kept_as_a_record_for_an_hour(site: Site) -> None:
    job = await site.create("a")
    assert (await site.ask("CancelJob", jobID=job, any="true")).json == KEPT
    assert await site.ok("CancelJob", jobID=job, any=True) == NOTHING, "twice is as good as once"
    assert await site.nothing("a")
    assert await site.state(job) == "CANCELLED"
    (event,) = await site.events("cancelled")
    assert (event["name"], event["jobID"]) == ("a", job)
    (reason,) = (await site.ok("ExplainJob", jobID=job))["waitsFor"]
    assert "it does not run again; its record is kept until 2026-" in reason["detail"]
    await site.crash()
    await site.later(3_599)
    assert await site.state(job) == "CANCELLED"
    await site.later(2)
    assert await _gone(site, job)


@pytest.mark.parametrize(("keep", "seconds"), [("10m", 600), ("1d", 86_400), ("0", 0)])
async def test_a_record_is_kept_for_its_keep(site: Site, keep: str, seconds: int) -> None:
    job = await site.create("a", keep=keep)
    await site.ok("CancelJob", jobID=job, any=True)
    if seconds:
        await site.later(seconds - 1)
        assert await site.state(job) == "CANCELLED"
    await site.later(2)
    assert await _gone(site, job)


async def test_without_any_nothing_has_changed(site: Site) -> None:
    job = await site.create("a")
    reason = "Invalid jobID - Cannot cancel a job without a parent"
    assert await site.refused("CancelJob", jobID=job) == (404, reason)
    assert await site.refused("CancelJob", jobID=job, any=False) == (404, reason)
    assert await site.refused("CancelJob", jobID=job, any="maybe") == (402, "Malformed any")


async def test_a_unique_key_is_free_again(site: Site) -> None:
    await site.create("a", uniqueKey="k")
    await site.ok("CancelJob", jobID=1, any=True)
    assert await site.ok("CreateJob", name="a", uniqueKey="k") == {"jobID": 2, "created": True}


async def test_a_run_whose_worker_cannot_be_asked_is_over_at_once(site: Site) -> None:
    await site.create("a", lock="l", retries=3)
    await site.create("b", lock="l")
    job = await site.take("a")
    assert await site.ok("CancelJob", jobID=1, any=True) == KEPT
    assert await site.state(1) == "CANCELLED"
    assert (await site.run(1))["status"] == "frozen"
    assert (await site.take("b"))["jobID"] == 2, "the lock is free"
    reply = await site.http("FinishJob", {"jobID": 1, "runID": job["runID"]})
    assert (reply.json["code"], reply.json["reason"]) == (405, "Run is over")
    await site.later(3_601)
    assert await _gone(site)


async def test_a_run_is_stopped_and_not_retried(site: Site) -> None:
    job = await _running(site, retries=3)
    assert await site.ok("CancelJob", jobID=1, any=True) == {"runID": 1}
    assert (await site.beat(1))["stop"] == [{"runID": 1, "signal": "TERM"}]
    await site.fail(job)
    assert await _gone(site)
    assert (await site.run(1))["status"] == "terminated"


async def _family(site: Site) -> None:
    """Leave a parent that waits for children: one has ended, one runs with heartbeats, one is queued."""
    await site.create("parent")
    parent = await site.take("parent")
    for name in ("ended", "runs", "queued"):
        await site.create(name, parentJobID=1)
    await site.finish(parent)
    await site.finish(await site.take("ended"))
    await site.leased("runs")


async def test_children_go_with_their_parent(site: Site) -> None:
    await _family(site)
    assert await site.ok("CancelJob", jobID=1, any=True) == KEPT
    assert [await site.state(job) for job in (1, 2, 3, 4)] == [
        "CANCELLED",
        "(deleted)",
        "RUNNING",
        "CANCELLED",
    ]
    assert (await site.beat(3))["stop"] == [{"runID": 3, "signal": "TERM"}]
    await site.ok("FailJob", jobID=3, runID=3)
    assert await site.state(3) == "CANCELLED"
    assert {event["name"] for event in await site.events("cancelled")} == {"parent", "queued"}
    await site.later(3_601)
    assert [await site.state(job) for job in (1, 3, 4)] == ["(deleted)"] * 3


async def test_a_child_that_ends_well_after_all_reports_to_nobody(site: Site) -> None:
    await _family(site)
    await site.ok("CancelJob", jobID=1, any=True)
    await site.ok("FinishJob", jobID=3, runID=3)
    assert await _gone(site, 3)
    assert await site.state(1) == "CANCELLED"


@pytest.mark.parametrize("names", [["parent"], ["parent", "ended"], ["parent", "queued", "ended"]])
async def test_a_token_must_cover_every_pending_child(site: Site, names: list[str]) -> None:
    await _family(site)
    root = await admin_of(site)
    token = await root.token_for("some", "produce", ",".join(names))
    reply = await token.http("CancelJob", jobID=1, any=True)
    assert (reply.code, reply.json["reason"]) == (404, "Outside of the token's names")
    assert "runs" not in reply.json["detail"]
    all_of_them = await token.http("CancelJob", jobID=3, any=True)
    assert (all_of_them.code, all_of_them.json["reason"]) == (404, "No job with this jobID")
    whole = await root.token_for("whole", "produce", "parent,runs,queued")
    assert await whole.ok("CancelJob", jobID=1, any=True) == KEPT


async def test_an_operator_s_cancel_is_in_the_audit(site: Site) -> None:
    await site.create("a")
    root = await admin_of(site)
    await root.ok("CancelJob", jobID=1, any=True)
    entry = (await root.ok("ListAudit"))["entries"][0]
    assert (entry["command"], entry["by"], entry["name"]) == ("CancelJob", "root", "a")


async def test_a_schedule_stays_and_its_due_tick_is_skipped(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *")
    assert await site.ok("CancelJob", jobID=1, any=True) == NOTHING, "no tick is due"
    await site.later(300)
    assert await site.ok("CancelJob", jobID=1, any=True) == KEPT
    assert await site.ok("CancelJob", jobID=1, any=True) == NOTHING
    assert await site.nothing("s")
    (tick,) = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert (tick["outcome"], tick["reason"]) == ("skipped", "cancelled")
    assert await site.events("missed") == []
    await site.later(300)
    assert (await site.take("s"))["jobID"] == 1


async def test_a_retry_of_a_schedule_and_a_triggered_run_are_cancelled(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", retries=3, backoff="1m")
    await site.later(300)
    await site.fail(await site.take("s"))
    assert await site.ok("CancelJob", jobID=1, any=True) == KEPT
    due = await site.due(1)
    assert await site.ok("CancelJob", jobID=1, any=True) == NOTHING
    await site.ok("TriggerJob", jobID=1)
    assert await site.ok("CancelJob", jobID=1, any=True) == KEPT
    assert await site.due(1) == due
    assert await site.nothing("s")


async def test_cancelled_jobs_are_counted_and_found(site: Site) -> None:
    await site.create("a")
    await site.create("b", expireAfter="1h")
    await site.ok("CancelJob", jobID=1, any=True)
    page = (await Bearer(site).get("/ui/jobs?state=CANCELLED", Accept="text/html")).body
    assert ("/ui/jobs/1" in page, "/ui/jobs/2" in page) == (True, False)
    assert (await site.server.service.views.states.counts())["CANCELLED"] == (1, False)


async def test_a_client_that_waits_for_it_is_told(site: Site) -> None:
    await site.create("a", retries=3)
    await site.fail(await site.take("a"))
    await site.ok("CancelJob", jobID=1, any=True)
    async with AsyncClient(f"127.0.0.1:{site.port}") as client:
        with pytest.raises(JobFailed, match="job 1: cancelled"):
            await client.wait_for_job(1, 0)
