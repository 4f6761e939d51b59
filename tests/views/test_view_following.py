"""Output and events from the views, and waiting for more of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bedrockjobs.base.config import WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.errors import NotFound
from bedrockjobs.commands import Events, QueryRun, ReadOutput
from bedrockjobs.views import EVENTS, output_topic
from tests.views.table import AT, LONG_MS, Table


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

    monkeypatch.setattr("bedrockjobs.engine.events.Subscription.wait", wait)
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
            "seq": 3,
            "at": AT,
            "kind": "triggered",
            "name": "a/b",
            "jobID": 4,
            "runID": 5,
            "by": "anna",
            "detail": '3 workers [a "b"]',
        }
    ]
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
