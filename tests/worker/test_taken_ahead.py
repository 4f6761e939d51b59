"""Jobs that are taken ahead of a free slot: each runs once, and none waits for a long run.

The workers here take ahead after the first run, and those of most tests hold such jobs until the test ends.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from bedrock_worker.agent import AHEAD_MAX, AHEAD_S, Agent, Slots
from bedrock_worker.run.job_run import JobRun

from bedrockjobs.base.config import RUNS_PER_HEARTBEAT_MAX
from tests.worker.conftest import options_for, until

SHORT_S = 0.001
"""Duration of a run that these workers assume, whatever they measure."""

SCRIPT = """
echo "$BEDROCK_JOB_ID" >> "$0/begun"
if grep -q block "$BEDROCK_DATA_FILE"; then until [ -e "$0/go" ]; do sleep 0.02; done; fi
"""


@pytest.fixture
def ahead(monkeypatch):
    """Make workers in this process take ahead at once, and return what sets how long they hold such jobs."""
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", SHORT_S)
    monkeypatch.setattr("bedrock_worker.agent.WEIGHT", 0.0)
    return lambda seconds: monkeypatch.setattr("bedrock_worker.agent.HELD_S_MAX", seconds)


def begun(folder: Path) -> list[int]:
    """Return the jobs that have begun, in this order."""
    path = folder / "begun"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def _blocked(server, tmp_path, working, jobs=5, **more):
    """Return a worker's context: one short job, one that blocks the slot, and others behind it."""
    await server.add()
    await server.add("Foo", '{"block":true}')
    for _ in range(jobs):
        await server.add("Foo", **more)
    return working("sh", "-c", SCRIPT, str(tmp_path))


# --- how many ------------------------------------------------------------------------------------------


class _Run:
    """As much of a run as slots need."""

    job = SimpleNamespace(reply=SimpleNamespace(priority=500))
    hold, begin, withdraw, _take_turn = JobRun.hold, JobRun.begin, JobRun.withdraw, JobRun._take_turn


@pytest.mark.parametrize(
    ("mean_s", "slots", "expected"),
    [(AHEAD_S, 4, 4), (AHEAD_S / 5, 4, 20), (AHEAD_S * 4, 4, 1), (AHEAD_S * 4.1, 4, 0), (1e-9, 4, AHEAD_MAX)],
)
async def test_as_many_are_taken_ahead_as_begin_within_a_time(monkeypatch, mean_s, slots, expected):
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", mean_s)
    assert Slots(lambda: slots).ahead() == expected


@pytest.mark.parametrize(
    ("concurrency", "ahead"), [(1, [50, 100]), (800, [100, 100]), (900, [50, 50]), (1_000, [0, 0])]
)
async def test_a_heartbeat_can_list_all_that_a_worker_has_in_hand(server, monkeypatch, concurrency, ahead):
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", SHORT_S)
    agent = Agent(options_for(server, "true", concurrency=concurrency))
    assert [places.ahead() for places in agent._places] == ahead
    assert concurrency + sum(ahead) <= RUNS_PER_HEARTBEAT_MAX


async def test_a_slot_with_a_long_run_counts_for_none(monkeypatch):
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", AHEAD_S / 5)
    monkeypatch.setattr("bedrock_worker.agent.WEIGHT", 0.0)
    slots, runs = Slots(lambda: 2), [_Run(), _Run()]
    assert await slots.enter(runs[0])
    await until(lambda: slots.ahead() == 5)
    assert await slots.enter(runs[1])
    assert slots.ahead() == 5
    slots.leave(runs[1])
    await until(lambda: slots.ahead() == 5)
    slots.leave(runs[0])
    assert slots.ahead() == 10


async def test_one_that_is_cancelled_while_it_waits_keeps_no_slot():
    slots, runs = Slots(lambda: 1), [_Run() for _ in range(4)]
    assert await slots.enter(runs[0])
    waiting = [asyncio.ensure_future(slots.enter(run)) for run in runs[1:]]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    slots.leave(runs[0])  # the second gets it, and is cancelled before it knows
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    assert await waiting[2]
    slots.leave(runs[3])
    assert await slots.enter(runs[0])


async def test_those_that_wait_begin_when_slots_are_added(monkeypatch):
    monkeypatch.setattr("bedrock_worker.agent.HELD_S_MAX", 0.02)
    count = 1
    slots, runs = Slots(lambda: count), [_Run() for _ in range(4)]
    assert await slots.enter(runs[0])
    waiting = [asyncio.ensure_future(slots.enter(run)) for run in runs[1:3]]
    await asyncio.sleep(0)
    count = 2
    assert [await each for each in waiting] == [True, False], "one begins, the other is handed back"


