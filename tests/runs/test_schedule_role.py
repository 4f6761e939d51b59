"""Schedules need the role operate: no other role can create, change or end one, in any way."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import pytest

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.commands import ALL, Command
from tests.conftest import Live
from tests.effort import PROFILE, crossed
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


DUE, NEVER = "2020-01-01 00:00:00", "9998-01-01 00:00:00"

PUT_OFF: dict[str, tuple[bool, dict[str, Any]]] = {
    "CreateJob": (False, {"name": "a/child", "firstRun": NEVER}),
    "CreateJobs": (False, {"jobs": [{"name": "a/child", "firstRun": NEVER}, {"name": "a/child"}]}),
    "UpdateJob": (False, {"nextRun": NEVER}),
    "RetryJob": (True, {"nextRun": NEVER}),
    "FailJob": (True, {"delay": 30_000_000, "retries": 9}),
}
"""Ways to plan a child for later than the next run of its parent, and whether it runs then."""


@pytest.mark.parametrize("way", PUT_OFF)
async def test_a_child_that_keeps_a_schedule_waiting_is_told_and_audited(live: Live, way: str) -> None:
    """By each role that may do it, with a run token and without; a child before the next run is usual."""
    root = await admin_of(live)
    soon = after_seconds((await root.ok("Status"))["now"], 60)
    runs, change = PUT_OFF[way]
    for at, role in enumerate(("produce,work", "work", "run")):
        name = f"a{at}"
        worker = await root.token_for(f"w{at}", "work" if role == "run" else role)
        job_id = (await root.ok("CreateJob", name=name, repeat="CRON @daily", firstRun=DUE))["jobID"]
        taken = await worker.ok("GetJob", name=name, worker="w", runToken=True)
        who = Bearer(live, taken["runToken"]) if role == "run" else worker
        child = (await root.ok("CreateJob", name="a/child", parentJobID=job_id, firstRun=soon))["jobID"]
        if way.startswith("Create"):
            specs = [{**spec, "parentJobID": job_id} for spec in change.get("jobs", [change])]
            asked = {"jobs": specs} if way == "CreateJobs" else specs[0]
            again = [{**spec, "firstRun": soon} for spec in specs]
            usual = {"jobs": again} if way == "CreateJobs" else again[0]
        else:
            usual, asked = {"jobID": child, "nextRun": soon}, {"jobID": child, **change}
        may = role != "work" if way.startswith("Create") else role != "run"
        if runs:
            await root.ok("FinishJob", jobID=job_id, runID=taken["runID"])
            await root.ok("UpdateJob", jobID=child, nextRun=DUE)
            await root.ok("GetJob", name="a/child")
        else:
            assert (await who.http(way, **usual)).code == (200 if may else 403)
        before = await plan_of(root, job_id)
        assert (await who.http(way, **asked)).code == (200 if may else 403), (way, role)
        assert await plan_of(root, job_id) == before
        events = (await root.ok("Events", name=name, limit=1_000))["events"]
        told = [(one["by"], one["detail"]) for one in events if one["kind"] == "changed"]
        entries = (await root.ok("ListAudit", command=way))["entries"]
        kept = [one for one in entries if one["jobID"] == job_id and one["by"] != "root"]
        assert (len(told), [one["by"] for one in kept]) == ((1, [f"w{at}"]) if may else (0, [])), (way, role)
        if may:
            assert told[0][0] == f"w{at}"
            if not runs:
                await root.ok("FinishJob", jobID=job_id, runID=taken["runID"])
            assert (await plan_of(root, job_id))["state"] == "PAUSED", "it waits"
            assert re.fullmatch(rf"{way}: waits for its child \d+, next run at .+", told[0][1]), told


VALUES: dict[str, list[Any]] = {
    "nextRun": [NEVER],
    "firstRun": [NEVER],
    "delay": [30_000_000],
    "ignoreRepeat": [True],
    "data": [{"delete": True}, {"originalNextRun": NEVER}, {"a": 1}],
    "jobPriority": [1_000],
    "revive": [True],
    "returned": [True],
    "snoozed": [True],
    "unfit": ["no"],
    "final": [True],
    "retries": [9],
    "repeat": ["", "CRON @hourly"],
    "shouldClearRepeat": [True],
    "unique": [True],
    "overwrite": [True],
    "any": [True],
    "thenGet": ["a"],
    "decrementFailures": [True],
    "event": ["fail"],
}
"""What a command may say of a job's plan, with values that would put a schedule off, end it or start it."""

ENDS = ("GetJob", "GetJobs", "FinishJob", "FinishJobs", "FailJob", "RetryJob", "RequeueJobs", "PingSchedule")
"""The commands of a run: they plan the next one."""


