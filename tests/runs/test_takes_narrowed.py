"""Takes after the end of a run, by scoped tokens: no job is lost."""

from __future__ import annotations

from typing import Any

from tests.conftest import Live
from tests.runs.bearer import Bearer, admin_of


def names_of(jobs: list[dict[str, Any]]) -> list[str]:
    """Return the names of some jobs."""
    return [job["name"] for job in jobs]


async def states(root: Bearer) -> dict[str, str]:
    """Return the state of each job by its name."""
    return {job["name"]: job["state"] for job in (await root.ok("ListJobs"))["jobs"]}


async def test_finishing_some_takes_the_next_that_are_seen(live: Live) -> None:
    root = await admin_of(live)
    for name in ("mine/1", "mine/2", "mine/3", "theirs/1", "theirs/2"):
        await root.ok("CreateJob", name=name)
    worker = await root.token_for("w", "work", "mine/*")
    first = (await worker.ok("GetJob", name="mine/1"))["jobID"]
    theirs = (await root.ok("GetJob", name="theirs/1"))["jobID"]
    ends = [{"jobID": theirs}, {"jobID": first}]
    done = await worker.ok("FinishJobs", jobs=ends, thenGet="*", numResults=9)
    assert [one["code"] for one in done["results"]] == [404, 200]
    assert names_of(done["jobs"]) == ["mine/2", "mine/3"]
    assert await states(root) == {
        "mine/2": "RUNNING",
        "mine/3": "RUNNING",
        "theirs/1": "RUNNING",
        "theirs/2": "QUEUED",
    }


async def test_where_none_of_them_is_seen_the_next_are_taken_all_the_same(live: Live) -> None:
    root = await admin_of(live)
    for name in ("mine/1", "theirs/1"):
        await root.ok("CreateJob", name=name)
    worker = await root.token_for("w", "work", "mine/*")
    theirs = (await root.ok("GetJob", name="theirs/1"))["jobID"]
    done = await worker.ok("FinishJobs", jobs=[{"jobID": theirs}], thenGet="*", worker="w1")
    nobodys = await worker.ok("FinishJobs", jobs=[{"jobID": 999}], thenGet="*", worker="w1")
    assert (done["results"][0]["code"], names_of(done["jobs"])) == (404, ["mine/1"])
    assert {**done["results"][0], "jobID": 999} == nobodys["results"][0]
    assert await states(root) == {"mine/1": "RUNNING", "theirs/1": "RUNNING"}
