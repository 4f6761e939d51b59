"""Lists of runs, schedules and ticks; other reads are answered at the same time."""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.vocabulary import FAILED_STATUSES, STATUSES
from bedrockjobs.commands import (
    ALL,
    ListJobs,
    ListSchedules,
    ListTicks,
    Query,
    QueryRun,
    RunReply,
    ValidateSchedule,
)
from bedrockjobs.views.render import keys_of
from bedrockjobs.views.schedules import validate
from tests.views.table import AT, Table


async def test_a_run_is_shown_with_its_json_as_it_was_spelled(table: Table) -> None:
    result = '{"b":2.50, "a":12345678901234567890}'
    table.run(
        5,
        name='n"1',
        jobID=3,
        worker="w1",
        host="h",
        pid=7,
        status="fail",
        exitCode=3,
        error="no\nway",
        result=result,
        progress="[1.0]",
        output='["one", "two"]',
        stop="TERM",
        ended=AT,
        data='{"to":1.50}',
    )
    body = (await table.views.answer(QueryRun(run_id=5))).body
    assert '"data":{"to":1.50}' in body
    assert f'"result":{result},"progress":[1.0],"output":["one", "two"]' in body
    assert json.loads(body) == {
        "runID": 5,
        "jobID": 3,
        "name": 'n"1',
        "attempt": 1,
        "cause": "schedule",
        "scheduledFor": AT,
        "started": AT,
        "ended": AT,
        "worker": "w1",
        "host": "h",
        "pid": 7,
        "status": "fail",
        "exitCode": 3,
        "error": "no\nway",
        "result": json.loads(result),
        "progress": [1.0],
        "output": ["one", "two"],
        "stop": "TERM",
        "data": {"to": 1.5},
    }


async def test_what_a_run_does_not_have_is_null(table: Table) -> None:
    table.run(5, status="running")
    run = await table.ask(QueryRun(run_id=5))
    assert (run["exitCode"], run["result"], run["progress"], run["output"]) == (None, None, None, [])
    assert list(run) == list(keys_of(RunReply))


async def test_runs_are_listed_the_newest_first_and_page_by_page(table: Table) -> None:
    for run_id in range(1, 8):
        table.run(run_id)
    assert await table.run_ids(limit=3) == [7, 6, 5]
    assert await table.run_ids(limit=3, before=5) == [4, 3, 2]
    assert await table.run_ids(limit=3, before=2) == [1]
    assert await table.run_ids(before=1) == []


async def test_failed_is_every_status_that_is_a_failure(table: Table) -> None:
    for run_id, status in enumerate(STATUSES, 1):
        table.run(run_id, status=status)
    for run_id, status in enumerate(STATUSES, 1):
        assert await table.run_ids(status=status) == [run_id], "each is found by its own name alone"
    failed = [run_id for run_id, status in enumerate(STATUSES, 1) if status in FAILED_STATUSES]
    assert {"fail", "timeout", "frozen"} == set(FAILED_STATUSES)
    assert await table.run_ids(status="failed") == failed[::-1]
    assert await table.run_ids(status="failed", name="a") == failed[::-1]
    assert await table.run_ids(status="failed", name="a*", limit=2) == failed[:0:-1]
    assert await table.run_ids(status="failed", job_id=1, worker="w") == failed[::-1]
    assert await table.run_ids(status="failed", name="b*") == []


async def test_runs_are_filtered(table: Table) -> None:
    table.run(1, name="r/day", jobID=1)
    table.run(2, name="r/night", jobID=2, status="fail")
    table.run(3, name="r/day", jobID=1, status="running", worker="v")
    table.run(4, name="s", jobID=4, status="running")
    table.run(5, name="r*", jobID=5)
    ids = table.run_ids
    assert await ids(name="r/day") == [3, 1]
    assert await ids(name="r/day", status="success") == [1]
    assert await ids(name="r/day", before=3) == [1]
    assert await ids(name="r/*") == [3, 2, 1]
    assert await ids(name="r/*", limit=2, before=3) == [2, 1]
    assert await ids(name="r/*t") == [2]
    assert await ids(name="r/*", status="fail", worker="w") == [2]
    assert await ids(name="*day") == [3, 1]
    assert await ids(name="*") == [5, 4, 3, 2, 1]
    assert await ids(name="r[*]") == [5]
    assert await ids(name="none") == []
    assert await ids(jobID=1) == [3, 1]
    assert await ids(jobID=1, name="s*") == []
    assert await ids(jobID=1, name="r/*", worker="v") == [3]
    assert await ids(status="running") == [4, 3]
    assert await ids(status="running", name="r*") == [3]
    assert await ids(status="running", worker="w", limit=1) == [4]
    assert await ids(status="fail") == [2]
    assert await ids(worker="v") == [3]


async def test_names_at_the_edges_of_a_prefix_are_found(table: Table) -> None:
    names = ["a", "a\t", "a!", "ab", "a\ud7ff", "a\ue000", "a\U0010ffff", "a" + "\U0010ffff" * 254, "b", "A"]
    for run_id, name in enumerate(names, 1):
        table.run(run_id, name=name)
    assert await table.run_ids(name="a*") == [8, 7, 6, 5, 4, 3, 2, 1]


# --- schedules and ticks ---------------------------------------------------------------------------------


