"""What the views answer, what they wait for, and by which index each of their reads finds its rows."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import ANSWER_BYTES_MAX, LIST_MAX, WAIT_MS_DEFAULT, WAIT_MS_MAX, Settings
from bedrockjobs.base.errors import BadArguments, BadQuery, CommandError, NotFound, TimedOut, TooMany
from bedrockjobs.commands import (
    ALL,
    Command,
    EventReply,
    Events,
    ListJobs,
    ListQueues,
    ListRuns,
    ListSchedules,
    ListTicks,
    OutputLine,
    Overview,
    Query,
    QueryRun,
    ReadOutput,
    RunReply,
    ScheduleReply,
    TickReply,
    ValidateSchedule,
)
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Minute, Stats
from bedrockjobs.store import reader as reading
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.store.statements import _read
from bedrockjobs.views import EVENTS, Views, output_topic, queues
from bedrockjobs.views.problems import SAID_MAX
from bedrockjobs.views.queues import COUNTED_MAX
from bedrockjobs.views.render import keys_of
from bedrockjobs.views.validate import validate

VIEWS = _read("views.sql")

NOW = datetime(2026, 11, 21, 3, 29, 56, 332_000, UTC)
AT = "2026-11-21 03:00:00"
LONG_MS = 60_000
"""A wait that must not last."""

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n;"


class Table:
    """A database that a test fills, and the views of it."""

    def __init__(self, path: Path, reader: SQLiteReader, settings: Settings) -> None:
        """Write to the database at ``path``, read it by ``reader``."""
        self.db = sqlite3.connect(path, isolation_level=None)
        self.reader = reader
        self.notifier = Notifier()
        self.clock = ManualClock(NOW)
        self.stats = Stats()
        self.presence = WorkerRegistry(self.clock)
        self.views = Views(reader, self.notifier, self.presence, self.stats, self.clock, settings)

    def add(self, table: str, **values: Any) -> None:
        """Add a row."""
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def run(self, run_id: int, **values: Any) -> None:
        """Add a run that has ended well, unless told otherwise."""
        values = {"name": "a", "jobID": 1, "status": "success", "worker": "w", **values}
        self.add("runs", runID=run_id, attempt=1, cause="schedule", scheduledFor=AT, started=AT, **values)

    def line(self, run_id: int, seq: int, line: str = "x", stream: str = "out") -> None:
        """Add a line of output."""
        self.add("output", runID=run_id, seq=seq, at=AT, stream=stream, line=line)

    def event(self, seq: int, kind: str = "paused", **values: Any) -> None:
        """Add an event."""
        self.add("events", seq=seq, at=AT, kind=kind, **values)

    def job(self, job_id: int, **values: Any) -> None:
        """Add a job that is queued, unless told otherwise."""
        values = {"state": "QUEUED", "name": f"j{job_id}", "nextRun": AT, **values}
        self.add("jobs", jobID=job_id, created=AT, **values)

    async def ask(self, command: Command[Any]) -> Any:
        """Return the body of an answer, read; it must have the shape that the command promises."""
        found = json.loads((await self.views.answer(command)).body)
        if not isinstance(command, (Query, ListJobs)):
            type(command).reply.model_validate(found)
        return found

    async def run_ids(self, **given: Any) -> list[int]:
        """Return the runIDs that ListRuns answers."""
        return [run["runID"] for run in (await self.ask(ListRuns.read(given)))["runs"]]

    async def waiting(self, count: int = 1) -> None:
        """Wait until so many commands have read and found nothing."""
        listening = self.notifier._listening.values
        async with asyncio.timeout(10):
            while sum(len(rung._waiters) for rungs in listening() for rung in rungs) != count:
                await asyncio.sleep(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a new database as the server makes one."""
    path = tmp_path / "jobs.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    return path


@pytest.fixture
async def table(path: Path) -> AsyncIterator[Table]:
    """Return an empty database with its views."""
    settings = Settings()
    reader = SQLiteReader(str(path), settings)
    await reader.open()
    found = Table(path, reader, settings)
    yield found
    await reader.close()
    found.db.close()


# --- output ----------------------------------------------------------------------------------------------


