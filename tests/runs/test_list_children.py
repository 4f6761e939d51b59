"""ListChildren: the state of the jobs that a job created."""

from __future__ import annotations

from tests.runs.rig import Site


async def test_children_are_listed_by_job_id_with_their_state(site: Site) -> None:
    await site.create("parent")
    await site.create("stranger")
    await site.ok("GetJob", name="parent")
    children = [await site.create(f"child/{n}", parentJobID=1, data={"n": n}) for n in range(3)]
    found = (await site.ok("ListChildren", jobID=1))["jobs"]
    assert [job["jobID"] for job in found] == children
    assert {(job["state"], job["parentJobID"]) for job in found} == {("PAUSED", 1)}
    assert [job["data"]["n"] for job in found] == [0, 1, 2]
    await site.ok("FinishJob", jobID=1)
    await site.ok("GetJob", name="child/0")
    found = (await site.ok("ListChildren", jobID=1))["jobs"]
    assert [job["state"] for job in found] == ["RUNNING", "QUEUED", "QUEUED"]


async def test_pages_follow_each_other(site: Site) -> None:
    await site.create("parent")
    await site.ok("GetJob", name="parent")
    children = [await site.create("child", parentJobID=1) for _ in range(5)]
    pages = []
    after = 0
    while jobs := (await site.ok("ListChildren", jobID=1, after=after, limit=2))["jobs"]:
        pages.append([job["jobID"] for job in jobs])
        after = jobs[-1]["jobID"]
    assert pages == [children[:2], children[2:4], children[4:]]


async def test_a_job_without_children_and_no_job_have_none(site: Site) -> None:
    await site.create("a")
    await site.create("b")
    assert (await site.ok("ListChildren", jobID=1))["jobs"] == []
    assert (await site.ok("ListChildren", jobID=99))["jobs"] == []
    assert (await site.ok("ListChildren", jobID=0))["jobs"] == []
    assert (await site.refused("ListChildren"))[:2] == (402, "Missing jobID")
