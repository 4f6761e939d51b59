"""Limits of the views on one page, one query and all clients together."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.config import ANSWER_BYTES_MAX, LIST_MAX
from bedrockjobs.base.errors import BadArguments, BadQuery, TimedOut, TooMany, Unavailable
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, Events, ListRuns, ListSchedules, ListTicks, QueryRun, ReadOutput
from bedrockjobs.store import reader as reading
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.views import output_topic
from tests.views.table import ENDLESS, LONG_MS, Table


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
    assert table.reader._seeks._pending.most == reading.SEEKS_WAITING_MAX
    monkeypatch.setattr(table.reader._seeks._pending, "most", most)
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
    reader = SQLiteReader(path, settings)
    await reader.open()
    table = Table(path, reader, settings)
    try:
        table.run(5)
        slow = asyncio.ensure_future(reader.query(ENDLESS, "rows"))
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
    reader = SQLiteReader(path, settings)
    await reader.open()
    gone = asyncio.ensure_future(reader.query(ENDLESS, "rows"))
    while not reader.queries.pending:
        await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(TooMany):
        await reader.query("SELECT 1;", "rows")
    async with asyncio.timeout(10):
        while reader.queries.pending:
            await asyncio.sleep(0.01)
    assert await reader.query("SELECT 1;", "rows") == "[[1]]"
    await reader.close()


async def test_a_query_of_large_rows_stops_early(table: Table) -> None:
    limit = Settings().query_bytes_max
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999)"
    many += " SELECT hex(zeroblob({})) FROM n;"
    with pytest.raises(BadQuery) as caught:
        await table.reader.query(many.format(limit // 4), "rows")
    assert caught.value.reason == "Answer too large"
    assert len(json.loads(await table.reader.query(many.format(8), "rows"))) == 9999


async def test_reads_that_wait_when_the_server_stops_are_refused(path: Path) -> None:
    reader = SQLiteReader(path, Settings())
    await reader.open()
    reads = [asyncio.ensure_future(reader.view("newest_event", {}, 1)) for _ in range(5)]
    await asyncio.sleep(0)  # all have begun to wait
    await reader.close()
    for waiting in reads[1:]:  # the first one was under way
        with pytest.raises(Unavailable):
            await waiting
    await asyncio.wait(reads)
    reads[0].exception()
