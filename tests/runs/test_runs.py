"""Runs: opened by a take that names its worker, reported while they last, and shown."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import ID_BLOCK
from bedrockjobs.engine.batch import SERVED_AT_ONCE_MAX
from tests.protocol.talk import request
from tests.runs.rig import LONG_MS, Site

# --- opened ----------------------------------------------------------------------------------------------


async def test_a_take_that_names_its_worker_opens_a_run(site: Site) -> None:
    await site.create("a", data={"x": 1})
    job = await site.take("a", "w1", host="h", pid=42)
    assert (job["runID"], job["attempt"]) == (1, 1)
    run = await site.run(1)
    assert run["started"][:19] == "2026-11-21 03:29:56"
    expected = {
        "runID": 1,
        "jobID": 1,
        "name": "a",
        "attempt": 1,
        "cause": "queue",
        "worker": "w1",
        "host": "h",
        "pid": 42,
        "status": "running",
        "ended": "",
        "error": "",
        "output": [],
        "stop": "",
    }
    assert {name: run[name] for name in expected} == expected
    assert run.get("exitCode") is None
    assert run.get("result") is None
    row = await site.row(1)
    assert (row["state"], row["runID"], row["attempt"]) == ("RUNNING", 1, 1)


async def test_scheduled_for_is_the_nextrun_before_the_take(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:30:00")
    await site.later(10)
    assert (await site.take("a"))["nextRun"] == "2026-11-21 03:30:00"
    run = await site.run(1)
    assert run["scheduledFor"] == "2026-11-21 03:30:00"
    assert run["started"][:19] == "2026-11-21 03:30:06"


async def test_without_a_worker_there_is_no_run_and_no_fence(site: Site) -> None:
    await site.create("a")
    job = await site.take("a", None)
    assert "runID" not in job
    assert await site.runs() == []
    assert (await site.row(1))["runID"] == 0
    await site.ok("FinishJob", jobID=1)
    assert await site.state(1) == "(deleted)"
    assert await site.runs() == []


async def test_getjobs_opens_a_run_for_each_job(site: Site) -> None:
    for _ in range(3):
        await site.create("a")
    jobs = (await site.ok("GetJobs", name="a", numResults=10, worker="w"))["jobs"]
    assert [(job["jobID"], job["runID"], job["attempt"]) for job in jobs] == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]
    assert [run["runID"] for run in await site.runs(status="running")] == [3, 2, 1]


@pytest.mark.parametrize("command", ["FinishJob", "FailJob", "RetryJob"])
async def test_thenget_opens_a_run(site: Site, command: str) -> None:
    for _ in range(2):
        await site.create("a", firstRun="2026-11-21 03:00:00")
    job = await site.take("a")
    more = {"delay": 60} if command == "RetryJob" else {}
    answer = await site.ok(command, jobID=1, runID=job["runID"], thenGet="a", worker="w2", pid=7, **more)
    assert (answer["job"]["jobID"], answer["job"]["runID"], answer["job"]["attempt"]) == (2, 2, 1)
    assert (await site.run(2))["worker"] == "w2"
    assert (await site.run(1))["status"] != "running"


async def test_thenget_of_several_waits_for_the_first(site: Site) -> None:
    for _ in range(3):
        await site.create("a")
    taken = (await site.ok("GetJobs", name="a", numResults=3, worker="w"))["jobs"]
    talk = await site.connect()
    ends = [{"jobID": job["jobID"], "runID": job["runID"]} for job in taken]
    more = {"worker": "w", "numResults": 2, "Connection": "wait", "timeout": LONG_MS}
    talk.send(request("FinishJobs", jobs=ends, thenGet="a", **more))
    await site.waiting(1)
    assert await site.state(3) == "(deleted)"
    await site.create("a")
    answer = (await talk.reply()).json
    assert [result["code"] for result in answer["results"]] == [200, 200, 200]
    assert [(job["jobID"], job["runID"]) for job in answer["jobs"]] == [(4, 4)]


async def test_thenget_of_several_that_waits_in_vain_answers_what_it_ended(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    refused = await site.refused("FinishJobs", jobs=[{"jobID": job["jobID"]}], thenGet=",")
    assert refused == (402, "Malformed thenGet")
    assert await site.state(1) == "RUNNING"
    talk = await site.connect()
    more = {"Connection": "wait", "timeout": 1_000}
    talk.send(request("FinishJobs", jobs=[{"jobID": job["jobID"]}], thenGet="a", **more))
    await site.waiting(1)
    await site.later(2)
    answer = (await talk.reply()).json
    assert answer == {"results": [{"jobID": 1, "code": 200, "reason": "OK"}], "jobs": []}


async def test_a_waiting_getjob_opens_a_run_with_the_job(site: Site) -> None:
    talk = await site.asking("a", host="h", pid=9)
    await site.create("a")
    job = (await talk.reply()).json
    assert (job["runID"], job["attempt"]) == (1, 1)
    run = await site.run(1)
    assert (run["host"], run["pid"], run["worker"]) == ("h", 9, "w")


async def test_a_waiter_that_left_leaves_no_run(site: Site) -> None:
    talk = await site.asking("a")
    talk.reset()
    await site.waiting(0)
    await site.create("a")
    assert await site.runs() == []
    assert (await site.row(1))["attempt"] == 0


async def test_attempts_count_up_and_runids_are_never_used_twice(site: Site) -> None:
    await site.create("a")
    for number in (1, 2, 3):
        job = await site.take("a")
        assert (job["attempt"], job["runID"]) == (number, number)
        await site.end("RetryJob", job)
    await site.restart()
    assert (await site.take("a"))["runID"] == 4
    await site.crash()
    await site.create("b")
    assert 5 <= (await site.take("b"))["runID"] <= 5 + ID_BLOCK


async def test_all_who_wait_are_served_though_one_transaction_serves_so_many(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.engine.batch.SERVED_AT_ONCE_MAX", 2)
    assert SERVED_AT_ONCE_MAX > 2
    await site.ok("CreateJobs", jobs=[{"name": "a", "firstRun": "2026-11-21 03:31:00"}] * 5)
    talks = [await site.asking("a", f"w{number}") for number in range(5)]
    await site.until_time("2026-11-21 03:31:00")
    assert [(await talk.reply()).json["jobID"] for talk in talks] == [1, 2, 3, 4, 5]


# --- progress --------------------------------------------------------------------------------------------


async def test_updatejob_stores_progress_with_the_run(site: Site) -> None:
    await site.create("a", data={"x": 1})
    job = await site.take("a")
    await site.ok("UpdateJob", jobID=1, runID=job["runID"], progress={"percent": 40, "message": "half"})
    run = await site.run(1)
    assert run["progress"] == {"percent": 40, "message": "half"}
    assert run["status"] == "running"
    assert (await site.row(1))["data"] == {"x": 1}
    await site.ok("UpdateJob", jobID=1, runID=job["runID"], progress={"percent": 90})
    await site.finish(job)
    assert (await site.run(1))["progress"] == {"percent": 90}


async def test_progress_is_an_object(site: Site) -> None:
    await site.create("a")
    await site.take("a")
    code, reason = await site.refused("UpdateJob", jobID=1, progress=40)
    assert code == 402
    assert "progress" in reason + await site.detail("UpdateJob", jobID=1, progress=40)


async def test_a_refused_update_stores_no_progress(site: Site) -> None:
    await site.create("a", cmd="ls")
    job = await site.take("a", accepts="cmd")
    body = {"jobID": 1, "runID": job["runID"], "progress": {"p": 1}, "url": {"url": "http://x"}}
    assert await site.refused("UpdateJob", **body) == (402, "Malformed url")
    assert (await site.run(job["runID"]))["progress"] is None


# --- looked at -------------------------------------------------------------------------------------------


async def test_an_unknown_run(site: Site) -> None:
    assert await site.refused("QueryRun", runID=77) == (404, "No run with this runID")


async def ids(site: Site, **which: Any) -> list[int]:
    """Return the runIDs that ListRuns shows."""
    return [run["runID"] for run in await site.runs(**which)]


async def test_listruns_filters_and_pages(site: Site) -> None:
    for number in range(6):
        await site.create(f"a/{number % 2}")
        job = await site.take("a/*", f"w{number % 3}")
        if number < 4:
            await (site.finish if number % 2 else site.fail)(job)
    assert await ids(site) == [6, 5, 4, 3, 2, 1]
    assert await ids(site, name="a/0") == [5, 3, 1]
    assert await ids(site, name="a/*", limit=2) == [6, 5]
    assert await ids(site, before=5, limit=2) == [4, 3]
    assert await ids(site, jobID=2) == [2]
    assert await ids(site, status="success") == [4, 2]
    assert await ids(site, status="fail") == [3, 1]
    assert await ids(site, status="running") == [6, 5]
    assert await ids(site, worker="w0") == [4, 1]
    assert await ids(site, name="a/0", status="fail", before=3) == [1]
    assert await site.runs(name="b") == []
    assert await site.refused("ListRuns", status="done") == (402, "Malformed status")
    assert await site.refused("ListRuns", limit=0) == (402, "Malformed limit")
    assert await site.refused("ListRuns", limit=1001) == (402, "Malformed limit")