async def test_one_that_comes_when_slots_are_added_does_not_overtake_those_that_wait():
    count = 1
    slots, runs = Slots(lambda: count), [_Run() for _ in range(3)]
    assert await slots.enter(runs[0])
    first = asyncio.ensure_future(slots.enter(runs[1]))
    await asyncio.sleep(0)
    count = 2
    second = asyncio.ensure_future(slots.enter(runs[2]))
    assert await first
    assert not second.done()
    slots.close()
    assert not await second


# --- what is requested ---------------------------------------------------------------------------------


async def test_short_runs_get_jobs_ahead_and_still_run_one_after_the_other(server, working, ahead, tmp_path):
    ahead(1_000)
    for _ in range(20):
        await server.add()
    script = 'echo begin >> "$0/log"; echo end >> "$0/log"'
    async with working("sh", "-c", script, str(tmp_path)):
        await server.report(20)
    assert (tmp_path / "log").read_text().split() == ["begin", "end"] * 20
    asked = [json.loads(request.text) for request in server.of("FinishJobs")]
    assert asked[0]["jobs"] == [{"exitCode": 0, "jobID": 1, "runID": 101}]
    assert asked[0]["numResults"] > 10
    assert [report.given["jobID"] for report in server.reports] == list(range(1, 21))


async def test_long_runs_get_none_ahead(server, working, monkeypatch, tmp_path):
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", 1_000.0)
    for _ in range(6):
        await server.add()
    async with working("true", concurrency=2, jobs_max=6) as worker:
        assert await worker.ended() == 0
    assert all(json.loads(request.text).get("numResults", 1) <= 2 for request in server.of("FinishJobs"))


async def test_no_more_are_taken_ahead_than_may_be_taken(server, working, ahead):
    ahead(1_000)
    for _ in range(9):
        await server.add()
    async with working("true", jobs_max=4) as worker:
        assert await worker.ended() == 0
    assert len(server.reports) == 4
    assert len(server._queue) == 5


async def test_a_higher_priority_goes_first_among_those_taken_ahead(server, working, ahead, tmp_path):
    ahead(1_000)
    async with await _blocked(server, tmp_path, working, 3) as worker:
        await server.add("Foo", priority=900)
        await until(lambda: begun(tmp_path) == [1, 2] and not server._queue)
        (tmp_path / "go").touch()
        await server.report(6)
        worker.agent.stop()
    assert begun(tmp_path) == [1, 2, 6, 3, 4, 5]


# --- what becomes of jobs that wait for a slot ---------------------------------------------------------


async def test_those_behind_a_long_run_are_handed_back(server, working, ahead, tmp_path):
    ahead(0.1)
    async with await _blocked(server, tmp_path, working):
        await server.report(6)
        returned = server.of("RetryJob")
        assert sorted(report.given["jobID"] for report in returned) == [3, 4, 5, 6, 7]
        assert all(report.given["returned"] and not report.then_get for report in returned)
        await server.add()
        (tmp_path / "go").touch()
        await server.report(8)
    assert begun(tmp_path) == [1, 2, 8]


async def test_a_worker_that_stops_hands_them_back_at_once(server, working, ahead, tmp_path):
    ahead(1_000)
    async with await _blocked(server, tmp_path, working) as worker:
        await until(lambda: begun(tmp_path) == [1, 2] and not server._queue)
        worker.agent.stop()
        await server.report(6)
        assert sorted(report.given["jobID"] for report in server.of("RetryJob")) == [3, 4, 5, 6, 7]
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert server.reports[-1].given == {"exitCode": 0, "jobID": 2, "runID": 102}
    assert begun(tmp_path) == [1, 2]


async def test_one_that_is_to_stop_ends_without_a_run(server, working, ahead, tmp_path):
    ahead(1_000)
    async with await _blocked(server, tmp_path, working):
        await until(lambda: begun(tmp_path) == [1, 2] and not server._queue)
        await server.stop_run(103, "TERM")
        await server.stop_run(104, "LOST")
        assert (await server.report(2)).given == {
            "exitCode": 143,
            "error": "stopped before it began (SIGTERM)",
            "jobID": 3,
            "runID": 103,
        }
        (tmp_path / "go").touch()
        await server.report(6)
    assert begun(tmp_path) == [1, 2, 5, 6, 7]
    assert 4 not in [report.given["jobID"] for report in server.reports]


async def test_one_whose_lease_is_over_never_begins(server, working, ahead, tmp_path):
    ahead(1_000)
    server.silent.add("Heartbeat")
    async with await _blocked(server, tmp_path, working, lease=1) as worker:
        await until(lambda: begun(tmp_path) == [1, 2] and not server._queue)
        await until(lambda: len(worker.agent._tasks) == 1)
        (tmp_path / "go").touch()
        await server.report(2)
    assert begun(tmp_path) == [1, 2]
    assert [report.given["jobID"] for report in server.reports] == [1, 2]
