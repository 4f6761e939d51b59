"""The ends of runs: success, failure, silence; and late reports change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bedrockjobs.commands import Command, GetJob, RetryJob, TriggerJob, UpdateJob
from bedrockjobs.engine.handlers.context import Answer
from tests.protocol.talk import request
from tests.runs.rig import LONG_MS, Site

OVER = (405, "Run is over")


# --- the fence -------------------------------------------------------------------------------------------


async def two_runs(site: Site) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let a job be taken, given up and taken again; return both takes."""
    await site.create("a", data={"kept": True})
    old = await site.take("a", "old")
    await site.end("RetryJob", old)
    return old, await site.take("a", "new")


@pytest.mark.parametrize("command", ["FinishJob", "FailJob", "RetryJob", "UpdateJob"])
@pytest.mark.parametrize("run_id", ["old", "future", "other"])
async def test_who_speaks_for_another_run_changes_nothing(site: Site, command: str, run_id: str) -> None:
    old, new = await two_runs(site)
    await site.create("b")
    other = await site.take("b")
    before = await site.row(1), await site.run(new["runID"])
    number = {"old": old["runID"], "future": 999, "other": other["runID"]}[run_id]
    assert await site.refused(command, jobID=1, runID=number, data={"spoilt": True}) == OVER
    assert (await site.row(1), await site.run(new["runID"])) == before
    assert (await site.ask(command, jobID=1, runID=number, data="{}")).status == "405 Run is over"
    await site.finish(new)


async def test_finishjobs_refuses_each_for_itself(site: Site) -> None:
    old, new = await two_runs(site)
    await site.create("b")
    other = await site.take("b")
    jobs = [{"jobID": 1, "runID": old["runID"]}, {"jobID": 2, "runID": other["runID"]}]
    answer = await site.ok("FinishJobs", jobs=jobs)
    refused = answer["results"][0]
    assert (refused["code"], refused["reason"]) == OVER
    assert answer["results"][1]["code"] == 200
    assert (await site.run(other["runID"]))["status"] == "success"
    assert (await site.run(new["runID"]))["status"] == "running"
    assert (await site.run(old["runID"]))["status"] == "fail"


