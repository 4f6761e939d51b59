"""A run token permits progress, output and children of its own run, while the run is open."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.engine.authorization import WORDS
from tests.conftest import Live
from tests.runs.bearer import Bearer, admin_of


async def taken(live: Live, by: Bearer, name: str = "mail/a") -> tuple[dict[str, Any], Bearer]:
    """Return a job that was taken, and who has the token of its run."""
    job = (await by.raw("GetJob", name=name, worker="w", runToken="true")).json
    return job, Bearer(live, job["runToken"])


async def test_a_command_tells_its_progress_prints_and_has_children(live: Live) -> None:
    root = await admin_of(live)
    for name in ("mail/a", "mail/b"):
        await root.http("CreateJob", name=name)
    job, command = await taken(live, root)
    job_id, run_id = job["jobID"], job["runID"]
    for asks in (command.http, command.raw):
        assert (await asks("UpdateJob", jobID=job_id, progress={"percent": 40})).code == 200
        assert (await asks("QueryJob", jobID=job_id)).json["name"] == "mail/a"
    assert (await command.http("AppendOutput", runID=run_id, seq=1, lines=["hello"])).code == 200
    child = (await command.http("CreateJob", name="any/child", parentJobID=job_id)).json["jobID"]
    assert (await root.http("QueryJob", jobID=child)).json["parentJobID"] == job_id
    assert (await root.http("QueryRun", runID=run_id)).json["progress"] == {"percent": 40}

    refused = await command.http("CreateJob", name="any/child")
    assert (refused.code, refused.json["detail"]) == (403, WORDS)
    for verb, given in (
        ("QueryJob", {"jobID": 2}),
        ("FinishJob", {"jobID": job_id}),
        ("GetJob", {"name": "*"}),
        ("Status", {}),
        ("ListJobs", {}),
        ("ListTokens", {}),
        ("Query", {"query": "SELECT 1;"}),
    ):
        assert (await command.http(verb, **given)).code == 403, verb
    for path in ("/ui/", "/metrics", "/events", f"/runs/{run_id}/output", "/ui/live"):
        assert (await command.get(path)).code == 403, path


@pytest.mark.parametrize("end", ["FinishJob", "FailJob", "RetryJob"])
async def test_it_counts_no_more_once_the_run_is_over(live: Live, end: str) -> None:
    root = await admin_of(live)
    await root.http("CreateJob", name="mail/a")
    job, command = await taken(live, root)
    assert (await command.http("QueryJob", jobID=job["jobID"])).code == 200
    assert (await root.http(end, jobID=job["jobID"], runID=job["runID"])).code == 200
    late = await command.http("CreateJob", name="a", parentJobID=job["jobID"])
    assert (late.code, late.json["detail"]) == (403, "the run of this token is over")


async def test_it_may_do_no_more_than_the_token_its_job_was_taken_with(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work", "mail/*")
    await root.http("CreateJob", name="mail/a")
    job, command = await taken(live, worker, "mail/*")
    own = {"parentJobID": job["jobID"]}
    assert (await command.http("CreateJob", name="deploy/prod", **own)).code == 404
    assert (await command.http("CreateJob", name="mail/child", **own)).code == 200
    await root.http("RevokeToken", name="w")
    assert (await command.http("CreateJob", name="mail/child", **own)).code == 401


async def test_a_wrong_one_is_nobodys(live: Live) -> None:
    root = await admin_of(live)
    await root.http("CreateJob", name="mail/a")
    job, command = await taken(live, root)
    other = Bearer(live, command.token.replace("bjr_1_", "bjr_2_", 1))
    refused = await other.http("QueryJob", jobID=job["jobID"])
    assert (refused.code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="bedrockjobs"')


OWN = {
    "cmd": {"cmd": "true"},
    "argv": {"argv": ["true"]},
    "url": {"url": {"url": "https://example.com"}},
    "an empty one": {"cmd": ""},
    "none": {},
    "data": {"data": {"cmd": "true"}, "tags": ["a"]},
}
"""What a child may bring: commands of its own, or nothing that says what is run."""


async def test_children_bring_a_command_only_where_the_workers_token_creates(live: Live) -> None:
    """Each role with which jobs are taken, times scopes, commands, ways to create and protocols."""
    root = await admin_of(live)
    refused: list[tuple[str, str]] = []
    for role in ("work", "work,read", "work,produce", "operate", "admin"):
        for scope in ("", "mail/*") if role != "admin" else ("",):
            worker = await root.token_for(f"{role.replace(',', '.')}{scope[:4]}", role, scope)
            step = {"ref": "a", "name": "mail/a"}
            await root.ok("CreateWorkflow", name="mail/flow", jobs=[step])
            job, command = await taken(live, worker)
            for number, (what, given) in enumerate(OWN.items()):
                added = {"ref": f"more {number}", "name": "mail/more", "after": ["a"], **given}
                if what == "none":  # its parent is the workflow
                    added.pop("after")
                spec = {"name": "mail/child", "parentJobID": job["jobID"], **given}
                replies = [
                    await command.http("CreateJob", **spec),
                    await command.raw("CreateJob", **spec),
                    await command.http("CreateJobs", jobs=[spec]),
                    await command.http("CreateJob", **spec, unique=True),
                    await command.http("AddToWorkflow", jobID=job["jobID"], jobs=[added]),
                    await command.raw("AddToWorkflow", jobID=job["jobID"], jobs=[added], existing="keep"),
                ]
                codes = {reply.code for reply in replies}
                if codes == {403}:
                    refused.append((role, what))
                    assert "need the role produce" in replies[0].json["detail"]
                else:
                    assert 403 not in codes, (role, what, codes)
            await root.ok("FinishJob", jobID=job["jobID"])
    every = ["cmd", "argv", "url"]
    for role in ("work", "work,read"):
        found = [what for one, what in refused if one == role]
        assert found.count("cmd") == 2, "narrowed or not"
        assert set(found) == set(every)
    assert {role for role, _ in refused} == {"work", "work,read"}


async def test_whoever_took_a_job_without_a_token_has_no_more_by_that_of_its_run(live: Live) -> None:
    await live.http("CreateJob", {"name": "mail/a"})
    job, command = await taken(live, Bearer(live))
    await admin_of(live)
    own = {"name": "mail/child", "parentJobID": job["jobID"]}
    assert (await command.http("CreateJob", **own, cmd="true")).code == 403
    assert (await command.http("CreateJob", **own)).code == 200
