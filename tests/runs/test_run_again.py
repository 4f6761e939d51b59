"""RunAgain: repeat a run with its input."""

from __future__ import annotations

from typing import Any

from tests.runs.rig import Site


async def again(site: Site, run_id: int = 1, **more: Any) -> dict[str, Any]:
    """Run a run again; return the answer."""
    found: dict[str, Any] = await site.ok("RunAgain", runID=run_id, **more)
    return found


async def test_a_run_keeps_what_it_was_given_and_what_came_of_it(site: Site) -> None:
    await site.create("a", data={"to": "ada"}, argv=["true"], retryAfter="+1 HOUR")
    job = await site.take("a", accepts="argv")
    await site.ok("UpdateJob", jobID=1, data={"to": "bob"})
    await site.finish(job, data={"sent": True})
    run = await site.run(1)
    assert (run["data"], run["result"]) == ({"to": "ada"}, {"sent": True})


async def test_a_job_that_is_gone_is_made_anew(site: Site) -> None:
    options = {"argv": ["send", "--now"], "retries": 2, "jobPriority": 750, "tags": ["mail"]}
    await site.create("mail/a", data={"to": "ada", "n": 1.50}, **options)
    await site.finish(await site.take("mail/a", accepts="argv"))
    assert await again(site, by="ann") == {"jobID": 2, "pending": False}
    job = await site.take("mail/a", accepts="argv")
    assert (job["data"], job["argv"], job["priority"]) == ({"to": "ada", "n": 1.5}, ["send", "--now"], 750)
    assert (job["retries"], job["tags"], job["attempt"]) == (2, ["mail"], 1)
    (event,) = await site.events("triggered")
    assert (event["jobID"], event["by"], event["detail"]) == (2, "ann", "run 1 again")


async def test_a_dead_letter_stays_beside_the_new_job(site: Site) -> None:
    await site.create("a", data={"n": 1})
    await site.fail(await site.take("a"))
    await site.ok("UpdateJob", jobID=1, data={"n": 2})
    assert (await again(site))["jobID"] == 2
    assert (await site.take("a"))["data"] == {"n": 1}
    assert await site.state(1) == "FAILED"


async def test_a_schedule_is_triggered_and_never_runs_twice_at_once(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *")
    await site.until_time("2026-11-21 03:30:00")
    job = await site.take("s")
    assert await again(site) == {"jobID": 1, "pending": True}
    assert await site.nothing("s")
    await site.finish(job)
    await site.finish(await site.take("s"))
    assert await again(site) == {"jobID": 1, "pending": False}
    await site.finish(await site.take("s"))
    assert [run["cause"] for run in await site.runs()] == ["manual", "manual", "schedule"]
    assert await site.due(1) == "2026-11-21 03:35:00"


async def test_a_run_of_a_schedule_that_is_gone_is_done_once(site: Site) -> None:
    await site.create("s", repeat="CRON */5 * * * *", catchup="all", jitter=0, data={"n": 1})
    await site.until_time("2026-11-21 03:30:00")
    await site.finish(await site.take("s"))
    await site.ok("DeleteJob", jobID=1)
    assert (await again(site))["jobID"] == 2
    job = await site.take("s")
    assert (job["repeat"], job["data"], "catchup" in job) == ("", {"n": 1}, False)
    await site.finish(job)
    assert await site.state(2) == "(deleted)"


async def test_a_mocked_job_stays_mocked(site: Site) -> None:
    await site.create("a", mockRequest=True)
    await site.finish(await site.take("a", getMockedJobs=True), data={"mockRequest": True})
    await again(site)
    assert await site.nothing("a")
    assert (await site.take("a", getMockedJobs=True))["jobID"] == 2


async def test_refusals(site: Site) -> None:
    assert await site.refused("RunAgain", runID=1) == (404, "No run with this runID")
    await site.create("a")
    await site.finish(await site.take("a"))
    await site.change("UPDATE runs SET data = ''")
    assert await site.refused("RunAgain", runID=1) == (405, "Run has no data")
