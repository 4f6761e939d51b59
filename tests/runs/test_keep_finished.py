"""Successful jobs that are kept for a time, by the server's setting or their own option."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import NAMES_RUNS_MAX
from bedrockjobs.base.settings import Settings
from tests.runs.bearer import Bearer, admin_of
from tests.runs.conftest import Open
from tests.runs.rig import Site

DAY = 86_400

ENDS = ({}, {"worker": "w"})
"""What is sent along with a take: by a client without a name, and by a worker."""


@pytest.fixture
async def keeping(open_site: Open) -> Site:
    """Return a server that keeps finished jobs for a day."""
    return await open_site(keep_finished=DAY)


async def done(site: Site, name: str = "a", take: dict[str, Any] | None = None, **given: Any) -> int:
    """Let a job end well; return its jobID."""
    made = await site.ok("CreateJob", name=name, data={"to": "ada"}, **given)
    job = await site.ok("GetJob", name=name, **(take or {}))
    await site.ok("FinishJob", jobID=job["jobID"], data={"sent": 1.50})
    assert made["jobID"] == job["jobID"]
    return int(job["jobID"])


async def gone(site: Site, job_id: int) -> bool:
    """Tell whether nothing is known of a job."""
    return (await site.http("QueryJob", {"jobID": job_id})).code == 404


async def test_without_the_setting_nothing_is_kept_of_a_plain_job(site: Site) -> None:
    assert Settings().keep_finished == 0
    assert await gone(site, await done(site))
    assert await site.select("SELECT runID FROM runs") == []


@pytest.mark.parametrize("take", ENDS)
async def test_a_finished_job_is_found_for_so_long(keeping: Site, take: dict[str, Any]) -> None:
    job_id = await done(keeping, take=take)
    found = await keeping.ok("QueryJob", jobID=job_id)
    assert (found["state"], found["data"], found["result"]) == ("FINISHED", {"to": "ada"}, {"sent": 1.5})
    assert (found["created"], found["finished"][:19]) == ("2026-11-21 03:29:56",) * 2
    (run,) = await keeping.runs(name="a")
    assert (run["runID"], run["jobID"], run["status"]) == (found["runID"], job_id, "success")
    assert (run["worker"], run["result"]) == (take.get("worker", ""), {"sent": 1.5})
    assert (await keeping.ok("QueryRun", runID=run["runID"]))["data"] == {"to": "ada"}
    await keeping.restart()
    await keeping.later(DAY - 60)
    assert not await gone(keeping, job_id)
    await keeping.later(3_600)
    assert await gone(keeping, job_id)
    assert await keeping.runs(name="a") == []


async def test_it_is_told_by_the_raw_protocol_too(keeping: Site) -> None:
    job_id = await done(keeping)
    reply = await keeping.ask("QueryJob", jobID=job_id)
    assert (reply.json["state"], reply.json["result"]) == ("FINISHED", {"sent": 1.5})


async def test_the_jobs_own_time_goes_before(keeping: Site) -> None:
    short, none = await done(keeping, "a", keep="1h"), await done(keeping, "b", keep=0)
    assert not await gone(keeping, short)
    assert await gone(keeping, none)
    await keeping.later(3 * 3_600)
    assert await gone(keeping, short)


async def test_a_job_may_ask_a_server_that_keeps_none(site: Site) -> None:
    job_id = await done(site, keep="30d", tags=["x"])
    found = await site.ok("QueryJob", jobID=job_id)
    assert (found["keep"], found["tags"]) == (30 * DAY, ["x"])
    await site.later(29 * DAY)
    assert not await gone(site, job_id)


async def test_neither_unique_nor_a_take_sees_it(keeping: Site) -> None:
    first = await done(keeping, unique=True)
    assert await keeping.nothing("a")
    made = await keeping.ok("CreateJob", name="a", unique=True)
    assert made["jobID"] != first
    assert (await keeping.http("DeleteJob", {"jobID": first})).code == 404


async def test_finish_jobs_keeps_each(keeping: Site) -> None:
    await keeping.ok("CreateJobs", jobs=[{"name": "a"}, {"name": "a"}])
    taken = (await keeping.ok("GetJobs", name="a", numResults=2))["jobs"]
    await keeping.ok("FinishJobs", jobs=[{"jobID": job["jobID"]} for job in taken])
    assert [run["jobID"] for run in await keeping.runs(name="a")] == [taken[1]["jobID"], taken[0]["jobID"]]


async def test_what_repeats_is_kept_only_where_it_asks(keeping: Site) -> None:
    await done(keeping, "a", repeat="FINISHED, +1 HOUR")
    assert await keeping.runs(name="a") == []
    await done(keeping, "b", repeat="FINISHED, +1 HOUR", keep="2d")
    (run,) = await keeping.runs(name="b")
    assert (await keeping.ok("QueryJob", jobID=run["jobID"]))["state"] == "QUEUED"


async def test_failures_and_mocked_jobs_are_as_ever(keeping: Site) -> None:
    await keeping.create("a")
    await keeping.ok("FailJob", jobID=(await keeping.ok("GetJob", name="a"))["jobID"])
    await keeping.create("m", data={"mockRequest": True})
    mocked = await keeping.ok("GetJob", name="m", getMockedJobs=True)
    await keeping.ok("FinishJob", jobID=mocked["jobID"])
    assert await keeping.select("SELECT runID FROM runs") == []


async def test_it_can_be_run_again(keeping: Site) -> None:
    job_id = await done(keeping, tags=["x"], jobPriority=750)
    (run,) = await keeping.runs(name="a")
    again = await keeping.ok("RunAgain", runID=run["runID"])
    assert again["jobID"] != job_id
    job = await keeping.ok("GetJob", name="a")
    assert (job["data"], job["tags"], job["priority"]) == ({"to": "ada"}, ["x"], 750)


async def test_what_is_kept_for_a_time_displaces_no_other(site: Site) -> None:
    assert NAMES_RUNS_MAX >= 22_000
    kept = [await done(site, take={"worker": "w"}, keep="1d") for _ in range(5)]
    others = [await done(site, take={"worker": "w"}, keepSuccess=2) for _ in range(5)]
    found = {run["jobID"] for run in await site.runs(name="a")}
    assert found == {*kept, *others[-2:]}


async def test_beyond_the_most_runs_only_others_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedrockjobs.store.records.RUNS_KEPT_MAX", 3)
    kept = [await done(site, take={"worker": "w"}, keep="1d") for _ in range(3)]
    others = [await done(site, take={"worker": "w"}) for _ in range(6)]
    for _ in range(2):
        await site.later(3_600)
    assert {run["jobID"] for run in await site.runs(name="a")} == {*kept, *others[-3:]}


async def test_a_narrow_token_sees_only_its_names_and_no_data_where_it_may_not(keeping: Site) -> None:
    first, other = await done(keeping, "mail/a"), await done(keeping, "other")
    admin = await admin_of(keeping)
    mail = await admin.token_for("mail", "read", "mail/*", noData=True)
    found = await mail.ok("QueryJob", jobID=first)
    assert (found["state"], found["hidden"]) == ("FINISHED", ["data", "result"])
    assert found.keys().isdisjoint({"data", "result"})
    hidden, nobody = [await mail.http("QueryJob", jobID=number) for number in (other, 999)]
    assert (hidden.code, nobody.code) == (404, 404)


async def test_its_page_says_how_it_ended(keeping: Site) -> None:
    job_id = await done(keeping)
    page = await Bearer(keeping).get(f"/ui/jobs/{job_id}")
    assert "taken by a client without a name" in page.body