async def test_output_is_read_from_a_line_on(table: Table) -> None:
    table.run(5, status="running")
    table.run(6, status="running")
    for seq in range(1, 5):
        table.line(5, seq, f"line {seq}", "err" if seq == 2 else "out")
    table.line(6, 1, "another run's")
    found = await table.ask(ReadOutput(run_id=5, after=1, limit=2))
    assert found == {
        "lines": [
            {"seq": 2, "at": AT, "stream": "err", "line": "line 2"},
            {"seq": 3, "at": AT, "stream": "out", "line": "line 3"},
        ],
        "status": "running",
        "ended": False,
    }


async def test_output_has_ended_when_the_run_has_and_no_more_lines_follow(table: Table) -> None:
    table.run(5, status="fail")
    for seq in range(1, 4):
        table.line(5, seq)
    first = await table.ask(ReadOutput(run_id=5, limit=2))
    assert ([line["seq"] for line in first["lines"]], first["ended"]) == ([1, 2], False)
    second = await table.ask(ReadOutput(run_id=5, after=2, limit=1))
    assert ([line["seq"] for line in second["lines"]], second["ended"]) == ([3], True)
    assert await table.ask(ReadOutput(run_id=5, after=3)) == {"lines": [], "status": "fail", "ended": True}


async def test_any_character_of_output_comes_through(table: Table) -> None:
    table.run(5)
    table.line(5, 1, 'a "quoted" \\ back\x1b[31mslash\r\n\x00 and Grüße \u2028')
    found = await table.ask(ReadOutput(run_id=5))
    assert found["lines"][0]["line"] == 'a "quoted" \\ back\x1b[31mslash\r\n\x00 and Grüße \u2028'


async def test_an_unknown_run_is_not_found(table: Table) -> None:
    for command in (ReadOutput(run_id=9), QueryRun(run_id=9), ReadOutput(run_id=9, connection="wait")):
        with pytest.raises(NotFound) as caught:
            await table.views.answer(command)
        assert caught.value.status_line == "404 No run with this runID"
        assert caught.value.detail == "there is no run 9"
    assert len(table.notifier) == 0


async def test_a_waiting_reader_gets_the_next_line(table: Table) -> None:
    table.run(5, status="running")
    table.line(5, 1)
    wait = asyncio.ensure_future(table.ask(ReadOutput(run_id=5, after=1, connection="wait", timeout=LONG_MS)))
    await table.waiting()
    table.notifier.notify(output_topic(5))  # a notification alone, say of a rolled back commit, is no line
    table.notifier.notify(output_topic(6))
    table.line(5, 2, "new")
    table.notifier.notify(output_topic(5))
    assert [line["line"] for line in (await wait)["lines"]] == ["new"]
    assert len(table.notifier) == 0


async def test_a_waiting_reader_hears_of_the_end(table: Table) -> None:
    table.run(5, status="running")
    wait = asyncio.ensure_future(table.ask(ReadOutput(run_id=5, connection="WAIT", timeout=LONG_MS)))
    await table.waiting()
    table.db.execute("UPDATE runs SET status = 'killed' WHERE runID = 5")
    table.notifier.notify(output_topic(5))
    assert await wait == {"lines": [], "status": "killed", "ended": True}


async def test_a_wait_that_runs_out_gets_the_empty_page(table: Table) -> None:
    table.run(5, status="running")
    for command in (
        ReadOutput(run_id=5),
        ReadOutput(run_id=5, connection="wait", timeout=20),
        ReadOutput(run_id=5, connection="wait", timeout=0),
        ReadOutput(run_id=5, connection="wait", timeout=-5),
    ):
        assert await table.ask(command) == {"lines": [], "status": "running", "ended": False}
    assert await table.ask(Events(connection="wait", timeout=20)) == {"events": []}