def asked_of(kind: type[Command[Any]], name: str, job_id: int, run_id: int) -> list[dict[str, Any]]:
    """Return requests of a command about one job, each with at most one value that would change its plan."""
    fields = kind.wire_names
    if kind.__name__ == "FinishJobs":
        return [{"jobs": [{"jobID": job_id, "data": data}]} for data in VALUES["data"]]
    if kind.__name__ in ("CreateJobs", "AddToWorkflow", "CreateWorkflow", "SyncSchedules"):
        specs = [{"name": name, "unique": True, "data": {"a": 2}}, {"name": name, "parentJobID": job_id}]
        key = "schedules" if kind.__name__ == "SyncSchedules" else "jobs"
        return [{**kind.example.request, key: [spec]} for spec in specs]
    about: dict[str, Any] = {}
    if "jobid" in fields:
        about["jobID"] = job_id
    elif "jobids" in fields:
        about["jobIDs"] = [job_id]
    elif "runid" in fields:
        about["runID"] = run_id or 1
    elif "name" in fields:
        about["name"] = name
    if kind.role in ("operate", "admin") or not about:
        return [{**kind.example.request, **about}]
    ways = [about]
    if "ignorerepeat" in fields:
        ways.append({**about, "ignoreRepeat": True})
    if run_id and "runid" in fields:
        ways.append({**ways[-1], "runID": run_id})
    more = [{key: value} for key, values in VALUES.items() if key.lower() in fields for value in values]
    if "name" in fields and "name" not in about and kind.__name__ != "PingSchedule":
        more.append({"name": f"{name}/other"})
    return ways + ([{**way, **one} for way, one in crossed(ways, more)] if more else [])


async def planned(root: Bearer, repeat: str, state: str, name: str) -> tuple[int, int, str]:
    """Make what repeats in a state; return its jobID, runID and run token."""
    due = "2100-01-01 00:00:00" if state == "waiting" else DUE
    job_id = (await root.ok("CreateJob", name=name, repeat=repeat, firstRun=due))["jobID"]
    if state == "waiting":
        return job_id, 0, ""
    worker = {} if state == "no run" else {"worker": "w", "runToken": True}
    taken = await root.ok("GetJob", name=name, **worker)
    if state == "failed":
        await root.ok("FailJob", jobID=job_id, runID=taken["runID"], final=True)
    return job_id, taken.get("runID", 0), taken.get("runToken", "")


async def plan_of(root: Bearer, job_id: int) -> dict[str, Any]:
    """Return what says when and as what a job runs; empty if there is none any more."""
    reply = await root.http("QueryJob", jobID=job_id)
    if reply.code != 200:
        return {}
    return {key: reply.json[key] for key in ("name", "repeat", "nextRun", "priority", "data", "state")}


def is_usual(kind: str, before: dict[str, Any], after: dict[str, Any], until: str) -> bool:
    """Return whether a change is that of a run by its own commands, with the next one up to a time."""
    if not after or any(before[key] != after[key] for key in ("name", "repeat", "priority")):
        return False
    if "originalNextRun" in after["data"]:
        return False
    if kind == "UpdateJob":
        return before["state"] == "RUNNING" and {**before, "data": after["data"]} == after
    return kind in ENDS and before["state"] != "FAILED" and after["nextRun"] <= until


ASKERS = (("read", ""), ("produce", "a*"), ("work", ""), ("read,produce,work", "a*"), ("run", ""))
STATES = ("waiting", "running", "no run", "failed")


@pytest.mark.parametrize(("repeat", "state"), crossed(["CRON @daily", "SCHEDULED, +1 HOUR"], STATES))
async def test_nothing_changes_a_schedule_silently(live: Live, repeat: str, state: str) -> None:
    """Every command, times roles, scopes and the run's token: it is as before, or audited and an event.

    By day all who ask do so in one state, and every other one in each of the others.
    """
    root = await admin_of(live)
    until = after_seconds((await root.ok("Status"))["now"], 90_000 if repeat.startswith("CRON") else 7_000)
    changed: set[str] = set()
    names = (f"a{number}" for number in count())
    askers = ASKERS if PROFILE == "random" or state == "running" else ASKERS[STATES.index(state) % 2 :: 2]
    for role, scope in askers:
        if role == "run" and state != "running":
            continue
        who = root if role == "run" else await root.token_for(role.replace(",", "."), role, scope)
        name = next(names)
        job_id, run_id, token = await planned(root, repeat, state, name)
        before = await plan_of(root, job_id)
        for kind in ALL:
            if state != "waiting" and kind.role in ("operate", "admin"):
                continue
            for at in range(len(asked_of(kind, name, job_id, run_id))):
                body = asked_of(kind, name, job_id, run_id)[at]
                asker = Bearer(live, token) if role == "run" else who
                await asker.http(kind.__name__, **body)
                after = await plan_of(root, job_id)
                if after == before:
                    continue
                if not is_usual(kind.__name__, before, after, until if state != "waiting" else ""):
                    said = (kind.__name__, body, before, after)
                    assert role != "run", said
                    changed.add(kind.__name__)
                    entries = (await root.ok("ListAudit", command=kind.__name__))["entries"]
                    assert (role.replace(",", "."), job_id) in [
                        (one["by"], one["jobID"]) for one in entries
                    ], said
                    (*_, event) = [
                        one
                        for one in (await root.ok("Events", name=name, limit=1_000))["events"]
                        if one["kind"] in ("changed", "deleted", "cancelled") and one["jobID"] == job_id
                    ]
                    assert event["by"] == role.replace(",", "."), said
                name = next(names)
                job_id, run_id, token = await planned(root, repeat, state, name)
                before = await plan_of(root, job_id)
    assert changed >= {"UpdateJob"}, "the walk changes something"
