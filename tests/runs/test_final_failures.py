"""Events about failures: a permanent one is `failed`; retries and recoveries have other kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runs.rig import Site, failed_once_more

CRON = "CRON */5 * * * *"


async def kinds(site: Site) -> list[str]:
    """Return the kinds of the events that tell of failures, in their order."""
    told = ("failed", "retried", "recovered", "handed back")
    return [event["kind"] for event in (await site.ok("Events"))["events"] if event["kind"] in told]


async def health(site: Site, name: str) -> tuple[int, str]:
    """Ask whether a schedule is well; return the status and why."""
    async with await site.connect() as talk:
        talk.send(f"GET /healthz?schedule={name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = (await talk.ended()).decode().partition("\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body)["reason"])


async def test_the_last_failure_of_a_tick_is_an_event_and_so_is_the_recovery(site: Site) -> None:
    await site.create("s", repeat=CRON, retries=1, backoff=10)
    await site.until_time("2026-11-21 03:30:00")
    await failed_once_more(site, "s", error="no disk")
    (retried,) = await site.events("retried")
    assert (retried["name"], retried["jobID"], retried["runID"], retried["detail"]) == ("s", 1, 1, "no disk")
    assert await site.events("failed") == []
    assert (await health(site, "s"))[0] == 200, "it is tried again"
    await failed_once_more(site, "s", error="still no disk")
    (failed,) = await site.events("failed")
    assert (failed["name"], failed["jobID"], failed["runID"]) == ("s", 1, 2)
    assert failed["detail"] == "still no disk"
    assert (await health(site, "s"))[0] == 503
    await site.until_time("2026-11-21 03:35:00")
    await site.fail(await site.take("s"), final=True)
    assert len(await site.events("failed")) == 2, "each tick that failed is told"
    for tick in ("03:40:00", "03:45:00"):
        await site.until_time(f"2026-11-21 {tick}")
        await site.finish(await site.take("s"))
    assert await kinds(site) == ["retried", "failed", "failed", "recovered"], "it recovers once"
    assert (await health(site, "s"))[0] == 200


@pytest.mark.parametrize("how", ["lease", "runTimeout"])
async def test_a_lost_tick_of_a_schedule_has_failed(site: Site, how: str) -> None:
    limit = {"lease": {"lease": 45}, "runTimeout": {"runTimeout": 5, "grace": 1, "lease": 3600}}[how]
    await site.create("s", repeat=CRON, **limit)
    await site.until_time("2026-11-21 03:30:00")
    await site.leased("s")
    if how == "lease":
        await site.silence(60)
    for _ in range(3):  # TERM, KILL, and taken back
        await site.later(20)
    (failed,) = await site.events("failed")
    assert (failed["name"], failed["runID"]) == ("s", 1)
    assert await site.state(1) == "QUEUED"


async def test_a_revived_job_recovers(site: Site) -> None:
    await site.create("a")
    await failed_once_more(site)
    await site.ok("RetryJob", jobID=1, revive=True)
    await site.finish(await site.take("a"))
    assert await kinds(site) == ["failed", "recovered"]


async def test_a_run_that_was_retried_by_its_worker_is_told(site: Site) -> None:
    await site.create("a")
    await site.end("RetryJob", await site.take("a"), exitCode=75)
    await site.end("RetryJob", await site.take("a"), snoozed=True)
    await site.take("a", None)
    await site.ok("RetryJob", jobID=1)
    assert await kinds(site) == ["retried"], "neither what was put off, nor where there is no run"


async def test_a_job_on_the_crash_list_has_failed(site: Site) -> None:
    await site.create("a")
    await site.ok("CrashBedrockJob", names=["a"])
    assert await site.nothing("a")
    (failed,) = await site.events("failed")
    assert failed["jobID"] == 1


async def test_a_parent_that_fails_with_its_child_is_told(site: Site) -> None:
    await site.create("p", onChildFailure="fail")
    parent = await site.take("p")
    await site.create("c", parentJobID=1)
    await site.finish(parent)
    await site.fail(await site.take("c"), error="no disk")
    words = "Child job 2 (c) failed: no disk"
    assert [(event["jobID"], event["detail"]) for event in await site.events("failed")] == [
        (2, "no disk"),
        (1, words),
    ]
    assert await site.state(1) == "FAILED"


# --- returned --------------------------------------------------------------------------------------------


async def test_a_run_that_is_handed_back_stays_with_its_output(site: Site) -> None:
    await site.create("s", repeat=CRON)
    await site.until_time("2026-11-21 03:30:00")
    job = await site.leased("s")
    await site.ok("AppendOutput", runID=job["runID"], seq=1, lines=["half"])
    await site.end("RetryJob", job, returned=True)
    run = await site.run(1)
    assert (run["status"], run["output"], run["ended"] >= run["started"]) == ("returned", ["half"], True)
    output = await site.ok("ReadOutput", runID=1)
    assert ([line["line"] for line in output["lines"]], output["ended"]) == (["half"], True)
    assert (await health(site, "s")) == (200, "no run has ended yet")
    again = await site.leased("s")
    assert (again["runID"], again["attempt"]) == (2, 1)
    await site.finish(again)
    assert await site.events("recovered") == []
    assert [run["runID"] for run in await site.runs(status="returned")] == [1]


# --- attempts --------------------------------------------------------------------------------------------


async def attempts(site: Site) -> list[tuple[str, Any]]:
    """Return the cause and the attempt of each run, the oldest first."""
    return [(run["cause"], run["attempt"]) for run in reversed(await site.runs())]


async def test_attempts_count_anew_with_each_tick_and_each_trigger(site: Site) -> None:
    await site.create("s", repeat=CRON, retries=1, backoff=10)
    await site.until_time("2026-11-21 03:30:00")
    await failed_once_more(site, "s")
    await failed_once_more(site, "s")
    await site.until_time("2026-11-21 03:35:00")
    await site.finish(await site.take("s"))
    for _ in range(2):
        await site.ok("TriggerJob", jobID=1)
        await site.finish(await site.take("s"))
    await site.until_time("2026-11-21 03:40:00")
    await site.finish(await site.take("s"))
    assert await attempts(site) == [
        ("schedule", 1),
        ("retry", 2),
        ("schedule", 1),
        ("manual", 1),
        ("manual", 1),
        ("schedule", 1),
    ]


async def test_the_rest_of_a_tick_after_its_children_counts_on(site: Site) -> None:
    await site.create("s", repeat=CRON)
    await site.until_time("2026-11-21 03:30:00")
    parent = await site.take("s")
    await site.create("c", parentJobID=1)
    await site.finish(parent)
    await site.finish(await site.take("c"))
    assert (await site.take("s"))["attempt"] == 2


# --- timeout ---------------------------------------------------------------------------------------------


async def test_a_worker_says_that_a_run_was_over_its_time(site: Site) -> None:
    await site.create("a", retries=1, backoff=0)
    for status in ("QUEUED", "FAILED"):
        await site.fail(await site.take("a"), timedOut=True, error="timed out after 5 s")
        assert await site.state(1) == status
    assert [run["status"] for run in await site.runs()] == ["timeout", "timeout"]


async def test_who_was_stopped_was_not_over_its_time(site: Site) -> None:
    await site.create("a")
    job = await site.leased("a")
    await site.ok("TerminateRun", runID=job["runID"])
    await site.fail(job, timedOut=True)
    assert (await site.run(1))["status"] == "terminated"
