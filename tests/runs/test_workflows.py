"""Workflows on a live server: what is refused, in which order jobs start, and what each kind of end does."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.config import LOST_RUNS_MAX, REF_CHARS_MAX, WORKFLOW_EDGES_MAX, WORKFLOW_JOBS_MAX
from bedrockjobs.commands import WorkflowJob
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.commands.workflows import NOT_IN_WORKFLOWS
from bedrockjobs.engine.handlers import graph, workflows
from tests.effort import crossed
from tests.runs.rig import Site


def diamond(**of_left: Any) -> list[dict[str, Any]]:
    """Return a job, two after it, and one after both; the left one of the two may have more attributes."""
    return [
        {"ref": "first", "name": "first"},
        {"ref": "left", "name": "left", "after": ["first"], **of_left},
        {"ref": "right", "name": "right", "after": ["first"]},
        {"ref": "last", "name": "last", "after": ["left", "right"]},
    ]


async def states(site: Site, workflow: int) -> dict[str, str]:
    """Return the states of the jobs of a workflow by ref, and its own under an empty text."""
    shown = await site.ok("QueryWorkflow", workflowID=workflow)
    return {"": shown["state"], **{job["ref"]: job["state"] for job in shown["jobs"]}}


async def made(site: Site, jobs: list[dict[str, Any]], **more: Any) -> int:
    """Create a workflow named nightly; return its ID."""
    return int((await site.ok("CreateWorkflow", name="nightly", jobs=jobs, **more))["workflowID"])


async def done(site: Site, name: str, **data: Any) -> dict[str, Any]:
    """Take a job by name and finish it with data; return it as it was taken."""
    job = await site.take(name)
    await site.finish(job, **({"data": data} if data else {}))
    return job


async def test_jobs_start_after_those_before_them_and_get_their_results(site: Site) -> None:
    made_ids = await site.ok("CreateWorkflow", name="nightly", jobs=diamond())
    assert made_ids == {"workflowID": 1, "jobIDs": {"first": 2, "left": 3, "right": 4, "last": 5}}
    assert await states(site, 1) == {
        "": "RUNNING",
        "first": "QUEUED",
        "left": "PAUSED",
        "right": "PAUSED",
        "last": "PAUSED",
    }
    first = await done(site, "first", rows=7)
    assert (first["workflowID"], first["ref"], first["before"]) == (1, "first", {})
    left = await done(site, "left")
    assert left["before"] == {"first": {"rows": 7}}
    assert await site.nothing("last")
    await done(site, "right", sum=3)
    assert (await states(site, 1))["last"] == "QUEUED"
    assert (await site.ok("QueryJob", jobID=5))["before"] == {"left": None, "right": {"sum": 3}}
    last = await done(site, "last")
    assert last["before"] == {"left": None, "right": {"sum": 3}}
    assert set((await states(site, 1)).values()) == {"FINISHED"}
    shown = await site.ok("QueryJob", jobID=2)
    assert (shown["state"], shown["result"], shown["workflowID"]) == ("FINISHED", {"rows": 7}, 1)


# --- what is refused -------------------------------------------------------------------------------------

A, B = {"ref": "a", "name": "a"}, {"ref": "b", "name": "b"}
REFUSED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([A, {**B, "ref": "a"}], "Malformed ref", "jobs[1].ref"),
    (
        [A, {**B, "after": ["c"]}],
        "Malformed after",
        "jobs[1].after: expected refs of the workflow, there is no c",
    ),
    ([A, {**B, "after": ["b"]}], "Malformed after", "jobs[1].after: expected no circle: b waits for b"),
    (
        [{**A, "after": ["b"]}, {**B, "after": ["a"]}],
        "Malformed after",
        "jobs[0].after: expected no circle: a waits for b waits for a",
    ),
    ([A, {**B, "repeat": "HOURLY"}], "Malformed repeat", "jobs[1].repeat"),
    ([A, {**B, "unique": True}], "Malformed unique", "jobs[1].unique"),
    ([A, {**B, "uniqueKey": "k"}], "Malformed uniqueKey", "jobs[1].uniqueKey"),
    ([A, {**B, "idempotencyKey": "k"}], "Malformed idempotencyKey", "jobs[1].idempotencyKey"),
    ([A, {**B, "parentJobID": 1}], "Malformed parentJobID", "jobs[1].parentJobID"),
    ([A, {**B, "hosts": "all"}], "Malformed hosts", "jobs[1].hosts"),
    ([A, {**B, "expect": "ping"}], "Malformed expect", "jobs[1].expect"),
    ([A, {**B, "onFailure": "stop"}], "Malformed onFailure", "jobs.1.onFailure"),
    ([A, {"ref": "b"}], "Missing name", "jobs.1.name"),
    ([A, {"name": "b"}], "Missing ref", "jobs.1.ref"),
    ([A, {**B, "lock": "l", "retryAfter": "+1 HOUR"}], "Malformed lock", "jobs[1].lock"),
    ([], "Invalid JSON", "jobs"),
]


async def test_a_malformed_graph_is_refused_whole(site: Site) -> None:
    for jobs, reason, detail in REFUSED:
        reply = await site.http("CreateWorkflow", {"name": "nightly", "jobs": jobs})
        assert reply.json["reason"] == reason, reply
        assert detail in reply.json["detail"], reply
        assert await site.nothing(), jobs
        assert (await site.ok("ListWorkflows"))["workflows"] == [], jobs


async def test_every_attribute_of_create_job_is_possible_or_refused(site: Site) -> None:
    """What a workflow refuses is what makes a job repeat, or may find an existing one."""
    possible = set(WorkflowJob.model_fields) - set(JobOptions.model_fields) - set(NOT_IN_WORKFLOWS)
    assert possible == {
        "name",
        "data",
        "first_run",
        "retry_after",
        "job_priority",
        "priority",
        "overwrite",
        "mock_request",
        "ref",
        "after",
        "on_failure",
    }


async def test_too_many_jobs_or_edges_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows, "WORKFLOW_EDGES_MAX", 3)
    reply = await site.http("CreateWorkflow", {"name": "nightly", "jobs": diamond()})
    assert reply.json["detail"] == "jobs: expected at most 3 edges"
    monkeypatch.setattr(workflows, "WORKFLOW_EDGES_MAX", WORKFLOW_EDGES_MAX)
    monkeypatch.setattr(workflows, "WORKFLOW_JOBS_MAX", 5)
    workflow = await made(site, diamond())
    added = [{"ref": "more", "name": "more"}, {"ref": "again", "name": "more"}]
    reply = await site.http("AddToWorkflow", {"workflowID": workflow, "jobs": added})
    assert reply.json["detail"] == "jobs: expected at most 5 in a workflow"
    await site.ok("AddToWorkflow", workflowID=workflow, jobs=added[:1])
    assert WorkflowJob.model_fields["after"].metadata[0].max_length == WORKFLOW_JOBS_MAX


async def test_a_ref_has_a_limit(site: Site) -> None:
    assert (await site.refused("CreateWorkflow", name="n", jobs=[{**A, "ref": "r" * (REF_CHARS_MAX + 1)}]))[
        0
    ] == 402
    await made(site, [{**A, "ref": "r" * REF_CHARS_MAX}])


# --- the ends --------------------------------------------------------------------------------------------


async def ended(site: Site, how: str, name: str) -> None:
    """Let a job end badly in one of several ways."""
    if how == "fail":
        await site.fail(await site.take(name), error="disk full", exitCode=3)
    elif how == "lost":
        await site.leased(name)
        await site.both(3_600)
    elif how == "timeout":
        await site.leased(name)
        for _ in range(3):
            await site.later(3_600)
    elif how == "expired":
        await site.later(7_200)
    else:
        job = (await site.ok("ListJobs", name=name))["jobs"][0]["jobID"]
        if how == "cancel":
            await site.ok("CancelJob", jobID=job, any=True)
        elif how == "delete":
            await site.ok("DeleteJob", jobID=job)
        elif how == "stop":
            taken = await site.leased(name)
            await site.ok("CancelJob", jobID=job, any=True)
            await site.fail(taken, error="stopped")
        elif how == "crash list":
            await site.ok("CrashBedrockJob", names=[name])
            assert await site.nothing(name)
        elif how == "lost too often":
            await site.ok("UpdateJob", jobID=job, data={"retryAfterCount": LOST_RUNS_MAX})
            assert await site.nothing(name)


WAYS = {
    "fail": ({}, "FAILED", "disk full"),
    "lost": ({"onLost": "fail"}, "FAILED", "Run lost: worker w was silent for 45 s"),
    "timeout": ({"runTimeout": "1m", "onLost": "fail"}, "FAILED", "Run over its time: 60 s"),
    "crash list": ({}, "FAILED", "Its name is on the crash list"),
    "lost too often": ({"retryAfter": "+1 MINUTE"}, "FAILED", "Lost too often"),
    "expired": ({"expireAfter": "1h"}, "CANCELLED", "It was not started in time"),
    "cancel": ({}, "CANCELLED", "The job was cancelled"),
    "stop": ({}, "CANCELLED", "The job was cancelled"),
    "delete": ({}, "CANCELLED", "The job was deleted"),
}
"""For each way to end badly: what the job needs, its state then, and the reason that is shown."""


@pytest.mark.parametrize(("how", "policy"), crossed(WAYS, ["cancel", "continue", "ignore"]))
async def test_what_a_bad_end_does_to_the_rest(site: Site, how: str, policy: str) -> None:
    options, state, reason = WAYS[how]
    workflow = await made(site, diamond(onFailure=policy, **options))
    await done(site, "first")
    await ended(site, how, "left")
    await done(site, "right")
    found = await states(site, workflow)
    assert found["left"] == state
    jobs = (await site.ok("QueryWorkflow", workflowID=workflow))["jobs"]
    assert jobs[1]["reason"] == reason
    assert (await site.ok("QueryJob", jobID=3)).get("error", reason) == reason
    if policy == "cancel":
        assert (found["last"], found[""]) == ("CANCELLED", "FAILED")
        assert await site.nothing("last")
        passed_on = f"failed: {reason}" if state == "FAILED" else "was cancelled"
        assert jobs[3]["reason"] == f"Job 3 (left) before it {passed_on}"
        assert (await site.ok("QueryJob", jobID=5))["error"] == jobs[3]["reason"]
    else:
        assert (found["last"], found[""]) == ("QUEUED", "RUNNING")
        assert (await done(site, "last"))["before"] == {"left": None, "right": None}
        assert (await states(site, workflow))[""] == ("FAILED" if policy == "continue" else "FINISHED")


async def test_a_retry_is_no_end(site: Site) -> None:
    workflow = await made(site, diamond(retries=1))
    await done(site, "first")
    await site.fail(await site.take("left"), error="once")
    assert (await states(site, workflow))["left"] == "QUEUED"
    await site.later(60)
    assert (await site.take("left"))["before"] == {"first": None}
    await site.ok("RetryJob", jobID=3)
    assert (await states(site, workflow))[""] == "RUNNING"


async def test_a_cancellation_passes_on_whatever_a_cancelled_job_says(site: Site) -> None:
    jobs = [A, {**B, "after": ["a"], "onFailure": "continue"}, {"ref": "c", "name": "c", "after": ["b"]}]
    workflow = await made(site, jobs)
    await ended(site, "fail", "a")
    assert await states(site, workflow) == {"": "FAILED", "a": "FAILED", "b": "CANCELLED", "c": "CANCELLED"}


async def test_a_waiting_job_that_is_cancelled_by_hand_obeys_its_own_policy(site: Site) -> None:
    jobs = [A, {**B, "after": ["a"], "onFailure": "ignore"}, {"ref": "c", "name": "c", "after": ["b"]}]
    workflow = await made(site, jobs)
    await site.ok("CancelJob", jobID=3, any=True)
    assert await states(site, workflow) == {"": "RUNNING", "a": "QUEUED", "b": "CANCELLED", "c": "QUEUED"}
    await done(site, "a")
    await done(site, "c")
    assert (await states(site, workflow))[""] == "FINISHED"


# --- families, requeues and repeats ----------------------------------------------------------------------


async def test_a_job_of_a_workflow_may_be_a_parent(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}])
    parent = await site.take("a")
    child = await site.create("child", parentJobID=parent["jobID"])
    await site.finish(parent)
    assert (await states(site, workflow))["a"] == "PAUSED"
    await done(site, "child")
    assert await site.nothing("b")
    assert (await done(site, "a", total=1))["finishedChildJobs"][0]["jobID"] == child
    assert (await done(site, "b"))["before"] == {"a": {"total": 1}}


async def test_a_waiting_job_waits_whatever_else_is_asked(site: Site) -> None:
    await made(site, [A, {**B, "after": ["a"]}])
    await site.ok("RequeueJobs", jobIDs=[3])
    assert await site.nothing("b")
    assert (await site.refused("CreateJob", name="child", parentJobID=3))[0] == 405
    assert (await site.refused("UpdateJob", jobID=3, repeat="HOURLY"))[0] == 402
    assert (await site.refused("FinishJob", jobID=3))[0] == 405
    assert (await site.refused("RetryJob", jobID=3))[0] == 405
    await site.ok("UpdateJob", jobID=3, data={"x": 1}, nextRun="2026-11-22 00:00:00")
    await done(site, "a")
    assert await site.nothing("b")
    await site.until_time("2026-11-22 00:00:00")
    assert (await site.take("b"))["data"] == {"x": 1}


async def test_explain_says_for_whom_a_job_waits(site: Site) -> None:
    await made(site, diamond())
    waits = (await site.ok("ExplainJob", jobID=5))["waitsFor"]
    assert waits == [{"reason": "workflow", "detail": "left, right of workflow nightly"}]


async def test_mocked_jobs_follow_the_same_rules(site: Site) -> None:
    workflow = await made(site, [{**job, "mockRequest": True} for job in diamond()])
    assert await site.nothing("first")
    for name in ("first", "left", "right", "last"):
        await site.finish(await site.take(name, getMockedJobs=True))
    assert (await states(site, workflow))[""] == "FINISHED"


async def test_a_job_that_is_taken_back_runs_later(site: Site) -> None:
    workflow = await made(site, [{**A, "retryAfter": "+1 MINUTE"}, {**B, "after": ["a"]}])
    await site.take("a", None)
    await site.later(61)
    await site.finish(await site.take("a", None))
    await done(site, "b")
    assert (await states(site, workflow))[""] == "FINISHED"


# --- start again -----------------------------------------------------------------------------------------


async def test_a_workflow_is_retried_from_the_failed_ones_on(site: Site) -> None:
    workflow = await made(site, diamond())
    await done(site, "first", rows=1)
    await done(site, "right", sum=2)
    await ended(site, "fail", "left")
    assert await site.ok("RetryWorkflow", workflowID=workflow) == {"retried": 2}
    assert not {"error", "exitCode"} & (await site.ok("QueryJob", jobID=3)).keys()
    assert await states(site, workflow) == {
        "": "RUNNING",
        "first": "FINISHED",
        "left": "QUEUED",
        "right": "FINISHED",
        "last": "PAUSED",
    }
    assert (await done(site, "left"))["before"] == {"first": {"rows": 1}}
    assert (await done(site, "last"))["before"] == {"left": None, "right": {"sum": 2}}
    assert (await states(site, workflow))[""] == "FINISHED"
    assert (await site.refused("RetryWorkflow", workflowID=workflow))[0] == 405


async def test_a_retried_workflow_waits_again_for_what_had_let_pass(site: Site) -> None:
    workflow = await made(site, diamond(onFailure="continue"))
    await done(site, "first")
    await ended(site, "fail", "left")
    await site.ok("RetryWorkflow", workflowID=workflow)
    await done(site, "right")
    assert await site.nothing("last")
    await done(site, "left")
    await done(site, "last")
    assert (await states(site, workflow))[""] == "FINISHED"


async def test_one_job_is_revived(site: Site) -> None:
    workflow = await made(site, diamond(onFailure="continue"))
    await done(site, "first")
    await ended(site, "fail", "left")
    await site.ok("RetryJob", jobID=3, revive=True)
    await done(site, "right")
    assert (await states(site, workflow))["last"] == "PAUSED"
    await done(site, "left")
    await done(site, "last")
    assert (await states(site, workflow))[""] == "FINISHED"


async def test_a_deleted_job_is_not_in_the_way_of_a_retry(site: Site) -> None:
    workflow = await made(site, diamond())
    await done(site, "first")
    await ended(site, "delete", "left")
    assert (await states(site, workflow))["last"] == "CANCELLED"
    assert await site.ok("RetryWorkflow", workflowID=workflow) == {"retried": 1}
    await done(site, "right")
    await done(site, "last")
    assert (await states(site, workflow))[""] == "FAILED"


# --- cancel ----------------------------------------------------------------------------------------------


async def test_a_workflow_is_cancelled_whole(site: Site) -> None:
    workflow = await made(site, diamond())
    await done(site, "first")
    left = await site.leased("left")
    assert await site.ok("CancelWorkflow", workflowID=workflow) == {"state": "RUNNING", "stopping": 1}
    assert await states(site, workflow) == {
        "": "RUNNING",
        "first": "FINISHED",
        "left": "RUNNING",
        "right": "CANCELLED",
        "last": "CANCELLED",
    }
    await site.fail(left, error="stopped")
    assert set((await states(site, workflow)).values()) == {"FINISHED", "CANCELLED"}
    assert await site.ok("CancelWorkflow", workflowID=workflow) == {"state": "CANCELLED", "stopping": 0}
    assert await site.ok("RetryWorkflow", workflowID=workflow) == {"retried": 3}
    for name in ("left", "right", "last"):
        await done(site, name)
    assert (await states(site, workflow))[""] == "FINISHED"


async def test_a_job_that_finishes_although_it_was_cancelled_starts_nothing(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}])
    taken = await site.leased("a")
    await site.ok("CancelWorkflow", workflowID=workflow)
    await site.finish(taken)
    assert await states(site, workflow) == {"": "CANCELLED", "a": "FINISHED", "b": "CANCELLED"}


async def test_a_cancelled_job_that_finishes_after_all_no_longer_counts_as_failed(site: Site) -> None:
    workflow = await made(site, [A, {**B, "mockRequest": True}])
    await site.ok("CancelJob", jobID=3, any=True)
    assert (await site.ok("QueryWorkflow", workflowID=workflow))["failed"] == 1
    await site.ok("FinishJob", jobID=3)
    shown = await site.ok("QueryWorkflow", workflowID=workflow)
    assert (shown["jobs"][1]["state"], shown["failed"]) == ("FINISHED", 0)


async def test_a_failed_workflow_is_given_up(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}])
    await ended(site, "fail", "a")
    assert (await site.ok("QueryWorkflow", workflowID=workflow))["kept"] == ""
    assert (await site.ok("CancelWorkflow", workflowID=workflow))["state"] == "CANCELLED"
    assert (await site.ok("QueryWorkflow", workflowID=workflow))["kept"] != ""


async def test_a_job_revived_after_its_workflow_was_cancelled_decides_how_it_ends(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"], "onFailure": "ignore"}], keep="1d")
    await ended(site, "fail", "a")
    await site.ok("CancelWorkflow", workflowID=workflow)
    assert (await site.ok("QueryJob", jobID=3)).get("expires")
    await site.ok("RetryJob", jobID=2, revive=True)
    assert not (await site.ok("QueryJob", jobID=3)).get("expires")
    await done(site, "a")
    assert await states(site, workflow) == {"": "FAILED", "a": "FINISHED", "b": "CANCELLED"}
    await site.ok("RequeueJobs", jobIDs=[3])
    await done(site, "b")
    assert set((await states(site, workflow)).values()) == {"FINISHED"}


async def test_a_job_revived_while_its_workflow_is_cancelled_leaves_it_cancelled(site: Site) -> None:
    workflow = await made(site, [A, B])
    taken = await site.leased("a")
    await ended(site, "fail", "b")
    await site.ok("CancelWorkflow", workflowID=workflow)
    await site.ok("RetryJob", jobID=3, revive=True)
    await done(site, "b")
    await site.fail(taken, error="stopped")
    assert await states(site, workflow) == {"": "CANCELLED", "a": "CANCELLED", "b": "FINISHED"}


async def test_a_mocked_job_that_waits_is_not_ended_or_started_out_of_turn(site: Site) -> None:
    jobs = [{**A, "mockRequest": True}, {**B, "mockRequest": True, "after": ["a"]}]
    workflow = await made(site, jobs)
    for command in ("FinishJob", "RetryJob"):
        assert (await site.refused(command, jobID=3))[0] == 405
    assert (await states(site, workflow))["b"] == "PAUSED"


async def test_a_cancelled_workflow_gets_no_more_jobs(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}])
    taken = await site.leased("a")
    assert (await site.ok("CancelWorkflow", workflowID=workflow))["stopping"] == 1
    more = [{"ref": "c", "name": "c"}]
    asked = {"jobID": taken["jobID"], "runID": taken["runID"], "jobs": more}
    assert await site.refused("AddToWorkflow", **asked) == (405, "Workflow has ended")
    await site.finish(taken)
    assert (await states(site, workflow))[""] == "CANCELLED"


async def test_a_waiting_job_of_a_cancelled_workflow_is_counted_once(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}])
    await site.ok("CancelWorkflow", workflowID=workflow)
    await site.ok("RequeueJobs", jobIDs=[3])
    shown = await site.ok("QueryWorkflow", workflowID=workflow)
    assert (shown["open"], shown["failed"]) == (1, 1)


async def test_a_retry_of_a_workflow_forgets_lost_runs(site: Site) -> None:
    lost = {**A, "retryAfter": "+1 MINUTE", "data": {"retryAfterCount": 10}}
    workflow = await made(site, [lost])
    assert await site.nothing("a")
    assert (await states(site, workflow))["a"] == "FAILED"
    await site.ok("RetryWorkflow", workflowID=workflow)
    await site.finish(await site.take("a", None))
    assert (await states(site, workflow))[""] == "FINISHED"


# --- add -------------------------------------------------------------------------------------------------


async def test_a_job_computes_its_own_fan_out(site: Site) -> None:
    workflow = await made(site, [A])
    taken = await site.take("a")
    parts = [{"ref": f"part {n}", "name": "part", "after": ["a"]} for n in range(3)]
    last = {"ref": "sum", "name": "sum", "after": [part["ref"] for part in parts]}
    asked = {"jobID": taken["jobID"], "runID": taken["runID"], "jobs": [*parts, last]}
    added = await site.ok("AddToWorkflow", **asked)
    assert (await site.refused("AddToWorkflow", **asked)) == (402, "Malformed ref")
    assert await site.ok("AddToWorkflow", **asked, existing="keep") == added
    await site.finish(taken, data={"parts": 3})
    for n in range(3):
        assert (await done(site, "part", n=n))["before"] == {"a": {"parts": 3}}
    assert (await done(site, "sum"))["before"] == {f"part {n}": {"n": n} for n in range(3)}
    assert (await states(site, workflow))[""] == "FINISHED"
    reply = await site.refused("AddToWorkflow", workflowID=workflow, jobs=[B])
    assert reply == (405, "Workflow has ended")
    assert (await site.refused("AddToWorkflow", **asked))[0] == 404


@pytest.mark.parametrize("policy", ["cancel", "continue"])
async def test_a_job_added_after_ended_ones_is_as_if_it_had_been_there(site: Site, policy: str) -> None:
    workflow = await made(site, [{**A, "onFailure": policy}, B])
    await ended(site, "fail", "a")
    jobs = [
        {"ref": "c", "name": "c", "after": ["a"]},
        {"ref": "d", "name": "d", "after": ["c"]},
        {"ref": "e", "name": "e", "after": ["b"]},
    ]
    await site.ok("AddToWorkflow", workflowID=workflow, jobs=jobs)
    found = await states(site, workflow)
    wanted = ("CANCELLED", "CANCELLED") if policy == "cancel" else ("QUEUED", "PAUSED")
    assert (found["c"], found["d"], found["e"]) == (*wanted, "PAUSED")
    await done(site, "b")
    assert await site.take("e")


# --- idempotency, retention, restarts --------------------------------------------------------------------


async def test_a_repeated_request_finds_the_first_workflow(site: Site) -> None:
    asked = {"name": "nightly", "jobs": diamond(), "idempotencyKey": "k"}
    first = await site.ok("CreateWorkflow", **asked)
    assert await site.ok("CreateWorkflow", **asked) == first
    assert await site.refused("CreateWorkflow", **{**asked, "name": "b"}) == (405, "Key is used")
    assert await site.refused("CreateWorkflow", **{**asked, "jobs": [A]}) == (405, "Key is used")
    assert len((await site.ok("ListWorkflows"))["workflows"]) == 1


@pytest.mark.parametrize(("keep", "seconds"), [(None, 24 * 3_600), ("10m", 600)])
async def test_an_ended_workflow_is_kept_for_a_while(site: Site, keep: str | None, seconds: int) -> None:
    jobs = [{**A, "onFailure": "ignore"}, {**B, "after": ["a"]}, {"ref": "c", "name": "c"}]
    workflow = await made(site, jobs, **({"keep": keep} if keep else {}))
    await site.ok("CancelJob", jobID=2, any=True)
    await done(site, "b", result="x")
    await done(site, "c")
    await site.later(seconds - 1)
    assert (await site.ok("QueryJob", jobID=3))["result"] == {"result": "x"}
    await site.later(2)
    await site.later(3_600)
    for _ in range(3):
        await site.later(3_600)
    assert (await site.refused("QueryWorkflow", workflowID=workflow))[0] == 404
    assert (await site.refused("QueryJob", jobID=3))[0] == 404
    for table in ("workflows", "workflowJobs", "workflowEdges", "jobs"):
        assert await site.select(f"SELECT count(*) AS n FROM {table}") == [{"n": 0}]


async def test_a_failed_workflow_is_kept(site: Site) -> None:
    workflow = await made(site, [A, {**B, "after": ["a"]}], keep=0)
    await ended(site, "fail", "a")
    for _ in range(3):
        await site.later(7 * 86_400)
    assert await site.ok("RetryWorkflow", workflowID=workflow) == {"retried": 2}


async def test_a_workflow_outlives_a_crash(site: Site) -> None:
    workflow = await made(site, diamond())
    await done(site, "first", rows=7)
    await site.crash()
    assert (await done(site, "left"))["before"] == {"first": {"rows": 7}}
    await done(site, "right")
    await site.crash()
    await done(site, "last")
    assert (await states(site, workflow))[""] == "FINISHED"


async def test_a_follower_of_events_sees_the_end(site: Site) -> None:
    await made(site, [A])
    await ended(site, "fail", "a")
    kinds = {event["kind"]: event for event in (await site.ok("Events", after=0))["events"]}
    assert (kinds["workflow failed"]["name"], kinds["workflow failed"]["detail"]) == ("nightly", "failed: a")
    assert kinds["workflow failed"]["jobID"] == 1


async def test_results_that_are_too_much_are_left_out_by_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "BEFORE_BYTES_MAX", 30)
    await made(site, [A, B, {"ref": "c", "name": "c", "after": ["a", "b"]}])
    await done(site, "a", text="x" * 10)
    await done(site, "b", text="x" * 10)
    taken = await site.take("c")
    assert (taken["before"], taken["beforeLeftOut"]) == ({"a": {"text": "x" * 10}}, ["b"])


async def test_a_result_is_erased_with_its_run(site: Site) -> None:
    await made(site, [A, {**B, "after": ["a"]}])
    await done(site, "a", secret="hunter2")
    await site.ok("DeleteRuns", text="hunter2")
    assert (await site.take("b"))["before"] == {"a": None}


async def quoted(site: Site, workflow: int) -> list[tuple[str, str]]:
    """Return the reasons of the jobs of a workflow, and the errors of the jobs."""
    shown = await site.ok("QueryWorkflow", workflowID=workflow)
    rows = [await site.ok("QueryJob", jobID=job["jobID"]) for job in shown["jobs"]]
    return [
        (job.get("reason", ""), row.get("error", "")) for job, row in zip(shown["jobs"], rows, strict=True)
    ]


@pytest.mark.parametrize("by", ["runIDs", "text"])
async def test_an_error_is_erased_with_its_run_also_behind_it(site: Site, by: str) -> None:
    jobs = [A, {**B, "after": ["a"]}, {"ref": "c", "name": "c", "after": ["b"]}]
    workflow, other = await made(site, jobs), await made(site, [A, {**B, "after": ["a"]}])
    job = await site.take("a")
    await site.fail(job, error="no: hunter2")
    await site.fail(await site.take("a"), error="plain")
    why = f"Job {job['jobID']} (a) before it failed: no: hunter2"
    assert (await quoted(site, workflow))[1:] == [(why, why)] * 2
    kept = await quoted(site, other)
    await site.ok("DeleteRuns", **({"text": "hunter2"} if by == "text" else {"runIDs": [job["runID"]]}))
    assert [reason for reason, _ in await quoted(site, workflow)] == ["removed"] * 3
    assert (await quoted(site, workflow))[1:] == [("removed", "removed")] * 2
    assert await quoted(site, other) == kept


async def test_a_text_is_erased_from_workflows_if_its_runs_are_gone(site: Site) -> None:
    """As runs beyond their retention are."""
    good = await made(site, [A, {**B, "after": ["a"]}])
    first = await done(site, "a", secret=["hunter\u00e9"])
    bad = await made(site, [{"ref": "x", "name": "x"}, {"ref": "y", "name": "y", "after": ["x"]}])
    second = await site.take("x")
    await site.fail(second, error="no: hunter\u00e9")
    await site.change("DELETE FROM runs")
    before = await quoted(site, bad)
    await site.ok("DeleteRuns", text="hunter3")
    assert await quoted(site, bad) == before
    await site.ok("DeleteRuns", text="hunter\u00e9")
    assert [reason for reason, _ in await quoted(site, bad)] == ["removed"] * 2
    assert (await quoted(site, bad))[1] == ("removed", "removed")
    assert (await site.ok("QueryWorkflow", workflowID=good))["jobs"][0]["state"] == "FINISHED"
    assert (await site.take("b"))["before"] == {"a": None}
    assert first["jobID"] != second["jobID"]