async def test_the_fence_holds_between_runs_and_after_the_last(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    await site.end("RetryJob", job, delay=100)
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == OVER
    assert await site.refused("UpdateJob", jobID=1, runID=job["runID"], data={}) == OVER
    await site.later(100)
    last = await site.take("a")
    await site.fail(last)
    assert await site.refused("FinishJob", jobID=1, runID=last["runID"]) == OVER
    assert await site.refused("RetryJob", jobID=1, runID=last["runID"], revive=True) == OVER


async def test_the_fence_survives_a_restart(site: Site) -> None:
    old, new = await two_runs(site)
    await site.restart()
    assert await site.refused("FinishJob", jobID=1, runID=old["runID"]) == OVER
    await site.finish(new)
    assert await site.state(1) == "(deleted)"


async def test_without_a_runid_there_is_no_fence(site: Site) -> None:
    _, new = await two_runs(site)
    await site.ok("FinishJob", jobID=1)
    assert (await site.run(new["runID"]))["status"] == "success", "the run ended all the same"


# --- ended -----------------------------------------------------------------------------------------------


async def test_finishjob_is_success_with_result_and_exit_code(site: Site) -> None:
    await site.create("a", data={"in": 1})
    job = await site.take("a")
    await site.later(5)
    await site.finish(job, data={"out": 2}, exitCode=0)
    run = await site.run(1)
    assert (run["status"], run["exitCode"], run["result"], run["error"]) == ("success", 0, {"out": 2}, "")
    assert run["ended"][:19] == "2026-11-21 03:30:01"
    assert await site.state(1) == "(deleted)"


async def test_the_result_is_kept_as_it_was_spelled(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    reply = await site.ask("FinishJob", jobID=1, runID=job["runID"], data='{"b":1.50,"a":1e3}')
    assert reply.code == 200
    assert (await site.select("SELECT result || '' AS text FROM runs"))[0]["text"] == '{"b":1.50,"a":1e3}'


async def test_finishjobs_ends_runs(site: Site) -> None:
    await site.create("a")
    job = await site.take("a")
    jobs = [{"jobID": 1, "runID": job["runID"], "data": {"x": 1}, "exitCode": 3}]
    await site.ok("FinishJobs", jobs=jobs)
    run = await site.run(1)
    assert (run["status"], run["exitCode"], run["result"]) == ("success", 3, {"x": 1})


async def test_failjob_is_fail_with_error_exit_code_and_result(site: Site) -> None:
    await site.create("a")
    await site.fail(await site.take("a"), error="no disk", exitCode=7, data={"got": 1})
    run = await site.run(1)
    assert (run["status"], run["error"], run["exitCode"], run["result"]) == ("fail", "no disk", 7, {"got": 1})
    assert await site.state(1) == "FAILED"
    assert (await site.row(1))["runID"] == 0


async def test_retryjob_is_fail_with_the_error_retried(site: Site) -> None:
    await site.create("a")
    await site.end("RetryJob", await site.take("a"))
    run = await site.run(1)
    assert (run["status"], run["error"]) == ("fail", "retried")
    assert (await site.take("a"))["runID"] == 2
    assert (await site.run(2))["cause"] == "retry"


async def test_returned_is_as_if_the_job_had_not_been_taken_but_for_its_run(site: Site) -> None:
    await site.create("a", firstRun="2026-11-21 03:00:00")
    before = await site.row(1)
    job = await site.leased("a")
    await site.ok("AppendOutput", runID=1, seq=1, lines=["halfway"])
    await site.end("RetryJob", job, returned=True, exitCode=-15)
    assert await site.row(1) == before
    run = await site.run(1)
    assert (run["status"], run["attempt"], run["exitCode"]) == ("returned", 1, -15)
    assert run["output"] == ["halfway"]
    assert [line["line"] for line in (await site.ok("ReadOutput", runID=1))["lines"]] == ["halfway"]
    assert (run.pop("data"), (await site.ok("ListRuns", status="returned"))["runs"]) == ({}, [run])
    assert await site.refused("FinishJob", jobID=1, runID=1) == OVER
    again = await site.take("a")
    assert (again["attempt"], again["runID"]) == (1, 2)
    assert (await site.run(2))["cause"] == "queue", "the cause is as it would have been"


async def test_returned_keeps_the_cause_of_a_retry(site: Site) -> None:
    await site.create("a")
    await site.end("RetryJob", await site.take("a"))
    await site.end("RetryJob", await site.take("a"), returned=True)
    await site.take("a")
    assert (await site.runs(status="running"))[0]["cause"] == "retry"


async def test_the_cause_is_the_schedules_again_after_a_success(site: Site) -> None:
    await site.create("a", repeat="FINISHED, +1 HOUR")
    await site.end("RetryJob", await site.take("a"), ignoreRepeat=True)
    await site.finish(await site.take("a"))
    await site.later(3600)
    await site.take("a")
    assert [run["cause"] for run in await site.runs()] == ["schedule", "retry", "schedule"]


@pytest.mark.parametrize("how", ["RequeueJobs", "CrashBedrockJob", "retryAfter"])
async def test_a_run_that_is_taken_away_otherwise_is_frozen(site: Site, how: str) -> None:
    """Whatever takes a job from its run closes the run: no run stays open without its job."""
    await site.create("a", **({"retryAfter": "+5 SECONDS"} if how == "retryAfter" else {}))
    job = await site.take("a")
    if how == "RequeueJobs":
        await site.ok("RequeueJobs", jobIDs=[1])
    elif how == "CrashBedrockJob":
        await site.ok("RequeueJobs", jobIDs=[1])
        await site.ok("CrashBedrockJob", names=["a"])
        assert await site.nothing("a")
    else:
        await site.later(5)
        await site.take("a")
    run = await site.run(job["runID"])
    assert run["status"] == ("timeout" if how == "retryAfter" else "frozen")
    assert run["ended"] != ""
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == OVER


async def test_a_parent_that_pauses_for_its_children_has_ended_its_run(site: Site) -> None:
    await site.create("p")
    parent = await site.take("p")
    await site.create("c", parentJobID=1)
    await site.finish(parent, data={"half": 1})
    assert await site.state(1) == "PAUSED"
    assert (await site.run(1))["status"] == "success"
    child = await site.take("c")
    await site.finish(child)
    again = await site.take("p")
    assert (again["runID"], again["attempt"]) == (3, 2)
    await site.finish(again)
    assert [run["status"] for run in await site.runs()] == ["success"] * 3


async def test_a_refused_end_leaves_the_run_open(site: Site) -> None:
    await site.create("p")
    await site.take("p")
    await site.create("c", parentJobID=1)
    await site.ok("FinishJob", jobID=1)
    child = await site.take("c")
    assert await site.refused("FinishJob", jobID=2, runID=child["runID"], data="no") != OVER
    assert (await site.run(child["runID"]))["status"] == "running"


async def test_a_run_that_is_handed_back_leaves_an_event(site: Site) -> None:
    job_id = await site.create("a")
    job = await site.take("a")
    await site.end("RetryJob", job, returned=True)
    (event,) = await site.events("handed back")
    assert (event["name"], event["jobID"], event["runID"]) == ("a", job_id, job["runID"])
    await site.take("a", worker=None)
    await site.ok("RetryJob", jobID=job_id, returned=True)
    assert len(await site.events("handed back")) == 1


# --- nobody got the job ----------------------------------------------------------------------------------


async def test_a_taken_job_whose_answer_nobody_got_has_no_run(site: Site) -> None:
    talk = await site.connect()
    talk.send(request("GetJob", name="a", worker="w", Connection="wait", timeout=LONG_MS))
    await site.waiting(1)
    talk.end()
    assert (await talk.reply()).code == 404
    await site.create("a")
    assert (await site.row(1))["state"] == "QUEUED"
    assert await site.runs() == []


async def undelivered(site: Site, take: GetJob, *meanwhile: Command[Any]) -> None:
    """Let a job be taken of which nobody hears, and others do something before it is put back."""
    gone = asyncio.get_running_loop().create_future()

    def nowhere(_: object) -> bool:
        for command in meanwhile:
            site.server.dispatcher.submit(command, lambda outcome: isinstance(outcome, Answer))
        gone.set_result(None)
        return False

    site.server.dispatcher.submit(take, nowhere)
    await gone
    await site.rest()


async def test_what_nobody_got_keeps_what_others_asked_for(site: Site) -> None:
    await site.create("a")
    changes = [TriggerJob(job_id=1), UpdateJob(job_id=1, retries=5, lock="x")]
    await undelivered(site, GetJob(name="a", worker="w"), *changes)
    options = await site.options(1)
    assert (await site.state(1), options["retries"], options["lock"]) == ("QUEUED", 5, "x")
    await site.take("a")
    await site.create("b", lock="x")
    assert await site.nothing("b")


@pytest.mark.parametrize("how", ["snoozed", "returned"])
@pytest.mark.parametrize("earlier", [0, 1, 2])
async def test_what_nobody_got_is_not_confused_with_a_later_take(site: Site, earlier: int, how: str) -> None:
    """Takes without a worker have no runID, the clock stands still, and no attempt is counted."""
    await site.create("a")
    for _ in range(earlier):
        await site.take("a", worker=None)
        await site.ok("RetryJob", jobID=1, **{how: True})
    again = RetryJob.read({"jobID": 1, how: True})
    await undelivered(site, GetJob(name="a"), again, GetJob(name="a"))
    row = await site.row(1)
    assert (row["state"], row["attempt"]) == ("RUNNING", 1), "another client has it"
    await site.ok("RetryJob", jobID=1)
    await undelivered(site, GetJob(name="a"))
    assert (await site.row(1))["state"] == "QUEUED"


async def test_the_fence_holds_after_a_take_that_nobody_got(site: Site) -> None:
    await site.create("a", retryAfter="+10 SECONDS")
    job = await site.take("a")
    await site.later(11)
    await undelivered(site, GetJob(name="a", worker="v"))
    assert [run["runID"] for run in await site.runs()] == [job["runID"]]
    assert await site.refused("FinishJob", jobID=1, runID=job["runID"]) == OVER
    assert (await site.run(job["runID"]))["status"] == "timeout"