async def test_a_schedule_is_shown_with_its_newest_run_and_its_pause(table: Table) -> None:
    table.job(
        2,
        name="r/day",
        repeat="CRON TZ=Europe/Berlin 0 9 * * 1-5",
        options='{"source":"crontab","retries":1}',
    )
    table.run(4, jobID=2, status="fail")
    table.run(9, jobID=2, status="success")
    table.add("pauses", pattern="r/*", since=AT, by="anna")
    assert (await table.ask(ListSchedules()))["schedules"] == [
        {
            "jobID": 2,
            "name": "r/day",
            "state": "QUEUED",
            "repeat": "CRON TZ=Europe/Berlin 0 9 * * 1-5",
            "words": "at 09:00, on Monday to Friday (Europe/Berlin)",
            "nextRun": AT,
            "lastRun": "",
            "lastStatus": "success",
            "runID": 9,
            "paused": "r/*",
            "source": "crontab",
        }
    ]


async def test_a_pause_that_is_over_or_of_others_does_not_count(table: Table) -> None:
    table.job(1, repeat="CRON @daily")
    table.add("pauses", pattern="j*", since=AT, until="2026-11-21 03:29:56")
    table.add("pauses", pattern="k*", since=AT)
    (schedule,) = (await table.ask(ListSchedules()))["schedules"]
    assert (schedule["paused"], schedule["lastStatus"], schedule["runID"]) == ("", "", 0)
    table.db.execute("UPDATE pauses SET until = '2026-11-21 03:29:57' WHERE pattern = 'j*'")
    assert (await table.ask(ListSchedules()))["schedules"][0]["paused"] == "j*"
    table.clock.advance(1)
    assert (await table.ask(ListSchedules()))["schedules"][0]["paused"] == ""


async def test_schedules_are_listed_by_job_id_and_filtered(table: Table) -> None:
    repeats = ["CRON @daily", "", "FINISHED, +1 DAY", "cron 5m", " \tCron @never", "CRONICLE"]
    for job_id, repeat in enumerate(repeats, 1):
        source = '{"source":"x"}' if job_id == 4 else "{}"
        table.job(job_id, name=f"n{9 - job_id}", repeat=repeat, options=source)

    async def ids(**given: Any) -> list[int]:
        found = await table.ask(ListSchedules.read(given))
        return [schedule["jobID"] for schedule in found["schedules"]]

    assert await ids() == [1, 4, 5]
    assert await ids(limit=2) == [1, 4]
    assert await ids(after=4) == [5]
    assert await ids(name="n5") == [4]
    assert await ids(name="n[45]") == [4, 5]
    assert await ids(name="*8") == [1]
    assert await ids(name="m*") == []
    assert await ids(source="x") == [4]
    assert await ids(source="") == []


async def test_a_schedule_that_cannot_be_read_says_so(table: Table) -> None:
    table.job(1, repeat="CRON 99 * * * *")
    (schedule,) = (await table.ask(ListSchedules()))["schedules"]
    assert schedule["words"] == "minute '99': expected a number in 0-59"


async def test_ticks_are_listed_the_newest_first(table: Table) -> None:
    table.job(1, repeat="CRON @daily")
    table.job(2, repeat="CRON @daily")
    row = {"count": 1, "outcome": "fired", "late": 2, "runID": 8}
    table.add("ticks", jobID=1, tick="2026-11-19 00:00:00", until="2026-11-19 00:00:00", **row)
    skipped = {"count": 2, "outcome": "skipped", "reason": "paused"}
    table.add("ticks", jobID=1, tick="2026-11-20 00:00:00", until="2026-11-21 00:00:00", **skipped)
    table.add("ticks", jobID=2, tick="2026-11-20 00:00:00", until="2026-11-20 00:00:00", **row)
    found = await table.ask(ListTicks(job_id=1))
    assert found["ticks"] == [
        {
            "tick": "2026-11-20 00:00:00",
            "until": "2026-11-21 00:00:00",
            "count": 2,
            "outcome": "skipped",
            "reason": "paused",
            "late": 0,
            "runID": 0,
        },
        {
            "tick": "2026-11-19 00:00:00",
            "until": "2026-11-19 00:00:00",
            "count": 1,
            "outcome": "fired",
            "reason": "",
            "late": 2,
            "runID": 8,
        },
    ]
    assert (await table.ask(ListTicks(job_id=1, limit=1)))["ticks"] == found["ticks"][:1]
    older = await table.ask(ListTicks(job_id=1, before="2026-11-20 00:00:00"))
    assert older["ticks"] == found["ticks"][1:]
    assert await table.ask(ListTicks(job_id=2, before="2020-01-01")) == {"ticks": []}


async def test_ticks_of_an_unknown_job_are_not_found(table: Table) -> None:
    with pytest.raises(NotFound) as caught:
        await table.views.answer(ListTicks(job_id=3))
    assert caught.value.status_line == "404 No job with this jobID"


# --- all of it -------------------------------------------------------------------------------------------


async def test_every_command_of_the_reader_is_answered(table: Table) -> None:
    for kind in ALL:
        if kind.where == "reader":
            with suppress(NotFound):
                assert (await table.views.answer(kind.read(kind.example.request))).body


async def test_jobs_and_queries_are_answered_too(table: Table) -> None:
    table.job(1, data='{"a":1.0}')
    assert '"data":{"a":1.0}' in (await table.views.answer(ListJobs())).body
    answer = await table.views.answer(Query(query="SELECT jobID FROM jobs;", format="text"))
    assert (answer.body, answer.media) == ("jobID\n1\n", "text/plain")


async def test_validation_is_an_answer(table: Table) -> None:
    command = ValidateSchedule(repeat="0 9 * * 1-5")
    found = json.loads(validate(SimpleNamespace(clock=table.clock, settings=Settings()), command).body)
    ValidateSchedule.reply.model_validate(found)
    assert found["next"][0] == "2026-11-23 09:00:00"