@pytest.mark.parametrize(
    ("timeout", "expected"), [(None, WAIT_MS_DEFAULT), (WAIT_MS_MAX * 2, WAIT_MS_MAX), (250, 250)]
)
async def test_a_wait_lasts_as_long_as_it_may(
    table: Table, monkeypatch: pytest.MonkeyPatch, timeout: int | None, expected: int
) -> None:
    asked: list[float] = []

    async def wait(_: Any, timeout_s: float) -> bool:
        asked.append(timeout_s)
        return False

    monkeypatch.setattr("bedrockjobs.engine.notifier.Subscription.wait", wait)
    await table.views.answer(Events(connection="wait", timeout=timeout))
    assert asked == [pytest.approx(expected / 1000, abs=1)]


async def test_a_drain_ends_every_wait_and_begins_none(table: Table) -> None:
    table.run(5, status="running")
    command = ReadOutput(run_id=5, connection="wait", timeout=LONG_MS)
    waits = [asyncio.ensure_future(table.ask(command)) for _ in range(3)]
    await table.waiting(3)
    table.notifier.end()
    async with asyncio.timeout(10):
        for wait in waits:
            assert (await wait)["lines"] == []
        assert (await table.ask(command))["lines"] == []
    assert table.views.ended


async def test_a_client_that_goes_away_leaves_nothing_behind(table: Table) -> None:
    table.run(5, status="running")
    wait = asyncio.ensure_future(table.views.answer(ReadOutput(run_id=5, connection="wait", timeout=LONG_MS)))
    await table.waiting()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert len(table.notifier) == 0
    assert (await table.ask(QueryRun(run_id=5)))["status"] == "running", "the connection still reads"


# --- events ----------------------------------------------------------------------------------------------


async def test_events_are_told_in_order_and_page_by_page(table: Table) -> None:
    table.event(3, "triggered", name="a/b", jobID=4, runID=5, by="anna", detail='3 workers [a "b"]')
    table.event(7)
    table.event(8)
    first = await table.ask(Events(limit=1))
    assert first["events"] == [
        {
            "seq": 3, "at": AT, "kind": "triggered", "name": "a/b", "jobID": 4, "runID": 5, "by": "anna",
            "detail": '3 workers [a "b"]',
        }
    ]  # fmt: skip
    assert [event["seq"] for event in (await table.ask(Events(after=3)))["events"]] == [7, 8]
    assert await table.ask(Events(after=8)) == {"events": []}


async def test_events_of_a_kind_or_a_name(table: Table) -> None:
    table.event(1, "paused", name="a/1")
    table.event(2, "resumed", name="a/1")
    table.event(3, "paused", name="b/1")
    assert [event["seq"] for event in (await table.ask(Events(kind="paused")))["events"]] == [1, 3]
    assert [event["seq"] for event in (await table.ask(Events(name="a/*")))["events"]] == [1, 2]
    assert [event["seq"] for event in (await table.ask(Events(name="a/*", kind="paused")))["events"]] == [1]


async def test_a_wait_for_an_event_of_a_kind_goes_on_where_it_looked(table: Table) -> None:
    table.event(1, "paused")
    wait = asyncio.ensure_future(
        table.views.events(Events(kind="lost", connection="wait", timeout=LONG_MS, after=0))
    )
    await table.waiting()
    table.event(2, "resumed")
    table.notifier.notify(EVENTS)
    table.event(3, "lost")
    table.notifier.notify(EVENTS)
    page = await wait
    assert [row[0] for row in page.events] == [3]
    assert page.reached == 3
    nothing = await table.views.events(Events(kind="lost", after=3))
    table.event(4, "paused")
    assert nothing == ([], 3)
    assert await table.views.events(Events(kind="lost", after=3)) == ([], 4), "4 need not be looked at again"


async def test_only_what_comes_from_now_on(table: Table) -> None:
    assert await table.views.events(Events(after=-1)) == ([], 0)
    table.event(1)
    assert await table.views.events(Events(after=-1)) == ([], 1)
    wait = asyncio.ensure_future(table.ask(Events(after=-1, connection="wait", timeout=LONG_MS)))
    await table.waiting()
    table.event(2)
    table.notifier.notify(EVENTS)
    assert [event["seq"] for event in (await wait)["events"]] == [2]


# --- runs ------------------------------------------------------------------------------------------------


