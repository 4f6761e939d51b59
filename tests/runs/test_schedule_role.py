"""Schedules need the role operate: no other role can create, change or end one, in any way."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Live
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer, admin_of

REFUSED = r"{}: schedules, and jobs that repeat, need the role operate; w has {}"


@pytest.mark.parametrize("repeat", ["CRON @daily", "FINISHED, +1 HOUR", "DAILY"])
async def test_no_producer_makes_a_job_that_repeats(live: Live, repeat: str) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "produce,work")
    words = REFUSED.format(r"repeat", "produce,work")
    for reply in (
        await who.http("CreateJob", name="a", repeat=repeat),
        await who.http("CreateJob", name="a", repeat=repeat, unique=True),
    ):
        assert reply.code == 403
        assert reply.json["detail"] == words
    told = await who.raw("CreateJob", name="a", repeat=repeat)
    assert (told.status, told.headers["error"]) == ("403 Forbidden", words)
    many = await who.http("CreateJobs", jobs=[{"name": "a"}, {"name": "b", "repeat": repeat}])
    assert (many.code, many.json["detail"]) == (403, REFUSED.format(r"jobs.1.repeat", "produce,work"))
    assert (await root.ok("ListJobs"))["jobs"] == []
    assert (await who.http("CreateJob", name="a", repeat="")).code == 200
    operator = await root.token_for("o", "operate")
    assert (await operator.http("CreateJob", name="b", repeat=repeat)).code == 200


async def test_no_worker_changes_or_ends_a_repetition(live: Live) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "work")
    job_id = (await root.ok("CreateJob", name="a", repeat="CRON @daily"))["jobID"]
    changes = {"repeat": {"repeat": "CRON @hourly"}, "shouldClearRepeat": {"shouldClearRepeat": True}}
    for place, change in changes.items():
        reply = await who.http("UpdateJob", jobID=job_id, data={"a": 1}, **change)
        assert (reply.code, reply.json["detail"]) == (403, REFUSED.format(place, "work"))
    await who.ok("UpdateJob", jobID=job_id, data={"a": 1}, jobPriority=750)
    job = await root.ok("QueryJob", jobID=job_id)
    assert (job["repeat"], job["data"], job["priority"]) == ("CRON @daily", {"a": 1}, 750)
    operator = await root.token_for("o", "operate")
    await operator.ok("UpdateJob", jobID=job_id, repeat="CRON @hourly")


@pytest.mark.parametrize("names", ["", "a*"])
async def test_no_producer_changes_a_schedule_as_a_unique_job(live: Live, names: str) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "produce", names)
    job_id = (await root.ok("CreateJob", name="a", repeat="CRON @daily", data={"a": 1}))["jobID"]
    given = {"name": "a", "unique": True, "data": {"a": 2}}
    alone = await who.http("CreateJob", **given)
    listed = await who.http("CreateJobs", jobs=[{"name": "a/new"}, given])
    for reply in (alone, listed):
        assert reply.code == 403
        assert (
            reply.json["detail"] == f"unique: job {job_id} repeats, and needs the role operate to be changed"
        )
    assert (await who.ok("CreateJob", name="a", unique=True, overwrite=False))["jobID"] == job_id
    (job,) = (await root.ok("ListJobs"))["jobs"]
    assert (job["repeat"], job["data"]) == ("CRON @daily", {"a": 1}), "and the list made nothing either"
    await root.ok("CreateJob", name="a/plain", data={"a": 1})
    await who.ok("CreateJob", name="a/plain", unique=True, data={"a": 2})


async def test_a_run_makes_no_schedule_with_its_token(live: Live) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "work")
    await root.ok("CreateJob", name="a")
    taken = await who.ok("GetJob", name="a", worker="w", runToken=True)
    run = Bearer(live, taken["runToken"])
    reply = await run.http("CreateJob", name="b", parentJobID=taken["jobID"], repeat="CRON @daily")
    assert (reply.code, reply.json["detail"]) == (403, REFUSED.format("repeat", "work"))
    await run.ok("CreateJob", name="b", parentJobID=taken["jobID"])


async def test_cronken_s_way_in_is_no_way_round(live: Live) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "produce,work,read")
    body = '{"name": "a", "cron_args": {"minute": "0"}, "job_args": {"cmd": "true"}}'
    head = ["POST /cronken/events HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in who.headers.items()]
    async with await Talk.open(live.port) as talk:
        talk.send(("\r\n".join([*head, "", ""]) + body).encode())
        assert (await talk.reply()).code != 500
    assert (await root.ok("ListJobs"))["jobs"] == []


async def test_pages_lead_producers_and_workers_to_no_form_of_schedules(live: Live) -> None:
    root = await admin_of(live)
    who = await root.token_for("w", "read,produce,work")
    job_id = (await root.ok("CreateJob", name="a", repeat="CRON @daily"))["jobID"]
    for path in ("/ui/schedules", f"/ui/schedules/{job_id}", f"/ui/jobs/{job_id}"):
        page = await who.get(path, Accept="text/html")
        assert page.code == 200
        assert not re.search(r"schedules/(new|\d+/edit)", page.body), path
    for path in ("/ui/schedules/new", f"/ui/schedules/{job_id}/edit"):
        page = await who.get(path, Accept="text/html")
        assert page.code == 403
        assert "a schedule needs the role operate; w has read,produce,work" in page.body


REPEATS = ("CRON @daily", "FINISHED, +1 HOUR")
ROLES = ("work", "work,produce", "operate", "admin")


async def test_nobody_renames_what_repeats_but_operators(live: Live) -> None:
    """Each command that gives a job a name, times roles, scopes and repeats; a job that ends is renamed."""
    root = await admin_of(live)
    for role in ROLES:
        for scope in ("", "a*") if role != "admin" else ("",):
            who = await root.token_for(f"{role.replace(',', '.')}{scope[:1]}", role, scope)
            for repeat in (*REPEATS, ""):
                may = not repeat or role in ("operate", "admin")
                for command in ("RetryJob", "RequeueJobs"):
                    given = {"repeat": repeat} if repeat else {}
                    job_id = (await root.ok("CreateJob", name="a", **given, firstRun="2020-01-01 00:00:00"))[
                        "jobID"
                    ]
                    await root.ok("GetJob", name="a")
                    which = {"jobID": job_id} if command == "RetryJob" else {"jobIDs": [job_id]}
                    for asked in (who.http, who.raw):
                        reply = await asked(command, **which, name="a/other")
                        assert reply.code == (200 if may else 403), (role, scope, repeat, command)
                        if may:
                            break
                    job = await root.ok("QueryJob", jobID=job_id)
                    assert job["name"] == ("a/other" if may else "a"), (role, repeat, command)
                    if not may:
                        assert (await who.http(command, **which, name="a")).code == 200, "its own name"
                    await root.ok("DeleteJob", jobID=job_id)
    renamed = (await root.ok("ListAudit", command="RequeueJobs"))["entries"]
    assert {entry["by"] for entry in renamed} == {"operate", "operatea", "admin"}


async def test_the_end_of_a_repetition_by_its_own_run_is_told_and_audited(live: Live) -> None:
    root = await admin_of(live)
    ended = []
    for scope in ("", "a*"):
        who = await root.token_for(f"w{scope[:1]}", "work", scope)
        for repeat in REPEATS:
            for asked, many in ((who.http, False), (who.raw, False), (who.http, True), (who.raw, True)):
                job_id = (
                    await root.ok("CreateJob", name="a", repeat=repeat, firstRun="2020-01-01 00:00:00")
                )["jobID"]
                await who.ok("GetJob", name="a")
                end = {"jobID": job_id, "data": {"delete": True}}
                reply = await (asked("FinishJobs", jobs=[end]) if many else asked("FinishJob", **end))
                assert reply.code == 200
                assert (await root.http("QueryJob", jobID=job_id)).code == 404
                ended.append((job_id, who))
    plain = (await root.ok("CreateJob", name="a"))["jobID"]
    await root.ok("GetJob", name="a")
    await root.ok("FinishJob", jobID=plain, data={"delete": True})
    events = [one for one in (await root.ok("Events", limit=500))["events"] if one["kind"] == "deleted"]
    assert sorted(one["jobID"] for one in events) == [job_id for job_id, _ in ended]
    entries = [
        entry for entry in (await root.ok("ListAudit"))["entries"] if entry["command"].startswith("FinishJob")
    ]
    assert sorted((one["jobID"], one["by"]) for one in entries) == sorted(
        (job_id, "w" if at < len(ended) // 2 else "wa") for at, (job_id, _) in enumerate(ended)
    )
    assert all(one["detail"] == {"data": {"delete": True}} and one["after"] is None for one in entries)
