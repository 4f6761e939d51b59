"""A restored queue is held: what the hold prevents, how it is reported, and the effect of its release."""

from __future__ import annotations

import pytest

from bedrockjobs.job.eligibility import RELEASE
from tests.runs.restored import restored
from tests.runs.rig import Site


async def ready(site: Site) -> str:
    """Return what `/readyz` says, which must be 200."""
    talk = await site.connect()
    talk.send("GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reply = await talk.reply()
    assert reply.code == 200
    return reply.body


async def test_nothing_is_handed_out_until_it_is_released(site: Site) -> None:
    await site.create("plain")
    await restored(site)
    assert await site.nothing("*")
    assert await site.nothing("plain", worker="w")
    talk = await site.asking("plain")
    await site.create("plain")
    assert await talk.silent()
    assert (await site.ok("ReleaseHold", by="bob"))["reason"] == "restored from a.db"
    assert (await talk.reply()).json["name"] == "plain"


async def test_what_became_due_while_it_was_down_is_not_fired_at_once(site: Site) -> None:
    await site.create("cron", repeat="CRON */5 * * * *", catchup="all")
    await restored(site, down=3_600)
    await site.later(60)
    assert await site.nothing("*")
    await site.ok("ReleaseHold")
    assert await site.nothing("*")
    ticks = (await site.ok("ListTicks", jobID=1))["ticks"]
    assert {(tick["outcome"], tick["reason"]) for tick in ticks} == {("skipped", "paused")}
    assert sum(tick["count"] for tick in ticks) >= 12
    await site.later(300)
    assert (await site.take("*"))["name"] == "cron"


async def test_a_job_that_somebody_had_triggered_waits_too(site: Site) -> None:
    await site.create("cron", repeat="CRON 0 0 1 1 *")
    await site.create("plain", firstRun="2030-01-01 00:00:00")
    before = await site.due(1)
    for job_id in (1, 2):
        await site.ok("TriggerJob", jobID=job_id)
    await restored(site)
    assert await site.nothing("*")
    assert await site.due(1) == before
    await site.ok("ReleaseHold")
    assert (await site.take("*"))["name"] == "plain"
    assert await site.nothing("*")


async def test_a_run_that_was_asked_for_after_the_present_one_is_not_done(site: Site) -> None:
    await site.create("cron", repeat="CRON * * * * *")
    await site.later(60)
    job = await site.take("cron", worker="w")
    await site.ok("TriggerJob", jobID=1)
    await restored(site)
    await site.finish(job)
    assert await site.nothing("*")


async def test_somebody_may_try_a_job_all_the_same(site: Site) -> None:
    await site.create("a")
    await restored(site)
    await site.ok("TriggerJob", jobID=1)
    assert (await site.take("*"))["name"] == "a"


async def test_resuming_everything_releases_nothing(site: Site) -> None:
    await site.create("a")
    await restored(site)
    await site.ok("PauseJobs", name="a")
    for name in ("*", "***"):
        assert (await site.refused("ResumeJobs", name=name))[0] == 404
    assert (await site.ok("ResumeJobs", all=True))["resumed"] == ["a"]
    assert await site.nothing("a")
    assert (await site.refused("ResumeJobs", name="a"))[0] == 404


async def test_a_pause_of_nothing_but_asterisks_is_no_hold(site: Site) -> None:
    await site.create("a")
    await site.ok("PauseJobs", name="***")
    assert (await site.refused("ReleaseHold")) == (404, "Not held")
    assert (await site.ok("ResumeJobs", name="***"))["resumed"] == ["*"]
    assert (await site.take("a"))["name"] == "a"


@pytest.mark.parametrize("restarted", [False, True])
async def test_it_is_told_wherever_somebody_looks(site: Site, restarted: bool) -> None:
    await site.create("a")
    await restored(site)
    if restarted:
        await site.restart()
    words = f"everything has been held by ann since {site.now[:10]}"
    problem = (await site.ok("Overview"))["problems"][0]
    assert (problem["kind"], problem["count"]) == ("held", 1)
    assert problem["detail"].startswith(words)
    assert problem["detail"].endswith(RELEASE)
    reason = (await site.ok("ExplainJob", jobID=1))["waitsFor"][0]
    assert (reason["reason"], reason["detail"].startswith(words)) == ("held", True)
    assert await ready(site) == f"ok, but everything has been held since {problem['since'][:19]}; {RELEASE}\n"
    await site.ok("ReleaseHold")
    await site.rest()
    assert await ready(site) == "ok\n"
    assert (await site.ok("Overview"))["problems"][0]["kind"] != "held"
    kinds = [event["kind"] for event in (await site.ok("Events", limit=1000))["events"]]
    assert kinds.index("held") < kinds.index("released")


async def test_the_page_of_schedules_releases_all_and_resumes_nothing(site: Site) -> None:
    await site.create("cron", repeat="CRON 0 0 1 1 *")
    await restored(site)
    talk = await site.connect()
    talk.send("GET /ui/schedules HTTP/1.1\r\nHost: localhost\r\n\r\n")
    page = (await talk.reply()).body
    assert 'data-command="ReleaseHold"' in page
    assert 'data-command="ResumeJobs"' not in page


async def test_a_workflow_waits_too_and_goes_on_after_the_release(site: Site) -> None:
    jobs = [
        {"ref": "a", "name": "a"},
        {"ref": "b", "name": "b", "after": ["a"]},
        {"ref": "c", "name": "c", "after": ["b"]},
    ]
    workflow = (await site.ok("CreateWorkflow", name="w", jobs=jobs))["workflowID"]
    job = await site.take("a")
    await restored(site)
    await site.finish(job, data={"n": 1})
    assert await site.nothing("*")
    await site.ok("ReleaseHold")
    job = await site.take("b")
    assert job["before"] == {"a": {"n": 1}}
    await site.finish(job)
    await site.finish(await site.take("c"))
    shown = await site.ok("QueryWorkflow", workflowID=workflow)
    assert (shown["state"], shown["open"]) == ("FINISHED", 0)