async def test_a_run_is_shown_with_its_json_as_it_was_spelled(table: Table) -> None:
    result = '{"b":2.50, "a":12345678901234567890}'
    table.run(
        5, name='n"1', jobID=3, worker="w1", host="h", pid=7, status="fail", exitCode=3, error="no\nway",
        result=result, progress="[1.0]", output='["one", "two"]', stop="TERM", ended=AT,
    )  # fmt: skip
    body = (await table.views.answer(QueryRun(run_id=5))).body
    assert f'"result":{result},"progress":[1.0],"output":["one", "two"]' in body
    assert json.loads(body) == {
        "runID": 5, "jobID": 3, "name": 'n"1', "attempt": 1, "cause": "schedule", "scheduledFor": AT,
        "started": AT, "ended": AT, "worker": "w1", "host": "h", "pid": 7, "status": "fail", "exitCode": 3,
        "error": "no\nway", "result": json.loads(result), "progress": [1.0], "output": ["one", "two"],
        "stop": "TERM",
    }  # fmt: skip


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
            "jobID": 2, "name": "r/day", "state": "QUEUED", "repeat": "CRON TZ=Europe/Berlin 0 9 * * 1-5",
            "words": "at 09:00, on Monday to Friday (Europe/Berlin)", "nextRun": AT, "lastRun": "",
            "lastStatus": "success", "runID": 9, "paused": "r/*", "source": "crontab",
        }
    ]  # fmt: skip


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
            "tick": "2026-11-20 00:00:00", "until": "2026-11-21 00:00:00", "count": 2, "outcome": "skipped",
            "reason": "paused", "late": 0, "runID": 0,
        },
        {
            "tick": "2026-11-19 00:00:00", "until": "2026-11-19 00:00:00", "count": 1, "outcome": "fired",
            "reason": "", "late": 2, "runID": 8,
        },
    ]  # fmt: skip
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


# --- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ReadOutput, ListRuns, ListSchedules, ListTicks, Events])
def test_a_page_is_bounded(kind: type[Command[Any]]) -> None:
    ids = {"runID": 1} if kind is ReadOutput else {"jobID": 1} if kind is ListTicks else {}
    assert kind.read({**ids, "limit": LIST_MAX}).limit == LIST_MAX  # type: ignore[attr-defined]
    for limit in (0, LIST_MAX + 1):
        with pytest.raises(BadArguments) as caught:
            kind.read({**ids, "limit": limit})
        assert caught.value.status_line == "402 Malformed limit"


