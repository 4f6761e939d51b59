"""Waiting GetJobs: which is woken by a job, in which order, and when the wait ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from bedrockjobs.base import glob
from bedrockjobs.base.config import WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.commands import GetJob
from bedrockjobs.engine.submission import Outcome
from tests.conftest import Live
from tests.effort import PROFILE, examples
from tests.engines import sqlite_only
from tests.protocol.spent import ANSWERED_S, watched
from tests.protocol.talk import Talk, post, request
from tests.protocol.waiters import LONG_MS, wait_for

# --- woken by a job --------------------------------------------------------------------------------------


async def test_a_created_job_goes_to_who_waits_for_it(live: Live) -> None:
    talk = await wait_for(live, "foo")
    assert (await live.ask("CreateJob", name="foo", data='{"a":1}')).json == {"jobID": 1}
    reply = await talk.reply()
    assert reply.status == "200 OK"
    assert (reply.json["jobID"], reply.json["data"]) == (1, {"a": 1})
    assert (await live.row(1))["state"] == "RUNNING"


async def test_the_hand_over_is_in_the_commit_that_makes_it_possible(live: Live) -> None:
    talk = await wait_for(live, "foo")
    other = await live.connect()
    other.send(request("CreateJob", name="foo") + request("GetJob", name="foo"))
    assert (await other.reply()).json == {"jobID": 1}
    assert (await other.reply()).code == 404, "no other GetJob can come in between"
    assert (await talk.reply()).json["jobID"] == 1


@pytest.mark.parametrize(
    ("asked", "fits", "fits_not"),
    [
        ({"name": "foo"}, "foo", ["Foo", "fo", "foobar"]),
        ({"name": "foo*"}, "foobar", ["fo", "Foo", "barfoo"]),
        ({"name": "*foo"}, "barfoo", ["foob", "bar"]),
        ({"name": "f?o[12]"}, "fxo2", ["fxo3", "fxxo1", "foo"]),
        ({"name": "*"}, "anything", []),
        ({"name": "a, b ,c"}, "b", ["d", "a,b", "a*"]),
        ({"name": "a*,b"}, "a*", ["ax", "c"]),
        ({"names": '["x/*","y","z?"]'}, "y", ["x", "yy", "z"]),
        ({"names": '["x/*","y","z?"]'}, "x/", ["x", "zz1"]),
        ({"name": "[[]1"}, "[1", ["1", "[[]1"]),
    ],
)
async def test_only_a_job_that_fits_wakes(
    live: Live, asked: dict[str, str], fits: str, fits_not: list[str]
) -> None:
    talk = await live.connect()
    talk.send(request("GetJob", Connection="wait", timeout=LONG_MS, **asked))
    await live.waiting(1)
    for name in fits_not:
        assert (await live.ask("CreateJob", name=name)).code == 200
    assert live.server.dispatcher.waiting == 1
    assert await talk.silent()
    await live.ask("CreateJob", name=fits)
    assert (await talk.reply()).json["name"] == fits
    await live.waiting(0)


async def test_a_job_goes_to_one_waiter_and_the_longest_waiting_is_first(live: Live) -> None:
    talks = [await wait_for(live, name) for name in ("foo", "f*", "*", "foo", "[f]oo", "a,foo")]
    for number, talk in enumerate(talks, 1):
        assert (await live.ask("CreateJob", name="foo")).json == {"jobID": number}
        assert (await talk.reply()).json["jobID"] == number
        await live.waiting(len(talks) - number)
    for talk in talks:
        assert await talk.silent()


async def test_jobs_of_one_commit_go_to_as_many_waiters(live: Live) -> None:
    talks = [await wait_for(live, "batch/*") for _ in range(3)]
    await live.ask(
        "CreateJobs", jobs='[{"name":"batch/1"},{"name":"batch/2"},{"name":"x"},{"name":"batch/3"}]'
    )
    assert [(await talk.reply()).json["name"] for talk in talks] == ["batch/1", "batch/2", "batch/3"]
    assert (await live.row(3))["state"] == "QUEUED"


async def test_a_priority_filter(live: Live) -> None:
    talk = await wait_for(live, "foo", jobPriority=1000)
    await live.ask("CreateJob", name="foo")
    assert await talk.silent()
    await live.ask("CreateJob", name="foo", jobPriority=1000)
    assert (await talk.reply()).json["jobID"] == 2
    assert (await live.row(1))["state"] == "QUEUED"


async def test_a_changed_priority_or_name_may_wake(live: Live) -> None:
    by_priority, by_name = await wait_for(live, "foo", jobPriority=1000), await wait_for(live, "bar")
    await live.ask("CreateJob", name="foo")
    await live.ask("UpdateJob", jobID=1, jobPriority=1000)
    assert (await by_priority.reply()).json["jobID"] == 1
    await live.ask("RetryJob", jobID=1, name="bar")
    assert (await by_name.reply()).json["jobID"] == 1


async def test_mocked_jobs_wake_only_who_asks_for_them(live: Live) -> None:
    plain, mocking = await wait_for(live, "foo"), await wait_for(live, "foo", getMockedJobs=True)
    await live.ask("CreateJob", name="foo", mockRequest=True)
    assert (await mocking.reply()).json["data"] == {"mockRequest": True}
    assert await plain.silent()
    await live.ask("CreateJob", name="foo")
    assert (await plain.reply()).json["jobID"] == 2


async def test_many_jobs_for_one_waiter(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("GetJobs", name="many", numResults=10, Connection="wait", timeout=LONG_MS))
    await live.waiting(1)
    await live.ask("CreateJobs", jobs='[{"name":"many"},{"name":"many"},{"name":"many"}]')
    assert [job["jobID"] for job in (await talk.reply()).json["jobs"]] == [1, 2, 3]
    await live.waiting(0)


async def test_waiting_ends_with_the_first_job(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("GetJobs", name="many", numResults=10, Connection="wait", timeout=LONG_MS))
    await live.waiting(1)
    await live.ask("CreateJob", name="many")
    assert len((await talk.reply()).json["jobs"]) == 1


async def test_every_way_a_job_becomes_ready_wakes(live: Live) -> None:
    worker = await live.connect()
    await worker.ask("CreateJob", name="w", repeat="FINISHED, -1 SECOND")
    for verb, more in (("RetryJob", {}), ("FinishJob", {}), ("RequeueJobs", {"jobIDs": 1})):
        assert (await worker.ask("GetJob", name="w")).code == 200
        talk = await wait_for(live, "w")
        assert (await worker.ask(verb, **(more or {"jobID": 1}))).code == 200
        assert (await talk.reply()).json["jobID"] == 1
        await worker.ask("RequeueJobs", jobIDs=1)
    await worker.ask("GetJob", name="w")
    await worker.ask("FailJob", jobID=1)
    talk = await wait_for(live, "w")
    await worker.ask("RetryJob", jobID=1, revive=True, ignoreRepeat=True)
    assert (await talk.reply()).json["jobID"] == 1


async def test_families_wake(live: Live) -> None:
    await live.ask("CreateJob", name="parent")
    await live.ask("GetJob", name="parent")
    await live.ask("CreateJob", name="child", parentJobID=1)
    child, parent = await wait_for(live, "child"), await wait_for(live, "parent")
    await live.ask("FinishJob", jobID=1)
    assert (await child.reply()).json["parentJobID"] == 1
    await live.ask("FinishJob", jobID=2)
    assert [each["jobID"] for each in (await parent.reply()).json["finishedChildJobs"]] == [2]


async def test_finish_and_wait_for_the_next(live: Live) -> None:
    await live.ask("CreateJob", name="t")
    await live.ask("GetJob", name="t")
    talk = await live.connect()
    talk.send(request("FinishJob", jobID=1, thenGet="t", Connection="wait", timeout=LONG_MS))
    await live.waiting(1)
    await live.until(lambda: live.server.dispatcher.pending == 0)  # its transaction has been committed
    assert (await live.ask("QueryJob", jobID=1)).code == 404, "the finish itself is committed at once"
    await live.ask("CreateJob", name="t")
    assert (await talk.reply()).json["job"]["jobID"] == 2


async def test_finish_and_the_wait_for_the_next_runs_out(live: Live) -> None:
    await live.ask("CreateJob", name="t")
    await live.ask("GetJob", name="t")
    reply = await live.ask("FinishJob", jobID=1, thenGet="t", Connection="wait", timeout=20)
    assert (reply.code, reply.json) == (200, {"job": None})
    assert (await live.ask("QueryJob", jobID=1)).code == 404


async def test_a_dead_connection_does_not_undo_the_finish(live: Live) -> None:
    await live.ask("CreateJob", name="t")
    await live.ask("GetJob", name="t")
    talk = await live.connect()
    talk.send(request("FinishJob", jobID=1, thenGet="t", Connection="wait", timeout=LONG_MS))
    await live.waiting(1)
    talk.reset()
    await live.waiting(0)
    assert (await live.ask("QueryJob", jobID=1)).code == 404
    await live.ask("CreateJob", name="t")
    assert (await live.ask("GetJob", name="t")).json["jobID"] == 2


# --- woken by time ---------------------------------------------------------------------------------------


async def test_a_job_that_becomes_due(still: Live) -> None:
    talk = await wait_for(still, "foo")
    await still.ask("CreateJob", name="foo", firstRun="2026-11-21 03:30:00")
    still.advance(3.667)
    assert await talk.silent()
    still.advance(0.001)
    assert (await talk.reply()).json["nextRun"] == "2026-11-21 03:30:00"


async def test_a_job_that_is_already_planned_when_the_wait_begins(still: Live) -> None:
    for name in ("foo", "foe", "bar"):
        await still.ask("CreateJob", name=name, firstRun="2026-11-21 03:30:00")
    talks = [await wait_for(still, name) for name in ("foo,baz", "fo*", "[b]ar")]
    still.advance(3.668)
    assert [(await talk.reply()).json["name"] for talk in talks] == ["foo", "foe", "bar"]


async def test_by_the_machines_clock(live: Live) -> None:
    talk = await wait_for(live, "foo")
    await live.ask("CreateJob", name="foo")
    assert (await talk.reply()).json["jobID"] == 1
    talk = await wait_for(live, "foo")
    await live.ask("RetryJob", jobID=1, delay=1)
    assert await talk.silent()
    assert (await talk.reply()).json["jobID"] == 1


async def test_a_lost_job_becomes_due_for_a_waiter(still: Live) -> None:
    await still.ask("CreateJob", name="lost", retryAfter="+5 SECONDS")
    assert (await still.ask("GetJob", name="lost")).json["data"] == {}
    talk = await wait_for(still, "lost")
    still.advance(4.999)
    assert await talk.silent()
    still.advance(0.001)
    assert (await talk.reply()).json["data"] == {"retryAfterCount": 1}
    talk = await wait_for(still, "lost")
    still.advance(5)
    assert (await talk.reply()).json["data"] == {"retryAfterCount": 2}


async def test_a_job_handed_to_a_waiter_is_lost_and_due_for_the_next_one(still: Live) -> None:
    first, second = await wait_for(still, "lost"), await wait_for(still, "lost")
    await still.ask("CreateJob", name="lost", retryAfter="+5 SECONDS")
    assert (await first.reply()).json["data"] == {}
    assert await second.silent()
    still.advance(5)
    assert (await second.reply()).json["data"] == {"retryAfterCount": 1}


async def test_the_highest_priority_of_what_became_due_together(still: Live) -> None:
    for priority in (0, 1000, 500):
        await still.ask("CreateJob", name="d", jobPriority=priority, firstRun="2026-11-21 03:30:00")
    talks = [await wait_for(still, "d*") for _ in range(3)]
    still.advance(10)
    assert [(await talk.reply()).json["priority"] for talk in talks] == [1000, 500, 0]


async def test_a_later_job_does_not_hide_a_sooner_one(still: Live) -> None:
    await still.ask("CreateJob", name="x/1", firstRun="2026-11-21 04:30:00", jobPriority=1000)
    talk = await wait_for(still, "x/*", timeout=WAIT_MS_MAX)
    await still.ask("CreateJob", name="x/2", firstRun="2026-11-21 03:31:00", jobPriority=0)
    still.advance(64)
    assert (await talk.reply()).json["name"] == "x/2"


async def test_a_postponed_job_is_not_handed_out_at_its_old_time(still: Live) -> None:
    await still.ask("CreateJob", name="x", firstRun="2026-11-21 03:30:00")
    talk = await wait_for(still, "x", timeout=WAIT_MS_MAX)
    await still.ask("UpdateJob", jobID=1, nextRun="2026-11-21 03:31:00")
    still.advance(10)
    assert await talk.silent()
    still.advance(60)
    assert (await talk.reply()).json["jobID"] == 1


# --- the wait runs out -----------------------------------------------------------------------------------


async def test_a_wait_runs_out_with_404(still: Live) -> None:
    talk = await wait_for(still, "none", timeout=1500)
    still.advance(1.499)
    assert await talk.silent()
    still.advance(0.001)
    assert (await talk.reply()).status == "404 No job found"
    assert (await talk.ask("Ping")).code == 200


async def test_a_wait_runs_out_by_the_machines_clock(live: Live) -> None:
    reply = await live.ask("GetJob", name="none", Connection="wait", timeout=30)
    assert reply.status == "404 No job found"
    reply = await live.http("GetJob", {"name": "none", "connection": "wait", "timeout": 30})
    assert (reply.code, reply.json["code"], reply.json["reason"]) == (404, 404, "No job found")


async def test_a_wait_without_a_timeout_has_the_default(still: Live) -> None:
    talk = await still.connect()
    talk.send(request("GetJob", name="none", Connection="wait"))
    await still.waiting(1)
    still.advance(WAIT_MS_DEFAULT / 1000 - 0.001)
    assert await talk.silent()
    still.advance(0.001)
    assert (await talk.reply()).code == 404


async def test_no_wait_is_longer_than_the_limit(still: Live) -> None:
    talk = await wait_for(still, "none", timeout=100 * WAIT_MS_MAX)
    still.advance(WAIT_MS_MAX / 1000)
    assert (await talk.reply()).code == 404


async def test_prefer_wait(still: Live) -> None:
    talk = await still.connect()
    talk.send(post("GetJob", {"name": "p"}, {"Prefer": "respond-async, wait=10"}))
    await still.waiting(1)
    still.advance(9.999)
    assert await talk.silent()
    still.advance(0.001)
    assert (await talk.reply()).code == 404


# --- very many patterns ----------------------------------------------------------------------------------

PATTERNS = examples(1_000, night=5_000)
"""Waiting GetJobs, each with a pattern of its own."""

COMPARED_MAX = 20
"""Patterns that a new job may be compared with, in the index of waiters and in that of the next jobs each."""


@sqlite_only("the same waiters are served on both engines, and a search for 5,000 patterns takes long")
async def test_a_job_goes_to_its_waiter_among_thousands_of_patterns_and_is_compared_with_few(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, Outcome] = {}

    def deliver(number: int, outcome: Outcome) -> bool:
        found[number] = outcome
        return True

    for number in range(PATTERNS):
        ask = GetJob(name=f"jobs/*/host-{number}", connection="wait", timeout=LONG_MS)
        live.server.service.submit(ask, partial(deliver, number))
    await live.waiting(PATTERNS)
    await live.until(lambda: live.server.dispatcher.pending == 0)
    compared, matches = 0, glob._Entry.matches

    def counting(entry: glob._Entry[object], name: str) -> bool:
        nonlocal compared
        compared += 1
        return matches(entry, name)

    monkeypatch.setattr(glob._Entry, "matches", counting)
    asked = range(0, PATTERNS, 50)
    for number in asked:
        assert (await live.ask("CreateJob", name=f"jobs/some/host-{number}")).code == 200
    await live.until(lambda: len(found) >= len(asked))
    print(f"{compared / len(asked):.1f} comparisons of {PATTERNS} for each job")
    assert compared / len(asked) < 2 * COMPARED_MAX
    for number in asked:
        assert f'"name":"jobs/some/host-{number}"' in found[number].body  # type: ignore[union-attr]


@pytest.mark.skipif(PROFILE != "random", reason="5,000 connections: at night only")
async def test_thousands_of_hosts_wait_at_a_server_each_for_its_own_pattern(tmp_path: Path) -> None:
    with watched(tmp_path / "jobs.db") as server:
        async with AsyncExitStack() as stack:
            talks = []
            for number in range(PATTERNS):
                talks.append(await stack.enter_async_context(await Talk.open(server.port)))
                talks[-1].send(
                    request("GetJob", name=f"jobs/*/host-{number}", connection="wait", timeout=LONG_MS)
                )
            await server.settled()
            async with await Talk.open(server.port) as other:
                async with asyncio.timeout(ANSWERED_S):
                    while (await other.ask("Status")).json["waiting"] < PATTERNS:
                        await asyncio.sleep(0.05)
                for number in range(0, PATTERNS, 50):
                    assert (await other.ask("CreateJob", name=f"jobs/x/host-{number}")).code == 200
                    assert (await talks[number].reply()).json["name"] == f"jobs/x/host-{number}"