async def test_a_page_of_large_runs_is_cut_and_goes_on(table: Table) -> None:
    result = json.dumps({"a": "x" * (ANSWER_BYTES_MAX // 4)})
    for run_id in range(1, 8):
        table.run(run_id, result=result)
    first = await table.run_ids()
    assert first == [7, 6, 5, 4]
    assert await table.run_ids(before=first[-1]) == [3, 2, 1]


async def test_output_that_was_cut_has_not_ended(table: Table) -> None:
    table.run(5)
    for seq in range(1, 4):
        table.line(5, seq, "x" * (ANSWER_BYTES_MAX // 2))
    page = await table.views.output(ReadOutput(run_id=5))
    assert 0 < len(page.lines) < 3
    assert not page.ended
    rest = await table.views.output(ReadOutput(run_id=5, after=page.lines[-1][0]))
    assert rest.ended


async def test_very_many_reads_are_refused_but_not_to_those_let_in(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 5
    assert table.reader._seeks._waiting_max == reading.SEEKS_WAITING_MAX
    monkeypatch.setattr(table.reader._seeks, "_waiting_max", most)
    table.run(5, status="running")
    waits = [
        asyncio.ensure_future(table.ask(ReadOutput(run_id=5, connection="wait", timeout=LONG_MS)))
        for _ in range(most)
    ]
    await table.waiting(most)
    table.line(5, 1)
    table.notifier.notify(output_topic(5))
    more = [asyncio.ensure_future(table.ask(QueryRun(run_id=5))) for _ in range(most + 1)]
    answers = await asyncio.gather(*waits, *more, return_exceptions=True)
    assert all(isinstance(answer, dict) for answer in answers[:most]), "who waits is not refused"
    assert any(isinstance(answer, TooMany) for answer in answers[most:])
    assert (await table.ask(QueryRun(run_id=5)))["runID"] == 5


async def test_a_slow_query_keeps_nobody_waiting_who_follows_a_run(path: Path) -> None:
    settings = Settings(query_s=0.5)
    reader = SQLiteReader(str(path), settings)
    await reader.open()
    table = Table(path, reader, settings)
    try:
        table.run(5)
        slow = asyncio.ensure_future(reader.query(ENDLESS))
        await asyncio.sleep(0)
        assert (await table.ask(QueryRun(run_id=5)))["runID"] == 5
        assert not slow.done()
        with pytest.raises(TimedOut):
            await slow
    finally:
        await reader.close()
        table.db.close()


async def test_a_query_whose_client_went_away_keeps_its_limits(path: Path) -> None:
    settings = Settings(query_s=0.2, query_waiting_max=1)
    reader = SQLiteReader(str(path), settings)
    await reader.open()
    gone = asyncio.ensure_future(reader.query(ENDLESS))
    while not reader._scans._waiting:
        await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(TooMany):
        await reader.query("SELECT 1;")
    async with asyncio.timeout(10):
        while reader._scans._waiting:
            await asyncio.sleep(0.01)
    assert await reader.query("SELECT 1;") == (["1"], [(1,)])
    await reader.close()


async def test_a_query_of_large_rows_stops_early(table: Table) -> None:
    limit = Settings().query_bytes_max
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999)"
    many += " SELECT hex(zeroblob({})) FROM n;"
    with pytest.raises(BadQuery) as caught:
        await table.reader.query(many.format(limit // 4))
    assert caught.value.reason == "Answer too large"
    assert len((await table.reader.query(many.format(8)))[1]) == 9999


@pytest.mark.parametrize("name", VIEWS)
async def test_the_reader_may_run_every_view(table: Table, name: str) -> None:
    page = await table.reader.view(name, PARAMETERS, 5)
    assert page.more is False
    assert page.rows == {"newest_event": [(0,)]}.get(name, [])


async def test_a_view_never_writes(table: Table) -> None:
    for connection in (table.reader._seeks, table.reader._scans):
        with pytest.raises(CommandError):
            await connection.read("DELETE FROM runs", (), 1, 1)


# --- at first sight --------------------------------------------------------------------------------------


def job(table: Table, **values: Any) -> None:
    """Add a job that is due."""
    table.add("jobs", **{"created": AT, "nextRun": AT, "state": "QUEUED", "name": "a", **values})


async def overview(table: Table) -> dict[str, Any]:
    """Return what Overview answers, without what is wrong and what comes next."""
    found = await table.ask(Overview())
    return {key: value for key, value in found.items() if key not in ("problems", "next", "newestEvent")}


NONE = {
    "now": "2026-11-21 03:29:56", "ready": 0, "later": 0, "running": 0, "paused": 0, "blocked": 0,
    "mocked": 0, "failed": 0, "children": 0, "untaken": 0, "repeating": 0, "pauses": 0, "workers": 0,
    "taking": 0, "oldestReady": "", "more": [],
}  # fmt: skip


async def test_an_overview_of_nothing(table: Table) -> None:
    assert await overview(table) == NONE
    assert (await table.ask(Overview()))["problems"] == []


async def test_an_overview(table: Table) -> None:
    job(table, nextRun="2026-11-21 02:00:00", priority=0)
    job(table, lane="cmd lock x")
    job(table, lane="mock", state="RUNQUEUED")
    job(table, nextRun="2026-11-22 00:00:00", lane="every", repeat="CRON 0 0 * * *")
    for state in ("FAILED", "PAUSED", "PAUSED", "RUNNING", "FINISHED", "CANCELLED"):
        job(table, state=state)
    table.run(1, status="running")
    table.run(2)
    table.presence.seen("w")
    assert await overview(table) == {
        **NONE, "ready": 2, "later": 1, "mocked": 1, "running": 2, "children": 2, "failed": 1, "repeating": 1,
        "workers": 1, "taking": 1, "untaken": 2, "oldestReady": "2026-11-21 02:00:00",
    }  # fmt: skip


async def test_what_is_paused_or_mocked_keeps_nobody_waiting(table: Table) -> None:
    job(table, name="mock", lane="mock", nextRun="2026-11-21 01:00:00")
    job(table, name="held/a", nextRun="2026-11-21 02:00:00")
    job(table, name="free", nextRun="2026-11-21 03:00:00")
    assert (await overview(table))["oldestReady"] == "2026-11-21 02:00:00"
    table.add("pauses", pattern="held/*", since=AT)
    found = await overview(table)
    assert (found["oldestReady"], found["ready"], found["paused"]) == ("2026-11-21 03:00:00", 1, 1)
    table.db.execute("UPDATE pauses SET \"until\" = '2026-11-21 00:00:00'")
    assert (await overview(table))["oldestReady"] == "2026-11-21 02:00:00"


async def test_an_overview_counts_no_further_than_it_shows(table: Table) -> None:
    rows = ((AT, AT, "QUEUED", "a"),) * (COUNTED_MAX + 5)
    table.db.executemany("INSERT INTO jobs (created, nextRun, state, name) VALUES (?, ?, ?, ?)", rows)
    found = await overview(table)
    assert (found["ready"], found["more"]) == (COUNTED_MAX, ["ready", "untaken"])
    (queue,) = (await table.ask(ListQueues()))["queues"]
    assert (queue["ready"], queue["more"]) == (COUNTED_MAX, True)


def small(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Let a look at the queue stop early."""
    for name, limit in limits.items():
        monkeypatch.setattr(queues, name, limit)


async def test_few_large_names_are_counted_further_than_many(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, COUNTS_MAX=100, COUNTED_LEAST=1)
    for name in ("a", "b", "c"):
        job(table, name=name)
    for _ in range(90):
        job(table, name="large")
    found = await overview(table)
    assert (found["ready"], found["more"]) == (93, [])
    for _ in range(20):
        job(table, name="large")
    found = await overview(table)
    assert found["ready"] == 100
    assert found["more"] == ["ready", "untaken"]


async def test_names_behind_the_limit_are_counted_together_by_their_beginning(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, ALIKE_MAX=2)
    for number in range(6):
        job(table, name=f"mail/{number}", nextRun="2026-11-21 02:00:00" if number == 5 else AT)
    job(table, name="zz")
    found = await overview(table)
    assert (found["ready"], found["more"], found["oldestReady"]) == (7, [], "2026-11-21 02:00:00")
    table.add("pauses", pattern="mail/*", since=AT)
    found = await overview(table)
    assert (found["ready"], found["paused"], found["more"]) == (1, 6, [])
    table.db.execute("UPDATE pauses SET pattern = 'mail/[0-3]'")
    found = await overview(table)
    assert (found["paused"], found["ready"]) == (2, 1), "what is not known one by one is not guessed"
    assert "ready" in found["more"] or "paused" in found["more"]


async def test_each_lane_has_its_share_of_the_names(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, GROUPS_MAX=6)
    for number in range(20):
        job(table, name=f"n{number:02}")
    job(table, name="own", lane="cmd")
    job(table, name="bound", lane="for w9")
    table.presence.seen("w", names=["*"])
    found = await table.ask(Overview())
    assert found["ready"] == 22, "the lanes alone tell it while nothing is paused"
    assert {"ready", "later", "paused", "blocked", "mocked"} <= set(found["more"])
    assert {problem["name"] for problem in found["problems"]} >= {"own", "bound"}


async def test_very_many_names_that_nobody_takes_are_counted(table: Table) -> None:
    table.presence.seen("w", names=["x"])
    for number in range(SAID_MAX + 3):
        job(table, name=f"n{number}")
    found = [one for one in (await table.ask(Overview()))["problems"] if one["kind"] == "no worker"]
    assert len(found) == SAID_MAX + 1
    assert found[0]["detail"].startswith("nobody takes n")
    assert found[-1]["detail"] == "nobody takes 3 more names"


async def test_very_many_pauses_are_counted(table: Table) -> None:
    for number in range(SAID_MAX + 3):
        table.add("pauses", pattern=f"n{number}", since=AT)
    found = (await table.ask(Overview()))["problems"]
    assert [one["kind"] for one in found] == ["paused"] * (SAID_MAX + 1)
    assert found[-1]["detail"] == "3 more patterns are paused"


async def test_what_is_paused_for_somebody_is_said_in_full(table: Table) -> None:
    table.add("pauses", pattern="*", since=f"{AT}.250", by="ann", reason="moving the disks")
    job(table, name="a")
    job(table, name="b", nextRun="2026-11-22 00:00:00")
    (found,) = (await table.ask(Overview()))["problems"]
    assert found["detail"] == (
        f"everything is paused by ann since {AT}: 2 jobs wait, 1 of them not due yet;"
        " reason: moving the disks"
    )


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "the last run of s1 failed"),
        (2, "the last runs of s1 and s2 failed"),
        (3, "the last runs of s1, s2 and s3 failed"),
        (4, "the last runs of s1, s2, s3 and 1 more schedule failed"),
        (6, "the last runs of s1, s2, s3 and 3 more schedules failed"),
    ],
)
async def test_schedules_that_failed_are_named(table: Table, count: int, sentence: str) -> None:
    for number in range(1, count + 1):
        table.job(number, name=f"s{number}", repeat="CRON 0 0 1 1 *", nextRun="2027-01-01 00:00:00")
        table.run(number, jobID=number, name=f"s{number}", status="fail")
    (found,) = (await table.ask(Overview()))["problems"]
    assert (found["kind"], found["count"], found["detail"]) == ("last run failed", count, sentence)


async def test_the_schedules_that_fire_next(table: Table) -> None:
    for number, next_run in enumerate(("2026-12-02", "2026-12-01", "9999-12-31"), 1):
        table.job(number, name=f"s{number}", repeat="CRON 0 0 1 1 *", nextRun=f"{next_run} 00:00:00")
    table.add("pauses", pattern="s2", since=AT)
    assert [(one["jobID"], one["paused"]) for one in (await table.ask(Overview()))["next"]] == [
        (2, "s2"), (1, ""),
    ]  # fmt: skip


async def test_minutes_in_buckets(table: Table) -> None:
    for minute, created in (("03:00", 1), ("03:01", 2), ("03:05", 4)):
        counts = {"taken": 1, "finished": 1, "failed": 0, "retried": 0, "lost": 0, "waits": 2, "waitMs": 30}
        table.add("stats", minute=f"2026-11-21 {minute}:00", created=created, **counts)
    table.stats.open = Minute("2026-11-21 03:06:00", created=8)
    found = await table.views.stats("2026-11-21 03:00:00", 300)
    assert [(row["minute"], row["created"], row["wait_ms"]) for row in found] == [
        ("2026-11-21 03:00:00", 3, 15.0), ("2026-11-21 03:05:00", 12, 15.0),
    ]  # fmt: skip
    assert len(await table.views.stats("2026-11-21 03:01:00", 60)) == 3
    assert [row["wait_ms"] for row in await table.views.stats("2026-11-21 03:06:00", 60)] == [None]


# --- plans -----------------------------------------------------------------------------------------------

PARAMETERS: dict[str, Any] = {
    "runID": 1, "jobID": 1, "after": 0, "before": 9, "limit": 5, "low": "a", "high": "b", "pattern": None,
    "status": None, "worker": None, "kind": None, "source": None, "now": AT, "since": AT, "most": 9,
}  # fmt: skip

SEEKS = {
    "output_of_run": {
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
        "output USING PRIMARY KEY (runID=? AND seq>?) LEFT-JOIN",
    },
    "run": {"runs USING INTEGER PRIMARY KEY (rowid=?)"},
    "runs": {"runs USING INTEGER PRIMARY KEY (rowid<?)"},
    "runs_in_progress": {"runs USING INDEX runsOpen (runID<?)"},
    "runs_of_job": {"runs USING INDEX runsByJob (jobID=? AND runID<?)"},
    "runs_of_name": {"runs USING INDEX runsByName (name=? AND runID<?)"},
    "runs_of_names": {
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
        "runs USING INDEX runsByName (name>? AND name<?)",
    },
    "schedules": {
        "jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "jobs USING INDEX jobsRepeating (name>? AND name<?)",
        "runs USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "runs USING INDEX runsByJob (jobID=?)",
    },
    "minutes": {"stats USING PRIMARY KEY (minute>?)"},
    "ticks": {
        "jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "ticks USING PRIMARY KEY (jobID=? AND tick<?) LEFT-JOIN",
    },
    "newest_event": {"events"},
    "events": {"events USING INTEGER PRIMARY KEY (rowid>?)"},
}
"""How each view finds its rows; ``max(seq)`` alone is a seek to the end."""

SORTS = {"runs_of_names"}
"""Of many names the newest runs: sorted within the index, one page of numbers at the most is kept."""

SCANS = {"schedules": {"pauses"}}
"""Tables that are looked through: people pause few patterns."""


@pytest.fixture(params=["empty", "analyzed"])
def database(request: pytest.FixtureRequest, path: Path) -> Iterator[sqlite3.Connection]:
    """Return a new database, and one with rows of which SQLite knows the statistics."""
    db = sqlite3.connect(path, isolation_level=None)
    if request.param == "analyzed":
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO runs (runID, jobID, name, status, attempt, cause, scheduledFor, started, worker)"
            " VALUES (?, ?, ?, ?, 1, '', '', '', ?)",
            [
                (n, n % 50, f"n{n % 50}", ("success", "running")[n % 9 == 0], f"w{n % 3}")
                for n in range(2_000)
            ],
        )
        db.executemany("INSERT INTO output VALUES (?, ?, '', 'out', '')", [(n % 9, n) for n in range(2_000)])
        db.executemany(
            "INSERT INTO jobs (jobID, created, state, name, nextRun, repeat)"
            " VALUES (?, '', 'QUEUED', ?, '', ?)",
            [(n, f"n{n}", ("", "CRON 5m", "HOURLY")[n % 3]) for n in range(1, 2_000)],
        )
        db.executemany(
            "INSERT INTO ticks VALUES (?, ?, '', 1, '', '', 0, 0)", [(n % 9, n) for n in range(2_000)]
        )
        db.executemany(
            "INSERT INTO events (seq, at, kind) VALUES (?, '', ?)", [(n, n % 3) for n in range(2_000)]
        )
        db.execute("INSERT INTO pauses (pattern, since) VALUES ('a*', '')")
        db.execute("COMMIT")
        db.execute("ANALYZE")
    yield db
    db.close()


def test_every_view_is_judged() -> None:
    assert set(VIEWS) == set(SEEKS)


@pytest.mark.parametrize("name", SEEKS)
def test_a_view_uses_its_index(database: sqlite3.Connection, name: str) -> None:
    steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {VIEWS[name]}", PARAMETERS)]
    found = {step.replace("COVERING ", "")[7:] for step in steps if step.startswith("SEARCH ")}
    assert found == SEEKS[name], steps
    scanned = {step.split()[1] for step in steps if step.startswith("SCAN")}
    assert scanned == SCANS.get(name, set()), steps
    assert any("TEMP B-TREE" in step for step in steps) == (name in SORTS), steps


@pytest.mark.parametrize(
    ("name", "reply", "also"),
    [
        ("run", RunReply, ()),
        ("runs", RunReply, ()),
        ("runs_in_progress", RunReply, ()),
        ("runs_of_job", RunReply, ()),
        ("runs_of_name", RunReply, ()),
        ("runs_of_names", RunReply, ()),
        ("schedules", ScheduleReply, ()),
        ("ticks", TickReply, ()),
        ("events", EventReply, ()),
        ("output_of_run", OutputLine, ("status",)),
    ],
)
def test_columns_are_those_of_the_reply(path: Path, name: str, reply: Any, also: tuple[str, ...]) -> None:
    db = sqlite3.connect(path)
    columns = tuple(column[0] for column in db.execute(VIEWS[name], PARAMETERS).description)
    db.close()
    assert columns == also + keys_of(reply)
